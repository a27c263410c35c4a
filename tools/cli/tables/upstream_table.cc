// Numeric rows: data of the row's ranges, then bits, intervals and tolerances.
#include "tables/upstream_table.h"

#include <fmt/core.h>

#include <cmath>
#include <map>
#include <random>

#include "cases/fill.h"
#include "reference/accuracy.h"
#include "support/checksum.h"
#include "support/outputs.h"

namespace qkvfuse::cli {
namespace {

using cases::TensorId;

struct Argument {
  TensorId id;
  const char* name;
};

// Arguments that hold numbers; the case's own data decides the slots.
constexpr Argument kInputs[] = {{TensorId::kX, "qkv"},          {TensorId::kQGamma, "qGamma"},
                                {TensorId::kKGamma, "kGamma"},  {TensorId::kCos, "cos"},
                                {TensorId::kSin, "sin"},        {TensorId::kKScale, "kScale"},
                                {TensorId::kVScale, "vScale"},  {TensorId::kKOffset, "kOffset"},
                                {TensorId::kVOffset, "vOffset"}};

constexpr Argument kOutputs[] = {{TensorId::kQOut, "qOut"},
                                 {TensorId::kKCache, "kCache"},
                                 {TensorId::kVCache, "vCache"},
                                 {TensorId::kKOut, "kOutBeforeQuant"},
                                 {TensorId::kVOut, "vOutBeforeQuant"}};

void FillFromRanges(const UpstreamRow& row, cases::Problem& problem) {
  const std::string id = row.id();
  std::mt19937_64 random(Checksum(id.data(), std::ssize(id), DType::kInt8));
  for (const cases::NamedView& input : problem.Inputs()) {
    for (const Argument& argument : kInputs) {
      const nlohmann::json range = row.RangeOf(argument.name);
      if (argument.id != input.id || range.is_null()) continue;
      const double low = range.at(0);
      const double width = range.at(1).get<double>() - low;
      const int64_t elements = input.view.shape.ElementCount();
      for (int64_t i = 0; i < elements; ++i) {
        const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
        cases::StoreElement(input.view, i, low + width * unit);
      }
    }
  }
}

struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

// One element after the other against its interval and its tolerance.
class ElementCheck {
 public:
  explicit ElementCheck(const UpstreamRow& row) {
    const nlohmann::json& tolerances = row.expected().at("rtol_atol");
    for (const Argument& argument : kOutputs) {
      if (!tolerances.contains(argument.name)) continue;
      const nlohmann::json& pair = tolerances.at(argument.name);
      tolerances_[argument.id] = {pair.at(0), pair.at(1)};
    }
  }

  void Look(const OutputElement& element) {
    if (!failure_.empty()) return;
    const double exact =
        element.is_code() ? element.exact.y / element.scale + element.offset : element.exact.y;
    if (!IsAccurate(element)) Fail(element, exact, "outside the interval of correct evaluations");
    const auto tolerance = tolerances_.find(element.output);
    if (tolerance == tolerances_.end()) return;
    // The table compares codes with codes.
    const double golden = element.is_code() ? reference::RoundCode(exact) : exact;
    const double allowed = element.is_code() ? tolerance->second.absolute
                                             : tolerance->second.absolute +
                                                   tolerance->second.relative * std::abs(golden);
    if (std::abs(element.value - golden) > allowed) Fail(element, exact, "outside the tolerance");
  }

  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  void Fail(const OutputElement& element, double exact, const char* why) {
    failure_ = fmt::format("{}: found {}, exact {}: {}", cases::Name(element.output), element.value,
                           exact, why);
  }

  std::map<TensorId, Tolerance> tolerances_;
  std::string failure_;
};

// The shapes that the row expects are those of a packed call.
std::string ShapeDifference(const UpstreamRow& row, const cases::Problem& problem) {
  const nlohmann::json expected = row.OutputShapes();
  for (const cases::NamedView& output : problem.Outputs()) {
    for (const Argument& argument : kOutputs) {
      if (argument.id != output.id || !expected.contains(argument.name)) continue;
      int64_t elements = 1;
      for (const int64_t size : expected.at(argument.name)) elements *= size;
      if (elements == output.view.shape.ElementCount()) continue;
      return fmt::format("{}: {} elements, the row expects {}", argument.name,
                         output.view.shape.ElementCount(), elements);
    }
  }
  return "";
}

Outcome Verify(const UpstreamRow& row) {
  if (row.expected().at("status") != "success") {
    return Outcome::Failed("a numeric row has to expect success");
  }
  const cases::Case c = row.ToCase();
  const auto made = cases::Problem::Make(c);
  if (!made.ok()) return Outcome::Failed(made.status().message());
  cases::Problem& problem = **made;
  FillFromRanges(row, problem);
  problem.ResetOutputs();
  const Outcome bits = CompareWithExact(problem, OptionsOf(c));
  if (bits.kind != Outcome::Kind::kPassed) return bits;
  if (const std::string why = ShapeDifference(row, problem); !why.empty()) {
    return Outcome::Failed(why);
  }
  ElementCheck check(row);
  const reference::Problem outputs = problem.LibraryProblem();
  VisitOutputs(outputs, 0, outputs.tokens(), [&](const OutputElement& e) { check.Look(e); });
  return check.failure().empty() ? Outcome::Passed() : Outcome::Failed(check.failure());
}

}  // namespace

Verification VerifyTableRow(UpstreamRow row) {
  std::string title = fmt::format("{} ({})", row.id(), cases::PrintCase(row.ToCase()));
  return {std::move(title), [row = std::move(row)] { return Verify(row); }};
}

}  // namespace qkvfuse::cli
