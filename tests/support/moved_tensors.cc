#include "tests/support/moved_tensors.h"

#include <iterator>

namespace qkvfuse::testing {

Tensors Moved(Tensors t, cases::TensorId id, int64_t bytes) {
  const void** const inputs[] = {&t.x,           &t.q,         &t.k,        &t.v,
                                 &t.q_gamma,     &t.k_gamma,   &t.v_gamma,  &t.cos,
                                 &t.sin,         &t.positions, &t.slots,    &t.lengths,
                                 &t.row_offsets, &t.q_scale,   &t.k_scale,  &t.v_scale,
                                 &t.q_offset,    &t.k_offset,  &t.v_offset, &t.weight_scale,
                                 &t.token_scale, &t.bias,      &t.q_sums,   &t.k_sums};
  void** const outputs[] = {&t.q_out,       &t.q_before_quant, &t.k_out,        &t.v_out,
                            &t.q_scale_out, &t.q_head_sums,    &t.k_head_sums,  &t.k_cache,
                            &t.v_cache,     &t.k_scale_cache,  &t.v_scale_cache};
  static_assert(std::size(inputs) + std::size(outputs) == cases::kTensorCount);
  const auto i = static_cast<size_t>(id);
  constexpr size_t kInputs = std::size(inputs);
  if (i < kInputs) {
    *inputs[i] = static_cast<const char*>(*inputs[i]) + bytes;
  } else {
    *outputs[i - kInputs] = static_cast<char*>(*outputs[i - kInputs]) + bytes;
  }
  return t;
}

}  // namespace qkvfuse::testing
