// Plan: a Spec that was checked once, and the plans of C++ for the strides that its calls have had.

#include <deque>
#include <mutex>

#include "doors.h"
#include "operands.h"
#include "options.h"

namespace qkvfuse::python {
namespace {

class PyPlan {
 public:
  PyPlan(nb::handle spec, bool measures, bool strict, const std::string& path,
         const std::string& target)
      : spec_(SpecFrom(spec)),
        measures_(measures),
        options_(PlanOptionsOf(strict, path, target)),
        contiguous_(MakeFor(spec_.spec)),
        operands_(spec_, measures) {}

  void Run(nb::handle tokens, nb::dict arrays, nb::handle threads) {
    const GeneralCall call = operands_.Bind(tokens, std::move(arrays));
    const RunOptions options = RunOptionsOf(threads);
    Status status;
    {
      const nb::gil_scoped_release release;
      const Result<Plan> plan = PlanFor(call.spec);
      status = plan.ok() ? plan->Run(call.tensors, call.sizes.tokens, options) : plan.status();
    }
    RaiseUnlessOk(status);
  }

  [[nodiscard]] nb::dict Operands(nb::handle tokens, int64_t sequences) const {
    return operands_.Describe(tokens, sequences);
  }
  [[nodiscard]] std::string Describe(int64_t tokens) const { return contiguous_.Describe(tokens); }
  [[nodiscard]] nb::tuple Traffic(int64_t tokens) const {
    const Plan::Traffic traffic = contiguous_.TrafficOf(tokens);
    return nb::make_tuple(traffic.read_bytes, traffic.write_bytes);
  }
  [[nodiscard]] std::string target() const { return contiguous_.target(); }
  [[nodiscard]] bool is_fused() const { return contiguous_.is_fused(); }

 private:
  [[nodiscard]] Result<Plan> Make(const FusedQkvSpec& spec) const {
    return measures_ ? MakeMeasurePlan(spec, options_) : MakePlan(spec, options_);
  }
  [[nodiscard]] Plan MakeFor(const FusedQkvSpec& spec) const { return ValueOf(Make(spec)); }

  /// The plan for a call's strides. A caller has few combinations of them, most have one.
  Result<Plan> PlanFor(const FusedQkvSpec& spec) {
    constexpr size_t kMostPlans = 16;
    const std::lock_guard lock(mutex_);
    for (const auto& [known, plan] : plans_) {
      if (known == spec) return plan;
    }
    Result<Plan> plan = Make(spec);
    if (!plan.ok()) return plan;
    if (plans_.size() == kMostPlans) plans_.pop_front();
    plans_.emplace_back(spec, *plan);
    return plan;
  }

  SpecOfArrays spec_;
  bool measures_;
  PlanOptions options_;
  Plan contiguous_;
  python::Operands operands_;
  std::mutex mutex_;
  std::deque<std::pair<FusedQkvSpec, Plan>> plans_;
};

}  // namespace

void AddPlan(nb::module_& module) {
  nb::class_<PyPlan>(module, "Plan")
      .def(nb::init<nb::handle, bool, bool, const std::string&, const std::string&>())
      .def("run", &PyPlan::Run, nb::arg("tokens").none(), nb::arg("arrays"), nb::arg("threads"))
      .def("operands", &PyPlan::Operands)
      .def("describe", &PyPlan::Describe)
      .def("traffic", &PyPlan::Traffic)
      .def_prop_ro("target", &PyPlan::target)
      .def_prop_ro("is_fused", &PyPlan::is_fused);
}

}  // namespace qkvfuse::python
