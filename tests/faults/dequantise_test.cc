// Faults in the dequantisation of an int32 x and in the dense outputs beside the caches.
#include <cmath>
#include <optional>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;

struct Bias {
  const char* name;
  double dequantised[2];  // of row 0 and 1
  int code[2];
};

constexpr Bias kBiases[] = {{"int32", {8, -34}, {64, -128}},
                            {"fp32", {-580, -610}, {-128, -128}},
                            {"fp16", {-580, -610}, {-128, -128}},
                            {"bf16", {-580, -610}, {-128, -128}},
                            {"none", {20, -10}, {127, -80}}};

TEST(Faults, C51) {
  for (const Bias& bias : kBiases) {
    Fault fault(std::string("op=drq dtype=fp16 x=int32 heads=1/1 head_dim=64 tokens=2 blocks=1 "
                            "layout=paged block_size=16 token_scale=1 kv_output=1 bias=") +
                bias.name);
    fault.Fill(TensorId::kX, Runs(192, {1000, -250}))
        .Fill(TensorId::kWeightScale, Constant(0.01))
        .Fill(TensorId::kTokenScale, List({2, 4}))
        .Fill(TensorId::kCos, Constant(1))
        .Fill(TensorId::kSin, Constant(0))
        .Slots({0, 1});
    if (cases::Has(fault.description(), TensorId::kBias)) {
      fault.Fill(TensorId::kBias, Constant(-600));
    }
    for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) {
      fault.Fill(id, Constant(0.125));
    }
    fault.ExpectRight();
    std::vector<int> codes(64, bias.code[0]);
    codes.resize(128, bias.code[1]);
    for (const TensorId id : {TensorId::kKCache, TensorId::kVCache}) fault.ExpectCodes(id, codes);
    for (const TensorId id : {TensorId::kQOut, TensorId::kKOut, TensorId::kVOut}) {
      for (const int64_t t : {0, 1}) fault.ExpectHead(id, t, 0, Constant(bias.dequantised[t]));
    }
    if (std::string(bias.name) == "int32") {
      EXPECT_FALSE(IsNear(DType::kFloat16, fault.Value(TensorId::kVOut, {0, 0, 0}), -580));
      EXPECT_FALSE(IsNear(DType::kFloat16, fault.Value(TensorId::kVOut, {1, 0, 0}), -610));
    }
  }
}

// A bias added at the wrong place, whatever its type; and wrap-around of the int32 sum.
TEST(Faults, C51Kind) {
  for (const std::string bias : {"int32", "fp32", "fp16", "bf16"}) {
    for (const char* rest : {"head_dim=46 layout=paged", "head_dim=64 layout=contiguous",
                             "head_dim=128 layout=pa_nz"}) {
      for (const char* data : {"uniform", "ties", "special"}) {
        Fault fault(std::string("op=drq dtype=bf16 x=int32 heads=3/2 tokens=3 kv_output=1 ") +
                    "token_scale=1 strict=0 block_size=8 bias=" + bias + " data=" + data + " " +
                    rest);
        fault.ExpectRight();
        if (std::string(data) != "uniform") continue;
        fault.ExpectToldApart("bias left out", [](reference::Problem p) {
          p.bias.data = nullptr;
          reference::RunExact(p);
        });
        fault.ExpectToldApart("bias of another place", [&](reference::Problem p) {
          // An integer bias after the scales, or a float bias before them.
          const int64_t count = p.bias.shape.ElementCount();
          std::vector<float> floats(static_cast<size_t>(count), -600);
          std::vector<int32_t> integers(static_cast<size_t>(count), -600);
          const bool is_integer = p.bias.dtype == DType::kInt32;
          p.bias.shape = StridedShape::Contiguous({count});
          p.bias.dtype = is_integer ? DType::kFloat32 : DType::kInt32;
          p.bias.data = is_integer ? static_cast<void*>(floats.data()) : integers.data();
          reference::RunExact(p);
        });
      }
    }
  }
}

constexpr char kSquare[] =
    "op=drq dtype=bf16 x=int32 heads=1/1 head_dim=64 tokens=192 layout=paged block_size=16 "
    "blocks=12 token_scale=1 kv_output=1 slots=sequential";

double SquareX(int64_t i) { return static_cast<double>(7 * i % 201 - 100); }

TEST(Faults, C54) {
  Fault fault(kSquare);
  fault.Fill(TensorId::kX, SquareX)
      .Fill(TensorId::kWeightScale, Cyc(7, 1, 64))
      .Fill(TensorId::kTokenScale, Cyc(5, 1, 8))
      .Fill(TensorId::kCos, Constant(1))
      .Fill(TensorId::kSin, Constant(0));
  for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) fault.Fill(id, Constant(0.5));
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kVCache, {{0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 2, 0, 1, 1, 2},
                                        {0, 0, 1, 1, 2, 0, 1, 1},
                                        0x615ABF7CC644B358U});
  // [row, column] of the packed row: the q head, or the v head at column 190.
  fault.ExpectSpots(TensorId::kQOut,
                    {{{0, 0, 0}, -0.1953125}, {{1, 0, 2}, 0.609375}, {{100, 0, 7}, 0.158203125}});
  fault.ExpectSpots(TensorId::kVOut, {{{191, 0, 62}, 0.3984375}});
  EXPECT_FALSE(IsNear(DType::kBFloat16, fault.Value(TensorId::kVOut, {191, 0, 62}), 0.298828125));
  EXPECT_FALSE(IsNear(DType::kBFloat16, fault.Value(TensorId::kQOut, {100, 0, 7}), 1.42382812));
  fault.ExpectToldApart("scales swapped", [](reference::Problem p) {
    std::swap(p.weight_scale, p.token_scale);
    reference::RunExact(p);
  });
}

// Parameters of one entry per token or per channel, where both counts are 192: each one constant,
// scrambled, or taken along the other axis.
TEST(Faults, C54Kind) {
  for (const char* bias : {"none", "fp32", "int32"}) {
    Fault fault(std::string(kSquare) + " bias=" + bias);
    fault.ExpectRight({{AvailableTargets().front(), Path::kAuto, 1},
                       {AvailableTargets().front(), Path::kGeneral, 1}});
    for (const TensorId id : {TensorId::kWeightScale, TensorId::kTokenScale, TensorId::kBias}) {
      if (!cases::Has(fault.description(), id)) continue;
      fault.ExpectToldApart("the first one for all", [id](reference::Problem p) {
        for (int64_t& stride : ViewOf(p, id).shape.strides) stride = 0;
        reference::RunExact(p);
      });
    }
    fault.ExpectToldApart("scales swapped", [](reference::Problem p) {
      std::swap(p.weight_scale, p.token_scale);
      reference::RunExact(p);
    });
  }
}

// The parts of C55 that the C++ door can say; door_test has the others.
TEST(Faults, C55) {
  Fault fault("op=drq dtype=bf16 x=int32 heads=1/1 head_dim=64 tokens=1 layout=paged");
  fault.Fill(TensorId::kX, Constant(4))
      .Fill(TensorId::kWeightScale, Constant(0.5))
      .Fill(TensorId::kVScale, Constant(0.25))
      .Slots({0});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kVCache, std::vector<int>(64, 8));
  DequantRopeQuantKvcacheSpec spec = fault.problem().DrqSpec();
  spec.weight_scale_shape = StridedShape::Contiguous({191});
  EXPECT_EQ(RefusalOf(MakePlan(spec)).rfind("weight_scale:", 0), 0U);
}

// Parameters that the spec does not have are not looked at, wherever their pointers point.
TEST(Faults, C55Kind) {
  for (const char* line : {"op=drq dtype=fp16 x=16bit layout=paged", "op=drq dtype=bf16 x=int32",
                           "op=qnr dtype=bf16 k_cache=16bit v_cache=16bit"}) {
    Fault fault(std::string(line) + " heads=2/1 head_dim=64 tokens=3");
    fault.ExpectRight();
    Tensors tensors = fault.problem().tensors();
    const void* const nowhere = reinterpret_cast<const void*>(uintptr_t{1});
    for (const void* Tensors::*const member :
         {&Tensors::weight_scale, &Tensors::token_scale, &Tensors::bias, &Tensors::k_scale,
          &Tensors::v_scale, &Tensors::k_offset, &Tensors::v_offset, &Tensors::q_gamma,
          &Tensors::k_gamma}) {
      if (tensors.*member == nullptr) tensors.*member = nowhere;
    }
    for (const Variant& variant : TargetsAndPaths()) {
      fault.problem().ResetLibraryOutputs();
      const Result<Plan> plan = fault.problem().MakePlan({true, variant.path, variant.target});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      ASSERT_TRUE(plan->Run(tensors, fault.problem().tokens()).ok());
      EXPECT_TRUE(fault.problem().Compare().ok());
    }
  }
}

Fault DenseOutputs(bool kv_output) {
  Fault fault(std::string("op=drq dtype=bf16 x=int32 heads=1/1 head_dim=64 tokens=2 blocks=1 "
                          "layout=paged block_size=16 token_scale=1 kv_output=") +
              (kv_output ? "1" : "0"));
  fault.Fill(TensorId::kX, Runs(192, {4, -6}))
      .Fill(TensorId::kWeightScale, Constant(0.5))
      .Fill(TensorId::kTokenScale, List({1, 2}))
      .Fill(TensorId::kCos, Constant(0))
      .Fill(TensorId::kSin, Constant(1))
      .Slots({3, -1});
  for (const TensorId id : {TensorId::kKScale, TensorId::kVScale}) fault.Fill(id, Constant(0.5));
  return fault;
}

TEST(Faults, C56) {
  for (const bool kv_output : {true, false}) {
    Fault fault = DenseOutputs(kv_output);
    fault.ExpectRight();  // prefilled slots included
    std::vector<int> codes(32, -4);
    codes.resize(64, 4);
    fault.ExpectCodes(TensorId::kKCache, codes);
    fault.ExpectCodes(TensorId::kVCache, std::vector<int>(64, 4));
    fault.ExpectHead(TensorId::kQOut, 0, 0, Runs(32, {-2, 2}));
    fault.ExpectHead(TensorId::kQOut, 1, 0, Runs(32, {6, -6}));
    if (!kv_output) continue;
    fault.ExpectHead(TensorId::kKOut, 0, 0, Runs(32, {-2, 2}));
    fault.ExpectHead(TensorId::kKOut, 1, 0, Runs(32, {6, -6}));
    fault.ExpectHead(TensorId::kVOut, 0, 0, Constant(2));
    fault.ExpectHead(TensorId::kVOut, 1, 0, Constant(-6));
    fault.ExpectToldApart("k_out left out", [](reference::Problem p) {
      p.k_out.data = nullptr;
      reference::RunExact(p);
    });
  }
}

// With kv_output false, k_out and v_out keep their bytes where the caller gives them.
TEST(Faults, C56Untouched) {
  Fault fault = DenseOutputs(false);
  fault.ExpectRight();
  std::vector<uint16_t> prefilled(2 * 64, 0x5555);
  Tensors tensors = fault.problem().tensors();
  tensors.k_out = tensors.v_out = prefilled.data();
  for (const Variant& variant : TargetsAndPaths()) {
    const Result<Plan> plan = fault.problem().MakePlan({true, variant.path, variant.target});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(plan->Run(tensors, fault.problem().tokens()).ok());
    EXPECT_EQ(prefilled, std::vector<uint16_t>(2 * 64, 0x5555));
  }
}

// Each output of each operator left out in turn.
TEST(Faults, C56Kind) {
  for (const char* line : {"op=drq dtype=bf16 x=int32 layout=paged kv_output=1",
                           "op=drq dtype=fp16 x=16bit layout=contiguous kv_output=1",
                           "op=qnr dtype=bf16 before_quant=1 k_cache=16bit",
                           "op=qnr dtype=fp16 before_quant=1 v_cache=16bit head_dim=48"}) {
    Fault fault(std::string("head_dim=64 heads=3/2 tokens=4 layout=paged block_size=8 ") + line);
    fault.ExpectRight();
    for (const cases::NamedView& output : fault.problem().Outputs()) {
      fault.ExpectToldApart(std::string(output.name), [&](reference::Problem p) {
        ViewOf(p, output.id).data = nullptr;
        reference::RunExact(p);
      });
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
