// Rotary tables, and the Specs of published models.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "doors.h"
#include "spec.h"

namespace qkvfuse::python {
namespace {

std::vector<double> Frequencies(nb::handle table) {
  return ValueOf(RopeFrequencies(RopeTableFrom(table)));
}

double AttentionFactor(nb::handle table) {
  return ValueOf(RopeAttentionFactor(RopeTableFrom(table)));
}

/// Fills [rows, width] arrays, any strides.
void Fill(nb::handle python_table, nb::handle python_rope, nb::handle cos, nb::handle sin) {
  const RopeTableSpec table = RopeTableFrom(python_table);
  RopeSpec rope = RopeFrom(python_rope);
  const Array cos_array(cos, "cos", Access::kWrite);
  std::optional<Array> sin_array;
  if (!sin.is_none()) sin_array.emplace(sin, "sin", Access::kWrite);
  const auto bind = [&](const Array& array, std::optional<TokenStrides>* strides) {
    strides->emplace();
    (*strides)->token = array.shape().strides[0];
    (*strides)->channel = array.shape().strides[1];
  };
  bind(cos_array, &rope.cos_strides);
  if (sin_array) bind(*sin_array, &rope.sin_strides);
  rope.dtype = cos_array.view().dtype;
  Status status;
  {
    const nb::gil_scoped_release release;
    status = FillRopeTable(table, rope, cos_array.view().data,
                           sin_array ? sin_array->view().data : nullptr);
  }
  RaiseUnlessOk(status);
}

nb::tuple FromConfig(const std::string& config, bool is_path,
                     const std::optional<std::string>& dtype) {
  std::optional<DType> x_dtype;
  if (dtype) x_dtype = DTypeOf(*dtype, "dtype");
  const ModelSpec model =
      ValueOf(is_path ? SpecFromConfigFile(config, x_dtype) : SpecFromConfig(config, x_dtype));
  nb::list tables;
  for (const RopeTableSpec& table : model.rope_tables) tables.append(PythonRopeTable(table));
  return nb::make_tuple(model.model_type, PythonSpec(model.spec), tables, model.rope_of_layer);
}

}  // namespace

void AddTables(nb::module_& module) {
  module.def("rope_frequencies", &Frequencies);
  module.def("rope_attention_factor", &AttentionFactor);
  module.def("fill_rope_table", &Fill, nb::arg("table"), nb::arg("rope"), nb::arg("cos"),
             nb::arg("sin").none());
  module.def("spec_from_config", &FromConfig, nb::arg("config"), nb::arg("is_path"),
             nb::arg("dtype").none());
}

}  // namespace qkvfuse::python
