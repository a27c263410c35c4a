// Blocks: the heads and tokens of a tile that a kernel takes through Measure and Emit together.
#include "kernels/simd-inl.h"

#if defined(QKVFUSE_KERNELS_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_BLOCK_INL_H_
#undef QKVFUSE_KERNELS_BLOCK_INL_H_
#else
#define QKVFUSE_KERNELS_BLOCK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// Heads, of one or several tokens, that are measured together...
inline constexpr int64_t kBlockHeads = 64;
/// ... and bytes of them that stay in L1 until they are emitted.
inline constexpr int64_t kBlockBytes = 16384;

/// Heads [first_head, first_head + heads) of tokens [first, first + tokens) of a tile.
struct Block {
  int64_t first;
  int64_t tokens;
  int64_t first_head;
  int64_t heads;
};

/// Which of the two a block has many of: the heads of a token, which lie next to each other, or the
/// tokens of a head, which share what depends on the head alone.
enum class BlockShape { kManyHeads, kManyTokens };

/// Calls visit(block) for the blocks of a tile of heads of `head_bytes` bytes.
template <class Visit>
HWY_INLINE void ForEachBlock(BlockShape shape, const Tile& tile, int64_t head_bytes,
                             const Visit& visit) {
  const int64_t limit = HWY_MAX(HWY_MIN(kBlockHeads, kBlockBytes / head_bytes), int64_t{1});
  int64_t token_step = 1;
  int64_t head_step = HWY_MIN(tile.heads, limit);
  if (tile.tokens > 1) {
    if (shape == BlockShape::kManyTokens) {
      token_step = HWY_MIN(tile.tokens, limit);
      head_step = HWY_MIN(tile.heads, limit / token_step);
    } else {
      token_step = HWY_MIN(tile.tokens, limit / head_step);
    }
  }
  const int64_t end = tile.first_head + tile.heads;
  for (int64_t first = 0; first < tile.tokens; first += token_step) {
    const int64_t tokens = HWY_MIN(token_step, tile.tokens - first);
    for (int64_t head = tile.first_head; head < end; head += head_step) {
      visit(Block{first, tokens, head, HWY_MIN(head_step, end - head)});
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
