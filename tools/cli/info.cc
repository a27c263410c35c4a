// `qkvfuse info`: version, compiler, processor, SIMD targets and threads.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "qkvfuse/qkvfuse.hpp"
#include "support/system.h"

namespace qkvfuse::cli {
namespace {

// The target that a plan takes when nobody asks for another: the environment may.
Result<Plan> SmallestPlan() {
  QkvRmsNormRopeCacheSpec spec;
  spec.heads = {1, 1, 1};
  spec.head_dim = 128;
  spec.k_cache.layout = PaNz(1, 32, 1, 128, 32);
  spec.v_cache.layout = spec.k_cache.layout;
  return MakePlan(spec);
}

ExitCode Info(bool json) {
  const Result<Plan> plan = SmallestPlan();
  if (!plan.ok()) {
    fmt::print(stderr, "qkvfuse: {}\n", plan.status().message());
    return kCheckFailed;
  }
  nlohmann::ordered_json info;
  info["version"] = Version();
  info["compiler"] = CompilerText();
  info["cpu"] = CpuModel();
  info["hardware_threads"] = HardwareThreads();
  info["targets"] = AvailableTargets();
  info["target"] = plan->target();
  info["thread_library"] = ThreadLibrary();
  info["threads"] = DefaultThreads();
  if (json) {
    fmt::print("{}\n", info.dump(2));
    return kOk;
  }
  fmt::print("qkvfuse   {}\n", Version());
  fmt::print("compiler  {}\n", CompilerText());
  fmt::print("cpu       {}, {} hardware threads\n", CpuModel(), HardwareThreads());
  fmt::print("targets   {} (chosen: {}; QKVFUSE_TARGET picks another)\n",
             fmt::join(AvailableTargets(), " "), plan->target());
  fmt::print("threads   {} ({}; QKVFUSE_NUM_THREADS sets the number)\n", DefaultThreads(),
             ThreadLibrary() == "none" ? "serial: this build has no OpenMP" : ThreadLibrary());
  return kOk;
}

}  // namespace

void AddInfo(CLI::App& app, ExitCode& exit_code) {
  CLI::App* command =
      app.add_subcommand("info", "Version, compiler, processor, SIMD targets, threads");
  command->footer("Examples:\n  qkvfuse info\n  qkvfuse info --json");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  command->callback([json, &exit_code] { exit_code = Info(*json); });
}

}  // namespace qkvfuse::cli
