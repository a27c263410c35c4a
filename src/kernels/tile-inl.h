// The general path's pieces: fill an fp32 tile with a head from any strides, rotate it, and drain
// runs of channels into any layout. A tile is ours, so vectors may run past a head's end in it;
// the caller's memory is read and written exactly.
#include <cstring>

#include "kernels/norm-inl.h"
#include "kernels/rope-inl.h"

#if defined(QKVFUSE_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_TILE_INL_H_
#undef QKVFUSE_KERNELS_TILE_INL_H_
#else
#define QKVFUSE_KERNELS_TILE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// Floats that a vector may touch beyond a head's last channel.
inline constexpr int64_t kTilePadding = 16;

/// Vectors of the tile loops; 16 accumulators want at most 8 lanes for heads of 16 channels.
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

/// Widens or dequantises `count` contiguous channels.
template <class SourceType>
HWY_INLINE void FillContiguous(const HeadInput& in, int64_t count, float* to) {
  const TileTag d;
  const ScalarTag d1;
  int64_t i = 0;
  for (; i + kTileLanes <= count; i += kTileLanes) {
    hn::StoreU(LoadVector<SourceType>(d, in, i), d, to + i);
  }
  for (; i < count; ++i) hn::StoreU(LoadVector<SourceType>(d1, in, i), d1, to + i);
}

/// Fills to[0, head_dim) with a head of any channel stride.
template <class SourceType>
void FillHead(const Source& source, int64_t token, int64_t head, int64_t head_dim, float* to) {
  using Element = typename SourceType::Element;
  HeadInput in = InputOf<SourceType>(source, token, head, head_dim);
  Element gathered[kMaxHeadDim];
  if (source.channel_stride != 1) {
    const Element* from = static_cast<const Element*>(in.data);
    for (int64_t i = 0; i < head_dim; ++i) gathered[i] = from[i * source.channel_stride];
    in.data = gathered;
  }
  FillContiguous<SourceType>(in, head_dim, to);
}

using FillFunction = void (*)(const Source&, int64_t token, int64_t head, int64_t head_dim,
                              float* to);

inline FillFunction FillOf(SourceKind kind) {
  switch (kind) {
    case SourceKind::kFloat:
      return &FillHead<FloatSource>;
    case SourceKind::kHalf:
      return &FillHead<HalfSource>;
    case SourceKind::kBFloat16:
      return &FillHead<BFloat16Source>;
    case SourceKind::kInt32NoBias:
      return &FillHead<Int32Source<BiasKind::kNone>>;
    case SourceKind::kInt32IntBias:
      return &FillHead<Int32Source<BiasKind::kInt32>>;
    case SourceKind::kInt32FloatBias:
      return &FillHead<Int32Source<BiasKind::kFloat>>;
  }
  return nullptr;
}

/// Zeros behind a head: they add nothing to a sum of squares, and vectors may read them.
HWY_INLINE void ZeroPadding(float* tile, int64_t head_dim, int64_t padded) {
  const TileTag d;
  for (int64_t i = head_dim; i < padded; i += kTileLanes) {
    hn::StoreU(hn::Zero(d), d, tile + HWY_MIN(i, padded - kTileLanes));
  }
}

/// Multiplies the halves of `tile` by `factor` (1 leaves every value as it is) and rotates them
/// into lo and hi, which have room for a padded half each.
HWY_INLINE void RotateTile(const float* tile, int64_t half, float factor, Coefficients coefficients,
                           float* lo, float* hi) {
  const TileTag d;
  const auto f = hn::Set(d, factor);
  VecOf<TileTag> vlo, vhi;
  for (int64_t j = 0; j < half; j += kTileLanes) {
    const auto a = hn::Mul(hn::LoadU(d, tile + j), f);
    const auto b = hn::Mul(hn::LoadU(d, tile + half + j), f);
    Rotate(d, coefficients, j, a, b, vlo, vhi);
    hn::StoreU(vlo, d, lo + j);
    hn::StoreU(vhi, d, hi + j);
  }
}

/// Rounds values to 16 bits.
template <class Store>
struct Narrow {
  using Element = uint16_t;
  template <class D>
  HWY_INLINE void operator()(D d, const float* values, int64_t i, uint16_t* to) const {
    if constexpr (std::is_same_v<Store, hwy::float16_t>) {
      StoreHalf(d, hn::LoadU(d, values + i), to);
    } else {
      StoreBFloat16(d, hn::LoadU(d, values + i), to);
    }
  }
};

/// Quantises values to int8; scale and offset are those of the run's first channel.
struct Quantise {
  using Element = int8_t;
  const float* scale;
  const float* offset;
  template <class D>
  HWY_INLINE void operator()(D d, const float* values, int64_t i, int8_t* to) const {
    auto z = hn::Div(hn::LoadU(d, values + i), hn::LoadU(d, scale + i));
    if (offset != nullptr) z = hn::Add(z, hn::LoadU(d, offset + i));
    StoreCodes(d, CodesOf(d, z), to);
  }
};

/// Converts values[begin, end) to contiguous elements.
template <class Convert>
HWY_INLINE void ConvertRun(const Convert& convert, const float* values, int64_t begin, int64_t end,
                           typename Convert::Element* to) {
  const TileTag d;
  const ScalarTag d1;
  int64_t i = begin;
  for (; i + kTileLanes <= end; i += kTileLanes) convert(d, values, i, to + (i - begin));
  for (; i < end; ++i) convert(d1, values, i, to + (i - begin));
}

/// Elements `stride` apart.
template <typename T>
struct Strided {
  T* data;
  int64_t stride;
};

/// A run of channels [first, first + count) of one head, to be stored at its row.
struct Run {
  const float* values;  // of channel `first`
  int64_t first;
  int64_t count;
};

/// Converts a run and stores it at `to`, `stride` elements apart.
template <class Convert>
HWY_INLINE void DrainSegment(const Convert& convert, const float* values, int64_t begin,
                             int64_t end, Strided<typename Convert::Element> to) {
  if (to.stride == 1) return ConvertRun(convert, values, begin, end, to.data);
  typename Convert::Element converted[kMaxHeadDim];
  ConvertRun(convert, values, begin, end, converted);
  for (int64_t i = 0; i < end - begin; ++i) to.data[i * to.stride] = converted[i];
}

/// Converts a run and stores it wherever the layout keeps its channels. `row` is the address of the
/// head's channel 0.
template <class Convert>
HWY_INLINE void DrainRun(const Convert& convert, const Run& run, const Destination& to,
                         typename Convert::Element* row) {
  const int64_t stride = to.channel_stride;
  if (to.channel_chunk == 0) {
    return DrainSegment(convert, run.values, 0, run.count, {row + run.first * stride, stride});
  }
  int64_t within = run.first % to.channel_chunk;
  row += run.first / to.channel_chunk * to.channel_chunk_stride;
  for (int64_t i = 0;;) {
    const int64_t end = HWY_MIN(run.count, i + to.channel_chunk - within);
    DrainSegment(convert, run.values, i, end, {row + within * stride, stride});
    if (end == run.count) return;
    i = end;
    within = 0;
    row += to.channel_chunk_stride;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
