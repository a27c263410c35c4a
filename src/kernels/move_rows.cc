#include "kernels/move_rows.h"

#include <cstring>
#include <numeric>

namespace qkvfuse::kernels {
namespace {

/// Where the channels of a head lie, in elements.
struct ChannelMap {
  int64_t chunk = 0;  // 0: not chunked
  int64_t chunk_stride = 0;
  int64_t stride = 1;

  [[nodiscard]] int64_t operator()(int64_t channel) const noexcept {
    if (chunk == 0) return channel * stride;
    return channel / chunk * chunk_stride + channel % chunk * stride;
  }
};

ChannelMap ChannelsOf(const CacheLayout& layout) noexcept {
  return {layout.channel_chunk, layout.channel_chunk_stride, layout.channel_stride};
}

/// The channels of one head; contiguous where there is no map.
template <typename Data>
struct Channels {
  Data* first;
  ChannelMap map{};
};
using ChannelsIn = Channels<const char>;
using ChannelsOut = Channels<char>;

template <typename T>
void CopyElements(const ChannelsIn& from, const ChannelsOut& to, int64_t channels) noexcept {
  // Channels that lie evenly spaced on both sides. The gcd of 0 and a number is the number.
  const int64_t chunk = std::gcd(from.map.chunk, to.map.chunk);
  const int64_t run = chunk == 0 ? channels : chunk;
  for (int64_t channel = 0; channel < channels; channel += run) {
    const auto* const in = reinterpret_cast<const T*>(from.first) + from.map(channel);
    auto* const out = reinterpret_cast<T*>(to.first) + to.map(channel);
    if (from.map.stride == 1 && to.map.stride == 1) {
      std::memcpy(out, in, static_cast<size_t>(run) * sizeof(T));
    } else {
      for (int64_t i = 0; i < run; ++i) out[i * to.map.stride] = in[i * from.map.stride];
    }
  }
}

/// Copies the bits of a head's channels.
void CopyChannels(int64_t element_bytes, const ChannelsIn& from, const ChannelsOut& to,
                  int64_t channels) noexcept {
  switch (element_bytes) {
    case 1:
      return CopyElements<uint8_t>(from, to, channels);
    case 2:
      return CopyElements<uint16_t>(from, to, channels);
    default:
      return CopyElements<uint32_t>(from, to, channels);
  }
}

/// One head of one side: its codes and its dynamic scale.
struct HeadPlace {
  char* codes;
  float* scale;  // null without dynamic scales
};

/// Places of one side's rows, of their head 0.
class RowPlaces {
 public:
  explicit RowPlaces(const MoveSide& side) noexcept : side_(side) {}

  void Add(int64_t slot) noexcept {
    rows_[count_] = slot < 0 ? 0 : side_.layout.AddressOf(slot, 0, 0);
    scales_[count_] =
        slot < 0 || side_.scale_cache == nullptr ? 0 : side_.scale_layout.AddressOf(slot, 0, 0);
    ++count_;
  }

  [[nodiscard]] HeadPlace At(int64_t row, int64_t head) const noexcept {
    const int64_t element = rows_[row] + head * side_.layout.head_stride;
    HeadPlace place{side_.data + element * SizeOf(side_.format.dtype), nullptr};
    if (side_.scale_cache != nullptr) {
      place.scale = side_.scale_cache + scales_[row] + head * side_.scale_layout.head_stride;
    }
    return place;
  }

 private:
  const MoveSide& side_;
  int64_t count_ = 0;
  int64_t rows_[kMoveRows];
  int64_t scales_[kMoveRows];
};

/// Moves heads by the two sides' types and strides.
class HeadMover {
 public:
  explicit HeadMover(const Move& move) noexcept
      : move_(move),
        from_map_(ChannelsOf(move.from.layout)),
        to_map_(ChannelsOf(move.to.layout)),
        from_bytes_(SizeOf(move.from.format.dtype)),
        to_bytes_(SizeOf(move.to.format.dtype)) {}

  void Copy(const HeadPlace& from, const HeadPlace& to) const noexcept {
    CopyChannels(from_bytes_, {from.codes, from_map_}, {to.codes, to_map_}, move_.head_dim);
    if (from.scale != nullptr) std::memcpy(to.scale, from.scale, sizeof(float));
  }

  void Convert(int64_t head, const HeadPlace& from, const HeadPlace& to) const noexcept {
    alignas(64) char codes[kMaxHeadDim * sizeof(float)];
    alignas(64) float y[kMaxHeadDim];
    const int64_t channels = move_.head_dim;
    CopyChannels(from_bytes_, {from.codes, from_map_}, {codes}, channels);
    const float from_scale = from.scale == nullptr ? 0.0f : *from.scale;
    DecodeHead(move_.from.format.OfHead(head, channels), codes, from_scale, channels, y);
    const float to_scale = EncodeHead(move_.to.format.OfHead(head, channels), y, channels, codes);
    CopyChannels(to_bytes_, {codes}, {to.codes, to_map_}, channels);
    if (to.scale != nullptr) *to.scale = to_scale;
  }

  void Zero(const HeadPlace& to) const noexcept {
    alignas(64) static constexpr char kZeros[kMaxHeadDim * sizeof(float)] = {};
    CopyChannels(to_bytes_, {kZeros}, {to.codes, to_map_}, move_.head_dim);
  }

 private:
  const Move& move_;
  ChannelMap from_map_;
  ChannelMap to_map_;
  int64_t from_bytes_;
  int64_t to_bytes_;
};

}  // namespace

void MoveRows(const Move& move, const RowPair* rows, int64_t count) noexcept {
  RowPlaces from(move.from);
  RowPlaces to(move.to);
  for (int64_t i = 0; i < count; ++i) {
    from.Add(rows[i].from);
    to.Add(rows[i].to);
  }
  const HeadMover mover(move);
  for (int64_t head = 0; head < move.heads; ++head) {
    for (int64_t i = 0; i < count; ++i) {
      const HeadPlace out = to.At(i, head);
      if (rows[i].from < 0) {
        mover.Zero(out);
      } else if (move.copies_bits) {
        mover.Copy(from.At(i, head), out);
      } else {
        mover.Convert(head, from.At(i, head), out);
      }
    }
  }
}

}  // namespace qkvfuse::kernels
