// Sinks: consume pairs of fp32 vectors and store them as 16-bit values or int8 codes, in pieces of
// kPieceChannels channels, wherever the layout keeps them.
#include "kernels/sources-inl.h"

#if defined(QKVFUSE_KERNELS_SINKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_SINKS_INL_H_
#undef QKVFUSE_KERNELS_SINKS_INL_H_
#else
#define QKVFUSE_KERNELS_SINKS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

[[nodiscard]] constexpr bool StoresTwice(SinkKind sink) { return sink == SinkKind::kStoreTwice; }
[[nodiscard]] constexpr bool Quantises(SinkKind sink) {
  return sink != SinkKind::kStore && sink != SinkKind::kStoreTwice;
}
[[nodiscard]] constexpr bool HasOffset(SinkKind sink) {
  return sink == SinkKind::kInt8Offset || sink == SinkKind::kInt8OffsetStore;
}
[[nodiscard]] constexpr bool Stores(SinkKind sink) {
  return sink != SinkKind::kInt8 && sink != SinkKind::kInt8Offset;
}

/// Where one head of one token goes.
template <typename T>
struct HeadRow {
  T* data = nullptr;
  const int64_t* pieces = nullptr;

  /// Address of a channel; the rest of its piece follows.
  [[nodiscard]] HWY_INLINE T* At(int64_t channel) const {
    return data + pieces[channel / kPieceChannels] + channel % kPieceChannels;
  }
};

struct HeadOutput {
  HeadRow<uint16_t> store[2];
  HeadRow<int8_t> codes;
  const float* scale = nullptr;
  const float* offset = nullptr;
};

template <typename T>
HWY_INLINE HeadRow<T> RowOf(const Destination& to, int64_t token, int64_t cache_row, int64_t head) {
  HeadRow<T> row;
  row.data = static_cast<T*>(to.data) + (to.is_cache ? cache_row : token * to.token_stride) +
             head * to.head_stride;
  row.pieces = to.pieces;
  return row;
}

/// Storage types: how a pair of vectors becomes 16-bit values.
struct HalfStore {
  static constexpr DType kDType = DType::kFloat16;
  template <LaneOrder kOrder, class D>
  static HWY_INLINE void StorePair(D d, VecOf<D> first, VecOf<D> second, uint16_t* to,
                                   uint16_t* to_second) {
    static_assert(kOrder == LaneOrder::kNatural);
    StoreHalf(d, first, to);
    StoreHalf(d, second, to_second);
  }
};

struct BFloat16Store {
  static constexpr DType kDType = DType::kBFloat16;
  template <LaneOrder kOrder, class D>
  static HWY_INLINE void StorePair(D d, VecOf<D> first, VecOf<D> second, uint16_t* to,
                                   uint16_t* to_second) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kOrder == LaneOrder::kEvenOdd) {
      const hn::Repartition<uint16_t, D> du16;
      const auto even = hn::ShiftRight<16>(RoundToBFloat16(d, first));
      const auto odd = RoundToBFloat16(d, second);
      const auto both = hn::OddEven(hn::BitCast(du16, odd), hn::BitCast(du16, even));
      if constexpr (hn::MaxLanes(d) == kPieceChannels) {
        const hn::Half<decltype(du16)> half;
        hn::StoreU(hn::LowerHalf(half, both), half, to);
        hn::StoreU(hn::UpperHalf(half, both), half, to_second);
      } else {
        hn::StoreU(both, du16, to);
      }
      return;
    }
#endif
    StoreBFloat16(d, first, to);
    StoreBFloat16(d, second, to_second);
  }
};

/// Stores the pair that begins at `channel` to every destination of the sink.
template <class Store, SinkKind kSink, LaneOrder kOrder, class D>
HWY_INLINE void SinkPair(D d, VecOf<D> first, VecOf<D> second, const HeadOutput& out,
                         int64_t channel) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
  // A pair is at most one piece, or with 16 lanes exactly two.
  const auto second_of = [channel](const auto& row, auto* first_address) HWY_ATTR {
    return kLanes == kPieceChannels ? row.At(channel + kLanes) : first_address + kLanes;
  };
  if constexpr (Stores(kSink)) {
    uint16_t* const to = out.store[0].At(channel);
    Store::template StorePair<kOrder>(d, first, second, to, second_of(out.store[0], to));
  }
  if constexpr (StoresTwice(kSink)) {
    uint16_t* const to = out.store[1].At(channel);
    Store::template StorePair<kOrder>(d, first, second, to, second_of(out.store[1], to));
  }
  if constexpr (Quantises(kSink)) {
    static_assert(kOrder == LaneOrder::kNatural);
    auto z0 = hn::Div(first, hn::LoadU(d, out.scale + channel));
    auto z1 = hn::Div(second, hn::LoadU(d, out.scale + channel + kLanes));
    if constexpr (HasOffset(kSink)) {
      z0 = hn::Add(z0, hn::LoadU(d, out.offset + channel));
      z1 = hn::Add(z1, hn::LoadU(d, out.offset + channel + kLanes));
    }
    int8_t* const to = out.codes.At(channel);
    StoreCodes(d, CodesOf(d, z0), to);
    StoreCodes(d, CodesOf(d, z1), second_of(out.codes, to));
  }
}

/// Copies the bits of the 16-bit pair that begins at `channel`.
template <class D>
HWY_INLINE void CopyPair(D d, const HeadInput& in, const HeadOutput& out, int64_t channel) {
  (void)d;
  constexpr size_t kBytes = 2 * hn::MaxLanes(D()) * sizeof(uint16_t);
  constexpr size_t kPieceBytes = kPieceChannels * sizeof(uint16_t);
  const uint16_t* const from = static_cast<const uint16_t*>(in.data) + channel;
  if constexpr (kBytes <= kPieceBytes) {
    hwy::CopyBytes<kBytes>(from, out.store[0].At(channel));
  } else {
    hwy::CopyBytes<kPieceBytes>(from, out.store[0].At(channel));
    hwy::CopyBytes<kPieceBytes>(from + kPieceChannels, out.store[0].At(channel + kPieceChannels));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
