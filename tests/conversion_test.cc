// Widening and narrowing as seen through the operators: every 16-bit pattern in, a dense set of
// floats out, int8 codes at ties, saturation, infinities and NaN. Own witnesses, no reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "tests/support/same_bits.h"
#include "tests/support/witness.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kHeadDim = 512;
constexpr int64_t kHeads = 128;
constexpr int64_t kChannels = kHeads * kHeadDim;  // of k and of v: one for each 16-bit pattern

// A DRQ call of one token with as many v channels as there are 16-bit patterns.
class WideCall {
 public:
  WideCall(DType x_dtype, DType dtype) {
    spec_.x_dtype = x_dtype;
    spec_.dtype = dtype;
    spec_.heads = {1, kHeads, kHeads};
    spec_.head_dim = kHeadDim;
    spec_.k_cache.layout = PagedNhd(1, 1, kHeads, kHeadDim);
    spec_.v_cache = spec_.k_cache;
    spec_.v_cache.has_offset = true;
    spec_.slots = {SlotMode::kSlotPerToken, DType::kInt32, 1};
    spec_.kv_output = true;
  }

  // Rows of q (one head), k and v; q is not looked at.
  std::vector<uint16_t> x16 = std::vector<uint16_t>(kHeadDim + 2 * kChannels);
  std::vector<int32_t> x32 = std::vector<int32_t>(kHeadDim + 2 * kChannels, 1);
  std::vector<float> weight_scale = std::vector<float>(kHeadDim + 2 * kChannels, 1.0F);
  std::vector<float> scale = std::vector<float>(kChannels, 1.0F);
  std::vector<float> offset = std::vector<float>(kChannels, 0.0F);
  std::vector<uint16_t> k_out = std::vector<uint16_t>(kChannels);
  std::vector<uint16_t> v_out = std::vector<uint16_t>(kChannels);
  std::vector<int8_t> k_codes = std::vector<int8_t>(kChannels);
  std::vector<int8_t> v_codes = std::vector<int8_t>(kChannels);

  Status Run(const Variant& variant) {
    const uint16_t one = spec_.dtype == DType::kFloat16 ? 0x3C00 : 0x3F80;
    const std::vector<uint16_t> cos(kHeadDim, one);
    const std::vector<uint16_t> sin(kHeadDim, 0);
    std::vector<uint16_t> q_out(kHeadDim);
    const std::vector<float> k_scale(kChannels, 1.0F);
    const int32_t slot = 0;
    Tensors tensors;
    tensors.x = spec_.x_dtype == DType::kInt32 ? static_cast<const void*>(x32.data()) : x16.data();
    tensors.weight_scale = weight_scale.data();
    tensors.cos = cos.data();
    tensors.sin = sin.data();
    tensors.slots = &slot;
    tensors.k_scale = k_scale.data();
    tensors.v_scale = scale.data();
    tensors.v_offset = offset.data();
    tensors.q_out = q_out.data();
    tensors.k_out = k_out.data();
    tensors.v_out = v_out.data();
    tensors.k_cache = k_codes.data();
    tensors.v_cache = v_codes.data();
    const Result<Plan> plan = MakePlan(spec_, {true, variant.path, variant.target});
    if (!plan.ok()) return plan.status();
    return plan->Run(tensors, TokenCount(1));
  }

  static size_t K(size_t channel) { return kHeadDim + channel; }
  static size_t V(size_t channel) { return kHeadDim + kChannels + channel; }

 private:
  DequantRopeQuantKvcacheSpec spec_;
};

class Conversions : public ::testing::TestWithParam<DType> {};

// A scale of value*2^-24 and an offset of 5 - 2^24 give code 5 for exactly this value: its
// neighbours in fp32 give 4, 6 or 7. Values too small for such a scale are probed in units of
// their last place.
struct Probe {
  float scale = 1;
  float offset = 0;
  int code = 0;
};

Probe ProbeFor(double value) {
  if (std::isnan(value)) return {1, 5, 0};
  if (std::isinf(value)) return {1, 5, value > 0 ? 127 : -128};
  if (value == 0) return {1, 5, 5};
  if (std::abs(value) >= 0x1p-100) {
    return {static_cast<float>(value * 0x1p-24), 5 - 0x1p24F, 5};
  }
  // bf16 below 2^-100: eight bits of significand, z = +-(128..255) or less, centred by the offset.
  const int place = std::max(std::ilogb(value), -126) - 7;
  const double steps = std::ldexp(value, -place);
  const double centre = std::abs(steps) < 100 ? 0 : std::copysign(190, value);
  return {static_cast<float>(std::ldexp(1.0, place)), static_cast<float>(-centre),
          static_cast<int>(steps - centre)};
}

TEST_P(Conversions, WidensEveryPattern) {
  const DType dtype = GetParam();
  WideCall call(dtype, dtype);
  std::vector<int> expected;
  for (size_t bits = 0; bits < kChannels; ++bits) {
    call.x16[WideCall::V(bits)] = static_cast<uint16_t>(bits);
    const Probe probe = ProbeFor(Decode16(dtype, static_cast<uint16_t>(bits)));
    call.scale[bits] = probe.scale;
    call.offset[bits] = probe.offset;
    expected.push_back(probe.code);
  }
  for (const Variant& variant : TargetsAndPaths()) {
    ASSERT_TRUE(call.Run(variant).ok());
    for (size_t bits = 0; bits < kChannels; ++bits) {
      ASSERT_EQ(call.v_codes[bits], expected[bits]) << std::hex << bits << " on " << variant.target;
      ASSERT_EQ(call.v_out[bits], bits) << "not copied bit for bit on " << variant.target;
    }
  }
}

// A rotation by nothing, of pairs (pattern, 1), stores what it loads.
TEST_P(Conversions, RotationKeepsEveryPattern) {
  const DType dtype = GetParam();
  const uint16_t one = dtype == DType::kFloat16 ? 0x3C00 : 0x3F80;
  WideCall call(dtype, dtype);
  for (const size_t first_pattern : {0U, 0x8000U}) {
    const auto pattern_at = [&](size_t channel) {
      const bool is_low = channel % kHeadDim < kHeadDim / 2;
      const size_t pattern =
          first_pattern + channel / kHeadDim * (kHeadDim / 2) + channel % (kHeadDim / 2);
      return is_low ? static_cast<uint16_t>(pattern) : one;
    };
    for (size_t i = 0; i < kChannels; ++i) call.x16[WideCall::K(i)] = pattern_at(i);
    for (const Variant& variant : TargetsAndPaths()) {
      ASSERT_TRUE(call.Run(variant).ok());
      for (size_t i = 0; i < kChannels; ++i) {
        if (i % kHeadDim >= kHeadDim / 2) continue;  // 1*1 + x*0
        const uint16_t bits = pattern_at(i);
        if (std::isnan(Decode16(dtype, bits))) {
          ASSERT_TRUE(std::isnan(Decode16(dtype, call.k_out[i])));
        } else {
          ASSERT_EQ(call.k_out[i], bits) << variant.target;
        }
      }
    }
  }
}

// Mantissas around the ties of both 16-bit types, at every exponent.
std::vector<float> DenseFloats() {
  std::vector<uint32_t> mantissas = {0, 1, 2, 0x7FFFFF, 0x7FFFFE, 0x400000};
  for (const uint32_t dropped_bits : {13U, 16U}) {
    const uint32_t tie = 1U << (dropped_bits - 1);
    for (const uint32_t kept : {0U, 1U, 2U, 3U, 0x55U, 0x7FU, 0x3FFU}) {
      const uint32_t base = (kept << dropped_bits) & 0x7FFFFF;
      for (const uint32_t low : {tie - 1, tie, tie + 1, 2 * tie - 1}) {
        mantissas.push_back(base | low);
      }
    }
  }
  std::vector<float> floats;
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const uint32_t mantissa : mantissas) {
      floats.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
    }
  }
  // Ties of subnormal halves and bfloat16s: odd multiples of half their step, and neighbours.
  for (const float step : {0x1p-24F, 0x1p-133F}) {
    for (int i = 0; i < 2048; ++i) {
      const float tie = (static_cast<float>(i) + 0.5F) * step;
      floats.insert(floats.end(), {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 1.0F)});
    }
  }
  std::mt19937 random(7);
  while (floats.size() < size_t{kChannels}) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random()) & 0x7FFFFFFFU));
  }
  return floats;
}

TEST_P(Conversions, NarrowsADenseSetOfFloats) {
  const DType dtype = GetParam();
  const std::vector<float> floats = DenseFloats();
  for (const float sign : {1.0F, -1.0F}) {
    WideCall call(DType::kInt32, dtype);
    for (size_t i = 0; i < kChannels; ++i) {
      call.weight_scale[WideCall::V(i)] = std::copysign(floats[i], sign);
    }
    for (const Variant& variant : TargetsAndPaths()) {
      ASSERT_TRUE(call.Run(variant).ok());
      for (size_t i = 0; i < kChannels; ++i) {
        const float value = std::copysign(floats[i], sign);
        if (std::isnan(value)) {
          ASSERT_TRUE(IsQuietNan16(dtype, call.v_out[i])) << variant.target;
        } else {
          ASSERT_EQ(call.v_out[i], Narrow16(dtype, value))
              << std::hexfloat << value << " on " << variant.target;
        }
      }
    }
  }
}

// The rotation's store rounds as the plain one does.
TEST_P(Conversions, NarrowsRotatedValues) {
  const DType dtype = GetParam();
  const std::vector<float> floats = DenseFloats();
  WideCall call(DType::kInt32, dtype);
  const auto is_low = [](size_t channel) { return channel % kHeadDim < kHeadDim / 2; };
  for (size_t i = 0; i < kChannels; ++i) {
    const bool is_nan_free = std::isfinite(floats[i]);
    call.weight_scale[WideCall::K(i)] = is_low(i) && is_nan_free ? floats[i] : 1.0F;
  }
  for (const Variant& variant : TargetsAndPaths()) {
    ASSERT_TRUE(call.Run(variant).ok());
    for (size_t i = 0; i < kChannels; ++i) {
      const float value = call.weight_scale[WideCall::K(i)];
      if (is_low(i)) {
        ASSERT_EQ(call.k_out[i], Narrow16(dtype, value)) << std::hexfloat << value;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Conversions, ::testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& test) { return std::string(Name(test.param)); });

struct CodeRow {
  float value;
  float scale;
  float offset;
  int code;
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kSubnormal = 0x1p-140F;

constexpr CodeRow kCodeRows[] = {
    // Ties go to even.
    {0.5F, 1, 0, 0},
    {1.5F, 1, 0, 2},
    {2.5F, 1, 0, 2},
    {-0.5F, 1, 0, 0},
    {-1.5F, 1, 0, -2},
    {-2.5F, 1, 0, -2},
    {1, 2, 0, 0},
    {3, 2, 0, 2},
    {1, 1, 0.5F, 2},
    {2, 1, 0.5F, 2},
    {0x1.fffffep-2F, 1, 0, 0},
    {0x1.000002p-1F, 1, 0, 1},
    // Saturation, before the rounding and after it.
    {126.5F, 1, 0, 126},
    {127.4F, 1, 0, 127},
    {127.5F, 1, 0, 127},
    {128, 1, 0, 127},
    {-127.5F, 1, 0, -128},
    {-128.5F, 1, 0, -128},
    {-129, 1, 0, -128},
    {3e38F, 1, 0, 127},
    {-3e38F, 1, 0, -128},
    {2147483648.0F, 1, 0, 127},
    {-4294967296.0F, 1, 0, -128},
    {1e10F, 1, -1e10F, 0},
    // Infinities and NaN.
    {kInfinity, 1, 0, 127},
    {-kInfinity, 1, 0, -128},
    {kNan, 1, 7, 0},
    {5, kNan, 7, 0},
    {5, 1, kNan, 0},
    {kInfinity, kInfinity, 7, 0},
    {kInfinity, 1, -kInfinity, 0},
    {5, kInfinity, 7, 7},
    {5, 1, kInfinity, 127},
    {5, 1, -kInfinity, -128},
    // Negative and subnormal scales.
    {5, -1, 0, -5},
    {3 * kSubnormal, kSubnormal, 0, 3},
    {1, kSubnormal, 0, 127},
    {-1, kSubnormal, 0, -128},
    // Division, not a product with the reciprocal: y/scale is a tie and the product is not.
    {37.5F, 15, 0, 2},
    {157.5F, 15, 0, 10},
    {143.5F, 41, 0, 4},
    // The quotient is rounded before the offset is added: the rounded sum is a tie and the exact
    // one is not.
    {8586942, 574384, -0x1.6b994p+5F, -30},
    {13806703, 212506, -0x1.3de23p+6F, -14},
    {4181363, 638379, -0x1.c066560p+5F, -50},
};

TEST(Codes, FollowTheTable) {
  WideCall call(DType::kInt32, DType::kBFloat16);
  // Every row at many channels, so that each lane of each vector meets it.
  const auto row_at = [](size_t channel) { return kCodeRows[channel % std::size(kCodeRows)]; };
  for (size_t i = 0; i < kChannels; ++i) {
    call.weight_scale[WideCall::V(i)] = row_at(i).value;
    call.scale[i] = row_at(i).scale;
    call.offset[i] = row_at(i).offset;
  }
  for (const Variant& variant : TargetsAndPaths()) {
    const Status status = call.Run(variant);
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < kChannels; ++i) {
      const CodeRow row = row_at(i);
      ASSERT_EQ(call.v_codes[i], row.code)
          << row.value << " / " << row.scale << " + " << row.offset << " on " << variant.target;
    }
  }
}

// 2.5 + 2^-12 is above a tie; its rounding to bfloat16 would lie on it.
TEST(Codes, ComeFromTheUnroundedValue) {
  WideCall call(DType::kInt32, DType::kBFloat16);
  for (size_t i = 0; i < kChannels; ++i) {
    call.weight_scale[WideCall::V(i)] = 2.5F + 0x1p-12F;
    call.weight_scale[WideCall::K(i)] = 2.5F + 0x1p-12F;
  }
  for (const Variant& variant : TargetsAndPaths()) {
    ASSERT_TRUE(call.Run(variant).ok());
    for (size_t i = 0; i < kChannels; ++i) {
      ASSERT_EQ(call.v_codes[i], 3) << variant.target;
      ASSERT_EQ(call.k_codes[i], 3) << variant.target;
      ASSERT_EQ(call.v_out[i], 0x4020) << variant.target;  // 2.5
    }
  }
}

TEST(Witness, AgreesWithTheProcessor) {
  if (!HasHalfInstructions()) GTEST_SKIP() << "no F16C";
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double own = Decode16(DType::kFloat16, half);
    const double processor = WidenByInstruction(half);
    ASSERT_TRUE(std::isnan(own) ? std::isnan(processor) : own == processor) << std::hex << bits;
  }
  for (const float value : DenseFloats()) {
    if (std::isnan(value)) continue;
    ASSERT_EQ(Narrow16(DType::kFloat16, value), NarrowByInstruction(value))
        << std::hexfloat << value;
  }
}

}  // namespace
}  // namespace qkvfuse::testing
