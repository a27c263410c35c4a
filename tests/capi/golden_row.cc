// The formulas, in double.
#include "golden_row.h"

#include <algorithm>
#include <cmath>

#include "scalar16.h"

namespace qkvfuse::capi_test {

Geometry GeometryOf(const Call& call) {
  if (call.op() == Op::kQnr) {
    const std::vector<int64_t>& size = *call.integers.at("qkvSize");
    const std::vector<int64_t>& heads = *call.integers.at("headNums");
    return {size[0], size[1], heads[0], heads[1], size[3]};
  }
  const std::vector<int64_t>& x = call["x"].dims;
  const std::vector<int64_t>& splits = *call.integers.at("sizeSplits");
  const int64_t head_dim = call["kCacheRef"].dims[3];
  return {x[0], x.size() == 3 ? x[1] : 1, splits[0] / head_dim, splits[1] / head_dim, head_dim};
}

// Element i of a contiguous tensor as a number.
double Element(const TensorArgument& tensor, int64_t i) {
  switch (tensor.type) {
    case ACL_FLOAT:
      return static_cast<double>(tensor.As<float>()[i]);
    case ACL_INT8:
      return tensor.As<int8_t>()[i];
    case ACL_INT32:
      return tensor.As<int32_t>()[i];
    case ACL_INT64:
      return static_cast<double>(tensor.As<int64_t>()[i]);
    default:
      return static_cast<double>(Values16(tensor.type)[tensor.As<uint16_t>()[i]]);
  }
}

void Read(const TensorArgument& tensor, int64_t begin, int64_t count, double* out) {
  if (tensor.type == ACL_FLOAT16 || tensor.type == ACL_BF16) {
    const auto& values = Values16(tensor.type);
    const uint16_t* bits = tensor.As<uint16_t>() + begin;
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<double>(values[bits[i]]);
    return;
  }
  for (int64_t i = 0; i < count; ++i) out[i] = Element(tensor, begin + i);
}

RowMaker::RowMaker(const Call& call) : call_(call), g_(GeometryOf(call)) {
  const auto d = static_cast<size_t>(g_.head_dim);
  cos_.resize(d);
  sin_.resize(d);
  rotated_.resize(d);
  q_gamma_.assign(d, 1.0);
  k_gamma_.assign(d, 1.0);
  if (call.op() == Op::kQnr) {
    Read(call["qGamma"], 0, g_.head_dim, q_gamma_.data());
    Read(call["kGamma"], 0, g_.head_dim, k_gamma_.data());
  }
}

void RowMaker::Make(int64_t token, std::vector<double>& row) {
  const bool is_qnr = call_.op() == Op::kQnr;
  Read(call_[is_qnr ? "qkv" : "x"], token * g_.row(), g_.row(), row.data());
  if (!is_qnr && call_["x"].type == ACL_INT32) Dequantise(token, row);
  Read(call_["cos"], token * g_.head_dim, g_.head_dim, cos_.data());
  Read(call_["sin"], token * g_.head_dim, g_.head_dim, sin_.data());
  for (int64_t head = 0; head < g_.q_heads + g_.kv_heads; ++head) {
    double* x = row.data() + head * g_.head_dim;
    if (is_qnr) Normalise(x, head < g_.q_heads ? q_gamma_ : k_gamma_);
    Rotate(x);
  }
}

void RowMaker::Dequantise(int64_t token, std::vector<double>& row) const {
  const TensorArgument& bias = call_["bias"];
  const TensorArgument& token_scale = call_["activationScale"];
  const bool adds_first = bias.is_present && bias.type == ACL_INT32;
  const double scale = token_scale.is_present ? Element(token_scale, token) : 1.0;
  for (int64_t i = 0; i < g_.row(); ++i) {
    double& y = row[static_cast<size_t>(i)];
    const double shift = bias.is_present ? Element(bias, i) : 0.0;
    const double weight = Element(call_["weightScale"], i) * scale;
    y = adds_first ? (y + shift) * weight : y * weight + shift;
  }
}

void RowMaker::Normalise(double* x, const std::vector<double>& gamma) const {
  double sum = 0;
  for (int64_t i = 0; i < g_.head_dim; ++i) sum += x[i] * x[i];
  const double epsilon = static_cast<double>(static_cast<float>(call_.epsilon));
  const double root = std::sqrt(sum / static_cast<double>(g_.head_dim) + epsilon);
  for (int64_t i = 0; i < g_.head_dim; ++i) x[i] = x[i] / root * gamma[static_cast<size_t>(i)];
}

void RowMaker::Rotate(double* x) {
  const int64_t half = g_.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const auto lo = static_cast<size_t>(i);
    const auto hi = static_cast<size_t>(i + half);
    rotated_[lo] = x[i] * cos_[lo] - x[i + half] * sin_[lo];
    rotated_[hi] = x[i + half] * cos_[hi] + x[i] * sin_[hi];
  }
  std::copy(rotated_.begin(), rotated_.end(), x);
}

}  // namespace qkvfuse::capi_test
