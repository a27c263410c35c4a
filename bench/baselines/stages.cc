// The stages of the baselines as per-target kernels: the library's sources, sum of squares and
// stores, one stage at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/baselines/stages.cc"
#include "bench/baselines/stages.h"

#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "kernels/coefficients-inl.h"
#include "kernels/norm-inl.h"
#include "kernels/sinks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = kernels::HWY_NAMESPACE;

using kernels::GroupTask;
using kernels::LaneOrder;
using kernels::Tile;
using simd::VecOf;

inline constexpr int kLanes = simd::kMaxLanes;
using Floats = simd::FloatTag<kLanes>;

/// Makes the compiler believe that a value that was read is needed.
template <typename T>
HWY_INLINE void Keep(T value) {
  asm volatile("" : : "r"(value) : "memory");
}

/// The order that makes a 16-bit source and store cheap, as in the fused kernels.
template <class SourceType>
inline constexpr LaneOrder kStoreOrder =
    std::is_same_v<SourceType, simd::BFloat16Source>&& kLanes > 1 ? LaneOrder::kEvenOdd
                                                                  : LaneOrder::kNatural;

/// Heads whose sums of squares are taken together.
inline constexpr int64_t kHeadBatch = 32;

template <class SourceType, class Store>
HWY_INLINE void NormaliseHead(const GroupTask& task, const simd::HeadInput& in, float inverse,
                              const float* gamma, const simd::HeadRow<uint16_t>& out) {
  constexpr LaneOrder kOrder = kStoreOrder<SourceType>;
  const Floats d;
  const auto factor = hn::Set(d, inverse);
  VecOf<Floats> a, b;
  for (int64_t channel = 0; channel < task.head_dim; channel += 2 * kLanes) {
    SourceType::template LoadPair<kOrder>(d, in, channel, a, b);
    a = hn::Mul(hn::Mul(a, factor), hn::LoadU(d, gamma + channel));
    b = hn::Mul(hn::Mul(b, factor), hn::LoadU(d, gamma + channel + kLanes));
    const auto to = out.At<kLanes>(channel / (2 * kLanes));
    Store::template StorePair<kOrder, simd::StoreHint::kKeep>(d, a, b, to.first, to.second);
  }
}

template <class SourceType, class Store>
void Normalise(const GroupTask& task, const float* gamma, const Tile& tile) {
  constexpr LaneOrder kOrder = kStoreOrder<SourceType>;
  const Floats d;
  HWY_ALIGN float ordered[kernels::kMaxHeadDim];
  HWY_ALIGN float inverse[kHeadBatch];
  VecOf<Floats> a, b;
  for (int64_t channel = 0; channel < task.head_dim; channel += 2 * kLanes) {
    simd::FloatSource::LoadPair<kOrder>(d, {gamma, nullptr, nullptr, 1.0f}, channel, a, b);
    hn::StoreU(a, d, ordered + channel);
    hn::StoreU(b, d, ordered + channel + kLanes);
  }
  for (int64_t token = tile.first_token; token < tile.first_token + tile.tokens; ++token) {
    for (int64_t first = 0; first < tile.heads; first += kHeadBatch) {
      const int64_t heads = HWY_MIN(kHeadBatch, tile.heads - first);
      for (int64_t i = 0; i < heads; ++i) {
        const auto in = simd::InputOf<SourceType>(task.source, token, first + i, task.head_dim);
        inverse[i] = simd::SumOfSquares<SourceType, kOrder, kLanes>(in, task.head_dim);
      }
      simd::ReciprocalRoots(inverse, heads, task.head_dim, task.epsilon);
      for (int64_t i = 0; i < heads; ++i) {
        const auto in = simd::InputOf<SourceType>(task.source, token, first + i, task.head_dim);
        const auto out = simd::RowOf<uint16_t>(task.dense[0], token, 0, first + i);
        NormaliseHead<SourceType, Store>(task, in, inverse[i], ordered, out);
      }
    }
  }
}

/// int32 to fp32 without scales: all that the floor does.
struct PlainInt32Source {
  using Element = int32_t;
  template <LaneOrder kOrder, class D>
  static HWY_INLINE void LoadPair(D d, const simd::HeadInput& head, int64_t channel,
                                  VecOf<D>& first, VecOf<D>& second) {
    const hn::RebindToSigned<D> di32;
    const auto* from = static_cast<const int32_t*>(head.data) + channel;
    first = hn::ConvertTo(d, hn::LoadU(di32, from));
    second = hn::ConvertTo(d, hn::LoadU(di32, from + hn::Lanes(d)));
  }
};

/// Loads every pair of vectors of a tile's heads and calls store(a, b, first, second) with the two
/// addresses where it belongs.
template <class SourceType, LaneOrder kOrder, typename T, class StorePair>
HWY_INLINE void ConvertHeads(const GroupTask& task, const kernels::Destination& destination,
                             const Tile& tile, const StorePair& store) {
  const Floats d;
  const int64_t head_dim = task.head_dim;
  VecOf<Floats> a, b;
  for (int64_t i = 0; i < tile.tokens; ++i) {
    const int64_t token = tile.first_token + i;
    for (int64_t head = 0; head < tile.heads; ++head) {
      const auto in = simd::InputOf<SourceType>(task.source, token, head, head_dim);
      const auto out = simd::RowOf<T>(destination, token, tile.cache_rows[i], head);
      for (int64_t channel = 0; channel < head_dim; channel += 2 * kLanes) {
        SourceType::template LoadPair<kOrder>(d, in, channel, a, b);
        const auto to = out.template At<kLanes>(channel / (2 * kLanes));
        store(a, b, to.first, to.second);
      }
    }
  }
}

/// Stores rows of a source as 16-bit values: dequantises, or converts and copies.
template <class SourceType, class Store>
void StoreRows(const GroupTask& task, const float* /*gamma*/, const Tile& tile) {
  constexpr LaneOrder kOrder = kStoreOrder<SourceType>;
  const auto store = [](VecOf<Floats> a, VecOf<Floats> b, uint16_t* first,
                        uint16_t* second) QKVFUSE_LAMBDA {
    Store::template StorePair<kOrder, simd::StoreHint::kKeep>(Floats(), a, b, first, second);
  };
  ConvertHeads<SourceType, kOrder, uint16_t>(task, task.dense[0], tile, store);
}

/// The same into an int8 cache, values taken as integers.
template <class SourceType>
void StoreIntegers(const GroupTask& task, const float* /*gamma*/, const Tile& tile) {
  const auto store = [](VecOf<Floats> a, VecOf<Floats> b, int8_t* first,
                        int8_t* second) QKVFUSE_LAMBDA {
    simd::StoreCodePair(Floats(), hn::NearestInt(a), hn::NearestInt(b), first, second);
  };
  ConvertHeads<SourceType, LaneOrder::kNatural, int8_t>(task, task.codes, tile, store);
}

template <class Table>
void ReadTables(const kernels::CoefficientTask& task, const kernels::TableRows& rows,
                int64_t tokens) {
  constexpr LaneOrder kOrder = kStoreOrder<Table>;
  using Element = typename Table::Element;
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  auto seen = hn::Zero(du);
  VecOf<Floats> a, b;
  for (int64_t i = 0; i < tokens; ++i) {
    for (const Element* const row : {static_cast<const Element*>(task.cos) + rows.cos[0][i],
                                     static_cast<const Element*>(task.sin) + rows.sin[0][i]}) {
      const simd::HeadInput in{row, nullptr, nullptr, 1.0f};
      for (int64_t channel = 0; channel < task.rotary_dim; channel += 2 * kLanes) {
        Table::template LoadPair<kOrder>(d, in, channel, a, b);
        seen = hn::Or(seen, hn::Or(hn::BitCast(du, a), hn::BitCast(du, b)));
      }
    }
  }
  Keep(hn::GetLane(seen));
}

/// Copies a block of writes and reads the share of the remaining bytes that belongs to it.
template <bool kBypassing>
void Stream(const std::byte* from, int64_t read_bytes, std::byte* to, int64_t write_bytes) {
  constexpr int64_t kBlock = 4096;
  constexpr int64_t kLine = 64;
  const hn::CappedTag<uint8_t, kLine> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const auto* source = reinterpret_cast<const uint8_t*>(from);
  auto* target = reinterpret_cast<uint8_t*>(to);
  auto seen = hn::Zero(d);
  int64_t extra = 0;  // bytes read and not written so far
  for (int64_t done = 0; done < write_bytes; done += kBlock) {
    const int64_t end = HWY_MIN(done + kBlock, write_bytes);
    if constexpr (kBypassing) {
      for (int64_t i = done; i < end; i += step) {
        hn::Stream(hn::LoadU(d, source + extra + i), d, target + i);
      }
    } else {
      std::memcpy(target + done, source + extra + done, static_cast<size_t>(end - done));
    }
    const int64_t extra_end = (read_bytes - write_bytes) / kLine * end / write_bytes * kLine;
    for (; extra < extra_end; extra += step)
      seen = hn::Or(seen, hn::LoadU(d, source + extra + end));
  }
  if constexpr (kBypassing) hwy::FlushStream();
  Keep(hn::GetLane(seen));
}

StageKernel NormaliseOf(DType type) {
  if (type == DType::kFloat16) return &Normalise<simd::HalfSource, simd::HalfStore>;
  return &Normalise<simd::BFloat16Source, simd::BFloat16Store>;
}

template <class SourceType>
StageKernel StoreRowsOf(DType store) {
  if (store == DType::kFloat16) return &StoreRows<SourceType, simd::HalfStore>;
  return &StoreRows<SourceType, simd::BFloat16Store>;
}

StageKernel DequantiseOf(const GroupTask& task) {
  if (task.source.bias == nullptr) {
    return StoreRowsOf<simd::Int32Source<simd::BiasKind::kNone>>(task.store);
  }
  return StoreRowsOf<simd::Int32Source<simd::BiasKind::kFloat>>(task.store);
}

StageKernel ConvertCopyOf(const GroupTask& task) {
  const bool has_codes = task.codes.data != nullptr;
  switch (task.source_kind) {
    case kernels::SourceKind::kHalf:
      if (has_codes) return &StoreIntegers<simd::HalfSource>;
      return &StoreRows<simd::HalfSource, simd::HalfStore>;
    case kernels::SourceKind::kBFloat16:
      if (has_codes) return &StoreIntegers<simd::BFloat16Source>;
      return &StoreRows<simd::BFloat16Source, simd::BFloat16Store>;
    default:
      if (has_codes) return &StoreIntegers<PlainInt32Source>;
      return StoreRowsOf<PlainInt32Source>(task.store);
  }
}

TableReader TableReaderOf(DType type) {
  if (type == DType::kFloat16) return &ReadTables<simd::HalfSource>;
  return &ReadTables<simd::BFloat16Source>;
}

StreamKernels Streams() { return {&Stream<false>, &Stream<true>}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/dispatch.h"

namespace qkvfuse::bench {

HWY_EXPORT(NormaliseOf);
HWY_EXPORT(DequantiseOf);
HWY_EXPORT(ConvertCopyOf);
HWY_EXPORT(TableReaderOf);
HWY_EXPORT(Streams);

StageKernel SelectNormalise(int64_t target, DType type) {
  return HWY_DISPATCH_TABLE(NormaliseOf)[kernels::DispatchIndex(target)](type);
}

StageKernel SelectDequantise(int64_t target, const kernels::GroupTask& task) {
  return HWY_DISPATCH_TABLE(DequantiseOf)[kernels::DispatchIndex(target)](task);
}

StageKernel SelectConvertCopy(int64_t target, const kernels::GroupTask& task) {
  return HWY_DISPATCH_TABLE(ConvertCopyOf)[kernels::DispatchIndex(target)](task);
}

TableReader SelectTableReader(int64_t target, DType type) {
  return HWY_DISPATCH_TABLE(TableReaderOf)[kernels::DispatchIndex(target)](type);
}

StreamKernels SelectStreams(int64_t target) {
  return HWY_DISPATCH_TABLE(Streams)[kernels::DispatchIndex(target)]();
}

}  // namespace qkvfuse::bench
#endif  // HWY_ONCE
