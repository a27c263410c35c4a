// A fault that was reported in public about kernels like ours, as a test: the inputs in the
// notation of the report's case, the right answer, and the faulty evaluation, which must be told
// apart from what the library gives.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cases/problem.h"
#include "reference/exact.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {

/// Element i (row-major) of a tensor.
using Generator = std::function<double(int64_t i)>;

/// ((a*i + b) mod m - floor(m/2)) / den; exact in fp16, bf16 and fp32 for the values used.
[[nodiscard]] Generator Pat(int64_t a, int64_t b, int64_t m, double den);
/// (i mod m + add) / den.
[[nodiscard]] Generator Cyc(int64_t m, int64_t add, double den);
[[nodiscard]] Generator Constant(double value);
/// The values, over and over.
[[nodiscard]] Generator List(std::vector<double> values);
/// Each value for `run` elements, then from the start.
[[nodiscard]] Generator Runs(int64_t run, std::vector<double> values);

/// What a case states about int8 codes in the order (token written, head, channel).
struct Codes {
  std::vector<int> first;
  std::vector<int> last;
  uint64_t checksum;  // FNV-1a, of codes whose SHA-256 is the published one
};

/// Fails the test where the codes are others; its message lists them.
void ExpectSameCodes(const std::string& name, const std::vector<int>& codes, const Codes& expected);

/// One published element, before rounding to the output's type.
struct Spot {
  std::vector<int64_t> at;  // [token, head, channel]
  double value;
};

/// An evaluation with the fault: the reference, run on a problem that the fault has changed.
using FaultyRun = std::function<void(reference::Problem p)>;

class Fault {
 public:
  /// The inputs start as in most cases: x pat(37,11,251,16), gammas cyc(7,4,8) and cyc(5,3,8), cos
  /// and sin pat(13,5,127,64) and pat(29,17,127,64), scales cyc(9,4,128) and cyc(11,4,64), offsets
  /// cyc(13,-6,2) and cyc(7,-3,4). An int32 x and what dequantises it are random.
  explicit Fault(const std::string& line);

  Fault& Fill(cases::TensorId id, const Generator& generator);
  /// Overwrites some elements.
  Fault& Set(cases::TensorId id, const std::vector<int64_t>& positions, double value);
  Fault& SetBits(cases::TensorId id, int64_t position, uint16_t bits);
  Fault& Slots(const std::vector<int64_t>& slots);

  /// Runs every target and path: bits of the exact reference, no other byte changed.
  void ExpectRight();
  void ExpectRight(const std::vector<Variant>& variants);

  /// About the outputs of the last run.
  void ExpectCodes(cases::TensorId cache, const Codes& expected) const;
  void ExpectCodes(cases::TensorId cache, const std::vector<int>& all) const;
  void ExpectSpots(cases::TensorId output, const std::vector<Spot>& spots) const;
  /// Every element of one head of a dense output, within one unit in the last place.
  void ExpectHead(cases::TensorId output, int64_t token, int64_t head,
                  const Generator& expected) const;
  [[nodiscard]] double Value(cases::TensorId output, std::initializer_list<int64_t> at) const;
  /// Codes, or values of a 16-bit cache, in the order (token written, head, channel).
  [[nodiscard]] std::vector<double> Written(cases::TensorId cache) const;

  /// The faulty run gives other bytes than the library does.
  void ExpectToldApart(const std::string& what, const FaultyRun& faulty);

  [[nodiscard]] cases::Problem& problem() const { return *problem_; }
  [[nodiscard]] const cases::Case& description() const { return problem_->description(); }

 private:
  [[nodiscard]] TensorView View(cases::TensorId id) const;

  std::unique_ptr<cases::Problem> problem_;
};

/// The view of `id` in a problem of the reference.
[[nodiscard]] TensorView& ViewOf(reference::Problem& p, cases::TensorId id);

/// A faulty run with other slots: one per token or sequence, as the case has.
[[nodiscard]] FaultyRun WithSlots(std::vector<int64_t> slots);

/// A faulty run that takes this tensor for packed.
[[nodiscard]] FaultyRun WithPackedStrides(cases::TensorId id);

/// |found - expected| within 1e-5 of expected and one unit in the last place of the type.
[[nodiscard]] bool IsNear(DType dtype, double found, double expected);

/// The sentence of the refusal; fails the test when there is none.
[[nodiscard]] std::string RefusalOf(const Result<Plan>& plan);

}  // namespace qkvfuse::testing
