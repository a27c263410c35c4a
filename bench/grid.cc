// The grid as a product of small tables; a row's case is made from its line of text.
#include "bench/grid.h"

#include <fmt/core.h>

#include <algorithm>
#include <regex>
#include <stdexcept>

namespace qkvfuse::bench {
namespace {

struct Shape {
  int64_t q_heads;
  int64_t kv_heads;
  int64_t head_dim;
};

// Qwen3-8B and Llama 3 8B, Qwen3-32B and Llama 3 70B, Qwen3-235B-A22B, one of eight parts of
// 64/8 under tensor parallelism, Gemma 3 12B.
constexpr Shape kShapes[] = {{32, 8, 128}, {64, 8, 128}, {64, 4, 128}, {8, 1, 128}, {16, 8, 256}};

struct CacheWord {
  const char* name;   // in a row's name
  const char* value;  // in a case line
};
constexpr CacheWord kSixteenBit{"16bit", "16bit"};
constexpr CacheWord kInt8{"int8", "int8"};
constexpr CacheWord kInt8Offset{"int8_offset", "int8+offset"};

// What an operator offers. DRQ quantises, and its caches are paged or contiguous.
struct OperatorRow {
  const char* name;  // in a row's name
  const char* op;
  const char* words;
  std::vector<CacheWord> caches;
  std::vector<const char*> layouts;
};

std::vector<OperatorRow> Operators() {
  return {{"qnr", "qnr", "", {kSixteenBit, kInt8, kInt8Offset}, {"pa_nz", "paged", "contiguous"}},
          {"drq",
           "drq",
           " x=int32 bias=fp32 token_scale=1",
           {kInt8, kInt8Offset},
           {"paged", "contiguous"}}};
}

// The general operator, as models use it: one choice each, from which only T and threads differ.
// Tables are fp32, by position and joined; pages have 16 rows.
struct ModelRow {
  const char* name;
  Shape shape;
  const char* dtype;
  CacheWord cache;
  const char* layout;
  const char* norm;   // of q and k
  const char* words;  // the rest
};

constexpr Shape kQwen3{32, 8, 128};
constexpr CacheWord kInt8PerHead{"int8_head", "int8+head"};
constexpr CacheWord kInt8Dynamic{"int8_dynamic", "int8+dynamic"};
constexpr CacheWord kFp8{"fp8", "fp8_e4m3+tensor"};
constexpr CacheWord kFp32{"fp32", "fp32"};
constexpr ModelRow kModels[] = {
    {"qwen3", kQwen3, "bf16", kInt8PerHead, "paged", "head", "gamma_dtype=bf16"},
    {"qwen3", kQwen3, "bf16", kSixteenBit, "paged", "head", "gamma_dtype=bf16"},
    {"qwen3", kQwen3, "bf16", kInt8PerHead, "x_split", "head", "gamma_dtype=bf16"},
    {"qwen3", kQwen3, "bf16", kInt8Dynamic, "paged", "head", "gamma_dtype=bf16"},
    {"qwen3", kQwen3, "bf16", kFp8, "paged", "head", "gamma_dtype=bf16"},
    // A mixed batch of 8 sequences, addressed by a page table.
    {"qwen3_pages", kQwen3, "bf16", kSixteenBit, "paged", "head",
     "gamma_dtype=bf16 slot_mode=page_table sequences=8"},
    {"qwen3", kQwen3, "fp32", kFp32, "paged", "head", ""},
    {"llama3", {32, 8, 128}, "bf16", kSixteenBit, "paged", "none", ""},
    {"gemma3",
     {16, 8, 256},
     "bf16",
     kSixteenBit,
     "paged",
     "head",
     "gamma=one_plus gamma_dtype=bf16"},
    {"gemma3_270m",
     {4, 1, 256},
     "bf16",
     kInt8PerHead,
     "paged",
     "head",
     "gamma_dtype=bf16 data=gemma3"},
    {"glm4",
     {32, 2, 128},
     "bf16",
     kSixteenBit,
     "paged",
     "none",
     "bias=bf16 rope=interleaved rotary_dim=64"},
    {"phi4", {24, 8, 128}, "bf16", kSixteenBit, "paged", "none", "rotary_dim=96"},
    {"olmo2", {16, 16, 128}, "bf16", kSixteenBit, "paged", "full", "gamma_dtype=bf16"},
    {"qwen2.5_vl",
     {28, 4, 128},
     "bf16",
     kSixteenBit,
     "paged",
     "none",
     "bias=bf16 sections=concatenated"},
    {"gpt_oss", {64, 8, 64}, "bf16", kSixteenBit, "paged", "none", "bias=bf16"},
};
constexpr int64_t kModelTokenCounts[] = {1, 64, 2048};

struct Choice {
  const OperatorRow& op;
  Shape shape;
  const char* dtype;
  CacheWord cache;
  const char* layout;
};

std::string CaseLine(const Choice& choice, int64_t tokens, int threads) {
  const bool is_decode = tokens <= kMaxDecodeTokens;
  const bool has_sequences = is_decode && std::string(choice.op.op) != "fused";
  const Shape& s = choice.shape;
  std::string line = fmt::format(
      "op={} dtype={} heads={}/{} head_dim={} tokens={} k_cache={} v_cache={} layout={} slots={} "
      "threads={}{}",
      choice.op.op, choice.dtype, s.q_heads, s.kv_heads, s.head_dim,
      has_sequences ? fmt::format("{}x1", tokens) : fmt::format("{}", tokens), choice.cache.value,
      choice.cache.value, choice.layout, is_decode ? "shuffled" : "sequential", threads,
      choice.op.words);
  // A block of a contiguous cache holds a whole sequence.
  if (std::string(choice.layout) == "contiguous" && !is_decode) {
    line += fmt::format(" block_size={}", tokens);
  }
  return line;
}

Row MakeRow(const Choice& choice, int64_t tokens, Regime regime, int threads) {
  Result<cases::Case> c = cases::ParseCase(CaseLine(choice, tokens, threads));
  if (!c.ok()) throw std::logic_error(c.status().message());
  const Shape& s = choice.shape;
  return {fmt::format("{}/{}x{}x{}/{}/{}/{}/T{}/{}/{}t", choice.op.name, s.q_heads, s.kv_heads,
                      s.head_dim, choice.dtype, choice.cache.name, choice.layout, tokens,
                      regime == Regime::kHot ? "hot" : "cold", threads),
          *c, regime};
}

// Rows of one case are neighbours, so that they share buffers.
void AddRows(const Choice& choice, std::vector<Row>& rows) {
  for (const int64_t tokens : kTokenCounts) {
    for (const Regime regime : {Regime::kHot, Regime::kCold}) {
      for (const int threads : {1, 2}) rows.push_back(MakeRow(choice, tokens, regime, threads));
    }
  }
}

// Memory is hot: the data of a case is filled once.
void AddModelRows(const ModelRow& model, std::vector<Row>& rows) {
  const std::string name = fmt::format("fused/{}", model.name);
  const std::string words =
      fmt::format(" table=joined max_positions=4096 block_size=16 q_norm={0} k_norm={0} {1}",
                  model.norm, model.words);
  const OperatorRow op{name.c_str(), "fused", words.c_str(), {}, {}};
  const Choice choice{op, model.shape, model.dtype, model.cache, model.layout};
  for (const int64_t tokens : kModelTokenCounts) {
    for (const int threads : {1, 2}) {
      rows.push_back(MakeRow(choice, tokens, Regime::kHot, threads));
    }
  }
}

// The default subset: both types and both kinds of caches of the most common shape in full, the
// other shapes, layouts and the offset at one T of each kind, DRQ likewise; every model of the
// general operator once, one of them in full.
constexpr const char* kDefaultPatterns[] = {
    "qnr/32x8x128/(fp16|bf16)/(16bit|int8)/pa_nz/T(1|8|16|64|256|512|2048|8192)/hot/[12]t",
    "qnr/32x8x128/(fp16|bf16)/(16bit|int8)/pa_nz/T(1|64|512|2048|8192)/cold/[12]t",
    "qnr/(64x8x128|64x4x128|8x1x128|16x8x256)/(fp16|bf16)/int8/pa_nz/T64/hot/1t",
    "qnr/(64x8x128|64x4x128|8x1x128|16x8x256)/(fp16|bf16)/int8/pa_nz/T2048/cold/[12]t",
    "qnr/32x8x128/bf16/(int8|int8_offset)/(paged|contiguous)/T(64|2048)/(hot|cold)/1t",
    "qnr/32x8x128/bf16/int8_offset/pa_nz/T(64|2048)/(hot|cold)/1t",
    "drq/32x8x128/(fp16|bf16)/int8/paged/T(1|8|64|512|2048)/hot/[12]t",
    "drq/(32x8x128|64x8x128)/bf16/int8/paged/T(64|2048)/cold/[12]t",
    "fused/.*/T64/hot/1t",
    "fused/qwen3/32x8x128/bf16/int8_head/paged/.*"};

bool IsDefault(const Row& row) {
  static const std::vector<std::regex> patterns(std::begin(kDefaultPatterns),
                                                std::end(kDefaultPatterns));
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::regex& pattern) {
    return std::regex_match(row.name, pattern);
  });
}

}  // namespace

std::vector<Row> FullGrid() {
  std::vector<Row> rows;
  for (const OperatorRow& op : Operators()) {
    for (const Shape& shape : kShapes) {
      for (const char* dtype : {"fp16", "bf16"}) {
        for (const CacheWord& cache : op.caches) {
          for (const char* layout : op.layouts) {
            AddRows({op, shape, dtype, cache, layout}, rows);
          }
        }
      }
    }
  }
  for (const ModelRow& model : kModels) AddModelRows(model, rows);
  return rows;
}

std::vector<Row> DefaultRows() {
  std::vector<Row> rows = FullGrid();
  std::erase_if(rows, [](const Row& row) { return !IsDefault(row); });
  return rows;
}

std::vector<Row> Filter(const std::vector<Row>& rows, const std::string& regex) {
  const std::regex pattern(regex);
  std::vector<Row> found;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(found),
               [&](const Row& row) { return std::regex_search(row.name, pattern); });
  return found;
}

}  // namespace qkvfuse::bench
