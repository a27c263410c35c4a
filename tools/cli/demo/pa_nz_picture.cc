// The drawn step: a prompt of 40 tokens and three decoding sequences, in one batch. The V cache is
// int8 with scale 1 and every channel of token t is t+1, so each written byte names its token.
#include "demo/pa_nz_picture.h"

#include <fmt/core.h>

#include <stdexcept>

#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::cli {
namespace {

constexpr HeadCounts kHeads{4, 4, 4};
constexpr int64_t kHeadDim = 128;
constexpr int64_t kBlocks = 5;
constexpr int64_t kBlockSize = 32;
constexpr int64_t kChunk = 32;

// A run of tokens of one sequence that fills rows of one page.
struct PageRun {
  int sequence;
  int first_position;
  int64_t block;
  int count;
};

constexpr PageRun kRuns[] = {
    {0, 0, 4, 32}, {0, 32, 1, 8},  // the prompt: a full page, then 8 rows of the next
    {1, 13, 2, 1},                 // decoding, 13 tokens already in the page
    {2, 62, 0, 1},                 // decoding, its page is nearly full
    {3, 5, 3, 3},                  // decoding, three speculative tokens
};

std::vector<PictureToken> MakeTokens() {
  std::vector<PictureToken> tokens;
  for (const PageRun& run : kRuns) {
    for (int i = 0; i < run.count; ++i) {
      const int position = run.first_position + i;
      tokens.push_back({run.sequence, position, run.block * kBlockSize + position % kBlockSize});
    }
  }
  return tokens;
}

// bfloat16 bits of a small non-negative integer (exact below 256).
uint16_t BFloat16Bits(int value) {
  const float exact = static_cast<float>(value);
  uint32_t bits;
  static_assert(sizeof(bits) == sizeof(exact));
  __builtin_memcpy(&bits, &exact, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

// The V cache after the step, from a cache of zeros.
std::vector<int8_t> RunStep(const std::vector<PictureToken>& tokens) {
  QkvRmsNormRopeCacheSpec spec;
  spec.heads = kHeads;
  spec.head_dim = kHeadDim;
  spec.k_cache.layout = PaNz(kBlocks, kBlockSize, kHeads.k, kHeadDim, kChunk);
  spec.v_cache.layout = spec.k_cache.layout;
  const Result<Plan> plan = MakePlan(spec);
  if (!plan.ok()) throw std::runtime_error(plan.status().message());

  const size_t rows = tokens.size();
  const size_t row = static_cast<size_t>(kHeads.total() * kHeadDim);
  std::vector<uint16_t> qkv(rows * row);
  std::vector<int64_t> slots(rows);
  for (size_t t = 0; t < rows; ++t) {
    slots[t] = tokens[t].slot;
    for (size_t i = 0; i < row; ++i) qkv[t * row + i] = BFloat16Bits(static_cast<int>(t) + 1);
  }
  const std::vector<uint16_t> ones(rows * kHeadDim, BFloat16Bits(1));
  const std::vector<float> scale(static_cast<size_t>(kHeads.v * kHeadDim), 1.0f);
  std::vector<uint16_t> q_out(rows * static_cast<size_t>(kHeads.q * kHeadDim));
  const size_t cache_bytes = static_cast<size_t>(kBlocks * spec.v_cache.layout.block_stride);
  std::vector<int8_t> k_cache(cache_bytes);
  std::vector<int8_t> v_cache(cache_bytes);

  Tensors tensors;
  tensors.x = qkv.data();
  tensors.q_gamma = tensors.k_gamma = tensors.cos = tensors.sin = ones.data();
  tensors.slots = slots.data();
  tensors.k_scale = tensors.v_scale = scale.data();
  tensors.q_out = q_out.data();
  tensors.k_cache = k_cache.data();
  tensors.v_cache = v_cache.data();
  const Status status = plan->Run(tensors, static_cast<int64_t>(rows));
  if (!status.ok()) throw std::runtime_error(status.message());
  return v_cache;
}

// A piece is one row of one chunk; all of its bytes name the same token.
std::vector<int> ReadOwners(const std::vector<int8_t>& v_cache) {
  std::vector<int> owner;
  for (size_t piece = 0; piece < v_cache.size(); piece += kChunk) {
    for (size_t lane = 1; lane < kChunk; ++lane) {
      if (v_cache[piece + lane] != v_cache[piece]) {
        throw std::runtime_error(fmt::format("PA_NZ: byte {} belongs to another token than byte {}",
                                             piece + lane, piece));
      }
    }
    owner.push_back(v_cache[piece] - 1);
  }
  return owner;
}

void RequireFormula(const PaNzPicture& picture) {
  std::vector<int> expected(picture.owner.size(), -1);
  for (size_t t = 0; t < picture.tokens.size(); ++t) {
    const int64_t block = picture.tokens[t].slot / picture.block_size;
    const int64_t row = picture.tokens[t].slot % picture.block_size;
    for (int64_t j = 0; j < picture.chunks(); ++j) {
      expected[static_cast<size_t>((block * picture.chunks() + j) * picture.block_size + row)] =
          static_cast<int>(t);
    }
  }
  if (expected != picture.owner) {
    throw std::runtime_error("PA_NZ: the tokens are not where the address formula puts them");
  }
}

}  // namespace

PaNzPicture MakePaNzPicture() {
  PaNzPicture picture;
  picture.blocks = kBlocks;
  picture.block_size = kBlockSize;
  picture.heads = kHeads.v;
  picture.head_dim = kHeadDim;
  picture.chunk = kChunk;
  picture.sequences = {"A: prompt, 40 tokens", "B: decoding", "C: decoding",
                       "D: decoding, 3 drafts"};
  picture.tokens = MakeTokens();
  picture.example_token = 40;
  picture.owner = ReadOwners(RunStep(picture.tokens));
  RequireFormula(picture);
  return picture;
}

}  // namespace qkvfuse::cli
