// FusedQkvSpec: the pipeline that it makes.
#include "ops/fused_qkv.h"

#include "base/checked_math.h"
#include "base/message.h"

namespace qkvfuse {
namespace {

using Kind = NormSpec::Kind;
using Pairing = RopeSpec::Pairing;
using Table = RopeSpec::Table;

/// What the parts of the Spec become, step by step.
class Builder {
 public:
  Builder(const FusedQkvSpec& spec, const OperandNames& names, Pipeline* pipeline)
      : spec_(spec), names_(names), pipeline_(*pipeline) {}

  void Build() {
    pipeline_.epsilon = spec_.epsilon;
    AddHeads();
    AddSources();
    AddDequantisation();
    AddNorm(spec_.q_norm, 0, {Operand::kQGamma, Operand::kQSums});
    AddNorm(spec_.k_norm, 1, {Operand::kKGamma, Operand::kKSums});
    AddNorm(spec_.v_norm, 2, {Operand::kVGamma, Operand::kCount});
    AddRope();
  }

  Status AddOutputs() {
    Status status = AddDense(spec_.q_out, Operand::kQOut, 0);
    if (status.ok() && spec_.q_out.scale_rule == ScaleRule::kDynamic) AddScaleOut();
    if (status.ok()) status = AddDense(spec_.q_before_quant, Operand::kQBeforeQuant, 0);
    if (status.ok()) status = AddDense(spec_.k_out, Operand::kKOut, 1);
    if (status.ok()) status = AddDense(spec_.v_out, Operand::kVOut, 2);
    if (!status.ok() || !spec_.k_cache) return status;
    status = AddSlots(spec_.slots, names_, &pipeline_);
    if (status.ok()) status = AddCache(*spec_.k_cache, names_, 1, &pipeline_);
    if (status.ok()) status = AddCache(*spec_.v_cache, names_, 2, &pipeline_);
    return status;
  }

  /// Instead of outputs the sums of squares of the norms whose sums are gathered. What they do not
  /// need is taken out again.
  void AddHeadSums() {
    constexpr Operand kSums[] = {Operand::kQHeadSums, Operand::kKHeadSums};
    bool rotates = false;
    for (size_t g = 0; g < pipeline_.groups.size(); ++g) {
      HeadGroup& group = pipeline_.groups[g];
      Unuse(group.gamma);
      if (!group.sums) {
        if (spec_.is_separate) pipeline_.operands[group.source] = OperandSpec{};
        group = HeadGroup{};
        continue;
      }
      Unuse(group.sums);
      group.has_rope = group.norms_after_rope;
      rotates |= group.has_rope;
      Set(kSums[g], RowsOperand(names_[kSums[g]], DType::kFloat32, group.heads, 1, std::nullopt))
          .is_output = true;
      group.head_sums = kSums[g];
    }
    if (rotates) return;
    for (const Operand operand : {Operand::kCos, Operand::kSin, Operand::kPositions}) {
      pipeline_.operands[operand] = OperandSpec{};
    }
    pipeline_.rope = RopeStage{};
  }

 private:
  OperandSpec& Set(Operand operand, const OperandSpec& spec) {
    return pipeline_.operands[operand] = spec;
  }

  void Unuse(std::optional<Operand>& operand) {
    if (operand) pipeline_.operands[*operand] = OperandSpec{};
    operand.reset();
  }

  void AddHeads() {
    auto& [q, k, v] = pipeline_.groups;
    q.heads = spec_.heads.q;
    k.heads = spec_.heads.k;
    v.heads = spec_.heads.v;
    q.head_dim = k.head_dim = spec_.head_dim;
    v.head_dim = VHeadDim(spec_);
    k.first_channel = q.heads * q.head_dim;
    v.first_channel = k.first_channel + k.heads * k.head_dim;
    q.has_rope = k.has_rope = spec_.rope.pairing != Pairing::kNone;
  }

  [[nodiscard]] int64_t Channels() const {
    const HeadGroup& v = pipeline_.groups[2];
    return v.first_channel + v.heads * v.head_dim;
  }

  void AddSources() {
    if (spec_.is_separate) {
      AddSource(0, Operand::kQ, spec_.q_strides);
      if (WantsK(spec_)) AddSource(1, Operand::kK, spec_.k_strides);
      if (WantsV(spec_)) AddSource(2, Operand::kV, spec_.v_strides);
      return;
    }
    OperandSpec x;
    const TokenStrides strides =
        spec_.x_strides.value_or(TokenStrides{TokenStrides::kFollows, Channels(), spec_.head_dim});
    const bool is_uniform = VHeadDim(spec_) == spec_.head_dim;
    x = RowsOperand(names_[Operand::kX], spec_.x_dtype, is_uniform ? spec_.heads.total() : 1,
                    is_uniform ? spec_.head_dim : Channels(), strides);
    Set(Operand::kX, x);
    int64_t heads = 0;
    for (HeadGroup& group : pipeline_.groups) {
      // What does not fit belongs to strides that no extent is allowed to have.
      if (!CheckedMul(heads, strides.head, &group.source_offset)) group.source_offset = 0;
      group.source_head_stride = strides.head;
      heads += group.heads;
    }
    // v heads of another size: the check of the Spec has seen that channels are evenly spaced.
    if (!is_uniform) {
      pipeline_.groups[2].source_head_stride = VHeadDim(spec_) * strides.channel;
    }
  }

  void AddSource(size_t g, Operand operand, const std::optional<TokenStrides>& strides) {
    HeadGroup& group = pipeline_.groups[g];
    const OperandSpec& source = Set(
        operand, RowsOperand(names_[operand], spec_.x_dtype, group.heads, group.head_dim, strides));
    group.source = operand;
    group.source_head_stride = source.strides.head;
  }

  void AddDequantisation() {
    const auto add = [this](Operand operand, DType dtype, int64_t count,
                            const StridedShape& shape) -> OperandSpec& {
      return Set(operand, ParameterOperand(names_[operand], dtype, count, shape));
    };
    if (spec_.bias) add(Operand::kBias, *spec_.bias, Channels(), spec_.bias_shape);
    if (spec_.x_dtype != DType::kInt32) return;
    add(Operand::kWeightScale, DType::kFloat32, Channels(), spec_.weight_scale_shape);
    if (!spec_.has_token_scale) return;
    add(Operand::kTokenScale, DType::kFloat32, 0, spec_.token_scale_shape).role =
        Role::kTokenParameter;
  }

  struct NormOperands {
    Operand gamma;
    Operand sums;
  };

  void AddNorm(const NormSpec& norm, size_t g, const NormOperands& operands) {
    if (norm.kind == Kind::kNone) return;
    HeadGroup& group = pipeline_.groups[g];
    group.has_norm = true;
    group.norms_full_width = norm.kind == Kind::kFullWidth;
    group.norms_after_rope = group.has_rope && spec_.norm_order == NormOrder::kAfterRope;
    if (norm.gamma != NormSpec::Gamma::kNone) {
      const int64_t count = group.norms_full_width ? group.heads * group.head_dim : group.head_dim;
      OperandSpec gamma =
          ParameterOperand(names_[operands.gamma], norm.gamma_dtype.value_or(spec_.x_dtype), count,
                           norm.gamma_shape);
      gamma.adds_one = norm.gamma == NormSpec::Gamma::kOnePlus;
      Set(operands.gamma, gamma);
      group.gamma = operands.gamma;
    }
    if (norm.total_heads == 0) return;
    Set(operands.sums,
        RowsOperand(names_[operands.sums], DType::kFloat32, norm.total_heads, 1, std::nullopt));
    group.sums = operands.sums;
  }

  void AddRope() {
    const RopeSpec& rope = spec_.rope;
    if (rope.pairing == Pairing::kNone) return;
    RopeStage& stage = pipeline_.rope;
    stage.pairing = rope.pairing;
    stage.rotary_dim = RotaryDim(spec_);
    stage.first_channel = rope.rotates_last ? spec_.head_dim - stage.rotary_dim : 0;
    stage.is_joined = rope.table == Table::kJoined;
    stage.half_width = rope.half_width || stage.is_joined;
    stage.by_position = rope.table != Table::kRowPerToken;
    AddTable(Operand::kCos, rope.cos_strides);
    if (!stage.is_joined) AddTable(Operand::kSin, rope.sin_strides);
    if (stage.by_position) AddPositions();
  }

  void AddTable(Operand operand, const std::optional<TokenStrides>& strides) {
    const RopeStage& stage = pipeline_.rope;
    const int64_t entries =
        stage.half_width && !stage.is_joined ? stage.rotary_dim / 2 : stage.rotary_dim;
    OperandSpec table =
        RowsOperand(names_[operand], spec_.rope.dtype.value_or(spec_.x_dtype), 1, entries, strides);
    if (stage.by_position) {
      table.role = Role::kTable;
      table.count = spec_.rope.max_positions;
    }
    Set(operand, table);
  }

  void AddPositions() {
    const RopeSpec& rope = spec_.rope;
    RopeStage& stage = pipeline_.rope;
    stage.position_stride = rope.position_stride;
    stage.position_section_stride = rope.position_section_stride;
    OperandSpec positions;
    positions.role = Role::kPositions;
    positions.dtype = rope.position_dtype;
    positions.name = names_[Operand::kPositions];
    Set(Operand::kPositions, positions);
    if (rope.sections == RopeSpec::Sections::kNone) return;
    const auto& pairs = rope.section_pairs;
    for (int64_t j = 0; j < stage.rotary_dim / 2; ++j) {
      stage.pair_sections.push_back(rope.sections == RopeSpec::Sections::kConcatenated
                                        ? (j < pairs[0]              ? 0
                                           : j < pairs[0] + pairs[1] ? 1
                                                                     : 2)
                                        : InterleavedSection(j, pairs));
    }
  }

  static uint8_t InterleavedSection(int64_t pair, const std::array<int64_t, 3>& pairs) {
    const auto section = static_cast<uint8_t>(pair % 3);
    return section != 0 && pair < 3 * pairs[section] ? section : 0;
  }

  Status AddDense(const std::optional<DenseSpec>& dense, Operand operand, size_t g) {
    if (!dense) return {};
    const HeadGroup& group = pipeline_.groups[g];
    const DType dtype = dense->dtype.value_or(spec_.x_dtype);
    Set(operand, RowsOperand(names_[operand], dtype, group.heads, group.head_dim, dense->strides))
        .is_output = true;
    GroupOutput output;
    output.to = operand;
    if (dense->scale_rule == ScaleRule::kDynamic) output.scale_out = Operand::kQScaleOut;
    if (dense->scale_rule != ScaleRule::kDynamic && dense->scale_out_strides) {
      return Invalid(names_[operand], ": scale_out_strides are given, need dynamic scales");
    }
    return AddOutput(QuantisationOf(*dense, dtype), output, names_, g, &pipeline_);
  }

  void AddScaleOut() {
    Set(Operand::kQScaleOut, RowsOperand(names_[Operand::kQScaleOut], DType::kFloat32,
                                         spec_.heads.q, 1, spec_.q_out.scale_out_strides))
        .is_output = true;
  }

  const FusedQkvSpec& spec_;
  const OperandNames& names_;
  Pipeline& pipeline_;
};

Result<Pipeline> MakeWholePipeline(const FusedQkvSpec& spec, NameStyle /*style*/) {
  return MakeFusedQkvPipeline(spec, MemberNames(), "FusedQkv");
}

Result<Pipeline> MakeMeasurePipeline(const FusedQkvSpec& spec, NameStyle /*style*/) {
  const OperandNames names = MemberNames();
  // The Spec is that of a plan of its own, and right as a whole.
  const Result<Pipeline> whole = MakeFusedQkvPipeline(spec, names, "FusedQkv");
  if (!whole.ok()) return whole.status();
  if (spec.q_norm.total_heads == 0 && spec.k_norm.total_heads == 0) {
    return Invalid(
        "q_norm: total_heads is 0, as in k_norm, must be the heads of all ranks in one of them "
        "for a plan that measures");
  }
  Pipeline pipeline;
  pipeline.operator_name = "FusedQkv measure";
  Builder builder(spec, names, &pipeline);
  builder.Build();
  builder.AddHeadSums();
  pipeline.slots.mode = spec.slots.mode;  // which says how tokens are counted
  return pipeline;
}

}  // namespace

Result<Pipeline> MakeFusedQkvPipeline(const FusedQkvSpec& spec, const OperandNames& names,
                                      const char* operator_name) {
  Status status = CheckFusedQkvSpec(spec, names);
  if (!status.ok()) return status;
  Pipeline pipeline;
  pipeline.operator_name = operator_name;
  Builder builder(spec, names, &pipeline);
  builder.Build();
  status = builder.AddOutputs();
  if (!status.ok()) return status;
  return pipeline;
}

Result<Plan> MakePlan(const FusedQkvSpec& spec, const PlanOptions& options) noexcept {
  return PlanFrom(spec, NameStyle::kMember, options, &MakeWholePipeline);
}

Result<Plan> MakeMeasurePlan(const FusedQkvSpec& spec, const PlanOptions& options) noexcept {
  return PlanFrom(spec, NameStyle::kMember, options, &MakeMeasurePipeline);
}

}  // namespace qkvfuse
