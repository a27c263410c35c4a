// CopyPages and ConvertPages against the model: every pair of types, rules and layouts; what has
// to come back comes back; the blocks that no pair names keep their bytes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/pages/model.h"
#include "tests/support/fp_state.h"
#include "tests/support/sparse_memory.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kHeads = 2, kHeadDim = 8, kBlocks = 4, kBlockSize = 4;
const std::vector<int64_t> kPairs = {3, 0, 1, 3, 1, 1};  // block 2 of `to` is not named

CacheSpec WithLayout(CacheSpec spec, const CacheLayout& layout, bool scales_by_head = false) {
  spec.layout = layout;
  if (IsQuantised(spec.dtype) && spec.scale_rule == ScaleRule::kDynamic) {
    spec.scale_layout = scales_by_head ? ScalesHn(layout.blocks, layout.block_size, kHeads)
                                       : ScalesNh(layout.blocks, layout.block_size, kHeads);
  }
  return spec;
}

std::vector<CacheLayout> Layouts() { return EveryLayout(kBlocks, kBlockSize, kHeads, kHeadDim); }
CacheLayout Nhd() { return PagedNhd(kBlocks, kBlockSize, kHeads, kHeadDim); }

/// The format of a type with that rule, scales per channel, no offset.
CacheSpec FormatOf(DType dtype, ScaleRule rule = ScaleRule::kDivide) {
  CacheSpec spec;
  spec.dtype = dtype;
  spec.scale_rule = rule;
  return spec;
}

MovePagesArguments Arguments(const TestCache& from, const TestCache& to,
                             const std::vector<int64_t>& pairs) {
  MovePagesArguments arguments;
  arguments.from = from.view;
  arguments.to = to.view;
  arguments.count = static_cast<int64_t>(pairs.size() / 2);
  arguments.pairs = pairs.data();
  return arguments;
}

/// The bytes of a cache and of its dynamic scales.
std::vector<char> BytesOf(const TestCache& cache) {
  std::vector<char> bytes = cache.data;
  const auto* const scales = reinterpret_cast<const char*>(cache.scale_cache.data());
  bytes.insert(bytes.end(), scales, scales + 4 * cache.scale_cache.size());
  return bytes;
}

/// Writes a pattern, and a dynamic scale, where the model wants it.
void Put(TestCache* cache, int64_t slot, int64_t head, const Codes& codes) {
  const auto bytes = static_cast<size_t>(SizeOf(cache->view.spec.dtype));
  for (size_t channel = 0; channel < codes.bits.size(); ++channel) {
    const int64_t element =
        cache->view.spec.layout.AddressOf(slot, head, static_cast<int64_t>(channel));
    std::memcpy(cache->data.data() + static_cast<size_t>(element) * bytes, &codes.bits[channel],
                bytes);
  }
  if (cache->scale_cache.empty()) return;
  const int64_t element = cache->view.spec.scale_layout.AddressOf(slot, head, 0);
  cache->scale_cache[static_cast<size_t>(element)] = codes.scale;
}

/// One head of a slot as bits, for copies.
Codes BitsOf(const TestCache& cache, int64_t slot, int64_t head) {
  Codes codes;
  for (int64_t c = 0; c < kHeadDim; ++c) codes.bits.push_back(cache.BitsAt(slot, head, c));
  if (!cache.scale_cache.empty()) codes.scale = cache.ScaleAt(slot, head);
  return codes;
}

std::vector<float> ValuesOf(const TestCache& cache, int64_t slot, int64_t head) {
  std::vector<float> values;
  for (int64_t c = 0; c < kHeadDim; ++c) values.push_back(cache.ValueAt(slot, head, c));
  return values;
}

/// What the model makes of `to`.
template <typename CodesOfHead>
void MoveByModel(const std::vector<int64_t>& pairs, TestCache* to, const CodesOfHead& codes) {
  for (size_t pair = 0; pair < pairs.size(); pair += 2) {
    for (int64_t row = 0; row < kBlockSize; ++row) {
      for (int64_t head = 0; head < kHeads; ++head) {
        Put(to, pairs[pair + 1] * kBlockSize + row, head,
            codes(pairs[pair] * kBlockSize + row, head));
      }
    }
  }
}

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
  ASSERT_EQ(std::memcmp(found.scale_cache.data(), expected.scale_cache.data(),
                        4 * found.scale_cache.size()),
            0)
      << what;
}

void ExpectCopies(const CacheSpec& from_spec, const CacheSpec& to_spec, unsigned seed) {
  const TestCache from(from_spec, kHeads, kHeadDim, seed);
  const TestCache to(to_spec, kHeads, kHeadDim, seed + 1);
  TestCache expected(to_spec, kHeads, kHeadDim, seed + 1);
  MoveByModel(kPairs, &expected,
              [&](int64_t slot, int64_t head) { return BitsOf(from, slot, head); });
  const Status status =
      CopyPages(Arguments(from, to, kPairs), {static_cast<int>(seed % 5) + 1, true});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(BytesOf(to), BytesOf(expected)) << Describe(from_spec) << " to " << to_spec.layout.name;
}

TEST(CopyPages, BetweenAllLayouts) {
  unsigned seed = 1;
  for (const CacheSpec& format : EveryFormat()) {
    if (format.granularity != ScaleGranularity::kChannel) continue;
    for (const CacheLayout& from : Layouts()) {
      for (const CacheLayout& to : Layouts()) {
        ExpectCopies(WithLayout(format, from, true), WithLayout(format, to), seed++);
      }
    }
  }
}

// Other numbers of blocks, and pairs of int32.
TEST(CopyPages, BetweenCachesOfOtherSizes) {
  const CacheSpec spec = FormatOf(DType::kBFloat16);
  const TestCache from(WithLayout(spec, PagedHnd(9, kBlockSize, kHeads, kHeadDim)), kHeads,
                       kHeadDim, 1);
  const TestCache to(WithLayout(spec, Transposed(2, kBlockSize, kHeads, kHeadDim)), kHeads,
                     kHeadDim, 2);
  TestCache expected(to.view.spec, kHeads, kHeadDim, 2);
  MoveByModel({8, 1, 5, 0}, &expected,
              [&](int64_t slot, int64_t head) { return BitsOf(from, slot, head); });
  const std::vector<int32_t> pairs = {8, 1, 5, 0};
  MovePagesArguments arguments = Arguments(from, to, {});
  arguments.count = 2;
  arguments.dtype = DType::kInt32;
  arguments.pairs = pairs.data();
  ASSERT_TRUE(CopyPages(arguments).ok());
  EXPECT_EQ(BytesOf(to), BytesOf(expected));
}

TEST(CopyPages, WithinOneCache) {
  for (const CacheSpec& format : EveryFormat()) {
    for (const CacheLayout& layout : Layouts()) {
      const TestCache cache(WithLayout(format, layout), kHeads, kHeadDim, 3);
      TestCache expected(cache.view.spec, kHeads, kHeadDim, 3);
      const std::vector<int64_t> pairs = {2, 0, 2, 3};
      MoveByModel(pairs, &expected,
                  [&](int64_t slot, int64_t head) { return BitsOf(cache, slot, head); });
      ASSERT_TRUE(CopyPages(Arguments(cache, cache, pairs), {3, true}).ok());
      EXPECT_EQ(BytesOf(cache), BytesOf(expected)) << Describe(cache.view.spec);
    }
  }
}

// K and V in turn in one buffer share no element.
TEST(CopyPages, BetweenTheTwoCachesOfABuffer) {
  const CacheSpec spec = WithLayout(FormatOf(DType::kFloat16), InTurn(Nhd(), kHeads * kHeadDim));
  const TestCache k(spec, kHeads, kHeadDim, 3);
  std::vector<char> buffer(k.data.size() + 2 * kHeads * kHeadDim, 'v');
  std::copy(k.data.begin(), k.data.end(), buffer.begin());
  MovePagesArguments arguments = Arguments(k, k, kPairs);
  arguments.from.data = buffer.data();
  arguments.to.data = buffer.data() + 2 * kHeads * kHeadDim;
  const Status status = CopyPages(arguments);
  ASSERT_TRUE(status.ok()) << status.message();
  const CacheLayout& layout = spec.layout;
  EXPECT_EQ(LoadBits(buffer.data() + 2 * (layout.AddressOf(2, 1, 3) + kHeads * kHeadDim), 2),
            k.BitsAt(14, 1, 3));
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
  const Status status =
      ConvertPages(Arguments(from, to, kPairs), {static_cast<int>(seed % 5) + 1, true});
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

/// Converts all blocks in order.
void ConvertAll(const TestCache& from, const TestCache& to) {
  const std::vector<int64_t> all = {0, 0, 1, 1, 2, 2, 3, 3};
  const Status status = ConvertPages(Arguments(from, to, all));
  ASSERT_TRUE(status.ok()) << status.message();
}

/// The same scales in the same memory.
void ShareScales(const TestCache& from, TestCache* to) {
  to->view.scale = from.view.scale;
  to->view.offset = from.view.offset;
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

// A scale with another shape and gaps, whose elements come in the same order.
TEST(ConvertPages, ScalesOfAnyShape) {
  const CacheSpec floats = WithLayout(FormatOf(DType::kFloat32), Nhd());
  const TestCache from(floats, kHeads, kHeadDim, 5);
  const TestCache expected(WithLayout(FormatOf(DType::kInt8), Nhd()), kHeads, kHeadDim, 6);
  ConvertAll(from, expected);
  TestCache to(WithLayout(FormatOf(DType::kInt8), Nhd()), kHeads, kHeadDim, 6);
  std::vector<float> scale(3 * expected.scale.size());
  StridedShape shape = StridedShape::Contiguous({kHeads, kHeadDim / 4, 4});
  shape.strides = {3 * kHeadDim, 12, 3};
  for (size_t i = 0; i < expected.scale.size(); ++i) scale[3 * i] = expected.scale[i];
  to.view.spec.scale_shape = shape;
  to.view.scale = scale.data();
  ConvertAll(from, to);
  EXPECT_EQ(to.data, expected.data);
}

TEST(MovePages, NoPairs) {
  const TestCache cache(WithLayout(FormatOf(DType::kFloat32), Nhd()), kHeads, kHeadDim, 5);
  EXPECT_TRUE(CopyPages(Arguments(cache, cache, {}), {3, true}).ok());
}

// More than 2^32 elements on both sides.
TEST(CopyPages, LargeCaches) {
  constexpr int64_t kMany = 100000, kRows = 128, kWide = 4, kChannels = 128;
  constexpr int64_t kElements = kMany * kRows * kWide * kChannels;
  const SparseMemory from(static_cast<size_t>(kElements)), to(static_cast<size_t>(kElements));
  ASSERT_TRUE(from.is_mapped() && to.is_mapped());
  const CacheLayout nhd = PagedNhd(kMany, kRows, kWide, kChannels);
  const CacheLayout hnd = PagedHnd(kMany, kRows, kWide, kChannels);
  MovePagesArguments arguments;
  arguments.from = {FormatOf(DType::kInt8), kWide, kChannels, from.data()};
  arguments.from.spec.layout = nhd;
  arguments.to = {FormatOf(DType::kInt8), kWide, kChannels, to.data()};
  arguments.to.spec.layout = hnd;
  const std::vector<int64_t> pairs = {kMany - 1, 70000, 0, kMany - 1, 70001, 3};
  arguments.count = 3;
  arguments.pairs = pairs.data();
  for (size_t i = 0; i < 6; i += 2) {
    from.data()[nhd.AddressOf(pairs[i] * kRows + 77, 2, 99)] = static_cast<char>(i + 1);
  }
  ASSERT_TRUE(CopyPages(arguments).ok());
  for (size_t i = 0; i < 6; i += 2) {
    EXPECT_EQ(to.data()[hnd.AddressOf(pairs[i + 1] * kRows + 77, 2, 99)], static_cast<char>(i + 1));
  }
}

}  // namespace
}  // namespace qkvfuse::testing
