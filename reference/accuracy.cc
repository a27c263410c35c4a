// Compares outputs with the intervals of reference/precise.h.
#include "reference/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

namespace qkvfuse::reference {
namespace {

struct Format {
  int mantissa_bits;
  int exponent_bits;
  [[nodiscard]] int min_exponent() const { return 2 - (1 << (exponent_bits - 1)); }
  [[nodiscard]] uint16_t infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
};

Format FormatOf(DType dtype) { return dtype == DType::kFloat16 ? Format{10, 5} : Format{7, 8}; }

// Maps bit patterns to integers in the order of their values; both zeros give 0.
int Order(uint16_t bits) {
  const int magnitude = bits & 0x7FFF;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool IsNan(DType dtype, uint16_t bits) { return (bits & 0x7FFF) > FormatOf(dtype).infinity(); }

// The exponent of the last place of values as large as |value|.
int LastPlace(const Format& format, double value) {
  const int exponent = value == 0 ? format.min_exponent() : std::ilogb(value);
  return std::max(exponent, format.min_exponent()) - format.mantissa_bits;
}

// Where a token's outputs are, and what they are held against.
class Checker {
 public:
  explicit Checker(const Problem& problem) : p_(problem) {
    for (int64_t token = 0; token < p_.tokens(); ++token) {
      const CacheRow row = RowOf(token);
      if (row.block >= 0) last_writer_[Key(row)] = token;
    }
  }

  AccuracyReport Run() {
    for (int64_t token = 0; token < p_.tokens(); ++token) CheckToken(token);
    return report_;
  }

 private:
  // A run of heads of one part of the packed row.
  struct Part {
    const char* name;
    int64_t first_head;
    int64_t heads;
  };

  void CheckToken(int64_t token) {
    const std::vector<PreciseValue> row = EvaluatePrecise(p_, token);
    CheckDense(row, token, {"q_out", 0, p_.q_heads}, p_.q_out);
    CheckDense(row, token, {"q_before_quant", 0, p_.q_heads}, p_.q_before_quant);
    CheckDense(row, token, {"k_out", p_.q_heads, p_.k_heads}, p_.k_out);
    CheckDense(row, token, {"v_out", p_.q_heads + p_.k_heads, p_.v_heads}, p_.v_out);
    CheckCache(row, token, {"k_cache", p_.q_heads, p_.k_heads}, p_.k_cache);
    CheckCache(row, token, {"v_cache", p_.q_heads + p_.k_heads, p_.v_heads}, p_.v_cache);
  }

  void CheckDense(const std::vector<PreciseValue>& row, int64_t token, const Part& part,
                  const TensorView& out) {
    if (out.data == nullptr) return;
    const auto& st = out.shape.strides;
    const int64_t base = token / p_.sequence * st[0] + token % p_.sequence * st[1];
    for (int64_t i = 0; i < part.heads * p_.head_dim; ++i) {
      const int64_t offset = base + i / p_.head_dim * st[2] + i % p_.head_dim * st[3];
      Check16(row[Place(part, i)], out, offset, {part.name, token, i});
    }
  }

  void CheckCache(const std::vector<PreciseValue>& row, int64_t token, const Part& part,
                  const Cache& cache) {
    if (cache.data.data == nullptr) return;
    const CacheRow to = RowOf(token);
    if (to.block < 0 || last_writer_.at(Key(to)) != token) return;
    for (int64_t i = 0; i < part.heads * p_.head_dim; ++i) {
      const int64_t offset = CacheOffset(cache.data, to, i);
      const PreciseValue value = row[Place(part, i)];
      if (cache.data.dtype == DType::kInt8) {
        CheckCode(value, cache, offset, {part.name, token, i});
      } else {
        Check16(value, cache.data, offset, {part.name, token, i});
      }
    }
  }

  struct Where {
    const char* name;
    int64_t token;
    int64_t channel;  // over the heads of the part
  };

  void Check16(PreciseValue value, const TensorView& out, int64_t offset, const Where& where) {
    uint16_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(out.data) + 2 * offset, sizeof(bits));
    ++report_.elements;
    const double actual = Decode16(out.dtype, bits);
    const bool is_finite = (bits & 0x7FFF) < FormatOf(out.dtype).infinity();
    if (is_finite && std::isfinite(value.y)) {
      const double ulp = std::ldexp(1.0, LastPlace(FormatOf(out.dtype), actual));
      report_.worst_ulp = std::max(report_.worst_ulp, std::abs(actual - value.y) / ulp);
    }
    if (!IsWithin(out.dtype, value, bits)) Report(where, actual, value);
  }

  void CheckCode(PreciseValue value, const Cache& cache, int64_t offset, const Where& where) {
    int8_t code = 0;
    std::memcpy(&code, static_cast<const char*>(cache.data.data) + offset, sizeof(code));
    ++report_.elements;
    const double step = FloatAt(cache.scale, where.channel);
    const double zero = cache.offset.data != nullptr ? FloatAt(cache.offset, where.channel) : 0.0;
    const PreciseValue z = QuantisePrecise(value, step, zero);
    const int64_t distance = std::abs(int64_t{code} - RoundCode(z.y));
    report_.worst_code_distance = std::max(report_.worst_code_distance, distance);
    if (!IsWithin(z, code)) Report(where, code, z);
  }

  void Report(const Where& where, double actual, PreciseValue expected) {
    if (report_.outside++ > 0) return;
    report_.first_outside = std::string(where.name) + " token " + std::to_string(where.token) +
                            " head " + std::to_string(where.channel / p_.head_dim) + " channel " +
                            std::to_string(where.channel % p_.head_dim) + ": found " +
                            std::to_string(actual) + ", exact value " + std::to_string(expected.y) +
                            " +- " + std::to_string(expected.bound);
  }

  [[nodiscard]] size_t Place(const Part& part, int64_t channel) const {
    return static_cast<size_t>(part.first_head * p_.head_dim + channel);
  }

  [[nodiscard]] static double FloatAt(const TensorView& view, int64_t place) {
    int64_t offset = 0;
    for (int axis = view.shape.rank; axis-- > 0;) {
      const auto a = static_cast<size_t>(axis);
      offset += place % view.shape.dims[a] * view.shape.strides[a];
      place /= view.shape.dims[a];
    }
    float value = 0;
    std::memcpy(&value, static_cast<const char*>(view.data) + 4 * offset, sizeof(value));
    return value;
  }

  [[nodiscard]] int64_t SlotAt(int64_t place) const {
    const int64_t offset = place * p_.slots.shape.strides[0] * SizeOf(p_.slots.dtype);
    const char* address = static_cast<const char*>(p_.slots.data) + offset;
    int64_t wide = 0;
    int32_t narrow = 0;
    if (p_.slots.dtype == DType::kInt64) {
      std::memcpy(&wide, address, sizeof(wide));
      return wide;
    }
    std::memcpy(&narrow, address, sizeof(narrow));
    return narrow;
  }

  [[nodiscard]] CacheRow RowOf(int64_t token) const {
    if (p_.k_cache.data.data == nullptr) return {};
    if (p_.slot_rule == SlotRule::kPerSequence) {
      const int64_t sequence = token / p_.sequence;
      return {sequence, SlotAt(sequence) + token % p_.sequence};
    }
    const int64_t slot = SlotAt(token);
    return slot < 0 ? CacheRow{} : CacheRow{slot / BlockSize(), slot % BlockSize()};
  }

  [[nodiscard]] int64_t BlockSize() const {
    const auto& dims = p_.k_cache.data.shape.dims;
    return p_.cache_order == CacheOrder::kPaNz ? dims[2] : dims[1];
  }

  [[nodiscard]] int64_t Key(CacheRow row) const { return row.block * BlockSize() + row.row; }

  [[nodiscard]] int64_t CacheOffset(const TensorView& cache, CacheRow to, int64_t channel) const {
    const auto& st = cache.shape.strides;
    if (p_.cache_order == CacheOrder::kNd) {
      return to.block * st[0] + to.row * st[1] + channel / p_.head_dim * st[2] +
             channel % p_.head_dim * st[3];
    }
    const int64_t chunk = cache.shape.dims[3];
    return to.block * st[0] + channel / chunk * st[1] + to.row * st[2] + channel % chunk * st[3];
  }

  const Problem& p_;
  std::unordered_map<int64_t, int64_t> last_writer_;
  AccuracyReport report_;
};

}  // namespace

double Decode16(DType dtype, uint16_t bits) {
  const Format format = FormatOf(dtype);
  const int magnitude = bits & 0x7FFF;
  const int exponent = std::max(magnitude >> format.mantissa_bits, 1);
  const int hidden = magnitude >> format.mantissa_bits == 0 ? 0 : 1 << format.mantissa_bits;
  const int significand = (magnitude & ((1 << format.mantissa_bits) - 1)) + hidden;
  const double value =
      std::ldexp(significand, exponent - 1 + format.min_exponent() - format.mantissa_bits);
  return (bits & 0x8000) != 0 ? -value : value;
}

uint16_t Round16(DType dtype, double value) {
  const Format format = FormatOf(dtype);
  const unsigned sign = std::signbit(value) ? 0x8000U : 0U;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7FFFU);
  const double magnitude = std::abs(value);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | format.infinity());
  // In steps of the last place the value is an integer plus a fraction: round that.
  const int place = LastPlace(format, magnitude);
  const double steps = std::nearbyint(std::ldexp(magnitude, -place));
  const int exponent_steps = place + format.mantissa_bits - format.min_exponent();
  // The hidden bit of a normal number adds the last one to the exponent field; a carry does too.
  const double bits = steps + std::ldexp(exponent_steps, format.mantissa_bits);
  const double capped = std::min(bits, static_cast<double>(format.infinity()));
  return static_cast<uint16_t>(sign | static_cast<unsigned>(capped));
}

int8_t RoundCode(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<int8_t>(std::nearbyint(std::clamp(value, -128.0, 127.0)));
}

bool IsWithin(DType dtype, PreciseValue value, uint16_t bits) {
  if (std::isnan(value.y) || IsNan(dtype, bits)) return std::isnan(value.y) && IsNan(dtype, bits);
  if (!std::isfinite(value.bound)) return bits == Round16(dtype, value.y);
  const int low = Order(Round16(dtype, value.y - value.bound));
  const int high = Order(Round16(dtype, value.y + value.bound));
  return low <= Order(bits) && Order(bits) <= high;
}

bool IsWithin(PreciseValue quotient, int8_t code) {
  if (!std::isfinite(quotient.bound)) return code == RoundCode(quotient.y);
  return RoundCode(quotient.y - quotient.bound) <= code &&
         code <= RoundCode(quotient.y + quotient.bound);
}

AccuracyReport CheckAccuracy(const Problem& problem) { return Checker(problem).Run(); }

}  // namespace qkvfuse::reference
