// Any text as a model's configuration: a refusal with a sentence, or a Spec whose tables can be
// filled once their sequence length is said.
#include <string>
#include <vector>

#include "fuzz.h"
#include "qkvfuse/model_spec.hpp"

namespace qkvfuse::fuzz {
namespace {

constexpr int64_t kRows = 3;

void FillTable(RopeTableSpec table, RopeSpec layout) {
  using Kind = RopeScaling::Kind;
  const Kind kind = table.scaling.kind;
  if (kind == Kind::kDynamicNtk || kind == Kind::kLongRope) table.scaling.sequence_length = 5000;
  table.max_positions = layout.max_positions = kRows;
  const Result<double> factor = RopeAttentionFactor(table);
  // Frequencies that vanish at that length, and factors beyond fp32, are refused only here.
  if (!factor.ok() && kind == Kind::kDynamicNtk) return;
  if (!factor.ok()) Report("attention factor: " + factor.status().message());
  std::vector<float> values(static_cast<size_t>(kRows * table.rotary_dim));
  const Status status = FillRopeTable(table, layout, values.data(), nullptr);
  if (!status.ok() && *factor < 1e38) Report("table: " + status.message());
}

}  // namespace

void RunInput(FuzzedDataProvider& bytes) {
  const std::string text = bytes.ConsumeRemainingBytesAsString();
  const Result<ModelSpec> model = SpecFromConfig(text, DType::kBFloat16);
  if (!model.ok()) {
    if (model.status().message().empty()) Report("a refusal without a sentence");
    return;
  }
  for (const RopeTableSpec& table : model->rope_tables) FillTable(table, model->spec.rope);
  for (const int32_t rope : model->rope_of_layer) {
    if (rope < 0 || static_cast<size_t>(rope) >= model->rope_tables.size()) Report("no such table");
  }
}

}  // namespace qkvfuse::fuzz
