// Walks over the outputs of a call, token by token.
#include "support/outputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

double Decode16(DType dtype, uint16_t bits) {
  const int mantissa_bits = MantissaBits(dtype);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> mantissa_bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x7FFF >> mantissa_bits) return mantissa == 0 ? sign * INFINITY : NAN;
  const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const int shift = std::max(exponent, 1) - 1 + MinExponent(dtype) - mantissa_bits;
  return sign * std::ldexp(significand, shift);
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

void VisitPart(const Problem& problem, const Part& part, int64_t token, const PreciseValue* row,
               const std::function<void(const OutputElement&)>& visit) {
  const PreciseValue* exact = row + part.first_head * problem.head_dim;
  const int64_t slot = part.cache != nullptr ? SlotOf(problem, token) : -1;
  for (int64_t i = 0; i < part.heads * problem.head_dim; ++i) {
    OutputElement element;
    element.exact = exact[i];
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
  const int exponent = value == 0 ? MinExponent(dtype) : std::ilogb(value);
  return std::ldexp(1.0, std::max(exponent, MinExponent(dtype)) - MantissaBits(dtype));
}

}  // namespace qkvfuse::cli
