// Specs of the passes, and their plans without the parts that a pass leaves alone.
#include "bench/baselines/composition.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "plan/plan_impl.h"

namespace qkvfuse::bench {
namespace {

using Kind = NormSpec::Kind;
using Pairing = RopeSpec::Pairing;

constexpr Operand kSources[] = {Operand::kQ, Operand::kK, Operand::kV};
constexpr Operand kDense[] = {Operand::kQOut, Operand::kKOut, Operand::kVOut};

template <typename T>
T OrThrow(const Result<T>& result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return *result;
}

void Refuse(const FusedQkvSpec& spec) {
  const bool is_simple = IsFloat(spec.x_dtype) && !spec.is_separate && !spec.x_strides &&
                         spec.norm_order == NormOrder::kBeforeRope && !spec.k_out && !spec.v_out &&
                         !spec.q_before_quant && !spec.q_out.strides && spec.k_cache &&
                         spec.q_norm.total_heads == 0 && spec.k_norm.total_heads == 0;
  if (!is_simple) throw std::logic_error("bench: no composition of passes for this Spec");
}

std::array<int64_t, 3> HeadsOf(const FusedQkvSpec& spec) {
  return {spec.heads.q, spec.heads.k, spec.heads.v};
}

std::array<int64_t, 3> HeadDimsOf(const FusedQkvSpec& spec) {
  return {spec.head_dim, spec.head_dim, spec.v_head_dim == 0 ? spec.head_dim : spec.v_head_dim};
}

/// Packed rows of x's type.
DenseSpec RowsOf(const FusedQkvSpec& spec) {
  DenseSpec rows;
  rows.dtype = spec.x_dtype;
  return rows;
}

/// A Spec always has all parts; the plan of a pass reads and writes only those it has work for.
Plan PlanOfParts(const FusedQkvSpec& spec, const std::array<bool, 3>& taken) {
  const Plan whole = OrThrow(MakePlan(spec));
  Pipeline pipeline = whole.impl().pipeline;
  for (size_t g = 0; g < taken.size(); ++g) {
    if (taken[g]) continue;
    pipeline.operands[kSources[g]] = pipeline.operands[kDense[g]] = OperandSpec{};
    pipeline.groups[g] = HeadGroup{};
  }
  return OrThrow(internal::BuildPlan(pipeline, {}));
}

}  // namespace

Composition::Composition(const FusedQkvSpec& spec, const Tensors& tensors, TokenCount tokens)
    : tensors_(tensors), tokens_(tokens) {
  Refuse(spec);
  StartAtX(spec);
  AddNormPass(spec);
  AddRopePass(spec);
  AddCachePass(spec);
}

void Composition::StartAtX(const FusedQkvSpec& spec) {
  const auto heads = HeadsOf(spec);
  const auto head_dims = HeadDimsOf(spec);
  int64_t channels = 0;
  for (size_t g = 0; g < kParts; ++g) channels += heads[g] * head_dims[g];
  int64_t first_channel = 0;
  for (size_t g = 0; g < kParts; ++g) {
    sources_[g].data =
        static_cast<const std::byte*>(tensors_.x) + first_channel * SizeOf(spec.x_dtype);
    sources_[g].strides = TokenStrides{TokenStrides::kFollows, channels, head_dims[g], 1};
    first_channel += heads[g] * head_dims[g];
    if (g == 0 && spec.q_out.dtype.value_or(spec.x_dtype) == spec.x_dtype) {
      rows_[g] = tensors_.q_out;
      continue;
    }
    memory_.emplace_back(tokens_.total() * heads[g] * head_dims[g] * SizeOf(spec.x_dtype));
    rows_[g] = memory_.back().data();
  }
}

FusedQkvSpec Composition::EmptyPass(const FusedQkvSpec& spec) {
  FusedQkvSpec pass;
  pass.x_dtype = spec.x_dtype;
  pass.is_separate = true;
  pass.heads = spec.heads;
  pass.head_dim = spec.head_dim;
  pass.v_head_dim = spec.v_head_dim;
  pass.rope.pairing = Pairing::kNone;
  pass.q_out = RowsOf(spec);
  return pass;
}

void Composition::AddNormPass(const FusedQkvSpec& spec) {
  const auto is_needed = [&](const NormSpec& norm) {
    return norm.kind != Kind::kNone || spec.bias.has_value();
  };
  const Taken taken = {is_needed(spec.q_norm), is_needed(spec.k_norm), is_needed(spec.v_norm)};
  FusedQkvSpec pass = EmptyPass(spec);
  pass.epsilon = spec.epsilon;
  pass.q_norm = spec.q_norm;
  pass.k_norm = spec.k_norm;
  pass.v_norm = spec.v_norm;
  pass.bias = spec.bias;
  pass.bias_shape = spec.bias_shape;
  const DenseSpec rows = RowsOf(spec);
  if (taken[1]) pass.k_out = rows;
  if (taken[2]) pass.v_out = rows;
  const bool has_norm = spec.q_norm.kind != Kind::kNone || spec.k_norm.kind != Kind::kNone ||
                        spec.v_norm.kind != Kind::kNone;
  AddPass(!spec.bias ? "norm" : has_norm ? "bias and norm" : "bias", pass, taken);
  MoveToRows(taken);
}

void Composition::AddRopePass(const FusedQkvSpec& spec) {
  if (spec.rope.pairing == Pairing::kNone) return;
  FusedQkvSpec pass = EmptyPass(spec);
  pass.rope = spec.rope;
  pass.k_out = RowsOf(spec);
  const Taken taken = {true, true, false};
  AddPass("rope", pass, taken);
  MoveToRows(taken);
}

void Composition::AddCachePass(const FusedQkvSpec& spec) {
  FusedQkvSpec pass = EmptyPass(spec);
  pass.k_cache = spec.k_cache;
  pass.v_cache = spec.v_cache;
  pass.slots = spec.slots;
  pass.q_out = spec.q_out;
  const bool q_is_done = sources_[0].data == tensors_.q_out;
  AddPass("caches", pass, {!q_is_done, true, true});
}

void Composition::AddPass(const char* name, FusedQkvSpec spec, const Taken& taken) {
  if (std::find(taken.begin(), taken.end(), true) == taken.end()) return;
  spec.q_strides = sources_[0].strides;
  if (taken[1]) spec.k_strides = sources_[1].strides;
  if (taken[2]) spec.v_strides = sources_[2].strides;
  Plan plan = PlanOfParts(spec, taken);
  // Only caches know of the sequences of a page table.
  const TokenCount tokens = spec.k_cache ? tokens_ : TokenCount(tokens_.total());
  Tensors tensors = tensors_;
  tensors.q = sources_[0].data;
  tensors.k = sources_[1].data;
  tensors.v = sources_[2].data;
  if (!spec.k_cache) tensors.q_out = rows_[0];
  tensors.k_out = rows_[1];
  tensors.v_out = rows_[2];
  const auto scratch = static_cast<int64_t>(plan.WorkspaceBytes(tokens));
  const StageKernel norm = NormKernelOf(plan);
  passes_.push_back({name, std::move(plan), tensors, tokens, AlignedBytes(scratch), norm});
}

void Composition::MoveToRows(const Taken& taken) {
  for (size_t g = 0; g < kParts; ++g) {
    if (taken[g]) sources_[g] = {rows_[g], std::nullopt};
  }
}

void Composition::Run(int threads) const {
  RunOptions options;
  options.threads = threads;
  for (const Pass& pass : passes_) {
    const Workspace workspace{pass.workspace.data(), pass.plan.WorkspaceBytes(pass.tokens)};
    const Status status =
        pass.norm != nullptr
            ? RunNorm(pass.plan, pass.norm, pass.tensors, pass.tokens, workspace, threads)
            : pass.plan.Run(pass.tensors, pass.tokens, workspace, options);
    if (!status.ok()) throw std::runtime_error(fmt::format("{}: {}", pass.name, status.message()));
  }
}

std::string Composition::Describe() const {
  std::vector<std::string> words;
  words.reserve(passes_.size());
  for (const Pass& pass : passes_) {
    words.push_back(fmt::format("{} ({})", pass.name,
                                pass.norm != nullptr   ? "baseline"
                                : pass.plan.is_fused() ? "fused"
                                                       : "general path"));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace qkvfuse::bench
