// Faults in the last step: rounding to 16 bits and to int8, ties, saturation, NaN.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/faults/fault.h"
#include "tests/support/witness.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Heads of +2 and -2, so y is +1 and -1 before the rotation by cos 1 and the given sines.
Fault Halves(const std::string& dtype, int64_t head_dim) {
  const std::string line =
      "op=qnr tokens=1 heads=2/1 epsilon=0 k_cache=16bit v_cache=16bit "
      "layout=paged block_size=4 blocks=1 dtype=";
  Fault fault(line + dtype + " head_dim=" + std::to_string(head_dim));
  for (const TensorId id : {TensorId::kQGamma, TensorId::kKGamma, TensorId::kCos}) {
    fault.Fill(id, Constant(1));
  }
  fault
      .Fill(TensorId::kX,
            [=](int64_t i) {
              if (i >= 3 * head_dim) return 0.0;
              return i % head_dim < head_dim / 2 ? 2.0 : -2.0;
            })
      .Slots({0});
  return fault;
}

// 1 + sin in the first half, sin - 1 in the second: exact, then one rounding to the type.
void ExpectHalves(Fault& fault, double low, double high) {
  const int64_t half = fault.description().head_dim / 2;
  fault.ExpectRight();
  for (int64_t d = 0; d < 2 * half; ++d) {
    const double expected = d < half ? low : high;
    for (const int64_t head : {0, 1}) {
      ASSERT_EQ(fault.Value(TensorId::kQOut, {0, head, d}), expected) << d;
    }
    ASSERT_EQ(fault.Written(TensorId::kKCache)[static_cast<size_t>(d)], expected) << d;
  }
}

// D = 40 puts ties in the body and in the tail of every vector; the others are the kind.
TEST(Faults, C40) {
  for (const int64_t head_dim : {40, 2, 6, 16, 22, 46, 64, 80, 128}) {
    const int64_t half = head_dim / 2;
    Fault a = Halves("bf16", head_dim);
    a.Fill(TensorId::kSin, Runs(half, {0x1p-8, 3 * 0x1p-8}));
    ExpectHalves(a, 1.0, -0.98828125);
    Fault a2 = Halves("bf16", head_dim);
    a2.Fill(TensorId::kSin, Constant(3 * 0x1p-8));
    ExpectHalves(a2, 1.015625, -0.98828125);
    EXPECT_NE(a2.Value(TensorId::kQOut, {0, 0, 0}), 1.0078125) << "truncated";
    Fault b = Halves("fp16", head_dim);
    b.Fill(TensorId::kSin, Runs(half, {0x1p-11, 3 * 0x1p-11}));
    ExpectHalves(b, 1.0, 3 * 0x1p-11 - 1);
    Fault b2 = Halves("fp16", head_dim);
    b2.Fill(TensorId::kSin, Constant(3 * 0x1p-11));
    ExpectHalves(b2, 1.001953125, 3 * 0x1p-11 - 1);
    EXPECT_NE(b2.Value(TensorId::kQOut, {0, 0, 0}), 1.0009765625) << "truncated";
    Fault c = Halves("fp16", head_dim);
    c.Fill(TensorId::kSin, Constant(0)).Fill(TensorId::kCos, Constant(65504));
    for (const TensorId id : {TensorId::kQGamma, TensorId::kKGamma}) c.Fill(id, Constant(2));
    ExpectHalves(c, kInfinity, -kInfinity);
  }
}

// A NaN whose payload lies in the low half of the fp32 number stays a NaN.
TEST(Faults, C40Nan) {
  for (const auto& [dtype, bits] :
       {std::pair<const char*, uint16_t>{"bf16", 0x7F81}, {"bf16", 0xFF81}, {"fp16", 0x7C01}}) {
    Fault fault = Halves(dtype, 40);
    fault.Fill(TensorId::kSin, Constant(0)).SetBits(TensorId::kX, 7, bits);
    fault.ExpectRight();
    for (int64_t d = 0; d < 40; ++d) {
      EXPECT_TRUE(std::isnan(fault.Value(TensorId::kQOut, {0, 0, d}))) << d;
      EXPECT_EQ(std::abs(fault.Value(TensorId::kQOut, {0, 1, d})), 1) << d;
    }
  }
}

// The v heads take the list, over and over; codes come from them directly.
struct VLine {
  const char* line;
  double step;  // of x: what the values are multiplied by
};

constexpr VLine kVLines[] = {
    {"op=qnr dtype=fp16 k_cache=int8 v_cache=int8 layout=paged", 1},
    {"op=drq dtype=fp16 x=16bit layout=paged", 1},
    {"op=drq dtype=bf16 x=int32 layout=paged bias=fp32", 0},
};

// With an int32 x the list comes in by the bias.
Fault WithV(const VLine& line, int64_t head_dim, const Generator& v, double scale) {
  Fault fault(std::string(line.line) + " heads=1/1 tokens=1 block_size=4 blocks=1 strict=0 " +
              "head_dim=" + std::to_string(head_dim));
  const auto row = [=](int64_t i) { return i < 2 * head_dim ? 1 : v(i - 2 * head_dim); };
  fault.Fill(TensorId::kX, [=](int64_t i) { return line.step * row(i); });
  if (line.step == 0) {
    fault.Fill(TensorId::kWeightScale, Constant(1)).Fill(TensorId::kBias, row);
  }
  fault.Fill(TensorId::kVScale, Constant(scale)).Slots({0});
  return fault;
}

std::vector<double> Numbers(const Fault& fault) { return fault.Written(TensorId::kVCache); }

std::vector<double> Expected(const std::vector<double>& values, int64_t count) {
  std::vector<double> all;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) all.push_back(values[i % values.size()]);
  return all;
}

const std::vector<double> kTies = {
    0.5,    1.5,    2.5,         3.5,   -0.5,  -1.5, -2.5, -3.5,  126.5, 127.5,
    -127.5, -128.5, 0.499755859, 0,     125.5, 127,  127,  125.5, 0,     0.499755859,
    -128.5, -127.5, 127.5,       126.5, -3.5,  -2.5, -1.5, -0.5,  3.5,   2.5,
    1.5,    0.5,    0.5,         1.5,   2.5,   3.5,  -0.5, -1.5,  -2.5,  -3.5};
const std::vector<double> kTieCodes = {
    0,    2,    2,   4,   0,  -2, -2, -4, 126, 127, -128, -128, 0, 0, 126, 127, 127, 126, 0,  0,
    -128, -128, 127, 126, -4, -2, -2, 0,  4,   2,   2,    0,    0, 2, 2,   4,   0,   -2,  -2, -4};

TEST(Faults, C41) {
  using Rounding = double (*)(double);
  const std::pair<const char*, Rounding> wrong[] = {
      {"half away from zero", [](double z) { return std::round(z); }},
      {"floor(z + 0.5)", [](double z) { return std::floor(z + 0.5); }},
      {"half down", [](double z) { return std::ceil(z - 0.5); }},
      {"truncated", [](double z) { return std::trunc(z); }}};
  for (const VLine& line : kVLines) {
    // Widths that put each tie at each place of a vector, in its body and its tail.
    for (const int64_t head_dim : {40, 16, 22, 46, 64, 80, 128}) {
      Fault fault = WithV(line, head_dim, List(kTies), 1);
      fault.ExpectRight();
      EXPECT_EQ(Numbers(fault), Expected(kTieCodes, head_dim)) << line.line;
      for (const auto& [what, rounding] : wrong) {
        std::vector<double> codes;
        for (const double z : Expected(kTies, head_dim)) {
          codes.push_back(std::clamp(rounding(z), -128.0, 127.0));
        }
        EXPECT_NE(Numbers(fault), codes) << what;
      }
    }
  }
}

TEST(Faults, C42) {
  const std::vector<double> values = {200,        -200,  65504,  -65504, kInfinity,
                                      -kInfinity, 127.6, -128.6, 128,    -129};
  const std::vector<double> codes = {127, -128, 127, -128, 127, -128, 127, -128, 127, -128};
  for (const VLine& line : kVLines) {
    for (const int64_t head_dim : {40, 16, 46, 64, 128}) {
      for (const double scale : {1.0, 9.5367431640625e-07, 0x1p-100, 0x1p-149}) {
        Fault fault = WithV(line, head_dim, List(values), scale);
        fault.ExpectRight();
        EXPECT_EQ(Numbers(fault), Expected(codes, head_dim)) << line.line << " " << scale;
        // A conversion before the clamp gives -128 for all that is too large; one that wraps
        // gives -56 for 200.
        EXPECT_NE(Numbers(fault)[4], -128);
        EXPECT_NE(Numbers(fault)[0], -56);
        EXPECT_NE(Numbers(fault)[8], -128);
      }
    }
  }
}

TEST(Faults, C43) {
  const int64_t places[] = {0, 7, 8, 31, 32, 39};
  for (const VLine& line : kVLines) {
    for (const int64_t head_dim : {40, 46, 64, 80, 128}) {
      Fault fault = WithV(line, head_dim, Constant(1), 1);
      const TensorId id = line.step == 0 ? TensorId::kBias : TensorId::kX;
      std::vector<double> codes(static_cast<size_t>(head_dim), 1);
      for (const int64_t place : places) {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        fault.Set(id, {2 * head_dim + place}, place % 2 == 0 ? nan : -nan);
        codes[static_cast<size_t>(place)] = 0;
        if (line.step == 0) continue;
        fault.SetBits(id, 2 * head_dim + place, place % 2 == 0 ? 0x7E00 : 0xFE00);
      }
      fault.ExpectRight();
      EXPECT_EQ(Numbers(fault), codes) << line.line;
      // min and max in one order or another give -128 or 127.
      EXPECT_NE(Numbers(fault)[0], -128);
      EXPECT_NE(Numbers(fault)[0], 127);
    }
  }
}

// NaN by every road to the quantiser: value, scale, offset, 0/0, inf/inf, inf-inf; K and V alike.
TEST(Faults, C43Kind) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  struct Road {
    double v, scale, offset;
  };
  const Road roads[] = {{nan, 1, 0},
                        {1, nan, 0},
                        {1, 1, nan},
                        {0, 0, 0},
                        {0, -0.0, 0},
                        {kInfinity, kInfinity, 0},
                        {kInfinity, 1, -kInfinity},
                        {-kInfinity, 1, kInfinity}};
  for (const Road& road : roads) {
    for (const int64_t head_dim : {46, 64}) {
      Fault fault(
          "op=drq dtype=fp16 x=16bit layout=paged heads=1/1 tokens=1 strict=0 "
          "k_cache=int8+offset v_cache=int8+offset head_dim=" +
          std::to_string(head_dim));
      fault.Fill(TensorId::kX, Constant(road.v)).Fill(TensorId::kSin, Constant(0));
      fault.Fill(TensorId::kCos, Constant(1)).Slots({0});
      for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) {
        fault.Fill(id, Constant(road.scale));
      }
      for (const TensorId id : {TensorId::kKOffset, TensorId::kVOffset}) {
        fault.Fill(id, Constant(road.offset));
      }
      fault.ExpectRight();
      for (const TensorId id : {TensorId::kKCache, TensorId::kVCache}) {
        EXPECT_EQ(fault.Written(id), std::vector<double>(static_cast<size_t>(head_dim), 0));
      }
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
