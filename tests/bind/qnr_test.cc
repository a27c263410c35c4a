// Bind of QkvRmsNormRopeCache: every size, stride, type and address of whole tensors reaches
// its place of the Spec and of the Tensors.
#include <utility>

#include "views.h"

namespace qkvfuse::testing {
namespace {

// QNR: 3 * 5 tokens of 4, 2 and 2 heads.
struct QnrCall {
  static constexpr int64_t kDim = 64;
  static constexpr int64_t kTokens = 15;
  const int64_t size[4] = {3, 5, 8, kDim};
  const int64_t heads[3] = {4, 2, 2};
  Views make;
  TensorView qkv = make(kHalf, {kTokens, 8 * kDim});
  TensorView q_gamma = make(kHalf, {kDim});
  TensorView k_gamma = make(kHalf, {kDim});
  TensorView cos = make(kHalf, {kTokens, kDim});
  TensorView sin = make(kHalf, {kTokens, kDim});
  TensorView index = make(DType::kInt64, {kTokens});
  TensorView q_out = make(kHalf, {kTokens, 4 * kDim});
  TensorView k_cache = make(kCode, {7, 2 * kDim / 32, 11, 32});
  TensorView v_cache = make(kHalf, {7, 2 * kDim / 16, 11, 16});
  TensorView k_scale = make(kFloat, {2, kDim});
  TensorView v_scale = make(kFloat, {2, kDim});
  TensorView k_offset = make(kFloat, {2, kDim});
  TensorView v_offset = make(kFloat, {2, kDim});
  TensorView q_before = make(kHalf, {kTokens, 4 * kDim});
  TensorView k_before = make(kHalf, {kTokens, 2 * kDim});
  TensorView v_before = make(kHalf, {kTokens, 2 * kDim});

  QkvRmsNormRopeCacheArguments Arguments() {
    QkvRmsNormRopeCacheArguments arguments;
    arguments.qkv = &qkv;
    arguments.q_gamma = &q_gamma;
    arguments.k_gamma = &k_gamma;
    arguments.cos = &cos;
    arguments.sin = &sin;
    arguments.index = &index;
    arguments.q_out = &q_out;
    arguments.k_cache = &k_cache;
    arguments.v_cache = &v_cache;
    arguments.k_scale = &k_scale;
    arguments.k_offset = &k_offset;
    arguments.qkv_size = {size, 4};
    arguments.head_nums = {heads, 3};
    arguments.epsilon = 0.125;
    return arguments;
  }

  QkvRmsNormRopeCacheSpec Spec() const {
    QkvRmsNormRopeCacheSpec spec;
    spec.dtype = kHalf;
    spec.heads = {4, 2, 2};
    spec.head_dim = kDim;
    spec.epsilon = 0.125;
    spec.slots = {SlotMode::kSlotPerToken, DType::kInt64, index.shape.strides[0]};
    spec.qkv_strides = Packed(qkv, kDim);
    spec.cos_strides = Packed(cos, kDim);
    spec.sin_strides = Packed(sin, kDim);
    spec.q_out_strides = Packed(q_out, kDim);
    spec.q_gamma_shape = q_gamma.shape;
    spec.k_gamma_shape = k_gamma.shape;
    spec.k_cache = {kCode, Pieces(k_cache, kDim / 32), true, k_scale.shape, k_offset.shape};
    spec.v_cache = {kHalf, Pieces(v_cache, kDim / 16)};
    return spec;
  }

  Tensors Pointers() const {
    Tensors tensors;
    tensors.x = qkv.data;
    tensors.q_gamma = q_gamma.data;
    tensors.k_gamma = k_gamma.data;
    tensors.cos = cos.data;
    tensors.sin = sin.data;
    tensors.slots = index.data;
    tensors.k_scale = k_scale.data;
    tensors.k_offset = k_offset.data;
    tensors.q_out = q_out.data;
    tensors.k_cache = k_cache.data;
    tensors.v_cache = v_cache.data;
    return tensors;
  }
};

void ExpectBinds(const QkvRmsNormRopeCacheArguments& arguments, const QkvRmsNormRopeCacheSpec& spec,
                 const Tensors& tensors, const char* layout) {
  DoorRules rules;
  rules.any_layout = true;
  rules.names = NameStyle::kMember;
  // The sequences of a batch follow each other.
  ExpectBound(arguments, rules, spec, tensors, QnrCall::kTokens, layout);
}

TEST(BindQnr, OneQuantisedCache) {
  QnrCall qnr;
  for (const char* mode : {static_cast<const char*>(nullptr), "PA_NZ"}) {
    QkvRmsNormRopeCacheArguments arguments = qnr.Arguments();
    arguments.cache_mode = mode;
    ExpectBinds(arguments, qnr.Spec(), qnr.Pointers(), "PA_NZ");
  }
}

TEST(BindQnr, BothQuantisedAndBeforeQuant) {
  QnrCall qnr;
  qnr.v_cache = qnr.make(kCode, {7, 2 * qnr.kDim / 32, 11, 32});
  QkvRmsNormRopeCacheArguments arguments = qnr.Arguments();
  arguments.v_scale = &qnr.v_scale;
  arguments.v_offset = &qnr.v_offset;
  arguments.k_offset = nullptr;
  arguments.q_out_before_quant = &qnr.q_before;
  arguments.k_out_before_quant = &qnr.k_before;
  arguments.v_out_before_quant = &qnr.v_before;
  QkvRmsNormRopeCacheSpec spec = qnr.Spec();
  spec.k_cache.has_offset = false;
  spec.k_cache.offset_shape = {};
  spec.v_cache = {kCode, Pieces(qnr.v_cache, qnr.kDim / 32), true, qnr.v_scale.shape,
                  qnr.v_offset.shape};
  spec.before_quant = true;
  spec.q_before_quant_strides = Packed(qnr.q_before, qnr.kDim);
  spec.k_out_strides = Packed(qnr.k_before, qnr.kDim);
  spec.v_out_strides = Packed(qnr.v_before, qnr.kDim);
  Tensors tensors = qnr.Pointers();
  tensors.k_offset = nullptr;
  tensors.v_scale = qnr.v_scale.data;
  tensors.v_offset = qnr.v_offset.data;
  tensors.q_before_quant = qnr.q_before.data;
  tensors.k_out = qnr.k_before.data;
  tensors.v_out = qnr.v_before.data;
  ExpectBinds(arguments, spec, tensors, "PA_NZ");
}

TEST(BindQnr, RowsOfHeads) {
  QnrCall qnr;
  qnr.k_cache = qnr.make(kCode, {7, 11, 2, qnr.kDim});
  qnr.v_cache = qnr.make(kHalf, {7, 11, 2, qnr.kDim});
  QkvRmsNormRopeCacheSpec spec = qnr.Spec();
  spec.k_cache.layout = RowsOfHeads(qnr.k_cache);
  spec.v_cache.layout = RowsOfHeads(qnr.v_cache);
  for (const auto& [mode, layout] : {std::pair{"PA", "paged NHD"}, {"Norm", "contiguous BSND"}}) {
    QkvRmsNormRopeCacheArguments arguments = qnr.Arguments();
    arguments.cache_mode = mode;
    ExpectBinds(arguments, spec, qnr.Pointers(), layout);
  }
}

using QnrMember = const TensorView* QkvRmsNormRopeCacheArguments::*;
constexpr std::pair<const char*, QnrMember> kMembers[] = {
    {"qkv", &QkvRmsNormRopeCacheArguments::qkv},
    {"q_gamma", &QkvRmsNormRopeCacheArguments::q_gamma},
    {"k_gamma", &QkvRmsNormRopeCacheArguments::k_gamma},
    {"cos", &QkvRmsNormRopeCacheArguments::cos},
    {"sin", &QkvRmsNormRopeCacheArguments::sin},
    {"index", &QkvRmsNormRopeCacheArguments::index},
    {"q_out", &QkvRmsNormRopeCacheArguments::q_out},
    {"k_cache", &QkvRmsNormRopeCacheArguments::k_cache},
    {"v_cache", &QkvRmsNormRopeCacheArguments::v_cache},
    {"k_scale", &QkvRmsNormRopeCacheArguments::k_scale},
    {"v_scale", &QkvRmsNormRopeCacheArguments::v_scale},
    {"k_offset", &QkvRmsNormRopeCacheArguments::k_offset},
    {"v_offset", &QkvRmsNormRopeCacheArguments::v_offset},
    {"q_out_before_quant", &QkvRmsNormRopeCacheArguments::q_out_before_quant},
    {"k_out_before_quant", &QkvRmsNormRopeCacheArguments::k_out_before_quant},
    {"v_out_before_quant", &QkvRmsNormRopeCacheArguments::v_out_before_quant},
};

TEST(BindQnr, RefusesStridesWhoseProductsDoNotFit) {
  constexpr int64_t kFar = int64_t{1} << 62;
  QnrCall channels;
  channels.qkv.shape.strides[1] = kFar;
  ExpectRefused(channels.Arguments(), "qkv: stride 4611686018427387904 of its last dimension");
  QnrCall pieces;
  pieces.k_cache.shape.strides[1] = kFar;
  ExpectRefused(pieces.Arguments(), "k_cache: stride 4611686018427387904 of its dimension 1");
}

TEST(BindQnr, RefusesOddViewsByName) {
  QnrCall qnr;
  QkvRmsNormRopeCacheArguments arguments = qnr.Arguments();
  arguments.v_scale = &qnr.v_scale;
  arguments.v_offset = &qnr.v_offset;
  arguments.q_out_before_quant = &qnr.q_before;
  arguments.k_out_before_quant = &qnr.k_before;
  arguments.v_out_before_quant = &qnr.v_before;
  ExpectOddViewsRefused(arguments, kMembers);
}

}  // namespace
}  // namespace qkvfuse::testing
