// Argument checks: binds the row's tensors, without data, as the aclnn operators would.
#include "tables/upstream_checks.h"

#include <fmt/core.h>

#include <memory>
#include <utility>

#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::cli {
namespace {

constexpr DoorRules kAclnnRules{NameStyle::kCamelCase, /*device_limits=*/true,
                                /*any_layout=*/false};

// An empty array is present: its pointer is not null, as that of an empty vector may be.
Integers IntegersView(const std::vector<int64_t>& values) {
  static constexpr int64_t kNone = 0;
  return {values.empty() ? &kNone : values.data(), static_cast<int64_t>(values.size())};
}

template <typename Arguments>
struct NamedArgument {
  const char* name;
  const TensorView* Arguments::*member;
  bool is_required;
};

using QnrArguments = QkvRmsNormRopeCacheArguments;
constexpr NamedArgument<QnrArguments> kQnrArguments[] = {
    {"qkv", &QnrArguments::qkv, true},           {"qGamma", &QnrArguments::q_gamma, true},
    {"kGamma", &QnrArguments::k_gamma, true},    {"cos", &QnrArguments::cos, true},
    {"sin", &QnrArguments::sin, true},           {"index", &QnrArguments::index, true},
    {"qOut", &QnrArguments::q_out, true},        {"kCache", &QnrArguments::k_cache, true},
    {"vCache", &QnrArguments::v_cache, true},    {"kScale", &QnrArguments::k_scale, false},
    {"vScale", &QnrArguments::v_scale, false},   {"kOffset", &QnrArguments::k_offset, false},
    {"vOffset", &QnrArguments::v_offset, false},
};

using DrqArguments = DequantRopeQuantKvcacheArguments;
constexpr NamedArgument<DrqArguments> kDrqArguments[] = {
    {"x", &DrqArguments::x, true},
    {"cos", &DrqArguments::cos, true},
    {"sin", &DrqArguments::sin, true},
    {"kCacheRef", &DrqArguments::k_cache, true},
    {"vCacheRef", &DrqArguments::v_cache, true},
    {"indices", &DrqArguments::indices, true},
    {"scaleK", &DrqArguments::scale_k, true},
    {"scaleV", &DrqArguments::scale_v, true},
    {"offsetK", &DrqArguments::offset_k, false},
    {"offsetV", &DrqArguments::offset_v, false},
    {"weightScale", &DrqArguments::weight_scale, false},
    {"activationScale", &DrqArguments::activation_scale, false},
    {"bias", &DrqArguments::bias, false},
};

// Views that live as long as the arguments that point to them.
using Views = std::vector<std::unique_ptr<TensorView>>;

const TensorView* Keep(Views& views, const std::optional<TensorView>& view) {
  if (!view) return nullptr;
  views.push_back(std::make_unique<TensorView>(*view));
  return views.back().get();
}

// Sets the arguments that the row has. False when a required one is missing.
template <typename Arguments, size_t kCount>
bool SetArguments(const UpstreamRow& row, const NamedArgument<Arguments> (&table)[kCount],
                  Views& views, Arguments& arguments) {
  bool has_all = true;
  for (const NamedArgument<Arguments>& argument : table) {
    arguments.*argument.member = Keep(views, row.ViewOf(argument.name));
    if (argument.is_required && !row.Has(argument.name)) has_all = false;
  }
  return has_all;
}

struct BindResult {
  Status status;
  bool has_required = true;
};

template <typename Arguments>
Status BindAndPlan(const Arguments& arguments) {
  const auto call = Bind(arguments, kAclnnRules);
  if (!call.ok()) return call.status();
  PlanOptions options;
  options.strict = false;
  return MakePlan(*call, options).status();
}

// The outputs before quantisation, [T, heads*D], which rows name by an attribute only.
void AddBeforeQuant(const UpstreamRow& row, Views& views, QnrArguments& arguments) {
  const std::vector<int64_t> size = row.IntegersOf("qkv_size");
  const std::vector<int64_t> heads = row.IntegersOf("head_nums");
  if (!row.attributes().at("is_output_qkv") || size.size() != 4 || heads.size() != 3) return;
  const auto view = [&](size_t part) {
    return Keep(views,
                ViewWithoutData(row.TypeOf("qOut"), {size[0] * size[1], heads[part] * size[3]}));
  };
  arguments.q_out_before_quant = view(0);
  arguments.k_out_before_quant = view(1);
  arguments.v_out_before_quant = view(2);
}

BindResult BindQnr(const UpstreamRow& row) {
  Views views;
  QnrArguments arguments;
  BindResult result;
  result.has_required = SetArguments(row, kQnrArguments, views, arguments);
  if (row.Has("qOut")) AddBeforeQuant(row, views, arguments);
  const std::vector<int64_t> size = row.IntegersOf("qkv_size");
  const std::vector<int64_t> heads = row.IntegersOf("head_nums");
  const std::string mode = row.attributes().at("cache_mode");
  arguments.qkv_size = IntegersView(size);
  arguments.head_nums = IntegersView(heads);
  arguments.epsilon = row.epsilon();
  arguments.cache_mode = mode.c_str();
  result.status = BindAndPlan(arguments);
  return result;
}

// [.., heads, D] with the leading dimensions of x.
TensorView DenseDrq(const UpstreamRow& row, int64_t channels) {
  const int64_t head_dim = row.ShapeOf("kCacheRef").at(3);
  std::vector<int64_t> shape = row.ShapeOf("x");
  shape.back() = channels / head_dim;
  shape.push_back(head_dim);
  return ViewWithoutData(row.TypeOf("cos"), shape);
}

BindResult BindDrq(const UpstreamRow& row) {
  Views views;
  DrqArguments arguments;
  BindResult result;
  result.has_required = SetArguments(row, kDrqArguments, views, arguments);
  const std::vector<int64_t> splits = row.SizeSplits();
  const std::string quant_mode = row.attributes().at("quant_mode");
  const std::string layout = row.attributes().at("layout");
  arguments.q_out = Keep(views, DenseDrq(row, splits.at(0)));
  arguments.k_out = Keep(views, DenseDrq(row, splits.at(1)));
  arguments.v_out = Keep(views, DenseDrq(row, splits.at(2)));
  arguments.size_splits = IntegersView(splits);
  arguments.quant_mode = quant_mode.c_str();
  arguments.layout = layout.c_str();
  arguments.kv_output = row.attributes().at("kv_output");
  result.status = BindAndPlan(arguments);
  return result;
}

Outcome VerifyArguments(const UpstreamRow& row) {
  const BindResult result = row.is_qnr() ? BindQnr(row) : BindDrq(row);
  const StatusCode expected = row.expected().at("status") == "success" ? StatusCode::kOk
                              : result.has_required ? StatusCode::kInvalidArgument
                                                    : StatusCode::kNullArgument;
  if (result.status.code() == expected) return Outcome::Passed();
  if (result.status.ok()) return Outcome::Failed("accepted, where the row expects a refusal");
  return Outcome::Failed(expected == StatusCode::kOk
                             ? "refused: " + result.status.message()
                             : "refused with the wrong code: " + result.status.message());
}

Outcome VerifyRun(const UpstreamRow& row) {
  const cases::Case c = row.ToCase();
  const auto problem = cases::Problem::Make(c);
  if (!problem.ok()) return Outcome::Failed(problem.status().message());
  return CompareWithExact(**problem, OptionsOf(c));
}

}  // namespace

Verification VerifyCheckRow(UpstreamRow row) {
  const std::string layer = row.expected().at("layer");
  const std::string id = row.id();
  if (layer == "tiling") return {id, [row = std::move(row)] { return VerifyArguments(row); }};
  if (layer == "kernel") {
    return {fmt::format("{} ({})", id, cases::PrintCase(row.ToCase())),
            [row = std::move(row)] { return VerifyRun(row); }};
  }
  return {id, [layer] {
            return Outcome::Skipped(
                fmt::format("rows of layer {} have no outcome to compare with", layer));
          }};
}

}  // namespace qkvfuse::cli
