// Faults in the normalisation: its axis, range, accumulator, epsilon, divisor, and NaN.
#include <bit>
#include <cmath>
#include <limits>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Gammas and cos are 1, sin is 0: the output is the normalised input.
Fault NormOnly(const std::string& line) {
  Fault fault(line);
  for (const TensorId id : {TensorId::kQGamma, TensorId::kKGamma, TensorId::kCos}) {
    fault.Fill(id, Constant(1));
  }
  fault.Fill(TensorId::kSin, Constant(0)).Slots({0});
  return fault;
}

double RootOfMeanSquare(const std::vector<double>& heads) {
  double sum = 0;
  for (const double x : heads) sum += x * x;
  return std::sqrt(sum / static_cast<double>(heads.size()));
}

TEST(Faults, C24) {
  Fault fault = NormOnly(
      "op=qnr dtype=fp16 heads=2/1 head_dim=32 tokens=1 epsilon=0 k_cache=16bit v_cache=16bit "
      "layout=pa_nz block_size=16 blocks=1");
  fault.Fill(TensorId::kX, Runs(32, {1, 100, 0.5, 7}));
  fault.ExpectRight();
  for (const int64_t head : {0, 1}) fault.ExpectHead(TensorId::kQOut, 0, head, Constant(1));
  EXPECT_EQ(fault.Written(TensorId::kKCache), std::vector<double>(32, 1));
  EXPECT_EQ(fault.Written(TensorId::kVCache), std::vector<double>(32, 7));
  const double of_token = RootOfMeanSquare({1, 100});
  EXPECT_FALSE(IsNear(DType::kFloat16, fault.Value(TensorId::kQOut, {0, 0, 0}), 1 / of_token));
  EXPECT_FALSE(IsNear(DType::kFloat16, fault.Value(TensorId::kQOut, {0, 1, 0}), 100 / of_token));
}

// Constant heads of very different size, in every place: each gives +-1.
TEST(Faults, C24Kind) {
  for (const int q_heads : {1, 2, 3, 5, 8, 16, 17}) {
    for (const int k_heads : {1, 2, 5}) {
      for (const int head_dim : {16, 46, 64, 128}) {
        Fault fault = NormOnly("op=qnr dtype=bf16 tokens=1 epsilon=0 layout=paged k_cache=16bit " +
                               ("v_cache=16bit heads=" + std::to_string(q_heads)) + "/" +
                               std::to_string(k_heads) + " head_dim=" + std::to_string(head_dim));
        fault.Fill(TensorId::kX, [=](int64_t i) {
          const int64_t head = i / head_dim;
          return std::ldexp(head % 2 == 0 ? 1 : -1, static_cast<int>(head * 7 % 31) - 15);
        });
        fault.ExpectRight();
        for (int64_t head = 0; head < q_heads; ++head) {
          fault.ExpectHead(TensorId::kQOut, 0, head, Constant(head % 2 == 0 ? 1 : -1));
        }
        const std::vector<double> k = fault.Written(TensorId::kKCache);
        for (const double value : k) EXPECT_EQ(std::abs(value), 1);
      }
    }
  }
}

TEST(Faults, C25) {
  for (const char* epsilon : {"1e-06", "1e-12"}) {
    Fault fault = NormOnly(std::string("op=qnr dtype=fp16 heads=3/1 head_dim=128 tokens=1 "
                                       "k_cache=16bit v_cache=16bit layout=pa_nz block_size=16 "
                                       "blocks=1 epsilon=") +
                           epsilon);
    fault.Fill(TensorId::kX, Runs(128, {300, 65504, 0x1p-14, -60000, 65504}));
    fault.ExpectRight();
    const bool is_small = std::string(epsilon) == "1e-12";
    fault.ExpectHead(TensorId::kQOut, 0, 0, Constant(1));
    fault.ExpectHead(TensorId::kQOut, 0, 1, Constant(1));
    fault.ExpectHead(TensorId::kQOut, 0, 2, Constant(is_small ? 0.999865809 : 0.0609217861));
    EXPECT_EQ(fault.Written(TensorId::kKCache), std::vector<double>(128, -1));
    EXPECT_EQ(fault.Written(TensorId::kVCache), std::vector<double>(128, 65504));
    // The square in fp16 is infinite, or 0.
    EXPECT_NE(fault.Value(TensorId::kQOut, {0, 0, 0}), 0);
    const double of_zero_mean = 0x1p-14 / std::sqrt(is_small ? 1e-12 : 1e-6);
    if (is_small) {
      EXPECT_LT(fault.Value(TensorId::kQOut, {0, 2, 0}), of_zero_mean / 2);
    }
  }
}

// Every power of two of both types whose square is no fp16 number.
TEST(Faults, C25Kind) {
  for (const std::string dtype : {"fp16", "bf16"}) {
    for (int exponent = dtype == "fp16" ? -24 : -49; exponent <= (dtype == "fp16" ? 15 : 59);
         ++exponent) {
      for (const char* head_dim : {"46", "128"}) {
        Fault fault = NormOnly("op=qnr heads=1/1 tokens=1 epsilon=0 layout=paged k_cache=16bit " +
                               ("v_cache=16bit dtype=" + dtype) + " head_dim=" + head_dim);
        fault.Fill(TensorId::kX, Constant(std::ldexp(1, exponent)));
        fault.ExpectRight();
        fault.ExpectHead(TensorId::kQOut, 0, 0, Constant(1));
      }
    }
  }
}

TEST(Faults, C26) {
  Fault fault = NormOnly(
      "op=qnr dtype=bf16 heads=1/1 head_dim=128 tokens=1 k_cache=int8 v_cache=int8 layout=pa_nz "
      "block_size=32 blocks=1");
  fault.Fill(TensorId::kX, [](int64_t i) { return i >= 256       ? 0
                                                  : i % 128 == 0 ? 16
                                                                 : 1; })
      .Fill(TensorId::kKScale, Constant(0.01))
      .Fill(TensorId::kVScale, Constant(1));
  fault.ExpectRight();
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 9.24965444}, {{0, 0, 1}, 0.578103402}});
  std::vector<int> codes(128, 58);
  codes[0] = 127;
  fault.ExpectCodes(TensorId::kKCache, codes);
  const double stagnant = 1 / std::sqrt(256.0 / 128);  // 256 + 1 is 256 in bf16
  EXPECT_FALSE(IsNear(DType::kBFloat16, fault.Value(TensorId::kQOut, {0, 0, 1}), stagnant));
  EXPECT_NE(fault.Written(TensorId::kKCache)[1], 71);
}

// One large element anywhere among small ones: their sum counts.
TEST(Faults, C26Kind) {
  for (const int64_t head_dim : {46, 64, 80, 128, 256}) {
    for (int64_t place = 0; place < head_dim; place += 5) {
      Fault fault = NormOnly("op=qnr dtype=bf16 heads=1/1 tokens=1 epsilon=0 layout=paged " +
                             ("k_cache=16bit v_cache=16bit head_dim=" + std::to_string(head_dim)));
      fault.Fill(TensorId::kX, [=](int64_t i) { return i % head_dim == place ? 64 : 1; });
      fault.ExpectRight();
      const auto n = static_cast<double>(head_dim);
      const double right = 1 / std::sqrt((4096 + n - 1) / n);
      fault.ExpectSpots(TensorId::kQOut, {{{0, 0, (place + 1) % head_dim}, right}});
    }
  }
}

TEST(Faults, C28) {
  Fault fault = NormOnly(
      "op=qnr dtype=bf16 heads=2/1 head_dim=64 tokens=1 k_cache=int8 v_cache=int8 layout=pa_nz "
      "block_size=32 blocks=1");
  fault.Fill(TensorId::kX, Runs(64, {0x1p-10, 0, 0x1p-10, 0}))
      .Fill(TensorId::kKScale, Constant(0.01))
      .Fill(TensorId::kVScale, Constant(1));
  fault.ExpectRight();
  fault.ExpectHead(TensorId::kQOut, 0, 0, Constant(0.698672999));
  fault.ExpectHead(TensorId::kQOut, 0, 1, Constant(0));
  fault.ExpectCodes(TensorId::kKCache, std::vector<int>(64, 70));
  const double found = fault.Value(TensorId::kQOut, {0, 0, 0});
  EXPECT_FALSE(IsNear(DType::kBFloat16, found, 0x1p-10 / (0x1p-10 + 1e-6)));  // after the root
  EXPECT_FALSE(IsNear(DType::kBFloat16, found, 1));                           // dropped
  fault.ExpectToldApart("epsilon dropped", [](reference::Problem p) {
    p.epsilon = 0;
    reference::RunExact(p);
  });
}

// Epsilon matters on each path, to q and k alike, at every size beside which it is not lost.
TEST(Faults, C28Kind) {
  for (const char* epsilon : {"1e-12", "1e-06", "1e-05", "0.5", "3"}) {
    for (const char* rest : {"dtype=bf16 head_dim=46 layout=paged", "dtype=fp16 head_dim=128"}) {
      Fault fault(std::string("op=qnr heads=3/2 tokens=5 k_cache=16bit v_cache=int8 epsilon=") +
                  epsilon + " " + rest);
      const double size = std::sqrt(std::stod(epsilon));
      fault.Fill(TensorId::kX, [=](int64_t i) { return Pat(37, 11, 251, 125)(i) * size; });
      fault.ExpectRight();
      for (const double factor : {0.0, 0.5, 2.0}) {
        fault.ExpectToldApart("epsilon times " + std::to_string(factor), [=](reference::Problem p) {
          p.epsilon *= factor;
          reference::RunExact(p);
        });
      }
    }
  }
}

TEST(Faults, C31) {
  Fault fault("op=qnr dtype=bf16 heads=1/1 head_dim=128 tokens=1");
  for (const double epsilon :
       {-1.0, -1e-6, kNan, kInfinity, -kInfinity, 1e-60, 1e60, -0x1p-1074, 0x1p-1074}) {
    QkvRmsNormRopeCacheSpec spec = fault.problem().QnrSpec();
    spec.epsilon = epsilon;
    EXPECT_NE(RefusalOf(MakePlan(spec)).find("epsilon"), std::string::npos) << epsilon;
  }
  for (const double epsilon : {0.0, -0.0, 1e-6, 0x1p-149, 1e30}) {
    QkvRmsNormRopeCacheSpec spec = fault.problem().QnrSpec();
    spec.epsilon = epsilon;
    EXPECT_TRUE(MakePlan(spec).ok()) << epsilon;
  }
  // What an accepted one would give: NaN where the mean square is below it, numbers elsewhere.
  fault.ExpectRight();
  fault.ExpectToldApart("epsilon -1", [](reference::Problem p) {
    p.epsilon = -1;
    reference::RunExact(p);
  });
}

// Also the kind: every width.
TEST(Faults, C32) {
  for (const int64_t head_dim : {80, 32, 40, 46, 48, 72, 96, 112, 192, 200, 256, 2, 6, 18, 1022}) {
    Fault fault = NormOnly(
        "op=qnr dtype=fp16 heads=1/1 tokens=1 epsilon=0 layout=paged " +
        ("block_size=16 blocks=1 k_cache=int8 v_cache=int8 head_dim=" + std::to_string(head_dim)));
    fault.Fill(TensorId::kX, [=](int64_t i) { return i < 2 * head_dim ? 2 : 1; })
        .Fill(TensorId::kKScale, Constant(0.01))
        .Fill(TensorId::kVScale, Constant(1));
    fault.ExpectRight();
    for (int64_t d = 0; d < head_dim; ++d) {
      ASSERT_EQ(fault.Value(TensorId::kQOut, {0, 0, d}), 1) << head_dim << " " << d;
    }
    fault.ExpectCodes(TensorId::kKCache, std::vector<int>(static_cast<size_t>(head_dim), 100));
    // The mean over lanes padded to a power of two.
    const auto padded = std::bit_ceil(static_cast<uint64_t>(head_dim));
    const double faulty = std::sqrt(static_cast<double>(padded) / static_cast<double>(head_dim));
    if (faulty > 1.005) {
      EXPECT_FALSE(IsNear(DType::kFloat16, fault.Value(TensorId::kQOut, {0, 0, 0}), faulty));
      EXPECT_NE(fault.Written(TensorId::kKCache)[0], std::nearbyint(100 * faulty));
    }
  }
}

TEST(Faults, C34) {
  Fault fault(
      "op=qnr dtype=fp16 heads=3/1 head_dim=32 tokens=2 epsilon=0 k_cache=int8 "
      "v_cache=int8 layout=pa_nz block_size=32 blocks=1");
  for (const TensorId id : {TensorId::kX, TensorId::kQGamma, TensorId::kKGamma, TensorId::kCos}) {
    fault.Fill(id, Constant(1));
  }
  fault.Fill(TensorId::kSin, Constant(0)).Slots({0, 1});
  for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) fault.Fill(id, Constant(0.5));
  fault.Set(TensorId::kX, {32 + 5}, kInfinity);
  fault.Set(TensorId::kX, {160 + 64}, kNan);
  fault.Set(TensorId::kX, {160 + 128 + 3}, -kInfinity);
  fault.ExpectRight();
  for (const int64_t head : {0, 2}) fault.ExpectHead(TensorId::kQOut, 0, head, Constant(1));
  fault.ExpectHead(TensorId::kQOut, 0, 1, [](int64_t d) { return d == 5 || d == 21 ? kNan : 0; });
  for (const int64_t head : {0, 1}) fault.ExpectHead(TensorId::kQOut, 1, head, Constant(1));
  fault.ExpectHead(TensorId::kQOut, 1, 2, Constant(kNan));
  fault.ExpectCodes(TensorId::kKCache, std::vector<int>(64, 2));
  std::vector<int> v_codes(64, 2);
  v_codes[32 + 3] = -128;
  fault.ExpectCodes(TensorId::kVCache, v_codes);
}

// One NaN or infinity in every head of the row in turn: the other heads keep their bits.
TEST(Faults, C34Kind) {
  for (const char* rest : {"dtype=fp16 head_dim=46 layout=paged", "dtype=bf16 head_dim=80",
                           "dtype=bf16 head_dim=128 layout=paged"}) {
    Fault clean(std::string("op=qnr heads=5/2 tokens=3 k_cache=16bit v_cache=16bit ") + rest);
    clean.ExpectRight();
    const int64_t head_dim = clean.description().head_dim;
    for (const double bad : {kNan, kInfinity, -kInfinity}) {
      for (int64_t head = 0; head < 9; ++head) {
        Fault fault(cases::PrintCase(clean.description()));
        fault.Set(TensorId::kX, {(9 + head) * head_dim + head}, bad);
        fault.ExpectRight();
        for (int64_t other = 0; other < 5; ++other) {
          for (int64_t d = 0; d < head_dim && other != head; ++d) {
            ASSERT_EQ(fault.Value(TensorId::kQOut, {1, other, d}),
                      clean.Value(TensorId::kQOut, {1, other, d}));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
