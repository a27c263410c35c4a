// One call of either of Ascend's operators as plain data. It knows the public types of qkvfuse and
// nothing of its plans or kernels.
#pragma once

#include <cstdint>

#include "qkvfuse/dtype.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::reference {

/// The order of a cache's dimensions.
enum class CacheOrder {
  kPaNz,        // [blocks, heads*head_dim/chunk, block_size, chunk]
  kNd,          // [blocks, block_size, heads, head_dim], paged and contiguous caches alike
  kHeadsFirst,  // [blocks, heads, block_size, head_dim]
  kChunked,     // [blocks, heads, head_dim/x, block_size, x]
  kTransposed,  // [blocks, heads, head_dim, block_size]
  kRowChunked,  // [blocks, heads, block_size/x, head_dim, x]
};

/// How a token finds its row of the caches.
enum class SlotRule {
  kPerToken,     // token t goes to slot slots[t]; a negative slot is skipped
  kPerSequence,  // token s of sequence b goes to row slots[b] + s of block b
  kPageTable,    // row p of sequence b is row p % block_size of block slots[b, p / block_size]
};

struct Cache {
  TensorView data;    // in the problem's CacheOrder, int8 or 16-bit; null: no cache
  TensorView scale;   // heads*head_dim elements, fp32, int8 caches only
  TensorView offset;  // heads*head_dim elements, fp32, or null
};

/// A view with null data is absent. Views of parameters (gamma, scales, offsets, bias, slots) may
/// have any rank: their elements count in row-major order, and there may be more than are used.
struct Problem {
  bool has_norm = false;  // RMSNorm on q and k
  double epsilon = 0;     // used as float
  int64_t batch = 1;
  int64_t sequence = 0;
  int64_t q_heads = 0;
  int64_t k_heads = 0;
  int64_t v_heads = 0;
  int64_t head_dim = 0;

  TensorView x;        // [batch, sequence, q_heads + k_heads + v_heads, head_dim]
  TensorView cos;      // [batch, sequence, head_dim]
  TensorView sin;      // [batch, sequence, head_dim]
  TensorView q_gamma;  // head_dim elements, with has_norm
  TensorView k_gamma;

  // Dequantisation, int32 x only.
  TensorView weight_scale;  // one element per channel of the packed row, fp32
  TensorView token_scale;   // one element per token, fp32, or null
  TensorView bias;          // one element per channel of the packed row, or null

  TensorView q_out;           // [batch, sequence, q_heads, head_dim]
  TensorView q_before_quant;  // a second copy of q_out, or null
  TensorView k_out;           // [batch, sequence, k_heads, head_dim], or null
  TensorView v_out;           // [batch, sequence, v_heads, head_dim], or null

  SlotRule slot_rule = SlotRule::kPerToken;
  TensorView slots;  // int64 or int32, one element per token or per sequence
  CacheOrder cache_order = CacheOrder::kPaNz;
  Cache k_cache;
  Cache v_cache;

  [[nodiscard]] int64_t tokens() const { return batch * sequence; }
  [[nodiscard]] int64_t heads() const { return q_heads + k_heads + v_heads; }
};

/// A row of the caches; block is negative where the token is skipped.
struct CacheRow {
  int64_t block = -1;
  int64_t row = -1;
};

}  // namespace qkvfuse::reference
