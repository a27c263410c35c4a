// What a Case may say: contradictions are refused here, everything else is left to the library.
#include <algorithm>
#include <utility>

#include "cases/case.h"
#include "cases/recorded.h"

namespace qkvfuse::cases {
namespace {

bool IsInput(TensorId id) { return id < TensorId::kQOut; }

bool IsIndex(TensorId id) {
  return id == TensorId::kSlots || id == TensorId::kLengths || id == TensorId::kRowOffsets ||
         id == TensorId::kPositions;
}

Status Refuse(std::string message) {
  return Status(StatusCode::kInvalidArgument, "case: " + std::move(message));
}

Status ValidateSizes(const Case& c) {
  if (c.heads.q < 1 || c.heads.k < 1 || c.heads.v < 1) return Refuse("heads must be positive");
  if (c.head_dim < 2 || c.head_dim % 2 != 0) return Refuse("head_dim must be even and positive");
  if (c.tokens.batch < 0 || c.tokens.sequence < 0) return Refuse("tokens must not be negative");
  if (c.block_size < 1) return Refuse("block_size must be positive");
  if (c.blocks < 0) return Refuse("blocks must not be negative");
  return {};
}

Status ValidateTypes(const Case& c) {
  if (c.is_fused()) return {};
  if (!Is16Bit(c.dtype)) return Refuse("dtype must be fp16 or bf16");
  const bool is_int32 = c.x_dtype == DType::kInt32;
  if (c.x_dtype != c.dtype && (c.is_qnr() || !is_int32)) {
    return Refuse("x must be the dtype, or int32 with op=drq");
  }
  if (!is_int32 && (c.token_scale || c.bias)) {
    return Refuse("token_scale and bias need x=int32");
  }
  if (c.slot_dtype != DType::kInt32 && c.slot_dtype != DType::kInt64) {
    return Refuse("slot_dtype must be int32 or int64");
  }
  for (const CacheCase& cache : {c.k_cache, c.v_cache}) {
    if (cache.dtype != DType::kInt8 && cache.has_offset) {
      return Refuse("an offset needs an int8 cache");
    }
    if (cache.rule != ScaleRule::kDivide || cache.granularity != ScaleGranularity::kChannel) {
      return Refuse("scales that multiply, dynamic ones and shared ones need op=fused");
    }
  }
  if (c.layout > Layout::kContiguous || c.is_ragged()) {
    return Refuse("this layout or slot_mode needs op=fused");
  }
  return {};
}

Status ValidateChunks(const Case& c) {
  if (c.layout != Layout::kPaNz) return {};
  for (const bool is_k : {true, false}) {
    const CacheCase& cache = is_k ? c.k_cache : c.v_cache;
    const int64_t head_dim = is_k ? c.head_dim : c.v_head_dim();
    if (head_dim % ChunkOf(cache) == 0) continue;
    return Refuse("layout=pa_nz needs a head_dim that is a multiple of " +
                  std::to_string(ChunkOf(cache)) + " for a cache of " + Name(cache.dtype));
  }
  return {};
}

Status ValidateSlots(const Case& c) {
  if (c.is_ragged() || (c.is_fused() && !c.fused.has_caches)) return {};
  const bool by_start = c.slot_mode == SlotMode::kStartPerSequence;
  if (by_start && c.slots != SlotPattern::kSequential && c.slots != SlotPattern::kShuffled) {
    return Refuse("slot_mode=start needs slots=sequential or shuffled");
  }
  if (by_start && c.block_size < c.tokens.sequence) {
    return Refuse("slot_mode=start needs a block_size of at least the sequence");
  }
  const bool needs_all = c.slots == SlotPattern::kSequential || c.slots == SlotPattern::kShuffled ||
                         c.slots == SlotPattern::kPadded;
  if (by_start ? BlockCount(c) < c.tokens.batch
               : needs_all && BlockCount(c) * c.block_size < c.tokens.total()) {
    return Refuse("blocks: fewer than the tokens need");
  }
  return {};
}

Status ValidateStrides(const Case& c) {
  for (size_t i = 0; i < kTensorCount; ++i) {
    const auto id = static_cast<TensorId>(i);
    const StridePattern pattern = c.stride(id);
    if (pattern == StridePattern::kPacked) continue;
    const std::string name(Name(id));
    if (!Has(c, id)) return Refuse("strides: " + name + " is not part of this call");
    if (pattern == StridePattern::kBroadcast && (!IsInput(id) || IsIndex(id))) {
      return Refuse("strides: " + name + " cannot be broadcast");
    }
    const bool may_be_longer =
        id == TensorId::kWeightScale || id == TensorId::kTokenScale || id == TensorId::kBias;
    if (pattern == StridePattern::kLonger && !may_be_longer) {
      return Refuse("strides: " + name + " cannot be longer");
    }
  }
  return {};
}

Status ValidatePlaces(const Case& c) {
  if (c.interleaved) {
    const bool same = c.k_cache.dtype == c.v_cache.dtype && c.heads.k == c.heads.v;
    if (!same) return Refuse("interleaved needs two caches of one type and shape");
    if (c.stride(TensorId::kKCache) != c.stride(TensorId::kVCache)) {
      return Refuse("interleaved needs two caches of one stride pattern");
    }
  }
  if (!c.in_place.any()) return {};
  for (const auto& [is_in_place, id] : {std::pair{c.in_place.q, TensorId::kQOut},
                                        {c.in_place.k, TensorId::kKOut},
                                        {c.in_place.v, TensorId::kVOut}}) {
    if (is_in_place && c.stride(id) != StridePattern::kPacked) {
      return Refuse("strides: " + std::string(Name(id)) + " has those of x, as it is in place");
    }
  }
  if (c.x_dtype != c.dtype) return Refuse("in_place needs an x of the dtype");
  if ((c.in_place.k || c.in_place.v) && !c.dense_kv)
    return Refuse("in_place=k and in_place=v need before_quant or kv_output");
  if (c.stride(TensorId::kX) == StridePattern::kBroadcast) {
    return Refuse("in_place needs an x that is not broadcast");
  }
  return {};
}

}  // namespace

int64_t ChunkOf(const CacheCase& cache) { return 32 / std::min<int64_t>(SizeOf(cache.dtype), 2); }

int64_t SplitOf(const CacheCase& cache) { return 16 / SizeOf(cache.dtype); }

int64_t BlockCount(const Case& c) {
  if (c.blocks > 0) return c.blocks;
  if (c.slot_mode == SlotMode::kStartPerSequence) return c.tokens.batch + 1;
  if (c.is_ragged()) return c.fused.sequences * PagesOf(c) + 1;
  return (c.tokens.total() + c.block_size - 1) / c.block_size + 1;
}

bool Has(const Case& c, TensorId id) {
  if (c.is_fused()) return HasFused(c, id);
  const bool is_int32 = c.x_dtype == DType::kInt32;
  switch (id) {
    case TensorId::kX:
    case TensorId::kCos:
    case TensorId::kSin:
    case TensorId::kSlots:
    case TensorId::kQOut:
    case TensorId::kKCache:
    case TensorId::kVCache:
      return true;
    case TensorId::kQGamma:
    case TensorId::kKGamma:
      return c.is_qnr();
    case TensorId::kKScale:
      return c.k_cache.dtype == DType::kInt8;
    case TensorId::kVScale:
      return c.v_cache.dtype == DType::kInt8;
    case TensorId::kKOffset:
      return c.k_cache.has_offset;
    case TensorId::kVOffset:
      return c.v_cache.has_offset;
    case TensorId::kWeightScale:
      return is_int32;
    case TensorId::kTokenScale:
      return is_int32 && c.token_scale;
    case TensorId::kBias:
      return is_int32 && c.bias.has_value();
    case TensorId::kQBeforeQuant:
      return c.is_qnr() && c.dense_kv;
    case TensorId::kKOut:
    case TensorId::kVOut:
      return c.dense_kv;
    default:
      return false;
  }
}

// Recorded data is of one model's heads, normalised per head and rotated whole.
Status ValidateRecording(const Case& c) {
  if (c.data != DataKind::kGemma3) return {};
  const bool has_its_heads = c.heads == RecordedLayer::kHeads &&
                             c.head_dim == RecordedLayer::kHeadDim && c.v_head_dim() == c.head_dim;
  if (!has_its_heads) return Refuse("data=gemma3 needs heads=4/1 and head_dim=256");
  if (c.x_dtype == DType::kInt32) return Refuse("data=gemma3 needs x of a float type");
  const bool has_its_rotation =
      c.op != Operator::kFusedQkv || c.fused.rotary_dim == 0 || c.fused.rotary_dim == c.head_dim;
  if (!has_its_rotation) return Refuse("data=gemma3 needs a rotary_dim of 0 or 256");
  const bool has_full_norm =
      c.op == Operator::kFusedQkv && (c.fused.q_norm == NormSpec::Kind::kFullWidth ||
                                      c.fused.k_norm == NormSpec::Kind::kFullWidth);
  return has_full_norm ? Refuse("data=gemma3 needs norms per head") : Status();
}

Status Validate(const Case& c) {
  for (const auto check : {ValidateSizes, ValidateTypes, ValidateChunks, ValidateSlots,
                           ValidateStrides, ValidatePlaces, ValidateFused, ValidateRecording}) {
    if (Status status = check(c); !status.ok()) return status;
  }
  return {};
}

}  // namespace qkvfuse::cases
