#include "tests/support/moved_tensors.h"

#include <iterator>

namespace qkvfuse::testing {

Tensors Moved(Tensors t, cases::TensorId id, int64_t bytes) {
  const void** const inputs[] = {
      &t.x,       &t.q_gamma,  &t.k_gamma,  &t.cos,          &t.sin,         &t.slots, &t.k_scale,
      &t.v_scale, &t.k_offset, &t.v_offset, &t.weight_scale, &t.token_scale, &t.bias};
  void** const outputs[] = {&t.q_out, &t.q_before_quant, &t.k_out,
                            &t.v_out, &t.k_cache,        &t.v_cache};
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
