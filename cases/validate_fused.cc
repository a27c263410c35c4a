// op=fused: which tensors a case has, the sequences of its page table, and contradictions.
#include <algorithm>
#include <utility>

#include "cases/case.h"

namespace qkvfuse::cases {
namespace {

Status Refuse(std::string message) {
  return Status(StatusCode::kInvalidArgument, "case: " + std::move(message));
}

bool HasGamma(const Case& c, NormSpec::Kind kind) {
  return kind != NormSpec::Kind::kNone && c.fused.gamma != NormSpec::Gamma::kNone;
}

bool IsGathered(const Case& c, NormSpec::Kind kind) {
  return kind == NormSpec::Kind::kFullWidth && c.fused.gathered_heads > 0;
}

// Whether anything becomes of k and v.
bool WantsKv(const Case& c) { return c.fused.has_caches || c.dense_kv; }

bool HasRope(const Case& c) { return c.fused.rope != RopeSpec::Pairing::kNone; }

// A plan that only measures has no outputs but sums, and reads no more than these need.
bool HasMeasured(const Case& c, TensorId id) {
  const FusedCase& f = c.fused;
  const bool rotates = HasRope(c) && f.norm_order == NormOrder::kAfterRope;
  switch (id) {
    case TensorId::kX:
      return !f.is_separate;
    case TensorId::kQ:
      return f.is_separate && IsGathered(c, f.q_norm);
    case TensorId::kK:
      return f.is_separate && IsGathered(c, f.k_norm);
    case TensorId::kCos:
      return rotates;
    case TensorId::kSin:
      return rotates && f.table != RopeSpec::Table::kJoined;
    case TensorId::kPositions:
      return rotates && f.table != RopeSpec::Table::kRowPerToken;
    case TensorId::kWeightScale:
      return c.x_dtype == DType::kInt32;
    case TensorId::kTokenScale:
      return c.token_scale;
    case TensorId::kBias:
      return c.bias.has_value();
    case TensorId::kQHeadSums:
      return IsGathered(c, f.q_norm);
    case TensorId::kKHeadSums:
      return IsGathered(c, f.k_norm);
    default:
      return false;
  }
}

Status ValidateLayout(const Case& c) {
  const bool is_split = c.layout == Layout::kXSplit || c.layout == Layout::kShuffled;
  if (is_split && c.head_dim % SplitOf(c.k_cache) != 0) {
    return Refuse("this layout needs a head_dim that is a multiple of " +
                  std::to_string(SplitOf(c.k_cache)));
  }
  if (c.layout == Layout::kShuffled && c.block_size % SplitOf(c.v_cache) != 0) {
    return Refuse("layout=shuffled needs a block_size that is a multiple of " +
                  std::to_string(SplitOf(c.v_cache)));
  }
  if (!c.interleaved) return {};
  if (c.layout == Layout::kXSplit || c.layout == Layout::kShuffled ||
      c.v_head_dim() != c.head_dim) {
    return Refuse("interleaved needs two caches of one type and shape");
  }
  return c.fused.has_caches ? Status() : Refuse("interleaved needs caches");
}

Status ValidatePlaces(const Case& c) {
  for (const TensorId id : {TensorId::kLengths, TensorId::kRowOffsets, TensorId::kQSums,
                            TensorId::kKSums, TensorId::kQHeadSums, TensorId::kKHeadSums}) {
    if (Has(c, id) && c.stride(id) != StridePattern::kPacked) {
      return Refuse("strides: " + std::string(Name(id)) + " is always packed");
    }
  }
  if (!c.in_place.any()) return {};
  if (c.fused.is_separate || c.v_head_dim() != c.head_dim || c.fused.measures) {
    return Refuse("in_place needs packed heads of one size");
  }
  const bool q_differs = c.in_place.q && c.fused.q_out.dtype != c.x_dtype;
  const bool kv_differs = (c.in_place.k || c.in_place.v) && c.fused.dense_dtype != c.x_dtype;
  return q_differs || kv_differs ? Refuse("in_place needs outputs of the type of x") : Status();
}

}  // namespace

std::vector<RaggedSequence> RaggedSequences(const Case& c) {
  std::vector<RaggedSequence> sequences;
  const auto count = static_cast<uint64_t>(std::max<int64_t>(c.fused.sequences, 1));
  // Not of the seed: cases that differ in it alone have one Spec.
  uint64_t state =
      static_cast<uint64_t>(c.tokens.total() * 131 + c.fused.sequences * 7 + c.block_size);
  const auto below = [&state](int64_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(n));
  };
  int64_t left = c.tokens.total();
  for (uint64_t b = 0; b < count; ++b) {
    // Some sequences get no token, some one as in decoding, some many; the last one the rest.
    const bool is_last = b + 1 == count;
    const int64_t most = below(3) == 0 ? std::min<int64_t>(left, 1) : left;
    const int64_t tokens = is_last ? left : below(most + 1);
    sequences.push_back({tokens, below(3) == 0 ? 0 : below(2 * c.block_size + 1)});
    left -= tokens;
  }
  return sequences;
}

int64_t PagesOf(const Case& c) {
  int64_t pages = 1;
  for (const RaggedSequence& sequence : RaggedSequences(c)) {
    const int64_t rows = sequence.tokens + sequence.past;
    pages = std::max(pages, (rows + c.block_size - 1) / c.block_size);
  }
  return pages;
}

bool HasFused(const Case& c, TensorId id) {
  const FusedCase& f = c.fused;
  if (f.measures) return HasMeasured(c, id);
  switch (id) {
    case TensorId::kX:
      return !f.is_separate;
    case TensorId::kQ:
      return f.is_separate;
    case TensorId::kK:
    case TensorId::kV:
      return f.is_separate && WantsKv(c);
    case TensorId::kQGamma:
      return HasGamma(c, f.q_norm);
    case TensorId::kKGamma:
      return HasGamma(c, f.k_norm) && WantsKv(c);
    case TensorId::kVGamma:
      return HasGamma(c, f.v_norm) && WantsKv(c);
    case TensorId::kCos:
      return HasRope(c);
    case TensorId::kSin:
      return HasRope(c) && f.table != RopeSpec::Table::kJoined;
    case TensorId::kPositions:
      return HasRope(c) && f.table != RopeSpec::Table::kRowPerToken;
    case TensorId::kSlots:
    case TensorId::kKCache:
    case TensorId::kVCache:
      return f.has_caches;
    case TensorId::kLengths:
    case TensorId::kRowOffsets:
      return f.has_caches && c.is_ragged();
    case TensorId::kQScale:
      return f.q_out.has_scale();
    case TensorId::kQOffset:
      return f.q_out.has_offset;
    case TensorId::kKScale:
      return f.has_caches && c.k_cache.has_scale();
    case TensorId::kVScale:
      return f.has_caches && c.v_cache.has_scale();
    case TensorId::kKOffset:
      return f.has_caches && c.k_cache.has_offset;
    case TensorId::kVOffset:
      return f.has_caches && c.v_cache.has_offset;
    case TensorId::kWeightScale:
      return c.x_dtype == DType::kInt32;
    case TensorId::kTokenScale:
      return c.token_scale;
    case TensorId::kBias:
      return c.bias.has_value();
    case TensorId::kQSums:
      return IsGathered(c, f.q_norm);
    case TensorId::kKSums:
      return IsGathered(c, f.k_norm) && WantsKv(c);
    case TensorId::kQOut:
      return true;
    case TensorId::kQBeforeQuant:
    case TensorId::kKOut:
    case TensorId::kVOut:
      return c.dense_kv;
    case TensorId::kQScaleOut:
      return f.q_out.is_dynamic();
    case TensorId::kKScaleCache:
      return f.has_caches && c.k_cache.is_dynamic();
    case TensorId::kVScaleCache:
      return f.has_caches && c.v_cache.is_dynamic();
    case TensorId::kQHeadSums:
    case TensorId::kKHeadSums:
      return false;
  }
  return false;
}

Status ValidateFused(const Case& c) {
  if (!c.is_fused()) return {};
  if (c.fused.sequences < 1) return Refuse("sequences must be positive");
  if (c.fused.max_positions < 1) return Refuse("max_positions must be positive");
  if (c.v_head_dim() < 2 || c.v_head_dim() % 2 != 0) {
    return Refuse("v_head_dim must be even and positive");
  }
  if (c.is_ragged() && c.tokens.batch != 1) {
    return Refuse("slot_mode=page_table needs a plain number of tokens");
  }
  if (c.is_ragged() && c.blocks != 0) return Refuse("slot_mode=page_table chooses the blocks");
  if (Status status = ValidateLayout(c); !status.ok()) return status;
  return ValidatePlaces(c);
}

}  // namespace qkvfuse::cases
