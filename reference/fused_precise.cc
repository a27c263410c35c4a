#include "reference/fused_precise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/accuracy.h"
#include "reference/places.h"

namespace qkvfuse::reference {
namespace {

constexpr double kUnit = 0x1p-24;   // u: half an ulp of 1 in fp32
constexpr double kSlack = 1.0001;   // higher-order terms and the double's own rounding
constexpr double kTiny = 0x1p-149;  // one subnormal step of fp32

// A value and how far an fp32 evaluation may be from it.
struct Bounded {
  double value = 0;
  double error = 0;
};

double Spread(double a, double a_error, double b, double b_error) {
  return std::abs(a) * b_error + std::abs(b) * a_error + a_error * b_error;
}

Bounded Rounded(double value, double error) {
  return {value, kSlack * (error + kUnit * (std::abs(value) + error)) + kTiny};
}

Bounded operator+(Bounded a, Bounded b) { return Rounded(a.value + b.value, a.error + b.error); }

Bounded operator*(Bounded a, Bounded b) {
  return Rounded(a.value * b.value, Spread(a.value, a.error, b.value, b.error));
}

Bounded operator/(Bounded a, Bounded b) {
  const double quotient = a.value / b.value;
  const double size = std::abs(b.value);
  return Rounded(quotient, (a.error + std::abs(quotient) * b.error) / (size - b.error));
}

// a*b + c with one rounding.
Bounded FusedMultiplyAdd(Bounded a, Bounded b, Bounded c) {
  return Rounded(a.value * b.value + c.value, Spread(a.value, a.error, b.value, b.error) + c.error);
}

Bounded SquareRoot(Bounded a) {
  const double root = std::sqrt(a.value);
  return Rounded(root, a.error / (2 * std::sqrt(std::max(a.value - a.error, 0x1p-1022))));
}

double Get(const TensorView& view, const std::byte* address) {
  switch (view.dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return Decode16(view.dtype, Read<uint16_t>(address));
    case DType::kInt32:
      return Read<int32_t>(address);
    default:
      return Read<float>(address);
  }
}

// A part's heads of one token.
class Row {
 public:
  Row(const FusedProblem& p, const FusedPart& part, int64_t token)
      : p_(p), part_(part), at_{token / p.sequence, token % p.sequence, token, 0} {
    norms_after_ = p.norm_after_rope && part.has_rope;
    if (part.has_norm && part.is_full_width) inverse_ = FullWidthInverse();
  }

  [[nodiscard]] std::vector<Bounded> Head(int64_t head) const {
    std::vector<Bounded> y = Source(head);
    if (norms_after_) Rotate(head, y);
    if (part_.has_norm) {
      const Bounded inverse = part_.is_full_width ? inverse_ : Inverse(SumOfSquares(y), 1);
      for (Bounded& value : y) value = value * inverse;
    }
    if (part_.has_rope && !norms_after_) Rotate(head, y);
    for (int64_t d = 0; part_.has_norm && HasGamma() && d < part_.head_dim(); ++d) {
      Bounded& value = y[static_cast<size_t>(d)];
      if (norms_after_ || !IsRotated(d)) value = value * Gamma(head, d);
    }
    return y;
  }

  // What MakeMeasurePlan's plan writes.
  [[nodiscard]] Bounded Sum(int64_t head) const {
    std::vector<Bounded> x = Source(head);
    if (norms_after_) Rotate(head, x);
    return SumOfSquares(x);
  }

  [[nodiscard]] HeadPosition At(int64_t head) const {
    return {at_.batch, at_.sequence, at_.token, head};
  }

 private:
  [[nodiscard]] bool HasGamma() const { return IsPresent(part_.gamma); }

  [[nodiscard]] bool IsRotated(int64_t d) const {
    const int64_t from_first = d - p_.rope.first_channel;
    return part_.has_rope && from_first >= 0 && from_first < p_.rope.rotary_dim;
  }

  [[nodiscard]] std::vector<Bounded> Source(int64_t head) const {
    std::vector<Bounded> x;
    for (int64_t d = 0; d < part_.head_dim(); ++d) {
      const std::byte* address = Element(part_.x, {at_.batch, at_.sequence, head, d});
      x.push_back(
          FromSource(Get(part_.x, address), part_.first_channel + head * part_.head_dim() + d));
    }
    return x;
  }

  [[nodiscard]] Bounded FromSource(double x, int64_t h) const {
    Bounded y{x, 0};
    if (part_.x.dtype == DType::kInt32) y = Dequantised(x, h);
    const bool has_float_bias = IsPresent(p_.bias) && p_.bias.dtype != DType::kInt32;
    return has_float_bias ? y + Parameter(p_.bias, h) : y;
  }

  [[nodiscard]] Bounded Dequantised(double x, int64_t h) const {
    if (IsPresent(p_.bias) && p_.bias.dtype == DType::kInt32) {
      x += Parameter(p_.bias, h).value;
      if (x >= 0x1p31) x -= 0x1p32;
      if (x < -0x1p31) x += 0x1p32;
    }
    const Bounded widened{x, std::abs(x) > 0x1p24 ? kUnit * std::abs(x) : 0};
    const Bounded y = widened * Parameter(p_.weight_scale, h);
    return IsPresent(p_.token_scale) ? y * Parameter(p_.token_scale, at_.token) : y;
  }

  [[nodiscard]] static Bounded Parameter(const TensorView& view, int64_t place) {
    return {Get(view, Element(view, place)), 0};
  }

  [[nodiscard]] Bounded Gamma(int64_t head, int64_t d) const {
    if (!HasGamma()) return {1, 0};
    const int64_t place = part_.is_full_width ? head * part_.head_dim() + d : d;
    const Bounded gamma = Parameter(part_.gamma, place);
    return part_.gamma_is_one_plus ? Bounded{1, 0} + gamma : gamma;
  }

  [[nodiscard]] Bounded SumOfSquares(const std::vector<Bounded>& x) const {
    Bounded sum;
    for (const Bounded& value : x) {
      sum.value += value.value * value.value;
      sum.error += Spread(value.value, value.error, value.value, value.error);
    }
    // A chain of fused multiply-adds in each of sixteen accumulators, and four levels of sums.
    const double additions = static_cast<double>((x.size() + 15) / 16) + 4;
    sum.error += kSlack * additions * (kUnit * (sum.value + sum.error) + kTiny);
    return sum;
  }

  [[nodiscard]] Bounded FullWidthInverse() const {
    const bool is_gathered = IsPresent(part_.sums);
    const int64_t heads = is_gathered ? part_.sums.shape.dims[1] : part_.heads();
    Bounded sum;
    for (int64_t head = 0; head < heads; ++head) {
      sum = sum + (is_gathered ? Bounded{Read<float>(Element(part_.sums, {at_.token, head})), 0}
                               : Sum(head));
    }
    return Inverse(sum, heads);
  }

  [[nodiscard]] Bounded Inverse(Bounded sum, int64_t heads) const {
    const Bounded count{static_cast<double>(heads * part_.head_dim()), 0};
    const Bounded epsilon{static_cast<float>(p_.epsilon), 0};
    return Bounded{1, 0} / SquareRoot(sum / count + epsilon);
  }

  [[nodiscard]] Bounded Table(const TensorView& table, int64_t pair, bool is_hi) const {
    const FusedRope& rope = p_.rope;
    int64_t entry = pair;
    if (!rope.half_width && rope.is_interleaved) entry = 2 * pair + (is_hi ? 1 : 0);
    if (!rope.half_width && !rope.is_interleaved && is_hi) entry += rope.rotary_dim / 2;
    if (!IsPresent(rope.positions)) {
      return {Get(table, Element(table, {at_.batch, at_.sequence, entry})), 0};
    }
    // [tokens] or [3, tokens], in row-major order.
    const int64_t section = rope.section.empty() ? 0 : rope.section[static_cast<size_t>(pair)];
    const int64_t position = ReadIndex(rope.positions, section * p_.tokens() + at_.token);
    return {Get(table, Element(table, {position, entry})), 0};
  }

  void Rotate(int64_t head, std::vector<Bounded>& a) const {
    const FusedRope& rope = p_.rope;
    const bool folds_gamma = part_.has_norm && !norms_after_ && HasGamma();
    const auto weigh = [&](Bounded entry, int64_t d) {
      return folds_gamma ? Gamma(head, d) * entry : entry;
    };
    for (int64_t j = 0; j < rope.rotary_dim / 2; ++j) {
      const int64_t lo = rope.first_channel + (rope.is_interleaved ? 2 * j : j);
      const int64_t hi = lo + (rope.is_interleaved ? 1 : rope.rotary_dim / 2);
      const Bounded a_lo = a[static_cast<size_t>(lo)];
      const Bounded a_hi = a[static_cast<size_t>(hi)];
      Bounded product = a_hi * weigh(Table(rope.sin, j, false), hi);
      product.value = -product.value;
      a[static_cast<size_t>(lo)] =
          FusedMultiplyAdd(a_lo, weigh(Table(rope.cos, j, false), lo), product);
      a[static_cast<size_t>(hi)] = FusedMultiplyAdd(a_hi, weigh(Table(rope.cos, j, true), hi),
                                                    a_lo * weigh(Table(rope.sin, j, true), lo));
    }
  }

  const FusedProblem& p_;
  const FusedPart& part_;
  HeadPosition at_;
  bool norms_after_ = false;
  Bounded inverse_;
};

// fp8 as numbers, from their definition: 1 sign bit, exponent, mantissa.
double ValueOfFloat8(DType dtype, uint8_t code) {
  const int mantissa_bits = dtype == DType::kFloat8E4M3 ? 3 : 2;
  const int bias = dtype == DType::kFloat8E4M3 ? 7 : 15;
  const int size = code & 0x7F;
  const int exponent = std::max(size >> mantissa_bits, 1);
  const int hidden = size >> mantissa_bits == 0 ? 0 : 1 << mantissa_bits;
  const double value =
      std::ldexp((size & ((1 << mantissa_bits) - 1)) + hidden, exponent - bias - mantissa_bits);
  return (code & 0x80) != 0 ? -value : value;
}

// z rounded to fp8, as a number.
double RoundFloat8(DType dtype, double z) {
  const int mantissa_bits = dtype == DType::kFloat8E4M3 ? 3 : 2;
  const int lowest = dtype == DType::kFloat8E4M3 ? -6 : -14;
  const double largest = dtype == DType::kFloat8E4M3 ? 448 : 57344;
  const double size = std::min(std::abs(z), largest);
  const int exponent = size == 0 ? lowest : std::max(std::ilogb(size), lowest);
  const double step = std::ldexp(1.0, exponent - mantissa_bits);
  return std::copysign(std::min(std::nearbyint(size / step) * step, largest), z);
}

double LargestCodeOf(DType dtype) {
  return dtype == DType::kInt8 ? 127 : dtype == DType::kFloat8E4M3 ? 448 : 57344;
}

class Checker {
 public:
  explicit Checker(const FusedProblem& p) : p_(p) {}

  FusedAccuracyReport Run() {
    constexpr const char* kNames[] = {"q", "k", "v"};
    for (int64_t token = 0; token < p_.tokens(); ++token) {
      for (size_t g = 0; g < p_.parts.size(); ++g) {
        name_ = kNames[g];
        if (IsPresent(p_.parts[g].x)) CheckPart(p_.parts[g], token);
      }
    }
    return report_;
  }

 private:
  void CheckPart(const FusedPart& part, int64_t token) {
    const Row row(p_, part, token);
    for (int64_t head = 0; head < part.heads(); ++head) {
      at_ = row.At(head);
      if (IsPresent(part.head_sums)) {
        const Bounded sum = row.Sum(head);
        const std::byte* address = Element(part.head_sums, {token, head});
        Count(std::abs(Read<float>(address) - sum.value) <= sum.error, 0, sum);
        continue;
      }
      CheckHead(part, row.Head(head));
    }
  }

  void CheckHead(const FusedPart& part, const std::vector<Bounded>& y) {
    for (const FusedOutput& dense : part.dense) {
      if (!IsPresent(dense.data)) continue;
      const std::byte* scale = IsPresent(dense.scales)
                                   ? Element(dense.scales, {at_.batch, at_.sequence, at_.head})
                                   : nullptr;
      CheckOutput(dense, y, scale, [&](int64_t d) {
        return Element(dense.data, {at_.batch, at_.sequence, at_.head, d});
      });
    }
    if (!IsPresent(part.cache.data)) return;
    const CacheRow to = RowOf(p_, at_);
    if (to.block < 0) return;
    const FusedOutput& cache = part.cache;
    const std::byte* scale =
        IsPresent(cache.scales) ? Element(cache.scales, {to.block, to.row, at_.head}) : nullptr;
    CheckOutput(cache, y, scale,
                [&](int64_t d) { return CacheElement(cache, part.head_dim(), to, at_.head, d); });
  }

  template <typename AddressOf>
  void CheckOutput(const FusedOutput& output, const std::vector<Bounded>& y,
                   const std::byte* dynamic_scale, const AddressOf& address_of) {
    const auto channels = static_cast<int64_t>(y.size());
    if (dynamic_scale != nullptr) CheckScale(output, y, Read<float>(dynamic_scale));
    for (int64_t d = 0; d < channels; ++d) {
      const Bounded value = y[static_cast<size_t>(d)];
      if (!IsQuantised(output.data.dtype)) {
        CheckFloat(output.data.dtype, address_of(d), d, value);
        continue;
      }
      Bounded z;
      if (dynamic_scale != nullptr) {
        const double scale = Read<float>(dynamic_scale);
        if (scale == 0) continue;
        z = value / Bounded{scale, 0};
      } else {
        z = Scaled(output, value, at_.head * channels + d);
      }
      CheckCode(output.data.dtype, address_of(d), d, z);
    }
  }

  [[nodiscard]] static Bounded Scaled(const FusedOutput& output, Bounded y, int64_t place) {
    const Bounded scale{Read<float>(Element(output.scale, place)), 0};
    const Bounded z = output.rule == CodeRule::kMultiply ? y * scale : y / scale;
    if (!IsPresent(output.offset)) return z;
    return z + Bounded{Read<float>(Element(output.offset, place)), 0};
  }

  void CheckScale(const FusedOutput& output, const std::vector<Bounded>& y, double scale) {
    Bounded largest;
    for (const Bounded& value : y) {
      largest.value = std::max(largest.value, std::abs(value.value));
      largest.error = std::max(largest.error, value.error);
    }
    const Bounded expected = largest / Bounded{LargestCodeOf(output.data.dtype), 0};
    Count(std::abs(scale - expected.value) <= expected.error, -1, expected);
  }

  void CheckFloat(DType dtype, const std::byte* address, int64_t d, Bounded y) {
    if (dtype == DType::kFloat32) {
      Count(std::abs(Read<float>(address) - y.value) <= y.error, d, y);
    } else {
      Count(IsWithin(dtype, {y.value, y.error}, Read<uint16_t>(address)), d, y);
    }
  }

  void CheckCode(DType dtype, const std::byte* address, int64_t d, Bounded z) {
    if (dtype == DType::kInt8) {
      Count(IsWithin({z.value, z.error}, Read<int8_t>(address)), d, z);
      return;
    }
    const double code = ValueOfFloat8(dtype, Read<uint8_t>(address));
    Count(RoundFloat8(dtype, z.value - z.error) <= code &&
              code <= RoundFloat8(dtype, z.value + z.error),
          d, z);
  }

  void Count(bool is_within, int64_t channel, Bounded value) {
    ++report_.elements;
    if (value.value != 0) {
      report_.widest = std::max(report_.widest, value.error / (kUnit * std::abs(value.value)));
    }
    if (is_within || report_.outside++ > 0) return;
    report_.first_outside = std::string(name_) + ", token " + std::to_string(at_.token) +
                            ", head " + std::to_string(at_.head) + ", channel " +
                            std::to_string(channel) + ": expected " + std::to_string(value.value) +
                            " +- " + std::to_string(value.error);
  }

  const FusedProblem& p_;
  const char* name_ = "";
  HeadPosition at_{};
  FusedAccuracyReport report_;
};

}  // namespace

FusedAccuracyReport CheckFusedAccuracy(const FusedProblem& problem) {
  return Checker(problem).Run();
}

}  // namespace qkvfuse::reference
