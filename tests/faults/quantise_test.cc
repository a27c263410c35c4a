// Faults in the scales of int8 caches: narrowed, zero, taken from another head, inverted.
#include <algorithm>
#include <cmath>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;

constexpr char kOneHead[] =
    "op=qnr dtype=fp16 heads=1/1 head_dim=32 tokens=1 k_cache=int8 v_cache=int8 layout=pa_nz "
    "block_size=32 blocks=1";

TEST(Faults, C46) {
  Fault fault(kOneHead);
  fault.Fill(TensorId::kX, List({0x1p-20, -0x1p-20}))
      .Fill(TensorId::kVScale, Constant(9.99999993922529e-09))
      .Slots({0});
  fault.ExpectRight();
  std::vector<int> codes;
  for (int d = 0; d < 32; ++d) codes.push_back(d % 2 == 0 ? 95 : -95);
  fault.ExpectCodes(TensorId::kVCache, codes);
  EXPECT_NE(fault.Written(TensorId::kVCache)[0], 127) << "the scale in fp16 is 0";
}

// Scales of every size of fp32, subnormals included, in K and V: codes follow the quotient.
TEST(Faults, C46Kind) {
  for (int exponent = -149; exponent <= 100; exponent += 3) {
    for (const char* rest : {"head_dim=46 layout=paged", "head_dim=64"}) {
      Fault fault(std::string("op=drq dtype=bf16 x=16bit heads=1/1 tokens=1 ") + rest);
      const double scale = std::ldexp(1, exponent);
      const double value = std::ldexp(95, std::max(exponent, -133));
      fault.Fill(TensorId::kX, Constant(value))
          .Fill(TensorId::kCos, Constant(1))
          .Fill(TensorId::kSin, Constant(0))
          .Fill(TensorId::kKScale, Constant(scale))
          .Fill(TensorId::kVScale, Constant(-scale))
          .Slots({0});
      fault.ExpectRight();
      const double quotient = value / scale;  // 95, or beyond the codes
      for (const double code : fault.Written(TensorId::kKCache)) {
        ASSERT_EQ(code, std::min(quotient, 127.0)) << exponent;
      }
      for (const double code : fault.Written(TensorId::kVCache)) {
        ASSERT_EQ(code, std::max(-quotient, -128.0)) << exponent;
      }
    }
  }
}

Fault WithZeroScales(bool is_strict) {
  Fault fault(std::string(kOneHead) + (is_strict ? " strict=1" : " strict=0"));
  fault.Fill(TensorId::kX, Constant(1))
      .Set(TensorId::kX, {64}, 5)
      .Set(TensorId::kX, {65}, -5)
      .Set(TensorId::kX, {66}, 0)
      .Fill(TensorId::kVScale, Constant(0.5))
      .Set(TensorId::kVScale, {0, 1, 2}, 0.0)
      .Set(TensorId::kVScale, {3}, -0.0)
      .Slots({0});
  return fault;
}

// Strict mode refuses and writes nothing; lenient mode divides as IEEE says.
TEST(Faults, C47) {
  Fault strict = WithZeroScales(true);
  strict.problem().ResetOutputs();
  const Result<Plan> plan = strict.problem().MakePlan();
  ASSERT_TRUE(plan.ok());
  const Status status = plan->Run(strict.problem().tensors(), strict.problem().tokens());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().rfind("v_scale: element 0 ", 0), 0U) << status.message();
  EXPECT_TRUE(strict.problem().CompareUntouched().ok());

  Fault lenient = WithZeroScales(false);
  lenient.ExpectRight();
  std::vector<int> codes(32, 2);
  codes[0] = 127;
  codes[1] = codes[3] = -128;
  codes[2] = 0;
  lenient.ExpectCodes(TensorId::kVCache, codes);
  for (const float epsilon : {1e-6F, 1e-3F, 0.1F}) {
    lenient.ExpectToldApart("epsilon added to every scale", [=](reference::Problem p) {
      std::vector<float> scale(32, 0.5F + epsilon);
      for (size_t d = 0; d < 4; ++d) scale[d] = epsilon;
      p.v_cache.scale.data = scale.data();
      reference::RunExact(p);
    });
  }
}

// A zero in each place of each scale is found and named; the others keep their codes.
TEST(Faults, C47Kind) {
  for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) {
    for (const char* rest : {"head_dim=46 layout=paged", "head_dim=64"}) {
      for (int64_t place = 0; place < 92; place += 7) {
        const std::string line =
            std::string("op=qnr dtype=bf16 heads=1/2 tokens=2 strict=0 ") + rest;
        Fault fault(line);
        fault.Set(id, {place}, place % 2 == 0 ? 0.0 : -0.0);
        fault.ExpectRight();
        const Result<Plan> strict = fault.problem().MakePlan({true, Path::kAuto, ""});
        ASSERT_TRUE(strict.ok());
        const Status status = strict->Run(fault.problem().tensors(), fault.problem().tokens());
        const std::string head =
            std::string(cases::Name(id)) + ": element " + std::to_string(place) + " ";
        EXPECT_EQ(status.message().rfind(head, 0), 0U) << status.message();
      }
    }
  }
}

using ChangeScale = void (*)(std::vector<float>& scale, int64_t head_dim);

void OneChannelOfAHead(std::vector<float>& scale, int64_t head_dim) {
  const auto width = static_cast<size_t>(head_dim);
  for (size_t i = 0; i < scale.size(); ++i) scale[i] = scale[i / width * width];
}

struct ScaleFault {
  const char* what;
  ChangeScale change;
};

constexpr ScaleFault kScaleFaults[] = {
    {"head 0 for all",
     [](std::vector<float>& s, int64_t d) {
       for (size_t i = 0; i < s.size(); ++i) s[i] = s[i % static_cast<size_t>(d)];
     }},
    {"channel 0 of its head for all", OneChannelOfAHead},
    {"magnitude",
     [](std::vector<float>& s, int64_t) {
       for (float& x : s) x = std::abs(x);
     }},
    {"at least an epsilon",
     [](std::vector<float>& s, int64_t) {
       for (float& x : s) x = std::max(x, 1e-6F);
     }},
    {"multiplied",
     [](std::vector<float>& s, int64_t) {
       for (float& x : s) x = 1 / x;
     }},
    {"heads in reverse", [](std::vector<float>& s, int64_t) { std::reverse(s.begin(), s.end()); }},
};

FaultyRun WithScales(TensorId id, const ScaleFault& fault) {
  return [=](reference::Problem p) {
    TensorView& view = ViewOf(p, id);
    const auto* const from = static_cast<const float*>(view.data);
    std::vector<float> scale(from, from + view.shape.ElementCount());
    fault.change(scale, p.head_dim);
    view.data = scale.data();
    reference::RunExact(p);
  };
}

TEST(Faults, C49) {
  Fault fault(
      "op=qnr dtype=fp16 heads=1/2 head_dim=32 tokens=1 epsilon=0 k_cache=int8 v_cache=int8 "
      "layout=pa_nz block_size=32 blocks=1");
  fault.Fill(TensorId::kX, Runs(32, {1, 5, 5, 10, 3}))
      .Fill(TensorId::kQGamma, Constant(1))
      .Fill(TensorId::kKGamma, Constant(10))
      .Fill(TensorId::kCos, Constant(1))
      .Fill(TensorId::kSin, Constant(0))
      .Fill(TensorId::kKScale, Runs(32, {2, -4}))
      .Fill(TensorId::kVScale, Runs(32, {-0.5, 0.25}))
      .Slots({0});
  fault.ExpectRight();
  const auto two_heads = [](int first, int second) {
    std::vector<int> codes(64, first);
    std::fill(codes.begin() + 32, codes.end(), second);
    return codes;
  };
  fault.ExpectCodes(TensorId::kKCache, two_heads(5, -2));  // -2.5: the tie goes to even
  fault.ExpectCodes(TensorId::kVCache, two_heads(-20, 12));
  for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) {
    for (const ScaleFault& scale_fault : kScaleFaults) {
      if (scale_fault.change == &OneChannelOfAHead) continue;  // all are equal here
      fault.ExpectToldApart(scale_fault.what, WithScales(id, scale_fault));
    }
  }
}

// Both scales of both operators, in every layout: each head and channel has its own.
TEST(Faults, C49Kind) {
  for (const char* line : {"op=qnr dtype=bf16", "op=drq dtype=fp16 x=int32 token_scale=1",
                           "op=drq dtype=bf16 x=16bit"}) {
    for (const char* rest : {"head_dim=46 layout=paged", "head_dim=64", "head_dim=80 layout=paged",
                             "head_dim=64 layout=contiguous"}) {
      Fault fault(std::string(line) + " heads=4/3 tokens=4 block_size=8 " + rest);
      for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) {
        const double sign = id == TensorId::kKScale ? 1 : -1;
        fault.Fill(id, [=](int64_t i) {
          return sign * (i % 3 == 0 ? -1 : 1) * static_cast<double>(i % 101 + 5) / 512;
        });
      }
      fault.ExpectRight();
      for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) {
        for (const ScaleFault& scale_fault : kScaleFaults) {
          fault.ExpectToldApart(scale_fault.what, WithScales(id, scale_fault));
        }
      }
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
