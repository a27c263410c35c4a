// Public faults that only the aclnn door can have: shapes and types that a C++ Spec cannot say, and
// arguments that are absent.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/capi/contract.h"
#include "tests/capi/golden.h"
#include "tests/capi/sample_calls.h"
#include "tests/capi/scalar16.h"

namespace qkvfuse::capi_test {
namespace {

constexpr aclnnStatus kInvalid = ACLNN_ERR_PARAM_INVALID;

// Phase 1 refuses each row, and a normal call afterwards still works.
void ExpectAllRefused(Op op, const std::vector<Refusal>& rows) {
  for (const Refusal& row : rows) {
    SCOPED_TRACE(row.title);
    const auto call = Sample(op);
    ExpectPhaseOneRefuses(row, *call);
    const auto normal = Sample(op);
    ASSERT_EQ(normal->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
    const Comparison found = CompareWithGolden(*normal);
    EXPECT_EQ(found.outside + found.disturbed, 0) << found.first_outside;
  }
}

// 4 tokens of 128 channels. The faulty code accepts and reads past the shorter tensor.
TEST(Faults, C11) {
  ExpectAllRefused(Op::kQnr, {{"index of 3", kInvalid, "index", Shaped("index", {3})},
                              {"index of 5", kInvalid, "index", Shaped("index", {5})},
                              {"index [4, 1]", kInvalid, "index", Shaped("index", {4, 1})},
                              {"cos of 3 rows", kInvalid, "cos", Shaped("cos", {3, 128})},
                              {"sin of D/2 columns", kInvalid, "sin", Shaped("sin", {4, 64})}});
}

// One more and one less along every dimension of every tensor whose shape is fixed.
TEST(Faults, C11Kind) {
  for (const Op op : {Op::kQnr, Op::kDrq}) {
    for (const char* name : TensorNames(op)) {
      // weightScale, activationScale and bias may be longer; the caches give the sizes.
      const std::string text = name;
      const bool may_be_longer =
          text == "weightScale" || text == "activationScale" || text == "bias";
      if (text == "kCache" || text == "kCacheRef") continue;
      const auto call = Sample(op);
      const std::vector<int64_t> dims = (*call)[name].dims;
      for (size_t axis = 0; axis < dims.size(); ++axis) {
        for (const int64_t change : {-1, 1}) {
          if (may_be_longer && change > 0) continue;
          std::vector<int64_t> wrong = dims;
          wrong[axis] += change;
          if (wrong[axis] == 0) continue;  // C57
          const auto changed = Sample(op);
          Shaped(name, wrong)(*changed);
          const auto before = changed->Memory();
          EXPECT_EQ(changed->PhaseOne(), kInvalid) << text << " axis " << axis << " " << change;
          EXPECT_EQ(changed->executor, nullptr);
          EXPECT_EQ(changed->Memory(), before);
        }
      }
    }
  }
}

// Page mode takes one slot for each token, contiguous mode one for each sequence.
TEST(Faults, C11Modes) {
  ExpectAllRefused(
      Op::kDrq,
      {{"slots of tokens in contiguous mode", kInvalid, "indices", Shaped("indices", {6})},
       {"slots of sequences in page mode", kInvalid, "indices", WithText("cacheMode", "page")}});
}

// Every tensor of the case's kind with every other type of the door.
void ExpectTypeRefused(Op op, const std::vector<const char*>& names) {
  for (const char* name : names) {
    for (const aclDataType type : {ACL_FLOAT, ACL_BF16, ACL_FLOAT16, ACL_INT8, ACL_INT32, ACL_INT64,
                                   ACL_DOUBLE, ACL_UINT8}) {
      const auto call = Sample(op);
      if ((*call)[name].type == type) continue;
      ExpectPhaseOneRefuses({name, kInvalid, "", Typed(name, type)}, *call);
    }
  }
}

TEST(Faults, C33) {
  ExpectTypeRefused(Op::kQnr, {"qGamma", "kGamma"});
  // Accepted, the bytes of fp32 weights would be read as bf16: every other one is the low half.
  float weight = 0;
  for (int i = 0; i < 32; ++i) {
    weight = 0.0625F * static_cast<float>(i + 1) + 0x1p-10F;
    uint16_t low = 0;
    std::memcpy(&low, &weight, sizeof(low));
    EXPECT_NE(Values16(ACL_BF16)[low], weight);
  }
}

TEST(Faults, C37) {
  ExpectTypeRefused(Op::kQnr, {"cos", "sin"});
  // Accepted and narrowed to bf16, cos would lose its difference from 1.
  EXPECT_EQ(Values16(ACL_BF16)[Encode16(ACL_BF16, 0.9990234375)], 1.0F);
}

TEST(Faults, C37Kind) {
  ExpectTypeRefused(Op::kQnr, {"index", "qOut", "kScale", "vScale", "kOffset", "vOffset",
                               "qOutBeforeQuant", "kOutBeforeQuant", "vOutBeforeQuant"});
  ExpectTypeRefused(Op::kDrq, {"sin", "indices", "scaleK", "scaleV", "offsetK", "offsetV",
                               "weightScale", "activationScale", "qOut", "kOut", "vOut"});
}

TEST(FaultsDoor, C31) {
  const auto epsilon = [](double value) { return [=](Call& call) { call.epsilon = value; }; };
  ExpectAllRefused(
      Op::kQnr,
      {{"-1", kInvalid, "epsilon", epsilon(-1)},
       {"-1e-6", kInvalid, "epsilon", epsilon(-1e-6)},
       {"NaN", kInvalid, "epsilon", epsilon(std::numeric_limits<double>::quiet_NaN())},
       {"infinity", kInvalid, "epsilon", epsilon(std::numeric_limits<double>::infinity())},
       {"0 as a float", kInvalid, "epsilon", epsilon(1e-60)},
       {"infinite as a float", kInvalid, "epsilon", epsilon(1e60)}});
}

// 16-bit x = 2 with cos 1 and sin 0, so v is 2 and its code 8; the other inputs say 1000.
std::unique_ptr<Call> HalfDrq() {
  auto call = SampleDrq();
  Call& c = *call;
  std::mt19937_64 random(1);
  Declare(c["x"], ACL_FLOAT16, c["x"].dims);
  FillUniform(c["x"], 2, 2, random);
  for (const char* name : {"scaleV", "scaleK"}) FillUniform(c[name], 0.25, 0.25, random);
  for (const char* name : {"weightScale", "activationScale", "bias"}) {
    FillUniform(c[name], 1000, 1000, random);
  }
  for (const char* name : {"offsetK", "offsetV"}) c[name].is_present = false;
  return call;
}

// Codes of v that the call wrote.
std::vector<int8_t> Written(const Call& call) {
  const TensorArgument& cache = call["vCacheRef"];
  std::vector<int8_t> codes;
  for (const unsigned char byte : cache.bytes) {
    if (byte != kPoison) codes.push_back(static_cast<int8_t>(byte));
  }
  return codes;
}

TEST(FaultsDoor, C55) {
  ExpectAllRefused(Op::kDrq,
                   {{"no weightScale", kInvalid, "weightScale", Absent("weightScale")},
                    {"short weightScale", kInvalid, "weightScale", Shaped("weightScale", {127})},
                    {"bf16 sin", kInvalid, "sin", Typed("sin", ACL_BF16)}});
  const auto other_cos = HalfDrq();
  for (const char* name : {"cos", "sin"}) Typed(name, ACL_BF16)(*other_cos);
  EXPECT_EQ(other_cos->PhaseOne(), kInvalid);

  const auto ignored = HalfDrq();
  ASSERT_EQ(ignored->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const std::vector<int8_t> codes = Written(*ignored);
  EXPECT_EQ(codes, std::vector<int8_t>(2 * 3 * 32, 8));
  EXPECT_NE(codes[0], 127) << "the weight scale was applied";

  const auto plain = SampleDrq();  // int32 x, and neither token scale nor bias
  SetValues<int32_t>((*plain)["x"], std::vector<int32_t>(2 * 3 * 128, 4));
  std::mt19937_64 random(1);
  FillUniform((*plain)["weightScale"], 0.5, 0.5, random);
  FillUniform((*plain)["scaleV"], 0.25, 0.25, random);
  for (const char* name : {"activationScale", "bias", "offsetK", "offsetV"}) {
    (*plain)[name].is_present = false;
  }
  ASSERT_EQ(plain->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(Written(*plain), std::vector<int8_t>(2 * 3 * 32, 8));
}

TEST(Faults, C57) {
  const auto no_tokens =
      All({Shaped("qkv", {0, 512}), Shaped("cos", {0, 128}), Shaped("sin", {0, 128}),
           Shaped("index", {0}), Shaped("qOut", {0, 256}),
           WithIntegers("qkvSize", {{0, 1, 4, 128}}), WithoutData("qkv"), WithoutData("qOut")});
  const auto no_blocks =
      All({Shaped("kCache", {0, 4, 32, 32}), Shaped("vCache", {0, 4, 32, 32}), [](Call& c) {
             SetValues<int64_t>(c["index"], {-1, -1, -1, -1});
           }});
  ExpectAllRefused(
      Op::kQnr, {{"no tokens", kInvalid, "", no_tokens},
                 {"no k and v heads", kInvalid, "headNums", WithIntegers("headNums", {{2, 0, 0}})},
                 {"no q heads", kInvalid, "headNums", WithIntegers("headNums", {{0, 1, 1}})},
                 {"no sequences", kInvalid, "qkvSize", WithIntegers("qkvSize", {{0, 1, 4, 128}})},
                 {"no blocks", kInvalid, "kCache", no_blocks}});
  ExpectAllRefused(Op::kDrq, {{"no tokens of a sequence", kInvalid, "x", Shaped("x", {2, 0, 128})},
                              {"no sequences", kInvalid, "x", Shaped("x", {0, 3, 128})}});
}

// A size of 0 in each dimension of each tensor, and each integer 0 or extreme: no division by zero,
// no crash, no success.
TEST(Faults, C57Kind) {
  for (const Op op : {Op::kQnr, Op::kDrq}) {
    for (const char* name : TensorNames(op)) {
      for (size_t axis = 0; axis < (*Sample(op))[name].dims.size(); ++axis) {
        const auto call = Sample(op);
        std::vector<int64_t> dims = (*call)[name].dims;
        dims[axis] = 0;
        Shaped(name, dims)(*call);
        EXPECT_EQ(call->PhaseOne(), kInvalid) << name << " axis " << axis;
        EXPECT_EQ(call->executor, nullptr);
      }
    }
    const auto sample = Sample(op);
    for (const auto& [name, values] : sample->integers) {
      for (size_t i = 0; i < values->size(); ++i) {
        for (const int64_t value : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                                    std::numeric_limits<int64_t>::max(), int64_t{1} << 32}) {
          const auto call = Sample(op);
          (*call->integers[name])[i] = value;
          EXPECT_EQ(call->PhaseOne(), kInvalid) << name << "[" << i << "] = " << value;
        }
      }
    }
  }
}

// The token counts that are accepted are in split_test; here the tables that do not fit them.
TEST(FaultsDoor, C65) {
  ExpectAllRefused(
      Op::kQnr,
      {{"cos of 5 rows", kInvalid, "cos", Shaped("cos", {5, 128})},
       {"sin of 3 rows", kInvalid, "sin", Shaped("sin", {3, 128})},
       {"cos of 2D columns", kInvalid, "cos", Shaped("cos", {4, 256})},
       {"cos of one row for each sequence", kInvalid, "cos", Shaped("cos", {2, 128})},
       {"3-D cos", kInvalid, "cos", Shaped("cos", {2, 2, 128})},
       {"3-D sin", kInvalid, "sin", Shaped("sin", {4, 1, 128})},
       {"other token count", kInvalid, "qkv", WithIntegers("qkvSize", {{2, 3, 4, 128}})}});
}

}  // namespace
}  // namespace qkvfuse::capi_test
