// Every refusal of aclnnQkvRmsNormRopeCache: code, argument named, nothing written. And calls just
// inside the limits, which must be accepted and computed.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "contract.h"
#include "golden.h"
#include "sample_calls.h"

namespace qkvfuse::capi_test {
namespace {

constexpr int kNull = ACLNN_ERR_PARAM_NULLPTR;
constexpr int kInvalid = ACLNN_ERR_PARAM_INVALID;

Change WithEpsilon(double epsilon) {
  return [=](Call& call) { call.epsilon = epsilon; };
}

Change WithSlots(std::vector<int64_t> slots) {
  return [=](Call& call) { SetValues(call["index"], slots); };
}

Change WithZero(std::string name, size_t element) {
  return [=](Call& call) { call[name].As<float>()[element] = 0.0f; };
}

// Both caches of 16-bit elements, without scales and offsets.
Change With16BitCaches(int64_t block_size) {
  return [=](Call& call) {
    for (const char* name : {"kCache", "vCache"}) {
      Declare(call[name], ACL_FLOAT16, {4, 8, block_size, 16});
    }
    for (const char* name : {"kScale", "vScale", "kOffset", "vOffset"}) {
      call[name].is_present = false;
    }
  };
}

// Only the k cache.
Change With16BitKCache(int64_t block_size) {
  return [=](Call& call) {
    Declare(call["kCache"], ACL_FLOAT16, {4, 8, block_size, 16});
    Declare(call["vCache"], ACL_INT8, {4, 4, block_size, 32});
    for (const char* name : {"kScale", "kOffset"}) call[name].is_present = false;
  };
}

std::vector<Refusal> NullRows() {
  std::vector<Refusal> rows;
  for (const char* name :
       {"qkv", "qGamma", "kGamma", "cos", "sin", "index", "qOut", "kCache", "vCache"}) {
    rows.push_back({std::string("Null_") + name, kNull, name, Absent(name)});
  }
  for (const char* name : {"qkvSize", "headNums"}) {
    rows.push_back({std::string("Null_") + name, kNull, name, WithIntegers(name, std::nullopt)});
  }
  rows.push_back({"NullBesideUnknownType", kNull, "vCache",
                  All({Absent("vCache"), Typed("qkv", ACL_DOUBLE)})});
  return rows;
}

std::vector<Refusal> TypeRows() {
  std::vector<Refusal> rows;
  for (const char* name : TensorNames(Op::kQnr)) {
    rows.push_back({std::string("WrongType_") + name, kInvalid, name, Typed(name, ACL_INT32)});
    rows.push_back({std::string("UnknownType_") + name, kInvalid, name, Typed(name, ACL_DOUBLE)});
  }
  for (const char* name : {"qGamma", "kGamma", "cos", "sin", "qOut", "qOutBeforeQuant",
                           "kOutBeforeQuant", "vOutBeforeQuant"}) {
    rows.push_back({std::string("OtherType_") + name, kInvalid, name, Typed(name, ACL_BF16)});
  }
  return rows;
}

std::vector<Refusal> ShapeRows() {
  std::vector<Refusal> rows = {
      {"QkvRank", kInvalid, "qkv", Shaped("qkv", {2, 2, 512})},
      {"QkvTokens", kInvalid, "qkv", Shaped("qkv", {5, 512})},
      {"QkvWidth", kInvalid, "qkv", Shaped("qkv", {4, 640})},
      {"QGammaRank", kInvalid, "qGamma", Shaped("qGamma", {1, 128})},
      {"KGammaLength", kInvalid, "kGamma", Shaped("kGamma", {64})},
      {"CosPerSequence", kInvalid, "cos", Shaped("cos", {2, 128})},
      {"CosHalfWidth", kInvalid, "cos", Shaped("cos", {4, 64})},
      {"SinPerSequence", kInvalid, "sin", Shaped("sin", {2, 128})},
      {"SinRank", kInvalid, "sin", Shaped("sin", {512})},
      {"IndexLength", kInvalid, "index", Shaped("index", {3})},
      {"IndexRank", kInvalid, "index", Shaped("index", {2, 2})},
      {"QOutWidth", kInvalid, "qOut", Shaped("qOut", {4, 512})},
      {"QOutRank", kInvalid, "qOut", Shaped("qOut", {4, 2, 128})},
      {"KCacheRank", kInvalid, "kCache", Shaped("kCache", {4, 128, 32})},
      {"KCacheHeads", kInvalid, "kCache", Shaped("kCache", {4, 8, 32, 32})},
      {"KCacheChunk", kInvalid, "kCache", Shaped("kCache", {4, 8, 32, 16})},
      {"VCacheChunk", kInvalid, "vCache", Shaped("vCache", {4, 8, 32, 16})},
      {"VCacheBlocks", kInvalid, "vCache", Shaped("vCache", {5, 4, 32, 32})},
      {"VCacheBlockSize", kInvalid, "vCache", Shaped("vCache", {4, 4, 64, 32})},
      {"KScaleShape", kInvalid, "kScale", Shaped("kScale", {128})},
      {"VScaleShape", kInvalid, "vScale", Shaped("vScale", {2, 128})},
      {"KOffsetShape", kInvalid, "kOffset", Shaped("kOffset", {128})},
      {"VOffsetShape", kInvalid, "vOffset", Shaped("vOffset", {1, 64})},
      {"QBeforeQuantShape", kInvalid, "qOutBeforeQuant", Shaped("qOutBeforeQuant", {4, 128})},
      {"KBeforeQuantShape", kInvalid, "kOutBeforeQuant", Shaped("kOutBeforeQuant", {4, 256})},
      {"VBeforeQuantShape", kInvalid, "vOutBeforeQuant", Shaped("vOutBeforeQuant", {4, 256})},
      {"TooFewBlocks", kInvalid, "kCache",
       All({Shaped("kCache", {1, 4, 32, 32}), Shaped("vCache", {1, 4, 32, 32})})},
      {"Int8BlockSize", kInvalid, "kCache",
       All({Shaped("kCache", {4, 4, 48, 32}), Shaped("vCache", {4, 4, 48, 32})})},
      {"BlockSizeZero", kInvalid, "kCache",
       All({Shaped("kCache", {4, 4, 0, 32}), Shaped("vCache", {4, 4, 0, 32})})},
      {"HalfBlockSize", kInvalid, "kCache", With16BitCaches(24)},
      {"MixedBlockSize", kInvalid, "kCache", With16BitKCache(48)},
  };
  return rows;
}

std::vector<Refusal> CombinationRows() {
  return {
      {"KScaleMissing", kInvalid, "kScale", Absent("kScale")},
      {"VScaleMissing", kInvalid, "vScale", Absent("vScale")},
      {"KScaleNotNeeded", kInvalid, "kScale",
       [](Call& call) {
         const TensorArgument scale = call["kScale"];
         With16BitKCache(32)(call);
         call["kScale"] = scale;
       }},
      {"KOffsetNotAllowed", kInvalid, "kOffset",
       [](Call& call) {
         const TensorArgument offset = call["kOffset"];
         With16BitKCache(32)(call);
         call["kOffset"] = offset;
       }},
      {"QBeforeQuantAlone", kInvalid, "kOutBeforeQuant",
       All({Absent("kOutBeforeQuant"), Absent("vOutBeforeQuant")})},
      {"VBeforeQuantMissing", kInvalid, "vOutBeforeQuant", Absent("vOutBeforeQuant")},
      {"QBeforeQuantMissing", kInvalid, "qOutBeforeQuant", Absent("qOutBeforeQuant")},
  };
}

std::vector<Refusal> ValueRows() {
  const double infinity = std::numeric_limits<double>::infinity();
  return {
      {"QkvSizeEmpty", kInvalid, "qkvSize", WithIntegers("qkvSize", {{}})},
      {"QkvSizeLength", kInvalid, "qkvSize", WithIntegers("qkvSize", {{2, 2, 4}})},
      {"QkvSizeZero", kInvalid, "qkvSize", WithIntegers("qkvSize", {{2, 0, 4, 128}})},
      {"QkvSizeNegative", kInvalid, "qkvSize", WithIntegers("qkvSize", {{-2, 2, 4, 128}})},
      {"QkvSizeHeads", kInvalid, "qkvSize", WithIntegers("qkvSize", {{2, 2, 5, 128}})},
      {"QkvSizeHeadDim", kInvalid, "qkvSize", WithIntegers("qkvSize", {{2, 2, 4, 64}})},
      {"QkvSizeOverflow", kInvalid, "qkvSize", WithIntegers("qkvSize", {{INT64_MAX, 2, 4, 128}})},
      {"HeadNumsEmpty", kInvalid, "headNums", WithIntegers("headNums", {{}})},
      {"HeadNumsLength", kInvalid, "headNums", WithIntegers("headNums", {{2, 1, 1, 1}})},
      {"HeadNumsZero", kInvalid, "headNums", WithIntegers("headNums", {{4, 0, 0}})},
      {"HeadNumsUnequal", kInvalid, "headNums", WithIntegers("headNums", {{3, 1, 2}})},
      {"EpsilonNegative", kInvalid, "epsilon", WithEpsilon(-1e-6)},
      {"EpsilonNan", kInvalid, "epsilon", WithEpsilon(std::nan(""))},
      {"EpsilonInfinite", kInvalid, "epsilon", WithEpsilon(infinity)},
      {"EpsilonVanishes", kInvalid, "epsilon", WithEpsilon(1e-60)},
      {"EpsilonOverflows", kInvalid, "epsilon", WithEpsilon(1e60)},
      {"CacheModeEmpty", kInvalid, "cacheMode", WithText("cacheMode", "")},
      {"CacheModeCase", kInvalid, "cacheMode", WithText("cacheMode", "pa_nz")},
      {"CacheModeOther", kInvalid, "cacheMode", WithText("cacheMode", "PA")},
  };
}

std::vector<Refusal> ViewRows() {
  return {
      {"ViewPastStorage", kInvalid, "qkv", Viewed("qkv", {512, 1}, 1)},
      {"ViewBeforeStorage", kInvalid, "qkv", Viewed("qkv", {-512, 1}, 0)},
      {"NegativeOffset", kInvalid, "sin", Viewed("sin", {128, 1}, -1)},
      {"StrideTooLong", kInvalid, "kScale", Viewed("kScale", {1, 2}, 0)},
      {"CacheViewPastStorage", kInvalid, "vCache", Viewed("vCache", {4096, 1024, 33, 1}, 0)},
      {"RankNine", kInvalid, "cos", Shaped("cos", {4, 128, 1, 1, 1, 1, 1, 1, 1})},
      {"NegativeDimension", kInvalid, "qOut", Claimed("qOut", {-4, 256})},
      {"StorageOverflow", kInvalid, "qkv", Claimed("qkv", {INT64_MAX, 512})},
      {"ReachOverflow", kInvalid, "qkv", Viewed("qkv", {INT64_MAX, 1}, 0)},
      {"OffsetOverflow", kInvalid, "qkv", Viewed("qkv", {512, 1}, INT64_MAX)},
      {"OutputOverlapsItself", kInvalid, "qOut", Viewed("qOut", {0, 1}, 0)},
      {"CacheOverlapsItself", kInvalid, "kCache", Viewed("kCache", {4096, 1024, 31, 1}, 0)},
  };
}

std::vector<Refusal> NullDataRows() {
  std::vector<Refusal> rows;
  for (const char* name : TensorNames(Op::kQnr)) {
    rows.push_back({std::string("NullData_") + name, kNull, name, WithoutData(name)});
  }
  return rows;
}

std::vector<Refusal> AddressRows() {
  std::vector<Refusal> rows = {
      {"QOutOnBeforeQuant", kInvalid, "qOut", PlacedOn("qOut", "qOutBeforeQuant", 0)},
      {"QOutInsideQkv", kInvalid, "qOut", PlacedOn("qOut", "qkv", 0)},
      {"KOutOnCos", kInvalid, "kOutBeforeQuant", PlacedOn("kOutBeforeQuant", "cos", 0)},
      {"KCacheOnVCache", kInvalid, "kCache", PlacedOn("kCache", "vCache", 0)},
      {"KCacheNearVCache", kInvalid, "kCache", PlacedOn("kCache", "vCache", 5)},
      {"VCacheOnQkv", kInvalid, "vCache", PlacedOn("qkv", "vCache", 0)},
  };
  for (const char* name :
       {"qkv", "qGamma", "cos", "index", "qOut", "kScale", "vOffset", "vOutBeforeQuant"}) {
    rows.push_back({std::string("Misaligned_") + name, kInvalid, name, PlacedOn(name, name, 1)});
  }
  return rows;
}

std::vector<Refusal> SlotRows() {
  return {
      {"SlotIsCapacity", kInvalid, "index", WithSlots({5, 40, -1, 128})},
      {"SlotIsHuge", kInvalid, "index", WithSlots({INT64_MAX, 40, -1, 100})},
  };
}

std::vector<Refusal> StrictRows() {
  return {
      {"RepeatedSlot", kInvalid, "index", WithSlots({5, 40, -1, 5})},
      {"BelowMinusOne", kInvalid, "index", WithSlots({5, 40, -2, 100})},
      {"ZeroKScale", kInvalid, "kScale", WithZero("kScale", 127)},
      {"ZeroVScale", kInvalid, "vScale", WithZero("vScale", 0)},
  };
}

template <typename Row>
std::string Title(const testing::TestParamInfo<Row>& row) {
  return row.param.title;
}

class QnrPhaseOne : public testing::TestWithParam<Refusal> {};
class QnrPhaseTwo : public testing::TestWithParam<Refusal> {};
class QnrStrict : public testing::TestWithParam<Refusal> {};

TEST_P(QnrPhaseOne, Refuses) { ExpectPhaseOneRefuses(GetParam(), *SampleQnr()); }

TEST_P(QnrPhaseTwo, Refuses) { ExpectPhaseTwoRefuses(GetParam(), *SampleQnr()); }

TEST_P(QnrStrict, RefusesWhatIsOtherwiseAccepted) {
  const auto lenient = SampleQnr();
  GetParam().change(*lenient);
  EXPECT_EQ(lenient->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const StrictEnvironment strict;
  ExpectPhaseTwoRefuses(GetParam(), *SampleQnr());
}

INSTANTIATE_TEST_SUITE_P(Null, QnrPhaseOne, testing::ValuesIn(NullRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Type, QnrPhaseOne, testing::ValuesIn(TypeRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Shape, QnrPhaseOne, testing::ValuesIn(ShapeRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Combination, QnrPhaseOne, testing::ValuesIn(CombinationRows()),
                         Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Value, QnrPhaseOne, testing::ValuesIn(ValueRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(View, QnrPhaseOne, testing::ValuesIn(ViewRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(NullData, QnrPhaseTwo, testing::ValuesIn(NullDataRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Address, QnrPhaseTwo, testing::ValuesIn(AddressRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Slot, QnrPhaseTwo, testing::ValuesIn(SlotRows()), Title<Refusal>);
INSTANTIATE_TEST_SUITE_P(Table, QnrStrict, testing::ValuesIn(StrictRows()), Title<Refusal>);

std::vector<Accepted> AcceptedRows() {
  return {
      {"AsItIs", All({})},
      {"CacheModeNull", WithText("cacheMode", std::nullopt)},
      {"HalfBlocksOf48", With16BitCaches(48)},
      {"MixedBlocksOf64", With16BitKCache(64)},
      {"OneOffsetOnly", Absent("kOffset")},
      {"NoOffsets", All({Absent("kOffset"), Absent("vOffset")})},
      {"NoBeforeQuant",
       All({Absent("qOutBeforeQuant"), Absent("kOutBeforeQuant"), Absent("vOutBeforeQuant")})},
      {"EpsilonZero", WithEpsilon(0)},
      {"LastSlot", WithSlots({127, 0, 1, 2})},
      {"AllSkipped", WithSlots({-1, -1, -9, INT64_MIN})},
  };
}

class QnrAccepts : public testing::TestWithParam<Accepted> {};

TEST_P(QnrAccepts, AndComputesWhatFloat64Gives) {
  const auto call = SampleQnr();
  GetParam().change(*call);
  ASSERT_EQ(call->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const Comparison found = CompareWithGolden(*call);
  EXPECT_GT(found.elements, 0);
  EXPECT_EQ(found.outside, 0) << found.first_outside;
  EXPECT_EQ(found.disturbed, 0);
}

INSTANTIATE_TEST_SUITE_P(Table, QnrAccepts, testing::ValuesIn(AcceptedRows()), Title<Accepted>);

}  // namespace
}  // namespace qkvfuse::capi_test
