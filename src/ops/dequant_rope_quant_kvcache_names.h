// The arguments of DequantRopeQuantKvcache, in every door's spelling.
#pragma once

#include "ops/argument_checks.h"

namespace qkvfuse::drq {

inline constexpr ArgumentName kX{"x", "x", "x"};
inline constexpr ArgumentName kCos{"cos", "cos", "cos"};
inline constexpr ArgumentName kSin{"sin", "sin", "sin"};
inline constexpr ArgumentName kKCache{"k_cache", "k_cache", "kCacheRef"};
inline constexpr ArgumentName kVCache{"v_cache", "v_cache", "vCacheRef"};
inline constexpr ArgumentName kIndices{"slots", "indices", "indices"};
inline constexpr ArgumentName kScaleK{"k_scale", "scale_k", "scaleK"};
inline constexpr ArgumentName kScaleV{"v_scale", "scale_v", "scaleV"};
inline constexpr ArgumentName kOffsetK{"k_offset", "offset_k", "offsetK"};
inline constexpr ArgumentName kOffsetV{"v_offset", "offset_v", "offsetV"};
inline constexpr ArgumentName kWeightScale{"weight_scale", "weight_scale", "weightScale"};
inline constexpr ArgumentName kActivationScale{"token_scale", "activation_scale",
                                               "activationScale"};
inline constexpr ArgumentName kBias{"bias", "bias", "bias"};
inline constexpr ArgumentName kSizeSplits{"size_splits", "size_splits", "sizeSplits"};
inline constexpr ArgumentName kQuantMode{"quant_mode", "quant_mode", "quantMode"};
inline constexpr ArgumentName kLayout{"input_layout", "input_layout", "layout"};
inline constexpr ArgumentName kCacheMode{"cache_mode", "cache_mode", "cacheMode"};
inline constexpr ArgumentName kQOut{"q_out", "q_out", "qOut"};
inline constexpr ArgumentName kKOut{"k_out", "k_out", "kOut"};
inline constexpr ArgumentName kVOut{"v_out", "v_out", "vOut"};

}  // namespace qkvfuse::drq
