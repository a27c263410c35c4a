// QkvRmsNormRopeCache: from whole tensors, as array libraries and the aclnn door hold them, to a
// Spec. Checks everything that needs no tensor data.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/checked_math.h"
#include "base/fp_environment.h"
#include "base/message.h"
#include "ops/qkv_rms_norm_rope_cache_names.h"
#include "qkvfuse/qkv_rms_norm_rope_cache.hpp"

namespace qkvfuse {
namespace {

using namespace qnr;  // NOLINT(google-build-using-namespace): the argument names

using Spec = QkvRmsNormRopeCacheSpec;
using Arguments = QkvRmsNormRopeCacheArguments;

constexpr int64_t kDeviceHeadDim = 128;

/// Sizes of a call, from qkvSize and headNums.
struct Sizes {
  int64_t batch, sequence, tokens;
  HeadCounts heads;
  int64_t head_dim;
};

class Binder {
 public:
  Binder(const Arguments& arguments, const DoorRules& rules) : a_(arguments), rules_(rules) {}

  Result<BoundCall<Spec>> Bind() {
    using Step = Status (Binder::*)();
    for (const Step step :
         {&Binder::CheckRequired, &Binder::BindSizes, &Binder::BindMode, &Binder::BindInputs,
          &Binder::BindOutput, &Binder::BindCaches, &Binder::BindBeforeQuant}) {
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
        {Of(a_.qkv, kQkv), Of(a_.q_gamma, kQGamma), Of(a_.k_gamma, kKGamma), Of(a_.cos, kCos),
         Of(a_.sin, kSin), Of(a_.index, kIndex), Of(a_.q_out, kQOut), Of(a_.k_cache, kKCache),
         Of(a_.v_cache, kVCache), Of(a_.k_scale, kKScale), Of(a_.v_scale, kVScale),
         Of(a_.k_offset, kKOffset), Of(a_.v_offset, kVOffset), Of(a_.q_out_before_quant, kQBefore),
         Of(a_.k_out_before_quant, kKBefore), Of(a_.v_out_before_quant, kVBefore)});
    for (const Argument& argument :
         {Of(a_.qkv, kQkv), Of(a_.q_gamma, kQGamma), Of(a_.k_gamma, kKGamma), Of(a_.cos, kCos),
          Of(a_.sin, kSin), Of(a_.index, kIndex), Of(a_.q_out, kQOut), Of(a_.k_cache, kKCache),
          Of(a_.v_cache, kVCache)}) {
      Status status = CheckPresent(argument);
      if (!status.ok()) return status;
    }
    Status status = CheckPresent(a_.qkv_size, Text(kQkvSize));
    if (status.ok()) status = CheckPresent(a_.head_nums, Text(kHeadNums));
    return status.ok() ? form : status;
  }

  Status BindSizes() {
    const int64_t zeros = rules_.device_limits ? 0 : 2;  // no sequences, or no tokens
    Status status = CheckIntegers(a_.qkv_size, Text(kQkvSize), 4, zeros);
    if (status.ok()) status = CheckIntegers(a_.head_nums, Text(kHeadNums), 3);
    if (!status.ok()) return status;
    const int64_t* const size = a_.qkv_size.data;
    const int64_t* const heads = a_.head_nums.data;
    sizes_ = {size[0], size[1], 0, {heads[0], heads[1], heads[2]}, size[3]};
    if (rules_.device_limits && sizes_.head_dim != kDeviceHeadDim) {
      return Invalid(Text(kQkvSize), ": head_dim, its value 3, is ", sizes_.head_dim,
                     ", must be 128");
    }
    if (sizes_.heads.k != sizes_.heads.v) {
      return Invalid(Text(kHeadNums), ": has ", sizes_.heads.k, " k and ", sizes_.heads.v,
                     " v heads, must have as many of one as of the other");
    }
    status = CheckHeads(sizes_.heads, Text(kHeadNums), sizes_.head_dim, Text(kQkvSize));
    if (!status.ok()) return status;
    if (size[2] != sizes_.heads.total()) {
      return Invalid(Text(kQkvSize), ": its value 2 is ", size[2], ", must be ",
                     sizes_.heads.total(), ", the sum of ", Text(kHeadNums));
    }
    if (!CheckedMul(size[0], size[1], &sizes_.tokens) || sizes_.tokens > kMaxTokens) {
      return Invalid(Text(kQkvSize), ": ", size[0], " x ", size[1], " tokens, must be at most ",
                     kMaxTokens);
    }
    call_.spec.heads = sizes_.heads;
    call_.spec.head_dim = sizes_.head_dim;
    // One slot per token and sequences that follow each other: the batch is one long sequence.
    call_.tokens = TokenCount(sizes_.tokens);
    return {};
  }

  Status BindMode() {
    call_.spec.epsilon = a_.epsilon;
    Status status = CheckEpsilon(a_.epsilon);
    if (!status.ok()) return status;
    const char* const name = Text(kCacheMode);
    return rules_.any_layout ? CheckWord(a_.cache_mode, name, {"PA_NZ", "PA", "Norm"}, true)
                             : CheckWord(a_.cache_mode, name, {"PA_NZ"}, true);
  }

  [[nodiscard]] bool IsPaNz() const {
    return a_.cache_mode == nullptr || std::strcmp(a_.cache_mode, "PA_NZ") == 0;
  }

  Status BindRows(const Argument& argument, int64_t heads, std::optional<TokenStrides>* strides) {
    Status status =
        CheckTensor(argument, call_.spec.dtype, {sizes_.tokens, heads * sizes_.head_dim});
    return status.ok() ? PackedRowStrides(argument, sizes_.head_dim, &strides->emplace()) : status;
  }

  Status BindInputs() {
    Spec& spec = call_.spec;
    Status status = CheckDType(Of(a_.qkv, kQkv), {DType::kFloat16, DType::kBFloat16});
    if (!status.ok()) return status;
    spec.dtype = a_.qkv->dtype;
    status = BindRows(Of(a_.qkv, kQkv), sizes_.heads.total(), &spec.qkv_strides);
    if (!status.ok()) return status;
    status = CheckTensor(Of(a_.q_gamma, kQGamma), spec.dtype, {sizes_.head_dim});
    if (!status.ok()) return status;
    status = CheckTensor(Of(a_.k_gamma, kKGamma), spec.dtype, {sizes_.head_dim});
    if (!status.ok()) return status;
    status = BindRows(Of(a_.cos, kCos), 1, &spec.cos_strides);
    if (!status.ok()) return status;
    status = BindRows(Of(a_.sin, kSin), 1, &spec.sin_strides);
    if (!status.ok()) return status;
    status = CheckTensor(Of(a_.index, kIndex), DType::kInt64, {sizes_.tokens});
    if (!status.ok()) return status;
    spec.q_gamma_shape = a_.q_gamma->shape;
    spec.k_gamma_shape = a_.k_gamma->shape;
    spec.slots = {SlotMode::kSlotPerToken, DType::kInt64, a_.index->shape.strides[0]};
    Tensors& tensors = call_.tensors;
    tensors.x = a_.qkv->data;
    tensors.q_gamma = a_.q_gamma->data;
    tensors.k_gamma = a_.k_gamma->data;
    tensors.cos = a_.cos->data;
    tensors.sin = a_.sin->data;
    tensors.slots = a_.index->data;
    return {};
  }

  Status BindOutput() {
    call_.tensors.q_out = a_.q_out->data;
    return BindRows(Of(a_.q_out, kQOut), sizes_.heads.q, &call_.spec.q_out_strides);
  }

  Status BindCaches() {
    Status status = BindCache(Of(a_.k_cache, kKCache), sizes_.heads.k, &call_.spec.k_cache);
    if (status.ok()) {
      status = BindCache(Of(a_.v_cache, kVCache), sizes_.heads.v, &call_.spec.v_cache);
    }
    if (status.ok()) status = CheckBlocks();
    if (!status.ok()) return status;
    call_.tensors.k_cache = a_.k_cache->data;
    call_.tensors.v_cache = a_.v_cache->data;
    status = BindQuantisation({Of(a_.k_scale, kKScale), Of(a_.k_offset, kKOffset)}, kKCache,
                              &call_.spec.k_cache);
    if (status.ok()) {
      status = BindQuantisation({Of(a_.v_scale, kVScale), Of(a_.v_offset, kVOffset)}, kVCache,
                                &call_.spec.v_cache);
    }
    const auto data = [](const TensorView* view) { return view == nullptr ? nullptr : view->data; };
    call_.tensors.k_scale = data(a_.k_scale);
    call_.tensors.v_scale = data(a_.v_scale);
    call_.tensors.k_offset = data(a_.k_offset);
    call_.tensors.v_offset = data(a_.v_offset);
    return status;
  }

  Status BindCache(const Argument& argument, int64_t heads, CacheSpec* cache) {
    Status status = CheckDType(argument, {DType::kInt8, call_.spec.dtype});
    if (status.ok()) status = CheckRank(argument, 4);
    if (!status.ok()) return status;
    cache->dtype = argument.view->dtype;
    return IsPaNz() ? BindPaNz(argument, heads, cache) : BindRowsOfHeads(argument, heads, cache);
  }

  Status BindPaNz(const Argument& argument, int64_t heads, CacheSpec* cache) {
    const StridedShape& shape = argument.view->shape;
    const int64_t chunk = cache->dtype == DType::kInt8 ? 32 : 16;
    if (sizes_.head_dim % chunk != 0) {
      return Invalid(argument.name, ": head_dim ", sizes_.head_dim, " is not a multiple of ", chunk,
                     ", the chunk of its PA_NZ layout");
    }
    Status status = CheckShape(
        argument, {shape.dims[0], heads * sizes_.head_dim / chunk, shape.dims[2], chunk});
    if (!status.ok()) return status;
    CacheLayout layout;
    layout.name = "PA_NZ";
    layout.blocks = shape.dims[0];
    layout.block_size = shape.dims[2];
    layout.channel_chunk = chunk;
    layout.block_stride = shape.strides[0];
    layout.channel_chunk_stride = shape.strides[1];
    layout.row_stride = shape.strides[2];
    layout.channel_stride = shape.strides[3];
    if (!CheckedMul(sizes_.head_dim / chunk, shape.strides[1], &layout.head_stride)) {
      return Invalid(argument.name, ": stride ", shape.strides[1],
                     " of its dimension 1 is too large");
    }
    cache->layout = layout;
    return {};
  }

  /// [blocks, block_size, heads, head_dim], "PA" and "Norm".
  Status BindRowsOfHeads(const Argument& argument, int64_t heads, CacheSpec* cache) {
    const StridedShape& shape = argument.view->shape;
    Status status = CheckShape(argument, {shape.dims[0], shape.dims[1], heads, sizes_.head_dim});
    if (!status.ok()) return status;
    const bool is_paged = std::strcmp(a_.cache_mode, "PA") == 0;
    CacheLayout layout;
    layout.name = is_paged ? "paged NHD" : "contiguous BSND";
    layout.blocks = shape.dims[0];
    layout.block_size = shape.dims[1];
    layout.block_stride = shape.strides[0];
    layout.row_stride = shape.strides[1];
    layout.head_stride = shape.strides[2];
    layout.channel_stride = shape.strides[3];
    cache->layout = layout;
    return {};
  }

  Status CheckBlocks() {
    const CacheLayout& k = call_.spec.k_cache.layout;
    const CacheLayout& v = call_.spec.v_cache.layout;
    if (k.blocks != v.blocks || k.block_size != v.block_size) {
      return Invalid(Text(kVCache), ": has ", v.blocks, " blocks of ", v.block_size,
                     " rows, must have those of ", Text(kKCache), ", ", k.blocks, " blocks of ",
                     k.block_size);
    }
    if (!rules_.device_limits) return {};
    const bool has_int8 =
        call_.spec.k_cache.dtype == DType::kInt8 || call_.spec.v_cache.dtype == DType::kInt8;
    const int64_t multiple = has_int8 ? 32 : 16;
    if (k.block_size < 1 || k.block_size % multiple != 0) {
      return Invalid(Text(kKCache), ": block size is ", k.block_size,
                     ", must be a positive multiple of ", multiple);
    }
    const int64_t per_sequence = (sizes_.sequence - 1) / k.block_size + 1;
    int64_t needed = 0;
    if (!CheckedMul(per_sequence, sizes_.batch, &needed) || k.blocks < needed) {
      return Invalid(Text(kKCache), ": has ", k.blocks, " blocks of ", k.block_size,
                     " rows, must have at least ", per_sequence, " for each of ", sizes_.batch,
                     " sequences of ", sizes_.sequence, " tokens");
    }
    return {};
  }

  struct Quantisation {
    Argument scale;
    Argument offset;
  };

  Status BindQuantisation(const Quantisation& quantisation, const ArgumentName& cache_name,
                          CacheSpec* cache) {
    const bool is_int8 = cache->dtype == DType::kInt8;
    const auto& [scale, offset] = quantisation;
    if (is_int8 != (scale.view != nullptr)) {
      return Invalid(scale.name, is_int8 ? ": is absent, an int8 " : ": is given, a 16-bit ",
                     Text(cache_name), is_int8 ? " needs it" : " takes none");
    }
    if (!is_int8 && offset.view != nullptr) {
      return Invalid(offset.name, ": is given, a 16-bit ", Text(cache_name), " takes none");
    }
    if (!is_int8) return {};
    Status status = CheckScale(scale, &cache->scale_shape);
    if (!status.ok() || offset.view == nullptr) return status;
    cache->has_offset = true;
    return CheckScale(offset, &cache->offset_shape);
  }

  Status CheckScale(const Argument& argument, StridedShape* shape) {
    *shape = argument.view->shape;
    return CheckTensor(argument, DType::kFloat32, {sizes_.heads.k, sizes_.head_dim});
  }

  Status BindBeforeQuant() {
    const Argument arguments[] = {Of(a_.q_out_before_quant, kQBefore),
                                  Of(a_.k_out_before_quant, kKBefore),
                                  Of(a_.v_out_before_quant, kVBefore)};
    const auto is_given = [](const Argument& argument) { return argument.view != nullptr; };
    const auto given = std::count_if(std::begin(arguments), std::end(arguments), is_given);
    if (given == 0) return {};
    for (const Argument& argument : arguments) {
      if (argument.view != nullptr) continue;
      return Invalid(argument.name, ": is null while another before-quant output is given, ",
                     "must be given with them or all be null");
    }
    Spec& spec = call_.spec;
    spec.before_quant = true;
    Status status = BindRows(arguments[0], sizes_.heads.q, &spec.q_before_quant_strides);
    if (status.ok()) status = BindRows(arguments[1], sizes_.heads.k, &spec.k_out_strides);
    if (status.ok()) status = BindRows(arguments[2], sizes_.heads.v, &spec.v_out_strides);
    call_.tensors.q_before_quant = arguments[0].view->data;
    call_.tensors.k_out = arguments[1].view->data;
    call_.tensors.v_out = arguments[2].view->data;
    return status;
  }

  const Arguments& a_;
  const DoorRules& rules_;
  Sizes sizes_{};
  BoundCall<Spec> call_;
};

}  // namespace

Result<BoundCall<QkvRmsNormRopeCacheSpec>> Bind(const QkvRmsNormRopeCacheArguments& arguments,
                                                const DoorRules& rules) noexcept try {
  const ScopedFpEnvironment environment;
  return Binder(arguments, rules).Bind();
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

}  // namespace qkvfuse
