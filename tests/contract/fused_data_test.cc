// Refusals of Check and Run for FusedQkvSpec: what a call's data cannot mean.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/contract/refusals.h"

namespace qkvfuse::testing {
namespace {

using C = Call<Fused>;
using Pairing = RopeSpec::Pairing;
using Sections = RopeSpec::Sections;
using Table = RopeSpec::Table;

/// A row; the sentence is compared whole with that in tests/support/sentences.txt.
Refusal<Fused> Row(const char* name, std::function<void(C&)> break_it, StatusCode code = kInvalid) {
  return {name, Phase::kCheck, code, {}, std::move(break_it)};
}

const void* Behind(const void* pointer, int64_t bytes) {
  return static_cast<const char*>(pointer) + bytes;
}

TEST(Contract, FusedPointers) {
  ExpectAllRefused<Fused>(
      "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=8 k_cache=int8+dynamic "
      "v_cache=int8+dynamic "
      "layout=paged block_size=16 separate=1 v_norm=head table=joined q_norm=full k_norm=full "
      "gathered_heads=8 q_out=int8+dynamic bias=fp32",
      {Row(
           "null q", [](C& c) { c.tensors.q = nullptr; }, kNull),
       Row(
           "null k", [](C& c) { c.tensors.k = nullptr; }, kNull),
       Row(
           "null v", [](C& c) { c.tensors.v = nullptr; }, kNull),
       Row(
           "null v_gamma", [](C& c) { c.tensors.v_gamma = nullptr; }, kNull),
       Row(
           "null joined table", [](C& c) { c.tensors.cos = nullptr; }, kNull),
       Row(
           "null positions", [](C& c) { c.tensors.positions = nullptr; }, kNull),
       Row(
           "null bias", [](C& c) { c.tensors.bias = nullptr; }, kNull),
       Row(
           "null q_sums", [](C& c) { c.tensors.q_sums = nullptr; }, kNull),
       Row(
           "null k_sums", [](C& c) { c.tensors.k_sums = nullptr; }, kNull),
       Row(
           "null q_scale_out", [](C& c) { c.tensors.q_scale_out = nullptr; }, kNull),
       Row(
           "null k_scale_cache", [](C& c) { c.tensors.k_scale_cache = nullptr; }, kNull),
       Row(
           "null v_scale_cache", [](C& c) { c.tensors.v_scale_cache = nullptr; }, kNull),
       Row("misaligned sums", [](C& c) { c.tensors.q_sums = Behind(c.tensors.q_sums, 2); }),
       Row("misaligned positions",
           [](C& c) { c.tensors.positions = Behind(c.tensors.positions, 4); }),
       Row("scales on codes", [](C& c) { c.tensors.k_scale_cache = c.tensors.k_cache; }),
       Row("scales on scales", [](C& c) { c.tensors.v_scale_cache = c.tensors.k_scale_cache; }),
       Row("scales on the sums",
           [](C& c) { c.tensors.q_scale_out = const_cast<void*>(c.tensors.q_sums); }),
       Row("output on the table", [](C& c) { c.tensors.q_out = const_cast<void*>(c.tensors.cos); }),
       Row("output on the positions",
           [](C& c) { c.tensors.k_scale_cache = const_cast<void*>(c.tensors.positions); }),
       Row("cache exactly on k",
           [](C& c) {
             // As dense rows of k lie: a block of one row for each token.
             c.spec.k_cache = CacheSpec{};
             c.spec.k_cache->dtype = DType::kBFloat16;
             c.spec.k_cache->layout = PagedNhd(8, 1, 2, 64);
             c.spec.v_cache->scale_layout = PagedNhd(8, 1, 2, 1);
             c.spec.v_cache->layout = PagedNhd(8, 1, 2, 64);
             c.tensors.k_cache = const_cast<void*>(c.tensors.k);
           }),
       Row("codes on q", [](C& c) { c.tensors.q_out = const_cast<void*>(c.tensors.q); }),
       Row("q_out that overlaps itself",
           [](C& c) {
             c.spec.q_out.strides = TokenStrides{TokenStrides::kFollows, 256, 0, 1};
           }),
       Row("ragged without pages", [](C& c) { c.tokens = TokenCount::Ragged(8, 2); })});
}

TEST(Contract, FusedPositions) {
  static std::array<int64_t, 24> positions{};
  const auto with = [](C& c, size_t at, int64_t value) {
    positions.fill(0);
    positions[at] = value;
    c.tensors.positions = positions.data();
  };
  ExpectAllRefused<Fused>(
      "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=8 k_cache=fp8_e4m3+tensor "
      "v_cache=int8+multiply+head layout=paged block_size=16 table=two sections=concatenated "
      "max_positions=40",
      {Row("position beyond the table", [=](C& c) { with(c, 3, 40); }),
       Row("second position beyond the table", [=](C& c) { with(c, 8, 41); }),
       Row("third position negative", [=](C& c) { with(c, 23, -1); })});
}

TEST(Contract, FusedScales) {
  static const std::array<float, 4> zeros{1, 0, 1, 1};
  ExpectAllRefused<Fused>(
      "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=8 k_cache=fp8_e4m3+head "
      "v_cache=int8+multiply+head layout=paged block_size=16 q_out=fp8_e5m2+head",
      {Row("zero k_scale of a head", [](C& c) { c.tensors.k_scale = zeros.data(); }),
       Row("zero v_scale that multiplies", [](C& c) { c.tensors.v_scale = zeros.data(); }),
       Row("zero q_scale", [](C& c) { c.tensors.q_scale = zeros.data(); })});
}

// Two sequences of 5 and 3 tokens in blocks of 4 rows, of which the cache has 64 and a sequence at
// most 3.
TEST(Contract, FusedPageTable) {
  static std::array<int64_t, 6> pages;
  static std::array<int64_t, 2> lengths;
  static std::array<int64_t, 3> offsets;
  const auto usual = [](C& c) {
    pages = {7, 2, -1, 0, 5, 3};
    lengths = {6, 9};
    offsets = {0, 5, 8};
    c.tensors.slots = pages.data();
    c.tensors.lengths = lengths.data();
    c.tensors.row_offsets = offsets.data();
    c.tokens = TokenCount::Ragged(8, 2);
    c.spec.slots.pages = 3;
    c.spec.slots.sequence_stride.reset();
    for (CacheSpec* const cache : {&*c.spec.k_cache, &*c.spec.v_cache}) {
      cache->layout = PagedNhd(8, 4, 2, 64);
    }
  };
  const auto row = [usual](const char* name, std::function<void(C&)> break_it) {
    return Row(name, [usual, break_it](C& c) {
      usual(c);
      break_it(c);
    });
  };
  ExpectAllRefused<Fused>(
      "op=fused dtype=bf16 heads=4/2 head_dim=64 tokens=8 k_cache=int8 v_cache=int8 layout=paged "
      "block_size=4 slot_mode=page_table sequences=2 zeroes_unused_rows=1",
      {row("first row offset", [](C&) { offsets[0] = 1; }),
       row("falling row offsets", [](C&) { offsets[1] = 9; }),
       row("last row offset", [](C&) { offsets[2] = 7; }),
       row("row offsets beyond the tokens", [](C&) { offsets[2] = INT64_MAX; }),
       row("length below the tokens", [](C&) { lengths[0] = 4; }),
       row("negative length", [](C&) { lengths[1] = INT64_MIN; }),
       row("length beyond the pages", [](C&) { lengths[1] = 13; }),
       row("huge length", [](C&) { lengths[1] = INT64_MAX; }),
       row("page that is needed and absent", [](C&) { lengths[0] = 9; }),
       row("page beyond the cache", [](C&) { pages[1] = 8; }),
       row("page of two sequences", [](C&) { pages[3] = 2; }),
       row("last page twice in one sequence", [](C&) { pages[0] = 2; }),
       row("page of a sequence without tokens",
           [](C&) {
             offsets[1] = 8;
             lengths[0] = 9;
             pages[2] = 5;
           }),
       row("length of a sequence without tokens",
           [](C&) {
             offsets[1] = 8;
             lengths[0] = 9;
             pages[2] = 4;
             lengths[1] = -1;
           }),
       row("last page of two sequences",
           [](C&) {
             pages[1] = 3;
             lengths[0] = 5;
             lengths[1] = 11;
           }),
       row("no sequences", [](C& c) { c.tokens = TokenCount(8); }),
       row("batch of sequences", [](C& c) { c.tokens = TokenCount(2, 4); }),
       row("negative sequences", [](C& c) { c.tokens.ragged_sequences = -1; })});
}

// A prefix of whole pages, shared by two sequences of the call: its last page has nothing to zero.
TEST(Contract, FullLastPagesMayBeShared) {
  constexpr int64_t kChannels = 16, kRows = 4, kBlocks = 3;
  FusedQkvSpec spec;
  spec.x_dtype = DType::kFloat16;
  spec.heads = {1, 1, 1};
  spec.head_dim = kChannels;
  spec.rope.pairing = Pairing::kNone;
  spec.slots.mode = SlotMode::kPageTable;
  spec.slots.pages = 2;
  spec.slots.zeroes_unused_rows = true;
  CacheSpec cache;
  cache.dtype = DType::kFloat16;
  cache.layout = PagedNhd(kBlocks, kRows, 1, kChannels);
  spec.k_cache = spec.v_cache = cache;
  const Result<Plan> plan = MakePlan(spec);
  ASSERT_TRUE(plan.ok()) << plan.status().message();

  const std::vector<uint16_t> x(2 * 3 * kChannels, 0x3C00);
  constexpr uint16_t kUntouched = 0xABCD;
  std::vector<uint16_t> q_out(2 * kChannels);
  std::vector<uint16_t> k_cache(kBlocks * kRows * kChannels, kUntouched);
  std::vector<uint16_t> v_cache = k_cache;
  const std::array<int64_t, 4> pages{0, 1, 0, 2};
  const std::array<int64_t, 2> lengths{4, 5};
  const std::array<int64_t, 3> row_offsets{0, 1, 2};
  Tensors tensors;
  tensors.x = x.data();
  tensors.q_out = q_out.data();
  tensors.k_cache = k_cache.data();
  tensors.v_cache = v_cache.data();
  tensors.slots = pages.data();
  tensors.lengths = lengths.data();
  tensors.row_offsets = row_offsets.data();
  const Status status = plan->Run(tensors, TokenCount::Ragged(2, 2));
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<uint16_t> expected(k_cache.size(), kUntouched);
  const auto fill_row = [&](int64_t block, int64_t row, uint16_t value) {
    std::fill_n(expected.begin() + (block * kRows + row) * kChannels, kChannels, value);
  };
  fill_row(0, 3, 0x3C00);
  fill_row(2, 0, 0x3C00);
  for (int64_t row = 1; row < kRows; ++row) fill_row(2, row, 0);
  EXPECT_EQ(k_cache, expected);
  EXPECT_EQ(v_cache, expected);
}

TEST(Contract, RunRefusesNegativeThreads) {
  const auto problem = MakeSolvedProblem(CaseOf(
      "op=fused dtype=bf16 heads=2/1 head_dim=16 tokens=1 k_cache=16bit v_cache=16bit layout=paged "
      "block_size=4"));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Status status = plan->Run(problem->tensors(), problem->tokens(), {.threads = -1});
  EXPECT_EQ(status.message(), "options.threads: is -1, must be 0 or more");
}

TEST(Contract, PageTableEntriesWithoutRowsAreNotLookedAt) {
  const auto problem = MakeSolvedProblem(
      CaseOf("op=fused dtype=bf16 heads=2/1 head_dim=16 tokens=1 k_cache=16bit v_cache=16bit "
             "layout=paged block_size=4 slot_mode=page_table sequences=4"));
  ASSERT_NE(problem, nullptr);
  const Result<Plan> plan = problem->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(plan->Run(problem->tensors(), problem->tokens()).ok());
  EXPECT_TRUE(problem->Compare().ok());
}

}  // namespace
}  // namespace qkvfuse::testing
