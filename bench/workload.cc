// Fills a few tokens through a cases::Problem and repeats them: filling every row of a long prompt
// anew would take longer than timing it.
#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "cases/fill.h"

namespace qkvfuse::bench {
namespace {

using cases::Case;
using cases::TensorId;

constexpr int64_t kPatternTokens = 16;
constexpr int64_t kLine = 64;

Case PatternOf(Case c) {
  if (c.tokens.batch > 1) {
    c.tokens.batch = std::min(c.tokens.batch, kPatternTokens);
  } else {
    c.tokens.sequence = std::min(c.tokens.sequence, kPatternTokens);
  }
  return c;
}

template <typename Value>
void Overwrite(const TensorView& view, Value value) {
  for (int64_t i = 0; i < view.shape.ElementCount(); ++i) {
    cases::StoreElement(view, cases::OffsetOf(view.shape, i), value(i));
  }
}

/// Angle of channel `i` of a row; both halves turn by the same angles.
double Angle(int64_t token, int64_t channel, int64_t head_dim) {
  constexpr double kTheta = 1e4;
  const int64_t half = head_dim / 2;
  const double exponent = static_cast<double>(channel % half) / static_cast<double>(half);
  return static_cast<double>(17 * token) * std::pow(kTheta, -exponent);
}

// Angles make RoPE a rotation, as bounds on the intermediate roundings assume; scales let most
// values fit into int8, as calibrated ones do.
void FillLikeAModel(const Case& c, const cases::NamedView& input) {
  const int64_t head_dim = c.head_dim;
  switch (input.id) {
    case TensorId::kCos:
      return Overwrite(input.view, [&](int64_t i) {
        return std::cos(Angle(i / head_dim, i % head_dim, head_dim));
      });
    case TensorId::kSin:
      return Overwrite(input.view, [&](int64_t i) {
        return std::sin(Angle(i / head_dim, i % head_dim, head_dim));
      });
    case TensorId::kKScale:
    case TensorId::kVScale: {
      const double scale = c.is_qnr() ? 0.035 : 0.27;
      return Overwrite(input.view,
                       [&](int64_t i) { return scale * (1 + static_cast<double>(i % 16) / 32); });
    }
    default:
      return;
  }
}

// With these, norm, rope, dequantisation and quantisation are exact and change nothing. The int32
// values exceed int8, so that saturation shows.
void FillIdentity(const Case& c, const cases::NamedView& input) {
  std::mt19937_64 random(7);
  switch (input.id) {
    case TensorId::kX:
      return Overwrite(input.view, [&](int64_t) {
        const auto bits = static_cast<int>(random() % 301);
        return c.is_qnr() ? (bits % 2 == 0 ? 1.0 : -1.0) : bits - 150.0;
      });
    case TensorId::kSlots:
      return;
    case TensorId::kSin:
    case TensorId::kKOffset:
    case TensorId::kVOffset:
    case TensorId::kBias:
      return Overwrite(input.view, [](int64_t) { return 0.0; });
    default:
      return Overwrite(input.view, [](int64_t) { return 1.0; });
  }
}

CacheLayout LayoutOf(const Case& c, const cases::CacheCase& cache, int64_t heads,
                     const CacheLayout& pool) {
  const int64_t rows = pool.block_size;
  switch (c.layout) {
    case cases::Layout::kPaNz:
      return PaNz(pool.blocks, rows, heads, c.head_dim, cases::ChunkOf(cache));
    case cases::Layout::kPaged:
      return PagedNhd(pool.blocks, rows, heads, c.head_dim);
    case cases::Layout::kContiguous:
      return ContiguousBsnd(pool.blocks, rows, heads, c.head_dim);
    default:
      throw std::runtime_error("bench: layouts of op=fused are not timed");
  }
}

/// Blocks and rows of a pool in which every set has rows of its own.
CacheLayout PoolOf(const Case& c, int64_t sets) {
  CacheLayout pool;
  if (c.slot_mode == SlotMode::kStartPerSequence) {
    pool.blocks = c.tokens.batch;
    pool.block_size = std::max(c.block_size, sets * c.tokens.sequence);
    return pool;
  }
  pool.block_size = c.block_size;
  const int64_t rows = sets * c.tokens.total();
  pool.blocks = std::max(cases::BlockCount(c), rows / c.block_size + 1);
  return pool;
}

int64_t CacheBytes(const CacheLayout& layout, DType dtype) {
  return layout.blocks * layout.block_stride * SizeOf(dtype);
}

template <class Spec>
Plan PlanWithLayouts(Spec spec, const CacheLayout& k, const CacheLayout& v) {
  spec.k_cache.layout = k;
  spec.v_cache.layout = v;
  Result<Plan> plan = qkvfuse::MakePlan(spec);
  if (!plan.ok()) throw std::runtime_error(plan.status().message());
  return *plan;
}

}  // namespace

Workload::Workload(const Case& c, int64_t bytes, Data data) : case_(c) {
  Result<std::unique_ptr<cases::Problem>> pattern = cases::Problem::Make(PatternOf(c));
  if (!pattern.ok()) throw std::runtime_error(pattern.status().message());
  pattern_ = std::move(*pattern);
  inputs_ = pattern_->Inputs();
  for (const cases::NamedView& input : inputs_) {
    data == Data::kModel ? FillLikeAModel(c, input) : FillIdentity(c, input);
  }
  MakePlan(bytes);
  MakeCaches();
  for (int64_t set = 0; set < set_count_; ++set) AddSet(set);
  const auto scratch = static_cast<int64_t>(plan_->WorkspaceBytes(tokens()));
  workspace_ = {Allocate(scratch), static_cast<size_t>(scratch)};
  const Status status = plan_->Check(set(0), tokens(), workspace_);
  if (!status.ok()) throw std::runtime_error(status.message());
}

void Workload::MakePlan(int64_t bytes) {
  const auto make = [&] {
    const CacheLayout pool = PoolOf(case_, set_count_);
    k_layout_ = LayoutOf(case_, case_.k_cache, case_.heads.k, pool);
    v_layout_ = LayoutOf(case_, case_.v_cache, case_.heads.v, pool);
    plan_ = std::make_unique<Plan>(
        case_.is_qnr() ? PlanWithLayouts(pattern_->QnrSpec(), k_layout_, v_layout_)
                       : PlanWithLayouts(pattern_->DrqSpec(), k_layout_, v_layout_));
  };
  make();
  const int64_t moved = plan_->TrafficOf(tokens()).total();
  set_count_ = std::max<int64_t>(1, (bytes + moved - 1) / moved);
  if (set_count_ > 1) make();
}

void Workload::MakeCaches() {
  k_cache_ = Allocate(CacheBytes(k_layout_, case_.k_cache.dtype));
  v_cache_ = Allocate(CacheBytes(v_layout_, case_.v_cache.dtype));
  if (case_.slots == cases::SlotPattern::kSequential) return;
  // Per sequence, slots are rows of its block; per token, rows of the whole pool.
  const bool by_start = case_.slot_mode == SlotMode::kStartPerSequence;
  scattered_.resize(static_cast<size_t>(by_start ? set_count_ : k_layout_.slots()));
  std::iota(scattered_.begin(), scattered_.end(), int64_t{0});
  std::shuffle(scattered_.begin(), scattered_.end(), std::mt19937_64(11));
}

std::byte* Workload::Allocate(int64_t bytes) {
  constexpr int64_t kChunk = int64_t{4} << 20;
  bytes = (bytes + kLine - 1) / kLine * kLine;
  if (bytes > left_) {
    left_ = std::max(bytes, kChunk);
    memory_.emplace_back(left_);
    chunk_bytes_ = left_;
  }
  std::byte* const data = memory_.back().data() + (chunk_bytes_ - left_);
  left_ -= bytes;
  return data;
}

const void* Workload::CopyOf(TensorId id) {
  const auto found = std::find_if(inputs_.begin(), inputs_.end(),
                                  [id](const cases::NamedView& input) { return input.id == id; });
  if (found == inputs_.end()) return nullptr;
  const TensorView& view = found->view;
  const int64_t pattern_bytes = view.shape.ElementCount() * SizeOf(view.dtype);
  const bool is_per_token = id == TensorId::kX || id == TensorId::kCos || id == TensorId::kSin ||
                            id == TensorId::kTokenScale;
  const int64_t pattern_tokens = pattern_->tokens().total();
  const int64_t bytes =
      is_per_token ? pattern_bytes / pattern_tokens * tokens().total() : pattern_bytes;
  std::byte* const data = Allocate(bytes);
  for (int64_t done = 0; done < bytes; done += pattern_bytes) {
    std::memcpy(data + done, view.data, static_cast<size_t>(std::min(pattern_bytes, bytes - done)));
  }
  return data;
}

int64_t Workload::SlotOf(int64_t set, int64_t i) const {
  const bool by_start = case_.slot_mode == SlotMode::kStartPerSequence;
  const int64_t first = set * (by_start ? tokens().sequence : tokens().total());
  if (scattered_.empty()) return first + i;
  if (!by_start) return scattered_[static_cast<size_t>(first + i)];
  return scattered_[static_cast<size_t>((set + 7 * i) % set_count_)];
}

const void* Workload::MakeSlots(int64_t set) {
  const bool by_start = case_.slot_mode == SlotMode::kStartPerSequence;
  const int64_t count = by_start ? tokens().batch : tokens().total();
  std::byte* const data = Allocate(count * SizeOf(case_.slot_dtype));
  const TensorView view{case_.slot_dtype, StridedShape::Contiguous({count}), data};
  Overwrite(view, [&](int64_t i) { return static_cast<double>(SlotOf(set, i)); });
  return data;
}

void Workload::AddSet(int64_t set) {
  Tensors t;
  t.x = CopyOf(TensorId::kX);
  t.q_gamma = CopyOf(TensorId::kQGamma);
  t.k_gamma = CopyOf(TensorId::kKGamma);
  t.cos = CopyOf(TensorId::kCos);
  t.sin = CopyOf(TensorId::kSin);
  t.slots = MakeSlots(set);
  t.k_scale = CopyOf(TensorId::kKScale);
  t.v_scale = CopyOf(TensorId::kVScale);
  t.k_offset = CopyOf(TensorId::kKOffset);
  t.v_offset = CopyOf(TensorId::kVOffset);
  t.weight_scale = CopyOf(TensorId::kWeightScale);
  t.token_scale = CopyOf(TensorId::kTokenScale);
  t.bias = CopyOf(TensorId::kBias);
  t.q_out = Allocate(tokens().total() * case_.heads.q * case_.head_dim * SizeOf(case_.dtype));
  t.k_cache = k_cache_;
  t.v_cache = v_cache_;
  sets_.push_back(t);
}

TensorView Workload::Output(TensorId id) const {
  const auto flat = [](int64_t elements, DType dtype, void* data) {
    return TensorView{dtype, StridedShape::Contiguous({elements}), data};
  };
  if (id == TensorId::kQOut) {
    return flat(tokens().total() * case_.heads.q * case_.head_dim, case_.dtype, set(0).q_out);
  }
  const bool is_k = id == TensorId::kKCache;
  const CacheLayout& layout = is_k ? k_layout_ : v_layout_;
  return flat(layout.blocks * layout.block_stride, (is_k ? case_.k_cache : case_.v_cache).dtype,
              is_k ? k_cache_ : v_cache_);
}

void Workload::ClearOutputs() {
  for (const TensorId id : {TensorId::kQOut, TensorId::kKCache, TensorId::kVCache}) {
    const TensorView view = Output(id);
    std::memset(view.data, 0, static_cast<size_t>(view.shape.ElementCount() * SizeOf(view.dtype)));
  }
}

}  // namespace qkvfuse::bench
