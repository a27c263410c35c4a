// A row of the tables that describe upstream's tests: types and shapes by argument, attributes, and
// what is expected. Throws nlohmann exceptions where a row lacks what is asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cases/case.h"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::cli {

class UpstreamRow {
 public:
  explicit UpstreamRow(nlohmann::json row) : row_(std::move(row)) {}

  [[nodiscard]] std::string id() const { return row_.at("id"); }
  [[nodiscard]] bool is_qnr() const { return row_.at("op") == "qkv_rms_norm_rope_cache"; }
  [[nodiscard]] const nlohmann::json& expected() const { return row_.at("expect"); }
  [[nodiscard]] const nlohmann::json& attributes() const { return row_.at("attrs"); }
  /// Lowest and highest value of an argument; null where the row does not say.
  [[nodiscard]] nlohmann::json RangeOf(const std::string& argument) const;

  [[nodiscard]] bool Has(const std::string& argument) const;
  [[nodiscard]] DType TypeOf(const std::string& argument) const;
  [[nodiscard]] std::vector<int64_t> ShapeOf(const std::string& argument) const;
  /// A view without data, or nothing where the row leaves the argument out.
  [[nodiscard]] std::optional<TensorView> ViewOf(const std::string& argument) const;
  /// Expected shapes by output; an empty object where the row does not say.
  [[nodiscard]] nlohmann::json OutputShapes() const;
  [[nodiscard]] std::vector<int64_t> IntegersOf(const std::string& attribute) const;

  [[nodiscard]] double epsilon() const;
  /// DRQ: Nq*D, Nkv*D, Nkv*D.
  [[nodiscard]] std::vector<int64_t> SizeSplits() const;

  /// The same call as a case, with the case's own data.
  [[nodiscard]] cases::Case ToCase() const;

 private:
  [[nodiscard]] cases::Case ToQnrCase() const;
  [[nodiscard]] cases::Case ToDrqCase() const;

  nlohmann::json row_;
};

/// Contiguous, without data.
[[nodiscard]] TensorView ViewWithoutData(DType dtype, const std::vector<int64_t>& shape);

}  // namespace qkvfuse::cli
