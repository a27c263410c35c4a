#include "tests/pages/moves.h"

#include <cstring>

namespace qkvfuse::testing {
namespace {

/// Writes a pattern, and a dynamic scale, where the model wants it.
void Put(TestCache* cache, int64_t slot, int64_t head, const Codes& codes) {
  const auto bytes = static_cast<size_t>(SizeOf(cache->view.spec.dtype));
  for (size_t channel = 0; channel < codes.bits.size(); ++channel) {
    const int64_t element =
        cache->view.spec.layout.AddressOf(slot, head, static_cast<int64_t>(channel));
    std::memcpy(cache->data.data() + static_cast<size_t>(element) * bytes, &codes.bits[channel],
                bytes);
  }
  if (cache->scale_cache.empty()) return;
  const int64_t element = cache->view.spec.scale_layout.AddressOf(slot, head, 0);
  cache->scale_cache[static_cast<size_t>(element)] = codes.scale;
}

}  // namespace

CacheSpec FormatOf(DType dtype, ScaleRule rule) {
  CacheSpec spec;
  spec.dtype = dtype;
  spec.scale_rule = rule;
  return spec;
}

MovePagesArguments Arguments(const TestCache& from, const TestCache& to,
                             const std::vector<int64_t>& pairs) {
  MovePagesArguments arguments;
  arguments.from = from.view;
  arguments.to = to.view;
  arguments.count = static_cast<int64_t>(pairs.size() / 2);
  arguments.pairs = pairs.data();
  return arguments;
}

std::vector<char> BytesOf(const TestCache& cache) {
  std::vector<char> bytes = cache.data;
  const auto* const scales = reinterpret_cast<const char*>(cache.scale_cache.data());
  bytes.insert(bytes.end(), scales, scales + 4 * cache.scale_cache.size());
  return bytes;
}

Codes BitsOf(const TestCache& cache, int64_t slot, int64_t head) {
  Codes codes;
  for (int64_t c = 0; c < kHeadDim; ++c) codes.bits.push_back(cache.BitsAt(slot, head, c));
  if (!cache.scale_cache.empty()) codes.scale = cache.ScaleAt(slot, head);
  return codes;
}

std::vector<float> ValuesOf(const TestCache& cache, int64_t slot, int64_t head) {
  std::vector<float> values;
  for (int64_t c = 0; c < kHeadDim; ++c) values.push_back(cache.ValueAt(slot, head, c));
  return values;
}

void MoveByModel(const std::vector<int64_t>& pairs, TestCache* to,
                 const std::function<Codes(int64_t slot, int64_t head)>& codes) {
  for (size_t pair = 0; pair < pairs.size(); pair += 2) {
    for (int64_t row = 0; row < kBlockSize; ++row) {
      for (int64_t head = 0; head < kHeads; ++head) {
        Put(to, pairs[pair + 1] * kBlockSize + row, head,
            codes(pairs[pair] * kBlockSize + row, head));
      }
    }
  }
}

void ConvertAll(const TestCache& from, const TestCache& to) {
  const Status status = ConvertPages(Arguments(from, to, kAllPairs));
  ASSERT_TRUE(status.ok()) << status.message();
}

}  // namespace qkvfuse::testing
