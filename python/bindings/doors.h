// The parts of the module, each added by its own file.
#pragma once

#include "refuse.h"

namespace qkvfuse::python {

void AddPlan(nb::module_& module);
void AddUpstream(nb::module_& module);
void AddPages(nb::module_& module);
void AddTables(nb::module_& module);

}  // namespace qkvfuse::python
