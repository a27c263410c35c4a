// Comparison of golden rows with dense outputs and caches, token by token.
#include "golden.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "golden_row.h"
#include "scalar16.h"

namespace qkvfuse::capi_test {
namespace {

// Where a cache of slots keeps (slot, head, channel).
struct CacheMap {
  int64_t slots;
  int64_t block_size;
  int64_t block_stride;
  int64_t row_stride;
  int64_t head_stride;
  int64_t chunk;
  int64_t chunk_stride;
  [[nodiscard]] int64_t At(int64_t slot, int64_t head, int64_t d) const {
    return slot / block_size * block_stride + slot % block_size * row_stride + head * head_stride +
           d / chunk * chunk_stride + d % chunk;
  }
};

CacheMap MapOf(const Call& call, const TensorArgument& cache, const Geometry& g) {
  const std::vector<int64_t>& n = cache.dims;
  if (call.op() == Op::kDrq) {
    return {n[0] * n[1], n[0] * n[1], 0, n[2] * n[3], n[3], n[3], 0};
  }
  return {n[0] * n[2], n[2], n[1] * n[2] * n[3], n[3], g.head_dim * n[2], n[3], n[2] * n[3]};
}

// The slot of a token; negative: skipped.
int64_t SlotOf(const Call& call, const Geometry& g, int64_t token) {
  if (call.op() == Op::kQnr) return call["index"].As<int64_t>()[token];
  const int32_t* indices = call["indices"].As<int32_t>();
  const Text& mode =
      call.texts.find("cacheMode") == call.texts.end() ? Text{} : call.texts.at("cacheMode");
  if (mode == "page") return indices[token];
  const int64_t sequence = token / g.sequence;
  return sequence * call["kCacheRef"].dims[1] + indices[sequence] + token % g.sequence;
}

class Comparer {
 public:
  Comparer(const Call& call, const Tolerances& tolerances)
      : call_(call), tolerances_(tolerances), g_(GeometryOf(call)) {}

  Comparison Run() {
    const bool is_qnr = call_.op() == Op::kQnr;
    const int64_t k = g_.q_heads;
    const int64_t v = k + g_.kv_heads;
    if (is_qnr) {
      AddDense("qOut", 0, g_.q_heads);
      AddDense("qOutBeforeQuant", 0, g_.q_heads);
      AddDense("kOutBeforeQuant", k, g_.kv_heads);
      AddDense("vOutBeforeQuant", v, g_.kv_heads);
    } else {
      AddDense("qOut", 0, g_.q_heads);
      if (call_.kv_output) AddDense("kOut", k, g_.kv_heads);
      if (call_.kv_output) AddDense("vOut", v, g_.kv_heads);
    }
    AddCache(is_qnr ? "kCache" : "kCacheRef", k,
             {is_qnr ? "kScale" : "scaleK", is_qnr ? "kOffset" : "offsetK"});
    AddCache(is_qnr ? "vCache" : "vCacheRef", v,
             {is_qnr ? "vScale" : "scaleV", is_qnr ? "vOffset" : "offsetV"});
    CompareTokens();
    for (const Cache& cache : caches_) CompareUntouched(cache);
    return result_;
  }

 private:
  struct Dense {
    std::string name;
    int64_t first_head;
    int64_t heads;
    Tolerance tolerance;
  };
  struct Parameters {
    const char* scale;
    const char* offset;
  };
  struct Cache {
    std::string name;
    int64_t first_head;
    CacheMap map;
    Tolerance tolerance;
    std::vector<double> scale, offset;
    std::vector<char> touched;  // by slot
  };

  void AddDense(const char* name, int64_t first_head, int64_t heads) {
    const TensorArgument& tensor = call_[name];
    if (!tensor.is_present) return;
    dense_.push_back({name, first_head, heads, tolerances_.For(name, tensor.type)});
  }

  void AddCache(const char* name, int64_t first_head, const Parameters& parameters) {
    const TensorArgument& tensor = call_[name];
    Cache cache{name, first_head, MapOf(call_, tensor, g_), tolerances_.For(name, tensor.type), {},
                {},   {}};
    const int64_t count = g_.kv_heads * g_.head_dim;
    cache.scale.assign(static_cast<size_t>(count), 1.0);
    cache.offset.assign(static_cast<size_t>(count), 0.0);
    if (tensor.type == ACL_INT8) {
      Read(call_[parameters.scale], 0, count, cache.scale.data());
      if (call_[parameters.offset].is_present) {
        Read(call_[parameters.offset], 0, count, cache.offset.data());
      }
    }
    cache.touched.assign(static_cast<size_t>(cache.map.slots), 0);
    caches_.push_back(std::move(cache));
  }

  void CompareTokens() {
    RowMaker maker(call_);
    std::vector<double> row(static_cast<size_t>(g_.row()));
    for (int64_t token = 0; token < g_.tokens(); ++token) {
      maker.Make(token, row);
      for (const Dense& dense : dense_) CompareDense(dense, token, row);
      const int64_t slot = SlotOf(call_, g_, token);
      if (slot < 0) continue;
      for (Cache& cache : caches_) {
        cache.touched[static_cast<size_t>(slot)] = 1;
        CompareCacheRow(cache, slot, row);
      }
    }
  }

  void CompareDense(const Dense& dense, int64_t token, const std::vector<double>& row) {
    const TensorArgument& tensor = call_[dense.name];
    const int64_t width = dense.heads * g_.head_dim;
    const uint16_t* bits = tensor.As<uint16_t>() + token * width;
    const double* golden = row.data() + dense.first_head * g_.head_dim;
    const auto& values = Values16(tensor.type);
    for (int64_t i = 0; i < width; ++i) {
      Judge(dense.name, token, static_cast<double>(values[bits[i]]), golden[i], dense.tolerance);
    }
  }

  void CompareCacheRow(const Cache& cache, int64_t slot, const std::vector<double>& row) {
    const TensorArgument& tensor = call_[cache.name];
    for (int64_t i = 0; i < g_.kv_heads * g_.head_dim; ++i) {
      const double y = row[static_cast<size_t>(cache.first_head * g_.head_dim + i)];
      const int64_t at = cache.map.At(slot, i / g_.head_dim, i % g_.head_dim);
      const double out = Element(tensor, at);
      if (tensor.type != ACL_INT8) {
        Judge(cache.name, slot, out, y, cache.tolerance);
        continue;
      }
      const double z =
          y / cache.scale[static_cast<size_t>(i)] + cache.offset[static_cast<size_t>(i)];
      const double code = std::clamp(std::nearbyint(z), -128.0, 127.0);
      ++result_.codes;
      if (code != out) ++result_.differing;
      Judge(cache.name, slot, out, code, {0, cache.tolerance.absolute});
    }
  }

  void CompareUntouched(const Cache& cache) {
    const TensorArgument& tensor = call_[cache.name];
    const auto bytes = static_cast<int64_t>(aclDataTypeSize(tensor.type));
    for (int64_t slot = 0; slot < cache.map.slots; ++slot) {
      if (cache.touched[static_cast<size_t>(slot)] != 0) continue;
      for (int64_t i = 0; i < g_.kv_heads * g_.head_dim; ++i) {
        const int64_t at = cache.map.At(slot, i / g_.head_dim, i % g_.head_dim) * bytes;
        for (int64_t b = at; b < at + bytes; ++b) {
          if (tensor.bytes[static_cast<size_t>(b)] != kPoison) ++result_.disturbed;
        }
      }
    }
  }

  void Judge(const std::string& name, int64_t row, double out, double golden,
             const Tolerance& tolerance) {
    ++result_.elements;
    if (std::fabs(out - golden) <= tolerance.absolute + tolerance.relative * std::fabs(golden)) {
      return;
    }
    if (result_.outside++ > 0) return;
    result_.first_outside = name + ", row " + std::to_string(row) + ": " + std::to_string(out) +
                            ", golden " + std::to_string(golden);
  }

  const Call& call_;
  const Tolerances& tolerances_;
  Geometry g_;
  std::vector<Dense> dense_;
  std::vector<Cache> caches_;
  Comparison result_;
};

}  // namespace

Tolerance Tolerances::For(const std::string& name, aclDataType type) const {
  const auto found = of_output.find(name);
  if (found != of_output.end()) return found->second;
  if (type == ACL_INT8) return {0, 1};
  return type == ACL_FLOAT16 ? Tolerance{0.001, 0.001} : Tolerance{0.004, 0.004};
}

Comparison CompareWithGolden(const Call& call, const Tolerances& tolerances) {
  return Comparer(call, tolerances).Run();
}

}  // namespace qkvfuse::capi_test
