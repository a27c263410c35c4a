// Rotary tables: every byte of them in all forms, each value rounded once.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/rope_specs.h"

namespace qkvfuse::testing {
namespace {

using Kind = RopeScaling::Kind;
using Pairing = RopeSpec::Pairing;
using Table = RopeSpec::Table;

/// Correct rounding to 2^p significands with a smallest exponent, by arithmetic alone.
double RoundedTo(DType dtype, double value) {
  if (value == 0) return value;
  const int digits = dtype == DType::kFloat16 ? 11 : dtype == DType::kBFloat16 ? 8 : 24;
  const int smallest = dtype == DType::kFloat16 ? -14 : -126;
  const int exponent = std::max(std::ilogb(value), smallest) - (digits - 1);
  return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

double WidenedHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double ValueAt(const std::vector<char>& memory, DType dtype, int64_t element) {
  const char* const at = memory.data() + element * SizeOf(dtype);
  uint16_t bits = 0;
  float value = 0;
  if (dtype == DType::kFloat32) {
    std::memcpy(&value, at, sizeof(value));
    return static_cast<double>(value);
  }
  std::memcpy(&bits, at, sizeof(bits));
  if (dtype == DType::kFloat16) return WidenedHalf(bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

constexpr int64_t kMargin = 40;  // elements before and behind a table
constexpr char kUntouched = 'P';

/// Where pair j of a row lies, once or twice.
using Entries = std::function<std::vector<int64_t>(int64_t pair)>;

/// A table as it should be: cos or sin of each position and pair at these entries, rounded once,
/// and no other byte changed. Takes the bytes that it has looked at away.
void ExpectTable(const RopeTableSpec& spec, const RopeSpec& layout, const Entries& entries,
                 const TokenStrides& strides, double (*function)(double), std::vector<char>* memory,
                 int64_t origin) {
  const std::vector<double> frequencies = FrequenciesOf(spec);
  const double factor = AttentionFactorOf(spec);
  const auto size = static_cast<size_t>(SizeOf(*layout.dtype));
  for (int64_t position = 0; position < spec.max_positions; ++position) {
    for (int64_t pair = 0; pair < spec.rotary_dim / 2; ++pair) {
      const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(pair)];
      const double expected = RoundedTo(*layout.dtype, factor * function(angle));
      for (const int64_t entry : entries(pair)) {
        const int64_t at = origin + position * strides.token + entry * strides.channel;
        ASSERT_EQ(ValueAt(*memory, *layout.dtype, at), expected) << position << ", " << pair;
        std::memset(memory->data() + static_cast<size_t>(at) * size, kUntouched, size);
      }
    }
  }
}

void ExpectUntouched(const std::vector<char>& memory) {
  for (const char byte : memory) ASSERT_EQ(byte, kUntouched);
}

double Cos(double angle) { return std::cos(angle); }
double Sin(double angle) { return std::sin(angle); }

/// Fills two tables and looks at every byte. `origin` is the element of row 0, entry 0.
void ExpectTwoTables(const RopeTableSpec& spec, const RopeSpec& layout, const Entries& entries,
                     const TokenStrides& strides, int64_t elements, int64_t origin) {
  const int64_t size = SizeOf(*layout.dtype);
  std::vector<char> cos(static_cast<size_t>(elements * size), kUntouched);
  std::vector<char> sin = cos;
  const Status status =
      FillRopeTable(spec, layout, cos.data() + origin * size, sin.data() + origin * size);
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectTable(spec, layout, entries, strides, Cos, &cos, origin);
  ExpectTable(spec, layout, entries, strides, Sin, &sin, origin);
  ExpectUntouched(cos);
  ExpectUntouched(sin);
}

/// A form of two tables: full width or half, for either pairing.
struct FormCase {
  Pairing pairing;
  bool half_width;
  int64_t width;  // of rotary_dim 12
  Entries entries;
};

const FormCase kForms[] = {
    {Pairing::kHalves, false, 12,
     [](int64_t j) {
       return std::vector<int64_t>{j, j + 6};
     }},
    {Pairing::kInterleaved, false, 12,
     [](int64_t j) {
       return std::vector<int64_t>{2 * j, 2 * j + 1};
     }},
    {Pairing::kHalves, true, 6, [](int64_t j) { return std::vector<int64_t>{j}; }},
    {Pairing::kInterleaved, true, 6, [](int64_t j) { return std::vector<int64_t>{j}; }},
};

RopeSpec LayoutOf(const RopeTableSpec& spec, Table table, DType dtype) {
  RopeSpec layout;
  layout.table = table;
  layout.dtype = dtype;
  layout.max_positions = spec.max_positions;
  return layout;
}

TEST(FillRopeTable, TwoTables) {
  RopeTableSpec spec =
      TableOf(12, 10000, {.kind = Kind::kYarn, .factor = 4, .original_max_positions = 2048});
  spec.max_positions = 19;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const FormCase& form : kForms) {
      RopeSpec layout = LayoutOf(spec, Table::kTwoTables, dtype);
      layout.pairing = form.pairing;
      layout.half_width = form.half_width;
      const int64_t packed = 19 * form.width;
      ExpectTwoTables(spec, layout, form.entries, {0, form.width, 0, 1}, packed + 2 * kMargin,
                      kMargin);
      // Gaps; entries that are further apart than rows; the last row and entry first.
      for (const TokenStrides strides :
           {TokenStrides{0, 2 * form.width + 3, 0, 2}, TokenStrides{0, 1, 0, 20},
            TokenStrides{0, -form.width, 0, -1}}) {
        layout.cos_strides = layout.sin_strides = strides;
        ExpectTwoTables(spec, layout, form.entries, strides, 3 * packed + 800, 400);
      }
    }
  }
}

TEST(FillRopeTable, StridesOfEachTable) {
  RopeTableSpec spec = TableOf(4, 100);
  RopeSpec layout = LayoutOf(spec, Table::kTwoTables, DType::kFloat32);
  layout.half_width = true;
  layout.sin_strides = TokenStrides{0, 5, 0, 2};
  std::vector<float> cos(16, 9.0F), sin(40, 9.0F);
  ASSERT_TRUE(FillRopeTable(spec, layout, cos.data(), sin.data()).ok());
  for (size_t position = 0; position < 8; ++position) {
    const double angle = static_cast<double>(position) * FrequenciesOf(spec)[1];
    EXPECT_EQ(cos[position * 2 + 1], static_cast<float>(std::cos(angle)));
    EXPECT_EQ(sin[position * 5 + 2], static_cast<float>(std::sin(angle)));
    EXPECT_EQ(sin[position * 5 + 1], 9.0F);
  }
}

TEST(FillRopeTable, Joined) {
  RopeTableSpec spec = TableOf(96, 10000, LongRope(5000));
  spec.max_positions = 33;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const Pairing pairing : {Pairing::kHalves, Pairing::kInterleaved}) {
      RopeSpec layout = LayoutOf(spec, Table::kJoined, dtype);
      layout.pairing = pairing;
      layout.rotary_dim = 96;
      TokenStrides strides{0, 96, 0, 1};
      for (const bool has_gaps : {false, true}) {
        if (has_gaps) layout.cos_strides = strides = {0, 200, 0, 2};
        std::vector<char> memory(static_cast<size_t>(33 * 200 * SizeOf(dtype)), kUntouched);
        ASSERT_TRUE(FillRopeTable(spec, layout, memory.data(), nullptr).ok());
        const Entries cos_at = [](int64_t j) { return std::vector<int64_t>{j}; };
        const Entries sin_at = [](int64_t j) { return std::vector<int64_t>{48 + j}; };
        ExpectTable(spec, layout, cos_at, strides, Cos, &memory, 0);
        ExpectTable(spec, layout, sin_at, strides, Sin, &memory, 0);
        ExpectUntouched(memory);
      }
    }
  }
}

// Values whose fp32 rounding is a tie of fp16, which rounding twice gets wrong.
TEST(FillRopeTable, RoundsOnce) {
  RopeTableSpec spec = TableOf(64, 10000);
  spec.max_positions = 4096;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const RopeSpec layout = LayoutOf(spec, Table::kJoined, dtype);
    std::vector<uint16_t> table(4096 * 64);
    ASSERT_TRUE(FillRopeTable(spec, layout, table.data(), nullptr).ok());
    std::vector<char> memory(table.size() * 2);
    std::memcpy(memory.data(), table.data(), memory.size());
    const std::vector<double> frequencies = FrequenciesOf(spec);
    int differ = 0;
    for (int64_t position = 0; position < 4096; ++position) {
      for (int64_t pair = 0; pair < 32; ++pair) {
        const double value =
            std::cos(static_cast<double>(position) * frequencies[static_cast<size_t>(pair)]);
        ASSERT_EQ(ValueAt(memory, dtype, position * 64 + pair), RoundedTo(dtype, value));
        const auto once = static_cast<double>(static_cast<float>(value));
        differ += RoundedTo(dtype, value) != RoundedTo(dtype, once) ? 1 : 0;
      }
    }
    EXPECT_TRUE(differ > 0 || dtype == DType::kBFloat16);
  }
}

// docs/rope_tables.md: fp32 is wrong by its own rounding only, at any position.
TEST(FillRopeTable, Fp32IsAccurateAtLargePositions) {
  RopeTableSpec spec = TableOf(128, 500000, Llama31(8));
  spec.max_positions = 131072;
  const RopeSpec layout = LayoutOf(spec, Table::kJoined, DType::kFloat32);
  std::vector<float> table(131072 * 128);
  ASSERT_TRUE(FillRopeTable(spec, layout, table.data(), nullptr).ok());
  double largest = 0;
  for (const int64_t position : {1, 4095, 65537, 131071}) {
    for (int64_t pair = 0; pair < 29; ++pair) {  // those that llama3 leaves alone
      const long double frequency =
          std::exp(-static_cast<long double>(pair) / 64 * std::log(500000.0L));
      const long double exact = std::cos(static_cast<long double>(position) * frequency);
      const auto got = static_cast<long double>(table[static_cast<size_t>(position * 128 + pair)]);
      largest = std::max(largest, static_cast<double>(std::fabs(exact - got)));
    }
  }
  EXPECT_LE(largest, 0x1p-25 * 1.01);
}

TEST(FillRopeTable, IgnoresTheCallersRoundingMode) {
  const RopeTableSpec spec = TableOf(64, 10000);
  const RopeSpec layout = LayoutOf(spec, Table::kJoined, DType::kFloat32);
  std::vector<float> expected(8 * 64), upward(8 * 64);
  ASSERT_TRUE(FillRopeTable(spec, layout, expected.data(), nullptr).ok());
  std::fesetround(FE_UPWARD);
  const bool is_ok = FillRopeTable(spec, layout, upward.data(), nullptr).ok();
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_TRUE(is_ok);
  EXPECT_EQ(upward, expected);
}

/// What FillRopeTable says; on refusal it has written nothing.
std::string FillRefusal(const RopeTableSpec& spec, const RopeSpec& layout) {
  std::vector<float> cos(1024, 5.0F), sin = cos;
  const bool is_joined = layout.table == Table::kJoined;
  const Status status = FillRopeTable(spec, layout, cos.data(), is_joined ? nullptr : sin.data());
  for (const float value : cos) EXPECT_EQ(value, 5.0F);
  for (const float value : sin) EXPECT_EQ(value, 5.0F);
  return status.message();
}

TEST(FillRopeTableRefusals, Layouts) {
  const RopeTableSpec spec = TableOf(64, 1e4);
  const RopeSpec joined = LayoutOf(spec, Table::kJoined, DType::kFloat32);
  const RopeSpec two = LayoutOf(spec, Table::kTwoTables, DType::kFloat32);
  RopeSpec layout = LayoutOf(spec, Table::kRowPerToken, DType::kFloat32);
  EXPECT_EQ(FillRefusal(spec, layout),
            "table: has a row per token, must have a row for every position");
  (layout = two).pairing = Pairing::kNone;
  EXPECT_EQ(FillRefusal(spec, layout),
            "pairing: is none, must be halves or interleaved, where there are tables");
  (layout = two).rotary_dim = 128;
  EXPECT_EQ(FillRefusal(spec, layout),
            "rotary_dim: is 128 in the layout, must be 0 or 64, as the table's");
  (layout = two).max_positions = 9;
  EXPECT_EQ(FillRefusal(spec, layout),
            "max_positions: is 8 and in the layout 9, must be at least 1 and the same");
  (layout = two).dtype = DType::kInt8;
  EXPECT_EQ(FillRefusal(spec, layout), "dtype: is int8, must be fp32, fp16 or bf16");
  (layout = joined).half_width = true;
  EXPECT_EQ(FillRefusal(spec, layout),
            "half_width: is set, must not be, where cos and sin are joined");
  (layout = joined).sin_strides = TokenStrides{0, 64, 0, 1};
  EXPECT_EQ(FillRefusal(spec, layout),
            "sin_strides: are set, must not be, where cos and sin are joined");
  RopeTableSpec loud = TableOf(64, 1e4, GptOss());
  loud.scaling.attention_factor = 1e5;
  EXPECT_EQ(FillRefusal(loud, LayoutOf(loud, Table::kJoined, DType::kFloat16)),
            "scaling.attention_factor: is 100000, must be at most 65504, the largest fp16");
  EXPECT_EQ(FillRefusal(TableOf(63, 1e4), joined),
            "rotary_dim: is 63, must be even and from 2 to 1024");
}

TEST(FillRopeTableRefusals, StridesThatOverlap) {
  const RopeTableSpec spec = TableOf(64, 1e4);
  RopeSpec layout = LayoutOf(spec, Table::kJoined, DType::kFloat32);
  for (const auto& [token, channel] : std::vector<std::pair<int64_t, int64_t>>{
           {63, 1}, {0, 1}, {64, 0}, {1, 7}, {-5, 1}, {126, 2}}) {
    layout.cos_strides = TokenStrides{0, token, 0, channel};
    EXPECT_EQ(FillRefusal(spec, layout),
              "cos: its strides are " + std::to_string(token) + " from row to row and " +
                  std::to_string(channel) +
                  " from entry to entry, must keep 8 rows of 64 entries apart");
  }
  layout.cos_strides = TokenStrides{0, INT64_MAX / 8, 0, 1};
  EXPECT_EQ(FillRefusal(spec, layout),
            "cos: its strides 1152921504606846975 and 1 reach beyond 2^63 bytes");
  layout = LayoutOf(spec, Table::kTwoTables, DType::kFloat32);
  layout.sin_strides = TokenStrides{0, 0, 0, 1};
  EXPECT_EQ(FillRefusal(spec, layout),
            "sin: its strides are 0 from row to row and 1 from entry to entry, must keep 8 rows of "
            "64 entries apart");
}

TEST(FillRopeTableRefusals, Pointers) {
  const RopeTableSpec spec = TableOf(64, 1e4);
  const RopeSpec joined = LayoutOf(spec, Table::kJoined, DType::kFloat32);
  const RopeSpec two = LayoutOf(spec, Table::kTwoTables, DType::kFloat32);
  std::vector<float> table(8 * 64 + 1, 5.0F);
  const Status null = FillRopeTable(spec, joined, nullptr, nullptr);
  EXPECT_EQ(null.code(), StatusCode::kNullArgument);
  EXPECT_EQ(null.message(), "cos: is null, must point to the table");
  EXPECT_EQ(FillRopeTable(spec, two, table.data(), nullptr).message(),
            "sin: is null, must point to the table");
  EXPECT_EQ(FillRopeTable(spec, two, table.data(), table.data()).message(),
            "sin: is at the address of cos, must be another table");
  EXPECT_EQ(FillRopeTable(spec, joined, table.data(), table.data()).message(),
            "sin: is not null, must be null, where cos and sin are joined");
  EXPECT_EQ(
      FillRopeTable(spec, joined, reinterpret_cast<char*>(table.data()) + 1, nullptr).message(),
      "cos: its address must be a multiple of 4, the size of fp32");
  for (const float value : table) EXPECT_EQ(value, 5.0F);
}

}  // namespace
}  // namespace qkvfuse::testing
