// The Spec of Python (qkvfuse/_spec.py) and the one of C++, each made from the other.
#pragma once

#include <optional>

#include "layout.h"
#include "qkvfuse/fused_qkv.hpp"
#include "qkvfuse/model_spec.hpp"
#include "qkvfuse/pages.hpp"

namespace qkvfuse::python {

/// A Spec and the arrays that its caches are. Layouts in `spec` are those of contiguous arrays.
struct SpecOfArrays {
  FusedQkvSpec spec;
  CacheArray k_cache, v_cache, k_scale_cache, v_scale_cache;
};

[[nodiscard]] SpecOfArrays SpecFrom(nb::handle python_spec);

/// One cache of Python's Cache for this many heads; the second array is the scale cache's.
struct CacheOfArrays {
  CacheSpec spec;
  CacheArray cache, scale_cache;
};
[[nodiscard]] CacheOfArrays CacheFrom(nb::handle python_cache, int64_t heads, int64_t channels,
                                      const char* argument);

/// Python's Spec of a Spec without caches and strides.
[[nodiscard]] nb::object PythonSpec(const FusedQkvSpec& spec);

[[nodiscard]] RopeSpec RopeFrom(nb::handle python_rope);
[[nodiscard]] RopeTableSpec RopeTableFrom(nb::handle python_table);
[[nodiscard]] nb::object PythonRopeTable(const RopeTableSpec& table);

}  // namespace qkvfuse::python
