#include "plan/run.h"

#include <algorithm>

#include "base/fp_environment.h"
#include "base/parallel.h"
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
    const int64_t per_token = 4 * kernels::CoefficientStride(plan_.pipeline.head_dim);
    const int64_t tile_tokens =
        std::min<int64_t>(kernels::kTileTokens, kCoefficientFloats / per_token);
    const OperandSpec& x = plan_.pipeline.of(Operand::kX);
    const int64_t row_bytes = x.heads * plan_.pipeline.head_dim * SizeOf(x.dtype);
    const bool fetches_ahead = (end - begin) * row_bytes >= kFetchAheadBytes;
    for (int64_t first = begin; first < end; first += tile_tokens) {
      RunTile(first, std::min(tile_tokens, end - first), fetches_ahead ? end : 0);
    }
  }

 private:
  void RunTile(int64_t first, int64_t count, int64_t prefetch_end) noexcept {
    alignas(64) float coefficients[kCoefficientFloats];
    CacheRows rows;
    ResolveRows(plan_, tensors_, tokens_, parts_, first_token_ + first, count, &rows);
    const int64_t* const group_rows[] = {kernels::kNoCacheRows, rows.k, rows.v};
    bool is_tame = false;
    for (size_t g = 0; g < tasks_.size(); ++g) {
      const GroupKernels& kernels = plan_.groups[g];
      if (kernels.coefficients != nullptr && !kernels.shares_coefficients) {
        is_tame = kernels.coefficients(coefficient_tasks_[g], first, count, coefficients);
      }
      Tile tile;
      tile.first_token = first;
      tile.tokens = count;
      tile.heads = tasks_[g].heads;
      tile.prefetch_end = prefetch_end;
      tile.coefficients = coefficients;
      tile.has_tame_coefficients = is_tame;
      tile.cache_rows = group_rows[g];
      (streams_[g] ? kernels.streaming : kernels.group)(tasks_[g], tile);
    }
  }

  [[nodiscard]] int64_t OffsetOf(const TokenStrides& strides) const noexcept {
    return sequence_ == 0 ? 0 : sequence_ * BatchStride(strides, tokens_);
  }

  /// Bytes from a row operand's first element to this sequence and to a head.
  [[nodiscard]] int64_t RowBytes(Operand operand, int64_t first_head) const noexcept {
    const OperandSpec& spec = plan_.pipeline.of(operand);
    const int64_t offset = OffsetOf(spec.strides) + first_head * spec.strides.head;
    return offset * SizeOf(spec.dtype);
  }

  [[nodiscard]] const void* InputRows(Operand operand, int64_t first_head) const noexcept {
    return static_cast<const char*>(PointerOf(tensors_, operand)) + RowBytes(operand, first_head);
  }

  [[nodiscard]] const void* ParameterOf(Operand operand) const noexcept {
    if (!plan_.pipeline.uses(operand)) return nullptr;
    const void* const packed = parts_.Parameter(operand);
    return packed != nullptr ? packed : PointerOf(tensors_, operand);
  }

  void MakeTask(size_t g) noexcept {
    const HeadGroup& group = plan_.pipeline.groups[g];
    GroupTask& task = tasks_[g];
    task = plan_.groups[g].task;
    MakeSource(group, &task);
    streams_[g] = plan_.groups[g].streaming != nullptr && Streams(*group.dense[0]);
    int stores = 0;
    for (const auto& dense : group.dense) {
      if (dense) task.dense[stores++] = DenseOf(g, *dense);
    }
    if (!group.cache) return;
    if (plan_.pipeline.of(*group.cache).dtype != DType::kInt8) {
      task.dense[stores] = CacheDestination(plan_, g, tensors_);
      return;
    }
    task.codes = CacheDestination(plan_, g, tensors_);
    task.scale = static_cast<const float*>(ParameterOf(*group.scale));
    if (group.offset) task.offset = static_cast<const float*>(ParameterOf(*group.offset));
  }

  void MakeSource(const HeadGroup& group, GroupTask* task) const noexcept {
    const OperandSpec& x = plan_.pipeline.of(Operand::kX);
    const int64_t channel = group.first_head * task->head_dim;
    task->source.data = InputRows(Operand::kX, group.first_head);
    task->source.token_stride = TokenStrideOf(x.strides, tokens_);
    if (x.dtype != DType::kInt32) return;
    task->source.weight_scale =
        static_cast<const float*>(ParameterOf(Operand::kWeightScale)) + channel;
    const void* const bias = ParameterOf(Operand::kBias);
    // Both kinds of packed bias have elements of four bytes.
    if (bias != nullptr) task->source.bias = static_cast<const char*>(bias) + channel * 4;
    const void* const token_scale = ParameterOf(Operand::kTokenScale);
    if (token_scale != nullptr) {
      task->source.token_scale = static_cast<const float*>(token_scale) + first_token_;
    }
  }

  /// Whether a dense output is too large to stay in the caches, and aligned.
  [[nodiscard]] bool Streams(Operand operand) const noexcept {
    const OperandSpec& spec = plan_.pipeline.of(operand);
    const int64_t element_bytes = SizeOf(spec.dtype);
    const int64_t bytes = tokens_.total() * spec.heads * plan_.pipeline.head_dim * element_bytes;
    const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(
        static_cast<const char*>(PointerOf(tensors_, operand)) + RowBytes(operand, 0)));
    // Unsigned: the stride of an axis of one element may be any number.
    const auto strides =
        static_cast<uint64_t>(TokenStrideOf(spec.strides, tokens_) | spec.strides.head) *
        static_cast<uint64_t>(element_bytes);
    return bytes >= kStreamBytes && (address | strides) % kernels::kStreamAlignment == 0;
  }

  [[nodiscard]] Destination DenseOf(size_t g, Operand operand) const noexcept {
    const OperandSpec& spec = plan_.pipeline.of(operand);
    Destination to;
    to.data = static_cast<char*>(OutputOf(tensors_, operand)) + RowBytes(operand, 0);
    to.token_stride = TokenStrideOf(spec.strides, tokens_);
    to.head_stride = spec.strides.head;
    to.channel_stride = spec.strides.channel;
    if (to.channel_stride == 1) to.pieces = PiecesOf(plan_.groups[g].dense_pieces);
    return to;
  }

  void MakeCoefficientTasks() noexcept {
    if (!plan_.pipeline.uses(Operand::kCos)) return;
    const OperandSpec& cos = plan_.pipeline.of(Operand::kCos);
    const OperandSpec& sin = plan_.pipeline.of(Operand::kSin);
    for (size_t g = 0; g < tasks_.size(); ++g) {
      kernels::CoefficientTask& task = coefficient_tasks_[g];
      task.table = cos.dtype;
      task.cos = InputRows(Operand::kCos, 0);
      task.sin = InputRows(Operand::kSin, 0);
      task.cos_token_stride = TokenStrideOf(cos.strides, tokens_);
      task.sin_token_stride = TokenStrideOf(sin.strides, tokens_);
      task.cos_channel_stride = cos.strides.channel;
      task.sin_channel_stride = sin.strides.channel;
      task.head_dim = plan_.pipeline.head_dim;
      const auto& gamma = plan_.pipeline.groups[g].gamma;
      if (gamma) task.gamma = static_cast<const float*>(ParameterOf(*gamma));
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

Destination CacheDestination(const PlanImpl& plan, size_t g, const Tensors& tensors) noexcept {
  const Operand cache = *plan.pipeline.groups[g].cache;
  const CacheLayout& layout = plan.pipeline.of(cache).layout;
  Destination to;
  to.data = OutputOf(tensors, cache);
  to.is_cache = true;
  to.head_stride = layout.head_stride;
  to.channel_stride = layout.channel_stride;
  to.channel_chunk = layout.channel_chunk;
  to.channel_chunk_stride = layout.channel_chunk_stride;
  to.pieces = PiecesOf(plan.groups[g].cache_pieces);
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
    return;
  }
  for (int64_t b = begin / tokens.sequence; b * tokens.sequence < end; ++b) {
    const int64_t first = b * tokens.sequence;
    Execution(plan, tensors, tokens, parts, b, first)
        .Run(std::max(begin - first, int64_t{0}), std::min(end - first, tokens.sequence));
  }
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
    channels += group.heads * plan.pipeline.head_dim;
  }
  const int64_t worthwhile = total * channels / kChannelsPerPart;
  if (worthwhile < 2) return 1;
  const int threads = UsableThreads(options.threads);
  return static_cast<int>(std::min({worthwhile, total, static_cast<int64_t>(threads)}));
}

}  // namespace qkvfuse::internal
