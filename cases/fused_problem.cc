// op=fused: the Spec of the C++ door, and the reference's side.
#include <algorithm>
#include <iterator>

#include "cases/places.h"

namespace qkvfuse::cases {
namespace {

using reference::CacheOrder;
using reference::CodeRule;
using reference::FusedOutput;
using reference::FusedPart;
using reference::FusedProblem;

NormSpec NormOf(const Case& c, const Places& places, NormSpec::Kind kind, TensorId gamma,
                bool may_be_gathered) {
  NormSpec norm;
  norm.kind = kind;
  if (kind == NormSpec::Kind::kNone) return norm;
  norm.gamma = c.fused.gamma;
  if (c.fused.gamma != NormSpec::Gamma::kNone) norm.gamma_dtype = c.fused.gamma_dtype;
  norm.gamma_shape = places.Parameter(gamma);
  if (kind == NormSpec::Kind::kFullWidth && may_be_gathered) {
    norm.total_heads = c.fused.gathered_heads;
  }
  return norm;
}

std::array<int64_t, 3> SectionPairs(const Case& c) {
  if (c.fused.sections == RopeSpec::Sections::kNone) return {};
  const int64_t pairs = c.rotary_dim() / 2;
  const int64_t third = pairs / 3;
  return {pairs - 2 * third, third, third};
}

RopeSpec RopeOf(const Case& c, const Places& places) {
  const FusedCase& f = c.fused;
  RopeSpec rope;
  rope.pairing = f.rope;
  if (f.rope == RopeSpec::Pairing::kNone) return rope;
  rope.rotary_dim = f.rotary_dim;
  rope.rotates_last = f.rotates_last;
  rope.table = f.table;
  rope.dtype = f.table_dtype;
  rope.half_width = f.half_width;
  if (f.table == RopeSpec::Table::kRowPerToken) {
    rope.cos_strides = places.Row(TensorId::kCos);
    rope.sin_strides = places.Row(TensorId::kSin);
    return rope;
  }
  rope.cos_strides = places.Table(TensorId::kCos);
  rope.sin_strides = places.Table(TensorId::kSin);
  rope.max_positions = f.max_positions;
  rope.position_dtype = f.position_dtype;
  rope.sections = f.sections;
  rope.section_pairs = SectionPairs(c);
  return rope;
}

// The rest of the positions' strides, which are of the tensor.
void SetPositionStrides(const Case& c, const StridedShape& shape, RopeSpec* rope) {
  if (!Has(c, TensorId::kPositions)) return;
  const bool has_sections = c.fused.sections != RopeSpec::Sections::kNone;
  rope->position_stride = shape.strides[has_sections ? 1 : 0];
  const bool is_packed = c.stride(TensorId::kPositions) == StridePattern::kPacked;
  if (has_sections && !is_packed) rope->position_section_stride = shape.strides[0];
}

DenseSpec DenseOf(const Places& places, TensorId id, DType dtype) {
  DenseSpec dense;
  dense.dtype = dtype;
  dense.strides = places.Row(id);
  return dense;
}

DenseSpec QOutOf(const Case& c, const Places& places) {
  const CacheCase& q = c.fused.q_out;
  DenseSpec dense = DenseOf(places, TensorId::kQOut, q.dtype);
  dense.has_offset = q.has_offset;
  dense.scale_rule = q.rule;
  dense.granularity = q.granularity;
  dense.scale_shape = places.Parameter(TensorId::kQScale);
  dense.offset_shape = places.Parameter(TensorId::kQOffset);
  if (!q.is_dynamic()) return dense;
  dense.scale_out_strides = places.Row(TensorId::kQScaleOut);
  // [batch, sequence, heads]: the last axis is that of heads.
  if (auto& strides = dense.scale_out_strides) {
    strides->head = strides->channel;
    strides->channel = 1;
  }
  return dense;
}

// The reference's side.

CodeRule RuleOf(ScaleRule rule) {
  if (rule == ScaleRule::kMultiply) return CodeRule::kMultiply;
  return rule == ScaleRule::kDynamic ? CodeRule::kDynamic : CodeRule::kDivide;
}

/// A scale or offset with an element for every head and channel.
TensorView Expanded(const TensorView& view, ScaleGranularity granularity, int64_t heads,
                    int64_t head_dim) {
  if (granularity == ScaleGranularity::kChannel || view.data == nullptr) return view;
  TensorView expanded = view;
  expanded.shape = StridedShape::Contiguous({heads, head_dim});
  const bool is_per_head = granularity == ScaleGranularity::kHead;
  expanded.shape.strides = {is_per_head ? view.shape.strides[0] : 0, 0};
  return expanded;
}

class Builder {
 public:
  Builder(const ProblemMemory& memory, TensorView Member::*side)
      : memory_(memory), side_(side), c_(memory.c), f_(c_.fused) {}

  [[nodiscard]] FusedProblem Build() const {
    FusedProblem p;
    p.batch = c_.tokens.batch;
    p.sequence = c_.tokens.sequence;
    p.epsilon = c_.epsilon;
    p.norm_after_rope = f_.norm_order == NormOrder::kAfterRope;
    p.parts = {Part(0), Part(1), Part(2)};
    p.weight_scale = View(TensorId::kWeightScale);
    p.token_scale = View(TensorId::kTokenScale);
    p.bias = View(TensorId::kBias);
    p.slots = View(TensorId::kSlots);
    p.lengths = View(TensorId::kLengths);
    p.row_offsets = View(TensorId::kRowOffsets);
    p.zeroes_unused_rows = c_.is_ragged() && f_.zeroes_unused_rows;
    p.block_size = c_.block_size;
    p.slot_rule = c_.is_ragged()                            ? reference::SlotRule::kPageTable
                  : c_.slot_mode == SlotMode::kSlotPerToken ? reference::SlotRule::kPerToken
                                                            : reference::SlotRule::kPerSequence;
    AddRope(p.rope);
    return p;
  }

 private:
  [[nodiscard]] TensorView View(TensorId id) const {
    // Inputs are the reference's: in-place outputs change the library's x.
    return id < TensorId::kQOut ? memory_.member(id).reference : memory_.member(id).*side_;
  }

  [[nodiscard]] int64_t Heads(size_t g) const {
    return g == 0 ? c_.heads.q : g == 1 ? c_.heads.k : c_.heads.v;
  }
  [[nodiscard]] int64_t HeadDim(size_t g) const { return g == 2 ? c_.v_head_dim() : c_.head_dim; }

  [[nodiscard]] TensorView Source(size_t g, int64_t first_channel) const {
    constexpr TensorId kSeparate[] = {TensorId::kQ, TensorId::kK, TensorId::kV};
    if (f_.is_separate) return View(kSeparate[g]);
    TensorView x = View(TensorId::kX);
    auto& st = x.shape.strides;
    // Heads of two sizes: channels are evenly spaced. Else heads have a stride of their own.
    const bool is_one_row = c_.v_head_dim() != c_.head_dim;
    const int64_t offset = is_one_row ? first_channel * st[3] : first_channel / c_.head_dim * st[2];
    if (is_one_row) st[2] = HeadDim(g) * st[3];
    x.shape.dims[2] = Heads(g);
    x.shape.dims[3] = HeadDim(g);
    x.data = static_cast<std::byte*>(x.data) + offset * SizeOf(x.dtype);
    return x;
  }

  [[nodiscard]] FusedPart Part(size_t g) const {
    constexpr TensorId kGammas[] = {TensorId::kQGamma, TensorId::kKGamma, TensorId::kVGamma};
    constexpr TensorId kDense[] = {TensorId::kQOut, TensorId::kKOut, TensorId::kVOut};
    const NormSpec::Kind kinds[] = {f_.q_norm, f_.k_norm, f_.v_norm};
    FusedPart part;
    part.first_channel = std::array{int64_t{0}, c_.heads.q * c_.head_dim,
                                    (c_.heads.q + c_.heads.k) * c_.head_dim}[g];
    part.x = Source(g, part.first_channel);
    part.has_norm = kinds[g] != NormSpec::Kind::kNone;
    part.is_full_width = kinds[g] == NormSpec::Kind::kFullWidth;
    part.has_rope = g < 2 && f_.rope != RopeSpec::Pairing::kNone;
    part.gamma = View(kGammas[g]);
    part.gamma_is_one_plus = f_.gamma == NormSpec::Gamma::kOnePlus;
    if (g < 2) {
      part.sums = View(g == 0 ? TensorId::kQSums : TensorId::kKSums);
      part.head_sums = View(g == 0 ? TensorId::kQHeadSums : TensorId::kKHeadSums);
    }
    if (f_.measures) {
      part.has_rope &= f_.norm_order == NormOrder::kAfterRope;
      if (part.head_sums.data == nullptr) part.x.data = nullptr;
      return part;
    }
    if (g > 0 && !f_.has_caches && !c_.dense_kv) {
      part.x.data = nullptr;
      return part;
    }
    part.dense[0].data = View(kDense[g]);
    if (g == 0) {
      SetQuantisation(c_.fused.q_out, g, {TensorId::kQScale, TensorId::kQOffset}, part.dense[0]);
      part.dense[0].scales = View(TensorId::kQScaleOut);
      part.dense[1].data = View(TensorId::kQBeforeQuant);
    } else {
      AddCache(g, part.cache);
    }
    return part;
  }

  struct ScaleIds {
    TensorId scale;
    TensorId offset;
  };

  void SetQuantisation(const CacheCase& cache, size_t g, const ScaleIds& ids,
                       FusedOutput& output) const {
    output.rule = RuleOf(cache.rule);
    output.scale = Expanded(View(ids.scale), cache.granularity, Heads(g), HeadDim(g));
    output.offset = Expanded(View(ids.offset), cache.granularity, Heads(g), HeadDim(g));
  }

  void AddCache(size_t g, FusedOutput& cache) const {
    const bool is_k = g == 1;
    cache.data = View(is_k ? TensorId::kKCache : TensorId::kVCache);
    cache.scales = View(is_k ? TensorId::kKScaleCache : TensorId::kVScaleCache);
    cache.order = OrderOf(is_k);
    SetQuantisation(is_k ? c_.k_cache : c_.v_cache, g,
                    is_k ? ScaleIds{TensorId::kKScale, TensorId::kKOffset}
                         : ScaleIds{TensorId::kVScale, TensorId::kVOffset},
                    cache);
  }

  [[nodiscard]] CacheOrder OrderOf(bool is_k) const {
    switch (c_.layout) {
      case Layout::kPaNz:
        return CacheOrder::kPaNz;
      case Layout::kPaged:
      case Layout::kContiguous:
        return CacheOrder::kNd;
      case Layout::kHeadsFirst:
        return CacheOrder::kHeadsFirst;
      case Layout::kXSplit:
        return is_k ? CacheOrder::kChunked : CacheOrder::kTransposed;
      case Layout::kTransposed:
        return CacheOrder::kTransposed;
      case Layout::kShuffled:
        return is_k ? CacheOrder::kChunked : CacheOrder::kRowChunked;
    }
    return CacheOrder::kNd;
  }

  void AddRope(reference::FusedRope& rope) const {
    const bool is_joined = f_.table == RopeSpec::Table::kJoined;
    rope.is_interleaved = f_.rope == RopeSpec::Pairing::kInterleaved;
    rope.rotary_dim = c_.rotary_dim();
    rope.first_channel = f_.rotates_last ? c_.head_dim - rope.rotary_dim : 0;
    rope.half_width = f_.half_width || is_joined;
    rope.cos = View(TensorId::kCos);
    rope.sin = View(is_joined ? TensorId::kCos : TensorId::kSin);
    if (is_joined && rope.sin.data != nullptr) {
      const int64_t offset = rope.rotary_dim / 2 * rope.cos.shape.strides[1];
      rope.sin.data = static_cast<std::byte*>(rope.sin.data) + offset * SizeOf(rope.sin.dtype);
    }
    rope.positions = View(TensorId::kPositions);
    const std::array<int64_t, 3> pairs = SectionPairs(c_);
    if (f_.sections == RopeSpec::Sections::kNone) return;
    for (int64_t j = 0; j < rope.rotary_dim / 2; ++j) rope.section.push_back(SectionOf(j, pairs));
  }

  [[nodiscard]] int SectionOf(int64_t pair, const std::array<int64_t, 3>& pairs) const {
    if (f_.sections == RopeSpec::Sections::kConcatenated) {
      return pair < pairs[0] ? 0 : pair < pairs[0] + pairs[1] ? 1 : 2;
    }
    if (pair % 3 == 1 && pair < 3 * pairs[1]) return 1;
    return pair % 3 == 2 && pair < 3 * pairs[2] ? 2 : 0;
  }

  const ProblemMemory& memory_;
  TensorView Member::*side_;
  const Case& c_;
  const FusedCase& f_;
};

}  // namespace

FusedQkvSpec Problem::FusedSpec() const {
  const Case& c = memory_->c;
  const FusedCase& f = c.fused;
  const Places places(*memory_);
  FusedQkvSpec spec;
  spec.x_dtype = c.x_dtype;
  spec.is_separate = f.is_separate;
  spec.heads = c.heads;
  spec.head_dim = c.head_dim;
  spec.v_head_dim = f.v_head_dim;
  spec.has_token_scale = c.token_scale;
  spec.bias = c.bias;
  spec.q_norm = NormOf(c, places, f.q_norm, TensorId::kQGamma, true);
  // The Spec of a plan that measures is that of a call as a whole.
  const bool has_dense_kv = c.dense_kv || f.measures;
  const bool wants_kv = has_dense_kv || f.has_caches;
  if (wants_kv) {
    spec.k_norm = NormOf(c, places, f.k_norm, TensorId::kKGamma, true);
    spec.v_norm = NormOf(c, places, f.v_norm, TensorId::kVGamma, false);
  }
  const bool norms_qk =
      spec.q_norm.kind != NormSpec::Kind::kNone || spec.k_norm.kind != NormSpec::Kind::kNone;
  if (norms_qk) spec.norm_order = f.norm_order;
  const NormSpec norms[] = {spec.q_norm, spec.k_norm, spec.v_norm};
  const bool has_norm = std::any_of(std::begin(norms), std::end(norms), [](const NormSpec& norm) {
    return norm.kind != NormSpec::Kind::kNone;
  });
  if (has_norm) spec.epsilon = c.epsilon;
  spec.rope = RopeOf(c, places);
  SetPositionStrides(c, memory_->member(TensorId::kPositions).library.shape, &spec.rope);
  spec.q_out = QOutOf(c, places);
  if (has_dense_kv) {
    spec.q_before_quant = DenseOf(places, TensorId::kQBeforeQuant, f.dense_dtype);
    spec.k_out = DenseOf(places, TensorId::kKOut, f.dense_dtype);
    spec.v_out = DenseOf(places, TensorId::kVOut, f.dense_dtype);
  }
  if (f.has_caches && !f.measures) {
    spec.k_cache = places.Cache(TensorId::kKCache, c.k_cache);
    spec.v_cache = places.Cache(TensorId::kVCache, c.v_cache);
    spec.slots = places.Slots();
  }
  spec.x_strides = places.Row(TensorId::kX);
  spec.q_strides = places.Row(TensorId::kQ);
  spec.k_strides = places.Row(TensorId::kK);
  spec.v_strides = places.Row(TensorId::kV);
  spec.weight_scale_shape = places.Parameter(TensorId::kWeightScale);
  spec.token_scale_shape = places.Parameter(TensorId::kTokenScale);
  spec.bias_shape = places.Parameter(TensorId::kBias);
  return spec;
}

reference::FusedProblem FusedReferenceOf(const ProblemMemory& memory, TensorView Member::*side) {
  return Builder(memory, side).Build();
}

reference::FusedProblem Problem::FusedLibraryProblem() const {
  return FusedReferenceOf(*memory_, &Member::library);
}

}  // namespace qkvfuse::cases
