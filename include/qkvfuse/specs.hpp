// Parts that the operators' Specs have in common.
#pragma once

#include <array>
#include <cstdint>

#include "qkvfuse/cache_layout.hpp"
#include "qkvfuse/plan.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse {

struct HeadCounts {
  int64_t q = 0;
  int64_t k = 0;
  int64_t v = 0;
  [[nodiscard]] constexpr int64_t total() const noexcept { return q + k + v; }
  bool operator==(const HeadCounts&) const = default;
};

/// One of the two caches. An int8 cache takes a scale per head and channel, [heads, head_dim] fp32,
/// and, with has_offset, an offset of the same shape: code = round(y / scale + offset).
struct CacheSpec {
  DType dtype = DType::kInt8;
  CacheLayout layout;
  bool has_offset = false;
  StridedShape scale_shape{};  // heads*head_dim elements in row-major order
  StridedShape offset_shape{};

  bool operator==(const CacheSpec&) const = default;
};

enum class SlotMode {
  kSlotPerToken,      // slots[t] is the slot of token t; negative: the cache is not written
  kStartPerSequence,  // sequence b goes to the rows slots[b], slots[b]+1, ... of block b
};

struct SlotSpec {
  SlotMode mode = SlotMode::kSlotPerToken;
  DType dtype = DType::kInt64;  // int64 or int32
  int64_t stride = 1;           // elements

  bool operator==(const SlotSpec&) const = default;
};

/// A read-only list of integers that the caller owns; data is null when the argument is absent.
struct Integers {
  const int64_t* data = nullptr;
  int64_t count = 0;
};

/// How a door (C++, aclnn, Python) spells and limits the arguments of an operator.
enum class NameStyle {
  kMember,     // slots: the members of Tensors
  kSnakeCase,  // index: the parameters of the Python functions
  kCamelCase,  // kCache: the parameters of the aclnn functions
};
struct DoorRules {
  NameStyle names = NameStyle::kSnakeCase;
  bool device_limits = false;  // the limits of the aclnn operators: spec of head_dim, block sizes
  bool any_layout = false;     // QNR: cache_mode "PA" and "Norm" beside "PA_NZ"
};

/// A call taken from whole tensors: what to plan, and what to run the plan on.
template <typename Spec>
struct BoundCall {
  Spec spec;
  TokenCount tokens{0};
  Tensors tensors;
  NameStyle names = NameStyle::kSnakeCase;
};

/// MakePlan for a bound call: its refusals use the names of the door.
template <typename Spec>
[[nodiscard]] QKVFUSE_API Result<Plan> MakePlan(const BoundCall<Spec>& call,
                                                const PlanOptions& options = {}) noexcept;

}  // namespace qkvfuse
