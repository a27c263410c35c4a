// The general path: any source, norm, rope and sink, any strides, any even head_dim, through an
// fp32 tile in L1. Same bits as the fused kernels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/general.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/copy.h"
#include "kernels/group-inl.h"
#include "kernels/outputs-inl.h"
#include "kernels/stages-inl.h"
#include "kernels/tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// Piece table of contiguous elements, for heads that are emitted to memory of ours.
template <typename T>
struct ContiguousPieces {
  int64_t offsets[2 * kMaxHeadDim / kPieceChannels];
  constexpr ContiguousPieces() : offsets() {
    int64_t next = 0;
    for (int64_t& offset : offsets) {
      offset = next;
      next += kPieceChannels * int64_t{sizeof(T)};
    }
  }
};
template <typename T>
inline constexpr ContiguousPieces<T> kContiguousPieces;

/// Scales and offsets of a head with padded parts: copies that are padded alike.
struct PaddedScales {
  HWY_ALIGN float scale[kMaxPaddedChannels];
  HWY_ALIGN float offset[kMaxPaddedChannels];
};

template <bool kHasOffset>
CodeScales PadScales(const GroupTask& task, const Parts& parts, int64_t head, PaddedScales* padded,
                     ReciprocalBounds* bounds) {
  for (int64_t i = 0; i < parts.TileChannels(); ++i) {
    padded->scale[i] = 1.0f;
    padded->offset[i] = 0.0f;
  }
  const size_t bytes = static_cast<size_t>(parts.channels) * sizeof(float);
  for (int64_t part = 0; part < parts.count; ++part) {
    const int64_t to = part * parts.padded;
    const int64_t from = head * task.head_dim + part * parts.channels;
    std::memcpy(padded->scale + to, task.scale + from, bytes);
    if constexpr (kHasOffset) std::memcpy(padded->offset + to, task.offset + from, bytes);
  }
  return ScalesOf<kHasOffset>(TileTag(), padded->scale, padded->offset, parts.TileChannels(),
                              bounds);
}

/// A block of heads in fp32 tiles of ours, [heads, tokens, padded].
struct FilledBlock {
  Parts parts;
  int64_t padded;
  const float* tiles;
  const float* factors;  // [heads, tokens]: the reciprocal roots; not used without a norm
  ReciprocalBounds* bounds;
};

/// One destination of a block, where its layout is not in pieces: emitted to a copy of ours, padded
/// like the tile, and scattered from there.
template <class Store, Transform kTransform, SinkKind kSink>
void EmitStaged(const GroupTask& task, const Tile& tile, const Block& block,
                const FilledBlock& filled, const Destination& to, const int64_t* cache_rows) {
  using Element = std::conditional_t<Quantises(kSink), int8_t, uint16_t>;
  using Emitter =
      HeadEmitter<FloatSource, Store, kTransform, kSink, LaneOrder::kNatural, kTileLanes>;
  const Parts& parts = filled.parts;
  const int64_t stride = CoefficientStep(kTransform, task.head_dim);
  Element ours[kMaxPaddedChannels];
  HeadOutput out;
  if constexpr (Quantises(kSink)) {
    out.codes = {ours, kContiguousPieces<Element>.offsets};
  } else {
    out.store[0] = {ours, kContiguousPieces<Element>.offsets};
  }
  PaddedScales padded;
  for (int64_t h = 0; h < block.heads; ++h) {
    const int64_t head = block.first_head + h;
    CodeScales scales;
    if constexpr (Quantises(kSink)) {
      scales = PadScales<HasOffset(kSink)>(task, parts, head, &padded, filled.bounds);
    }
    for (int64_t i = 0; i < block.tokens; ++i) {
      if (cache_rows[i] == kSkippedRow) continue;
      const int64_t at = h * block.tokens + i;
      const HeadInput in{filled.tiles + at * filled.padded, nullptr, nullptr, 1.0f};
      const Coefficients coefficients{tile.coefficients + (block.first + i) * stride};
      Emitter::Emit(parts.TileChannels(), in, out, scales, filled.factors[at], coefficients);
      Element* const row =
          RowOf<Element>(to, tile.first_token + block.first + i, cache_rows[i], head).data;
      for (int64_t part = 0; part < parts.count; ++part) {
        ScatterRun(ours + part * parts.padded, part * parts.channels, parts.channels, to, row);
      }
    }
  }
}

/// One destination of a block.
template <class Store, Transform kTransform, SinkKind kSink>
void EmitTo(const GroupTask& task, const Tile& tile, const Block& block, const FilledBlock& filled,
            const Destination& to) {
  const int64_t* const rows = to.is_cache ? tile.cache_rows + block.first : kNoCacheRows;
  if (to.pieces == nullptr) {
    EmitStaged<Store, kTransform, kSink>(task, tile, block, filled, to, rows);
    return;
  }
  Tile filled_tile = tile;
  filled_tile.prefetch_end = 0;  // the source of this emission is in L1
  GroupTask only = task;
  (Quantises(kSink) ? only.codes : only.dense[0]) = to;
  const Source tiles{filled.tiles, filled.padded, block.tokens * filled.padded, 1, nullptr,
                     nullptr,      nullptr};
  const BlockSource from{tiles, 0, 0, filled.factors, filled.bounds};
  constexpr LaneOrder kOrder = LaneOrder::kNatural;
  if (kTileLanes > 1 && task.head_dim == kCommonHeadDim) {
    EmitBlock<FloatSource, Store, kTransform, kSink, kOrder, kTileLanes, kCommonHeadDim>(
        only, filled_tile, block, from, rows);
  } else {
    EmitBlock<FloatSource, Store, kTransform, kSink, kOrder, kTileLanes, kAnyHeadDim>(
        only, filled_tile, block, from, rows);
  }
}

template <Transform kTransform>
void EmitStores(const GroupTask& task, const Tile& tile, const Block& block,
                const FilledBlock& filled, const Destination& to, DType dtype) {
  if (dtype == DType::kFloat16) {
    EmitTo<HalfStore, kTransform, SinkKind::kStore>(task, tile, block, filled, to);
  } else {
    EmitTo<BFloat16Store, kTransform, SinkKind::kStore>(task, tile, block, filled, to);
  }
}

template <Transform kTransform>
void EmitCodes(const GroupTask& task, const Tile& tile, const Block& block,
               const FilledBlock& filled, const Destination& to) {
  // The type of dense outputs does not matter to codes.
  if (task.offset != nullptr) {
    EmitTo<HalfStore, kTransform, SinkKind::kInt8Offset>(task, tile, block, filled, to);
  } else {
    EmitTo<HalfStore, kTransform, SinkKind::kInt8>(task, tile, block, filled, to);
  }
}

/// SinkKind::kOutputs, of heads that are finished.
void EmitOutputs(const GroupTask& task, const Tile& tile, const Block& block,
                 const FilledBlock& filled) {
  for (int64_t o = 0; o < task.output_count; ++o) {
    const Output& output = task.outputs[o];
    if (output.copies_bits) continue;
    if (Is16Bit(output.dtype)) {
      EmitStores<Transform::kNone>(task, tile, block, filled, output.to, output.dtype);
    } else if (output.dtype == DType::kInt8 && output.rule == ScaleRule::kDivide) {
      GroupTask only = task;
      only.scale = output.scale;
      only.offset = output.offset;
      EmitCodes<Transform::kNone>(only, tile, block, filled, output.to);
    } else {
      WriteOutput(task, tile, block, {filled.tiles, filled.padded}, output);
    }
  }
}

template <Transform kTransform>
void EmitToAll(const GroupTask& task, const Tile& tile, const Block& block,
               const FilledBlock& filled) {
  for (const Destination& to : task.dense) {
    if (to.data == nullptr || CopiesBits(task)) continue;
    EmitStores<kTransform>(task, tile, block, filled, to, task.store);
  }
  if (Quantises(task.sink)) EmitCodes<kTransform>(task, tile, block, filled, task.codes);
}

/// Fills the tiles with a block's heads; the sums of their squares go to `sums`, [heads, tokens].
/// kHeadDim is that of heads of whole pieces with contiguous channels, if it is known.
template <class SourceType, int64_t kHeadDim>
HWY_INLINE void FillPieces(const GroupTask& task, const Tile& tile, const Block& block,
                           int64_t padded, float* tiles, float* sums) {
  using Head = typename Tee<SourceType>::Head;
  const Source source = task.source;
  const int64_t head_dim = kHeadDim == kAnyHeadDim ? task.head_dim : kHeadDim;
  const int64_t first_token = tile.first_token + block.first;
  const int64_t tokens = block.tokens;
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t h = 0; h < block.heads; ++h) {
      const int64_t at = h * tokens + i;
      const Head head{InputOf<SourceType>(source, first_token + i, block.first_head + h, head_dim),
                      tiles + at * padded};
      sums[at] = SumOfSquares<Tee<SourceType>, LaneOrder::kNatural, kTileLanes>(head, head_dim);
    }
  }
}

template <class SourceType>
void FillBlock(const GroupTask& task, const Tile& tile, const Block& block, const Parts& parts,
               int64_t padded, float* tiles, float* sums) {
  if (task.source.channel_stride == 1 && !parts.ArePadded()) {
    if (task.head_dim == kCommonHeadDim) {
      return FillPieces<SourceType, kCommonHeadDim>(task, tile, block, padded, tiles, sums);
    }
    return FillPieces<SourceType, kAnyHeadDim>(task, tile, block, padded, tiles, sums);
  }
  for (int64_t i = 0; i < block.tokens; ++i) {
    const int64_t token = tile.first_token + block.first + i;
    for (int64_t h = 0; h < block.heads; ++h) {
      const int64_t at = h * block.tokens + i;
      float* const to = tiles + at * padded;
      sums[at] = FillHead<SourceType>(task.source, token, block.first_head + h, task.head_dim, to);
      if (parts.ArePadded()) SpreadParts(parts, to);
    }
  }
}

/// Copies the bits of a block's heads to the destinations that want no more.
void CopyBlock(const GroupTask& task, const Tile& tile, const Block& block) {
  Tile part = tile;
  part.first_token += block.first;
  part.tokens = block.tokens;
  part.first_head = block.first_head;
  part.heads = block.heads;
  part.cache_rows += block.first;
  if (task.sink != SinkKind::kOutputs) {
    if (CopiesBits(task)) SelectCopy(task.store)(task, part);
    return;
  }
  GroupTask copy = task;
  int copies = 0;
  for (int64_t o = 0; o < task.output_count; ++o) {
    if (task.outputs[o].copies_bits) copy.dense[copies++] = task.outputs[o].to;
  }
  // Its type is that of the source, as is that of every copy.
  if (copies > 0) SelectCopy(task.store)(copy, part);
}

/// Calls visit(token of the tile, head, sum of squares) for every head of a tile, in head order:
/// of heads as they come, or rotated where the norm comes after the rotation.
template <class Visit>
void MeasureHeads(const GroupTask& task, const Tile& tile, const Visit& visit) {
  HWY_ALIGN float head_tile[kMaxPaddedChannels];
  const bool rotates = task.stages.norm == Stages::Norm::kAfterRope;
  for (int64_t i = 0; i < tile.tokens; ++i) {
    for (int64_t head = 0; head < task.heads; ++head) {
      float sum = 0.0f;
      VisitSource(task.source_kind, [&](auto source) HWY_ATTR {
        sum = FillHead<decltype(source)>(task.source, tile.first_token + i, head, task.head_dim,
                                         head_tile);
      });
      if (rotates) {
        HeadStages(task, head).Rotate(CoefficientsOfToken(task, tile, i), 1.0f, head_tile);
        sum = SumOfTile(head_tile, task.head_dim);
      }
      visit(i, head, sum);
    }
  }
}

/// The reciprocal roots of full-width norms, one for each token of a tile; `roots` has room for 16.
void FullWidthRoots(const GroupTask& task, const Tile& tile, float* roots) {
  const Stages& stages = task.stages;
  const auto add = [roots](int64_t i, int64_t head, float sum) {
    roots[i] = head == 0 ? sum : roots[i] + sum;
  };
  if (stages.sums == nullptr) {
    MeasureHeads(task, tile, add);
  } else {
    for (int64_t i = 0; i < tile.tokens; ++i) {
      const float* const sums = stages.sums + (tile.first_token + i) * stages.total_heads;
      for (int64_t head = 0; head < stages.total_heads; ++head) add(i, head, sums[head]);
    }
  }
  ReciprocalRoots(roots, tile.tokens, stages.norm_channels, task.epsilon);
}

void GeneralGroup(const GroupTask& task, const Tile& tile) {
  const Stages& stages = task.stages;
  if (stages.head_sums != nullptr) {
    MeasureHeads(task, tile, [&](int64_t i, int64_t head, float sum) {
      stages.head_sums[(tile.first_token + i) * task.heads + head] = sum;
    });
    return;
  }
  const Parts parts = PartsOf(task);
  const int64_t padded = HWY_MAX(PaddedChannels(task.head_dim), parts.TileChannels());
  HWY_ALIGN float tiles[kBlockBytes / sizeof(float)];
  HWY_ALIGN float factors[kBlockHeads];
  HWY_ALIGN float token_roots[16];
  static_assert(kTileTokens <= 16);
  if (stages.norms_full_width) FullWidthRoots(task, tile, token_roots);
  const float* const roots = stages.norms_full_width ? token_roots : nullptr;
  ReciprocalBounds bounds;
  const FilledBlock filled{parts, padded, tiles, factors, &bounds};
  const int64_t head_bytes = padded * int64_t{sizeof(float)};
  ForEachBlock(BlockShape::kManyTokens, tile, head_bytes, [&](const Block& block) HWY_ATTR {
    VisitSource(task.source_kind, [&](auto source) HWY_ATTR {
      FillBlock<decltype(source)>(task, tile, block, parts, padded, tiles, factors);
    });
    CopyBlock(task, tile, block);
    switch (task.transform) {
      case Transform::kNone:
        break;
      case Transform::kRope:
        return EmitToAll<Transform::kRope>(task, tile, block, filled);
      case Transform::kNormRope:
        ReciprocalRoots(factors, block.heads * block.tokens, task.head_dim, task.epsilon);
        return EmitToAll<Transform::kNormRope>(task, tile, block, filled);
      case Transform::kStages:
        ApplyStages(task, tile, block, padded, roots, tiles, factors);
        break;
    }
    if (task.sink == SinkKind::kOutputs) {
      EmitOutputs(task, tile, block, filled);
    } else {
      EmitToAll<Transform::kNone>(task, tile, block, filled);
    }
  });
}

void Widen(DType dtype, const void* from, int64_t count, float* to) {
  const HeadInput in{from, nullptr, nullptr, 1.0f};
  switch (SourceOf(dtype)) {
    case SourceKind::kHalf:
      return FillContiguous<HalfSource>(in, count, to);
    case SourceKind::kBFloat16:
      return FillContiguous<BFloat16Source>(in, count, to);
    default:
      return FillContiguous<FloatSource>(in, count, to);
  }
}

bool HasZero(const float* values, int64_t count) {
  const TileTag d;
  const auto zero = hn::Zero(d);
  auto is_zero = hn::Ne(zero, zero);
  int64_t i = 0;
  for (; i + kTileLanes <= count; i += kTileLanes) {
    is_zero = hn::Or(is_zero, hn::Eq(hn::LoadU(d, values + i), zero));
  }
  bool found = !hn::AllFalse(d, is_zero);
  for (; i < count; ++i) found |= values[i] == 0.0f;
  return found;
}

SelectedKernels GeneralKernels() { return {&GeneralGroup, &GeneralCoefficients, "general path"}; }

ParameterFunctions ParametersOfTarget() { return {&Widen, &HasZero}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/dispatch.h"

namespace qkvfuse::kernels {

HWY_EXPORT(GeneralKernels);
HWY_EXPORT(ParametersOfTarget);

SelectedKernels SelectGeneral(int64_t target) {
  return HWY_DISPATCH_TABLE(GeneralKernels)[DispatchIndex(target)]();
}

ParameterFunctions SelectParameterFunctions(int64_t target) {
  return HWY_DISPATCH_TABLE(ParametersOfTarget)[DispatchIndex(target)]();
}

}  // namespace qkvfuse::kernels
#endif  // HWY_ONCE
