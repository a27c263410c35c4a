// Every refusal of CopyPages and ConvertPages, whole sentences; nothing is written.
#include <functional>

#include "tests/pages/model.h"

namespace qkvfuse::testing {
namespace {

/// A move that is in order, as a copy and as a conversion.
struct Pages {
  TestCache from{Int8Spec(), kSmallHeads, kSmallHeadDim, 1};
  TestCache to{Int8Spec(), kSmallHeads, kSmallHeadDim, 2};
  std::vector<int64_t> pairs = {0, 1, 2, 3};
  std::vector<float> scales = std::vector<float>(32, 7.0f);
  MovePagesArguments arguments;

  Pages() {
    arguments.from = from.view;
    arguments.to = to.view;
    arguments.count = 2;
    arguments.pairs = pairs.data();
  }
};

struct MoveRow {
  std::function<void(Pages&)> change;
  const char* sentence;
};

using Move = Status (*)(const MovePagesArguments&, const RunOptions&) noexcept;

void ExpectMoveRefusals(Move move, const std::vector<MoveRow>& rows) {
  for (const MoveRow& row : rows) {
    Pages pages;
    row.change(pages);
    const std::vector<char> from = pages.from.data;
    const std::vector<char> to = pages.to.data;
    EXPECT_EQ(move(pages.arguments, {}).message(), row.sentence);
    EXPECT_EQ(pages.from.data, from) << row.sentence;
    EXPECT_EQ(pages.to.data, to) << row.sentence;
    EXPECT_EQ(pages.scales, std::vector<float>(32, 7.0f)) << row.sentence;
  }
}

TEST(MovePagesRefusals, TheMoveInOrderIsNotRefused) {
  for (const Move move : {&CopyPages, &ConvertPages}) {
    Pages pages;
    EXPECT_TRUE(move(pages.arguments, {}).ok());
  }
}

TEST(MovePagesRefusals, Moves) {
  for (const Move move : {&CopyPages, &ConvertPages}) {
    ExpectMoveRefusals(
        move,
        {
            {[](Pages& p) { p.arguments.from.heads = 1 << 20; },
             "from.heads: is 1048576, must be from 1 to 65536"},
            {[](Pages& p) { p.arguments.to.head_dim = -1; },
             "to.head_dim: is -1, must be from 1 to 1024"},
            {[](Pages& p) { p.arguments.to.spec.layout.row_stride = 1; },
             "to.data: its strides put two elements at one address, an output must not overlap "
             "itself"},
            {[](Pages& p) { p.arguments.to.heads = 1; },
             "to: has 1 heads of 8 channels in blocks of 4 rows, must have from's 2 heads of 8 "
             "channels in blocks of 4 rows"},
            {[](Pages& p) {
               p.arguments.to.head_dim = 4;
               p.arguments.to.spec.granularity = ScaleGranularity::kHead;
             },
             "to: has 2 heads of 4 channels in blocks of 4 rows, must have from's 2 heads of 8 "
             "channels in blocks of 4 rows"},
            {[](Pages& p) { p.arguments.to.spec.layout.block_size = 2; },
             "to: has 2 heads of 8 channels in blocks of 2 rows, must have from's 2 heads of 8 "
             "channels in blocks of 4 rows"},
            {[](Pages& p) { p.arguments.count = -1; },
             "count: is -1, must be from 0 to 4294967296"},
            {[](Pages& p) { p.arguments.dtype = DType::kFloat32; },
             "pairs: type is fp32, must be int64 or int32"},
            {[](Pages& p) { p.arguments.pairs = nullptr; },
             "pairs: is null, must point to its elements"},
            {[](Pages& p) { p.pairs[2] = 4; },
             "pairs: the source of pair 1 is 4, must be a block of from, 0 to 3"},
            {[](Pages& p) { p.pairs[1] = -1; },
             "pairs: the destination of pair 0 is -1, must be a block of to, 0 to 3"},
            {[](Pages& p) { p.pairs[3] = 1; },
             "pairs: the destinations of pairs 0 and 1 are both 1, every destination must be named "
             "once"},
            {[](Pages& p) {
               p.arguments.to.data = p.from.data.data() + 64;
               p.arguments.to.spec.layout.blocks = 3;
             },
             "to.data: overlaps from.data, an output must not share an element with another "
             "tensor"},
            {[](Pages& p) {
               p.pairs.resize(200);  // the cache is all within it
               p.arguments.pairs = p.pairs.data();
               p.arguments.to.data = p.pairs.data() + 2;
             },
             "to.data: overlaps pairs, an output must not share an element with another tensor"},
        });
  }
}

TEST(MovePagesRefusals, Copies) {
  ExpectMoveRefusals(
      &CopyPages,
      {
          {[](Pages& p) { p.arguments.to.spec.dtype = DType::kFloat8E4M3; },
           "to.spec.dtype: is fp8_e4m3, must be int8, as in from (ConvertPages changes types)"},
          {[](Pages& p) {
             p.arguments.to.spec = DynamicSpec();
             p.arguments.to.scale_cache = p.scales.data();
           },
           "to.spec.scale_rule: is kDynamic, must be as in from (ConvertPages changes scales)"},
          {[](Pages& p) {
             p.arguments.from.spec = DynamicSpec();
             p.arguments.from.scale_cache = p.scales.data();
           },
           "to.spec.scale_rule: is not kDynamic, must be as in from (ConvertPages changes "
           "scales)"},
          {[](Pages& p) {
             p.arguments.to = p.arguments.from;
             p.pairs = {0, 1, 1, 2};
             p.arguments.pairs = p.pairs.data();
           },
           "pairs: block 1 is the source of pair 1 and the destination of pair 0, must be only one "
           "of them within one cache"},
          {[](Pages& p) {
             p.arguments.to = p.arguments.from;
             p.pairs = {0, 1, 3, 3};
             p.arguments.pairs = p.pairs.data();
           },
           "pairs: block 3 is the source of pair 1 and the destination of pair 1, must be only one "
           "of them within one cache"},
          {[](Pages& p) {
             p.arguments.from.spec = p.arguments.to.spec = DynamicSpec();
             p.arguments.from.scale_cache = p.arguments.to.scale_cache = p.scales.data();
             p.pairs = {0, 1, 1, 2};
             p.arguments.pairs = p.pairs.data();
           },
           "pairs: block 1 is the source of pair 1 and the destination of pair 0, must be only one "
           "of them within one cache"},
      });
}

TEST(MovePagesRefusals, Conversions) {
  ExpectMoveRefusals(
      &ConvertPages,
      {
          {[](Pages& p) { p.arguments.to = p.arguments.from; },
           "to.data: overlaps from.data, an output must not share an element with another tensor"},
          {[](Pages& p) { p.arguments.to.scale = nullptr; },
           "to.scale: is null, must point to its elements"},
          {[](Pages& p) { p.arguments.to.scale = p.to.data.data(); },
           "to.data: overlaps to.scale, an output must not share an element with another tensor"},
          {[](Pages& p) {
             p.arguments.to.spec = DynamicSpec();
             p.arguments.to.scale_cache = p.to.data.data();
           },
           "to.data: overlaps to.scale_cache, an output must not share an element with another "
           "tensor"},
      });
}

}  // namespace
}  // namespace qkvfuse::testing
