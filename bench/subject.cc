// The operators of Ascend with hand-written baselines, and the general operator with a composition
// of plans.
#include "bench/subject.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "bench/baselines/baselines.h"
#include "bench/baselines/composition.h"

namespace qkvfuse::bench {
namespace {

using cases::NamedView;
using cases::TensorId;

class AscendSubject : public Subject {
 public:
  AscendSubject(const cases::Case& c, int64_t bytes, Data data)
      : workload_(c, bytes, data), baselines_(workload_.plan(), workload_.tokens()) {}

  const Plan& plan() const override { return workload_.plan(); }
  TokenCount tokens() const override { return workload_.tokens(); }
  Workspace workspace() const override { return workload_.workspace(); }
  int64_t sets() const override { return workload_.sets(); }
  const Tensors& NextSet() override { return workload_.NextSet(); }
  std::vector<NamedView> Outputs() const override {
    std::vector<NamedView> views;
    for (const TensorId id : {TensorId::kQOut, TensorId::kKCache, TensorId::kVCache}) {
      views.push_back({id, cases::Name(id), workload_.Output(id)});
    }
    return views;
  }
  void ClearOutputs() override { workload_.ClearOutputs(); }

  void RunUnfused(int threads) override {
    baselines_.RunUnfused(workload_.NextSet(), workload_.workspace(), threads);
  }
  bool has_convert_copy() const override { return true; }
  void RunConvertCopy(int threads) override {
    baselines_.RunConvertCopy(workload_.NextSet(), workload_.workspace(), threads);
  }

 private:
  Workload workload_;
  Baselines baselines_;
};

Plan PlanOf(const cases::Problem& problem, Path path) {
  PlanOptions options;
  options.path = path;
  Result<Plan> plan = problem.MakePlan(options);
  if (!plan.ok()) throw std::runtime_error(plan.status().message());
  return *plan;
}

std::unique_ptr<cases::Problem> ProblemOf(const cases::Case& c) {
  Result<std::unique_ptr<cases::Problem>> problem = cases::Problem::Make(c);
  if (!problem.ok()) throw std::runtime_error(problem.status().message());
  return std::move(*problem);
}

class FusedSubject : public Subject {
 public:
  explicit FusedSubject(const cases::Case& c)
      : problem_(ProblemOf(c)),
        plan_(PlanOf(*problem_, Path::kAuto)),
        composition_(problem_->FusedSpec(), problem_->tensors(), problem_->tokens()),
        workspace_(static_cast<int64_t>(plan_.WorkspaceBytes(tokens()))) {
    if (plan_.is_fused()) general_ = PlanOf(*problem_, Path::kGeneral);
    const Status status = plan_.Check(NextSet(), tokens(), workspace());
    if (!status.ok()) throw std::runtime_error(status.message());
  }

  const Plan& plan() const override { return plan_; }
  TokenCount tokens() const override { return problem_->tokens(); }
  // Plans that differ in their kernels only need the same.
  Workspace workspace() const override {
    return {workspace_.data(), plan_.WorkspaceBytes(tokens())};
  }
  int64_t sets() const override { return 1; }
  const Tensors& NextSet() override { return problem_->tensors(); }
  std::vector<NamedView> Outputs() const override { return problem_->Outputs(); }
  void ClearOutputs() override {
    for (const NamedView& output : Outputs()) {
      const int64_t bytes = output.view.shape.ElementCount() * SizeOf(output.view.dtype);
      std::memset(output.view.data, 0, static_cast<size_t>(bytes));
    }
  }

  void RunUnfused(int threads) override { composition_.Run(threads); }
  std::string DescribePasses() const override { return composition_.Describe(); }
  const Plan* general_plan() const override { return general_ ? &*general_ : nullptr; }

 private:
  std::unique_ptr<cases::Problem> problem_;
  Plan plan_;
  std::optional<Plan> general_;
  Composition composition_;
  AlignedBytes workspace_;
};

}  // namespace

void Subject::Run(const Plan& plan, int threads) {
  RunOptions options;
  options.threads = threads;
  const Status status = plan.Run(NextSet(), tokens(), workspace(), options);
  if (!status.ok()) throw std::runtime_error(status.message());
}

std::unique_ptr<Subject> MakeSubject(const cases::Case& c, int64_t bytes, Data data) {
  if (c.is_fused()) return std::make_unique<FusedSubject>(c);
  return std::make_unique<AscendSubject>(c, bytes, data);
}

}  // namespace qkvfuse::bench
