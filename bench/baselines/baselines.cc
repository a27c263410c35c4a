// Tasks of the baselines' passes from a plan, and the passes over tiles of tokens.
#include "bench/baselines/baselines.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "base/parallel.h"
#include "bench/baselines/stages.h"
#include "bench/baselines/tile_pass.h"
#include "kernels/copy.h"
#include "plan/run.h"
#include "plan/slots.h"

namespace qkvfuse::bench {

using internal::PlanImpl;
using internal::WorkspaceParts;
using kernels::GroupTask;
using kernels::Tile;

namespace {

enum Group : size_t { kQ, kK, kV, kGroups };

/// The task of each head group in one pass; a null kernel where a group has nothing to do.
using Tasks = std::array<GroupTask, kGroups>;

constexpr int64_t kAlignment = 4096;
constexpr int64_t kLine = 64;

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

kernels::SelectedKernels SelectOrThrow(const PlanImpl& plan, kernels::Transform transform,
                                       kernels::SinkKind sink) {
  kernels::KernelKey key;
  const GroupTask& q = plan.groups[kQ].task;
  key.source = kernels::SourceOf(q.store);
  key.transform = transform;
  key.sink = sink;
  key.store = key.table = q.store;
  key.head_dim = q.head_dim;
  const kernels::SelectedKernels selected = kernels::SelectFused(plan.target.id, key);
  if (selected.group == nullptr) throw std::logic_error("bench: no fused kernel for a pass");
  return selected;
}

}  // namespace

struct BaselineKernels {
  std::array<StageKernel, kGroups> first{};  // RMSNorm or dequantisation
  kernels::SelectedKernels rope;
  std::array<kernels::GroupKernel, kGroups> last{};  // into the cache
  std::array<StageKernel, kGroups> convert_copy{};
  TableReader read_tables = nullptr;
};

namespace {

/// The pointers of one call as tasks of every pass.
class Call {
 public:
  Call(const Plan& plan, const Tensors& tensors, TokenCount tokens, Workspace workspace,
       std::byte* scratch)
      : plan_(plan.impl()),
        tensors_(tensors),
        tokens_(tokens),
        parts_(plan_, tokens, workspace.data),
        scratch_(reinterpret_cast<uint16_t*>(scratch)) {
    for (size_t g = 0; g < kGroups; ++g) whole_[g] = WholeTask(g);
    MakeTables();
  }

  [[nodiscard]] const PlanImpl& plan() const { return plan_; }
  /// From x to q_out or the cache.
  [[nodiscard]] const Tasks& whole() const { return whole_; }
  [[nodiscard]] const kernels::CoefficientTask& tables() const { return tables_; }
  /// Where the tables' rows of a tile begin.
  [[nodiscard]] kernels::TableRows RowsOfTables(const Tile& tile) const {
    kernels::TableRows rows;
    for (int64_t i = 0; i < tile.tokens; ++i) {
      rows.cos[0][i] = (tile.first_token + i) * cos_stride_;
      rows.sin[0][i] = (tile.first_token + i) * sin_stride_;
    }
    return rows;
  }

  [[nodiscard]] const float* Gamma(size_t g) const {
    const auto& gamma = plan_.pipeline.groups[g].gamma;
    return gamma ? static_cast<const float*>(Parameter(*gamma)) : nullptr;
  }

  /// From x to the 16-bit rows of the intermediate.
  [[nodiscard]] Tasks ToRows() const {
    Tasks tasks = whole_;
    for (size_t g = 0; g < kGroups; ++g) tasks[g].dense[0] = Rows(g);
    return tasks;
  }

  /// In place on the intermediate.
  [[nodiscard]] Tasks InRows() const {
    Tasks tasks = ToRows();
    for (size_t g = 0; g < kGroups; ++g) {
      SetSource(g, tasks[g]);
      tasks[g].transform = kernels::Transform::kRope;
      tasks[g].sink = kernels::SinkKind::kStore;
    }
    return tasks;
  }

  /// From the intermediate, or from x where the first pass left a group out, to the cache.
  [[nodiscard]] Tasks ToCache(const BaselineKernels& kernels) const {
    Tasks tasks = whole_;
    for (const size_t g : {kK, kV}) {
      if (kernels.first[g] != nullptr) SetSource(g, tasks[g]);
      tasks[g].transform = kernels::Transform::kNone;
    }
    return tasks;
  }

  void ResolveRows(int64_t first, int64_t count, internal::CacheRows* rows) const {
    internal::ResolveRows(plan_, tensors_, tokens_, parts_, first, count, rows);
  }

 private:
  [[nodiscard]] const void* Parameter(Operand operand) const {
    if (!plan_.pipeline.uses(operand)) return nullptr;
    const void* const packed = parts_.Parameter(operand);
    return packed != nullptr ? packed : PointerOf(tensors_, operand);
  }

  [[nodiscard]] GroupTask WholeTask(size_t g) const {
    const HeadGroup& group = plan_.pipeline.groups[g];
    GroupTask task = plan_.groups[g].task;
    const OperandSpec& x = plan_.pipeline.of(Operand::kX);
    const int64_t channel = group.first_channel;
    task.source.data = static_cast<const char*>(tensors_.x) + channel * SizeOf(x.dtype);
    task.source.token_stride = x.strides.token;
    if (x.dtype == DType::kInt32) {
      task.source.weight_scale =
          static_cast<const float*>(Parameter(Operand::kWeightScale)) + channel;
      const auto* const bias = static_cast<const float*>(Parameter(Operand::kBias));
      if (bias != nullptr) task.source.bias = bias + channel;
      task.source.token_scale = static_cast<const float*>(Parameter(Operand::kTokenScale));
    }
    const GroupOutput* const cache = group.cache();
    if (cache == nullptr) {
      task.dense[0] = Rows(g);
      return task;
    }
    const bool is_int8 = plan_.pipeline.of(cache->to).dtype == DType::kInt8;
    kernels::Destination& to = is_int8 ? task.codes : task.dense[0];
    to = internal::CacheDestination(plan_, cache->to, tensors_);
    to.pieces = plan_.groups[g].pieces[0].data();
    if (cache->scale) task.scale = static_cast<const float*>(Parameter(*cache->scale));
    if (cache->offset) task.offset = static_cast<const float*>(Parameter(*cache->offset));
    return task;
  }

  /// q_out, or the group's part of the scratch rows.
  [[nodiscard]] kernels::Destination Rows(size_t g) const {
    const auto& groups = plan_.pipeline.groups;
    const int64_t head_dim = groups[g].head_dim;
    kernels::Destination to;
    to.head_stride = head_dim;
    // Contiguous rows of 16 bits, as those of q_out are.
    to.pieces = plan_.groups[kQ].pieces[0].data();
    if (g == kQ) {
      to.data = tensors_.q_out;
      to.token_stride = groups[kQ].heads * head_dim;
    } else {
      to.data = scratch_ + (g == kV ? groups[kK].heads * head_dim : 0);
      to.token_stride = (groups[kK].heads + groups[kV].heads) * head_dim;
    }
    return to;
  }

  void SetSource(size_t g, GroupTask& task) const {
    const kernels::Destination rows = Rows(g);
    task.source_kind = kernels::SourceOf(task.store);
    task.source = {};
    task.source.data = rows.data;
    task.source.token_stride = rows.token_stride;
    task.source.head_stride = rows.head_stride;
  }

  void MakeTables() {
    const OperandSpec& cos = plan_.pipeline.of(Operand::kCos);
    tables_.table = cos.dtype;
    tables_.cos = tensors_.cos;
    tables_.sin = tensors_.sin;
    cos_stride_ = cos.strides.token;
    sin_stride_ = plan_.pipeline.of(Operand::kSin).strides.token;
    tables_.rotary_dim = plan_.pipeline.rope.rotary_dim;
  }

  const PlanImpl& plan_;
  const Tensors& tensors_;
  TokenCount tokens_;
  WorkspaceParts parts_;
  uint16_t* scratch_;
  Tasks whole_;
  kernels::CoefficientTask tables_;
  int64_t cos_stride_ = 0;
  int64_t sin_stride_ = 0;
};

}  // namespace

AlignedBytes::AlignedBytes(int64_t bytes) {
  const auto size = static_cast<size_t>(RoundUp(std::max<int64_t>(bytes, 1), kAlignment));
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size)));
  if (data_ == nullptr) throw std::bad_alloc();
  std::memset(data_.get(), 0, size);
}

void AlignedBytes::Free::operator()(std::byte* data) const { std::free(data); }

int PartsOf(const Plan& plan, TokenCount tokens, int threads) {
  RunOptions options;
  options.threads = threads;
  return internal::PartsOf(plan.impl(), tokens, options);
}

Baselines::Baselines(const Plan& plan, TokenCount tokens)
    : plan_(plan),
      tokens_(tokens),
      scratch_(tokens.total() * plan.impl().groups[kK].task.head_dim * 2 *
               (plan.impl().groups[kK].task.heads + plan.impl().groups[kV].task.heads)) {
  const PlanImpl& impl = plan_.impl();
  constexpr int64_t kHeadDimUnit = 64;
  if (!plan_.is_fused() || impl.groups[kQ].task.head_dim % kHeadDimUnit != 0) {
    throw std::logic_error("bench: the baselines need fused kernels and a head_dim of n*64");
  }
  auto kernels = std::make_unique<BaselineKernels>();
  const bool is_int32 = impl.pipeline.of(Operand::kX).dtype == DType::kInt32;
  for (size_t g = 0; g < kGroups; ++g) {
    const GroupTask& task = impl.groups[g].task;
    // The conversions are chosen by what the pointers of a call say, here without a call.
    GroupTask chosen = task;
    const GroupOutput* const cache = impl.pipeline.groups[g].cache();
    const bool is_int8 = cache != nullptr && impl.pipeline.of(cache->to).dtype == DType::kInt8;
    if (is_int8) chosen.codes.data = &chosen;
    if (impl.pipeline.uses(Operand::kBias)) chosen.source.bias = &chosen;
    kernels->convert_copy[g] = SelectConvertCopy(impl.target.id, chosen);
    if (is_int32) {
      kernels->first[g] = SelectDequantise(impl.target.id, chosen);
    } else if (task.transform == kernels::Transform::kNormRope) {
      kernels->first[g] = SelectNormalise(impl.target.id, task.store);
    }
    if (cache == nullptr) continue;
    kernels->last[g] = task.sink == kernels::SinkKind::kStore
                           ? kernels::SelectCopy(task.store)
                           : SelectOrThrow(impl, kernels::Transform::kNone, task.sink).group;
  }
  kernels->rope = SelectOrThrow(impl, kernels::Transform::kRope, kernels::SinkKind::kStore);
  kernels->read_tables = SelectTableReader(impl.target.id, impl.pipeline.of(Operand::kCos).dtype);
  kernels_ = std::move(kernels);
}

Baselines::~Baselines() = default;

void Baselines::RunUnfused(const Tensors& tensors, Workspace workspace, int threads) const {
  if (!plan_.Check(tensors, tokens_, workspace).ok()) return;
  const Call call(plan_, tensors, tokens_, workspace, scratch_.data());
  const BaselineKernels& kernels = *kernels_;
  const int parts = PartsOf(plan_, tokens_, threads);

  const Tasks to_rows = call.ToRows();
  const auto first = [&](const Tile& tile) {
    for (size_t g = 0; g < kGroups; ++g) {
      if (kernels.first[g] == nullptr) continue;
      kernels.first[g](to_rows[g], call.Gamma(g), WithHeads(tile, to_rows[g]));
    }
  };
  TilePass(tokens_, parts, first).Run();

  const Tasks in_rows = call.InRows();
  const auto rope = [&](Tile tile) {
    alignas(64) float coefficients[kernels::kTileTokens * 4 * kernels::kMaxHeadDim / 2];
    kernels.rope.coefficients(call.tables(), call.RowsOfTables(tile), tile.tokens, coefficients);
    tile.coefficients = coefficients;
    for (const size_t g : {kQ, kK}) kernels.rope.group(in_rows[g], WithHeads(tile, in_rows[g]));
  };
  TilePass(tokens_, parts, rope).Run();

  const Tasks to_cache = call.ToCache(kernels);
  const auto last = [&](Tile tile) {
    internal::CacheRows rows;
    call.ResolveRows(tile.first_token, tile.tokens, &rows);
    for (const size_t g : {kK, kV}) {
      tile.cache_rows = g == kK ? rows.k : rows.v;
      kernels.last[g](to_cache[g], WithHeads(tile, to_cache[g]));
    }
  };
  TilePass(tokens_, parts, last).Run();
}

void Baselines::RunConvertCopy(const Tensors& tensors, Workspace workspace, int threads) const {
  const Call call(plan_, tensors, tokens_, workspace, scratch_.data());
  const auto copy = [&](Tile tile) {
    internal::CacheRows rows;
    call.ResolveRows(tile.first_token, tile.tokens, &rows);
    kernels_->read_tables(call.tables(), call.RowsOfTables(tile), tile.tokens);
    const int64_t* const group_rows[] = {kernels::kNoCacheRows, rows.k, rows.v};
    for (size_t g = 0; g < kGroups; ++g) {
      tile.cache_rows = group_rows[g];
      kernels_->convert_copy[g](call.whole()[g], nullptr, WithHeads(tile, call.whole()[g]));
    }
  };
  TilePass(tokens_, PartsOf(plan_, tokens_, threads), copy).Run();
}

StreamCopy::StreamCopy(const Plan& plan, TokenCount tokens, int64_t sets)
    : target_(plan.impl().target.id),
      read_bytes_(RoundUp(plan.TrafficOf(tokens).read_bytes, kLine)),
      write_bytes_(RoundUp(plan.TrafficOf(tokens).write_bytes, kLine)),
      sets_(sets),
      from_(read_bytes_ * sets),
      to_(write_bytes_ * sets) {
  if (write_bytes_ > read_bytes_)
    throw std::logic_error("bench: the call writes more than it reads");
}

void StreamCopy::Run(int parts, bool bypasses_caches) {
  struct Context {
    StreamKernel copy;
    const std::byte* from;
    std::byte* to;
    int64_t read_lines;
    int64_t write_lines;
    int64_t parts;
  };
  const StreamKernels streams = SelectStreams(target_);
  const int64_t set = next_++ % sets_;
  Context context{bypasses_caches ? streams.bypassing : streams.ordinary,
                  from_.data() + set * read_bytes_,
                  to_.data() + set * write_bytes_,
                  read_bytes_ / kLine,
                  write_bytes_ / kLine,
                  parts};
  const auto part = [](void* user, int64_t i) {
    const auto& c = *static_cast<const Context*>(user);
    const int64_t read = c.read_lines * i / c.parts;
    const int64_t write = c.write_lines * i / c.parts;
    c.copy(c.from + read * kLine, (c.read_lines * (i + 1) / c.parts - read) * kLine,
           c.to + write * kLine, (c.write_lines * (i + 1) / c.parts - write) * kLine);
  };
  RunParallel(parts, parts, part, &context);
}

}  // namespace qkvfuse::bench
