// What a fused call is compared with: the same work in three passes, the same tensors converted and
// copied without arithmetic, and a plain copy of as many bytes. Each works on the tensors of a
// ready plan, with its threads and its split of the tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::bench {

struct BaselineKernels;

/// Memory whose address is a multiple of 4096; its pages are there.
class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t bytes);
  [[nodiscard]] std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

/// Parts into which a call of the plan is split.
[[nodiscard]] int PartsOf(const Plan& plan, TokenCount tokens, int threads);

/// The baselines of one plan and number of tokens. Calls of one object do not overlap. A plan whose
/// head groups are not fused, or whose head_dim is no multiple of 64, is refused by an exception.
class Baselines {
 public:
  Baselines(const Plan& plan, TokenCount tokens);
  ~Baselines();
  Baselines(const Baselines&) = delete;
  Baselines& operator=(const Baselines&) = delete;

  /// Check, then three passes: RMSNorm (QNR) or dequantisation (DRQ) into 16-bit rows, q into
  /// q_out, k and v into scratch memory; RoPE in place; quantise or copy k and v into the cache.
  void RunUnfused(const Tensors& tensors, Workspace workspace, int threads) const;

  /// Reads x, cos, sin and slots, converts to fp32 and back, and writes to where the call writes.
  /// Needs a workspace that Check has prepared.
  void RunConvertCopy(const Tensors& tensors, Workspace workspace, int threads) const;

 private:
  Plan plan_;
  TokenCount tokens_;
  AlignedBytes scratch_;  // [tokens, k and v heads, head_dim], 16-bit
  std::unique_ptr<const BaselineKernels> kernels_;
};

/// Copies with the read:write mix of a plan's call, over buffers of its own; the roof.
class StreamCopy {
 public:
  /// Buffers of `sets` calls that take turns.
  StreamCopy(const Plan& plan, TokenCount tokens, int64_t sets);

  /// Copies the bytes of one call in `parts` parts.
  void Run(int parts, bool bypasses_caches);

 private:
  int64_t target_;
  int64_t read_bytes_;
  int64_t write_bytes_;
  int64_t sets_;
  int64_t next_ = 0;
  AlignedBytes from_;
  AlignedBytes to_;
};

}  // namespace qkvfuse::bench
