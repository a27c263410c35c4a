// Whole tensors for the tests of Bind, and what a Spec has to hold for them. No two strides are
// equal, so that none can stand for another.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <string>

#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::testing {

/// Makes views; Bind looks at no data, so strides and addresses are whatever tells them apart.
class Views {
 public:
  TensorView operator()(DType dtype, std::initializer_list<int64_t> dims) {
    TensorView view;
    view.dtype = dtype;
    view.shape = StridedShape::Contiguous(dims);
    for (size_t axis = 0; axis < dims.size(); ++axis) view.shape.strides[axis] = next_ += 3;
    view.data = &memory_[count_++];
    return view;
  }

 private:
  int64_t next_ = 0;
  size_t count_ = 0;
  char memory_[32];
};

/// Strides of a row of packed heads, [tokens, heads*head_dim].
inline TokenStrides Packed(const TensorView& view, int64_t head_dim) {
  const auto& strides = view.shape.strides;
  return {TokenStrides::kFollows, strides[0], head_dim * strides[1], strides[1]};
}

/// Strides of [batch, sequence, heads, head_dim].
inline TokenStrides Rows(const TensorView& view) {
  const auto& strides = view.shape.strides;
  return {strides[0], strides[1], strides[2], strides[3]};
}

/// [blocks, rows, heads, head_dim].
inline CacheLayout RowsOfHeads(const TensorView& view) {
  const auto& strides = view.shape.strides;
  CacheLayout layout;
  layout.blocks = view.shape.dims[0];
  layout.block_size = view.shape.dims[1];
  layout.block_stride = strides[0];
  layout.row_stride = strides[1];
  layout.head_stride = strides[2];
  layout.channel_stride = strides[3];
  return layout;
}

/// [blocks, heads * pieces, rows, chunk].
inline CacheLayout Pieces(const TensorView& view, int64_t pieces) {
  const auto& strides = view.shape.strides;
  CacheLayout layout;
  layout.blocks = view.shape.dims[0];
  layout.block_size = view.shape.dims[2];
  layout.channel_chunk = view.shape.dims[3];
  layout.block_stride = strides[0];
  layout.head_stride = pieces * strides[1];
  layout.channel_chunk_stride = strides[1];
  layout.row_stride = strides[2];
  layout.channel_stride = strides[3];
  return layout;
}

/// Layouts are equal, their names as texts.
inline void ExpectSameCache(const CacheSpec& found, CacheSpec expected, const char* name) {
  EXPECT_STREQ(found.layout.name, name);
  expected.layout.name = found.layout.name;
  EXPECT_EQ(found.dtype, expected.dtype);
  EXPECT_EQ(found.has_offset, expected.has_offset);
  EXPECT_TRUE(found.layout == expected.layout);
  EXPECT_TRUE(found == expected);
}

// Tensors is made of pointers alone.
inline void ExpectSameTensors(const Tensors& found, const Tensors& expected) {
  EXPECT_EQ(std::memcmp(&found, &expected, sizeof(Tensors)), 0);
}

inline constexpr DType kHalf = DType::kFloat16;
inline constexpr DType kFloat = DType::kFloat32;
inline constexpr DType kCode = DType::kInt8;

/// Bind gives this Spec (its layouts by name), these pointers and tokens, and the door's names.
template <class Arguments, class Spec>
void ExpectBound(const Arguments& arguments, const DoorRules& rules, Spec spec,
                 const Tensors& tensors, TokenCount tokens, const char* layout) {
  const auto call = Bind(arguments, rules);
  ASSERT_TRUE(call.ok()) << call.status().message();
  ExpectSameCache(call->spec.k_cache, spec.k_cache, layout);
  ExpectSameCache(call->spec.v_cache, spec.v_cache, layout);
  spec.k_cache = call->spec.k_cache;
  spec.v_cache = call->spec.v_cache;
  EXPECT_TRUE(call->spec == spec);
  ExpectSameTensors(call->tensors, tensors);
  EXPECT_EQ(call->tokens.batch, tokens.batch);
  EXPECT_EQ(call->tokens.sequence, tokens.sequence);
  EXPECT_EQ(call->names, rules.names);
}

/// Bind refuses the arguments with a sentence that begins like this.
template <class Arguments>
void ExpectRefused(const Arguments& arguments, const std::string& beginning) {
  const auto call = Bind(arguments, {});
  ASSERT_FALSE(call.ok()) << beginning;
  const bool is_of_type = beginning.find(": type is ") != std::string::npos;
  EXPECT_EQ(call.status().code(),
            is_of_type ? StatusCode::kInvalidType : StatusCode::kInvalidArgument);
  EXPECT_EQ(call.status().message().substr(0, beginning.size()), beginning);
}

/// Each argument in turn with a rank that no view has, and with a stride that a Spec takes for
/// sequences that follow each other: refused by its name. `members` pairs names with members of
/// Arguments.
template <class Arguments, class Members>
void ExpectOddViewsRefused(const Arguments& good, const Members& members) {
  for (const auto& [name, member] : members) {
    Arguments arguments = good;
    for (const int rank : {-1, kMaxRank + 1}) {
      TensorView view = *(good.*member);
      view.shape.rank = rank;
      arguments.*member = &view;
      ExpectRefused(arguments, std::string(name) + ": has " + std::to_string(rank) +
                                   " dimensions, must have from 0 to 8");
    }
    TensorView view = *(good.*member);
    const int last = view.shape.rank - 1;  // no axis of one element, whose stride may be any
    view.shape.strides[static_cast<size_t>(last)] = TokenStrides::kFollows;
    arguments.*member = &view;
    ExpectRefused(arguments, std::string(name) + ": stride of dimension " + std::to_string(last) +
                                 " is -9223372036854775808");
  }
}

}  // namespace qkvfuse::testing
