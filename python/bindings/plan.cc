// Plan: a Spec that was checked once, and the plans of C++ for the strides that its calls have had.

#include <deque>

#include "doors.h"
#include "operands.h"
#include "options.h"

namespace qkvfuse::python {
namespace {

class PyPlan {
 public:
  PyPlan(nb::handle spec, bool measures, nb::handle strict, nb::handle path, nb::handle target)
      : spec_(SpecFrom(spec)),
        measures_(measures),
        options_(PlanOptionsOf(PlainOf<bool>(strict, "strict"), PlainOf<std::string>(path, "path"),
                               PlainOf<std::string>(target, "target"))),
        contiguous_(MakeFor(spec_.spec)),
        operands_(spec_, measures) {}

  void Run(nb::handle tokens, nb::dict arrays, nb::handle threads) {
    const GeneralCall call = operands_.Bind(tokens, std::move(arrays));
    const RunOptions options = RunOptionsOf(threads);
    const Plan plan = PlanFor(call.spec);
    Status status;
    {
      const nb::gil_scoped_release release;
      status = plan.Run(call.tensors, call.sizes.tokens, options);
    }
    RaiseUnlessOk(status);
  }

  [[nodiscard]] nb::dict Operands(nb::handle tokens, nb::handle sequences) const {
    return operands_.Describe(tokens, NumberOf(sequences, "sequences"));
  }
  [[nodiscard]] std::string Describe(nb::handle tokens) const {
    return contiguous_.Describe(NumberOf(tokens, "tokens"));
  }
  [[nodiscard]] nb::tuple Traffic(nb::handle tokens) const {
    const Plan::Traffic traffic = contiguous_.TrafficOf(NumberOf(tokens, "tokens"));
    return nb::make_tuple(traffic.read_bytes, traffic.write_bytes);
  }
  [[nodiscard]] std::string target() const { return contiguous_.target(); }
  [[nodiscard]] bool is_fused() const { return contiguous_.is_fused(); }

 private:
  [[nodiscard]] Result<Plan> Make(const FusedQkvSpec& spec) const {
    return measures_ ? MakeMeasurePlan(spec, options_) : MakePlan(spec, options_);
  }
  [[nodiscard]] Plan MakeFor(const FusedQkvSpec& spec) const { return ValueOf(Make(spec)); }

  [[nodiscard]] static int64_t NumberOf(nb::handle object, const char* name) {
    const auto number = PlainOf<int64_t>(object, name);
    if (number < 0 || number > kMostTokens) {
      RefuseValue(name, ": is ", number, ", must be from 0 to 2^32");
    }
    return number;
  }

  /// The plan for a call's strides. A caller has few combinations of them, most have one. The GIL
  /// is the lock: a mutex of its own could be held by another thread when the process forks.
  Plan PlanFor(const FusedQkvSpec& spec) {
    constexpr size_t kMostPlans = 16;
    for (const auto& [known, plan] : plans_) {
      if (known == spec) return plan;
    }
    Plan plan = MakeFor(spec);
    if (plans_.size() == kMostPlans) plans_.pop_front();
    plans_.emplace_back(spec, plan);
    return plan;
  }

  SpecOfArrays spec_;
  bool measures_;
  PlanOptions options_;
  Plan contiguous_;
  python::Operands operands_;
  std::deque<std::pair<FusedQkvSpec, Plan>> plans_;
};

}  // namespace

void AddPlan(nb::module_& module) {
  nb::class_<PyPlan>(module, "Plan")
      .def(nb::init<nb::handle, bool, nb::handle, nb::handle, nb::handle>(), nb::arg("spec"),
           nb::arg("measures"), nb::arg("strict").none(), nb::arg("path").none(),
           nb::arg("target").none())
      .def("run", &PyPlan::Run, nb::arg("tokens").none(), nb::arg("arrays"),
           nb::arg("threads").none())
      .def("operands", &PyPlan::Operands, nb::arg("tokens").none(), nb::arg("sequences").none())
      .def("describe", &PyPlan::Describe, nb::arg("tokens").none())
      .def("traffic", &PyPlan::Traffic, nb::arg("tokens").none())
      .def_prop_ro("target", &PyPlan::target)
      .def_prop_ro("is_fused", &PyPlan::is_fused);
}

}  // namespace qkvfuse::python
