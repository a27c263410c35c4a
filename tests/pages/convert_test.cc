// ConvertPages against the model: every pair of types and rules; what has to come back comes back.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/pages/moves.h"
#include "tests/support/fp_state.h"

namespace qkvfuse::testing {
namespace {

void ExpectSameElements(const TestCache& found, const TestCache& expected,
                        const std::string& what) {
  const DType dtype = found.view.spec.dtype;
  const int64_t bytes = SizeOf(dtype);
  for (size_t at = 0; at < found.data.size(); at += static_cast<size_t>(bytes)) {
    ASSERT_TRUE(
        AreSame(dtype, LoadBits(&found.data[at], bytes), LoadBits(&expected.data[at], bytes)))
        << what << ", byte " << at << ": " << LoadBits(&found.data[at], bytes) << ", expected "
        << LoadBits(&expected.data[at], bytes);
  }
  ASSERT_EQ(found.scale_cache, expected.scale_cache) << what;
}

/// The same scales in the same memory.
void ShareScales(const TestCache& from, TestCache* to) {
  to->view.scale = from.view.scale;
  to->view.offset = from.view.offset;
}

/// A pair of `from`, which has the values of a model of the operators, and `to`.
void ExpectConverts(const CacheSpec& from_spec, const CacheSpec& to_spec, unsigned seed) {
  const TestCache from(from_spec, kHeads, kHeadDim, seed);
  const TestCache to(to_spec, kHeads, kHeadDim, seed + 1);
  TestCache expected(to_spec, kHeads, kHeadDim, seed + 1);
  const bool is_copy =
      from_spec.dtype == to_spec.dtype &&
      (!IsQuantised(to_spec.dtype) ||
       (from_spec.scale_rule == ScaleRule::kDynamic && to_spec.scale_rule == ScaleRule::kDynamic));
  MoveByModel(kPairs, &expected, [&](int64_t slot, int64_t head) {
    return is_copy ? BitsOf(from, slot, head) : CodesOf(to, head, ValuesOf(from, slot, head));
  });
  const Status status = ConvertPages(Arguments(from, to, kPairs), {ThreadsOf(seed), true});
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectSameElements(to, expected, Describe(from_spec) + " to " + Describe(to_spec));
}

TEST(ConvertPages, EveryFormatToEveryFormat) {
  unsigned seed = 1;
  const std::vector<CacheLayout> layouts = Layouts();
  for (const CacheSpec& from : EveryFormat()) {
    for (const CacheSpec& to : EveryFormat()) {
      for (int repeat = 0; repeat < 2; ++repeat, ++seed) {
        ExpectConverts(WithLayout(from, layouts[seed % layouts.size()], true),
                       WithLayout(to, layouts[seed / 7 % layouts.size()]), seed);
      }
    }
  }
}

// Equal types with the same scales: any bits come back, NaN codes included.
TEST(ConvertPages, LayoutsThereAndBack) {
  for (const CacheSpec& format : EveryFormat()) {
    const TestCache original(WithLayout(format, Nhd()), kHeads, kHeadDim, 9);
    for (const CacheLayout& layout : Layouts()) {
      TestCache other(WithLayout(format, layout, true), kHeads, kHeadDim, 10);
      TestCache back(WithLayout(format, Nhd()), kHeads, kHeadDim, 11);
      ShareScales(original, &other);
      ShareScales(original, &back);
      ConvertAll(original, other);
      ConvertAll(other, back);
      EXPECT_EQ(BytesOf(back), BytesOf(original)) << Describe(other.view.spec);
    }
  }
}

/// Whether reading a code as a number and writing it again gives the code.
bool IsKept(DType dtype, uint32_t code) {
  const float value = ValueOf(dtype, code);
  return !std::isnan(value) && !std::isinf(value);
}

// 8-bit codes as fp32, and again as codes of the same scales: the same codes.
TEST(ConvertPages, CodesComeBackFromFloats) {
  for (const CacheSpec& format : EveryFormat()) {
    if (!IsQuantised(format.dtype) || format.scale_rule == ScaleRule::kDynamic) continue;
    const TestCache codes(WithLayout(format, Nhd()), kHeads, kHeadDim, 21);
    const TestCache floats(WithLayout(FormatOf(DType::kFloat32), Nhd()), kHeads, kHeadDim, 22);
    TestCache back(WithLayout(format, Nhd()), kHeads, kHeadDim, 23);
    ShareScales(codes, &back);
    ConvertAll(codes, floats);
    ConvertAll(floats, back);
    for (size_t i = 0; i < codes.data.size(); ++i) {
      const auto code = static_cast<uint8_t>(codes.data[i]);
      if (!IsKept(format.dtype, code)) continue;
      EXPECT_EQ(static_cast<uint8_t>(back.data[i]), code) << Describe(codes.view.spec) << " " << i;
    }
  }
}

// The largest value of a head gets the largest code; heads of zeros a scale of 0.
TEST(ConvertPages, DynamicScales) {
  TestCache floats(WithLayout(FormatOf(DType::kFloat32), Nhd()), kHeads, kHeadDim, 1);
  std::vector<float> values(floats.data.size() / 4, 0.0f);
  for (size_t c = 0; c < kHeadDim; ++c) values[c] = static_cast<float>(c) - 6.0f;  // largest: -6
  values[kHeadDim] = std::nanf("");                                                // else zeros
  values[2 * kHeadDim] = 1e-45f;  // its scale underflows
  values[2 * kHeadDim + 1] = -0.0f;
  std::memcpy(floats.data.data(), values.data(), floats.data.size());
  struct Expected {
    DType dtype;
    float scale;
    uint8_t code;  // of -6
  };
  for (const Expected& e :
       {Expected{DType::kInt8, 6.0f / 127, 0x81}, Expected{DType::kFloat8E4M3, 6.0f / 448, 0xFE},
        Expected{DType::kFloat8E5M2, 6.0f / 57344, 0xFB}}) {
    const TestCache codes(WithLayout(FormatOf(e.dtype, ScaleRule::kDynamic), Nhd()), kHeads,
                          kHeadDim, 2);
    ConvertAll(floats, codes);
    EXPECT_EQ(codes.scale_cache[0], e.scale) << Name(e.dtype);
    EXPECT_EQ(static_cast<uint8_t>(codes.data[0]), e.code) << Name(e.dtype);
    EXPECT_EQ(codes.data[6], 0) << Name(e.dtype);
    for (size_t head = 1; head < codes.scale_cache.size(); ++head) {
      EXPECT_EQ(codes.scale_cache[head], 0.0f) << Name(e.dtype) << " " << head;
    }
    EXPECT_EQ(std::count(codes.data.begin() + kHeadDim, codes.data.end(), 0),
              static_cast<int64_t>(codes.data.size()) - kHeadDim)
        << Name(e.dtype);
  }
}

TEST(ConvertPages, AnyThreadsAndEnvironmentsGiveTheSameBytes) {
  for (const CacheSpec& format : EveryFormat()) {
    const CacheSpec from_spec = WithLayout(FormatOf(DType::kFloat32), Nhd());
    const CacheSpec to_spec =
        WithLayout(format, ShuffledV(kBlocks, kBlockSize, kHeads, kHeadDim, 2));
    const TestCache from(from_spec, kHeads, kHeadDim, 5);
    const TestCache expected(to_spec, kHeads, kHeadDim, 6);
    ASSERT_TRUE(ConvertPages(Arguments(from, expected, kPairs), {1, false}).ok());
    const auto expect_same = [&](int threads, uint64_t control, const std::string& what) {
      const TestCache to(to_spec, kHeads, kHeadDim, 6);  // before the environment changes
      const ScopedFpControl scoped(control);
      ASSERT_TRUE(ConvertPages(Arguments(from, to, kPairs), {threads, true}).ok());
      EXPECT_EQ(BytesOf(to), BytesOf(expected)) << Describe(to_spec) << ", " << what;
    };
    for (const int threads : {1, 2, 3, 5}) {
      expect_same(threads, ReadFpControl(), std::to_string(threads) + " threads");
    }
    for (const FpState& state : HostileFpStates()) expect_same(2, state.control, state.name);
  }
}

/// The scales of a cache, channel by channel instead of head by head, and their shape.
StridedShape ByChannel(const std::vector<float>& by_head, std::vector<float>* by_channel) {
  by_channel->resize(by_head.size());
  for (size_t i = 0; i < by_head.size(); ++i) {
    (*by_channel)[i % kHeadDim * kHeads + i / kHeadDim] = by_head[i];
  }
  StridedShape shape = StridedShape::Contiguous({kHeads, kHeadDim / 4, 4});
  shape.strides = {1, 4 * kHeads, kHeads};
  return shape;
}

// Elements come in the order of a shape, whatever its rank and strides.
TEST(ConvertPages, ScalesOfAnyShape) {
  CacheSpec spec = WithLayout(FormatOf(DType::kInt8), Nhd());
  spec.has_offset = true;
  const TestCache from(WithLayout(FormatOf(DType::kFloat32), Nhd()), kHeads, kHeadDim, 5);
  const TestCache expected(spec, kHeads, kHeadDim, 6);
  ConvertAll(from, expected);
  TestCache to(spec, kHeads, kHeadDim, 6);
  std::vector<float> scale, offset;
  to.view.spec.scale_shape = ByChannel(expected.scale, &scale);
  to.view.spec.offset_shape = ByChannel(expected.offset, &offset);
  to.view.scale = scale.data();
  to.view.offset = offset.data();
  ConvertAll(from, to);
  EXPECT_EQ(to.data, expected.data);
}

// Scales in the same memory that do not mean the same: codes are not copied.
TEST(ConvertPages, SameMemoryWithAnotherMeaning) {
  CacheSpec spec = WithLayout(FormatOf(DType::kInt8), Nhd());
  spec.has_offset = true;
  const TestCache from(spec, kHeads, kHeadDim, 31);
  const std::vector<float> other_offset(from.offset.size(), 3.0f);
  const StridedShape by_channel = [] {
    std::vector<float> unused;
    return ByChannel(std::vector<float>(kHeads * kHeadDim), &unused);
  }();
  const std::vector<std::function<void(CacheView*)>> changes = {
      [&](CacheView* to) { to->offset = other_offset.data(); },
      [&](CacheView* to) { to->spec.has_offset = false; },
      [&](CacheView* to) { to->spec.scale_shape = by_channel; },
      [&](CacheView* to) { to->spec.offset_shape = by_channel; },
      [&](CacheView* to) { to->spec.granularity = ScaleGranularity::kTensor; },
      [&](CacheView* to) { to->spec.scale_rule = ScaleRule::kMultiply; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    TestCache to(spec, kHeads, kHeadDim, 32), expected(spec, kHeads, kHeadDim, 32);
    ShareScales(from, &to);
    changes[i](&to.view);
    // The same values of scales and offsets elsewhere.
    std::vector<float> scale = from.scale;
    std::vector<float> offset = to.view.offset == from.view.offset ? from.offset : other_offset;
    expected.view.spec = to.view.spec;
    expected.view.scale = scale.data();
    expected.view.offset = offset.data();
    ConvertAll(from, to);
    ConvertAll(from, expected);
    EXPECT_EQ(to.data, expected.data) << i;
    EXPECT_NE(to.data, from.data) << i;
  }
}

// One unit in the last place more is the larger value.
TEST(ConvertPages, DynamicScalesOfTheVeryLargest) {
  TestCache floats(WithLayout(FormatOf(DType::kFloat32), Nhd()), kHeads, kHeadDim, 1);
  std::vector<float> values(floats.data.size() / 4, 127.0f);
  values[5] = std::nextafter(-127.0f, -200.0f);
  std::memcpy(floats.data.data(), values.data(), floats.data.size());
  CacheSpec spec = WithLayout(FormatOf(DType::kInt8, ScaleRule::kDynamic), Nhd());
  spec.scale_layout.channel_chunk = 3;  // not used
  const TestCache codes(spec, kHeads, kHeadDim, 2);
  ConvertAll(floats, codes);
  EXPECT_EQ(codes.scale_cache[0], std::nextafter(1.0f, 2.0f));
  EXPECT_EQ(codes.scale_cache[1], 1.0f);
}

}  // namespace
}  // namespace qkvfuse::testing
