// The arrays of the general operator's calls: which ones a Spec takes, their dtypes and shapes, and
// how an array becomes a pointer in Tensors and strides in the Spec.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "spec.h"

namespace qkvfuse::python {

using Shape = std::vector<int64_t>;

inline constexpr int64_t kMostTokens = int64_t{1} << 32;  // the core's limit

/// One array that calls of a Spec take. Sizes that depend on the call are found in it (CallSizes).
struct Operand {
  enum class Form : uint8_t {
    kHeads,        // [tokens..., heads, width] or [tokens..., heads * width]
    kPackedHeads,  // [tokens..., width], and [tokens..., heads, head_dim] where all heads are equal
    kRows,         // [tokens..., width]
    kElements,     // [dims], or any shape of as many elements
    kTable,        // [rows, width]
    kPositions,    // [tokens...], or [3, tokens...]
    kSlots,        // as SlotMode says
    kSequences,    // [sequences + extra], packed
    kDenseRows,    // [tokens, width], packed
    kCache,        // CacheArray
  };

  const char* name;
  Form form;
  DType dtype;
  bool is_output = false;
  bool may_be_apart = true;  // kPackedHeads: all heads are of one size
  int64_t heads = 1;
  int64_t width = 0;                      // channels of a head, entries of a row
  Shape dims{};                           // kElements; empty: the tokens
  int64_t extra = 0;                      // kSequences
  const CacheArray* cache = nullptr;      // kCache; of the plan's own SpecOfArrays
  const void* Tensors::*input = nullptr;  // where the pointer goes: one of the two
  void* Tensors::*output = nullptr;
  // Where the strides go: one of these, or none.
  std::function<TokenStrides&(FusedQkvSpec&)> strides{};
  std::function<StridedShape&(FusedQkvSpec&)> shape{};
  std::function<CacheLayout&(FusedQkvSpec&)> layout{};
  nb::str key = nb::str(name);  // the name as Python has it
};

/// Sizes of one call.
struct CallSizes {
  TokenCount tokens{0};
  int64_t sequences = 0;  // of a page table
};

/// A call: what to plan, and what to run the plan on. The arrays keep the memory.
struct GeneralCall {
  FusedQkvSpec spec;
  CallSizes sizes;
  Tensors tensors;
  std::vector<Array> arrays;
  std::vector<std::vector<std::byte>> copies;  // of short lists with gaps
};

class Operands {
 public:
  /// `measures`: of the plan that only writes the sums of squares.
  Operands(const SpecOfArrays& spec, bool measures);

  /// Takes arrays by name. `tokens` is None, a number, or (batch, sequence). Refuses a missing
  /// array, one that the Spec has no use for, and dtypes and shapes that are not the Spec's.
  [[nodiscard]] GeneralCall Bind(nb::handle tokens, nb::dict arrays) const;

  /// {name: (shape, dtype, is_output)} for this many tokens.
  [[nodiscard]] nb::dict Describe(nb::handle tokens, int64_t sequences) const;

 private:
  void AddSources(bool measures);
  void AddNorms();
  void AddRope();
  void AddSlots();
  void AddDequantisation();
  void AddOutputs();
  void AddCaches();
  void RefuseOthers(const nb::dict& arrays) const;
  [[nodiscard]] CallSizes SizesOf(nb::handle tokens, nb::dict arrays) const;
  [[nodiscard]] Shape ShapeOf(const Operand& operand, const CallSizes& sizes, bool has_batch) const;

  const SpecOfArrays& spec_;
  std::vector<Operand> operands_;
};

}  // namespace qkvfuse::python
