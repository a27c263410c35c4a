// Checks that operators share, each a decision and its sentence: presence, types, shapes, values.
// They never read tensor data.
#pragma once

#include <initializer_list>
#include <string>

#include "plan/pipeline.h"

namespace qkvfuse {

/// The spellings of an argument's name: in Tensors, in Python, in the aclnn function.
struct ArgumentName {
  const char* member;
  const char* snake_case;
  const char* camel_case;
  [[nodiscard]] const char* In(NameStyle style) const noexcept {
    if (style == NameStyle::kMember) return member;
    return style == NameStyle::kSnakeCase ? snake_case : camel_case;
  }
};

/// A tensor argument: its value and its name.
struct Argument {
  const TensorView* view;
  const char* name;
};

[[nodiscard]] Status CheckPresent(const Argument& argument);
/// Every argument that is there has from 0 to kMaxRank dimensions, and no stride that a Spec would
/// take for TokenStrides::kFollows.
[[nodiscard]] Status CheckRanksAndStrides(std::initializer_list<Argument> arguments);
[[nodiscard]] Status CheckPresent(const Integers& integers, const char* name);

/// The dtype is one of those allowed.
[[nodiscard]] Status CheckDType(const Argument& argument, std::initializer_list<DType> allowed);
/// Exactly these sizes.
[[nodiscard]] Status CheckShape(const Argument& argument, std::initializer_list<int64_t> dims);
/// CheckDType for one type, then CheckShape.
[[nodiscard]] Status CheckTensor(const Argument& argument, DType dtype,
                                 std::initializer_list<int64_t> dims);
[[nodiscard]] Status CheckRank(const Argument& argument, int rank);
/// `count` elements in all, or with `at_least` no fewer.
[[nodiscard]] Status CheckElementCount(const Argument& argument, int64_t count, bool at_least);

/// `count` values, all positive but the first `zeros`, which may be 0.
[[nodiscard]] Status CheckIntegers(const Integers& integers, const char* name, int64_t count,
                                   int64_t zeros = 0);
/// Null, or one of the words; letter case counts only when asked for.
[[nodiscard]] Status CheckWord(const char* value, const char* name,
                               std::initializer_list<const char*> words, bool case_sensitive);
/// Whether two words are equal but for letter case.
[[nodiscard]] bool EqualsIgnoringCase(const char* a, const char* b) noexcept;

[[nodiscard]] Status CheckEpsilon(double epsilon);
/// Heads of a part, at most.
inline constexpr int64_t kMaxHeads = 1 << 16;
/// Numbers of heads and head_dim; the names are those of the arguments that say them.
[[nodiscard]] Status CheckHeads(const HeadCounts& heads, const char* heads_name, int64_t head_dim,
                                const char* head_dim_name);

/// "[2, 128]"
[[nodiscard]] std::string ShapeText(const StridedShape& shape);

/// Strides of rows [tokens, heads*head_dim] or, with a batch axis in front, [batch, sequence, ...].
[[nodiscard]] Status PackedRowStrides(const Argument& argument, int64_t head_dim,
                                      TokenStrides* strides);

}  // namespace qkvfuse
