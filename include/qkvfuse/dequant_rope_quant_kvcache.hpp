// The operator DequantRopeQuantKvcache (DRQ): packed x, dequantised when it is int32 -> RoPE on q
// and k -> dense q, and k and v into an int8 KV cache. Formulas:
// docs/operators/dequant_rope_quant_kvcache.md.
#pragma once

#include <optional>

#include "qkvfuse/plan.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse {

struct DequantRopeQuantKvcacheSpec {
  DType x_dtype = DType::kInt32;   // int32, or `dtype`
  DType dtype = DType::kBFloat16;  // of cos, sin and the dense outputs: fp16 or bf16
  HeadCounts heads;
  int64_t head_dim = 0;  // even, 2..1024
  CacheSpec k_cache;     // dtype int8
  CacheSpec v_cache;
  SlotSpec slots{SlotMode::kStartPerSequence, DType::kInt32, 1};
  bool kv_output = false;  // also write k_out and v_out

  // Dequantisation, int32 x only. weight_scale is then required.
  bool has_token_scale = false;
  std::optional<DType> bias;  // fp32, fp16, bf16 or int32

  // Strides of tensors that are not packed.
  std::optional<TokenStrides> x_strides;
  std::optional<TokenStrides> cos_strides;  // head is not used
  std::optional<TokenStrides> sin_strides;
  std::optional<TokenStrides> q_out_strides;
  std::optional<TokenStrides> k_out_strides;
  std::optional<TokenStrides> v_out_strides;
  StridedShape weight_scale_shape{};  // at least (Nq+Nk+Nv)*head_dim elements
  StridedShape token_scale_shape{};   // at least as many elements as tokens
  StridedShape bias_shape{};          // at least (Nq+Nk+Nv)*head_dim elements

  bool operator==(const DequantRopeQuantKvcacheSpec&) const = default;
};

[[nodiscard]] QKVFUSE_API Result<Plan> MakePlan(const DequantRopeQuantKvcacheSpec& spec,
                                                const PlanOptions& options = {}) noexcept;

/// The operator's arguments as whole tensors, with the shapes of the aclnn operator; an absent
/// optional one is nullptr.
struct DequantRopeQuantKvcacheArguments {
  const TensorView* x = nullptr;        // [B, S, H] or [B, H]
  const TensorView* cos = nullptr;      // [B, S, 1, D] or [B, D]
  const TensorView* sin = nullptr;      // as cos
  const TensorView* k_cache = nullptr;  // [C1, C2, Nkv, D] int8
  const TensorView* v_cache = nullptr;  // as k_cache
  const TensorView* indices = nullptr;  // [B] or [T] int32
  const TensorView* scale_k = nullptr;  // Nkv*D elements fp32
  const TensorView* scale_v = nullptr;
  const TensorView* offset_k = nullptr;
  const TensorView* offset_v = nullptr;
  const TensorView* weight_scale = nullptr;      // at least H elements fp32
  const TensorView* activation_scale = nullptr;  // at least T elements fp32
  const TensorView* bias = nullptr;              // at least H elements
  const TensorView* q_out = nullptr;             // [B, S, Nq, D] or [B, Nq, D]
  const TensorView* k_out = nullptr;             // [B, S, Nkv, D] or [B, Nkv, D]
  const TensorView* v_out = nullptr;
  Integers size_splits;              // [Nq*D, Nkv*D, Nkv*D]
  const char* quant_mode = nullptr;  // null or "static"
  const char* layout = nullptr;      // null or "BSND"
  bool kv_output = false;
  const char* cache_mode = nullptr;  // null or "contiguous", or "page"
};

[[nodiscard]] QKVFUSE_API Result<BoundCall<DequantRopeQuantKvcacheSpec>> Bind(
    const DequantRopeQuantKvcacheArguments& arguments, const DoorRules& rules) noexcept;

template <>
[[nodiscard]] QKVFUSE_API Result<Plan> MakePlan(const BoundCall<DequantRopeQuantKvcacheSpec>& call,
                                                const PlanOptions& options) noexcept;

}  // namespace qkvfuse
