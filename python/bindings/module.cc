// The extension module qkvfuse._core: a thin door to the C++ interface. Docstrings, defaults and
// the dataclasses are Python's (qkvfuse/*.py); what is here takes arrays apart and calls the core.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "doors.h"
#include "qkvfuse/runtime.hpp"

NB_MODULE(_core, module) {
  // Plans that a cache of the program keeps until its end are no leak.
  nanobind::set_leak_warnings(false);
  qkvfuse::python::LoadExtensionTypes();
  module.def("version", &qkvfuse::Version);
  module.def("available_targets", &qkvfuse::AvailableTargets);
  qkvfuse::python::AddPlan(module);
  qkvfuse::python::AddUpstream(module);
  qkvfuse::python::AddPages(module);
  qkvfuse::python::AddTables(module);
}
