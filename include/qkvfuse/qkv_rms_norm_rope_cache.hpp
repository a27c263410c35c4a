// The operator QkvRmsNormRopeCache (QNR): packed qkv -> RMSNorm and RoPE on q and k -> dense q, and
// k and v into the KV cache, 16-bit or int8. Formulas: docs/operators/qkv_rms_norm_rope_cache.md.
#pragma once

#include <optional>

#include "qkvfuse/plan.hpp"
#include "qkvfuse/specs.hpp"

namespace qkvfuse {

struct QkvRmsNormRopeCacheSpec {
  DType dtype = DType::kBFloat16;  // of qkv, gammas, cos, sin and the dense outputs: fp16 or bf16
  HeadCounts heads;
  int64_t head_dim = 0;   // even, 2..1024
  double epsilon = 1e-6;  // used as float
  CacheSpec k_cache;      // dtype int8 or `dtype`
  CacheSpec v_cache;
  SlotSpec slots;
  bool before_quant = false;  // also write q_before_quant, k_out and v_out

  // Strides of tensors that are not packed.
  std::optional<TokenStrides> qkv_strides;
  std::optional<TokenStrides> cos_strides;  // head is not used
  std::optional<TokenStrides> sin_strides;
  std::optional<TokenStrides> q_out_strides;
  std::optional<TokenStrides> q_before_quant_strides;
  std::optional<TokenStrides> k_out_strides;
  std::optional<TokenStrides> v_out_strides;
  StridedShape q_gamma_shape{};  // head_dim elements
  StridedShape k_gamma_shape{};

  bool operator==(const QkvRmsNormRopeCacheSpec&) const = default;
};

[[nodiscard]] QKVFUSE_API Result<Plan> MakePlan(const QkvRmsNormRopeCacheSpec& spec,
                                                const PlanOptions& options = {}) noexcept;

/// The operator's arguments as whole tensors, with the shapes of the aclnn operator (the cache's
/// may be those of another layout); an absent optional one is nullptr.
struct QkvRmsNormRopeCacheArguments {
  const TensorView* qkv = nullptr;      // [T, N*D]
  const TensorView* q_gamma = nullptr;  // [D]
  const TensorView* k_gamma = nullptr;  // [D]
  const TensorView* cos = nullptr;      // [T, D]
  const TensorView* sin = nullptr;      // [T, D]
  const TensorView* index = nullptr;    // [T] int64
  const TensorView* q_out = nullptr;    // [T, Nq*D]
  const TensorView* k_cache = nullptr;  // PA_NZ: [blocks, Nk*D/D0, block_size, D0]
  const TensorView* v_cache = nullptr;  // others: [blocks, block_size, Nv, D]
  const TensorView* k_scale = nullptr;  // [Nk, D] fp32
  const TensorView* v_scale = nullptr;
  const TensorView* k_offset = nullptr;
  const TensorView* v_offset = nullptr;
  const TensorView* q_out_before_quant = nullptr;  // [T, Nq*D]
  const TensorView* k_out_before_quant = nullptr;  // [T, Nk*D]
  const TensorView* v_out_before_quant = nullptr;  // [T, Nv*D]
  Integers qkv_size;                               // [B, S, N, D]
  Integers head_nums;                              // [Nq, Nk, Nv]
  double epsilon = 1e-6;
  const char* cache_mode = nullptr;  // null or "PA_NZ"; with rules.any_layout also "PA", "Norm"
};

/// Checks everything that needs no tensor data, in the order of the operator's page, and returns
/// the Spec with the pointers and token counts of the call.
[[nodiscard]] QKVFUSE_API Result<BoundCall<QkvRmsNormRopeCacheSpec>> Bind(
    const QkvRmsNormRopeCacheArguments& arguments, const DoorRules& rules) noexcept;

template <>
[[nodiscard]] QKVFUSE_API Result<Plan> MakePlan(const BoundCall<QkvRmsNormRopeCacheSpec>& call,
                                                const PlanOptions& options) noexcept;

}  // namespace qkvfuse
