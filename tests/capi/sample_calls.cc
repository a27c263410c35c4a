// The sample calls. Random data is seeded, so every run sees the same.
#include "sample_calls.h"

#include <algorithm>

#include "scalar16.h"

namespace qkvfuse::capi_test {
namespace {

// The value at place `i` of 65,536 evenly spaced ones between low and high.
uint16_t Choice(aclDataType type, double low, double high, size_t i) {
  return Encode16(type, low + (high - low) * (static_cast<double>(i) + 0.5) / 65536.0);
}

}  // namespace

void Declare(TensorArgument& argument, aclDataType type, std::vector<int64_t> dims) {
  argument = TensorArgument{};
  argument.type = type;
  argument.dims = std::move(dims);
  argument.Allocate(kPoison);
}

void FillUniform(TensorArgument& argument, double low, double high, std::mt19937_64& random) {
  argument.Allocate(0);
  if (argument.type == ACL_FLOAT) {
    std::uniform_real_distribution<float> uniform(static_cast<float>(low),
                                                  static_cast<float>(high));
    std::generate_n(argument.As<float>(), argument.bytes.size() / sizeof(float),
                    [&] { return uniform(random); });
    return;
  }
  const size_t count = argument.bytes.size() / sizeof(uint16_t);
  // Encoding is slow: large tensors look the values up.
  std::vector<uint16_t> choices(count < 65536 ? 0 : 65536);
  for (size_t i = 0; i < choices.size(); ++i) choices[i] = Choice(argument.type, low, high, i);
  uint64_t bits = 0;
  for (size_t i = 0; i < count; ++i) {
    bits = i % 4 == 0 ? random() : bits >> 16;
    const size_t place = bits & 0xFFFFu;
    argument.As<uint16_t>()[i] =
        choices.empty() ? Choice(argument.type, low, high, place) : choices[place];
  }
}

void FillIntegers(TensorArgument& argument, int32_t low, int32_t high, std::mt19937_64& random) {
  argument.Allocate(0);
  std::uniform_int_distribution<int32_t> uniform(low, high);
  std::generate_n(argument.As<int32_t>(), argument.bytes.size() / sizeof(int32_t),
                  [&] { return uniform(random); });
}

std::unique_ptr<Call> SampleQnr() {
  auto call = std::make_unique<Call>(Op::kQnr);
  Call& c = *call;
  std::mt19937_64 random(7);
  constexpr int64_t kTokens = 4;
  constexpr int64_t kHeadDim = 128;
  Declare(c["qkv"], ACL_FLOAT16, {kTokens, 4 * kHeadDim});
  for (const char* name : {"qGamma", "kGamma"}) Declare(c[name], ACL_FLOAT16, {kHeadDim});
  for (const char* name : {"cos", "sin"}) Declare(c[name], ACL_FLOAT16, {kTokens, kHeadDim});
  for (const char* name : {"qkv", "qGamma", "kGamma", "cos", "sin"}) {
    FillUniform(c[name], -1, 1, random);
  }
  Declare(c["index"], ACL_INT64, {kTokens});
  SetValues<int64_t>(c["index"], {5, 40, -1, 100});
  for (const char* name : {"kScale", "vScale", "kOffset", "vOffset"}) {
    Declare(c[name], ACL_FLOAT, {1, kHeadDim});
  }
  for (const char* name : {"kScale", "vScale"}) FillUniform(c[name], 0.01, 0.1, random);
  for (const char* name : {"kOffset", "vOffset"}) FillUniform(c[name], -9, 9, random);
  for (const char* name : {"kCache", "vCache"}) Declare(c[name], ACL_INT8, {4, 4, 32, 32});
  for (const char* name : {"qOut", "qOutBeforeQuant"}) {
    Declare(c[name], ACL_FLOAT16, {kTokens, 2 * kHeadDim});
  }
  for (const char* name : {"kOutBeforeQuant", "vOutBeforeQuant"}) {
    Declare(c[name], ACL_FLOAT16, {kTokens, kHeadDim});
  }
  c.integers["qkvSize"] = {2, 2, 4, kHeadDim};
  c.integers["headNums"] = {2, 1, 1};
  c.texts["cacheMode"] = "PA_NZ";
  return call;
}

std::unique_ptr<Call> SampleDrq() {
  auto call = std::make_unique<Call>(Op::kDrq);
  Call& c = *call;
  std::mt19937_64 random(11);
  constexpr int64_t kHeadDim = 32;
  constexpr int64_t kRow = 4 * kHeadDim;
  Declare(c["x"], ACL_INT32, {2, 3, kRow});
  FillIntegers(c["x"], -1000, 1000, random);
  for (const char* name : {"cos", "sin"}) {
    Declare(c[name], ACL_FLOAT16, {2, 3, 1, kHeadDim});
    FillUniform(c[name], -1, 1, random);
  }
  for (const char* name : {"kCacheRef", "vCacheRef"})
    Declare(c[name], ACL_INT8, {2, 8, 1, kHeadDim});
  Declare(c["indices"], ACL_INT32, {2});
  SetValues<int32_t>(c["indices"], {1, 5});
  for (const char* name : {"scaleK", "scaleV", "offsetK", "offsetV"}) {
    Declare(c[name], ACL_FLOAT, {kHeadDim});
  }
  for (const char* name : {"scaleK", "scaleV"}) FillUniform(c[name], 0.01, 0.1, random);
  for (const char* name : {"offsetK", "offsetV"}) FillUniform(c[name], -9, 9, random);
  Declare(c["weightScale"], ACL_FLOAT, {kRow});
  FillUniform(c["weightScale"], 0.001, 0.002, random);
  Declare(c["activationScale"], ACL_FLOAT, {6});
  FillUniform(c["activationScale"], 0.5, 1.5, random);
  Declare(c["bias"], ACL_FLOAT, {kRow});
  FillUniform(c["bias"], -1, 1, random);
  Declare(c["qOut"], ACL_FLOAT16, {2, 3, 2, kHeadDim});
  for (const char* name : {"kOut", "vOut"}) Declare(c[name], ACL_FLOAT16, {2, 3, 1, kHeadDim});
  c.integers["sizeSplits"] = {2 * kHeadDim, kHeadDim, kHeadDim};
  c.texts["quantMode"] = "static";
  c.texts["layout"] = "BSND";
  c.texts["cacheMode"] = "contiguous";
  return call;
}

}  // namespace qkvfuse::capi_test
