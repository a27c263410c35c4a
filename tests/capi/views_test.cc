// Strided, offset, reversed and broadcast tensors through the aclnn door: the same bytes as from
// contiguous ones, and nothing between the elements touched.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "contract.h"
#include "golden.h"
#include "sample_calls.h"

namespace qkvfuse::capi_test {
namespace {

using Bytes = std::vector<unsigned char>;

// Byte offset of each element of a view, in row-major order.
std::vector<size_t> ByteOffsets(const TensorArgument& tensor) {
  std::vector<int64_t> offsets = {tensor.offset};
  for (size_t axis = 0; axis < tensor.dims.size(); ++axis) {
    std::vector<int64_t> next;
    for (const int64_t base : offsets) {
      for (int64_t i = 0; i < tensor.dims[axis]; ++i)
        next.push_back(base + i * tensor.strides[axis]);
    }
    offsets = std::move(next);
  }
  std::vector<size_t> bytes;
  const auto size = static_cast<int64_t>(aclDataTypeSize(tensor.type));
  for (const int64_t offset : offsets) bytes.push_back(static_cast<size_t>(offset * size));
  return bytes;
}

struct View {
  std::vector<int64_t> strides;
  int64_t offset;
  int64_t storage;  // elements
};

// Moves a contiguous tensor's elements to where a view has them.
Change Spread(std::string name, View view) {
  return [=](Call& call) {
    TensorArgument& tensor = call[name];
    const Bytes packed = tensor.bytes;
    const size_t size = aclDataTypeSize(tensor.type);
    tensor.strides = view.strides;
    tensor.offset = view.offset;
    tensor.storage = {view.storage};
    tensor.Allocate(kPoison);
    const std::vector<size_t> offsets = ByteOffsets(tensor);
    for (size_t i = 0; i < offsets.size(); ++i) {
      std::memcpy(tensor.bytes.data() + offsets[i], packed.data() + i * size, size);
    }
  };
}

// The elements of a spread tensor, packed; the bytes between them must still be kPoison.
Bytes Packed(const TensorArgument& tensor) {
  if (tensor.strides.empty()) return tensor.bytes;
  const size_t size = aclDataTypeSize(tensor.type);
  Bytes rest = tensor.bytes;
  Bytes packed;
  for (const size_t offset : ByteOffsets(tensor)) {
    packed.insert(packed.end(), tensor.bytes.begin() + static_cast<std::ptrdiff_t>(offset),
                  tensor.bytes.begin() + static_cast<std::ptrdiff_t>(offset + size));
    std::memset(rest.data() + offset, kPoison, size);
  }
  EXPECT_EQ(rest, Bytes(rest.size(), kPoison));
  return packed;
}

struct Row {
  std::string title;
  Op op;
  Change change;
};

class Views : public testing::TestWithParam<Row> {};

TEST_P(Views, GiveTheBytesOfContiguousTensors) {
  const auto sample = [&] { return GetParam().op == Op::kQnr ? SampleQnr() : SampleDrq(); };
  const auto contiguous = sample();
  ASSERT_EQ(contiguous->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const auto spread = sample();
  GetParam().change(*spread);
  ASSERT_EQ(spread->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  for (const char* name : TensorNames(GetParam().op)) {
    EXPECT_EQ(Packed((*spread)[name]), (*contiguous)[name].bytes) << name;
  }
}

std::vector<Row> Rows() {
  return {
      {"QkvPitchAndOffset", Op::kQnr, Spread("qkv", {{600, 1}, 3, 2400})},
      {"QkvReversed", Op::kQnr, Spread("qkv", {{-512, 1}, 3 * 512, 2048})},
      {"QkvMirrored", Op::kQnr, Spread("qkv", {{-512, -1}, 2047, 2048})},
      {"QkvTransposed", Op::kQnr, Spread("qkv", {{1, 4}, 0, 2048})},
      {"GammaEverySecond", Op::kQnr, Spread("qGamma", {{2}, 1, 256})},
      {"CosPitch", Op::kQnr, Spread("cos", {{130, 1}, 0, 520})},
      {"SinEverySecond", Op::kQnr, Spread("sin", {{256, 2}, 0, 1024})},
      {"IndexReversed", Op::kQnr, Spread("index", {{-2}, 6, 7})},
      {"KScaleEverySecond", Op::kQnr, Spread("kScale", {{256, 2}, 0, 256})},
      {"VOffsetReversed", Op::kQnr, Spread("vOffset", {{1, -1}, 127, 128})},
      {"QOutPitch", Op::kQnr, Spread("qOut", {{300, 1}, 7, 1300})},
      {"QOutTransposed", Op::kQnr, Spread("qOut", {{1, 4}, 0, 1024})},
      {"BeforeQuantReversed", Op::kQnr, Spread("kOutBeforeQuant", {{-128, 1}, 384, 512})},
      {"KCachePitch", Op::kQnr, Spread("kCache", {{5000, 1100, 34, 1}, 9, 20000})},
      {"VCacheHeadsOutermost", Op::kQnr, Spread("vCache", {{1024, 4096, 32, 1}, 0, 16384})},
      {"VCacheMirrored", Op::kQnr, Spread("vCache", {{-4096, -1024, -32, -1}, 16383, 16384})},
      {"XPitch", Op::kDrq, Spread("x", {{500, 150, 1}, 1, 1001})},
      {"XSequencesReversed", Op::kDrq, Spread("x", {{-384, 128, 1}, 384, 768})},
      {"DrqCosEverySecond", Op::kDrq, Spread("cos", {{192, 64, 64, 2}, 0, 384})},
      {"ScaleReversed", Op::kDrq, Spread("scaleK", {{-1}, 31, 32})},
      {"WeightScaleEverySecond", Op::kDrq, Spread("weightScale", {{2}, 0, 256})},
      {"ActivationScaleReversed", Op::kDrq, Spread("activationScale", {{-1}, 5, 6})},
      {"BiasPitch", Op::kDrq, Spread("bias", {{3}, 2, 400})},
      {"IndicesPitch", Op::kDrq, Spread("indices", {{5}, 0, 6})},
      {"DrqQOutHeadsFirst", Op::kDrq, Spread("qOut", {{96, 32, 192, 1}, 0, 384})},
      {"KOutPitch", Op::kDrq, Spread("kOut", {{200, 40, 40, 1}, 3, 400})},
      {"CacheRowPitch", Op::kDrq, Spread("kCacheRef", {{400, 48, 48, 1}, 5, 900})},
      {"CacheTransposed", Op::kDrq, Spread("vCacheRef", {{256, 1, 256, 8}, 0, 512})},
  };
}

std::string Title(const testing::TestParamInfo<Row>& row) { return row.param.title; }

INSTANTIATE_TEST_SUITE_P(Table, Views, testing::ValuesIn(Rows()), Title);

TEST(ViewsOfUnknownTypes, AreRefusedByTheirNumber) {
  const auto call = SampleQnr();
  (*call)["qkv"].type = static_cast<aclDataType>(12345);
  EXPECT_EQ(call->PhaseOne(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(std::string(aclGetRecentErrMsg()).rfind("qkv: has type unknown (12345)", 0), 0U)
      << aclGetRecentErrMsg();
}

// Sums and products beyond 64 bits, in the storage and on the way to the view's last element.
TEST(ViewsThatDoNotFit, AreRefused) {
  constexpr int64_t kOne = 1;
  const auto refused = [](const std::function<void(TensorArgument&)>& change) {
    const auto call = SampleQnr();
    change((*call)["qkv"]);
    EXPECT_EQ(call->PhaseOne(), ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(std::string(aclGetRecentErrMsg()).rfind("qkv: its view or storage is larger", 0), 0U)
        << aclGetRecentErrMsg();
  };
  refused([=](TensorArgument& qkv) { qkv.storage = {kOne << 40, kOne << 40}; });
  refused([=](TensorArgument& qkv) { qkv.storage = {kOne << 31, kOne << 31}; });  // in bytes
  refused([=](TensorArgument& qkv) { qkv.strides = {kOne << 62, 1}; });
  refused([=](TensorArgument& qkv) { qkv.strides = {kOne << 61, kOne << 54}; });
  refused([=](TensorArgument& qkv) { qkv.strides = {kOne << 60, kOne << 53}; });
}

// One row of cos and sin for all tokens, by a stride of 0.
TEST(Broadcast, OneRowServesAllTokens) {
  const auto repeated = SampleQnr();
  for (const char* name : {"cos", "sin"}) {
    Bytes& bytes = (*repeated)[name].bytes;
    for (size_t row = 1; row < 4; ++row)
      std::copy_n(bytes.begin(), 256, bytes.begin() + static_cast<std::ptrdiff_t>(256 * row));
  }
  ASSERT_EQ(repeated->Run(), ACLNN_SUCCESS);
  const auto broadcast = SampleQnr();
  for (const char* name : {"cos", "sin"}) (*broadcast)[name].strides = {0, 1};
  ASSERT_EQ(broadcast->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  for (const char* name : {"qOut", "kCache", "vCache", "kOutBeforeQuant"}) {
    EXPECT_EQ((*broadcast)[name].bytes, (*repeated)[name].bytes) << name;
  }
}

// Both caches in one buffer, blocks of K and V by turns.
TEST(SharedBuffer, InterleavedCachesAreLegal) {
  const auto apart = SampleQnr();
  ASSERT_EQ(apart->Run(), ACLNN_SUCCESS);
  const auto together = SampleQnr();
  Bytes buffer(2 * 16384, kPoison);
  for (const char* name : {"kCache", "vCache"}) {
    TensorArgument& cache = (*together)[name];
    cache.strides = {8192, 1024, 32, 1};
    cache.offset = name[0] == 'k' ? 0 : 4096;
    cache.storage = {2 * 16384};
    cache.address = buffer.data();
  }
  ASSERT_EQ(together->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  for (const char* name : {"kCache", "vCache"}) {
    TensorArgument cache = (*together)[name];
    cache.bytes = buffer;
    Bytes packed;
    for (const size_t offset : ByteOffsets(cache)) packed.push_back(buffer[offset]);
    EXPECT_EQ(packed, (*apart)[name].bytes) << name;
  }
}

// qOut exactly on the q part of qkv.
TEST(InPlace, QOutMayLieOnItsPartOfQkv) {
  const auto apart = SampleQnr();
  ASSERT_EQ(apart->Run(), ACLNN_SUCCESS);
  const auto in_place = SampleQnr();
  TensorArgument& q_out = (*in_place)["qOut"];
  q_out.strides = {512, 1};
  q_out.storage = {2048};
  q_out.address = (*in_place)["qkv"].Data();
  ASSERT_EQ(in_place->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  Bytes expected = (*apart)["qkv"].bytes;
  for (std::ptrdiff_t row = 0; row < 4; ++row) {
    std::copy_n((*apart)["qOut"].bytes.begin() + row * 512, 512, expected.begin() + row * 1024);
  }
  EXPECT_EQ((*in_place)["qkv"].bytes, expected);
  for (const char* name : {"kCache", "vCache", "vOutBeforeQuant"}) {
    EXPECT_EQ((*in_place)[name].bytes, (*apart)[name].bytes) << name;
  }
}

// A storage without dims says nothing about its size.
TEST(Storage, MayBeLeftUnstated) {
  const auto call = SampleQnr();
  (*call)["qkv"].storage = std::vector<int64_t>{};
  ASSERT_EQ(call->Run(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  const Comparison found = CompareWithGolden(*call);
  EXPECT_EQ(found.outside, 0) << found.first_outside;
}

}  // namespace
}  // namespace qkvfuse::capi_test
