// Reads one row of upstream's tables.
#include "tables/upstream_row.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace qkvfuse::cli {
namespace {

using cases::Case;

constexpr std::pair<const char*, DType> kTypes[] = {
    {"float32", DType::kFloat32}, {"float16", DType::kFloat16}, {"bfloat16", DType::kBFloat16},
    {"int8", DType::kInt8},       {"int32", DType::kInt32},     {"int64", DType::kInt64}};

// Of rows that do not give one.
constexpr double kDefaultEpsilon = 1e-6;

}  // namespace

nlohmann::json UpstreamRow::RangeOf(const std::string& argument) const {
  const nlohmann::json& ranges = row_.at("ranges");
  return ranges.is_object() && ranges.contains(argument) ? ranges.at(argument) : nullptr;
}

bool UpstreamRow::Has(const std::string& argument) const {
  const nlohmann::json& shapes = row_.at("shapes");
  return shapes.contains(argument) && !shapes.at(argument).is_null();
}

DType UpstreamRow::TypeOf(const std::string& argument) const {
  const std::string name = row_.at("dtypes").at(argument);
  for (const auto& [text, dtype] : kTypes) {
    if (name == text) return dtype;
  }
  throw std::runtime_error(fmt::format("{}: type {} is not known", argument, name));
}

std::vector<int64_t> UpstreamRow::ShapeOf(const std::string& argument) const {
  return row_.at("shapes").at(argument);
}

std::optional<TensorView> UpstreamRow::ViewOf(const std::string& argument) const {
  if (!Has(argument)) return std::nullopt;
  return ViewWithoutData(TypeOf(argument), ShapeOf(argument));
}

nlohmann::json UpstreamRow::OutputShapes() const {
  return row_.at("shapes").value("out", nlohmann::json::object());
}

std::vector<int64_t> UpstreamRow::IntegersOf(const std::string& attribute) const {
  return attributes().at(attribute);
}

double UpstreamRow::epsilon() const { return attributes().value("epsilon", kDefaultEpsilon); }

Case UpstreamRow::ToCase() const {
  Case c = is_qnr() ? ToQnrCase() : ToDrqCase();
  // Rows are verified in parallel to each other.
  c.threads = 1;
  return c;
}

Case UpstreamRow::ToQnrCase() const {
  const std::vector<int64_t> size = IntegersOf("qkv_size");
  const std::vector<int64_t> heads = IntegersOf("head_nums");
  const std::vector<int64_t> cache = ShapeOf("kCache");
  Case c;
  c.dtype = c.x_dtype = TypeOf("qkv");
  c.heads = {heads.at(0), heads.at(1), heads.at(2)};
  c.head_dim = size.at(3);
  c.tokens = TokenCount(size.at(0), size.at(1));
  c.epsilon = epsilon();
  c.k_cache = {TypeOf("kCache"), Has("kOffset")};
  c.v_cache = {TypeOf("vCache"), Has("vOffset")};
  c.blocks = cache.at(0);
  c.block_size = cache.at(2);
  c.dense_kv = attributes().at("is_output_qkv");
  return c;
}

Case UpstreamRow::ToDrqCase() const {
  const std::vector<int64_t> x = ShapeOf("x");
  const std::vector<int64_t> cache = ShapeOf("kCacheRef");
  const std::vector<int64_t> splits = SizeSplits();
  Case c;
  c.op = cases::Operator::kDequantRopeQuantKvcache;
  c.dtype = TypeOf("cos");
  c.x_dtype = TypeOf("x");
  c.head_dim = cache.at(3);
  c.heads = {splits.at(0) / c.head_dim, splits.at(1) / c.head_dim, splits.at(2) / c.head_dim};
  c.tokens = TokenCount(x.at(0), x.size() == 3 ? x.at(1) : 1);
  c.k_cache = {DType::kInt8, Has("offsetK")};
  c.v_cache = {DType::kInt8, Has("offsetV")};
  c.layout = cases::Layout::kContiguous;
  c.slot_mode = SlotMode::kStartPerSequence;
  c.slots = cases::SlotPattern::kSequential;
  c.slot_dtype = DType::kInt32;
  c.blocks = cache.at(0);
  c.block_size = cache.at(1);
  // A 16-bit x ignores the parameters of dequantisation.
  if (c.x_dtype == DType::kInt32) {
    c.token_scale = Has("activationScale");
    if (Has("bias")) c.bias = TypeOf("bias");
  }
  return c;
}

std::vector<int64_t> UpstreamRow::SizeSplits() const {
  if (attributes().contains("size_splits")) return IntegersOf("size_splits");
  const nlohmann::json& tiling = attributes().at("tiling");
  return {tiling.at("qHiddenSize"), tiling.at("kHiddenSize"), tiling.at("vHiddenSize")};
}

TensorView ViewWithoutData(DType dtype, const std::vector<int64_t>& shape) {
  if (shape.size() > static_cast<size_t>(kMaxRank)) {
    throw std::runtime_error(fmt::format("a shape of {} dimensions", shape.size()));
  }
  TensorView view;
  view.dtype = dtype;
  view.shape.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.dims.begin());
  view.shape.MakeContiguous();
  return view;
}

}  // namespace qkvfuse::cli
