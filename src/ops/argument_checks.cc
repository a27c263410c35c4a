#include "ops/argument_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/checked_math.h"
#include "base/message.h"
#include "kernels/kernels.h"

namespace qkvfuse {
namespace {

template <typename Range, typename Text>
std::string Join(const Range& items, const char* separator, const Text& text) {
  std::string joined;
  for (const auto& item : items) {
    if (!joined.empty()) joined += separator;
    joined += text(item);
  }
  return joined;
}

std::string DimsText(std::initializer_list<int64_t> dims) {
  return Concat("[", Join(dims, ", ", [](int64_t dim) { return std::to_string(dim); }), "]");
}

}  // namespace

std::string ShapeText(const StridedShape& shape) {
  const auto begin = shape.dims.begin();
  const std::vector<int64_t> dims(begin, begin + std::clamp(shape.rank, 0, kMaxRank));
  return Concat("[", Join(dims, ", ", [](int64_t dim) { return std::to_string(dim); }), "]");
}

Status CheckPresent(const Argument& argument) {
  if (argument.view != nullptr) return {};
  return Null(argument.name, ": is null, must be a tensor");
}

Status CheckPresent(const Integers& integers, const char* name) {
  if (integers.data != nullptr) return {};
  return Null(name, ": is null, must be an array of integers");
}

Status CheckRanksAndStrides(std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments) {
    if (argument.view == nullptr) continue;
    const StridedShape& shape = argument.view->shape;
    if (shape.rank < 0 || shape.rank > kMaxRank) {
      return Invalid(argument.name, ": has ", shape.rank, " dimensions, must have from 0 to ",
                     kMaxRank);
    }
    for (size_t axis = 0; axis < static_cast<size_t>(shape.rank); ++axis) {
      if (shape.strides[axis] != TokenStrides::kFollows || shape.dims[axis] == 1) continue;
      return Invalid(argument.name, ": stride of dimension ", axis, " is ", shape.strides[axis],
                     ", must be above -2^63");
    }
  }
  return {};
}

Status CheckDType(const Argument& argument, std::initializer_list<DType> allowed) {
  for (const DType dtype : allowed) {
    if (argument.view->dtype == dtype) return {};
  }
  return InvalidType(argument.name, ": type is ", Name(argument.view->dtype), ", must be ",
                     Join(allowed, " or ", [](DType dtype) { return std::string(Name(dtype)); }));
}

Status CheckShape(const Argument& argument, std::initializer_list<int64_t> dims) {
  const StridedShape& shape = argument.view->shape;
  if (shape.rank == static_cast<int>(dims.size()) &&
      std::equal(dims.begin(), dims.end(), shape.dims.begin())) {
    return {};
  }
  return Invalid(argument.name, ": shape is ", ShapeText(shape), ", must be ", DimsText(dims));
}

Status CheckTensor(const Argument& argument, DType dtype, std::initializer_list<int64_t> dims) {
  Status status = CheckDType(argument, {dtype});
  return status.ok() ? CheckShape(argument, dims) : status;
}

Status CheckRank(const Argument& argument, int rank) {
  if (argument.view->shape.rank == rank) return {};
  return Invalid(argument.name, ": shape is ", ShapeText(argument.view->shape), ", must have ",
                 rank, " dimensions");
}

Status CheckElementCount(const Argument& argument, int64_t count, bool at_least) {
  int64_t found = 1;
  const StridedShape& shape = argument.view->shape;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (!CheckedMul(found, shape.dims[static_cast<size_t>(axis)], &found)) {
      return Invalid(argument.name, ": shape ", ShapeText(shape), " has more than 2^63 elements");
    }
  }
  if (at_least ? found >= count : found == count) return {};
  return Invalid(argument.name, ": shape ", ShapeText(shape), " has ", found,
                 " elements, must have ", at_least ? "at least " : "", count);
}

Status CheckIntegers(const Integers& integers, const char* name, int64_t count, int64_t zeros) {
  if (integers.count != count) {
    return Invalid(name, ": has ", integers.count, " values, must have ", count);
  }
  for (int64_t i = 0; i < count; ++i) {
    const bool may_be_zero = i < zeros;
    if (integers.data[i] > 0 || (may_be_zero && integers.data[i] == 0)) continue;
    return Invalid(name, ": value ", i, " is ", integers.data[i], ", must be ",
                   may_be_zero ? "0 or more" : "above 0");
  }
  return {};
}

bool EqualsIgnoringCase(const char* a, const char* b) noexcept {
  // Of ASCII letters only: strcasecmp follows the program's locale.
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  while (*a != '\0' && lower(*a) == lower(*b)) {
    ++a;
    ++b;
  }
  return lower(*a) == lower(*b);
}

Status CheckWord(const char* value, const char* name, std::initializer_list<const char*> words,
                 bool case_sensitive) {
  if (value == nullptr) return {};
  for (const char* const word : words) {
    if (case_sensitive ? std::strcmp(value, word) == 0 : EqualsIgnoringCase(value, word)) return {};
  }
  return Invalid(name, ": is \"", value, "\", must be null or ",
                 Join(words, " or ", [](const char* word) { return Concat("\"", word, "\""); }));
}

Status CheckEpsilon(double epsilon) {
  const float used = static_cast<float>(epsilon);
  const bool is_allowed = epsilon == 0 || (epsilon > 0 && std::isfinite(used) && used > 0);
  if (is_allowed) return {};
  return Invalid("epsilon: is ", epsilon, ", must be 0 or a positive finite float");
}

Status CheckHeads(const HeadCounts& heads, const char* heads_name, int64_t head_dim,
                  const char* head_dim_name) {
  if (heads.q < 1 || heads.k < 1 || heads.v < 1 || heads.k != heads.v) {
    return Invalid(heads_name, ": are ", heads.q, " q, ", heads.k, " k and ", heads.v,
                   " v heads, each must be at least 1 and k equal to v");
  }
  if (head_dim < 2 || head_dim > kernels::kMaxHeadDim || head_dim % 2 != 0) {
    return Invalid(head_dim_name, ": head_dim is ", head_dim, ", must be an even number from 2 to ",
                   kernels::kMaxHeadDim);
  }
  if (heads.q > kMaxHeads || heads.k > kMaxHeads) {
    return Invalid(heads_name, ": are ", heads.q, " q and ", heads.k, " k heads, must be at most ",
                   kMaxHeads);
  }
  return {};
}

Status PackedRowStrides(const Argument& argument, int64_t head_dim, TokenStrides* strides) {
  const StridedShape& shape = argument.view->shape;
  const auto last = static_cast<size_t>(shape.rank - 1);
  strides->channel = shape.strides[last];
  strides->token = shape.strides[last - 1];
  if (shape.rank == 3) strides->batch = shape.strides[0];
  if (CheckedMul(head_dim, strides->channel, &strides->head)) return {};
  return Invalid(argument.name, ": stride ", strides->channel,
                 " of its last dimension is too large");
}

}  // namespace qkvfuse
