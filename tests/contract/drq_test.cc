// Every refusal of the C++ door for DequantRopeQuantKvcache.

#include "tests/contract/refusals.h"

namespace qkvfuse::testing {
namespace {

constexpr char kDrqLine[] =
    "op=drq x=int32 dtype=fp16 heads=4/2/2 head_dim=64 tokens=2x4 layout=contiguous "
    "block_size=32 kv_output=1 token_scale=1 bias=fp32";

TEST(Contract, DrqSpec) {
  constexpr auto kPhase = Phase::kMakePlan;
  using C = Call<Drq>;
  ExpectAllRefused<Drq>(
      kDrqLine,
      {
          {"dtype", kPhase, kInvalid, {"dtype"}, [](C& c) { c.spec.dtype = DType::kInt8; }},
          {"x type",
           kPhase,
           kInvalid,
           {"x", "bf16", "fp16"},
           [](C& c) { c.spec.x_dtype = DType::kBFloat16; }},
          {"fp32 x",
           kPhase,
           kInvalid,
           {"x", "fp32"},
           [](C& c) { c.spec.x_dtype = DType::kFloat32; }},
          {"token scale without int32",
           kPhase,
           kInvalid,
           {"token_scale"},
           [](C& c) { c.spec.x_dtype = DType::kFloat16; }},
          {"bias without int32",
           kPhase,
           kInvalid,
           {"bias"},
           [](C& c) {
             c.spec.x_dtype = DType::kFloat16;
             c.spec.has_token_scale = false;
           }},
          {"bias type",
           kPhase,
           kInvalid,
           {"bias", "int64"},
           [](C& c) { c.spec.bias = DType::kInt64; }},
          {"int32 cache",
           kPhase,
           kInvalid,
           {"k_cache", "int8"},
           [](C& c) { c.spec.k_cache.dtype = DType::kInt32; }},
          {"16-bit cache",
           kPhase,
           kInvalid,
           {"v_cache", "int8"},
           [](C& c) { c.spec.v_cache.dtype = DType::kFloat16; }},
          {"short weight_scale",
           kPhase,
           kInvalid,
           {"weight_scale", "512"},
           [](C& c) { c.spec.weight_scale_shape = StridedShape::Contiguous({511}); }},
          {"short bias",
           kPhase,
           kInvalid,
           {"bias", "512"},
           [](C& c) {
             c.spec.bias_shape = StridedShape::Contiguous({8, 63});
           }},
          {"negative rank",
           kPhase,
           kInvalid,
           {"token_scale", "-1 dimensions"},
           [](C& c) { c.spec.token_scale_shape.rank = -1; }},
          {"rank of 9",
           kPhase,
           kInvalid,
           {"token_scale", "9 dimensions"},
           [](C& c) { c.spec.token_scale_shape.rank = 9; }},
          {"negative size",
           kPhase,
           kInvalid,
           {"token_scale", "dimension 1"},
           [](C& c) {
             c.spec.token_scale_shape = StridedShape::Contiguous({8, -1});
           }},
          {"slot type",
           kPhase,
           kInvalid,
           {"slots"},
           [](C& c) { c.spec.slots.dtype = DType::kFloat32; }},
      });
}

TEST(Contract, DrqData) {
  constexpr auto kPhase = Phase::kCheck;
  using C = Call<Drq>;
  static int32_t starts[2];
  const auto with_starts = [](C& c, int32_t a, int32_t b) {
    starts[0] = a;
    starts[1] = b;
    c.spec.slots.dtype = DType::kInt32;
    c.tensors.slots = starts;
  };
  ExpectAllRefused<Drq>(
      kDrqLine,
      {
          {"null x", kPhase, kNull, {"x"}, [](C& c) { c.tensors.x = nullptr; }},
          {"null weight_scale",
           kPhase,
           kNull,
           {"weight_scale"},
           [](C& c) { c.tensors.weight_scale = nullptr; }},
          {"null token scale",
           kPhase,
           kNull,
           {"token_scale"},
           [](C& c) { c.tensors.token_scale = nullptr; }},
          {"null bias", kPhase, kNull, {"bias"}, [](C& c) { c.tensors.bias = nullptr; }},
          {"null scale_k", kPhase, kNull, {"k_scale"}, [](C& c) { c.tensors.k_scale = nullptr; }},
          {"negative start",
           kPhase,
           kInvalid,
           {"slots", "element 1", "-1"},
           [=](C& c) { with_starts(c, 0, -1); }},
          {"start too late",
           kPhase,
           kInvalid,
           {"slots", "element 0", "29"},
           [=](C& c) { with_starts(c, 29, 0); }},
          {"more sequences than the cache",
           kPhase,
           kInvalid,
           {"k_cache", "batch"},
           [](C& c) { c.tokens = TokenCount(int64_t{1} << 20, 1); }},
          {"longer sequences than the cache",
           kPhase,
           kInvalid,
           {"k_cache", "33"},
           [](C& c) { c.tokens = TokenCount(1, 33); }},
          {"short token scale",
           kPhase,
           kInvalid,
           {"token_scale", "8"},
           [](C& c) { c.spec.token_scale_shape = StridedShape::Contiguous({7}); }},
      });
}

// What lies in the last token of the last sequence overlaps too, however far apart sequences are.
TEST(Contract, DrqOverlapOfTheLastToken) {
  static char memory[1 << 16];
  constexpr int64_t kToken = 4 * 64;
  constexpr int64_t kFarApart = 4096;
  const auto k_out_at = [](int64_t batch_stride, int64_t element) {
    return [=](Call<Drq>& c) {
      c.spec.q_out_strides = TokenStrides{batch_stride, kToken, 64, 1};
      c.tensors.q_out = memory + 3 * kFarApart * 2;
      c.tensors.k_out = memory + (3 * kFarApart + element) * 2;
    };
  };
  const std::vector<std::string> words = {"q_out", "overlaps k_out"};
  const auto row = [&](const char* name, const std::function<void(Call<Drq>&)>& change) {
    return Refusal<Drq>{name, Phase::kCheck, kInvalid, words, change};
  };
  ExpectAllRefused<Drq>(
      "op=drq x=int32 dtype=fp16 heads=4/1 head_dim=64 tokens=3x4 kv_output=1 layout=contiguous "
      "block_size=32",
      {row("last sequence", k_out_at(kFarApart, 2 * kFarApart)),
       row("last token", k_out_at(kFarApart, 2 * kFarApart + 4 * kToken - 64)),
       row("last token of a packed batch", k_out_at(TokenStrides::kFollows, 12 * kToken - 64)),
       row("last token, backwards", k_out_at(-kFarApart, -2 * kFarApart))});
}

TEST(Contract, DrqOverlapOfTheLastTokenScale) {
  static float scales[12 + 4 * 12 * 64];
  ExpectAllRefused<Drq>(
      "op=drq x=int32 dtype=fp16 heads=4/1 head_dim=64 tokens=3x4 kv_output=1 token_scale=1 "
      "layout=contiguous block_size=32",
      {{"k_out", Phase::kCheck, kInvalid, {"k_out", "overlaps token_scale"}, [](Call<Drq>& c) {
          c.tensors.token_scale = scales;
          c.tensors.k_out = scales + 11;
        }}});
}

TEST(Contract, DrqOverlapOfTheLastStart) {
  static int32_t starts[4 + 4 * 2 * 64];
  ExpectAllRefused<Drq>(
      "op=drq x=int32 dtype=fp16 heads=4/1 head_dim=64 tokens=4x2 kv_output=1 layout=contiguous "
      "block_size=32",
      {{"k_out", Phase::kCheck, kInvalid, {"k_out", "overlaps slots"}, [](Call<Drq>& c) {
          c.tensors.slots = starts;
          c.tensors.k_out = starts + 3;
        }}});
}

}  // namespace
}  // namespace qkvfuse::testing
