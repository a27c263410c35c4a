// Runs fused and baseline on the same tensors and compares whole outputs.
#include "bench/check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/float8.h"
#include "base/half.h"
#include "bench/subject.h"

namespace qkvfuse::bench {
namespace {

using cases::NamedView;
using cases::TensorId;

template <typename T>
T ElementOf(const TensorView& view, int64_t i) {
  return static_cast<const T*>(view.data)[i];
}

double ValueOf(const TensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::kInt8:
      return ElementOf<int8_t>(view, i);
    case DType::kFloat32:
      return ElementOf<float>(view, i);
    case DType::kFloat16:
      return FloatFromHalf(ElementOf<uint16_t>(view, i));
    case DType::kFloat8E4M3:
      return FloatFromFloat8<kE4M3>(ElementOf<uint8_t>(view, i));
    case DType::kFloat8E5M2:
      return FloatFromFloat8<kE5M2>(ElementOf<uint8_t>(view, i));
    default:
      return FloatFromBFloat16(ElementOf<uint16_t>(view, i));
  }
}

std::vector<double> ValuesOf(const TensorView& view) {
  std::vector<double> values(static_cast<size_t>(view.shape.ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = ValueOf(view, static_cast<int64_t>(i));
  return values;
}

/// Of one rounding, relative to the value.
double RoundoffOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 0x1p-24;
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat8E4M3:
      return 0x1p-4;
    default:  // fp8_e5m2
      return 0x1p-3;
  }
}

/// How far two passes that round to the rows' type on the way may move a result. Each of the two
/// values that RoPE turns was rounded twice more, and cos and sin are at most 1, so together they
/// move a result by less than four units of roundoff of the larger one, which is at most sqrt(2)
/// times the larger result; both results are rounded once more.
double ToleranceOf(const TensorView& view, DType intermediate, double magnitude) {
  const double roundoff = RoundoffOf(intermediate);
  constexpr double kUnits = 8;
  // Codes: in steps of the scale, and one for the rounding.
  if (view.dtype == DType::kInt8) return 1 + kUnits * roundoff * 128;
  // A value that was moved across the middle of two codes gives the other one.
  const double step = IsFloat8(view.dtype) ? 2 * RoundoffOf(view.dtype) : 0;
  return (kUnits * roundoff + step) * magnitude;
}

double LargestOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// The largest of the two values of q that turn together; of a cache, whose rows may lie anywhere,
/// the largest of all.
double MagnitudeAt(const std::vector<double>& values, size_t i, size_t head_dim) {
  const size_t half = head_dim / 2;
  const size_t partner = i % head_dim < half ? i + half : i - half;
  return std::max(std::abs(values[i]), std::abs(values[partner]));
}

Status Differs(const char* what, const NamedView& output, size_t i, double expected,
               double actual) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: element {} of {} is {}, the fused call gives {}", what, i,
                            output.name, actual, expected));
}

using RunBaseline = void (Subject::*)(int threads);

/// The values of every output after the fused call and after a baseline.
template <typename Compare>
Status CompareRuns(Subject& subject, int threads, RunBaseline run, Compare compare) {
  subject.ClearOutputs();
  subject.RunFused(threads);
  const std::vector<NamedView> outputs = subject.Outputs();
  std::vector<std::vector<double>> expected;
  for (const NamedView& output : outputs) expected.push_back(ValuesOf(output.view));
  subject.ClearOutputs();
  (subject.*run)(threads);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (LargestOf(expected[o]) == 0) return Differs("nothing was written", outputs[o], 0, 0, 0);
    Status same = compare(outputs[o], expected[o], ValuesOf(outputs[o].view));
    if (!same.ok()) return same;
  }
  return {};
}

Status CheckUnfused(const cases::Case& c) {
  const std::unique_ptr<Subject> subject = MakeSubject(c, 0);
  const auto compare = [&](const NamedView& output, const std::vector<double>& expected,
                           const std::vector<double>& actual) -> Status {
    const double largest = LargestOf(expected);
    // Tables of op=fused are no rotations, and pairs differ: there, too, the largest of all.
    const bool has_pairs = output.id == TensorId::kQOut && !c.is_fused();
    for (size_t i = 0; i < actual.size(); ++i) {
      const double magnitude =
          has_pairs ? MagnitudeAt(expected, i, static_cast<size_t>(c.head_dim)) : largest;
      const double difference = std::abs(expected[i] - actual[i]);
      if (!(difference <= ToleranceOf(output.view, c.dtype, magnitude))) {
        return Differs("unfused", output, i, expected[i], actual[i]);
      }
    }
    return {};
  };
  return CompareRuns(*subject, c.threads, &Subject::RunUnfused, compare);
}

Status CheckConvertCopy(const cases::Case& c) {
  const std::unique_ptr<Subject> subject = MakeSubject(c, 0, Data::kIdentity);
  if (!subject->has_convert_copy()) return {};
  const auto compare = [](const NamedView& output, const std::vector<double>& expected,
                          const std::vector<double>& actual) -> Status {
    for (size_t i = 0; i < actual.size(); ++i) {
      if (actual[i] != expected[i]) {
        return Differs("convert_copy", output, i, expected[i], actual[i]);
      }
    }
    return {};
  };
  return CompareRuns(*subject, c.threads, &Subject::RunConvertCopy, compare);
}

/// The case with few tokens: comparing is slow.
cases::Case Shortened(cases::Case c) {
  constexpr int64_t kTokens = 64;
  if (c.tokens.batch == 1) c.tokens.sequence = std::min(c.tokens.sequence, kTokens);
  return c;
}

}  // namespace

Status CheckBaselines(const cases::Case& c) {
  const cases::Case shortened = Shortened(c);
  Status status = CheckUnfused(shortened);
  return status.ok() ? CheckConvertCopy(shortened) : status;
}

}  // namespace qkvfuse::bench
