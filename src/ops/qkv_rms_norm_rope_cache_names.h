// The arguments of QkvRmsNormRopeCache, in every door's spelling.
#pragma once

#include "ops/argument_checks.h"

namespace qkvfuse::qnr {

inline constexpr ArgumentName kQkv{"x", "qkv", "qkv"};
inline constexpr ArgumentName kQGamma{"q_gamma", "q_gamma", "qGamma"};
inline constexpr ArgumentName kKGamma{"k_gamma", "k_gamma", "kGamma"};
inline constexpr ArgumentName kCos{"cos", "cos", "cos"};
inline constexpr ArgumentName kSin{"sin", "sin", "sin"};
inline constexpr ArgumentName kIndex{"slots", "index", "index"};
inline constexpr ArgumentName kQOut{"q_out", "q_out", "qOut"};
inline constexpr ArgumentName kKCache{"k_cache", "k_cache", "kCache"};
inline constexpr ArgumentName kVCache{"v_cache", "v_cache", "vCache"};
inline constexpr ArgumentName kKScale{"k_scale", "k_scale", "kScale"};
inline constexpr ArgumentName kVScale{"v_scale", "v_scale", "vScale"};
inline constexpr ArgumentName kKOffset{"k_offset", "k_offset", "kOffset"};
inline constexpr ArgumentName kVOffset{"v_offset", "v_offset", "vOffset"};
inline constexpr ArgumentName kQkvSize{"qkv_size", "qkv_size", "qkvSize"};
inline constexpr ArgumentName kHeadNums{"head_nums", "head_nums", "headNums"};
inline constexpr ArgumentName kCacheMode{"cache_mode", "cache_mode", "cacheMode"};
inline constexpr ArgumentName kQBefore{"q_before_quant", "q_out_before_quant", "qOutBeforeQuant"};
inline constexpr ArgumentName kKBefore{"k_out", "k_out_before_quant", "kOutBeforeQuant"};
inline constexpr ArgumentName kVBefore{"v_out", "v_out_before_quant", "vOutBeforeQuant"};

}  // namespace qkvfuse::qnr
