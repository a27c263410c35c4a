// ReadCache against the model: every type, rule, layout and output; slot lists and page tables;
// any number of threads; no byte beside the rows that are written.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cases/buffer.h"
#include "tests/pages/model.h"
#include "tests/support/fp_state.h"
#include "tests/support/sparse_memory.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kHeads = kSmallHeads, kHeadDim = 24, kBlocks = 3, kBlockSize = 8;
constexpr char kUntouched = 'P';

/// An output with gaps everywhere.
struct Output {
  DType dtype;
  TokenStrides strides;
  std::vector<char> bytes;

  Output(DType type, int64_t rows) : dtype(type) {
    strides.channel = 2;
    strides.head = 2 * kHeadDim + 1;
    strides.token = kHeads * strides.head + 2;
    bytes.assign(static_cast<size_t>((rows * strides.token + 4) * SizeOf(type)), kUntouched);
  }
  [[nodiscard]] char* At(int64_t row, int64_t head, int64_t channel) {
    const int64_t element = row * strides.token + head * strides.head + channel * strides.channel;
    return bytes.data() + element * SizeOf(dtype);
  }
};

/// Holds row `row` against the cache's slot, zeros where that is negative, and marks its bytes as
/// untouched.
void ExpectRow(const TestCache& cache, int64_t slot, int64_t row, Output* out) {
  const int64_t bytes = SizeOf(out->dtype);
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int64_t channel = 0; channel < kHeadDim; ++channel) {
      char* const at = out->At(row, head, channel);
      uint32_t expected = 0;
      if (slot >= 0 && cache.view.spec.dtype == out->dtype) {
        expected = cache.BitsAt(slot, head, channel);
      } else if (slot >= 0) {
        expected = PatternOf(out->dtype, cache.ValueAt(slot, head, channel));
      }
      // A copy keeps all bits.
      const bool is_same = cache.view.spec.dtype == out->dtype
                               ? LoadBits(at, bytes) == expected
                               : AreSame(out->dtype, LoadBits(at, bytes), expected);
      ASSERT_TRUE(is_same) << Describe(cache.view.spec) << " to " << Name(out->dtype) << ", row "
                           << row << ", slot " << slot << ", head " << head << ", channel "
                           << channel << ": " << LoadBits(at, bytes) << ", expected " << expected;
      std::memset(at, kUntouched, static_cast<size_t>(bytes));
    }
  }
}

void ExpectUntouched(const Output& out) {
  EXPECT_EQ(std::count(out.bytes.begin(), out.bytes.end(), kUntouched),
            static_cast<int64_t>(out.bytes.size()));
}

ReadCacheArguments Arguments(const TestCache& cache, Output* out, int64_t rows) {
  ReadCacheArguments arguments;
  arguments.cache = cache.view;
  arguments.rows = rows;
  arguments.dtype = out->dtype;
  arguments.out_strides = out->strides;
  arguments.out = out->bytes.data();
  return arguments;
}

const std::vector<int64_t> kSlots = {5, -1, 23, 0, 5, 16, 7, 8, -9, 12, 13, 14};

void ExpectReads(const TestCache& cache, DType dtype) {
  const auto rows = static_cast<int64_t>(kSlots.size());
  Output out(dtype, rows);
  ReadCacheArguments arguments = Arguments(cache, &out, rows);
  arguments.slots = kSlots.data();
  const Status status = ReadCache(arguments);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int64_t row = 0; row < rows; ++row) {
    ExpectRow(cache, kSlots[static_cast<size_t>(row)], row, &out);
  }
  ExpectUntouched(out);
}

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

TEST(ReadCache, EveryFormatToEveryFloat) {
  unsigned seed = 1;
  for (const CacheSpec& format : EveryFormat()) {
    for (const DType dtype : kFloats) {
      const CacheSpec spec = WithLayout(format, PagedNhd(kBlocks, kBlockSize, kHeads, kHeadDim));
      ExpectReads(TestCache(spec, kHeads, kHeadDim, seed++), dtype);
    }
  }
}

TEST(ReadCache, EveryLayout) {
  unsigned seed = 1000;
  for (const CacheLayout& layout : EveryLayout(kBlocks, kBlockSize, kHeads, kHeadDim)) {
    for (const CacheSpec& format : EveryFormat()) {
      if (format.granularity != ScaleGranularity::kChannel) continue;
      ExpectReads(TestCache(WithLayout(format, layout), kHeads, kHeadDim, seed++),
                  DType::kBFloat16);
      ExpectReads(TestCache(WithLayout(format, layout), kHeads, kHeadDim, seed++), DType::kFloat32);
    }
  }
}

TEST(ReadCache, TokenPool) {
  for (const CacheSpec& format : EveryFormat()) {
    ExpectReads(TestCache(WithLayout(format, TokenPool(24, kHeads, kHeadDim)), kHeads, kHeadDim, 7),
                DType::kFloat16);
  }
}

// Each code of fp8 against the definition of the format, at its own place.
TEST(ReadCache, EveryFloat8Code) {
  for (const DType dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2}) {
    CacheSpec spec;
    spec.dtype = dtype;
    spec.granularity = ScaleGranularity::kTensor;
    spec.layout = PagedNhd(1, 1, 1, 256);
    TestCache cache(spec, 1, 256, 1);
    std::iota(cache.data.begin(), cache.data.end(), static_cast<char>(0));
    cache.scale[0] = 1.0f;
    std::vector<float> out(256);
    const int64_t slot = 0;
    ReadCacheArguments arguments;
    arguments.cache = cache.view;
    arguments.rows = 1;
    arguments.slots = &slot;
    arguments.dtype = DType::kFloat32;
    arguments.out = out.data();
    ASSERT_TRUE(ReadCache(arguments).ok());
    for (uint32_t code = 0; code < 256; ++code) {
      EXPECT_TRUE(AreSame(DType::kFloat32, LoadBits(reinterpret_cast<char*>(&out[code]), 4),
                          PatternOf(DType::kFloat32, ValueOf(dtype, code))))
          << Name(dtype) << " " << code << ": " << out[code];
    }
  }
}

TEST(ReadCache, SlotsOfInt32WithAStride) {
  const CacheSpec spec =
      WithLayout(EveryFormat()[3], PagedHnd(kBlocks, kBlockSize, kHeads, kHeadDim));
  const TestCache cache(spec, kHeads, kHeadDim, 3);
  const std::vector<int32_t> slots = {4, 99, 99, -2, 99, 99, 20};
  Output out(DType::kFloat32, 3);
  ReadCacheArguments arguments = Arguments(cache, &out, 3);
  arguments.slot_spec.dtype = DType::kInt32;
  arguments.slot_spec.stride = 3;
  arguments.slots = slots.data();
  ASSERT_TRUE(ReadCache(arguments).ok());
  for (int64_t row = 0; row < 3; ++row) {
    ExpectRow(cache, slots[static_cast<size_t>(3 * row)], row, &out);
  }
  ExpectUntouched(out);
}

// The bytes of a run, with the NaN that it made.
std::vector<char> ReadWith(const TestCache& cache, const RunOptions& options) {
  std::vector<int64_t> slots(200);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i * 7 % 24) - 1;
  const auto rows = static_cast<int64_t>(slots.size());
  Output out(DType::kBFloat16, rows);
  ReadCacheArguments arguments = Arguments(cache, &out, rows);
  arguments.slots = slots.data();
  EXPECT_TRUE(ReadCache(arguments, options).ok());
  return out.bytes;
}

TEST(ReadCache, AnyThreadsGiveTheSameBytes) {
  for (const CacheSpec& format : EveryFormat()) {
    const CacheSpec spec = WithLayout(format, Transposed(kBlocks, kBlockSize, kHeads, kHeadDim));
    const TestCache cache(spec, kHeads, kHeadDim, 11);
    const std::vector<char> expected = ReadWith(cache, {1, false});
    for (const int threads : {2, 3, 5}) {
      EXPECT_EQ(ReadWith(cache, {threads, /*force_split=*/true}), expected)
          << Describe(spec) << ", " << threads << " threads";
    }
    for (const FpState& state : HostileFpStates()) {
      const ScopedFpControl control(state.control);
      EXPECT_EQ(ReadWith(cache, {2, /*force_split=*/true}), expected)
          << Describe(spec) << ", " << state.name;
    }
  }
}

struct Pages {
  std::vector<int32_t> table = {2, 0, 77, 1, 2, 77, 77, 77, 77, 0, 1, 2};  // 4 sequences of 3
  std::vector<int32_t> lengths = {11, 16, 0, 17};
  std::vector<int32_t> offsets = {1, 12, 28, 30};
};

ReadCacheArguments PageArguments(const TestCache& cache, const Pages& pages, Output* out,
                                 int64_t rows) {
  ReadCacheArguments arguments = Arguments(cache, out, rows);
  arguments.slot_spec.mode = SlotMode::kPageTable;
  arguments.slot_spec.dtype = DType::kInt32;
  arguments.slot_spec.pages = 3;
  arguments.sequences = 4;
  arguments.slots = pages.table.data();
  arguments.lengths = pages.lengths.data();
  return arguments;
}

void ExpectSequences(const TestCache& cache, const Pages& pages, const std::vector<int32_t>& begins,
                     Output* out) {
  for (size_t b = 0; b < begins.size(); ++b) {
    for (int64_t i = 0; i < pages.lengths[b]; ++i) {
      const auto page = static_cast<size_t>(i / kBlockSize);
      const int64_t slot = pages.table[3 * b + page] * kBlockSize + i % kBlockSize;
      ExpectRow(cache, slot, begins[b] + i, out);
    }
  }
  ExpectUntouched(*out);
}

TEST(ReadCache, PageTable) {
  const Pages pages;
  for (const CacheLayout& layout : EveryLayout(kBlocks, kBlockSize, kHeads, kHeadDim)) {
    const TestCache cache(WithLayout(EveryFormat()[3], layout), kHeads, kHeadDim, 5);
    for (const int threads : {1, 2, 3, 5}) {
      Output packed(DType::kBFloat16, 44);
      ReadCacheArguments arguments = PageArguments(cache, pages, &packed, 44);
      ASSERT_TRUE(ReadCache(arguments, {threads, true}).ok());
      ExpectSequences(cache, pages, {0, 11, 27, 27}, &packed);

      Output spread(DType::kBFloat16, 50);
      arguments = PageArguments(cache, pages, &spread, 50);
      arguments.row_offsets = pages.offsets.data();
      ASSERT_TRUE(ReadCache(arguments, {threads, true}).ok());
      ExpectSequences(cache, pages, pages.offsets, &spread);
    }
  }
}

// Columns before rows: the pages of a sequence lie 4 apart.
TEST(ReadCache, TransposedPageTable) {
  Pages pages;
  std::vector<int32_t> columns(12);
  for (size_t b = 0; b < 4; ++b) {
    for (size_t page = 0; page < 3; ++page) columns[4 * page + b] = pages.table[3 * b + page];
  }
  const CacheSpec spec =
      WithLayout(EveryFormat()[0], PagedNhd(kBlocks, kBlockSize, kHeads, kHeadDim));
  const TestCache cache(spec, kHeads, kHeadDim, 5);
  Output out(DType::kFloat16, 44);
  ReadCacheArguments arguments = PageArguments(cache, pages, &out, 44);
  arguments.slots = columns.data();
  arguments.slot_spec.stride = 4;
  arguments.slot_spec.sequence_stride = 1;
  ASSERT_TRUE(ReadCache(arguments).ok());
  ExpectSequences(cache, pages, {0, 11, 27, 27}, &out);
}

TEST(ReadCache, NothingToRead) {
  const CacheSpec spec =
      WithLayout(EveryFormat()[0], PagedNhd(kBlocks, kBlockSize, kHeads, kHeadDim));
  const TestCache cache(spec, kHeads, kHeadDim, 5);
  ReadCacheArguments arguments;
  arguments.cache = cache.view;
  EXPECT_TRUE(ReadCache(arguments, {3, true}).ok());
  arguments.slot_spec.mode = SlotMode::kPageTable;
  EXPECT_TRUE(ReadCache(arguments, {3, true}).ok());
}

// No byte outside of the cache and the output is touched: the neighbours are protected pages.
TEST(ReadCache, StaysInsideItsTensors) {
  for (const auto side :
       {cases::BufferPlacement::Side::kFront, cases::BufferPlacement::Side::kBack}) {
    for (const CacheLayout& layout : EveryLayout(kBlocks, kBlockSize, kHeads, kHeadDim)) {
      const TestCache cache(WithLayout(EveryFormat()[2], layout), kHeads, kHeadDim, 5);
      const cases::Buffer data(cache.data.size(), {side, 0});
      std::memcpy(data.data(), cache.data.data(), cache.data.size());
      const auto rows = static_cast<int64_t>(kSlots.size());
      const cases::Buffer out(static_cast<size_t>(rows * kHeads * kHeadDim * 4), {side, 0});
      ReadCacheArguments arguments;
      arguments.cache = cache.view;
      arguments.cache.data = data.data();
      arguments.rows = rows;
      arguments.slots = kSlots.data();
      arguments.dtype = DType::kFloat32;
      arguments.out = out.data();
      ASSERT_TRUE(ReadCache(arguments).ok());
    }
  }
}

// More than 2^32 elements; the last rows.
TEST(ReadCache, LargeCache) {
  constexpr int64_t kManyBlocks = 100000, kRows = 128, kWide = 4, kChannels = 128;
  const SparseMemory memory(static_cast<size_t>(kManyBlocks * kRows * kWide * kChannels));
  ASSERT_TRUE(memory.is_mapped());
  const float scale = 0.5f;
  std::vector<float> out(3 * kWide * kChannels);
  for (const CacheLayout& layout : {PagedNhd(kManyBlocks, kRows, kWide, kChannels),
                                    Transposed(kManyBlocks, kRows, kWide, kChannels)}) {
    ReadCacheArguments arguments;
    arguments.cache.spec.layout = layout;
    arguments.cache.spec.granularity = ScaleGranularity::kTensor;
    arguments.cache.heads = kWide;
    arguments.cache.head_dim = kChannels;
    arguments.cache.data = memory.data();
    arguments.cache.scale = &scale;
    const std::vector<int64_t> slots = {layout.slots() - 1, (int64_t{1} << 32) / 512, 8};
    for (size_t i = 0; i < slots.size(); ++i) {
      memory.data()[layout.AddressOf(slots[i], 3, 127)] = static_cast<char>(10 + i);
    }
    arguments.rows = 3;
    arguments.slots = slots.data();
    arguments.dtype = DType::kFloat32;
    arguments.out = out.data();
    ASSERT_TRUE(ReadCache(arguments).ok());
    for (size_t i = 0; i < slots.size(); ++i) {
      EXPECT_EQ(out[(i + 1) * 512 - 1], 0.5f * static_cast<float>(10 + i)) << layout.name;
    }
  }
}

// What the operator wrote: a v that is only copied comes back bit for bit, and its int8 codes as
// the nearest multiples of the scale.
TEST(ReadCache, ReadsWhatAnOperatorWrote) {
  constexpr int64_t kTokens = 5, kDim = 64;
  QkvRmsNormRopeCacheSpec spec;
  spec.heads = {.q = 1, .k = 1, .v = 1};
  spec.head_dim = kDim;
  spec.k_cache.dtype = DType::kInt8;
  spec.k_cache.layout = PaNz(2, 4, 1, kDim, 32);
  spec.v_cache = spec.k_cache;
  std::vector<uint16_t> x(kTokens * 3 * kDim);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(0x3F00 + i * 37 % 255);
  const std::vector<uint16_t> ones(kTokens * kDim, 0x3F80);
  const std::vector<float> scale(kDim, 1.0f / 64);
  const std::vector<int64_t> slots = {6, 1, 3, 7, 0};
  std::vector<uint16_t> q_out(kTokens * kDim);
  std::vector<int8_t> k_cache(8 * kDim), v_cache(8 * kDim);
  Tensors tensors;
  tensors.x = x.data();
  tensors.q_gamma = tensors.k_gamma = tensors.cos = tensors.sin = ones.data();
  tensors.slots = slots.data();
  tensors.k_scale = tensors.v_scale = scale.data();
  tensors.q_out = q_out.data();
  tensors.k_cache = k_cache.data();
  tensors.v_cache = v_cache.data();
  const Result<Plan> plan = MakePlan(spec);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(plan->Run(tensors, kTokens).ok());
  ReadCacheArguments arguments;
  arguments.cache = {spec.v_cache, 1, kDim, v_cache.data(), scale.data()};
  arguments.rows = kTokens;
  arguments.slots = slots.data();
  arguments.dtype = DType::kFloat32;
  std::vector<float> out(kTokens * kDim);
  arguments.out = out.data();
  ASSERT_TRUE(ReadCache(arguments).ok());
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t token = i / kDim;
    const float v = ValueOf(DType::kBFloat16, x[token * 3 * kDim + 2 * kDim + i % kDim]);
    EXPECT_EQ(out[i], std::min(std::nearbyint(v * 64), 127.0f) / 64) << i;
  }
}

}  // namespace
}  // namespace qkvfuse::testing
