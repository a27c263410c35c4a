// Operators between protected pages: no byte outside a tensor or the workspace is read or written,
// at any alignment of any tensor. An access outside faults; the handler prints the case line.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "cases/buffer.h"
#include "reference/exact.h"
#include "tests/support/moved_tensors.h"
#include "tests/support/random_case.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using cases::BufferPlacement;
using cases::Case;
using cases::Guard;
using cases::Layout;
using cases::Operator;
using cases::Placements;
using cases::TensorId;

constexpr size_t kAlignments = 64;

// What the handler prints: it may not allocate.
char current_line[1024];
volatile sig_atomic_t current_line_bytes = 0;

void SetCurrentLine(const std::string& text) {
  const size_t bytes = std::min(text.size(), sizeof(current_line));
  std::memcpy(current_line, text.data(), bytes);
  current_line_bytes = static_cast<sig_atomic_t>(bytes);
}

void PrintCurrentLine(int signal_number) {
  constexpr char kHead[] = "access outside a buffer\n  case: ";
  const auto print = [](const char* text, size_t bytes) {
    return write(STDERR_FILENO, text, bytes) == static_cast<ssize_t>(bytes);
  };
  const bool is_printed = print(kHead, sizeof(kHead) - 1) &&
                          print(current_line, static_cast<size_t>(current_line_bytes)) &&
                          print("\n", 1);
  std::signal(signal_number, SIG_DFL);
  if (is_printed) std::raise(signal_number);
}

class GuardTest : public ::testing::Test {
 protected:
  GuardTest() {
    std::signal(SIGSEGV, PrintCurrentLine);
    std::signal(SIGBUS, PrintCurrentLine);
  }
  ~GuardTest() override {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
  }
};

std::string PlaceText(const Placements& placements) {
  const std::string side = placements.guard == Guard::kFront ? "front" : "back";
  return ", guard at the " + side + ", gap " +
         (placements.gap ? std::to_string(*placements.gap) : "none");
}

// One run with a workspace of exactly the size that the plan asks for, guarded as the tensors are.
void RunGuarded(cases::Problem& problem, const Placements& placements, const Variant& variant) {
  Case c = problem.description();
  c.path = variant.path;
  c.target = variant.target;
  const std::string line = cases::PrintCase(c) + PlaceText(placements);
  SetCurrentLine(line);
  problem.ResetLibraryOutputs();
  const Result<Plan> plan = problem.MakePlan({c.strict, c.path, c.target});
  ASSERT_TRUE(plan.ok()) << plan.status().message() << "\n  case: " << line;
  const size_t bytes = plan->WorkspaceBytes(problem.tokens());
  BufferPlacement place;
  if (placements.guard == Guard::kFront) place.side = BufferPlacement::Side::kFront;
  place.gap = placements.gap.value_or(0);  // any alignment is allowed
  const cases::Buffer workspace(bytes, place);
  std::memset(workspace.whole().data(), 0xFF, workspace.whole().size());
  const Status status =
      plan->Run(problem.tensors(), problem.tokens(), {workspace.data(), bytes}, {1, false});
  ASSERT_TRUE(status.ok()) << status.message() << "\n  case: " << line;
  const Status comparison = problem.Compare();
  EXPECT_TRUE(comparison.ok()) << comparison.message() << "\n  case: " << line;
  for (const std::byte& byte : workspace.whole()) {
    const bool is_inside = &byte >= workspace.data() && &byte < workspace.data() + bytes;
    if (is_inside || byte == std::byte{0xFF}) continue;
    ADD_FAILURE() << "a byte beside the workspace has changed\n  case: " << line;
    break;
  }
}

void RunGuarded(const Case& c, const Placements& placements) {
  SetCurrentLine(cases::PrintCase(c) + PlaceText(placements));
  const auto problem = cases::Problem::Make(c, placements);
  ASSERT_TRUE(problem.ok()) << problem.status().message() << "\n  case: " << cases::PrintCase(c);
  (*problem)->RunReference();
  for (const Variant& variant : TargetsAndPaths()) RunGuarded(**problem, placements, variant);
}

// Everything there is, so that each tensor is guarded.
Case FullCase(Operator op, bool is_int32, DType dtype, Layout layout) {
  Case c;
  c.op = op;
  c.dtype = dtype;
  c.x_dtype = is_int32 ? DType::kInt32 : dtype;
  c.heads = {3, 2, 2};
  c.k_cache.has_offset = true;
  c.v_cache.has_offset = true;
  c.dense_kv = true;
  c.layout = layout;
  c.block_size = 17;
  if (layout == Layout::kContiguous) c.slot_mode = SlotMode::kStartPerSequence;
  if (op == Operator::kDequantRopeQuantKvcache) c.slot_dtype = DType::kInt32;
  return c;
}

struct Kind {
  const char* name;
  Operator op;
  bool is_int32;
};
constexpr Kind kKinds[] = {{"qnr", Operator::kQkvRmsNormRopeCache, false},
                           {"drq16", Operator::kDequantRopeQuantKvcache, false},
                           {"drq32", Operator::kDequantRopeQuantKvcache, true}};
constexpr DType kBiases[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt32};

// Options that change with `number`, so that a sweep meets all of them.
void Vary(Case& c, int64_t number) {
  c.seed = static_cast<uint64_t>(number) + 1;
  if (c.is_qnr() && number % 3 == 1) c.k_cache = {c.dtype, false};
  if (c.is_qnr() && number % 4 == 1) c.v_cache = {c.dtype, false};
  if (c.x_dtype == DType::kInt32) {
    c.token_scale = number % 5 != 0;
    c.bias = kBiases[number % 4];
  }
  c.dense_kv = number % 7 != 0;
  if (c.slot_mode == SlotMode::kSlotPerToken && number % 2 == 1) {
    c.slots = cases::SlotPattern::kPadded;
  }
}

using Parameter = std::tuple<Kind, DType, Layout>;

class Sweep : public GuardTest, public ::testing::WithParamInterface<Parameter> {
 protected:
  [[nodiscard]] Case Base() const {
    const auto& [kind, dtype, layout] = GetParam();
    return FullCase(kind.op, kind.is_int32, dtype, layout);
  }
};

std::string NameOf(const ::testing::TestParamInfo<Parameter>& info) {
  const auto& [kind, dtype, layout] = info.param;
  const char* layouts[] = {"pa_nz", "paged", "contiguous"};
  return std::string(kind.name) + "_" + Name(dtype) + "_" + layouts[static_cast<int>(layout)];
}

constexpr int64_t kHeadDims[] = {2,  6,  16, 22, 30, 32,  40,  46,  48,  50,
                                 64, 72, 80, 94, 96, 112, 128, 144, 192, 256};

// The neighbouring byte is protected, before or behind.
TEST_P(Sweep, EveryHeadDimAndTokenCount) {
  int64_t number = 0;
  for (const int64_t head_dim : kHeadDims) {
    for (int64_t tokens = 1; tokens <= 17; ++tokens) {
      Case c = Base();
      c.head_dim = head_dim;
      c.tokens = TokenCount(tokens);
      Vary(c, number++);
      if (!cases::Validate(c).ok()) continue;
      for (const Guard guard : {Guard::kFront, Guard::kBack}) RunGuarded(c, {guard});
    }
  }
}

// All base addresses that are a multiple of the element size, modulo 64.
TEST_P(Sweep, EveryAlignment) {
  for (const int64_t head_dim : {46, 80, 128}) {
    for (size_t gap = 0; gap < kAlignments; ++gap) {
      Case c = Base();
      c.head_dim = head_dim;
      c.tokens = TokenCount(1 + static_cast<int64_t>(gap) % 5);
      Vary(c, static_cast<int64_t>(gap));
      if (!cases::Validate(c).ok()) continue;
      for (const Guard guard : {Guard::kFront, Guard::kBack}) RunGuarded(c, {guard, gap});
    }
  }
}

// Views: the outermost elements of the storage are those that the strides reach.
TEST_P(Sweep, EveryStridePattern) {
  using cases::StridePattern;
  for (size_t tensor = 0; tensor < cases::kTensorCount; ++tensor) {
    for (int i = 0; i <= static_cast<int>(StridePattern::kLonger); ++i) {
      Case c = Base();
      c.head_dim = 64;
      c.tokens = TokenCount(2, 2);
      Vary(c, static_cast<int64_t>(tensor));
      c.strides[tensor] = static_cast<StridePattern>(i);
      if (!cases::Validate(c).ok()) continue;
      for (const Guard guard : {Guard::kFront, Guard::kBack}) RunGuarded(c, {guard});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Guard, Sweep,
                         ::testing::Combine(::testing::ValuesIn(kKinds),
                                            ::testing::Values(DType::kFloat16, DType::kBFloat16),
                                            ::testing::Values(Layout::kPaNz, Layout::kPaged,
                                                              Layout::kContiguous)),
                         NameOf);

// The general operator: everything at random, and its tables of cases.
TEST_F(GuardTest, FusedRandomCases) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Case c = RandomFusedCase(500000 + seed);
    for (const Guard guard : {Guard::kFront, Guard::kBack}) RunGuarded(c, {guard, seed % 64});
    RunGuarded(c, {Guard::kBack});
  }
}

TEST_F(GuardTest, FusedCases) {
  const auto all = cases::ReadCases(QKVFUSE_CASES_DIRECTORY "/fused.txt");
  ASSERT_TRUE(all.ok()) << all.status().message();
  for (const Case& c : *all) {
    for (const Guard guard : {Guard::kFront, Guard::kBack}) RunGuarded(c, {guard});
  }
}

// The sweeps above would be worth nothing if the guard did not hold.
class Outside : public GuardTest {
 protected:
  static void Touch(const cases::Buffer& buffer, size_t bytes, bool is_before, bool is_write) {
    SetCurrentLine("op=qnr the line");
    volatile std::byte* const address = is_before ? buffer.data() - 1 : buffer.data() + bytes;
    if (is_write) {
      *address = std::byte{1};
    } else {
      static_cast<void>(*address);
    }
  }
};

TEST_F(Outside, OneByteFaultsAndPrintsTheCase) {
  ::testing::FLAGS_gtest_death_test_style = "fast";
  for (const size_t bytes : {1U, 46U, 4095U, 4096U, 4097U}) {
    for (const bool is_write : {false, true}) {
      const cases::Buffer front(bytes, {BufferPlacement::Side::kFront, 0});
      EXPECT_EXIT(Touch(front, bytes, /*is_before=*/true, is_write),
                  ::testing::KilledBySignal(SIGSEGV), "case: op=qnr the line");
      const cases::Buffer back(bytes, {BufferPlacement::Side::kBack, 0});
      EXPECT_EXIT(Touch(back, bytes, /*is_before=*/false, is_write),
                  ::testing::KilledBySignal(SIGSEGV), "case: op=qnr the line");
    }
  }
}

// A run of one token more than the tensors have: what a wrong bound in a kernel would do.
TEST_F(Outside, ARunOfOneTokenMoreFaultsAndPrintsTheCase) {
  for (const Kind& kind : kKinds) {
    Case c = FullCase(kind.op, kind.is_int32, DType::kBFloat16, Layout::kPaged);
    c.head_dim = 64;
    c.tokens = TokenCount(3);
    c.slots = cases::SlotPattern::kSkipped;
    const auto problem = cases::Problem::Make(c, {Guard::kBack});
    ASSERT_TRUE(problem.ok()) << problem.status().message();
    for (const Variant& variant : TargetsAndPaths()) {
      const auto run = [&] {
        SetCurrentLine(cases::PrintCase(c));
        const Result<Plan> plan = (*problem)->MakePlan({true, variant.path, variant.target});
        if (plan.ok()) static_cast<void>(plan->Run((*problem)->tensors(), 4, {1, false}));
      };
      EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGSEGV), "case: op=.*tokens=3");
    }
  }
}

// From gap 0 to 63 every tensor meets every multiple of its element size.
TEST(Placements, CoverEveryAlignment) {
  for (const DType dtype : {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}) {
    const auto size = static_cast<size_t>(SizeOf(dtype));
    for (size_t tensor = 0; tensor < cases::kTensorCount; ++tensor) {
      std::vector<bool> is_met(kAlignments);
      for (size_t gap = 0; gap < kAlignments; ++gap) {
        is_met[Placements{Guard::kFront, gap}.Of(static_cast<TensorId>(tensor), dtype).gap] = true;
      }
      for (size_t alignment = 0; alignment < kAlignments; ++alignment) {
        EXPECT_EQ(is_met[alignment], alignment % size == 0) << Name(dtype) << " " << alignment;
      }
    }
  }
}

// Other addresses are refused, and the sentence names the tensor.

// Refuses each moved tensor; returns how many tensors there were to move.
int ExpectMisalignedRefused(const Case& c) {
  const auto problem = MakeProblem(c);
  if (problem == nullptr) return 0;
  const Result<Plan> plan = problem->MakePlan();
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return 0;
  std::vector<cases::NamedView> views = problem->Inputs();
  for (const cases::NamedView& output : problem->Outputs()) views.push_back(output);
  int tensors = 0;
  for (const cases::NamedView& view : views) {
    const auto size = static_cast<size_t>(SizeOf(view.view.dtype));
    for (size_t bytes = 1; bytes < size; ++bytes) {
      const Status status = plan->Run(
          Moved(problem->tensors(), view.id, static_cast<int64_t>(bytes)), problem->tokens());
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << view.name << " + " << bytes;
      EXPECT_EQ(status.message().rfind(std::string(view.name) + ":", 0), 0U) << status.message();
      EXPECT_NE(status.message().find("multiple of the element size"), std::string::npos);
      const Status untouched = problem->CompareUntouched();
      EXPECT_TRUE(untouched.ok()) << untouched.message();
    }
    if (size > 1) ++tensors;
  }
  return tensors;
}

TEST(Misaligned, EveryTensorIsRefusedByName) {
  Case qnr = FullCase(Operator::kQkvRmsNormRopeCache, false, DType::kBFloat16, Layout::kPaNz);
  EXPECT_EQ(ExpectMisalignedRefused(qnr), 14);
  qnr.k_cache = qnr.v_cache = {DType::kBFloat16, false};
  EXPECT_EQ(ExpectMisalignedRefused(qnr), 12);
  Case drq = FullCase(Operator::kDequantRopeQuantKvcache, true, DType::kFloat16, Layout::kPaged);
  drq.token_scale = true;
  for (const DType bias : kBiases) {
    drq.bias = bias;
    EXPECT_EQ(ExpectMisalignedRefused(drq), 14);
  }
  const std::string fused =
      "op=fused dtype=bf16 x=int32 heads=3/2 head_dim=64 tokens=8 layout=paged block_size=4 "
      "kv_output=1 token_scale=1 bias=fp32 slot_mode=page_table v_norm=head table=two "
      "q_norm=full k_norm=full gathered_heads=4 ";
  // x, 3 gammas, 2 tables, positions, 3 of the page table, 3 of the dequantisation, 2 sums, 4 dense
  // outputs; then scales and offsets, or scale caches.
  EXPECT_EQ(ExpectMisalignedRefused(
                CaseOf(fused + "q_out=int8+offset k_cache=int8+offset v_cache=int8+offset")),
            15 + 3 + 6);
  EXPECT_EQ(ExpectMisalignedRefused(
                CaseOf(fused + "q_out=int8+dynamic k_cache=int8+dynamic v_cache=int8+dynamic")),
            15 + 3 + 3);
}

}  // namespace
}  // namespace qkvfuse::testing
