// Parts that the operators' Specs have in common.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "qkvfuse/cache_layout.hpp"
#include "qkvfuse/dtype.hpp"
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

/// How a value y becomes a code of an 8-bit type, and what the code's scale is.
enum class ScaleRule : uint8_t {
  kDivide,    // y / scale, as Ascend's operators and vLLM have it
  kMultiply,  // y * scale, as FlashInfer has it
  kDynamic,   // a scale of its own for each token and head, amax / the type's largest code
};

/// What shares a scale and an offset.
enum class ScaleGranularity : uint8_t {
  kChannel,  // [heads, head_dim]
  kHead,     // [heads]
  kTensor,   // [1]
};

/// One of the two caches. The 8-bit types take scales (docs/quantised_caches.md):
/// int8: code = round(y / scale + offset) or round(y * scale + offset), offset only with
/// has_offset; fp8: the same without an offset. Dynamic scales are written to a scale cache.
struct CacheSpec {
  DType dtype = DType::kInt8;
  CacheLayout layout;
  bool has_offset = false;
  StridedShape scale_shape{};  // elements of the granularity, in row-major order
  StridedShape offset_shape{};
  ScaleRule scale_rule = ScaleRule::kDivide;
  ScaleGranularity granularity = ScaleGranularity::kChannel;  // of scale and offset
  CacheLayout scale_layout{};  // kDynamic: of the scale cache, fp32; channels are not used

  bool operator==(const CacheSpec&) const = default;
};

enum class SlotMode {
  kSlotPerToken,      // slots[t] is the slot of token t; negative: the cache is not written
  kStartPerSequence,  // sequence b goes to the rows slots[b], slots[b]+1, ... of block b
  kPageTable,         // sequence b has the blocks slots[b, 0], slots[b, 1], ...; TokenCount::Ragged
};

struct SlotSpec {
  SlotMode mode = SlotMode::kSlotPerToken;
  DType dtype = DType::kInt64;  // int64 or int32; kPageTable: of lengths and row_offsets, too
  int64_t stride = 1;           // elements; kPageTable: from page to page of a sequence
  // kPageTable only.
  int64_t pages = 0;                         // of a sequence, at most: columns of the page table
  std::optional<int64_t> sequence_stride{};  // elements from sequence to sequence; absent: packed
  bool zeroes_unused_rows = false;  // of a sequence's last page, which a kernel may read whole

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
