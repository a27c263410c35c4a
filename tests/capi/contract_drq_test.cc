// Every refusal of aclnnDequantRopeQuantKvcache: code, argument named, nothing written. And calls
// just inside the limits, which must be accepted and computed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract.h"
#include "golden.h"
#include "sample_calls.h"

namespace qkvfuse::capi_test {
namespace {

constexpr int kNull = ACLNN_ERR_PARAM_NULLPTR;
constexpr int kInvalid = ACLNN_ERR_PARAM_INVALID;
constexpr const char* kDequantisation[] = {"weightScale", "activationScale", "bias"};

Change WithIndices(std::vector<int32_t> indices) {
  return [=](Call& call) {
    call["indices"].dims = {static_cast<int64_t>(indices.size())};
    SetValues(call["indices"], indices);
  };
}

Change WithKvOutput(bool kv_output) {
  return [=](Call& call) { call.kv_output = kv_output; };
}

Change Paged(std::vector<int32_t> slots) {
  return All({WithText("cacheMode", "page"), WithIndices(std::move(slots))});
}

// fp16 x of moderate values.
Change WithHalfX() {
  return [](Call& call) {
    std::mt19937_64 random(3);
    call["x"].type = ACL_FLOAT16;
    FillUniform(call["x"], -1, 1, random);
  };
}

Change WithBias(aclDataType type) {
  return [=](Call& call) {
    std::mt19937_64 random(5);
    call["bias"].type = type;
    if (type == ACL_INT32) {
      FillIntegers(call["bias"], -50, 50, random);
    } else {
      FillUniform(call["bias"], -1, 1, random);
    }
  };
}

Change WithZero(std::string name, size_t element) {
  return [=](Call& call) { call[name].As<float>()[element] = 0.0f; };
}

// [B, H] x, and everything that follows it.
Change WithoutSequenceAxis() {
  return [](Call& call) {
    std::mt19937_64 random(9);
    call["x"].dims = {6, 128};
    for (const char* name : {"cos", "sin"}) call[name].dims = {6, 32};
    call["qOut"].dims = {6, 2, 32};
    for (const char* name : {"kOut", "vOut"}) call[name].dims = {6, 1, 32};
    for (const char* name : {"kCacheRef", "vCacheRef"})
      Declare(call[name], ACL_INT8, {6, 8, 1, 32});
    WithIndices({0, 7, 1, 2, 3, 4})(call);
  };
}

std::vector<Refusal> NullRows() {
  std::vector<Refusal> rows;
  for (const char* name : {"x", "cos", "sin", "kCacheRef", "vCacheRef", "indices", "scaleK",
                           "scaleV", "qOut", "kOut", "vOut"}) {
    rows.push_back({std::string("Null_") + name, kNull, name, Absent(name)});
  }
  rows.push_back(
      {"Null_sizeSplits", kNull, "sizeSplits", WithIntegers("sizeSplits", std::nullopt)});
  return rows;
}

std::vector<Refusal> TypeRows() {
  std::vector<Refusal> rows;
  for (const char* name : TensorNames(Op::kDrq)) {
    rows.push_back({std::string("WrongType_") + name, kInvalid, name, Typed(name, ACL_INT64)});
    rows.push_back({std::string("UnknownType_") + name, kInvalid, name, Typed(name, ACL_UINT8)});
  }
  rows.push_back({"FloatX", kInvalid, "x", Typed("x", ACL_FLOAT)});
  rows.push_back({"FloatCos", kInvalid, "cos", Typed("cos", ACL_FLOAT)});
  rows.push_back({"SinUnlikeCos", kInvalid, "sin", Typed("sin", ACL_BF16)});
  rows.push_back({"CosUnlikeX", kInvalid, "cos", Typed("x", ACL_BF16)});
  rows.push_back({"QOutUnlikeCos", kInvalid, "qOut", Typed("qOut", ACL_BF16)});
  rows.push_back({"KOutUnlikeCos", kInvalid, "kOut", Typed("kOut", ACL_FLOAT)});
  return rows;
}

std::vector<Refusal> ShapeRows() {
  return {
      {"XRank", kInvalid, "x", Shaped("x", {2, 3, 4, 32})},
      {"XWidth", kInvalid, "x", Shaped("x", {2, 3, 160})},
      {"XWithoutTokens", kInvalid, "x", Shaped("x", {2, 0, 128})},
      {"CosRank", kInvalid, "cos", Shaped("cos", {2, 3, 32})},
      {"CosTokens", kInvalid, "cos", Shaped("cos", {2, 2, 1, 32})},
      {"SinHeads", kInvalid, "sin", Shaped("sin", {2, 3, 2, 32})},
      {"KCacheRank", kInvalid, "kCacheRef", Shaped("kCacheRef", {2, 8, 32})},
      {"KCacheHeads", kInvalid, "kCacheRef",
       All({Shaped("kCacheRef", {2, 8, 2, 32}), Shaped("vCacheRef", {2, 8, 2, 32})})},
      {"VCacheUnlikeK", kInvalid, "vCacheRef", Shaped("vCacheRef", {2, 9, 1, 32})},
      {"FewerCacheRowsThanTokens", kInvalid, "kCacheRef",
       All({Shaped("kCacheRef", {2, 2, 1, 32}), Shaped("vCacheRef", {2, 2, 1, 32})})},
      {"FewerCachesThanSequences", kInvalid, "kCacheRef",
       All({Shaped("kCacheRef", {1, 8, 1, 32}), Shaped("vCacheRef", {1, 8, 1, 32})})},
      {"IndicesPerToken", kInvalid, "indices", Shaped("indices", {6})},
      {"IndicesPerSequenceInPageMode", kInvalid, "indices", WithText("cacheMode", "page")},
      {"IndicesRank", kInvalid, "indices", Shaped("indices", {2, 1})},
      {"ScaleKCount", kInvalid, "scaleK", Shaped("scaleK", {31})},
      {"ScaleVCount", kInvalid, "scaleV", Shaped("scaleV", {2, 32})},
      {"OffsetKCount", kInvalid, "offsetK", Shaped("offsetK", {1})},
      {"OffsetVCount", kInvalid, "offsetV", Shaped("offsetV", {64})},
      {"WeightScaleShort", kInvalid, "weightScale", Shaped("weightScale", {127})},
      {"ActivationScaleShort", kInvalid, "activationScale", Shaped("activationScale", {5})},
      {"BiasShort", kInvalid, "bias", Shaped("bias", {127})},
      {"QOutHeads", kInvalid, "qOut", Shaped("qOut", {2, 3, 1, 32})},
      {"QOutRank", kInvalid, "qOut", Shaped("qOut", {6, 2, 32})},
      {"KOutShape", kInvalid, "kOut", Shaped("kOut", {2, 3, 2, 32})},
      {"VOutShape", kInvalid, "vOut", Shaped("vOut", {2, 3, 32})},
      {"ViewPastStorage", kInvalid, "x", Viewed("x", {384, 128, 1}, 1)},
      {"RankNine", kInvalid, "scaleK", Shaped("scaleK", {32, 1, 1, 1, 1, 1, 1, 1, 1})},
      {"StorageOverflow", kInvalid, "kCacheRef", Claimed("kCacheRef", {INT64_MAX, 8, 1, 32})},
      {"OutputOverlapsItself", kInvalid, "vOut", Viewed("vOut", {96, 0, 32, 1}, 0)},
  };
}

std::vector<Refusal> ValueRows() {
  return {
      {"WeightScaleMissing", kInvalid, "weightScale", Absent("weightScale")},
      {"SizeSplitsEmpty", kInvalid, "sizeSplits", WithIntegers("sizeSplits", {{}})},
      {"SizeSplitsLength", kInvalid, "sizeSplits", WithIntegers("sizeSplits", {{64, 32}})},
      {"SizeSplitsUnequal", kInvalid, "sizeSplits", WithIntegers("sizeSplits", {{64, 32, 64}})},
      {"SizeSplitsNoQ", kInvalid, "sizeSplits", WithIntegers("sizeSplits", {{0, 32, 32}})},
      {"SizeSplitsNegative", kInvalid, "sizeSplits", WithIntegers("sizeSplits", {{64, -32, -32}})},
      {"SizeSplitsNotHeads", kInvalid, "sizeSplits", WithIntegers("sizeSplits", {{72, 32, 32}})},
      {"HeadDimOf24", kInvalid, "kCacheRef",
       All({Shaped("kCacheRef", {2, 8, 1, 24}), Shaped("vCacheRef", {2, 8, 1, 24}),
            WithIntegers("sizeSplits", {{48, 24, 24}})})},
      {"QuantMode", kInvalid, "quantMode", WithText("quantMode", "dynamic")},
      {"QuantModeEmpty", kInvalid, "quantMode", WithText("quantMode", "")},
      {"Layout", kInvalid, "layout", WithText("layout", "BNSD")},
      {"CacheMode", kInvalid, "cacheMode", WithText("cacheMode", "paged")},
      {"CacheModeEmpty", kInvalid, "cacheMode", WithText("cacheMode", "")},
  };
}

std::vector<Refusal> DataRows() {
  std::vector<Refusal> rows = {
      {"StartNegative", kInvalid, "indices", WithIndices({-1, 5})},
      {"RunLeavesCache", kInvalid, "indices", WithIndices({1, 6})},
      {"StartIsHuge", kInvalid, "indices", WithIndices({INT32_MAX, 5})},
      {"SlotIsCapacity", kInvalid, "indices", Paged({0, 1, 2, 3, 4, 16})},
      {"KCacheOnVCache", kInvalid, "kCacheRef", PlacedOn("kCacheRef", "vCacheRef", 0)},
      {"QOutOnKOut", kInvalid, "qOut", PlacedOn("kOut", "qOut", 0)},
      {"QOutOnInt32X", kInvalid, "qOut", PlacedOn("qOut", "x", 0)},
      {"Misaligned_x", kInvalid, "x", PlacedOn("x", "x", 2)},
      {"Misaligned_indices", kInvalid, "indices", PlacedOn("indices", "indices", 1)},
      {"Misaligned_weightScale", kInvalid, "weightScale",
       PlacedOn("weightScale", "weightScale", 2)},
      {"Misaligned_qOut", kInvalid, "qOut", PlacedOn("qOut", "qOut", 1)},
  };
  for (const char* name : TensorNames(Op::kDrq)) {
    rows.push_back({std::string("NullData_") + name, kNull, name, WithoutData(name)});
  }
  return rows;
}

std::vector<Refusal> StrictRows() {
  return {
      {"RepeatedSlot", kInvalid, "indices", Paged({0, 1, 2, 3, 4, 0})},
      {"BelowMinusOne", kInvalid, "indices", Paged({0, 1, -2, 3, 4, 5})},
      {"ZeroScaleK", kInvalid, "scaleK", WithZero("scaleK", 31)},
      {"ZeroScaleV", kInvalid, "scaleV", WithZero("scaleV", 0)},
  };
}

template <typename Row>
std::string Title(const testing::TestParamInfo<Row>& row) {
  return row.param.title;
}

class DrqPhaseOne : public testing::TestWithParam<Refusal> {};
class DrqPhaseTwo : public testing::TestWithParam<Refusal> {};
class DrqStrict : public testing::TestWithParam<Refusal> {};

TEST_P(DrqPhaseOne, Refuses) { ExpectPhaseOneRefuses(GetParam(), *SampleDrq()); }

TEST_P(DrqPhaseTwo, Refuses) { ExpectPhaseTwoRefuses(GetParam(), *SampleDrq()); }

TEST_P(DrqStrict, RefusesWhatIsOtherwiseAccepted) {
  const auto lenient = SampleDrq();
  GetParam().change(*lenient);
  EXPECT_EQ(lenient->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const StrictEnvironment strict;
  ExpectPhaseTwoRefuses(GetParam(), *SampleDrq());
}

INSTANTIATE_TEST_SUITE_P(Null, DrqPhaseOne, testing::ValuesIn(NullRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Type, DrqPhaseOne, testing::ValuesIn(TypeRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Shape, DrqPhaseOne, testing::ValuesIn(ShapeRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Value, DrqPhaseOne, testing::ValuesIn(ValueRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Data, DrqPhaseTwo, testing::ValuesIn(DataRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Table, DrqStrict, testing::ValuesIn(StrictRows()), Title<Refusal>);

std::vector<Accepted> AcceptedRows() {
  std::vector<Accepted> rows = {
      {"AsItIs", All({})},
      {"NullWords", All({WithText("cacheMode", std::nullopt), WithText("quantMode", std::nullopt),
                         WithText("layout", std::nullopt)})},
      {"AnyLetterCase", All({WithText("cacheMode", "Contiguous"), WithText("quantMode", "STATIC"),
                             WithText("layout", "bsnd")})},
      {"LastRows", WithIndices({0, 5})},
      {"Page", Paged({15, 0, -1, 3, 4, 9})},
      {"OneOffsetOnly", Absent("offsetK")},
      {"OtherOffsetOnly", Absent("offsetV")},
      {"NoOptionals",
       All({Absent("offsetK"), Absent("offsetV"), Absent("activationScale"), Absent("bias")})},
      {"HalfX",
       All({WithHalfX(), Absent("weightScale"), Absent("activationScale"), Absent("bias")})},
      {"TwoDimensionalX", WithoutSequenceAxis()},
      {"NoKvOutput", All({WithKvOutput(false), Absent("kOut"), Absent("vOut")})},
      // Arguments that the call does not use are not looked at.
      {"UnusedKvOutputs", All({WithKvOutput(false), Typed("kOut", ACL_STRING), Shaped("vOut", {1}),
                               WithoutData("vOut")})},
  };
  for (const aclDataType type : {ACL_FLOAT16, ACL_BF16, ACL_INT32}) {
    rows.push_back({"BiasOfType" + std::to_string(type), WithBias(type)});
  }
  for (const char* name : kDequantisation) {
    rows.push_back(
        {std::string("HalfXWithUnused_") + name, All({WithHalfX(), Typed(name, ACL_STRING)})});
    rows.push_back({std::string("HalfXWithUnaddressed_") + name,
                    All({WithHalfX(), WithoutData(name), Viewed(name, {99}, -5)})});
  }
  return rows;
}

class DrqAccepts : public testing::TestWithParam<Accepted> {};

TEST_P(DrqAccepts, AndComputesWhatFloat64Gives) {
  const auto call = SampleDrq();
  GetParam().change(*call);
  ASSERT_EQ(call->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const Comparison found = CompareWithGolden(*call);
  EXPECT_GT(found.elements, 0);
  EXPECT_EQ(found.outside, 0) << found.first_outside;
  EXPECT_EQ(found.disturbed, 0);
}

INSTANTIATE_TEST_SUITE_P(Table, DrqAccepts, testing::ValuesIn(AcceptedRows()), Title<Accepted>);

}  // namespace
}  // namespace qkvfuse::capi_test
