// One call of the general operator as plain data: what both references evaluate. It knows the
// public types of qkvfuse and nothing of its Specs, plans or kernels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reference/problem.h"

namespace qkvfuse::reference {

/// How codes and their scales belong together.
enum class CodeRule { kDivide, kMultiply, kDynamic };

/// Where the values of a part go. A view with null data is absent.
struct FusedOutput {
  TensorView data;  // dense: [batch, sequence, heads, head_dim]; a cache: in its order
  CodeRule rule = CodeRule::kDivide;
  TensorView scale;   // [heads, head_dim], stride 0 along what shares one; 8-bit types
  TensorView offset;  // the same, or null
  TensorView scales;  // kDynamic: dense [batch, sequence, heads]; of a cache [blocks, rows, heads]
  CacheOrder order = CacheOrder::kNd;
};

/// The heads of q, k or v.
struct FusedPart {
  TensorView x;               // [batch, sequence, heads, head_dim]
  int64_t first_channel = 0;  // in the packed row, of weight scales and biases
  bool has_norm = false;
  bool is_full_width = false;
  bool has_rope = false;
  TensorView gamma;  // head_dim elements, full width heads*head_dim; null: no weight
  bool gamma_is_one_plus = false;
  TensorView sums;       // full width: [tokens, heads of all ranks], or null
  TensorView head_sums;  // [tokens, heads]: to be written, or null
  FusedOutput dense[2];
  FusedOutput cache;

  [[nodiscard]] int64_t heads() const { return x.shape.dims[2]; }
  [[nodiscard]] int64_t head_dim() const { return x.shape.dims[3]; }
};

struct FusedRope {
  bool is_interleaved = false;
  int64_t first_channel = 0;
  int64_t rotary_dim = 0;
  bool half_width = false;  // rotary_dim/2 entries in a row
  TensorView cos;           // [batch, sequence, entries]; by position [positions, entries]
  TensorView sin;
  TensorView positions;      // null: a row per token; [tokens], or [3, tokens]
  std::vector<int> section;  // [rotary_dim/2]: which of the three positions; empty: the only one
};

struct FusedProblem {
  int64_t batch = 1;
  int64_t sequence = 0;
  double epsilon = 0;  // used as float
  bool norm_after_rope = false;
  std::array<FusedPart, 3> parts;  // q, k, v
  FusedRope rope;

  TensorView weight_scale;  // one element per channel of the packed row, fp32; int32 x
  TensorView token_scale;   // one element per token, fp32, or null
  TensorView bias;          // one element per channel of the packed row, or null

  SlotRule slot_rule = SlotRule::kPerToken;
  TensorView slots;        // per token or per sequence; kPageTable: [sequences, pages]
  TensorView lengths;      // kPageTable: [sequences]
  TensorView row_offsets;  // kPageTable: [sequences + 1]
  bool zeroes_unused_rows = false;
  int64_t block_size = 0;  // rows of a cache's block

  [[nodiscard]] int64_t tokens() const { return batch * sequence; }
};

/// The call of one of Ascend's operators as a special case.
[[nodiscard]] FusedProblem Generalise(const Problem& problem);

}  // namespace qkvfuse::reference
