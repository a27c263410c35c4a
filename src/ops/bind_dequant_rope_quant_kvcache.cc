// DequantRopeQuantKvcache: from whole tensors, as array libraries and the aclnn door hold them, to
// a Spec. Checks everything that needs no tensor data.

#include "base/checked_math.h"
#include "base/fp_environment.h"
#include "base/message.h"
#include "ops/dequant_rope_quant_kvcache_names.h"
#include "qkvfuse/dequant_rope_quant_kvcache.hpp"

namespace qkvfuse {
namespace {

using namespace drq;  // NOLINT(google-build-using-namespace): the argument names

using Spec = DequantRopeQuantKvcacheSpec;
using Arguments = DequantRopeQuantKvcacheArguments;

constexpr int64_t kDeviceHeadDimMultiple = 16;

class Binder {
 public:
  Binder(const Arguments& arguments, const DoorRules& rules) : a_(arguments), rules_(rules) {}

  Result<BoundCall<Spec>> Bind() {
    using Step = Status (Binder::*)();
    for (const Step step :
         {&Binder::CheckRequired, &Binder::CheckWords, &Binder::BindX, &Binder::BindSizes,
          &Binder::BindTables, &Binder::BindCaches, &Binder::BindSlots, &Binder::BindQuantisation,
          &Binder::BindDequantisation, &Binder::BindOutputs}) {
      Status status = (this->*step)();
      if (!status.ok()) return status;
    }
    call_.names = rules_.names;
    return call_;
  }

 private:
  [[nodiscard]] const char* Text(const ArgumentName& name) const { return name.In(rules_.names); }
  [[nodiscard]] Argument Of(const TensorView* view, const ArgumentName& name) const {
    return {view, Text(name)};
  }

  Status CheckRequired() {
    Status form = CheckRanksAndStrides(
        {Of(a_.x, kX), Of(a_.cos, kCos), Of(a_.sin, kSin), Of(a_.k_cache, kKCache),
         Of(a_.v_cache, kVCache), Of(a_.indices, kIndices), Of(a_.scale_k, kScaleK),
         Of(a_.scale_v, kScaleV), Of(a_.offset_k, kOffsetK), Of(a_.offset_v, kOffsetV),
         Of(a_.weight_scale, kWeightScale), Of(a_.activation_scale, kActivationScale),
         Of(a_.bias, kBias), Of(a_.q_out, kQOut), Of(a_.k_out, kKOut), Of(a_.v_out, kVOut)});
    for (const Argument& argument :
         {Of(a_.x, kX), Of(a_.cos, kCos), Of(a_.sin, kSin), Of(a_.k_cache, kKCache),
          Of(a_.v_cache, kVCache), Of(a_.indices, kIndices), Of(a_.scale_k, kScaleK),
          Of(a_.scale_v, kScaleV), Of(a_.q_out, kQOut)}) {
      Status status = CheckPresent(argument);
      if (!status.ok()) return status;
    }
    Status status = CheckPresent(a_.size_splits, Text(kSizeSplits));
    if (status.ok() && a_.kv_output) status = CheckPresent(Of(a_.k_out, kKOut));
    if (status.ok() && a_.kv_output) status = CheckPresent(Of(a_.v_out, kVOut));
    return status.ok() ? form : status;
  }

  Status CheckWords() {
    constexpr bool kCaseSensitive = false;
    Status status = CheckWord(a_.quant_mode, Text(kQuantMode), {"static"}, kCaseSensitive);
    if (status.ok()) status = CheckWord(a_.layout, Text(kLayout), {"BSND"}, kCaseSensitive);
    if (!status.ok()) return status;
    is_paged_ = a_.cache_mode != nullptr && EqualsIgnoringCase(a_.cache_mode, "page");
    return CheckWord(a_.cache_mode, Text(kCacheMode), {"contiguous", "page"}, kCaseSensitive);
  }

  Status BindX() {
    const Argument x = Of(a_.x, kX);
    Status status = CheckDType(x, {DType::kFloat16, DType::kBFloat16, DType::kInt32});
    if (!status.ok()) return status;
    const StridedShape& shape = x.view->shape;
    if (shape.rank != 2 && shape.rank != 3) {
      return Invalid(x.name, ": shape is ", ShapeText(shape), ", must have 2 or 3 dimensions");
    }
    batch_ = shape.dims[0];
    sequence_ = shape.rank == 3 ? shape.dims[1] : 1;
    int64_t tokens = 0;
    const int64_t least = rules_.device_limits ? 1 : 0;
    if (batch_ < least || sequence_ < least || !CheckedMul(batch_, sequence_, &tokens)) {
      return Invalid(x.name, ": shape is ", ShapeText(shape), ", must have at least one token");
    }
    if (tokens > kMaxTokens) {
      return Invalid(x.name, ": shape is ", ShapeText(shape), ", must have at most ", kMaxTokens,
                     " tokens");
    }
    call_.tokens = TokenCount(batch_, sequence_);
    call_.spec.x_dtype = x.view->dtype;
    call_.tensors.x = x.view->data;
    return {};
  }

  Status BindSizes() {
    const char* const name = Text(kSizeSplits);
    Status status = CheckIntegers(a_.size_splits, name, 3);
    if (status.ok()) status = CheckRank(Of(a_.k_cache, kKCache), 4);
    if (!status.ok()) return status;
    const int64_t* const splits = a_.size_splits.data;
    const int64_t head_dim = a_.k_cache->shape.dims[3];
    if (head_dim < 2 || head_dim % 2 != 0 ||
        (rules_.device_limits && head_dim % kDeviceHeadDimMultiple != 0)) {
      return Invalid(Text(kKCache), ": head_dim, its last dimension, is ", head_dim, ", must be ",
                     rules_.device_limits ? "a multiple of 16" : "even");
    }
    if (splits[1] != splits[2]) {
      return Invalid(name, ": k is ", splits[1], " and v is ", splits[2], ", must be equal");
    }
    if (splits[0] % head_dim != 0 || splits[1] % head_dim != 0) {
      return Invalid(name, ": is [", splits[0], ", ", splits[1], ", ", splits[2],
                     "], must be multiples of head_dim ", head_dim);
    }
    call_.spec.head_dim = head_dim;
    call_.spec.heads = {splits[0] / head_dim, splits[1] / head_dim, splits[1] / head_dim};
    status = CheckHeads(call_.spec.heads, name, head_dim, Text(kKCache));
    return status.ok() ? BindXRows() : status;
  }

  /// CheckShape for [B, S, rest...] of a 3-D x or [B, rest...] of a 2-D one.
  Status CheckTokenShape(const Argument& argument, std::initializer_list<int64_t> with_sequence,
                         std::initializer_list<int64_t> without) {
    return CheckShape(argument, a_.x->shape.rank == 3 ? with_sequence : without);
  }

  Status BindXRows() {
    const Argument x = Of(a_.x, kX);
    const int64_t channels = call_.spec.heads.total() * call_.spec.head_dim;
    Status status = CheckTokenShape(x, {batch_, sequence_, channels}, {batch_, channels});
    if (!status.ok()) return status;
    status = PackedRowStrides(x, call_.spec.head_dim, &call_.spec.x_strides.emplace());
    if (x.view->shape.rank == 2) call_.spec.x_strides->batch = call_.spec.x_strides->token;
    return status;
  }

  /// Strides of [B, S, heads, D] or [B, heads, D].
  [[nodiscard]] TokenStrides HeadStrides(const StridedShape& shape) const {
    const auto channel = static_cast<size_t>(shape.rank - 1);
    TokenStrides strides;
    strides.batch = shape.strides[0];
    strides.token = shape.rank == 2 ? shape.strides[0] : shape.strides[channel - 2];
    strides.head = shape.strides[channel - 1];
    strides.channel = shape.strides[channel];
    return strides;
  }

  Status BindTable(const Argument& argument, std::optional<TokenStrides>* strides) {
    const int64_t head_dim = call_.spec.head_dim;
    Status status = CheckDType(argument, {call_.spec.dtype});
    if (status.ok()) {
      status = CheckTokenShape(argument, {batch_, sequence_, 1, head_dim}, {batch_, head_dim});
    }
    if (status.ok()) *strides = HeadStrides(argument.view->shape);
    return status;
  }

  Status BindTables() {
    const Argument cos = Of(a_.cos, kCos);
    const bool is_dequantised = a_.x->dtype == DType::kInt32;
    Status status = is_dequantised ? CheckDType(cos, {DType::kFloat16, DType::kBFloat16})
                                   : CheckDType(cos, {a_.x->dtype});
    if (!status.ok()) return status;
    call_.spec.dtype = cos.view->dtype;
    call_.tensors.cos = a_.cos->data;
    call_.tensors.sin = a_.sin->data;
    status = BindTable(cos, &call_.spec.cos_strides);
    return status.ok() ? BindTable(Of(a_.sin, kSin), &call_.spec.sin_strides) : status;
  }

  Status BindCache(const Argument& argument, CacheSpec* cache) {
    const StridedShape& shape = a_.k_cache->shape;
    Status status =
        CheckTensor(argument, DType::kInt8,
                    {shape.dims[0], shape.dims[1], call_.spec.heads.k, call_.spec.head_dim});
    if (!status.ok()) return status;
    CacheLayout layout;
    layout.name = is_paged_ ? "paged NHD" : "contiguous BSND";
    layout.blocks = shape.dims[0];
    layout.block_size = shape.dims[1];
    const auto& strides = argument.view->shape.strides;
    layout.block_stride = strides[0];
    layout.row_stride = strides[1];
    layout.head_stride = strides[2];
    layout.channel_stride = strides[3];
    cache->layout = layout;
    return {};
  }

  Status BindCaches() {
    call_.tensors.k_cache = a_.k_cache->data;
    call_.tensors.v_cache = a_.v_cache->data;
    Status status = BindCache(Of(a_.k_cache, kKCache), &call_.spec.k_cache);
    return status.ok() ? BindCache(Of(a_.v_cache, kVCache), &call_.spec.v_cache) : status;
  }

  Status BindSlots() {
    const Argument indices = Of(a_.indices, kIndices);
    call_.spec.slots = {is_paged_ ? SlotMode::kSlotPerToken : SlotMode::kStartPerSequence,
                        DType::kInt32, indices.view->shape.strides[0]};
    call_.tensors.slots = indices.view->data;
    return CheckTensor(indices, DType::kInt32,
                       {is_paged_ ? call_.tokens.total() : call_.tokens.batch});
  }

  Status BindParameter(const Argument& argument, int64_t count, StridedShape* shape) {
    Status status = CheckDType(argument, {DType::kFloat32});
    if (status.ok()) status = CheckElementCount(argument, count, /*at_least=*/false);
    *shape = WithRank(argument.view->shape);
    return status;
  }

  /// A view of rank 0 has one element; rank 0 in a Spec would stand for "contiguous".
  [[nodiscard]] static StridedShape WithRank(const StridedShape& shape) {
    return shape.rank == 0 ? StridedShape::Contiguous({1}) : shape;
  }

  Status BindQuantisation() {
    const int64_t count = call_.spec.heads.k * call_.spec.head_dim;
    CacheSpec& k = call_.spec.k_cache;
    CacheSpec& v = call_.spec.v_cache;
    k.has_offset = a_.offset_k != nullptr;
    v.has_offset = a_.offset_v != nullptr;
    Status status = BindParameter(Of(a_.scale_k, kScaleK), count, &k.scale_shape);
    if (status.ok()) status = BindParameter(Of(a_.scale_v, kScaleV), count, &v.scale_shape);
    if (status.ok() && k.has_offset) {
      status = BindParameter(Of(a_.offset_k, kOffsetK), count, &k.offset_shape);
    }
    if (status.ok() && v.has_offset) {
      status = BindParameter(Of(a_.offset_v, kOffsetV), count, &v.offset_shape);
    }
    if (!status.ok()) return status;
    Tensors& tensors = call_.tensors;
    tensors.k_scale = a_.scale_k->data;
    tensors.v_scale = a_.scale_v->data;
    tensors.k_offset = k.has_offset ? a_.offset_k->data : nullptr;
    tensors.v_offset = v.has_offset ? a_.offset_v->data : nullptr;
    return {};
  }

  Status BindDequantisation() {
    // For a 16-bit x the three are accepted, ignored and not checked, as upstream.
    if (a_.x->dtype != DType::kInt32) return {};
    Spec& spec = call_.spec;
    const int64_t channels = spec.heads.total() * spec.head_dim;
    const Argument weight_scale = Of(a_.weight_scale, kWeightScale);
    if (weight_scale.view == nullptr) {
      return Invalid(weight_scale.name, ": is absent, an int32 x needs it");
    }
    Status status = CheckDType(weight_scale, {DType::kFloat32});
    if (status.ok()) status = CheckElementCount(weight_scale, channels, /*at_least=*/true);
    if (!status.ok()) return status;
    spec.weight_scale_shape = WithRank(weight_scale.view->shape);
    call_.tensors.weight_scale = weight_scale.view->data;
    const Argument token_scale = Of(a_.activation_scale, kActivationScale);
    if (token_scale.view != nullptr) {
      status = CheckDType(token_scale, {DType::kFloat32});
      if (status.ok()) {
        status = CheckElementCount(token_scale, call_.tokens.total(), /*at_least=*/true);
      }
      if (!status.ok()) return status;
      spec.has_token_scale = true;
      spec.token_scale_shape = WithRank(token_scale.view->shape);
      call_.tensors.token_scale = token_scale.view->data;
    }
    return BindBias(channels);
  }

  Status BindBias(int64_t channels) {
    const Argument bias = Of(a_.bias, kBias);
    if (bias.view == nullptr) return {};
    Status status =
        CheckDType(bias, {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32});
    if (status.ok()) status = CheckElementCount(bias, channels, /*at_least=*/true);
    call_.spec.bias = bias.view->dtype;
    call_.spec.bias_shape = WithRank(bias.view->shape);
    call_.tensors.bias = bias.view->data;
    return status;
  }

  Status BindDense(const Argument& argument, int64_t heads, std::optional<TokenStrides>* strides) {
    const int64_t head_dim = call_.spec.head_dim;
    Status status = CheckDType(argument, {call_.spec.dtype});
    if (status.ok()) {
      status = CheckTokenShape(argument, {batch_, sequence_, heads, head_dim},
                               {batch_, heads, head_dim});
    }
    if (status.ok()) *strides = HeadStrides(argument.view->shape);
    return status;
  }

  Status BindOutputs() {
    Spec& spec = call_.spec;
    call_.tensors.q_out = a_.q_out->data;
    Status status = BindDense(Of(a_.q_out, kQOut), spec.heads.q, &spec.q_out_strides);
    spec.kv_output = a_.kv_output;
    if (!status.ok() || !a_.kv_output) return status;
    call_.tensors.k_out = a_.k_out->data;
    call_.tensors.v_out = a_.v_out->data;
    status = BindDense(Of(a_.k_out, kKOut), spec.heads.k, &spec.k_out_strides);
    return status.ok() ? BindDense(Of(a_.v_out, kVOut), spec.heads.v, &spec.v_out_strides) : status;
  }

  const Arguments& a_;
  const DoorRules& rules_;
  int64_t batch_ = 0;
  int64_t sequence_ = 0;
  bool is_paged_ = false;
  BoundCall<Spec> call_;
};

}  // namespace

Result<BoundCall<DequantRopeQuantKvcacheSpec>> Bind(
    const DequantRopeQuantKvcacheArguments& arguments, const DoorRules& rules) noexcept try {
  const ScopedFpEnvironment environment;
  return Binder(arguments, rules).Bind();
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

}  // namespace qkvfuse
