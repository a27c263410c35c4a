// The program that callgrind runs: one case, one Plan::RunRange, whose instructions are counted.
// Prints the heads that it computed.
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <string>

#include "cases/problem.h"
#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::bench {
namespace {

// The processor that callgrind simulates has AVX2 and no more, so its counts are the same on every
// machine.
constexpr const char* kTarget = "avx2";

int Main(const std::string& line) {
  const Result<cases::Case> c = cases::ParseCase(line);
  if (!c.ok()) return std::fprintf(stderr, "%s\n", c.status().message().c_str()), 2;
  const auto problem = cases::Problem::Make(*c);
  if (!problem.ok()) return std::fprintf(stderr, "%s\n", problem.status().message().c_str()), 2;
  PlanOptions options;
  options.target = kTarget;
  options.path = c->path;
  const Result<Plan> plan = (*problem)->MakePlan(options);
  if (!plan.ok()) return std::fprintf(stderr, "%s\n", plan.status().message().c_str()), 2;
  const TokenCount tokens = (*problem)->tokens();
  std::string memory(plan->WorkspaceBytes(tokens), '\0');
  const Workspace workspace{memory.data(), memory.size()};
  const Status status = plan->Check((*problem)->tensors(), tokens, workspace);
  if (!status.ok()) return std::fprintf(stderr, "%s\n", status.message().c_str()), 2;
  plan->RunRange((*problem)->tensors(), tokens, 0, tokens.total(), workspace);
  std::printf("%" PRId64 "\n", tokens.total() * c->heads.total());
  return 0;
}

}  // namespace
}  // namespace qkvfuse::bench

int main(int argc, char** argv) {
  std::string line;
  for (int i = 1; i < argc; ++i) line += std::string(argv[i]) + " ";
  try {
    return qkvfuse::bench::Main(line);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
