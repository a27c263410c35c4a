// Sinks: consume pairs of fp32 vectors and store them as 16-bit values or int8 codes, in pieces of
// kPieceChannels channels, wherever the layout keeps them.
#include "kernels/quantise-inl.h"
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

[[nodiscard]] constexpr StoreHint HintOf(SinkKind sink) {
  return sink == SinkKind::kStream ? StoreHint::kStream : StoreHint::kKeep;
}

/// Addresses of the two vectors of a pair.
template <typename T>
struct PairAddress {
  T* first;
  T* second;
};

/// Where one head of one token goes.
template <typename T>
struct HeadRow {
  T* data = nullptr;
  const int64_t* pieces = nullptr;

  /// The pair of vectors of kLanes lanes that begins at channel 2 * kLanes * pair: at most one
  /// piece, or with 16 lanes exactly two.
  template <int kLanes>
  [[nodiscard]] HWY_INLINE PairAddress<T> At(int64_t pair) const {
    if constexpr (kLanes == kPieceChannels) {
      return {Piece(2 * pair), Piece(2 * pair + 1)};
    } else {
      constexpr int64_t kPairs = kPieceChannels / (2 * kLanes);
      T* const first = Piece(pair / kPairs) + pair % kPairs * 2 * kLanes;
      return {first, first + kLanes};
    }
  }

 private:
  [[nodiscard]] HWY_INLINE T* Piece(int64_t piece) const {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(data) + pieces[piece]);
  }
};

struct HeadOutput {
  HeadRow<uint16_t> store[2];
  HeadRow<int8_t> codes;
};

template <typename T>
HWY_INLINE HeadRow<T> RowOf(const Destination& to, int64_t token, int64_t cache_row, int64_t head) {
  HeadRow<T> row;
  row.data = static_cast<T*>(to.data) + HeadOffset(to, token, cache_row, head);
  row.pieces = to.pieces;
  return row;
}

/// Storage types: how a pair of vectors becomes 16-bit values. `Finite` is the one for values that
/// are known not to be NaN.
struct HalfStore {
  using Finite = HalfStore;
  static constexpr DType kDType = DType::kFloat16;
  template <LaneOrder kOrder, StoreHint kHint, class D>
  static HWY_INLINE void StorePair(D d, VecOf<D> first, VecOf<D> second, uint16_t* to,
                                   uint16_t* to_second) {
    static_assert(kOrder == LaneOrder::kNatural);
    StoreHalf<kHint>(d, first, to);
    StoreHalf<kHint>(d, second, to_second);
  }
};

template <bool kMayBeNan>
struct BFloat16StoreOf {
  using Finite = BFloat16StoreOf<false>;
  static constexpr DType kDType = DType::kBFloat16;
  template <LaneOrder kOrder, StoreHint kHint, class D>
  static HWY_INLINE void StorePair(D d, VecOf<D> first, VecOf<D> second, uint16_t* to,
                                   uint16_t* to_second) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kOrder == LaneOrder::kEvenOdd) {
      StoreEvenOdd<kHint>(d, first, second, to, to_second);
      return;
    }
#endif
    StoreBFloat16<kHint>(d, first, to);
    StoreBFloat16<kHint>(d, second, to_second);
  }

#if HWY_TARGET != HWY_SCALAR
 private:
  /// Works on the words of both vectors at once: first the upper halves of all channels, which are
  /// to be kept, then the lower halves, which decide about the rounding.
  template <StoreHint kHint, class D>
  static HWY_INLINE void StoreEvenOdd(D d, VecOf<D> even, VecOf<D> odd, uint16_t* to,
                                      uint16_t* to_second) {
    const hn::RebindToUnsigned<D> du32;
    const hn::Repartition<uint16_t, D> du16;
    const auto even_bits = hn::BitCast(du32, even);
    const auto odd_bits = hn::BitCast(du32, odd);
    const auto upper =
        hn::OddEven(hn::BitCast(du16, odd_bits), hn::BitCast(du16, hn::ShiftRight<16>(even_bits)));
    const auto lower =
        hn::OddEven(hn::BitCast(du16, hn::ShiftLeft<16>(odd_bits)), hn::BitCast(du16, even_bits));
    // lower + 0x7FFF + (upper & 1) has 17 bits, of which the top one is the carry to `upper`; the
    // rounding average is its half.
    const auto is_odd = hn::And(upper, hn::Set(du16, uint16_t{1}));
    const auto half_sum =
        RoundedAverage(du16, lower, hn::Add(is_odd, hn::Set(du16, uint16_t{0x7FFE})));
    auto rounded = hn::Add(upper, hn::ShiftRight<15>(half_sum));
    // A sum is NaN where a term is; that infinities can cancel costs time, not correctness.
    if constexpr (kMayBeNan) {
      if (HWY_UNLIKELY(!hn::AllFalse(d, hn::IsNaN(hn::Add(even, odd))))) {
        rounded = hn::OddEven(hn::BitCast(du16, RoundToBFloat16(d, odd)),
                              hn::BitCast(du16, hn::ShiftRight<16>(RoundToBFloat16(d, even))));
      }
    }
    if constexpr (hn::MaxLanes(d) == kPieceChannels) {
      const hn::Half<decltype(du16)> half;
      StoreWords<kHint>(half, hn::LowerHalf(half, rounded), to);
      StoreWords<kHint>(half, hn::UpperHalf(half, rounded), to_second);
    } else {
      StoreWords<kHint>(du16, rounded, to);
    }
  }
#endif
};

using BFloat16Store = BFloat16StoreOf<true>;

/// Stores the pair of vectors number `pair` of a head to every destination of the sink.
template <class Store, SinkKind kSink, LaneOrder kOrder, class D>
HWY_INLINE void SinkPair(D d, VecOf<D> first, VecOf<D> second, const HeadOutput& out,
                         const CodeScales& scales, int64_t pair) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  if constexpr (Stores(kSink)) {
    const auto to = out.store[0].template At<kLanes>(pair);
    Store::template StorePair<kOrder, HintOf(kSink)>(d, first, second, to.first, to.second);
  }
  if constexpr (StoresTwice(kSink)) {
    const auto to = out.store[1].template At<kLanes>(pair);
    Store::template StorePair<kOrder, StoreHint::kKeep>(d, first, second, to.first, to.second);
  }
  if constexpr (Quantises(kSink)) {
    static_assert(kOrder == LaneOrder::kNatural);
    hn::Vec<hn::RebindToSigned<D>> code0, code1;
    CodePair<HasOffset(kSink)>(d, first, second, scales, pair * 2 * kLanes, code0, code1);
    const auto to = out.codes.template At<kLanes>(pair);
    StoreCodePair(d, code0, code1, to.first, to.second);
  }
}

/// Copies the bits of the 16-bit pair number `pair`.
template <class D>
HWY_INLINE void CopyPair(D d, const HeadInput& in, const HeadOutput& out, int64_t pair) {
  (void)d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
  const auto to = out.store[0].template At<kLanes>(pair);
  const uint16_t* const from = static_cast<const uint16_t*>(in.data) + pair * 2 * kLanes;
  hwy::CopyBytes<kLanes * sizeof(uint16_t)>(from, to.first);
  hwy::CopyBytes<kLanes * sizeof(uint16_t)>(from + kLanes, to.second);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
