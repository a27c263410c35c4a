// Executor: what phase 1 leaves for phase 2. A plan, and the tensors whose addresses it will be run
// on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "capi/acl_objects.h"
#include "qkvfuse/plan.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::capi {

/// The member of Tensors that a parameter fills: an input's or an output's.
class TensorAddress {
 public:
  using Input = const void* Tensors::*;
  using Output = void* Tensors::*;

  constexpr TensorAddress(Input input) noexcept : input_(input) {}      // NOLINT
  constexpr TensorAddress(Output output) noexcept : output_(output) {}  // NOLINT

  void Store(Tensors& tensors, void* address) const noexcept {
    if (output_ != nullptr) {
      tensors.*output_ = address;
    } else {
      tensors.*input_ = address;
    }
  }

 private:
  Input input_ = nullptr;
  Output output_ = nullptr;
};

/// A tensor parameter of a phase 1 function.
struct Parameter {
  static constexpr int kNotAnOutput = -1;

  const char* name;  // as the function's header spells it, without "Optional"
  TensorAddress address;
  int output_index = kNotAnOutput;  // for aclSetOutputTensorAddr
};

inline constexpr size_t kParameters = 16;       // both operators have as many
inline constexpr size_t kInputParameters = 13;  // of them, those before the pure outputs

/// What the index of an aclSet*TensorAddr function counts.
enum class IndexSpace { kAll, kInputs, kOutputs };

/// An operator, to tell executors of one from those of another.
struct OperatorName {
  const char* text;
};

class Executor {
 public:
  struct Call {
    Plan plan;
    TokenCount tokens;
    uint64_t workspace_bytes;
  };

  Executor(const OperatorName& name, Call call) noexcept : name_(&name), call_(std::move(call)) {}

  /// Phase 1 only: the parameter at `position` is this tensor, which has this view.
  void Attach(size_t position, const Parameter& parameter, const aclTensor& tensor,
              const TensorView& view) noexcept;

  [[nodiscard]] bool BelongsTo(const OperatorName& name) const noexcept { return &name == name_; }
  [[nodiscard]] uint64_t workspace_bytes() const noexcept { return call_.workspace_bytes; }

  /// Runs the plan on the addresses that the tensors have now. Refuses tensors that no longer have
  /// the view of phase 1.
  [[nodiscard]] Status Run(Workspace workspace) const;

  /// aclSet*TensorAddr, after its null checks.
  [[nodiscard]] Status SetAddress(IndexSpace space, size_t index, aclTensor& tensor, void* address);

 private:
  struct Binding {
    const Parameter* parameter = nullptr;  // null: absent or unused in phase 1
    TensorShare tensor;
    // Of phase 1: what the plan was made for.
    uint64_t version = 0;
    int64_t offset = 0;  // elements
    DType dtype = DType::kFloat32;
    StridedShape shape;

    [[nodiscard]] Status CheckView(const aclTensor& other) const;
    [[nodiscard]] void* Address() const noexcept;
  };

  [[nodiscard]] Binding* Find(IndexSpace space, size_t index) noexcept;

  const OperatorName* name_;
  Call call_;
  mutable std::mutex mutex_;  // guards bindings_
  std::array<Binding, kParameters> bindings_;
};

/// Executors that phase 2 may still run. Handles are numbers, not addresses: one that was consumed
/// is never given out again, so using it is an error and not an accident.
[[nodiscard]] aclOpExecutor* RegisterExecutor(std::shared_ptr<Executor> executor);

/// The live executor of a handle, or null.
[[nodiscard]] std::shared_ptr<Executor> FindExecutor(const aclOpExecutor* handle) noexcept;

/// The same, and the handle ends unless it is repeatable.
[[nodiscard]] std::shared_ptr<Executor> ClaimExecutor(const aclOpExecutor* handle) noexcept;

/// Whether the handle was live.
[[nodiscard]] bool MakeRepeatable(const aclOpExecutor* handle) noexcept;
[[nodiscard]] bool RemoveExecutor(const aclOpExecutor* handle) noexcept;

}  // namespace qkvfuse::capi
