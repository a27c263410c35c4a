// The keys of a case's line that op=fused alone has, and types with their quantisation.
#include "cases/fields.h"

namespace qkvfuse::cases {
namespace {

using Kind = NormSpec::Kind;
using Gamma = NormSpec::Gamma;
using Pairing = RopeSpec::Pairing;
using Sections = RopeSpec::Sections;
using Table = RopeSpec::Table;

constexpr Word<Kind> kNorms[] = {
    {Kind::kNone, "none"}, {Kind::kPerHead, "head"}, {Kind::kFullWidth, "full"}};
constexpr Word<Gamma> kGammas[] = {
    {Gamma::kPlain, "plain"}, {Gamma::kOnePlus, "one_plus"}, {Gamma::kNone, "none"}};
constexpr Word<NormOrder> kNormOrders[] = {{NormOrder::kBeforeRope, "before"},
                                           {NormOrder::kAfterRope, "after"}};
constexpr Word<Pairing> kPairings[] = {
    {Pairing::kNone, "none"}, {Pairing::kHalves, "halves"}, {Pairing::kInterleaved, "interleaved"}};
constexpr Word<Table> kTables[] = {
    {Table::kRowPerToken, "token"}, {Table::kTwoTables, "two"}, {Table::kJoined, "joined"}};
constexpr Word<Sections> kSections[] = {{Sections::kNone, "none"},
                                        {Sections::kConcatenated, "concatenated"},
                                        {Sections::kInterleaved, "interleaved"}};
constexpr Word<ScaleRule> kRules[] = {{ScaleRule::kDivide, "divide"},
                                      {ScaleRule::kMultiply, "multiply"},
                                      {ScaleRule::kDynamic, "dynamic"}};
constexpr Word<ScaleGranularity> kGranularities[] = {{ScaleGranularity::kChannel, "channel"},
                                                     {ScaleGranularity::kHead, "head"},
                                                     {ScaleGranularity::kTensor, "tensor"}};

template <auto member, auto& words>
constexpr Field FusedWord(std::string_view key, std::string_view allowed) {
  return {key, allowed,
          [](std::string_view text, Case& c) { return ParseWord(text, words, c.fused.*member); },
          [](const Case& c) { return PrintWord(c.fused.*member, words); }};
}

template <auto member>
constexpr Field FusedNumber(std::string_view key) {
  return {key, "an integer",
          [](std::string_view text, Case& c) { return ParseNumber(text, c.fused.*member); },
          [](const Case& c) { return PrintNumber(c.fused.*member); }};
}

constexpr std::string_view kZeroOrOne = "0 or 1";
constexpr std::string_view kNormWords = "none, head or full";
constexpr std::string_view kFloats = "fp32, fp16 or bf16";

constexpr Field kFields[] = {
    FusedWord<&FusedCase::is_separate, kBooleans>("separate", kZeroOrOne),
    FusedNumber<&FusedCase::v_head_dim>("v_head_dim"),
    FusedWord<&FusedCase::q_norm, kNorms>("q_norm", kNormWords),
    FusedWord<&FusedCase::k_norm, kNorms>("k_norm", kNormWords),
    FusedWord<&FusedCase::v_norm, kNorms>("v_norm", kNormWords),
    FusedWord<&FusedCase::gamma, kGammas>("gamma", "plain, one_plus or none"),
    FusedWord<&FusedCase::gamma_dtype, kDTypes>("gamma_dtype", kFloats),
    FusedWord<&FusedCase::norm_order, kNormOrders>("norm_order", "before or after"),
    FusedNumber<&FusedCase::gathered_heads>("gathered_heads"),
    FusedWord<&FusedCase::measures, kBooleans>("measures", kZeroOrOne),
    FusedWord<&FusedCase::rope, kPairings>("rope", "none, halves or interleaved"),
    FusedNumber<&FusedCase::rotary_dim>("rotary_dim"),
    FusedWord<&FusedCase::rotates_last, kBooleans>("rotates_last", kZeroOrOne),
    FusedWord<&FusedCase::table, kTables>("table", "token, two or joined"),
    FusedWord<&FusedCase::table_dtype, kDTypes>("table_dtype", kFloats),
    FusedWord<&FusedCase::half_width, kBooleans>("half_width", kZeroOrOne),
    FusedNumber<&FusedCase::max_positions>("max_positions"),
    FusedWord<&FusedCase::position_dtype, kDTypes>("position_dtype", "int32 or int64"),
    FusedWord<&FusedCase::sections, kSections>("sections", "none, concatenated or interleaved"),
    {"q_out", "a type as for k_cache",
     [](std::string_view text, Case& c) { return ParseCache(text, c.fused.q_out); },
     [](const Case& c) { return PrintCache(c.fused.q_out); }},
    FusedWord<&FusedCase::dense_dtype, kDTypes>("dense_dtype", kFloats),
    FusedWord<&FusedCase::has_caches, kBooleans>("caches", kZeroOrOne),
    FusedNumber<&FusedCase::sequences>("sequences"),
    FusedWord<&FusedCase::zeroes_unused_rows, kBooleans>("zeroes_unused_rows", kZeroOrOne),
};

}  // namespace

std::span<const Field> FusedFields() { return kFields; }

bool ParseTypeOrSixteenBit(std::string_view text, DType& dtype) {
  if (text == "16bit") {
    dtype = kSixteenBit;
    return true;
  }
  return ParseWord(text, kDTypes, dtype) && dtype != kSixteenBit;
}

bool ParseCache(std::string_view text, CacheCase& cache) {
  const std::vector<std::string_view> words = Split(text, "+");
  cache = {};
  if (words.empty() || !ParseTypeOrSixteenBit(words[0], cache.dtype)) return false;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "offset") {
      cache.has_offset = true;
    } else if (!ParseWord(words[i], kRules, cache.rule) &&
               !ParseWord(words[i], kGranularities, cache.granularity)) {
      return false;
    }
  }
  return true;
}

std::string PrintCache(const CacheCase& cache) {
  std::string text = PrintWord(cache.dtype, kDTypes);
  if (cache.has_offset) text += "+offset";
  if (cache.rule != ScaleRule::kDivide) text += "+" + PrintWord(cache.rule, kRules);
  if (cache.granularity != ScaleGranularity::kChannel) {
    text += "+" + PrintWord(cache.granularity, kGranularities);
  }
  return text;
}

}  // namespace qkvfuse::cases
