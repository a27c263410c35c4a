// Reading the tables, and the few arguments that rows leave to be derived: output shapes.
#include "upstream_rows.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "sample_calls.h"

namespace qkvfuse::capi_test {
namespace {

using Json = nlohmann::json;

aclDataType TypeOf(const std::string& name) {
  static const std::map<std::string, aclDataType> kTypes = {
      {"float16", ACL_FLOAT16}, {"bfloat16", ACL_BF16}, {"float32", ACL_FLOAT},
      {"int8", ACL_INT8},       {"int32", ACL_INT32},   {"int64", ACL_INT64}};
  return kTypes.at(name);
}

// Type and shape only: rows may be far larger than anything that is run.
void Describe(TensorArgument& argument, aclDataType type, std::vector<int64_t> dims) {
  argument = TensorArgument{};
  argument.type = type;
  argument.dims = std::move(dims);
  argument.has_data = false;
}

std::vector<int64_t> IntegersAt(const Json& attributes, const char* name, const char* other_name) {
  return (attributes.contains(name) ? attributes[name] : attributes[other_name])
      .get<std::vector<int64_t>>();
}

void AddBeforeQuant(const Json& row, Call& call) {
  const Json& attributes = row["attrs"];
  static constexpr const char* kNames[] = {"qOutBeforeQuant", "kOutBeforeQuant", "vOutBeforeQuant"};
  if (attributes.contains("before_quant_outputs")) {
    for (size_t i = 0; i < 3; ++i) {
      const Json& output = attributes["before_quant_outputs"][i];
      if (!output.is_null()) Describe(call[kNames[i]], TypeOf(output["dtype"]), output["shape"]);
    }
    return;
  }
  const std::vector<int64_t>& heads = *call.integers["headNums"];
  if (!attributes.value("is_output_qkv", false) || heads.size() != 3) return;
  for (size_t i = 0; i < 3; ++i) {
    const TensorArgument& qkv = call["qkv"];
    const int64_t rows = qkv.dims.empty() ? 1 : qkv.dims[0];
    Describe(call[kNames[i]], qkv.type, {rows, heads[i] * 128});
  }
}

void AddQnr(const Json& row, Call& call) {
  const Json& attributes = row["attrs"];
  call.integers["qkvSize"] = IntegersAt(attributes, "qkv_size", "qkvSize");
  call.integers["headNums"] = IntegersAt(attributes, "head_nums", "headNums");
  call.epsilon = attributes.value("epsilon", 1e-6);
  call.texts["cacheMode"] = attributes.value("cache_mode", "PA_NZ");
  AddBeforeQuant(row, call);
}

void AddDrq(const Json& row, Call& call) {
  const Json& attributes = row["attrs"];
  const std::vector<int64_t> x = call["x"].dims;
  const std::vector<int64_t>& cache = call["kCacheRef"].dims;
  // Kernel rows state the sizes in their tiling data only.
  std::vector<int64_t> splits = {x.back() - 2 * cache[2] * cache[3], cache[2] * cache[3],
                                 cache[2] * cache[3]};
  call.integers["sizeSplits"] = attributes.contains("size_splits")
                                    ? attributes["size_splits"].get<std::vector<int64_t>>()
                                    : splits;
  call.kv_output = attributes.value("kv_output", false);
  for (const char* name : {"qOut", "kOut", "vOut"}) {
    std::vector<int64_t> dims(x.begin(), x.end() - 1);
    dims.push_back(name[0] == 'q' ? splits[0] / cache[3] : cache[2]);
    dims.push_back(cache[3]);
    Describe(call[name], call["cos"].type, dims);
  }
}

// Distinct slots in random order; -1 where there are more tokens than slots.
void FillSlots(Call& call, std::mt19937_64& random) {
  const std::vector<int64_t>& cache = call["kCache"].dims;
  std::vector<int64_t> slots(static_cast<size_t>(cache[0] * cache[2]));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(static_cast<size_t>(call["index"].dims[0]), -1);
  SetValues(call["index"], slots);
}

void FillStarts(Call& call, std::mt19937_64& random) {
  const int64_t sequence = call["x"].dims.size() == 3 ? call["x"].dims[1] : 1;
  const int64_t last = call["kCacheRef"].dims[1] - sequence;
  FillIntegers(call["indices"], 0, static_cast<int32_t>(last), random);
}

struct Range {
  double low;
  double high;
};

Range RangeOf(const Json& row, const std::string& name) {
  const Json& ranges = row["ranges"];
  if (!ranges.is_null() && ranges.contains(name) && !ranges[name].is_null()) {
    return {ranges[name][0].get<double>(), ranges[name][1].get<double>()};
  }
  const bool is_scale = name.find("cale") != std::string::npos;
  return is_scale ? Range{0.5, 2} : Range{-1, 1};
}

}  // namespace

std::vector<Json> ReadRows(const std::string& file) {
  const char* folder = std::getenv("QKVFUSE_SHARED_CASES");
  std::ifstream stream(std::string(folder != nullptr ? folder : QKVFUSE_SHARED_CASES) + "/" + file);
  std::vector<Json> rows;
  for (std::string line; std::getline(stream, line);) rows.push_back(Json::parse(line));
  return rows;
}

std::unique_ptr<Call> CallOf(const Json& row) {
  const bool is_qnr = row["op"] == "qkv_rms_norm_rope_cache";
  auto call = std::make_unique<Call>(is_qnr ? Op::kQnr : Op::kDrq);
  for (const auto& [name, type] : row["dtypes"].items()) {
    if (!type.is_null()) Describe((*call)[name], TypeOf(type), row["shapes"][name]);
  }
  is_qnr ? AddQnr(row, *call) : AddDrq(row, *call);
  return call;
}

void FillCall(const Json& row, uint64_t seed, Call& call) {
  std::mt19937_64 random(seed);
  for (const char* name : TensorNames(call.op())) {
    TensorArgument& argument = call[name];
    if (!argument.is_present) continue;
    argument.has_data = true;
    const bool is_slots = argument.type == ACL_INT64 || argument.type == ACL_INT32;
    if (IsOutput(name) || is_slots) continue;
    const Range range = RangeOf(row, name);
    FillUniform(argument, range.low, range.high, random);
  }
  call.op() == Op::kQnr ? FillSlots(call, random) : FillStarts(call, random);
  call.PoisonOutputs();
}

Tolerances TolerancesOf(const Json& row) {
  Tolerances tolerances;
  const Json& expect = row["expect"];
  if (!expect.contains("rtol_atol")) return tolerances;
  for (const auto& [name, pair] : expect["rtol_atol"].items()) {
    tolerances.of_output[name] = {pair[0].get<double>(), pair[1].get<double>()};
  }
  return tolerances;
}

}  // namespace qkvfuse::capi_test
