// Walks over the outputs of a call, token by token.
#include "support/outputs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "reference/accuracy.h"

namespace qkvfuse::cli {
namespace {

using reference::PreciseValue;
using reference::Problem;

int MantissaBits(DType dtype) { return dtype == DType::kFloat16 ? 10 : 7; }
int MinExponent(DType dtype) { return dtype == DType::kFloat16 ? -14 : -126; }

template <typename T>
T Load(const TensorView& view, int64_t element) {
  T value;
  std::memcpy(&value, static_cast<const T*>(view.data) + element, sizeof(value));
  return value;
}

// Moves the bits to where fp32 has them; the factor makes up for the smaller bias of fp16, and also
// turns its subnormals into numbers.
double Decode16(DType dtype, uint16_t bits) {
  const int shift = 23 - MantissaBits(dtype);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const auto magnitude = std::bit_cast<float>(static_cast<uint32_t>(bits & 0x7FFF) << shift);
  if (dtype == DType::kBFloat16) return sign * magnitude;
  if ((bits & 0x7C00) == 0x7C00) return (bits & 0x3FF) == 0 ? sign * INFINITY : NAN;
  return sign * magnitude * 0x1p112;
}

void LoadValue(const TensorView& view, int64_t offset, OutputElement& element) {
  element.dtype = view.dtype;
  if (element.is_code()) {
    element.value = Load<int8_t>(view, offset);
  } else {
    element.bits = Load<uint16_t>(view, offset);
    element.value = Decode16(view.dtype, element.bits);
  }
}

// A part of the packed row: its heads, and the outputs that they go to.
struct Part {
  int64_t first_head;
  int64_t heads;
  const TensorView* dense;
  cases::TensorId dense_id;
  const reference::Cache* cache;  // null for q
  cases::TensorId cache_id;
};

int64_t SlotOf(const Problem& problem, int64_t token) {
  const int64_t element = token * problem.slots.shape.strides[0];
  return problem.slots.dtype == DType::kInt64 ? Load<int64_t>(problem.slots, element)
                                              : Load<int32_t>(problem.slots, element);
}

int64_t CacheElement(const Problem& problem, const TensorView& cache, int64_t slot,
                     int64_t channel) {
  const auto& dims = cache.shape.dims;
  const auto& strides = cache.shape.strides;
  if (problem.cache_order == reference::CacheOrder::kPaNz) {
    return slot / dims[2] * strides[0] + channel / dims[3] * strides[1] +
           slot % dims[2] * strides[2] + channel % dims[3] * strides[3];
  }
  return slot / dims[1] * strides[0] + slot % dims[1] * strides[1] +
         channel / problem.head_dim * strides[2] + channel % problem.head_dim * strides[3];
}

int64_t DenseElement(const Problem& problem, const TensorView& dense, int64_t token,
                     int64_t channel) {
  const auto& strides = dense.shape.strides;
  return token / problem.sequence * strides[0] + token % problem.sequence * strides[1] +
         channel / problem.head_dim * strides[2] + channel % problem.head_dim * strides[3];
}

double Magnitude(const PreciseValue* exact, int64_t channel, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  const int64_t partner = channel % head_dim < half ? channel + half : channel - half;
  return std::max(std::abs(exact[channel].y), std::abs(exact[partner].y));
}

void VisitPart(const Problem& problem, const Part& part, int64_t token, const PreciseValue* row,
               const std::function<void(const OutputElement&)>& visit) {
  const PreciseValue* exact = row + part.first_head * problem.head_dim;
  const int64_t slot = part.cache != nullptr ? SlotOf(problem, token) : -1;
  for (int64_t i = 0; i < part.heads * problem.head_dim; ++i) {
    OutputElement element;
    element.exact = exact[i];
    element.magnitude = Magnitude(exact, i, problem.head_dim);
    if (part.dense->data != nullptr) {
      element.output = part.dense_id;
      LoadValue(*part.dense, DenseElement(problem, *part.dense, token, i), element);
      visit(element);
    }
    if (slot < 0) continue;
    element.output = part.cache_id;
    LoadValue(part.cache->data, CacheElement(problem, part.cache->data, slot, i), element);
    if (element.is_code()) {
      element.scale = Load<float>(part.cache->scale, i);
      element.offset =
          part.cache->offset.data != nullptr ? Load<float>(part.cache->offset, i) : 0.0f;
    }
    visit(element);
  }
}

}  // namespace

void VisitOutputs(const Problem& problem, int64_t token_begin, int64_t token_end,
                  const std::function<void(const OutputElement&)>& visit) {
  using cases::TensorId;
  const int64_t k_head = problem.q_heads;
  const int64_t v_head = k_head + problem.k_heads;
  const Part parts[] = {
      {0, problem.q_heads, &problem.q_out, TensorId::kQOut, nullptr, TensorId::kQOut},
      {k_head, problem.k_heads, &problem.k_out, TensorId::kKOut, &problem.k_cache,
       TensorId::kKCache},
      {v_head, problem.v_heads, &problem.v_out, TensorId::kVOut, &problem.v_cache,
       TensorId::kVCache},
  };
  for (int64_t token = token_begin; token < token_end; ++token) {
    const std::vector<PreciseValue> row = EvaluatePrecise(problem, token);
    for (const Part& part : parts) VisitPart(problem, part, token, row.data(), visit);
  }
}

double UnitInLastPlace(DType dtype, double value) {
  constexpr int kBias = 1023;
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(std::abs(value)) >> 52) - kBias;
  const int place = std::max(exponent, MinExponent(dtype)) - MantissaBits(dtype);
  return std::bit_cast<double>(static_cast<uint64_t>(place + kBias) << 52);
}

bool IsAccurate(const OutputElement& element) {
  const reference::PreciseValue& exact = element.exact;
  if (element.is_code()) {
    return IsWithin(QuantisePrecise(exact, element.scale, element.offset),
                    static_cast<int8_t>(element.value));
  }
  // Less than half a unit away is the correct rounding, which every interval holds.
  if (std::abs(element.value - exact.y) < 0.5 * UnitInLastPlace(element.dtype, exact.y)) {
    return true;
  }
  return IsWithin(element.dtype, exact, element.bits);
}

}  // namespace qkvfuse::cli
