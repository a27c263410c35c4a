// Every refusal of ReadCache, whole sentences; nothing is written.
#include <functional>

#include "tests/pages/model.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kRows = 6;
constexpr size_t kOutElements = kRows * kSmallHeads * kSmallHeadDim;

/// A call that is in order.
struct Read {
  TestCache cache{Int8Spec(), kSmallHeads, kSmallHeadDim, 1};
  std::vector<int64_t> slots = {0, 1, 2, 3, -1, 15};
  std::vector<int64_t> lengths = {3, 3};
  std::vector<int64_t> row_offsets = {0, 3};
  std::vector<float> out = std::vector<float>(kOutElements, 7.0f);
  ReadCacheArguments arguments;

  Read() {
    arguments.cache = cache.view;
    arguments.rows = kRows;
    arguments.slots = slots.data();
    arguments.dtype = DType::kFloat32;
    arguments.out = out.data();
  }
  /// Two sequences of up to three pages.
  void UsePages() {
    arguments.slot_spec.mode = SlotMode::kPageTable;
    arguments.slot_spec.pages = 3;
    arguments.sequences = 2;
    arguments.lengths = lengths.data();
    slots = {0, 1, 2, 3, 0, 1};
    arguments.slots = slots.data();
  }
};

struct ReadRow {
  std::function<void(Read&)> change;
  const char* sentence;
  StatusCode code = StatusCode::kInvalidArgument;
};

void ExpectRefusals(const std::vector<ReadRow>& rows) {
  for (const ReadRow& row : rows) {
    Read read;
    row.change(read);
    const std::vector<char> before = read.cache.data;
    const Status status = ReadCache(read.arguments);
    EXPECT_EQ(status.message(), row.sentence);
    EXPECT_EQ(status.code(), row.code) << row.sentence;
    EXPECT_EQ(read.out, std::vector<float>(kOutElements, 7.0f)) << row.sentence;
    EXPECT_EQ(read.cache.data, before) << row.sentence;
  }
}

TEST(ReadCacheRefusals, TheCallInOrderIsNotRefused) {
  Read read;
  EXPECT_TRUE(ReadCache(read.arguments).ok());
  Read pages;
  pages.UsePages();
  pages.arguments.row_offsets = pages.row_offsets.data();
  EXPECT_TRUE(ReadCache(pages.arguments).ok());
}

TEST(ReadCacheRefusals, Cache) {
  ExpectRefusals({
      {[](Read& r) { r.arguments.cache.spec.dtype = DType::kInt32; },
       "cache.spec.dtype: is int32, must be fp32, fp16, bf16, int8, fp8_e4m3 or fp8_e5m2"},
      {[](Read& r) { r.arguments.cache.heads = 0; }, "cache.heads: is 0, must be from 1 to 65536"},
      {[](Read& r) { r.arguments.cache.heads = 65537; },
       "cache.heads: is 65537, must be from 1 to 65536"},
      {[](Read& r) { r.arguments.cache.head_dim = 0; },
       "cache.head_dim: is 0, must be from 1 to 1024"},
      {[](Read& r) { r.arguments.cache.head_dim = 1025; },
       "cache.head_dim: is 1025, must be from 1 to 1024"},
      {[](Read& r) { r.arguments.cache.spec.layout.blocks = 0; },
       "cache.spec.layout: has 0 blocks, must have at least 1"},
      {[](Read& r) {
         r.arguments.cache.spec.layout.channel_chunk = 3;
         r.arguments.cache.spec.layout.name = nullptr;
       },
       "cache.spec.layout: head_dim 8 is not a multiple of 3, the channel chunk of its unnamed "
       "layout"},
      {[](Read& r) { r.arguments.cache.spec.layout.row_chunk = 3; },
       "cache.spec.layout: block_size 4 is not a multiple of 3, the row chunk of its paged NHD "
       "layout"},
      {[](Read& r) { r.arguments.cache.spec.layout.block_stride = int64_t{1} << 60; },
       "cache.data: its sizes and strides span more than 2^60 bytes"},
      {[](Read& r) { r.arguments.cache.spec.layout.block_stride = -(int64_t{1} << 60); },
       "cache.data: its sizes and strides span more than 2^60 bytes"},
      {[](Read& r) { r.arguments.cache.data = nullptr; },
       "cache.data: is null, must point to its elements", StatusCode::kNullArgument},
      {[](Read& r) {
         r.arguments.cache.spec.dtype = DType::kFloat32;
         r.arguments.cache.data = reinterpret_cast<char*>(r.out.data()) + 2;
       },
       "cache.data: address ends in 2 modulo 4, must be a multiple of the element size"},
  });
}

TEST(ReadCacheRefusals, Scales) {
  ExpectRefusals({
      {[](Read& r) { r.arguments.cache.spec.scale_rule = static_cast<ScaleRule>(3); },
       "cache.spec.scale_rule: is 3, must be kDivide, kMultiply or kDynamic"},
      {[](Read& r) { r.arguments.cache.spec.granularity = static_cast<ScaleGranularity>(9); },
       "cache.spec.granularity: is 9, must be kChannel, kHead or kTensor"},
      {[](Read& r) {
         r.arguments.cache.spec.dtype = DType::kBFloat16;
         r.arguments.cache.spec.granularity = ScaleGranularity::kTensor;
       },
       "cache.spec.granularity: is given, needs an 8-bit type with static scales"},
      {[](Read& r) {
         r.arguments.cache.spec = DynamicSpec();
         r.arguments.cache.spec.granularity = ScaleGranularity::kHead;
       },
       "cache.spec.granularity: is given, needs an 8-bit type with static scales"},
      {[](Read& r) {
         r.arguments.cache.spec.dtype = DType::kBFloat16;
         r.arguments.cache.spec.scale_rule = ScaleRule::kDynamic;
       },
       "cache.spec.scale_rule: is kDynamic for a cache of type bf16, needs an 8-bit type"},
      {[](Read& r) {
         r.arguments.cache.spec.dtype = DType::kFloat8E4M3;
         r.arguments.cache.spec.has_offset = true;
       },
       "cache.spec.has_offset: is set for a cache of type fp8_e4m3, needs an int8 cache"},
      {[](Read& r) {
         r.arguments.cache.spec = DynamicSpec();
         r.arguments.cache.spec.has_offset = true;
       },
       "cache.spec.has_offset: is set for dynamic scales, needs kDivide or kMultiply"},
      {[](Read& r) { r.arguments.cache.scale = nullptr; },
       "cache.scale: is null, must point to its elements", StatusCode::kNullArgument},
      {[](Read& r) { r.arguments.cache.spec.has_offset = true; },
       "cache.offset: is null, must point to its elements", StatusCode::kNullArgument},
      {[](Read& r) { r.arguments.cache.spec.scale_shape.rank = 9; },
       "cache.scale: has 9 dimensions, must have from 0 to 8"},
      {[](Read& r) {
         r.arguments.cache.spec.scale_shape = StridedShape::Contiguous({2, 4});
       },
       "cache.scale: has 8 elements, must have 16"},
      {[](Read& r) {
         r.arguments.cache.spec.scale_shape = StridedShape::Contiguous({16});
         r.arguments.cache.spec.granularity = ScaleGranularity::kHead;
       },
       "cache.scale: has 16 elements, must have 2"},
      {[](Read& r) {
         r.arguments.cache.spec.scale_shape = StridedShape::Contiguous({2, -8});
       },
       "cache.scale: dimension 1 is -8, sizes must be 0 or more and their product below 2^63"},
      {[](Read& r) { r.arguments.cache.spec = DynamicSpec(); },
       "cache.scale_cache: is null, must point to its elements", StatusCode::kNullArgument},
      {[](Read& r) {
         r.arguments.cache.spec = DynamicSpec();
         r.arguments.cache.spec.scale_layout.blocks = 5;
       },
       "cache.spec.scale_layout: has 5 blocks of 4 rows, must have the cache's 4 blocks of 4"},
      {[](Read& r) {
         r.arguments.cache.spec = DynamicSpec();
         r.arguments.cache.spec.scale_layout.block_size = 2;
       },
       "cache.spec.scale_layout: has 4 blocks of 2 rows, must have the cache's 4 blocks of 4"},
      {[](Read& r) {
         r.arguments.cache.spec = DynamicSpec();
         r.arguments.cache.spec.scale_layout = {};
       },
       "cache.spec.scale_layout: has 0 blocks, must have at least 1"},
  });
}

TEST(ReadCacheRefusals, OutputAndSlots) {
  ExpectRefusals({
      {[](Read& r) { r.arguments.dtype = DType::kInt8; },
       "dtype: is int8, must be fp32, fp16 or bf16"},
      {[](Read& r) { r.arguments.out = nullptr; }, "out: is null, must point to its elements",
       StatusCode::kNullArgument},
      {[](Read& r) {
         r.arguments.out_strides = TokenStrides{96, 16, 8, 1};
       },
       "out_strides: batch is 96, must be kFollows, as rows have no batch"},
      {[](Read& r) {
         r.arguments.out_strides = TokenStrides{TokenStrides::kFollows, 0, 8, 1};
       },
       "out: its strides put two elements at one address, an output must not overlap itself"},
      {[](Read& r) { r.arguments.out = r.cache.data.data(); },
       "out: overlaps cache.data, an output must not share an element with another tensor"},
      {[](Read& r) {
         r.slots.resize(200);  // out is all within it
         r.arguments.slots = r.slots.data();
         r.arguments.out = r.slots.data() + 2;
       },
       "out: overlaps slots, an output must not share an element with another tensor"},
      {[](Read& r) { r.arguments.rows = -1; }, "rows: is -1, must be from 0 to 4294967296"},
      {[](Read& r) { r.arguments.slots = nullptr; }, "slots: is null, must point to its elements",
       StatusCode::kNullArgument},
      {[](Read& r) { r.slots[3] = 16; },
       "slots: element 3 is 16, must be below 16, the slots of the cache"},
      {[](Read& r) { r.arguments.slot_spec.mode = SlotMode::kStartPerSequence; },
       "slot_spec: mode is 1, must be kSlotPerToken or kPageTable"},
      {[](Read& r) { r.arguments.slot_spec.zeroes_unused_rows = true; },
       "slot_spec: zeroes_unused_rows is set, must not be for a cache that is read"},
      {[](Read& r) { r.arguments.slot_spec.dtype = DType::kInt8; },
       "slot_spec: type is int8, must be int64 or int32"},
      {[](Read& r) { r.arguments.sequences = 2; },
       "sequences: is 2, must be 0 unless slot_spec says kPageTable"},
      {[](Read& r) { r.arguments.slot_spec.stride = int64_t{1} << 60; },
       "slots: its sizes and strides span more than 2^60 bytes"},
  });
}

ReadRow Paged(const std::function<void(Read&)>& change, const char* sentence,
              StatusCode code = StatusCode::kInvalidArgument) {
  return {[change](Read& r) {
            r.UsePages();
            change(r);
          },
          sentence, code};
}

TEST(ReadCacheRefusals, PageTable) {
  ExpectRefusals({
      Paged([](Read& r) { r.arguments.slot_spec.pages = -1; },
            "slot_spec: pages is -1, must be 0 or more and have less than 2^63 rows"),
      Paged([](Read& r) { r.arguments.slot_spec.pages = INT64_MAX; },
            "slot_spec: pages is 9223372036854775807, must be 0 or more and have less than 2^63 "
            "rows"),
      Paged(
          [](Read& r) {
            r.arguments.slot_spec.pages = int64_t{1} << 40;
            r.arguments.slot_spec.stride = int64_t{1} << 40;
          },
          "slot_spec: 1099511627776 pages of stride 1099511627776 span more than 2^63 elements"),
      Paged([](Read& r) { r.arguments.sequences = -2; },
            "sequences: is -2, must be from 0 to 4294967296"),
      Paged([](Read& r) { r.arguments.slots = nullptr; },
            "slots: is null, must point to its elements", StatusCode::kNullArgument),
      Paged([](Read& r) { r.arguments.lengths = nullptr; },
            "lengths: is null, must point to its elements", StatusCode::kNullArgument),
      Paged([](Read& r) { r.lengths[1] = -1; },
            "lengths: element 1 is -1, must be from 0 to 12, the rows of 3 pages"),
      Paged([](Read& r) { r.lengths[0] = 13; },
            "lengths: element 0 is 13, must be from 0 to 12, the rows of 3 pages"),
      Paged([](Read& r) { r.lengths[1] = 4; },
            "lengths: elements 0 to 1 add up to more than 6, the rows of out"),
      Paged(
          [](Read& r) {
            r.row_offsets = {0, 2};
            r.arguments.row_offsets = r.row_offsets.data();
          },
          "row_offsets: element 1 is 2, must be from 3, the end of the sequence before, to 3, "
          "which leaves 3 rows of out"),
      Paged(
          [](Read& r) {
            r.row_offsets = {4, 5};
            r.arguments.row_offsets = r.row_offsets.data();
          },
          "row_offsets: element 0 is 4, must be from 0, the end of the sequence before, to 3, "
          "which leaves 3 rows of out"),
      Paged([](Read& r) { r.slots[3] = -1; },
            "slots: page 0 of sequence 1 is block -1, must be from 0 to 3"),
      Paged([](Read& r) { r.slots[0] = 4; },
            "slots: page 0 of sequence 0 is block 4, must be from 0 to 3"),
  });
}

}  // namespace
}  // namespace qkvfuse::testing
