// Bind of DequantRopeQuantKvcache: every size, stride, type and address of whole tensors reaches
// its place of the Spec and of the Tensors.
#include <utility>

#include "views.h"

namespace qkvfuse::testing {
namespace {

// DRQ: 3 * 5 tokens of 4, 2 and 2 heads; everything that can be given.
struct DrqCall {
  static constexpr int64_t kDim = 64;
  const int64_t splits[3] = {4 * kDim, 2 * kDim, 2 * kDim};
  Views make;
  TensorView x = make(DType::kInt32, {3, 5, 8 * kDim});
  TensorView cos = make(kHalf, {3, 5, 1, kDim});
  TensorView sin = make(kHalf, {3, 5, 1, kDim});
  TensorView k_cache = make(kCode, {7, 11, 2, kDim});
  TensorView v_cache = make(kCode, {7, 11, 2, kDim});
  TensorView indices = make(DType::kInt32, {3});
  TensorView scale_k = make(kFloat, {2 * kDim});
  TensorView scale_v = make(kFloat, {2, kDim});
  TensorView offset_k = make(kFloat, {1, 2 * kDim});
  TensorView offset_v = make(kFloat, {2 * kDim});
  TensorView weight_scale = make(kFloat, {8 * kDim});
  TensorView activation_scale = make(kFloat, {15});
  TensorView bias = make(DType::kBFloat16, {8 * kDim});
  TensorView q_out = make(kHalf, {3, 5, 4, kDim});
  TensorView k_out = make(kHalf, {3, 5, 2, kDim});
  TensorView v_out = make(kHalf, {3, 5, 2, kDim});

  DequantRopeQuantKvcacheArguments Arguments() {
    DequantRopeQuantKvcacheArguments arguments;
    arguments.x = &x;
    arguments.cos = &cos;
    arguments.sin = &sin;
    arguments.k_cache = &k_cache;
    arguments.v_cache = &v_cache;
    arguments.indices = &indices;
    arguments.scale_k = &scale_k;
    arguments.scale_v = &scale_v;
    arguments.offset_k = &offset_k;
    arguments.offset_v = &offset_v;
    arguments.weight_scale = &weight_scale;
    arguments.activation_scale = &activation_scale;
    arguments.bias = &bias;
    arguments.q_out = &q_out;
    arguments.k_out = &k_out;
    arguments.v_out = &v_out;
    arguments.size_splits = {splits, 3};
    arguments.kv_output = true;
    return arguments;
  }

  DequantRopeQuantKvcacheSpec Spec() const {
    DequantRopeQuantKvcacheSpec spec;
    spec.x_dtype = DType::kInt32;
    spec.dtype = kHalf;
    spec.heads = {4, 2, 2};
    spec.head_dim = kDim;
    spec.k_cache = {kCode, RowsOfHeads(k_cache), true, scale_k.shape, offset_k.shape};
    spec.v_cache = {kCode, RowsOfHeads(v_cache), true, scale_v.shape, offset_v.shape};
    spec.slots = {SlotMode::kStartPerSequence, DType::kInt32, indices.shape.strides[0]};
    spec.kv_output = true;
    spec.has_token_scale = true;
    spec.bias = DType::kBFloat16;
    const auto& strides = x.shape.strides;
    spec.x_strides = TokenStrides{strides[0], strides[1], kDim * strides[2], strides[2]};
    spec.cos_strides = Rows(cos);
    spec.sin_strides = Rows(sin);
    spec.q_out_strides = Rows(q_out);
    spec.k_out_strides = Rows(k_out);
    spec.v_out_strides = Rows(v_out);
    spec.weight_scale_shape = weight_scale.shape;
    spec.token_scale_shape = activation_scale.shape;
    spec.bias_shape = bias.shape;
    return spec;
  }

  Tensors Pointers() const {
    Tensors tensors;
    tensors.x = x.data;
    tensors.cos = cos.data;
    tensors.sin = sin.data;
    tensors.slots = indices.data;
    tensors.k_scale = scale_k.data;
    tensors.v_scale = scale_v.data;
    tensors.k_offset = offset_k.data;
    tensors.v_offset = offset_v.data;
    tensors.weight_scale = weight_scale.data;
    tensors.token_scale = activation_scale.data;
    tensors.bias = bias.data;
    tensors.q_out = q_out.data;
    tensors.k_out = k_out.data;
    tensors.v_out = v_out.data;
    tensors.k_cache = k_cache.data;
    tensors.v_cache = v_cache.data;
    return tensors;
  }
};

void ExpectBinds(const DequantRopeQuantKvcacheArguments& arguments,
                 const DequantRopeQuantKvcacheSpec& spec, const Tensors& tensors,
                 const char* layout) {
  ExpectBound(arguments, {NameStyle::kCamelCase}, spec, tensors, {3, 5}, layout);
}

TEST(BindDrq, Sequences) {
  DrqCall drq;
  for (const char* mode : {static_cast<const char*>(nullptr), "contiguous", "CONTIGUOUS"}) {
    DequantRopeQuantKvcacheArguments arguments = drq.Arguments();
    arguments.cache_mode = mode;
    ExpectBinds(arguments, drq.Spec(), drq.Pointers(), "contiguous BSND");
  }
}

TEST(BindDrq, PagesAndNothingOptional) {
  DrqCall drq;
  drq.x = drq.make(kHalf, {3, 5, 8 * drq.kDim});
  drq.indices = drq.make(DType::kInt32, {15});
  DequantRopeQuantKvcacheArguments arguments = drq.Arguments();
  arguments.cache_mode = "Page";
  arguments.offset_k = arguments.offset_v = nullptr;
  arguments.kv_output = false;  // the outputs and what dequantises are then ignored
  DequantRopeQuantKvcacheSpec spec = drq.Spec();
  spec.x_dtype = kHalf;
  spec.slots.mode = SlotMode::kSlotPerToken;
  for (CacheSpec* cache : {&spec.k_cache, &spec.v_cache}) {
    cache->has_offset = false;
    cache->offset_shape = {};
  }
  spec.kv_output = spec.has_token_scale = false;
  spec.bias.reset();
  spec.k_out_strides.reset();
  spec.v_out_strides.reset();
  spec.weight_scale_shape = spec.token_scale_shape = spec.bias_shape = {};
  Tensors tensors = drq.Pointers();
  tensors.k_offset = tensors.v_offset = nullptr;
  tensors.weight_scale = tensors.token_scale = tensors.bias = nullptr;
  tensors.k_out = tensors.v_out = nullptr;
  const auto& strides = drq.x.shape.strides;
  spec.x_strides = TokenStrides{strides[0], strides[1], drq.kDim * strides[2], strides[2]};
  spec.slots.stride = drq.indices.shape.strides[0];
  ExpectBinds(arguments, spec, tensors, "paged NHD");
}

// Two dimensions: every token is a sequence of its own.
TEST(BindDrq, SequencesOfOneToken) {
  DrqCall drq;
  drq.x = drq.make(DType::kInt32, {3, 8 * drq.kDim});
  drq.cos = drq.make(kHalf, {3, drq.kDim});
  drq.sin = drq.make(kHalf, {3, drq.kDim});
  drq.q_out = drq.make(kHalf, {3, 4, drq.kDim});
  drq.k_out = drq.make(kHalf, {3, 2, drq.kDim});
  drq.v_out = drq.make(kHalf, {3, 2, drq.kDim});
  const auto call = Bind(drq.Arguments(), {});
  ASSERT_TRUE(call.ok()) << call.status().message();
  EXPECT_EQ(call->tokens.batch, 3);
  EXPECT_EQ(call->tokens.sequence, 1);
  const auto heads = [](const TensorView& view) {
    const auto& strides = view.shape.strides;
    return TokenStrides{strides[0], strides[0], strides[1], strides[2]};
  };
  EXPECT_EQ(call->spec.q_out_strides, heads(drq.q_out));
  EXPECT_EQ(call->spec.k_out_strides, heads(drq.k_out));
  EXPECT_EQ(call->spec.v_out_strides, heads(drq.v_out));
  const auto& x = drq.x.shape.strides;
  EXPECT_EQ(call->spec.x_strides, (TokenStrides{x[0], x[0], drq.kDim * x[1], x[1]}));
  for (const auto& [found, view] :
       {std::pair{call->spec.cos_strides, drq.cos}, {call->spec.sin_strides, drq.sin}}) {
    EXPECT_EQ(found->batch, view.shape.strides[0]);
    EXPECT_EQ(found->token, view.shape.strides[0]);
    EXPECT_EQ(found->channel, view.shape.strides[1]);
  }
}

// A view of rank 0 has one element, which a Spec of rank 0 does not say.
TEST(BindDrq, ParameterOfOneElement) {
  DrqCall drq;
  drq.x = drq.make(DType::kInt32, {1, 1, 8 * drq.kDim});
  drq.cos = drq.make(kHalf, {1, 1, 1, drq.kDim});
  drq.sin = drq.make(kHalf, {1, 1, 1, drq.kDim});
  drq.indices = drq.make(DType::kInt32, {1});
  drq.q_out = drq.make(kHalf, {1, 1, 4, drq.kDim});
  drq.activation_scale = drq.make(kFloat, {});
  DequantRopeQuantKvcacheArguments arguments = drq.Arguments();
  arguments.kv_output = false;
  const auto call = Bind(arguments, {});
  ASSERT_TRUE(call.ok()) << call.status().message();
  EXPECT_EQ(call->spec.token_scale_shape, StridedShape::Contiguous({1}));
}

using DrqMember = const TensorView* DequantRopeQuantKvcacheArguments::*;
constexpr std::pair<const char*, DrqMember> kMembers[] = {
    {"x", &DequantRopeQuantKvcacheArguments::x},
    {"cos", &DequantRopeQuantKvcacheArguments::cos},
    {"sin", &DequantRopeQuantKvcacheArguments::sin},
    {"k_cache", &DequantRopeQuantKvcacheArguments::k_cache},
    {"v_cache", &DequantRopeQuantKvcacheArguments::v_cache},
    {"indices", &DequantRopeQuantKvcacheArguments::indices},
    {"scale_k", &DequantRopeQuantKvcacheArguments::scale_k},
    {"scale_v", &DequantRopeQuantKvcacheArguments::scale_v},
    {"offset_k", &DequantRopeQuantKvcacheArguments::offset_k},
    {"offset_v", &DequantRopeQuantKvcacheArguments::offset_v},
    {"weight_scale", &DequantRopeQuantKvcacheArguments::weight_scale},
    {"activation_scale", &DequantRopeQuantKvcacheArguments::activation_scale},
    {"bias", &DequantRopeQuantKvcacheArguments::bias},
    {"q_out", &DequantRopeQuantKvcacheArguments::q_out},
    {"k_out", &DequantRopeQuantKvcacheArguments::k_out},
    {"v_out", &DequantRopeQuantKvcacheArguments::v_out},
};

TEST(BindDrq, RefusesSizesThatAreTooLarge) {
  DrqCall tokens;
  tokens.x.shape.dims[0] = int64_t{1} << 32;
  ExpectRefused(tokens.Arguments(), "x: shape is [4294967296, 5, ");
  tokens.x.shape.dims[0] = int64_t{1} << 62;
  ExpectRefused(tokens.Arguments(), "x: shape is [4611686018427387904, 5, ");
  DrqCall scale;
  scale.scale_k = scale.make(kFloat, {1, 1});
  scale.scale_k.shape.dims[0] = scale.scale_k.shape.dims[1] = int64_t{1} << 40;
  ExpectRefused(scale.Arguments(), "scale_k: shape [1099511627776, 1099511627776] has more than");
}

TEST(BindDrq, RefusesOddViewsByName) {
  DrqCall drq;
  ExpectOddViewsRefused(drq.Arguments(), kMembers);
}

}  // namespace
}  // namespace qkvfuse::testing
