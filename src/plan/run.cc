#include "plan/run.h"

#include <algorithm>

#include "base/fp_environment.h"
#include "base/message.h"
#include "base/parallel.h"
#include "plan/index_reader.h"
#include "plan/page_table.h"
#include "plan/slots.h"
#include "plan/workspace.h"

namespace qkvfuse::internal {
namespace {

using kernels::Destination;
using kernels::GroupTask;
using kernels::Tile;

// Coefficients of a tile of tokens; with head_dim 128, those of kTileTokens.
constexpr int64_t kCoefficientFloats = 4096;

// Rows of fewer bytes are in the caches, or soon are without help.
constexpr int64_t kFetchAheadBytes = int64_t{1} << 20;

// A dense output of so many bytes has left the caches before it is read.
constexpr int64_t kStreamBytes = int64_t{16} << 20;

/// The stride from one token to the next where all tokens of a call are evenly spaced, else the
/// stride inside a sequence.
int64_t TokenStrideOf(const TokenStrides& strides, TokenCount tokens) noexcept {
  return tokens.sequence == 1 && tokens.batch > 1 && strides.batch != TokenStrides::kFollows
             ? strides.batch
             : strides.token;
}

const int64_t* PiecesOf(const std::vector<int64_t>& table) noexcept {
  return table.empty() ? nullptr : table.data();
}

bool IsEvenlySpaced(const TokenStrides& strides, TokenCount tokens) noexcept {
  return strides.batch == TokenStrides::kFollows || tokens.batch == 1 || tokens.sequence == 1 ||
         strides.batch == tokens.sequence * strides.token;
}

/// A call's tasks, for tokens that are evenly spaced in every tensor: those of one sequence, or of
/// the whole batch.
class Execution {
 public:
  /// `first_token` is the batch-wide number of the tasks' token 0.
  Execution(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens,
            const WorkspaceParts& parts, int64_t sequence, int64_t first_token) noexcept
      : plan_(plan),
        tensors_(tensors),
        tokens_(tokens),
        parts_(parts),
        sequence_(sequence),
        first_token_(first_token) {
    for (size_t g = 0; g < tasks_.size(); ++g) MakeTask(g);
    MakeCoefficientTasks();
  }

  ~Execution() {
    if (std::find(streams_.begin(), streams_.end(), true) != streams_.end()) {
      kernels::FinishStreams();
    }
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  /// Tokens [begin, end) of the tasks.
  void Run(int64_t begin, int64_t end) noexcept {
    const int64_t per_token = 4 * kernels::CoefficientStride(plan_.pipeline.rope.rotary_dim);
    const int64_t tile_tokens = std::min<int64_t>(
        kernels::kTileTokens, kCoefficientFloats / std::max<int64_t>(per_token, 1));
    const bool fetches_ahead = (end - begin) * RowBytesOfSource() >= kFetchAheadBytes;
    for (int64_t first = begin; first < end; first += tile_tokens) {
      RunTile(first, std::min(tile_tokens, end - first), fetches_ahead ? end : 0);
    }
  }

 private:
  /// Bytes of a token's heads, packed or not.
  [[nodiscard]] int64_t RowBytesOfSource() const noexcept {
    int64_t bytes = 0;
    for (const HeadGroup& group : plan_.pipeline.groups) {
      bytes += group.heads * group.head_dim * SizeOf(plan_.pipeline.of(group.source).dtype);
    }
    return bytes;
  }

  void RunTile(int64_t first, int64_t count, int64_t prefetch_end) noexcept {
    alignas(64) float coefficients[kCoefficientFloats];
    CacheRows rows;
    kernels::TableRows table_rows;
    if (plan_.pipeline.has_caches()) {
      ResolveRows(plan_, tensors_, tokens_, parts_, first_token_ + first, count, &rows);
    }
    if (plan_.pipeline.uses(Operand::kCos)) ResolveTableRows(first, count, &table_rows);
    const int64_t* const group_rows[] = {kernels::kNoCacheRows, rows.k, rows.v};
    const int64_t* const scale_rows[] = {nullptr, rows.k_scales, rows.v_scales};
    bool is_tame = false;
    for (size_t g = 0; g < tasks_.size(); ++g) {
      const GroupKernels& kernels = plan_.groups[g];
      if (kernels.group == nullptr) continue;
      if (kernels.coefficients != nullptr && !kernels.shares_coefficients) {
        is_tame = kernels.coefficients(coefficient_tasks_[g], table_rows, count, coefficients);
      }
      Tile tile;
      tile.first_token = first;
      tile.tokens = count;
      tile.heads = tasks_[g].heads;
      tile.prefetch_end = prefetch_end;
      tile.coefficients = coefficients;
      tile.has_tame_coefficients = is_tame;
      tile.cache_rows = plan_.pipeline.has_caches() ? group_rows[g] : kernels::kNoCacheRows;
      tile.scale_rows = scale_rows[g];
      (streams_[g] ? kernels.streaming : kernels.group)(tasks_[g], tile);
    }
  }

  /// Where the tokens' rows of cos and sin begin.
  void ResolveTableRows(int64_t first, int64_t count, kernels::TableRows* rows) const noexcept {
    const RopeStage& rope = plan_.pipeline.rope;
    const TokenStrides& cos = plan_.pipeline.of(Operand::kCos).strides;
    const TokenStrides& sin =
        plan_.pipeline.of(rope.is_joined ? Operand::kCos : Operand::kSin).strides;
    if (!rope.by_position) {
      const int64_t cos_stride = TokenStrideOf(cos, tokens_);
      const int64_t sin_stride = TokenStrideOf(sin, tokens_);
      for (int64_t i = 0; i < count; ++i) {
        rows->cos[0][i] = (first + i) * cos_stride;
        rows->sin[0][i] = (first + i) * sin_stride;
      }
      return;
    }
    const IndexReader positions{tensors_.positions, plan_.pipeline.of(Operand::kPositions).dtype,
                                rope.position_stride};
    const int64_t sections = rope.pair_sections.empty() ? 1 : kernels::kMaxSections;
    for (int64_t section = 0; section < sections; ++section) {
      const int64_t row = section * PositionSectionStride(rope, tokens_);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t token = first_token_ + first + i;
        const int64_t position = positions.At(row + token * rope.position_stride);
        rows->cos[section][i] = position * cos.token;
        rows->sin[section][i] = position * sin.token;
      }
    }
  }

  [[nodiscard]] int64_t OffsetOf(const TokenStrides& strides) const noexcept {
    return sequence_ == 0 ? 0 : sequence_ * BatchStride(strides, tokens_);
  }

  /// Bytes from a row operand's first element to this sequence; tables are of all sequences.
  [[nodiscard]] int64_t RowBytes(Operand operand) const noexcept {
    const OperandSpec& spec = plan_.pipeline.of(operand);
    return spec.role == Role::kTable ? 0 : OffsetOf(spec.strides) * SizeOf(spec.dtype);
  }

  [[nodiscard]] const void* InputRows(Operand operand) const noexcept {
    return static_cast<const char*>(PointerOf(tensors_, operand)) + RowBytes(operand);
  }

  [[nodiscard]] const void* ParameterOf(Operand operand) const noexcept {
    if (!plan_.pipeline.uses(operand)) return nullptr;
    const void* const packed = parts_.Parameter(operand);
    return packed != nullptr ? packed : PointerOf(tensors_, operand);
  }

  [[nodiscard]] const float* FloatsOf(const std::optional<Operand>& operand) const noexcept {
    return operand ? static_cast<const float*>(ParameterOf(*operand)) : nullptr;
  }

  void MakeTask(size_t g) noexcept {
    const HeadGroup& group = plan_.pipeline.groups[g];
    GroupTask& task = tasks_[g];
    task = plan_.groups[g].task;
    if (plan_.groups[g].group == nullptr) return;
    MakeSource(group, &task);
    if (task.transform == kernels::Transform::kStages) MakeStages(group, &task);
    streams_[g] = plan_.groups[g].streaming != nullptr && Streams(group.outputs[0]->to);
    int64_t stores = 0;
    for (size_t o = 0; o < group.outputs.size(); ++o) {
      if (!group.outputs[o]) continue;
      const Destination to = DestinationOf(g, o);
      if (task.sink == kernels::SinkKind::kOutputs) {
        MakeOutput(*group.outputs[o], to, &task.outputs[o]);
      } else if (plan_.pipeline.of(group.outputs[o]->to).dtype == DType::kInt8) {
        task.codes = to;
        task.scale = FloatsOf(group.outputs[o]->scale);
        task.offset = FloatsOf(group.outputs[o]->offset);
      } else {
        task.dense[stores++] = to;
      }
    }
  }

  void MakeOutput(const GroupOutput& spec, const Destination& to,
                  kernels::Output* output) const noexcept {
    output->to = to;
    output->scale = FloatsOf(spec.scale);
    output->offset = FloatsOf(spec.offset);
    if (spec.scale_out) output->scales = RowsOf(*spec.scale_out);
  }

  void MakeStages(const HeadGroup& group, GroupTask* task) const noexcept {
    kernels::Stages& stages = task->stages;
    stages.gamma = FloatsOf(group.gamma);
    if (group.sums) {
      stages.sums = static_cast<const float*>(PointerOf(tensors_, *group.sums)) +
                    first_token_ * stages.total_heads;
    }
    if (group.head_sums) {
      stages.head_sums =
          static_cast<float*>(OutputOf(tensors_, *group.head_sums)) + first_token_ * group.heads;
    }
  }

  void MakeSource(const HeadGroup& group, GroupTask* task) const noexcept {
    const OperandSpec& x = plan_.pipeline.of(group.source);
    const int64_t channel = group.first_channel;
    task->source.data =
        static_cast<const char*>(InputRows(group.source)) + group.source_offset * SizeOf(x.dtype);
    task->source.token_stride = TokenStrideOf(x.strides, tokens_);
    const void* const bias = ParameterOf(Operand::kBias);
    // Both kinds of packed bias have elements of four bytes.
    if (bias != nullptr) task->source.bias = static_cast<const char*>(bias) + channel * 4;
    if (x.dtype != DType::kInt32) return;
    task->source.weight_scale =
        static_cast<const float*>(ParameterOf(Operand::kWeightScale)) + channel;
    const void* const token_scale = ParameterOf(Operand::kTokenScale);
    if (token_scale != nullptr) {
      task->source.token_scale = static_cast<const float*>(token_scale) + first_token_;
    }
  }

  /// Whether a dense output is too large to stay in the caches, and aligned.
  [[nodiscard]] bool Streams(Operand operand) const noexcept {
    const OperandSpec& spec = plan_.pipeline.of(operand);
    const int64_t element_bytes = SizeOf(spec.dtype);
    const int64_t bytes = tokens_.total() * spec.heads * spec.channels * element_bytes;
    const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(
        static_cast<const char*>(PointerOf(tensors_, operand)) + RowBytes(operand)));
    // Unsigned: the stride of an axis of one element may be any number.
    const auto strides =
        static_cast<uint64_t>(TokenStrideOf(spec.strides, tokens_) | spec.strides.head) *
        static_cast<uint64_t>(element_bytes);
    return bytes >= kStreamBytes && (address | strides) % kernels::kStreamAlignment == 0;
  }

  /// A cache, or the rows of a dense output.
  [[nodiscard]] Destination RowsOf(Operand operand) const noexcept {
    const OperandSpec& spec = plan_.pipeline.of(operand);
    if (spec.role == Role::kCache) return CacheDestination(plan_, operand, tensors_);
    Destination to;
    to.data = static_cast<char*>(OutputOf(tensors_, operand)) + RowBytes(operand);
    to.token_stride = TokenStrideOf(spec.strides, tokens_);
    to.head_stride = spec.strides.head;
    to.channel_stride = spec.strides.channel;
    return to;
  }

  [[nodiscard]] Destination DestinationOf(size_t g, size_t output) const noexcept {
    Destination to = RowsOf(plan_.pipeline.groups[g].outputs[output]->to);
    to.pieces = PiecesOf(plan_.groups[g].pieces[output]);
    return to;
  }

  void MakeCoefficientTasks() noexcept {
    if (!plan_.pipeline.uses(Operand::kCos)) return;
    const RopeStage& rope = plan_.pipeline.rope;
    const OperandSpec& cos = plan_.pipeline.of(Operand::kCos);
    kernels::CoefficientTask task;
    task.table = cos.dtype;
    task.cos = InputRows(Operand::kCos);
    task.cos_channel_stride = cos.strides.channel;
    task.rotary_dim = rope.rotary_dim;
    task.pairing = rope.pairing;
    task.half_width = rope.half_width;
    if (!rope.pair_sections.empty()) task.pair_sections = rope.pair_sections.data();
    if (rope.is_joined) {
      task.sin = static_cast<const char*>(task.cos) +
                 rope.rotary_dim / 2 * cos.strides.channel * SizeOf(cos.dtype);
      task.sin_channel_stride = cos.strides.channel;
    } else {
      task.sin = InputRows(Operand::kSin);
      task.sin_channel_stride = plan_.pipeline.of(Operand::kSin).strides.channel;
    }
    for (size_t g = 0; g < tasks_.size(); ++g) {
      coefficient_tasks_[g] = task;
      if (!plan_.groups[g].folds_gamma) continue;
      coefficient_tasks_[g].gamma = FloatsOf(plan_.pipeline.groups[g].gamma) + rope.first_channel;
    }
  }

  const PlanImpl& plan_;
  const Tensors& tensors_;
  TokenCount tokens_;
  const WorkspaceParts& parts_;
  int64_t sequence_;
  int64_t first_token_;
  std::array<GroupTask, 3> tasks_;
  std::array<bool, 3> streams_{};
  std::array<kernels::CoefficientTask, 3> coefficient_tasks_;
};

/// Whether tasks of the whole batch can be made: every row tensor is evenly spaced.
bool BatchIsEvenlySpaced(const PlanImpl& plan, TokenCount tokens) noexcept {
  for (const OperandSpec& spec : plan.pipeline.operands.items) {
    if (spec.role == Role::kRows && !IsEvenlySpaced(spec.strides, tokens)) return false;
  }
  return true;
}

}  // namespace

Destination CacheDestination(const PlanImpl& plan, Operand cache, const Tensors& tensors) noexcept {
  const CacheLayout& layout = plan.pipeline.of(cache).layout;
  Destination to;
  to.data = OutputOf(tensors, cache);
  to.is_cache = true;
  to.head_stride = layout.head_stride;
  to.channel_stride = layout.channel_stride;
  to.channel_chunk = layout.channel_chunk;
  to.channel_chunk_stride = layout.channel_chunk_stride;
  return to;
}

void RunTokens(const PlanImpl& plan, const Tensors& tensors, TokenCount tokens, int64_t begin,
               int64_t end, Workspace workspace) noexcept {
  if (!IsTokenCount(tokens)) return;
  begin = std::max(begin, int64_t{0});
  end = std::min(end, tokens.total());
  if (begin >= end) return;
  const ScopedFpEnvironment environment;
  const WorkspaceParts parts(plan, tokens, workspace.data);
  if (BatchIsEvenlySpaced(plan, tokens)) {
    Execution(plan, tensors, tokens, parts, 0, 0).Run(begin, end);
    if (plan.pipeline.slots.zeroes_unused_rows) ZeroUnusedRows(plan, tensors, tokens, begin, end);
    return;
  }
  for (int64_t b = begin / tokens.sequence; b * tokens.sequence < end; ++b) {
    const int64_t first = b * tokens.sequence;
    Execution(plan, tensors, tokens, parts, b, first)
        .Run(std::max(begin - first, int64_t{0}), std::min(end - first, tokens.sequence));
  }
}

Status CheckRunOptions(const RunOptions& options) noexcept try {
  if (options.threads >= 0) return {};
  return Invalid("options.threads: is ", options.threads, ", must be 0 or more");
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

int PartsOf(const PlanImpl& plan, TokenCount tokens, const RunOptions& options) noexcept {
  if (!IsTokenCount(tokens)) return 1;
  const int64_t total = tokens.total();
  if (options.force_split && options.threads > 0) {
    return static_cast<int>(std::min<int64_t>(options.threads, std::max<int64_t>(total, 1)));
  }
  // Below about eight tokens of 48 heads of 128 channels a fork and join costs more than the work.
  constexpr int64_t kChannelsPerPart = 4 * 48 * 128;
  int64_t channels = 0;
  for (const HeadGroup& group : plan.pipeline.groups) {
    channels += group.heads * group.head_dim;
  }
  const int64_t worthwhile = total * channels / kChannelsPerPart;
  if (worthwhile < 2) return 1;
  const int threads = UsableThreads(options.threads);
  return static_cast<int>(std::min({worthwhile, total, static_cast<int64_t>(threads)}));
}

}  // namespace qkvfuse::internal
