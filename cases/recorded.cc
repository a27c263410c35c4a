// Reads the safetensors file that the build puts into the program.
#include "cases/recorded.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace qkvfuse::cases {

// Of the file that the build generates from cases/recorded/gemma3_270m.safetensors.
extern const unsigned char kGemma3Bytes[];

namespace {

constexpr int64_t kTokens = 16;
constexpr int64_t kRowChannels = RecordedLayer::kHeads.total() * RecordedLayer::kHeadDim;
constexpr int64_t kPairs = RecordedLayer::kHeadDim / 2;

}  // namespace

/// The whole file, taken apart once.
class Recording {
 public:
  static const Recording& Gemma3() {
    static const Recording recording;
    return recording;
  }

  [[nodiscard]] const RecordedLayer& Layer(uint64_t number) const {
    return layers_[number % layers_.size()];
  }

 private:
  Recording() {
    uint64_t header_bytes = 0;  // the file begins with it, little-endian
    std::memcpy(&header_bytes, kGemma3Bytes, sizeof(header_bytes));
    const char* const text = reinterpret_cast<const char*>(kGemma3Bytes) + sizeof(header_bytes);
    header_ = nlohmann::json::parse(std::string_view(text, header_bytes));
    data_ = kGemma3Bytes + sizeof(header_bytes) + header_bytes;
    for (const char* const layer : {"layer0", "layer5", "layer16"}) {
      const std::string prefix = std::string(layer) + ".";
      RecordedLayer& recorded = layers_.emplace_back();
      recorded.x_ = Copy<uint16_t>(prefix + "qkv", kTokens * kRowChannels);
      recorded.q_gamma_ = Copy<float>(prefix + "q_gamma", RecordedLayer::kHeadDim);
      recorded.k_gamma_ = Copy<float>(prefix + "k_gamma", RecordedLayer::kHeadDim);
      recorded.cos_ = Copy<float>(prefix + "cos", kTokens * kPairs);
      recorded.sin_ = Copy<float>(prefix + "sin", kTokens * kPairs);
    }
  }

  /// at() and the size end a program whose file is another one.
  template <typename T>
  [[nodiscard]] std::vector<T> Copy(const std::string& name, int64_t elements) const {
    const auto& offsets = header_.at(name).at("data_offsets");
    const auto begin = offsets.at(0).get<size_t>();
    const size_t bytes = offsets.at(1).get<size_t>() - begin;
    std::vector<T> copy(static_cast<size_t>(elements));
    if (bytes != copy.size() * sizeof(T)) std::abort();
    std::memcpy(copy.data(), data_ + begin, bytes);
    return copy;
  }

  nlohmann::json header_;
  const unsigned char* data_ = nullptr;
  std::vector<RecordedLayer> layers_;
};

const RecordedLayer& RecordedLayer::Of(uint64_t number) {
  return Recording::Gemma3().Layer(number);
}

double RecordedLayer::X(int64_t token, int64_t channel) const {
  const auto i = static_cast<size_t>(token % kTokens * kRowChannels + channel);
  return std::bit_cast<float>(static_cast<uint32_t>(x_[i]) << 16);
}

double RecordedLayer::Angle(const Floats& rows, int64_t token, int64_t pair) {
  return At(rows, token % kTokens * kPairs + pair);
}

namespace {

/// Entry `entry` of a row of `width` entries of cos, of sin, or of both joined.
double TableEntry(const RecordedLayer& layer, const Case& c, TensorId id, int64_t row,
                  int64_t entry) {
  const bool is_general = c.op == Operator::kFusedQkv;
  const bool is_joined = is_general && c.fused.table == RopeSpec::Table::kJoined;
  if (is_joined) return entry < kPairs ? layer.Cos(row, entry) : layer.Sin(row, entry - kPairs);
  const bool is_interleaved = is_general && c.fused.rope == RopeSpec::Pairing::kInterleaved;
  const bool is_full = !is_general || !c.fused.half_width;
  const int64_t pair = !is_full ? entry : is_interleaved ? entry / 2 : entry % kPairs;
  return id == TensorId::kCos ? layer.Cos(row, pair) : layer.Sin(row, pair);
}

}  // namespace

std::optional<double> RecordedValue(const Case& c, TensorId id, const StridedShape& shape,
                                    int64_t i) {
  constexpr int64_t kDim = RecordedLayer::kHeadDim;
  constexpr HeadCounts kHeads = RecordedLayer::kHeads;
  const RecordedLayer& layer = RecordedLayer::Of(c.seed);
  const auto row_of = [&layer, i](int64_t heads, int64_t first_head) {
    const int64_t width = heads * kDim;
    return layer.X(i / width, first_head * kDim + i % width);
  };
  switch (id) {
    case TensorId::kX:
      return row_of(kHeads.total(), 0);
    case TensorId::kQ:
      return row_of(kHeads.q, 0);
    case TensorId::kK:
      return row_of(kHeads.k, kHeads.q);
    case TensorId::kV:
      return row_of(kHeads.v, kHeads.q + kHeads.k);
    case TensorId::kQGamma:
      return layer.QGamma(i);
    case TensorId::kKGamma:
      return layer.KGamma(i);
    case TensorId::kCos:
    case TensorId::kSin: {
      const int64_t width = shape.dims[static_cast<size_t>(shape.rank) - 1];
      return TableEntry(layer, c, id, i / width, i % width);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace qkvfuse::cases
