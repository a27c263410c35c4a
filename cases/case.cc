// Case <-> line of text: one table row per key.
#include "cases/case.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "cases/fields.h"

namespace qkvfuse::cases {
namespace {

constexpr Word<Operator> kOperators[] = {{Operator::kQkvRmsNormRopeCache, "qnr"},
                                         {Operator::kDequantRopeQuantKvcache, "drq"},
                                         {Operator::kFusedQkv, "fused"}};
constexpr Word<Layout> kLayouts[] = {{Layout::kPaNz, "pa_nz"},
                                     {Layout::kPaged, "paged"},
                                     {Layout::kContiguous, "contiguous"},
                                     {Layout::kHeadsFirst, "heads_first"},
                                     {Layout::kXSplit, "x_split"},
                                     {Layout::kTransposed, "transposed"},
                                     {Layout::kShuffled, "shuffled"}};
constexpr Word<SlotPattern> kSlotPatterns[] = {{SlotPattern::kSequential, "sequential"},
                                               {SlotPattern::kShuffled, "shuffled"},
                                               {SlotPattern::kPadded, "padded"},
                                               {SlotPattern::kRepeated, "repeated"},
                                               {SlotPattern::kSkipped, "skipped"}};
constexpr Word<SlotMode> kSlotModes[] = {{SlotMode::kSlotPerToken, "token"},
                                         {SlotMode::kStartPerSequence, "start"},
                                         {SlotMode::kPageTable, "page_table"}};
constexpr Word<DataKind> kDataKinds[] = {{DataKind::kUniform, "uniform"},
                                         {DataKind::kHeavyTailed, "heavy_tailed"},
                                         {DataKind::kSpecial, "special"},
                                         {DataKind::kTies, "ties"},
                                         {DataKind::kGemma3, "gemma3"}};
constexpr Word<Path> kPaths[] = {
    {Path::kAuto, "auto"}, {Path::kGeneral, "general"}, {Path::kFused, "fused"}};
constexpr Word<StridePattern> kStridePatterns[] = {
    {StridePattern::kPacked, "packed"},        {StridePattern::kPitch, "pitch"},
    {StridePattern::kHeadPitch, "head_pitch"}, {StridePattern::kOffset, "offset"},
    {StridePattern::kChannel, "channel"},      {StridePattern::kReversed, "reversed"},
    {StridePattern::kMirrored, "mirrored"},    {StridePattern::kHeadsFirst, "heads_first"},
    {StridePattern::kBroadcast, "broadcast"},  {StridePattern::kLonger, "longer"}};
constexpr Word<TensorId> kTensorIds[] = {{TensorId::kX, "x"},
                                         {TensorId::kQ, "q"},
                                         {TensorId::kK, "k"},
                                         {TensorId::kV, "v"},
                                         {TensorId::kQGamma, "q_gamma"},
                                         {TensorId::kKGamma, "k_gamma"},
                                         {TensorId::kVGamma, "v_gamma"},
                                         {TensorId::kCos, "cos"},
                                         {TensorId::kSin, "sin"},
                                         {TensorId::kPositions, "positions"},
                                         {TensorId::kSlots, "slots"},
                                         {TensorId::kLengths, "lengths"},
                                         {TensorId::kRowOffsets, "row_offsets"},
                                         {TensorId::kQScale, "q_scale"},
                                         {TensorId::kKScale, "k_scale"},
                                         {TensorId::kVScale, "v_scale"},
                                         {TensorId::kQOffset, "q_offset"},
                                         {TensorId::kKOffset, "k_offset"},
                                         {TensorId::kVOffset, "v_offset"},
                                         {TensorId::kWeightScale, "weight_scale"},
                                         {TensorId::kTokenScale, "token_scale"},
                                         {TensorId::kBias, "bias"},
                                         {TensorId::kQSums, "q_sums"},
                                         {TensorId::kKSums, "k_sums"},
                                         {TensorId::kQOut, "q_out"},
                                         {TensorId::kQBeforeQuant, "q_before_quant"},
                                         {TensorId::kKOut, "k_out"},
                                         {TensorId::kVOut, "v_out"},
                                         {TensorId::kQScaleOut, "q_scale_out"},
                                         {TensorId::kQHeadSums, "q_head_sums"},
                                         {TensorId::kKHeadSums, "k_head_sums"},
                                         {TensorId::kKCache, "k_cache"},
                                         {TensorId::kVCache, "v_cache"},
                                         {TensorId::kKScaleCache, "k_scale_cache"},
                                         {TensorId::kVScaleCache, "v_scale_cache"}};
static_assert(std::size(kTensorIds) == kTensorCount);

bool ParseHeads(std::string_view text, Case& c) {
  const std::vector<std::string_view> counts = Split(text, "/");
  if (counts.size() != 2 && counts.size() != 3) return false;
  if (!ParseNumber(counts[0], c.heads.q) || !ParseNumber(counts[1], c.heads.k)) return false;
  return ParseNumber(counts.back(), c.heads.v);
}

bool ParseTokens(std::string_view text, Case& c) {
  const std::vector<std::string_view> counts = Split(text, "x");
  if (counts.empty() || counts.size() > 2) return false;
  c.tokens = TokenCount(0);
  if (counts.size() == 2 && !ParseNumber(counts[0], c.tokens.batch)) return false;
  return ParseNumber(counts.back(), c.tokens.sequence);
}

std::string PrintTokens(const Case& c) {
  const std::string sequence = PrintNumber(c.tokens.sequence);
  return c.tokens.batch == 1 ? sequence : PrintNumber(c.tokens.batch) + "x" + sequence;
}

bool ParseBias(std::string_view text, Case& c) {
  c.bias = DType::kFloat32;
  if (text != "none") return ParseWord(text, kDTypes, *c.bias);
  c.bias.reset();
  return true;
}

bool ParseStrides(std::string_view text, Case& c) {
  for (const std::string_view item : Split(text, ",")) {
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) return false;
    StridePattern pattern{};
    if (!ParseWord(item.substr(colon + 1), kStridePatterns, pattern)) return false;
    TensorId id{};
    if (!ParseWord(item.substr(0, colon), kTensorIds, id)) return false;
    c.stride(id) = pattern;
  }
  return true;
}

std::string PrintStrides(const Case& c) {
  std::string text;
  for (const auto& [id, name] : kTensorIds) {
    if (c.stride(id) == StridePattern::kPacked) continue;
    if (!text.empty()) text += ',';
    text += std::string(name) + ':' + PrintWord(c.stride(id), kStridePatterns);
  }
  return text;
}

bool ParseInPlace(std::string_view text, Case& c) {
  c.in_place = {};
  for (const std::string_view part : Split(text, ",")) {
    if (part == "q") {
      c.in_place.q = true;
    } else if (part == "k") {
      c.in_place.k = true;
    } else if (part == "v") {
      c.in_place.v = true;
    } else {
      return false;
    }
  }
  return true;
}

std::string PrintInPlace(const Case& c) {
  std::string text;
  for (const auto& [is_in_place, name] :
       {std::pair{c.in_place.q, "q"}, {c.in_place.k, "k"}, {c.in_place.v, "v"}}) {
    if (!is_in_place) continue;
    if (!text.empty()) text += ',';
    text += name;
  }
  return text;
}

template <CacheCase Case::*member>
constexpr Field CacheField(std::string_view key) {
  return {key,
          "int8, int8+offset, 16bit, fp16 or bf16; op=fused: fp32, fp8_e4m3, fp8_e5m2, and the "
          "additions +multiply, +dynamic, +head, +tensor",
          [](std::string_view text, Case& c) { return ParseCache(text, c.*member); },
          [](const Case& c) { return PrintCache(c.*member); }, true};
}

constexpr std::string_view kZeroOrOne = "0 or 1";
constexpr std::string_view kInteger = "an integer";

constexpr Field kFields[] = {
    WordField<&Case::op, kOperators>("op", "qnr, drq or fused", true),
    WordField<&Case::dtype, kDTypes>("dtype", "fp16 or bf16; op=fused: fp32", true),
    {"x", "int32, 16bit, fp16 or bf16; op=fused: fp32",
     [](std::string_view text, Case& c) { return ParseTypeOrSixteenBit(text, c.x_dtype); },
     [](const Case& c) { return PrintWord(c.x_dtype, kDTypes); }},
    {"heads", "q/k or q/k/v", ParseHeads,
     [](const Case& c) {
       return PrintNumber(c.heads.q) + "/" + PrintNumber(c.heads.k) + "/" + PrintNumber(c.heads.v);
     },
     true},
    NumberField<&Case::head_dim>("head_dim", kInteger, true),
    {"tokens", "a count, or batch x sequence as in 4x16", ParseTokens, PrintTokens, true},
    NumberField<&Case::epsilon>("epsilon", "a number"),
    CacheField<&Case::k_cache>("k_cache"),
    CacheField<&Case::v_cache>("v_cache"),
    WordField<&Case::layout, kLayouts>(
        "layout",
        "pa_nz, paged or contiguous; op=fused: heads_first, x_split, transposed or "
        "shuffled",
        true),
    NumberField<&Case::block_size>("block_size", kInteger),
    NumberField<&Case::blocks>("blocks", kInteger),
    WordField<&Case::slots, kSlotPatterns>("slots",
                                           "sequential, shuffled, padded, repeated or skipped"),
    WordField<&Case::slot_mode, kSlotModes>("slot_mode", "token or start; op=fused: page_table"),
    WordField<&Case::slot_dtype, kDTypes>("slot_dtype", "int32 or int64"),
    WordField<&Case::dense_kv, kBooleans>("dense_kv", kZeroOrOne),
    WordField<&Case::token_scale, kBooleans>("token_scale", kZeroOrOne),
    {"bias", "none, fp32, fp16, bf16 or int32", ParseBias,
     [](const Case& c) { return c.bias ? PrintWord(*c.bias, kDTypes) : "none"; }},
    {"strides", "tensor:pattern, ... as in x:pitch,k_cache:offset", ParseStrides, PrintStrides},
    WordField<&Case::interleaved, kBooleans>("interleaved", kZeroOrOne),
    {"in_place", "a list of q, k, v", ParseInPlace, PrintInPlace},
    WordField<&Case::data, kDataKinds>("data", "uniform, heavy_tailed, special, ties or gemma3"),
    NumberField<&Case::seed>("seed", kInteger),
    NumberField<&Case::threads>("threads", kInteger),
    WordField<&Case::force_split, kBooleans>("force_split", kZeroOrOne),
    {"target", "a name",
     [](std::string_view text, Case& c) {
       c.target = text;
       return true;
     },
     [](const Case& c) { return c.target; }},
    WordField<&Case::path, kPaths>("path", "auto, general or fused"),
    WordField<&Case::strict, kBooleans>("strict", kZeroOrOne),
};

// The key of a field on the line of `c`: dense_kv has the name that the operator gives it.
std::string_view KeyOf(const Field& field, const Case& c) {
  if (field.key != "dense_kv") return field.key;
  return c.is_qnr() ? "before_quant" : "kv_output";
}

const Field* FindField(std::string_view key, const Case& c) {
  for (const Field& field : kFields) {
    if (KeyOf(field, c) == key) return &field;
  }
  if (!c.is_fused()) return nullptr;
  for (const Field& field : FusedFields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

Status Refuse(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

Status ParseField(std::string_view word, Case& c) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) {
    return Refuse("case: \"" + std::string(word) + "\" is not key=value");
  }
  const std::string_view key = word.substr(0, equals);
  const std::string_view text = word.substr(equals + 1);
  const Field* field = FindField(key, c);
  if (field == nullptr) return Refuse("case: unknown key \"" + std::string(key) + "\"");
  if (field->parse(text, c)) return {};
  return Refuse("case: " + std::string(key) + "=" + std::string(text) +
                ", allowed: " + std::string(field->allowed));
}

// Defaults that depend on other keys. What the line gives comes later and wins.
Case DefaultsOf(Operator op, DType dtype, Layout layout) {
  Case c;
  c.op = op;
  c.dtype = dtype;
  c.layout = layout;
  c.x_dtype = c.is_qnr() ? dtype : DType::kInt32;
  c.slot_dtype = c.is_qnr() ? DType::kInt64 : DType::kInt32;
  if (c.is_fused()) {
    c.x_dtype = c.fused.q_out.dtype = c.fused.dense_dtype = dtype;
    c.slot_dtype = DType::kInt64;
  }
  if (layout == Layout::kContiguous) c.slot_mode = SlotMode::kStartPerSequence;
  return c;
}

bool ChoosesDefaults(std::string_view word) {
  return word.starts_with("op=") || word.starts_with("dtype=") || word.starts_with("layout=");
}

}  // namespace

std::string_view Name(TensorId id) { return kTensorIds[static_cast<size_t>(id)].text; }

Result<Case> ParseCase(std::string_view line) {
  const std::vector<std::string_view> words = Split(line, " \t\r\n");
  // First the keys that choose the defaults of the others, then every key over those defaults.
  Case c;
  for (const bool choose : {true, false}) {
    if (!choose) c = DefaultsOf(c.op, c.dtype, c.layout);
    for (const std::string_view word : words) {
      if (choose && !ChoosesDefaults(word)) continue;
      if (Status status = ParseField(word, c); !status.ok()) return status;
    }
  }
  for (DType* dtype : {&c.x_dtype, &c.k_cache.dtype, &c.v_cache.dtype, &c.fused.q_out.dtype}) {
    if (*dtype == kSixteenBit) *dtype = c.dtype;
  }
  if (Status status = Validate(c); !status.ok()) return status;
  return c;
}

std::string PrintCase(const Case& c) {
  const Case defaults = DefaultsOf(c.op, c.dtype, c.layout);
  std::string line;
  const auto print = [&](const Field& field) {
    const std::string text = field.print(c);
    if (!field.always && text == field.print(defaults)) return;
    if (!line.empty()) line += ' ';
    line += std::string(KeyOf(field, c)) + '=' + text;
  };
  std::for_each(std::begin(kFields), std::end(kFields), print);
  if (c.is_fused()) std::for_each(FusedFields().begin(), FusedFields().end(), print);
  return line;
}

Result<std::vector<Case>> ReadCases(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Refuse("case file " + path + ": cannot be read");
  std::vector<Case> cases;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view text = std::string_view(line).substr(0, line.find('#'));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<Case> c = ParseCase(text);
    if (!c.ok()) {
      return Refuse(path + ":" + std::to_string(number) + ": " + c.status().message());
    }
    cases.push_back(*c);
  }
  return cases;
}

}  // namespace qkvfuse::cases
