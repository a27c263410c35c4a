// Both operators in double, each value with the bound of docs/numerics.md, "Accuracy".
#include "reference/precise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace qkvfuse::reference {
namespace {

constexpr double kUnit = 0x1p-24;   // u: half an ulp of 1 in fp32
constexpr double kSlack = 1.0001;   // higher-order terms and the double's own rounding
constexpr double kTiny = 0x1p-149;  // one subnormal step of fp32

// A value on its way: exact value and the magnitude that its rounding errors scale with.
struct Term {
  double value = 0;
  double magnitude = 0;
};

double Decode16(uint16_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

double Get(const TensorView& view, int64_t offset) {
  const char* address = static_cast<const char*>(view.data) + offset * SizeOf(view.dtype);
  uint16_t bits16 = 0;
  int32_t integer = 0;
  float real = 0;
  switch (view.dtype) {
    case DType::kFloat16:
      std::memcpy(&bits16, address, sizeof(bits16));
      return Decode16(bits16, 10);
    case DType::kBFloat16:
      std::memcpy(&bits16, address, sizeof(bits16));
      return Decode16(bits16, 7);
    case DType::kInt32:
      std::memcpy(&integer, address, sizeof(integer));
      return integer;
    default:
      std::memcpy(&real, address, sizeof(real));
      return real;
  }
}

// A parameter's element by its place in row-major order.
double Parameter(const TensorView& view, int64_t place) {
  int64_t offset = 0;
  int64_t below = 1;
  for (int axis = view.shape.rank; axis-- > 0;) {
    const auto a = static_cast<size_t>(axis);
    offset += place / below % view.shape.dims[a] * view.shape.strides[a];
    below *= view.shape.dims[a];
  }
  return Get(view, offset);
}

class Row {
 public:
  Row(const Problem& problem, int64_t token)
      : p_(problem), token_(token), b_(token / problem.sequence), s_(token % problem.sequence) {}

  void AppendRotated(int64_t head, const TensorView& gamma, std::vector<PreciseValue>& row) const {
    const double inverse = p_.has_norm ? InverseRms(head) : 1.0;
    const int64_t half = p_.head_dim / 2;
    for (int64_t d = 0; d < p_.head_dim; ++d) {
      const int64_t partner = d < half ? d + half : d - half;
      const Term a = Scaled(Source(head, d), inverse);
      const Term b = Scaled(Source(head, partner), d < half ? -inverse : inverse);
      const double c = Gamma(gamma, d) * Table(p_.cos, d);
      const double s = Gamma(gamma, partner) * Table(p_.sin, d);
      row.push_back(Rotated(a, b, c, s));
    }
  }

  void AppendPlain(int64_t head, std::vector<PreciseValue>& row) const {
    for (int64_t d = 0; d < p_.head_dim; ++d) {
      const Term x = Source(head, d);
      const bool computed = p_.x.dtype == DType::kInt32;
      const double bound = computed ? kSlack * kUnit * (std::abs(x.value) + 5 * x.magnitude) +
                                          kTiny * (1 + std::abs(x.value))
                                    : 0.0;
      row.push_back({x.value, bound});
    }
  }

 private:
  // Widened or dequantised x. The magnitude is |x*ws*as| + |float bias|.
  [[nodiscard]] Term Source(int64_t head, int64_t d) const {
    const auto& st = p_.x.shape.strides;
    double x = Get(p_.x, b_ * st[0] + s_ * st[1] + head * st[2] + d * st[3]);
    if (p_.x.dtype != DType::kInt32) return {x, std::abs(x)};
    const int64_t channel = head * p_.head_dim + d;
    double bias = p_.bias.data != nullptr ? Parameter(p_.bias, channel) : 0.0;
    if (p_.bias.data != nullptr && p_.bias.dtype == DType::kInt32) {
      x = WrapToInt32(x + bias);
      bias = 0;
    }
    double scaled = x * Parameter(p_.weight_scale, channel);
    if (p_.token_scale.data != nullptr) scaled *= Parameter(p_.token_scale, token_);
    return {scaled + bias, std::abs(scaled) + std::abs(bias)};
  }

  [[nodiscard]] static double WrapToInt32(double sum) {
    if (sum >= 0x1p31) return sum - 0x1p32;
    if (sum < -0x1p31) return sum + 0x1p32;
    return sum;
  }

  [[nodiscard]] double InverseRms(int64_t head) const {
    double sum = 0;
    for (int64_t d = 0; d < p_.head_dim; ++d) {
      const double x = Source(head, d).value;
      sum += x * x;
    }
    const double epsilon = static_cast<float>(p_.epsilon);
    return 1.0 / std::sqrt(sum / static_cast<double>(p_.head_dim) + epsilon);
  }

  [[nodiscard]] double Gamma(const TensorView& gamma, int64_t d) const {
    return p_.has_norm ? Parameter(gamma, d) : 1.0;
  }

  [[nodiscard]] double Table(const TensorView& table, int64_t d) const {
    const auto& st = table.shape.strides;
    return Get(table, b_ * st[0] + s_ * st[1] + d * st[2]);
  }

  [[nodiscard]] static Term Scaled(Term x, double factor) {
    return {x.value * factor, x.magnitude * std::abs(factor)};
  }

  // y = a*c + b*s with E = slack*u*(k*|y| + w*m) + tiny*(1 + |a| + |b| + |c| + |s|).
  [[nodiscard]] PreciseValue Rotated(Term a, Term b, double c, double s) const {
    const double y = a.value * c + b.value * s;
    const double m = a.magnitude * std::abs(c) + b.magnitude * std::abs(s);
    double k = 1;
    double w = p_.x.dtype == DType::kInt32 ? 5 : 0;
    if (p_.has_norm) {
      const auto additions = static_cast<double>((p_.head_dim + 15) / 16);
      k = (additions + 11) / 2;
      w = 2;
    }
    const double sizes = 1 + std::abs(a.value) + std::abs(b.value) + std::abs(c) + std::abs(s);
    return {y, kSlack * kUnit * (k * std::abs(y) + w * m) + kTiny * sizes};
  }

  const Problem& p_;
  int64_t token_;
  int64_t b_;
  int64_t s_;
};

}  // namespace

std::vector<PreciseValue> EvaluatePrecise(const Problem& problem, int64_t token) {
  const Row source(problem, token);
  std::vector<PreciseValue> row;
  row.reserve(static_cast<size_t>(problem.heads() * problem.head_dim));
  int64_t head = 0;
  for (; head < problem.q_heads; ++head) source.AppendRotated(head, problem.q_gamma, row);
  for (; head < problem.q_heads + problem.k_heads; ++head) {
    source.AppendRotated(head, problem.k_gamma, row);
  }
  for (; head < problem.heads(); ++head) source.AppendPlain(head, row);
  return row;
}

PreciseValue QuantisePrecise(PreciseValue value, double scale, double offset) {
  const double quotient = value.y / scale;
  const double z = quotient + offset;
  const double bound =
      value.bound / std::abs(scale) + kSlack * kUnit * (std::abs(quotient) + std::abs(z)) + kTiny;
  return {z, bound};
}

}  // namespace qkvfuse::reference
