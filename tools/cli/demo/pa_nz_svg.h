// A drawing of a PA_NZ cache: which token each 32-byte piece belongs to, and where it lies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkvfuse::cli {

/// A row of the cache that one step of inference fills.
struct PictureToken {
  int sequence = 0;
  int position = 0;  // in its sequence
  int64_t slot = 0;
};

/// What to draw. `owner` comes from the bytes of a cache that the library wrote.
struct PaNzPicture {
  int64_t blocks = 0;
  int64_t block_size = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t chunk = 0;  // channels of a piece: 32 in an int8 cache
  std::vector<std::string> sequences;
  std::vector<PictureToken> tokens;
  size_t example_token = 0;  // the one that the worked example follows
  std::vector<int> owner;    // [blocks, heads*head_dim/chunk, block_size]: token, or -1

  [[nodiscard]] int64_t chunks() const { return heads * head_dim / chunk; }
  [[nodiscard]] int OwnerAt(int64_t block, int64_t chunk_index, int64_t row) const {
    return owner[static_cast<size_t>((block * chunks() + chunk_index) * block_size + row)];
  }
};

[[nodiscard]] std::string DrawPaNz(const PaNzPicture& picture);

}  // namespace qkvfuse::cli
