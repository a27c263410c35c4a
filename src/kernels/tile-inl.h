// The general path's pieces: fill an fp32 tile with a head from any strides, and scatter what was
// emitted to memory of ours into any layout. A tile is ours, so vectors may run past a head's end
// in it; the caller's memory is read and written exactly.
#include <cstring>

#include "kernels/copy.h"
#include "kernels/norm-inl.h"
#include "kernels/sinks-inl.h"

#if defined(QKVFUSE_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_TILE_INL_H_
#undef QKVFUSE_KERNELS_TILE_INL_H_
#else
#define QKVFUSE_KERNELS_TILE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// Vectors of the tile loops; the padding of a head is a multiple of sixteen channels.
inline constexpr int kTileLanes = HWY_MIN(kMaxLanes, 8);
using TileTag = FloatTag<kTileLanes>;
using ScalarTag = FloatTag<1>;

template <class SourceType, class D>
HWY_INLINE VecOf<D> LoadVector(D d, const HeadInput& in, int64_t channel) {
  if constexpr (std::is_same_v<SourceType, FloatSource>) {
    return hn::LoadU(d, static_cast<const float*>(in.data) + channel);
  } else if constexpr (std::is_same_v<SourceType, HalfSource>) {
    return LoadHalf(d, static_cast<const uint16_t*>(in.data) + channel);
  } else if constexpr (std::is_same_v<SourceType, BFloat16Source>) {
    return LoadBFloat16(d, static_cast<const uint16_t*>(in.data) + channel);
  } else {
    return SourceType::LoadOne(d, in, channel);
  }
}

/// A source with a bias of the projection, added to the widened value.
template <class Plain>
struct Biased {
  using Element = typename Plain::Element;

  template <class D>
  static HWY_INLINE VecOf<D> LoadOne(D d, const HeadInput& head, int64_t channel) {
    const float* const bias = static_cast<const float*>(head.bias) + channel;
    return hn::Add(LoadVector<Plain>(d, head, channel), hn::LoadU(d, bias));
  }

  template <LaneOrder kOrder, class D>
  static HWY_INLINE void LoadPair(D d, const HeadInput& head, int64_t channel, VecOf<D>& first,
                                  VecOf<D>& second) {
    static_assert(kOrder == LaneOrder::kNatural);
    first = LoadOne(d, head, channel);
    second = LoadOne(d, head, channel + static_cast<int64_t>(hn::Lanes(d)));
  }
};

/// Calls step(d, i) for whole vectors of channels [begin, end), then for single channels.
template <class Step>
HWY_INLINE void ForEachVector(int64_t begin, int64_t end, const Step& step) {
  int64_t i = begin;
  for (; i + kTileLanes <= end; i += kTileLanes) step(TileTag(), i);
  for (; i < end; ++i) step(ScalarTag(), i);
}

/// Widens or dequantises `count` contiguous channels.
template <class SourceType>
HWY_INLINE void FillContiguous(const HeadInput& in, int64_t count, float* to) {
  ForEachVector(0, count, [&](auto d, int64_t i) QKVFUSE_LAMBDA {
    hn::StoreU(LoadVector<SourceType>(d, in, i), d, to + i);
  });
}

/// A source that also keeps what it yields in a tile: filling costs no pass of its own.
template <class SourceType>
struct Tee {
  struct Head {
    HeadInput in;
    float* tile;
  };
  template <LaneOrder kOrder, class D>
  static HWY_INLINE void LoadPair(D d, const Head& head, int64_t channel, VecOf<D>& first,
                                  VecOf<D>& second) {
    SourceType::template LoadPair<kOrder>(d, head.in, channel, first, second);
    hn::StoreU(first, d, head.tile + channel);
    hn::StoreU(second, d, head.tile + channel + hn::Lanes(d));
  }
};

/// Zeros behind a head, up to a multiple of sixteen channels: they add nothing to a sum of squares,
/// and vectors may read them.
HWY_INLINE void ZeroPadding(float* tile, int64_t head_dim) {
  for (int64_t i = head_dim; i < PaddedChannels(head_dim); ++i) tile[i] = 0.0f;
}

/// Fills a tile with a head of any channel stride and returns its sum of squares.
template <class SourceType>
float FillHead(const Source& source, int64_t token, int64_t head, int64_t head_dim, float* tile) {
  using Element = typename SourceType::Element;
  HeadInput in = InputOf<SourceType>(source, token, head, head_dim);
  Element gathered[kMaxHeadDim];
  if (source.channel_stride != 1) {
    const Element* from = static_cast<const Element*>(in.data);
    for (int64_t i = 0; i < head_dim; ++i) gathered[i] = from[i * source.channel_stride];
    in.data = gathered;
  }
  if (head_dim % kPieceChannels == 0) {
    return SumOfSquares<Tee<SourceType>, LaneOrder::kNatural, kTileLanes>(
        typename Tee<SourceType>::Head{in, tile}, head_dim);
  }
  FillContiguous<SourceType>(in, head_dim, tile);
  ZeroPadding(tile, head_dim);
  return SumOfSquares<FloatSource, LaneOrder::kNatural, kTileLanes>(
      HeadInput{tile, nullptr, nullptr, 1.0f}, PaddedChannels(head_dim));
}

/// Calls visit with a source of the kind.
template <class Visit>
HWY_INLINE void VisitSource(SourceKind kind, const Visit& visit) {
  switch (kind) {
    case SourceKind::kFloat:
      return visit(FloatSource());
    case SourceKind::kHalf:
      return visit(HalfSource());
    case SourceKind::kBFloat16:
      return visit(BFloat16Source());
    case SourceKind::kInt32NoBias:
      return visit(Int32Source<BiasKind::kNone>());
    case SourceKind::kInt32IntBias:
      return visit(Int32Source<BiasKind::kInt32>());
    case SourceKind::kInt32FloatBias:
      return visit(Int32Source<BiasKind::kFloat>());
    case SourceKind::kFloatBias:
      return visit(Biased<FloatSource>());
    case SourceKind::kHalfBias:
      return visit(Biased<HalfSource>());
    case SourceKind::kBFloat16Bias:
      return visit(Biased<BFloat16Source>());
  }
}

/// The parts of a head that are emitted alike: its halves where it is rotated on the way. In a tile
/// each part is padded to whole pieces.
struct Parts {
  int64_t count;
  int64_t channels;
  int64_t padded;
  [[nodiscard]] bool ArePadded() const { return channels != padded; }
  [[nodiscard]] int64_t TileChannels() const { return count * padded; }
};

HWY_INLINE Parts PartsOf(const GroupTask& task) {
  if (task.transform == Transform::kRope || task.transform == Transform::kNormRope) {
    return {2, task.head_dim / 2, PaddedChannels(task.head_dim / 2)};
  }
  return {1, task.head_dim, PaddedChannels(task.head_dim)};
}

/// Moves the second part of a head in a tile to where padded parts have it.
HWY_INLINE void SpreadParts(const Parts& parts, float* tile) {
  const size_t bytes = static_cast<size_t>(parts.channels) * sizeof(float);
  if (parts.count == 2) std::memmove(tile + parts.padded, tile + parts.channels, bytes);
  for (int64_t part = 0; part < parts.count; ++part) {
    ZeroPadding(tile + part * parts.padded, parts.channels);
  }
}

/// Elements in the caller's memory.
template <typename T>
struct Strided {
  T* data;
  int64_t stride;
};

template <typename T>
HWY_INLINE void Copy(const T* from, int64_t count, Strided<T> to) {
  if (to.stride == 1) {
    std::memcpy(to.data, from, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count; ++i) to.data[i * to.stride] = from[i];
}

/// Copies `count` channels from `first` on to wherever the layout keeps them. `row` is the address
/// of the head's channel 0.
template <typename T>
void ScatterRun(const T* from, int64_t first, int64_t count, const Destination& to, T* row) {
  const int64_t stride = to.channel_stride;
  const int64_t chunk = to.channel_chunk == 0 ? kMaxHeadDim : to.channel_chunk;
  int64_t within = first % chunk;
  row += first / chunk * to.channel_chunk_stride;
  for (int64_t done = 0;;) {
    const int64_t run = HWY_MIN(count - done, chunk - within);
    Copy(from + done, run, Strided<T>{row + within * stride, stride});
    done += run;
    if (done == count) return;  // there may be no next chunk to point at
    within = 0;
    row += to.channel_chunk_stride;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
