#include "claims.h"

#include <algorithm>
#include <optional>

namespace qkvfuse::fuzz {
namespace {

using Strides = std::optional<TokenStrides>;

class Account {
 public:
  Account(int64_t head_dim, TokenCount tokens) : head_dim_(head_dim), tokens_(tokens) {}

  void Input(const void* Tensors::*member, DType dtype, const Reach& reach) {
    claims_.push_back({member, nullptr, dtype, reach});
  }
  void Output(void* Tensors::*member, DType dtype, const Reach& reach) {
    claims_.push_back({nullptr, member, dtype, reach});
  }

  [[nodiscard]] Reach Rows(int64_t heads, const Strides& given) const {
    const TokenStrides packed{TokenStrides::kFollows, heads * head_dim_, head_dim_, 1};
    const TokenStrides strides = given.value_or(packed);
    Reach reach;
    if (strides.batch == TokenStrides::kFollows) {
      reach.Axis(static_cast<__int128>(tokens_.batch) * tokens_.sequence, strides.token);
    } else {
      reach.Axis(tokens_.batch, strides.batch);
      reach.Axis(tokens_.sequence, strides.token);
    }
    reach.Axis(heads, strides.head);
    reach.Axis(head_dim_, strides.channel);
    return reach;
  }

  [[nodiscard]] Reach Table(const Strides& strides) const { return Rows(1, strides); }

  [[nodiscard]] static Reach Parameter(int64_t count, const StridedShape& shape) {
    Reach reach;
    if (shape.rank == 0) reach.Axis(count, 1);
    for (int axis = 0; axis < shape.rank; ++axis) {
      reach.Axis(shape.dims[static_cast<size_t>(axis)], shape.strides[static_cast<size_t>(axis)]);
    }
    return reach;
  }

  void Slots(const SlotSpec& slots) {
    Reach reach;
    const bool is_per_token = slots.mode == SlotMode::kSlotPerToken;
    reach.Axis(static_cast<__int128>(tokens_.batch) * (is_per_token ? tokens_.sequence : 1),
               slots.stride);
    Input(&Tensors::slots, slots.dtype, reach);
  }

  void Cache(const CacheSpec& cache, int64_t heads, bool is_k) {
    const CacheLayout& layout = cache.layout;
    Reach reach;
    reach.Axis(layout.blocks, layout.block_stride);
    reach.Axis(heads, layout.head_stride);
    Chunked(layout.block_size, layout.row_chunk, layout.row_chunk_stride, layout.row_stride,
            &reach);
    Chunked(head_dim_, layout.channel_chunk, layout.channel_chunk_stride, layout.channel_stride,
            &reach);
    Output(is_k ? &Tensors::k_cache : &Tensors::v_cache, cache.dtype, reach);
    if (cache.dtype != DType::kInt8) return;
    const int64_t count = heads * head_dim_;
    Input(is_k ? &Tensors::k_scale : &Tensors::v_scale, DType::kFloat32,
          Parameter(count, cache.scale_shape));
    if (!cache.has_offset) return;
    Input(is_k ? &Tensors::k_offset : &Tensors::v_offset, DType::kFloat32,
          Parameter(count, cache.offset_shape));
  }

  [[nodiscard]] std::vector<Claim> claims() const { return claims_; }

 private:
  static void Chunked(int64_t size, int64_t chunk, int64_t chunk_stride, int64_t stride,
                      Reach* reach) {
    if (chunk != 0) reach->Axis(size / chunk, chunk_stride);
    reach->Axis(chunk != 0 ? chunk : size, stride);
  }

  int64_t head_dim_;
  TokenCount tokens_;
  std::vector<Claim> claims_;
};

}  // namespace

void Reach::Axis(__int128 size, int64_t stride) {
  if (size <= 0) *this = {0, 0, true};
  if (is_empty) return;
  const __int128 span = (size - 1) * stride;
  (span < 0 ? lowest : highest) += span;
}

std::vector<Claim> ClaimsOf(const QkvRmsNormRopeCacheSpec& spec, TokenCount tokens) {
  const DType dtype = spec.dtype;
  Account account(spec.head_dim, tokens);
  account.Input(&Tensors::x, dtype, account.Rows(spec.heads.total(), spec.qkv_strides));
  account.Input(&Tensors::cos, dtype, account.Table(spec.cos_strides));
  account.Input(&Tensors::sin, dtype, account.Table(spec.sin_strides));
  account.Input(&Tensors::q_gamma, dtype, Account::Parameter(spec.head_dim, spec.q_gamma_shape));
  account.Input(&Tensors::k_gamma, dtype, Account::Parameter(spec.head_dim, spec.k_gamma_shape));
  account.Slots(spec.slots);
  account.Cache(spec.k_cache, spec.heads.k, /*is_k=*/true);
  account.Cache(spec.v_cache, spec.heads.v, /*is_k=*/false);
  account.Output(&Tensors::q_out, dtype, account.Rows(spec.heads.q, spec.q_out_strides));
  if (!spec.before_quant) return account.claims();
  account.Output(&Tensors::q_before_quant, dtype,
                 account.Rows(spec.heads.q, spec.q_before_quant_strides));
  account.Output(&Tensors::k_out, dtype, account.Rows(spec.heads.k, spec.k_out_strides));
  account.Output(&Tensors::v_out, dtype, account.Rows(spec.heads.v, spec.v_out_strides));
  return account.claims();
}

std::vector<Claim> ClaimsOf(const DequantRopeQuantKvcacheSpec& spec, TokenCount tokens) {
  const DType dtype = spec.dtype;
  const int64_t channels = spec.heads.total() * spec.head_dim;
  Account account(spec.head_dim, tokens);
  account.Input(&Tensors::x, spec.x_dtype, account.Rows(spec.heads.total(), spec.x_strides));
  account.Input(&Tensors::cos, dtype, account.Table(spec.cos_strides));
  account.Input(&Tensors::sin, dtype, account.Table(spec.sin_strides));
  account.Slots(spec.slots);
  account.Cache(spec.k_cache, spec.heads.k, /*is_k=*/true);
  account.Cache(spec.v_cache, spec.heads.v, /*is_k=*/false);
  account.Output(&Tensors::q_out, dtype, account.Rows(spec.heads.q, spec.q_out_strides));
  if (spec.kv_output) {
    account.Output(&Tensors::k_out, dtype, account.Rows(spec.heads.k, spec.k_out_strides));
    account.Output(&Tensors::v_out, dtype, account.Rows(spec.heads.v, spec.v_out_strides));
  }
  if (spec.x_dtype != DType::kInt32) return account.claims();
  account.Input(&Tensors::weight_scale, DType::kFloat32,
                Account::Parameter(channels, spec.weight_scale_shape));
  if (spec.has_token_scale) {
    account.Input(&Tensors::token_scale, DType::kFloat32,
                  Account::Parameter(tokens.total(), spec.token_scale_shape));
  }
  if (spec.bias) {
    account.Input(&Tensors::bias, *spec.bias, Account::Parameter(channels, spec.bias_shape));
  }
  return account.claims();
}

}  // namespace qkvfuse::fuzz
