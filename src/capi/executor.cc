// Running an executor, and giving its tensors other addresses.
#include "capi/executor.h"

#include <algorithm>
#include <string>

#include "capi/tensor_view.h"

namespace qkvfuse::capi {

Status Executor::Binding::CheckView(const aclTensor& other) const {
  TensorView view;
  Status status = ViewOf(parameter->name, other, &view);
  if (!status.ok()) return status;
  if (view.dtype == dtype && view.shape == shape && other.offset == offset) return {};
  return {StatusCode::kInvalidArgument,
          std::string(parameter->name) +
              ": the tensor differs in type, shape, strides or offset from that of phase 1"};
}

void* Executor::Binding::Address() const noexcept {
  void* const storage = tensor.get()->storage.load(std::memory_order_relaxed);
  return storage == nullptr ? nullptr : static_cast<char*>(storage) + offset * SizeOf(dtype);
}

void Executor::Attach(size_t position, const Parameter& parameter, const aclTensor& tensor,
                      const TensorView& view) noexcept {
  Binding& binding = bindings_[position];
  binding.parameter = &parameter;
  binding.tensor = TensorShare(&tensor);
  binding.version = tensor.version;
  binding.offset = tensor.offset;
  binding.dtype = view.dtype;
  binding.shape = view.shape;
}

Status Executor::Run(Workspace workspace) const {
  Tensors tensors;
  {
    const std::lock_guard lock(mutex_);
    for (const Binding& binding : bindings_) {
      if (binding.parameter == nullptr) continue;
      const aclTensor& tensor = *binding.tensor.get();
      if (tensor.version != binding.version) {
        Status status = binding.CheckView(tensor);
        if (!status.ok()) return status;
      }
      binding.parameter->address.Store(tensors, binding.Address());
    }
  }
  return call_.plan.Run(tensors, call_.tokens, workspace);
}

Executor::Binding* Executor::Find(IndexSpace space, size_t index) noexcept {
  if (space != IndexSpace::kOutputs) {
    const size_t count = space == IndexSpace::kAll ? kParameters : kInputParameters;
    return index < count && bindings_[index].parameter != nullptr ? &bindings_[index] : nullptr;
  }
  const auto found = std::find_if(bindings_.begin(), bindings_.end(), [index](const Binding& b) {
    return b.parameter != nullptr && b.parameter->output_index >= 0 &&
           static_cast<size_t>(b.parameter->output_index) == index;
  });
  return found == bindings_.end() ? nullptr : &*found;
}

Status Executor::SetAddress(IndexSpace space, size_t index, aclTensor& tensor, void* address) {
  const std::lock_guard lock(mutex_);
  Binding* binding = Find(space, index);
  if (binding == nullptr) {
    return {StatusCode::kInvalidArgument,
            "index: " + std::to_string(index) + " is not a tensor that phase 1 of " + name_->text +
                " was given; see aclnn/acl_meta.h for what the index counts"};
  }
  const uint64_t version = tensor.version;
  if (binding->tensor.get() != &tensor || version != binding->version) {
    Status status = binding->CheckView(tensor);
    if (!status.ok()) return status;
    binding->tensor = TensorShare(&tensor);
    binding->version = version;
  }
  tensor.storage.store(address, std::memory_order_relaxed);
  return {};
}

}  // namespace qkvfuse::capi
