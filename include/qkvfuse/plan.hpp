// Plan: an operator that was described once, checked once and bound to kernels once, to be run many
// times with pointers only. Immutable; any number of threads may run one plan at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "qkvfuse/export.hpp"
#include "qkvfuse/runtime.hpp"
#include "qkvfuse/status.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse {

/// The data of one call. Pointers that the plan's Spec does not use are ignored; those that it uses
/// must be non-null where there are elements. Shapes, types and strides are the Spec's.
struct Tensors {
  const void* x = nullptr;             // packed projection rows: q heads, k heads, v heads
  const void* q = nullptr;             // [tokens, Nq, head_dim], where they are not packed
  const void* k = nullptr;             // [tokens, Nk, head_dim]
  const void* v = nullptr;             // [tokens, Nv, v_head_dim]
  const void* q_gamma = nullptr;       // [head_dim]; of a full-width norm [Nq, head_dim]
  const void* k_gamma = nullptr;       // [head_dim]; [Nk, head_dim]
  const void* v_gamma = nullptr;       // [v_head_dim]; [Nv, v_head_dim]
  const void* cos = nullptr;           // [tokens, rotary_dim], or what RopeSpec describes
  const void* sin = nullptr;           // the same; null where cos holds both
  const void* positions = nullptr;     // [tokens], or [3, tokens]: rows of the tables
  const void* slots = nullptr;         // [tokens], or [batch] first rows, or [batch, pages]
  const void* lengths = nullptr;       // [batch], page tables: tokens of a sequence after this call
  const void* row_offsets = nullptr;   // [batch + 1], page tables: first token of each sequence
  const void* q_scale = nullptr;       // [Nq, head_dim] or fewer, an 8-bit q_out
  const void* k_scale = nullptr;       // [Nk, head_dim] or fewer, 8-bit caches
  const void* v_scale = nullptr;       // [Nv, v_head_dim] or fewer
  const void* q_offset = nullptr;      // as q_scale
  const void* k_offset = nullptr;      // as k_scale
  const void* v_offset = nullptr;      // as v_scale
  const void* weight_scale = nullptr;  // [channels of a packed row], int32 x
  const void* token_scale = nullptr;   // [tokens], int32 x
  const void* bias = nullptr;          // [channels of a packed row]
  const void* q_sums = nullptr;        // [tokens, total_heads], gathered from q_head_sums
  const void* k_sums = nullptr;        // [tokens, total_heads], gathered from k_head_sums
  void* q_out = nullptr;               // [tokens, Nq, head_dim]
  void* q_before_quant = nullptr;      // [tokens, Nq, head_dim], a second copy of q_out
  void* k_out = nullptr;               // [tokens, Nk, head_dim], k as it was before quantisation
  void* v_out = nullptr;               // [tokens, Nv, v_head_dim], v as it was before quantisation
  void* q_scale_out = nullptr;         // [tokens, Nq] fp32, a q_out of dynamic scales
  void* q_head_sums = nullptr;         // [tokens, Nq] fp32, a plan of MakeMeasurePlan
  void* k_head_sums = nullptr;         // [tokens, Nk] fp32
  void* k_cache = nullptr;             // CacheLayout
  void* v_cache = nullptr;             // CacheLayout
  void* k_scale_cache = nullptr;       // CacheLayout, fp32, dynamic scales
  void* v_scale_cache = nullptr;       // CacheLayout, fp32
};

/// Scratch memory of a call, of at least Plan::WorkspaceBytes. Any alignment. Not shared between
/// calls that run at the same time.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

enum class Path {
  kAuto,     // fused kernels where one exists for the head group, else the general path
  kGeneral,  // the general path everywhere; 16-bit heads that are only copied are copied
  kFused,    // refuse when a head group has no fused kernel
};

struct PlanOptions {
  /// Refuse repeated slots, slots below -1 and scales that are 0. Otherwise the highest token index
  /// of a repeated slot wins and the division follows IEEE.
  bool strict = true;
  /// Environment variable QKVFUSE_PATH=general|fused when kAuto.
  Path path = Path::kAuto;
  /// A name from AvailableTargets(); empty: environment variable QKVFUSE_TARGET, else the best.
  std::string target;
};

struct RunOptions {
  /// 0: as many as SetParallelFor's hook or OpenMP offers, one where the work is small.
  int threads = 0;
  /// Split the work into `threads` parts (if not 0) even where it is too small to gain from it.
  bool force_split = false;
};

namespace internal {
class PlanImpl;
}

class QKVFUSE_API Plan {
 public:
  /// Bytes that Check and Run need for this many tokens; 0 for none, and for a number that no plan
  /// takes.
  [[nodiscard]] size_t WorkspaceBytes(TokenCount tokens) const noexcept;

  /// Looks at sizes, pointers, overlap, slots and scales, and prepares the workspace for RunRange.
  /// Reads inputs, writes nothing but the workspace.
  Status Check(const Tensors& tensors, TokenCount tokens, Workspace workspace) const noexcept;

  /// The part of Check that needs no pointers: token counts, 64-bit extents, outputs that overlap
  /// themselves.
  Status CheckExtents(TokenCount tokens) const noexcept;

  /// Computes tokens [token_begin, token_end), counted over the whole batch. Needs a Check with the
  /// same tensors, tokens and workspace that returned ok. A range beyond the tokens is cut off.
  /// Different ranges may run at the same time; any split gives the same bytes. Allocates nothing.
  void RunRange(const Tensors& tensors, TokenCount tokens, int64_t token_begin, int64_t token_end,
                Workspace workspace) const noexcept;

  /// Check, then all tokens in parallel. On refusal no output byte has changed. Allocates nothing.
  Status Run(const Tensors& tensors, TokenCount tokens, Workspace workspace,
             const RunOptions& options = {}) const noexcept;

  /// The same with a workspace that the library allocates.
  Status Run(const Tensors& tensors, TokenCount tokens,
             const RunOptions& options = {}) const noexcept;

  /// For people: SIMD target, kernels, layouts, bytes, work split and why each was chosen.
  /// Empty when there is no memory for it.
  [[nodiscard]] std::string Describe(TokenCount tokens) const noexcept;

  /// Bytes that a call must move, each input read once and each output written once.
  struct Traffic {
    int64_t read_bytes = 0;
    int64_t write_bytes = 0;
    [[nodiscard]] int64_t total() const noexcept { return read_bytes + write_bytes; }
  };
  [[nodiscard]] Traffic TrafficOf(TokenCount tokens) const noexcept;

  /// The SIMD target, and whether every head group has a fused kernel.
  [[nodiscard]] const char* target() const noexcept;
  [[nodiscard]] bool is_fused() const noexcept;

  explicit Plan(std::shared_ptr<const internal::PlanImpl> impl) noexcept : impl_(std::move(impl)) {}
  [[nodiscard]] const internal::PlanImpl& impl() const noexcept { return *impl_; }

 private:
  std::shared_ptr<const internal::PlanImpl> impl_;
};

}  // namespace qkvfuse
