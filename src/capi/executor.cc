// Running an executor, and giving its tensors other addresses.
#include "capi/executor.h"

#include <algorithm>
#include <string>

namespace qkvfuse::capi {
namespace {

// Address of a view's first element; null for a null storage.
void* FirstElement(void* storage, int64_t offset_bytes) {
  return storage == nullptr ? nullptr : static_cast<char*>(storage) + offset_bytes;
}

bool HasSameView(const aclTensor& a, const aclTensor& b) {
  return a.data_type == b.data_type && a.view_dims == b.view_dims && a.strides == b.strides &&
         a.offset == b.offset;
}

}  // namespace

void Executor::Attach(size_t position, const Parameter& parameter, const aclTensor& tensor,
                      int64_t offset_bytes) noexcept {
  bindings_[position] = {&parameter, TensorShare(&tensor), offset_bytes};
}

Status Executor::Run(Workspace workspace) const noexcept {
  Tensors tensors;
  {
    const std::lock_guard lock(mutex_);
    for (const Binding& binding : bindings_) {
      if (binding.parameter == nullptr) continue;
      void* storage = binding.tensor.get()->storage.load(std::memory_order_relaxed);
      binding.parameter->address.Store(tensors, FirstElement(storage, binding.offset_bytes));
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
  if (binding->tensor.get() != &tensor) {
    if (!HasSameView(*binding->tensor.get(), tensor)) {
      return {StatusCode::kInvalidArgument,
              std::string("tensor: differs in type, shape, strides or offset from ") +
                  binding->parameter->name + ", which index " + std::to_string(index) +
                  " stands for"};
    }
    binding->tensor = TensorShare(&tensor);
  }
  tensor.storage.store(address, std::memory_order_relaxed);
  return {};
}

}  // namespace qkvfuse::capi
