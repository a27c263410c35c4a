#include "plan/pipeline.h"

namespace qkvfuse {
namespace {

// In the order of Operand.
constexpr const void* Tensors::*kInputs[] = {
    &Tensors::x,           &Tensors::q,         &Tensors::k,        &Tensors::v,
    &Tensors::q_gamma,     &Tensors::k_gamma,   &Tensors::v_gamma,  &Tensors::cos,
    &Tensors::sin,         &Tensors::positions, &Tensors::slots,    &Tensors::lengths,
    &Tensors::row_offsets, &Tensors::q_scale,   &Tensors::k_scale,  &Tensors::v_scale,
    &Tensors::q_offset,    &Tensors::k_offset,  &Tensors::v_offset, &Tensors::weight_scale,
    &Tensors::token_scale, &Tensors::bias,      &Tensors::q_sums,   &Tensors::k_sums};
constexpr void* Tensors::*kOutputs[] = {
    &Tensors::q_out,       &Tensors::q_before_quant, &Tensors::k_out,        &Tensors::v_out,
    &Tensors::q_scale_out, &Tensors::q_head_sums,    &Tensors::k_head_sums,  &Tensors::k_cache,
    &Tensors::v_cache,     &Tensors::k_scale_cache,  &Tensors::v_scale_cache};
constexpr size_t kInputCount = std::size(kInputs);
static_assert(kInputCount + std::size(kOutputs) == kOperandCount);

}  // namespace

const void* PointerOf(const Tensors& tensors, Operand operand) noexcept {
  const auto i = static_cast<size_t>(operand);
  return i < kInputCount ? tensors.*kInputs[i] : tensors.*kOutputs[i - kInputCount];
}

void* OutputOf(const Tensors& tensors, Operand operand) noexcept {
  const auto i = static_cast<size_t>(operand);
  return i < kInputCount ? nullptr : tensors.*kOutputs[i - kInputCount];
}

}  // namespace qkvfuse
