// A full-width norm over several ranks: each rank measures its heads, the sums are gathered in head
// order, and the ranks' outputs and caches are those of one process, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "tests/support/same_bits.h"

namespace qkvfuse::testing {
namespace {

constexpr int64_t kTokens = 21;
constexpr int64_t kHeads = 8;  // of q, k and v, in one process
constexpr int64_t kHeadDim = 48;
constexpr int64_t kChannels = kHeads * kHeadDim;
constexpr int64_t kBlocks = 4;
constexpr int64_t kBlockSize = 8;

/// Values that any process would compute from: [tokens, heads, head_dim] of one part.
std::vector<float> Values(uint64_t seed, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t mixed = (static_cast<uint64_t>(i) + seed * 1000003U) * 0x9E3779B97F4A7C15U;
    values.push_back(static_cast<float>(static_cast<int64_t>(mixed >> 40) - (1 << 23)) * 0x1p-21F);
  }
  return values;
}

/// What all ranks see: heads of q, k and v, weights, tables, slots.
struct Model {
  std::vector<float> q = Values(1, kTokens* kChannels);
  std::vector<float> k = Values(2, kTokens* kChannels);
  std::vector<float> v = Values(3, kTokens* kChannels);
  std::vector<float> q_gamma = Values(4, kChannels);
  std::vector<float> k_gamma = Values(5, kChannels);
  std::vector<float> cos = Values(6, kTokens* kHeadDim);
  std::vector<float> sin = Values(7, kTokens* kHeadDim);
  std::vector<int64_t> slots;

  Model() {
    for (int64_t t = 0; t < kTokens; ++t) slots.push_back((t * 5) % (kBlocks * kBlockSize));
  }
};

/// Heads [first, first + heads) as one process computes them.
class Rank {
 public:
  Rank(const Model& model, int64_t first, int64_t heads, NormOrder order)
      : first_(first), heads_(heads) {
    spec_.x_dtype = DType::kFloat32;
    spec_.is_separate = true;
    spec_.heads = {heads, heads, heads};
    spec_.head_dim = kHeadDim;
    spec_.norm_order = order;
    spec_.q_norm.kind = spec_.k_norm.kind = NormSpec::Kind::kFullWidth;
    if (heads != kHeads) spec_.q_norm.total_heads = spec_.k_norm.total_heads = kHeads;
    // Each rank reads its heads where they lie in the rows of all.
    const TokenStrides strides{TokenStrides::kFollows, kChannels, kHeadDim, 1};
    spec_.q_strides = spec_.k_strides = spec_.v_strides = strides;
    CacheSpec cache;
    cache.dtype = DType::kInt8;
    cache.scale_rule = ScaleRule::kDynamic;
    cache.layout = PagedNhd(kBlocks, kBlockSize, heads, kHeadDim);
    cache.scale_layout = ScalesNh(kBlocks, kBlockSize, heads);
    spec_.k_cache = spec_.v_cache = cache;
    const size_t rows = kBlocks * kBlockSize;
    const auto width = static_cast<size_t>(heads * kHeadDim);
    q_out.resize(static_cast<size_t>(kTokens) * width);
    k_cache.resize(rows * width);
    v_cache.resize(rows * width);
    k_scales.resize(rows * static_cast<size_t>(heads));
    v_scales.resize(rows * static_cast<size_t>(heads));
    q_sums.resize(static_cast<size_t>(kTokens * heads));
    k_sums.resize(static_cast<size_t>(kTokens * heads));
    Bind(model);
  }

  void Measure() {
    const Result<Plan> plan = MakeMeasurePlan(spec_);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Status status = plan->Run(tensors_, kTokens);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  /// `q_gathered` and `k_gathered` are [tokens, kHeads]; not used where the rank has all heads.
  void Run(const std::vector<float>& q_gathered, const std::vector<float>& k_gathered) {
    tensors_.q_sums = q_gathered.data();
    tensors_.k_sums = k_gathered.data();
    const Result<Plan> plan = MakePlan(spec_);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Status status = plan->Run(tensors_, kTokens);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  [[nodiscard]] int64_t first() const { return first_; }
  [[nodiscard]] int64_t heads() const { return heads_; }

  std::vector<float> q_out, k_scales, v_scales, q_sums, k_sums;
  std::vector<int8_t> k_cache, v_cache;

 private:
  void Bind(const Model& model) {
    const int64_t channel = first_ * kHeadDim;
    tensors_.q = model.q.data() + channel;
    tensors_.k = model.k.data() + channel;
    tensors_.v = model.v.data() + channel;
    tensors_.q_gamma = model.q_gamma.data() + channel;
    tensors_.k_gamma = model.k_gamma.data() + channel;
    tensors_.cos = model.cos.data();
    tensors_.sin = model.sin.data();
    tensors_.slots = model.slots.data();
    tensors_.q_out = q_out.data();
    tensors_.k_cache = k_cache.data();
    tensors_.v_cache = v_cache.data();
    tensors_.k_scale_cache = k_scales.data();
    tensors_.v_scale_cache = v_scales.data();
    tensors_.q_head_sums = q_sums.data();
    tensors_.k_head_sums = k_sums.data();
  }

  int64_t first_;
  int64_t heads_;
  FusedQkvSpec spec_;
  Tensors tensors_;
};

/// Copies a rank's [rows, heads, width] to its heads of [rows, kHeads, width].
template <typename T>
void Gather(const Rank& rank, const std::vector<T>& part, int64_t width, std::vector<T>& all) {
  const auto run = static_cast<size_t>(rank.heads() * width);
  const size_t rows = part.size() / run;
  all.resize(rows * static_cast<size_t>(kHeads * width));
  for (size_t row = 0; row < rows; ++row) {
    std::memcpy(
        &all[row * static_cast<size_t>(kHeads * width) + static_cast<size_t>(rank.first() * width)],
        &part[row * run], run * sizeof(T));
  }
}

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

class TensorParallel : public ::testing::TestWithParam<NormOrder> {};

TEST_P(TensorParallel, RanksTogetherGiveTheBitsOfOneProcess) {
  const Model model;
  Rank whole(model, 0, kHeads, GetParam());
  whole.Run({}, {});
  for (const std::vector<int64_t>& split :
       {std::vector<int64_t>{4, 4}, {1, 7}, {2, 3, 3}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    std::deque<Rank> ranks;  // they point at their own outputs
    int64_t first = 0;
    for (const int64_t heads : split) {
      ranks.emplace_back(model, first, heads, GetParam());
      first += heads;
    }
    std::vector<float> q_sums, k_sums;
    for (Rank& rank : ranks) {
      rank.Measure();
      Gather(rank, rank.q_sums, 1, q_sums);
      Gather(rank, rank.k_sums, 1, k_sums);
    }
    std::vector<float> q_out, k_scales, v_scales;
    std::vector<int8_t> k_cache, v_cache;
    for (Rank& rank : ranks) {
      rank.Run(q_sums, k_sums);
      Gather(rank, rank.q_out, kHeadDim, q_out);
      Gather(rank, rank.k_cache, kHeadDim, k_cache);
      Gather(rank, rank.v_cache, kHeadDim, v_cache);
      Gather(rank, rank.k_scales, 1, k_scales);
      Gather(rank, rank.v_scales, 1, v_scales);
    }
    EXPECT_TRUE(SameBytes(q_out, whole.q_out));
    EXPECT_TRUE(SameBytes(k_cache, whole.k_cache));
    EXPECT_TRUE(SameBytes(v_cache, whole.v_cache));
    EXPECT_TRUE(SameBytes(k_scales, whole.k_scales));
    EXPECT_TRUE(SameBytes(v_scales, whole.v_scales));
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, TensorParallel,
                         ::testing::Values(NormOrder::kBeforeRope, NormOrder::kAfterRope));

}  // namespace
}  // namespace qkvfuse::testing
