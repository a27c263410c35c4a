// fp8 outputs of the kernels on every SIMD target: every code, every tie between two codes and the
// floats next to it, saturation, infinities, NaN, zeros of both signs and a dense sweep.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "reference/conversions.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kHeadDim = 64;

/// The number that a code stands for, from the definition of the types.
double ValueOf(DType dtype, int code) {
  const int mantissa_bits = dtype == DType::kFloat8E4M3 ? 3 : 2;
  const int bias = dtype == DType::kFloat8E4M3 ? 7 : 15;
  const int exponent = code >> mantissa_bits;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

constexpr int LargestCodeOf(DType dtype) { return dtype == DType::kFloat8E4M3 ? 0x7E : 0x7B; }

/// A float and the code that it must become.
struct Expected {
  float value;
  uint8_t code;
};

void AddBothSigns(float value, int code, std::vector<Expected>& all) {
  all.push_back({value, static_cast<uint8_t>(code)});
  all.push_back({-value, static_cast<uint8_t>(code | 0x80)});
}

/// Around every code, what the definition of rounding says without any arithmetic of a conversion.
std::vector<Expected> Neighbourhoods(DType dtype) {
  std::vector<Expected> all;
  const float infinity = std::numeric_limits<float>::infinity();
  const int largest = LargestCodeOf(dtype);
  for (int code = 0; code <= largest; ++code) {
    AddBothSigns(static_cast<float>(ValueOf(dtype, code)), code, all);
    if (code == largest) break;
    const auto tie =
        static_cast<float>((ValueOf(dtype, code) + ValueOf(dtype, code + 1)) / 2);  // exact
    AddBothSigns(tie, code % 2 == 0 ? code : code + 1, all);
    AddBothSigns(std::nextafter(tie, 0.0F), code, all);
    AddBothSigns(std::nextafter(tie, infinity), code + 1, all);
  }
  const auto top = static_cast<float>(ValueOf(dtype, largest));
  for (const float beyond : {std::nextafter(top, infinity), top * 1.03125F, top * 1.0625F, top * 2,
                             std::numeric_limits<float>::max(), infinity}) {
    AddBothSigns(beyond, largest, all);
  }
  AddBothSigns(std::numeric_limits<float>::denorm_min(), 0, all);
  AddBothSigns(std::numeric_limits<float>::min(), 0, all);
  for (const float nan :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::signaling_NaN()}) {
    all.push_back({nan, 0x7F});
  }
  return all;
}

/// Every 4099th bit pattern, by the exact reference.
std::vector<Expected> Sweep(DType dtype) {
  std::vector<Expected> all;
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += 4099) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    all.push_back({value, reference::NarrowToFloat8(dtype, value)});
  }
  return all;
}

/// Stores the values as v heads with a scale of 1, on one target.
void ExpectCodes(DType dtype, std::vector<Expected> all, const std::string& target) {
  while (all.size() % kHeadDim != 0) all.push_back({0.0F, 0});
  const auto tokens = static_cast<int64_t>(all.size()) / kHeadDim;
  FusedQkvSpec spec;
  spec.x_dtype = DType::kFloat32;
  spec.is_separate = true;
  spec.heads = {1, 1, 1};
  spec.head_dim = kHeadDim;
  spec.rope.pairing = RopeSpec::Pairing::kNone;
  CacheSpec cache;
  cache.dtype = dtype;
  cache.granularity = ScaleGranularity::kTensor;
  cache.layout = TokenPool(tokens, 1, kHeadDim);
  spec.k_cache = spec.v_cache = cache;
  PlanOptions options;
  options.target = target;
  const Result<Plan> plan = MakePlan(spec, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();

  std::vector<float> x;
  for (const Expected& expected : all) x.push_back(expected.value);
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < tokens; ++t) slots.push_back(t);
  const float scale = 1.0F;
  std::vector<float> q_out(x.size());
  std::vector<uint8_t> k_cache(x.size()), v_cache(x.size());
  Tensors tensors;
  tensors.q = tensors.k = tensors.v = x.data();
  tensors.slots = slots.data();
  tensors.k_scale = tensors.v_scale = &scale;
  tensors.q_out = q_out.data();
  tensors.k_cache = k_cache.data();
  tensors.v_cache = v_cache.data();
  const Status status = plan->Run(tensors, tokens);
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(v_cache[i], all[i].code) << all[i].value << " on " << target;
    ASSERT_EQ(k_cache[i], all[i].code) << all[i].value << " on " << target;
  }
}

class Float8Outputs : public ::testing::TestWithParam<DType> {};

TEST_P(Float8Outputs, EveryCodeTieAndNeighbour) {
  const std::vector<Expected> all = Neighbourhoods(GetParam());
  for (const Expected& expected : all) {
    EXPECT_EQ(reference::NarrowToFloat8(GetParam(), expected.value), expected.code);
  }
  for (const std::string& target : AvailableTargets()) ExpectCodes(GetParam(), all, target);
}

TEST_P(Float8Outputs, DenseSweep) {
  const std::vector<Expected> all = Sweep(GetParam());
  for (const std::string& target : AvailableTargets()) ExpectCodes(GetParam(), all, target);
}

INSTANTIATE_TEST_SUITE_P(Types, Float8Outputs,
                         ::testing::Values(DType::kFloat8E4M3, DType::kFloat8E5M2),
                         [](const auto& type) { return std::string(Name(type.param)); });

}  // namespace
}  // namespace qkvfuse::testing
