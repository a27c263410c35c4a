// Strided views. All strides are in elements; they may be 0 (broadcast inputs) or negative.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "qkvfuse/dtype.hpp"

namespace qkvfuse {

inline constexpr int kMaxRank = 8;

/// Sizes and strides of a view. Rank 0 stands for "contiguous, of the expected size" in a Spec.
struct StridedShape {
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};
  std::array<int64_t, kMaxRank> strides{};  // elements

  /// Row-major contiguous shape. At most kMaxRank dimensions.
  [[nodiscard]] static constexpr StridedShape Contiguous(std::initializer_list<int64_t> sizes) {
    StridedShape shape;
    for (const int64_t size : sizes) shape.dims[static_cast<size_t>(shape.rank++)] = size;
    shape.MakeContiguous();
    return shape;
  }

  constexpr void MakeContiguous() {
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      strides[static_cast<size_t>(axis)] = stride;
      stride *= dims[static_cast<size_t>(axis)];
    }
  }

  /// Product of the sizes; 1 for rank 0.
  [[nodiscard]] constexpr int64_t ElementCount() const {
    int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= dims[static_cast<size_t>(axis)];
    return count;
  }

  bool operator==(const StridedShape&) const = default;
};

/// A whole tensor, as array libraries and the aclnn door hold it. `data` is the address of the
/// element with all indices 0.
struct TensorView {
  DType dtype = DType::kFloat32;
  StridedShape shape;
  void* data = nullptr;
};

/// Strides of a tensor that has one row of heads per token: element (b, s, h, d) of sequence b,
/// token s, head h and channel d lies at b*batch + s*token + h*head + d*channel (elements).
struct TokenStrides {
  /// The sequences follow each other: batch = sequence length * token.
  static constexpr int64_t kFollows = INT64_MIN;

  int64_t batch = kFollows;
  int64_t token = 0;
  int64_t head = 0;
  int64_t channel = 1;

  bool operator==(const TokenStrides&) const = default;
};

/// Tokens of a call: `batch` sequences of `sequence` tokens each. A plain number means one sequence
/// of that many tokens.
struct TokenCount {
  int64_t batch = 1;
  int64_t sequence = 0;
  /// Sequences of any lengths that the tokens belong to, for SlotMode::kPageTable; else 0.
  int64_t ragged_sequences = 0;

  constexpr TokenCount(int64_t tokens) noexcept : sequence(tokens) {}  // NOLINT
  constexpr TokenCount(int64_t batch_size, int64_t sequence_length) noexcept
      : batch(batch_size), sequence(sequence_length) {}
  [[nodiscard]] constexpr int64_t total() const noexcept { return batch * sequence; }

  /// `tokens` tokens in all, of `sequences` sequences one after another.
  [[nodiscard]] static constexpr TokenCount Ragged(int64_t tokens, int64_t sequences) noexcept {
    TokenCount count(tokens);
    count.ragged_sequences = sequences;
    return count;
  }
};

}  // namespace qkvfuse
