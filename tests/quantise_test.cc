// int8 codes where a kernel without divisions could get them wrong: values within a few units in
// the last place of a tie, for scales and offsets of every size. The witness divides.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kHeads = 16;
constexpr int64_t kChannels = kHeads * 128;

int8_t CodeOf(float y, float scale, float offset) {
  volatile float quotient = y / scale;
  volatile float z = quotient + offset;
  if (std::isnan(z)) return 0;
  const float clamped = std::fmin(std::fmax(z, -128.0F), 127.0F);
  return static_cast<int8_t>(std::nearbyint(clamped));
}

/// A scale of any exponent, mostly a usual one; now and then a subnormal, 0, infinite or NaN one.
float RandomScale(std::mt19937& rng) {
  const auto bits = static_cast<uint32_t>(rng());
  switch (rng() % 16) {
    case 0:
      return std::bit_cast<float>(bits);
    case 1:
      return std::bit_cast<float>(bits & 0x807FFFFFU);  // subnormal
    case 2:
      return std::bit_cast<float>((bits & 0x807FFFFFU) | 0x7E000000U);  // about 2^125
    case 3:
      return 0.0F;
    default:
      return std::bit_cast<float>((bits & 0x83FFFFFFU) | 0x3C000000U);  // 2^-7 to 2^1
  }
}

float RandomOffset(std::mt19937& rng) {
  std::uniform_real_distribution<float> usual(-128, 128);
  std::uniform_real_distribution<float> large(-5000, 5000);
  switch (rng() % 32) {
    case 0:
      return std::numeric_limits<float>::infinity();
    case 1:
      return std::numeric_limits<float>::quiet_NaN();
    case 2:
    case 3:
      return large(rng);
    default:
      return rng() % 2 == 0 ? usual(rng) : std::nearbyint(usual(rng));
  }
}

/// A value whose quotient lies on a tie of codes, or a few units in the last place beside it.
float NearTie(std::mt19937& rng, float scale, float offset) {
  const int code = static_cast<int>(rng() % 264) - 132;
  const float at = (static_cast<float>(code) + 0.5F - offset) * scale;
  const auto units = static_cast<uint32_t>(rng() % 9) - 4;  // modulo 2^32, as the sum
  const float value = std::bit_cast<float>(std::bit_cast<uint32_t>(at) + units);
  // Infinite values would become NaN in the rotation.
  return std::isfinite(value) ? value : static_cast<float>(code);
}

/// One DRQ call of int32 ones: the weight scales are the values, and neither the rotation by 0 of k
/// nor the plain v changes them.
struct Call {
  std::vector<float> values = std::vector<float>(128 + 2 * kChannels, 1.0F);
  std::vector<float> scale = std::vector<float>(kChannels);
  std::vector<float> offset = std::vector<float>(kChannels);
  std::vector<int8_t> k = std::vector<int8_t>(kChannels);
  std::vector<int8_t> v = std::vector<int8_t>(kChannels);

  Call(std::mt19937& rng, bool has_offset) {
    for (size_t i = 0; i < scale.size(); ++i) {
      // A head with an unusual scale is divided as a whole: most heads have none.
      const bool is_usual = i / 128 % 4 != 0;
      do scale[i] = RandomScale(rng);
      while (is_usual && !(std::abs(scale[i]) > 0x1p-8F && std::abs(scale[i]) < 4.0F));
      if (has_offset) {
        do offset[i] = RandomOffset(rng);
        while (is_usual && !(std::abs(offset[i]) <= 128));
      }
      for (const size_t at : {128 + i, 128 + scale.size() + i}) {
        values[at] = NearTie(rng, scale[i], offset[i]);
      }
    }
  }

  Status Run(bool has_offset, const Variant& variant) {
    DequantRopeQuantKvcacheSpec spec;
    spec.x_dtype = DType::kInt32;
    spec.dtype = DType::kFloat16;
    spec.heads = {1, kHeads, kHeads};
    spec.head_dim = 128;
    spec.k_cache.layout = PagedNhd(1, 1, kHeads, 128);
    spec.k_cache.has_offset = has_offset;
    spec.v_cache = spec.k_cache;
    spec.slots = {SlotMode::kSlotPerToken, DType::kInt32, 1};
    const std::vector<int32_t> ones(values.size(), 1);
    const std::vector<uint16_t> cos(128, 0x3C00);
    const std::vector<uint16_t> sin(128, 0);
    std::vector<uint16_t> q_out(128);
    const int32_t slot = 0;
    Tensors tensors;
    tensors.x = ones.data();
    tensors.weight_scale = values.data();
    tensors.cos = cos.data();
    tensors.sin = sin.data();
    tensors.slots = &slot;
    tensors.k_scale = tensors.v_scale = scale.data();
    if (has_offset) tensors.k_offset = tensors.v_offset = offset.data();
    tensors.q_out = q_out.data();
    tensors.k_cache = k.data();
    tensors.v_cache = v.data();
    const Result<Plan> plan = MakePlan(spec, {false, variant.path, variant.target});
    if (!plan.ok()) return plan.status();
    return plan->Run(tensors, TokenCount(1));
  }
};

void ExpectDivisions(Call& call, bool has_offset, uint32_t seed) {
  for (const Variant& variant : TargetsAndPaths()) {
    const Status status = call.Run(has_offset, variant);
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < call.scale.size(); ++i) {
      const auto expect = [&](const char* name, int8_t found, float value) {
        ASSERT_EQ(found, CodeOf(value, call.scale[i], call.offset[i]))
            << name << " channel " << i << " of seed " << seed << " on " << variant.target
            << ": value " << std::hexfloat << value << ", scale " << call.scale[i] << ", offset "
            << call.offset[i];
      };
      ASSERT_NO_FATAL_FAILURE(expect("k", call.k[i], call.values[128 + i]));
      ASSERT_NO_FATAL_FAILURE(expect("v", call.v[i], call.values[128 + call.scale.size() + i]));
    }
  }
}

class NearTies : public ::testing::TestWithParam<bool> {};

TEST_P(NearTies, HaveTheCodesOfTheDivision) {
  constexpr uint32_t kRounds = 400;
  for (uint32_t seed = 1; seed <= kRounds; ++seed) {
    std::mt19937 rng(seed);
    Call call(rng, GetParam());
    ASSERT_NO_FATAL_FAILURE(ExpectDivisions(call, GetParam(), seed));
  }
}

// Their reciprocals are subnormal, or flushed to 0, and nothing else in the head is unusual.
TEST_P(NearTies, OfHugeScales) {
  constexpr uint32_t kRounds = 20;
  for (uint32_t seed = 1; seed <= kRounds; ++seed) {
    std::mt19937 rng(seed);
    Call call(rng, GetParam());
    for (size_t i = 0; i < call.scale.size(); ++i) {
      const auto bits = static_cast<uint32_t>(rng());
      call.scale[i] = std::bit_cast<float>((bits & 0x81FFFFFFU) | 0x7C000000U);  // 2^121 to 2^125
      if (rng() % 2 == 0) call.scale[i] = std::bit_cast<float>((bits & 0x80FFFFFFU) | 0x7E800000U);
      if (GetParam()) call.offset[i] = static_cast<float>(i % 100);
      for (const size_t at : {128 + i, 128 + call.scale.size() + i}) {
        call.values[at] = NearTie(rng, call.scale[i], call.offset[i]);
      }
    }
    ASSERT_NO_FATAL_FAILURE(ExpectDivisions(call, GetParam(), seed));
  }
}

// A quotient of -infinity and an offset of infinity are NaN, whose code is 0; a kernel that adds
// the offset to the exact product sees a finite one, and infinity.
TEST(Quantise, QuotientsThatOverflow) {
  std::mt19937 rng(1);
  Call call(rng, true);
  std::fill(call.scale.begin(), call.scale.end(), 0.25F);
  std::fill(call.offset.begin(), call.offset.end(), std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < call.values.size(); ++i) {
    call.values[i] = i % 3 == 0 ? 1.0F : -std::numeric_limits<float>::max();
  }
  ExpectDivisions(call, true, 1);
}

INSTANTIATE_TEST_SUITE_P(Offset, NearTies, ::testing::Bool());

}  // namespace
}  // namespace qkvfuse::testing
