// Properties of the operators over random cases: the batch in halves, the tokens in another order,
// in place, and the rows of the cache that no slot names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cases/fill.h"
#include "tests/support/moved_tensors.h"
#include "tests/support/random_case.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

using cases::Case;
using cases::NamedView;
using cases::Problem;
using cases::TensorId;

constexpr int kCases = 100;  // of each property

/// The first kCases random cases that a property is about.
template <typename Wanted>
std::vector<Case> RandomCases(Wanted&& is_wanted) {
  std::vector<Case> cases;
  for (uint64_t seed = 5000; cases.size() < kCases; ++seed) {
    Case c = RandomCase(seed);
    if (is_wanted(c)) cases.push_back(std::move(c));
  }
  return cases;
}

/// Axes of a tensor along which it has a row for each token: [batch, sequence, ...] or [tokens].
bool HasTokens(const Case& c, TensorId id) {
  switch (id) {
    case TensorId::kX:
    case TensorId::kCos:
    case TensorId::kSin:
    case TensorId::kTokenScale:
    case TensorId::kQOut:
    case TensorId::kQBeforeQuant:
    case TensorId::kKOut:
    case TensorId::kVOut:
      return true;
    case TensorId::kSlots:
      return c.slot_mode == SlotMode::kSlotPerToken;
    default:
      return false;
  }
}

/// Bytes from a tensor's first element to the first one of a token.
int64_t TokenOffset(const Case& c, const NamedView& named, int64_t token) {
  const StridedShape& shape = named.view.shape;
  const int64_t elements = shape.rank == 1 ? token * shape.strides[0]
                                           : token / c.tokens.sequence * shape.strides[0] +
                                                 token % c.tokens.sequence * shape.strides[1];
  return elements * SizeOf(named.view.dtype);
}

std::vector<NamedView> AllViews(const Problem& problem) {
  std::vector<NamedView> views = problem.Inputs();
  for (const NamedView& output : problem.Outputs()) views.push_back(output);
  return views;
}

// Halves.

/// Where the second half begins: a sequence, or a token of the only one. Starts of sequences cannot
/// be cut inside.
std::optional<int64_t> FirstTokenOfSecondHalf(const Case& c) {
  const bool is_token = c.slot_mode == SlotMode::kSlotPerToken;
  if (c.tokens.batch >= 2 && c.tokens.sequence > 0) {
    return c.tokens.batch / 2 * c.tokens.sequence;
  }
  if (c.tokens.batch == 1 && c.tokens.sequence >= 2 && is_token) return c.tokens.sequence / 2;
  return std::nullopt;
}

/// The case's plan, for caches that begin some blocks later.
Result<Plan> PlanWithoutBlocks(const Problem& problem, int64_t blocks) {
  const Case& c = problem.description();
  const auto make = [&](auto spec) {
    spec.k_cache.layout.blocks -= blocks;
    spec.v_cache.layout.blocks -= blocks;
    return MakePlan(spec, {c.strict, c.path, c.target});
  };
  return c.is_qnr() ? make(problem.QnrSpec()) : make(problem.DrqSpec());
}

int64_t BlockBytes(const Problem& problem, bool is_k) {
  const auto bytes = [is_k](const auto& spec) {
    const CacheSpec& cache = is_k ? spec.k_cache : spec.v_cache;
    return cache.layout.block_stride * SizeOf(cache.dtype);
  };
  return problem.description().is_qnr() ? bytes(problem.QnrSpec()) : bytes(problem.DrqSpec());
}

Status RunHalves(const Problem& problem, int64_t second) {
  const Case& c = problem.description();
  const bool cuts_batch = c.tokens.batch >= 2;
  const int64_t sequences = second / std::max<int64_t>(c.tokens.sequence, 1);
  const int64_t total = c.tokens.total();
  const TokenCount first_half = cuts_batch ? TokenCount(sequences, c.tokens.sequence) : second;
  const TokenCount second_half =
      cuts_batch ? TokenCount(c.tokens.batch - sequences, c.tokens.sequence) : total - second;
  Tensors moved = problem.tensors();
  for (const NamedView& view : AllViews(problem)) {
    if (HasTokens(c, view.id)) moved = Moved(moved, view.id, TokenOffset(c, view, second));
  }
  int64_t blocks = 0;
  if (c.slot_mode == SlotMode::kStartPerSequence) {  // sequence b has block b
    blocks = sequences;
    for (const NamedView& view : problem.Inputs()) {
      if (view.id != TensorId::kSlots) continue;
      const int64_t bytes = view.view.shape.strides[0] * SizeOf(view.view.dtype);
      moved = Moved(moved, TensorId::kSlots, sequences * bytes);
    }
    moved = Moved(moved, TensorId::kKCache, blocks * BlockBytes(problem, /*is_k=*/true));
    moved = Moved(moved, TensorId::kVCache, blocks * BlockBytes(problem, /*is_k=*/false));
  }
  const Result<Plan> plan = problem.MakePlan();
  if (!plan.ok()) return plan.status();
  const Result<Plan> second_plan = PlanWithoutBlocks(problem, blocks);
  if (!second_plan.ok()) return second_plan.status();
  const Status status = plan->Run(problem.tensors(), first_half);
  return status.ok() ? second_plan->Run(moved, second_half) : status;
}

TEST(Property, TwoHalvesOfABatchEqualTheWhole) {
  const auto cases =
      RandomCases([](const Case& c) { return FirstTokenOfSecondHalf(c).has_value(); });
  for (const Case& c : cases) {
    const auto problem = MakeSolvedProblem(c);
    ASSERT_NE(problem, nullptr);
    const Status status = RunHalves(*problem, *FirstTokenOfSecondHalf(c));
    ASSERT_TRUE(status.ok()) << status.message() << "\n  case: " << cases::PrintCase(c);
    const Status same = problem->Compare();
    EXPECT_TRUE(same.ok()) << same.message() << "\n  case: " << cases::PrintCase(c);
  }
}

// Another order of the tokens.

void SwapTokens(const Case& c, const NamedView& named, int64_t a, int64_t b) {
  StridedShape row = named.view.shape;
  const int token_axes = row.rank == 1 ? 1 : 2;
  for (int axis = 0; axis < token_axes; ++axis) row.dims[static_cast<size_t>(axis)] = 1;
  auto* const data = static_cast<char*>(named.view.data);
  const int64_t size = SizeOf(named.view.dtype);
  for (int64_t position = 0; position < row.ElementCount(); ++position) {
    char* const element = data + cases::OffsetOf(row, position) * size;
    char* const of_a = element + TokenOffset(c, named, a);
    char* const of_b = element + TokenOffset(c, named, b);
    if (of_a != of_b) std::swap_ranges(of_a, of_a + size, of_b);  // equal where broadcast
  }
}

bool HasOrderlessTokens(const Case& c) {
  return c.tokens.total() >= 2 && c.slot_mode == SlotMode::kSlotPerToken && !c.in_place.any() &&
         c.slots != cases::SlotPattern::kRepeated &&
         c.stride(TensorId::kSlots) != cases::StridePattern::kBroadcast;
}

TEST(Property, PermutedTokensGivePermutedRowsAndTheSameCache) {
  std::mt19937 random(11);
  for (const Case& c : RandomCases(HasOrderlessTokens)) {
    const auto problem = MakeSolvedProblem(c);
    ASSERT_NE(problem, nullptr);
    std::vector<std::pair<int64_t, int64_t>> swaps;
    for (int64_t a = c.tokens.total() - 1; a > 0; --a) {
      swaps.emplace_back(a, static_cast<int64_t>(random()) % (a + 1));
    }
    const auto swap_all = [&](const std::vector<NamedView>& views) {
      for (const auto& [a, b] : swaps) {
        for (const NamedView& view : views) {
          if (HasTokens(c, view.id)) SwapTokens(c, view, a, b);
        }
      }
    };
    swap_all(problem->Inputs());
    const Result<Plan> plan = problem->MakePlan();
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Status status = plan->Run(problem->tensors(), problem->tokens(), {2, true});
    ASSERT_TRUE(status.ok()) << status.message() << "\n  case: " << cases::PrintCase(c);
    std::reverse(swaps.begin(), swaps.end());
    swap_all(AllViews(*problem));
    const Status same = problem->Compare();
    EXPECT_TRUE(same.ok()) << same.message() << "\n  case: " << cases::PrintCase(c);
  }
}

// In place.

/// The elements of an output in row-major order.
std::string ElementsOf(const Problem& problem, TensorId id) {
  std::string bytes;
  for (const NamedView& named : problem.Outputs()) {
    if (named.id != id) continue;
    const auto size = static_cast<size_t>(SizeOf(named.view.dtype));
    for (int64_t i = 0; i < named.view.shape.ElementCount(); ++i) {
      const int64_t offset = cases::OffsetOf(named.view.shape, i) * SizeOf(named.view.dtype);
      bytes.append(static_cast<const char*>(named.view.data) + offset, size);
    }
  }
  return bytes;
}

TEST(Property, InPlaceEqualsOutOfPlace) {
  const auto is_wanted = [](const Case& c) {
    return c.in_place.any() && c.tokens.total() > 0 && c.data != cases::DataKind::kSpecial;
  };
  for (const Case& c : RandomCases(is_wanted)) {
    Case apart = c;
    apart.in_place = {};
    std::vector<std::unique_ptr<Problem>> problems;
    for (const Case& one : {c, apart}) {
      problems.push_back(MakeProblem(one));
      ASSERT_NE(problems.back(), nullptr);
      const Result<Plan> plan = problems.back()->MakePlan();
      ASSERT_TRUE(plan.ok()) << plan.status().message() << "\n  case: " << cases::PrintCase(one);
      const Status status = plan->Run(problems.back()->tensors(), one.tokens);
      ASSERT_TRUE(status.ok()) << status.message() << "\n  case: " << cases::PrintCase(one);
    }
    for (const TensorId id : {TensorId::kQOut, TensorId::kQBeforeQuant, TensorId::kKOut,
                              TensorId::kVOut, TensorId::kKCache, TensorId::kVCache}) {
      EXPECT_EQ(ElementsOf(*problems[0], id), ElementsOf(*problems[1], id))
          << Name(id) << "\n  case: " << cases::PrintCase(c);
    }
  }
}

// Rows of the cache that no slot names.

int64_t SlotAt(const NamedView& slots, int64_t i) {
  const char* const address = static_cast<const char*>(slots.view.data) +
                              i * slots.view.shape.strides[0] * SizeOf(slots.view.dtype);
  int64_t wide = 0;
  int32_t narrow = 0;
  if (slots.view.dtype == DType::kInt64) {
    std::memcpy(&wide, address, sizeof(wide));
    return wide;
  }
  std::memcpy(&narrow, address, sizeof(narrow));
  return narrow;
}

/// Rows of the cache that the call writes, as block * block_size + row.
std::set<int64_t> NamedRows(const Problem& problem) {
  const Case& c = problem.description();
  std::set<int64_t> rows;
  for (const NamedView& view : problem.Inputs()) {
    if (view.id != TensorId::kSlots) continue;
    const bool is_token = c.slot_mode == SlotMode::kSlotPerToken;
    for (int64_t i = 0; i < view.view.shape.dims[0]; ++i) {
      const int64_t slot = SlotAt(view, i);
      if (is_token && slot >= 0) rows.insert(slot);
      if (is_token) continue;
      for (int64_t s = 0; s < c.tokens.sequence; ++s) rows.insert(i * c.block_size + slot + s);
    }
  }
  return rows;
}

/// The cache's row of an element: [blocks, rows, heads, head_dim], PA_NZ [blocks, chunks, rows,
/// ...].
int64_t RowOf(const Case& c, const StridedShape& shape, int64_t position) {
  const int64_t inner = shape.dims[2] * shape.dims[3];
  const int64_t block = position / (shape.dims[1] * inner);
  const int64_t row = c.layout == cases::Layout::kPaNz ? position / shape.dims[3] % shape.dims[2]
                                                       : position / inner % shape.dims[1];
  return block * c.block_size + row;
}

TEST(Property, RowsOfTheCacheThatNoSlotNamesKeepTheirBytes) {
  int64_t kept = 0;
  for (const Case& c : RandomCases([](const Case& c) { return c.tokens.total() > 0; })) {
    const auto problem = MakeProblem(c);
    ASSERT_NE(problem, nullptr);
    const std::set<int64_t> rows = NamedRows(*problem);
    for (const TensorId id : {TensorId::kKCache, TensorId::kVCache}) {
      problem->ResetLibraryOutputs();
      const std::string before = ElementsOf(*problem, id);
      const Result<Plan> plan = problem->MakePlan();
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      ASSERT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok()) << cases::PrintCase(c);
      const std::string after = ElementsOf(*problem, id);
      const auto views = problem->Outputs();
      const auto view = std::find_if(views.begin(), views.end(),
                                     [id](const NamedView& named) { return named.id == id; });
      const auto size = static_cast<size_t>(SizeOf(view->view.dtype));
      for (size_t at = 0; at < before.size(); at += size) {
        const int64_t row = RowOf(c, view->view.shape, static_cast<int64_t>(at / size));
        if (rows.count(row) != 0) continue;
        ASSERT_EQ(before.substr(at, size), after.substr(at, size))
            << Name(id) << ", row " << row << "\n  case: " << cases::PrintCase(c);
        ++kept;
      }
    }
  }
  EXPECT_GT(kept, 0);
}

}  // namespace
}  // namespace qkvfuse::testing
