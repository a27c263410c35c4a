#include "plan/row_map.h"

#include <algorithm>

#include "base/message.h"

namespace qkvfuse::internal {

Status SlotRows::Check(const CacheLayout& cache) const {
  for (int64_t i = 0; i < rows_; ++i) {
    if (slots_[i] < cache.slots()) continue;
    return Invalid("slots: element ", i, " is ", slots_[i], ", must be below ", cache.slots(),
                   ", the slots of the cache");
  }
  return {};
}

void SlotRows::Resolve(int64_t first, int64_t count, kernels::RowPair* pairs) const noexcept {
  for (int64_t i = 0; i < count; ++i) pairs[i] = {slots_[first + i], first + i};
}

int64_t PageTableRows::Page(int64_t sequence, int64_t page) const noexcept {
  return table_.pages.At(sequence * table_.sequence_stride + page * table_.pages.stride);
}

Status PageTableRows::Check(const CacheLayout& cache, int64_t rows) {
  block_size_ = cache.block_size;
  Status status = CheckLengths(rows);
  if (status.ok() && table_.row_offsets.data != nullptr) status = CheckOffsets(rows);
  return status.ok() ? CheckPages(cache) : status;
}

Status PageTableRows::CheckLengths(int64_t rows) {
  const int64_t capacity = table_.pages_per_sequence * block_size_;
  for (int64_t b = 0; b < table_.sequences; ++b) {
    const int64_t length = table_.lengths[b];
    if (length < 0 || length > capacity) {
      return Invalid("lengths: element ", b, " is ", length, ", must be from 0 to ", capacity,
                     ", the rows of ", table_.pages_per_sequence, " pages");
    }
    if (length > rows - starts_.back()) {
      return Invalid("lengths: elements 0 to ", b, " add up to more than ", rows,
                     ", the rows of out");
    }
    starts_.push_back(starts_.back() + length);
  }
  return {};
}

Status PageTableRows::CheckOffsets(int64_t rows) const {
  int64_t end = 0;
  for (int64_t b = 0; b < table_.sequences; ++b) {
    const auto i = static_cast<size_t>(b);
    const int64_t length = starts_[i + 1] - starts_[i];
    const int64_t offset = table_.row_offsets[b];
    if (offset < end || offset > rows - length) {
      return Invalid("row_offsets: element ", b, " is ", offset, ", must be from ", end,
                     ", the end of the sequence before, to ", rows - length, ", which leaves ",
                     length, " rows of out");
    }
    end = offset + length;
  }
  return {};
}

Status PageTableRows::CheckPages(const CacheLayout& cache) const {
  for (int64_t b = 0; b < table_.sequences; ++b) {
    const auto i = static_cast<size_t>(b);
    for (int64_t page = 0; page * block_size_ < starts_[i + 1] - starts_[i]; ++page) {
      const int64_t block = Page(b, page);
      if (block >= 0 && block < cache.blocks) continue;
      return Invalid("slots: page ", page, " of sequence ", b, " is block ", block,
                     ", must be from 0 to ", cache.blocks - 1);
    }
  }
  return {};
}

void PageTableRows::Resolve(int64_t first, int64_t count, kernels::RowPair* pairs) const noexcept {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), first);
  auto sequence = static_cast<size_t>(after - starts_.begin()) - 1;
  for (int64_t i = first; i < first + count; ++i) {
    while (starts_[sequence + 1] <= i) ++sequence;
    const auto b = static_cast<int64_t>(sequence);
    const int64_t row = i - starts_[sequence];
    const int64_t block = Page(b, row / block_size_);
    const int64_t out =
        table_.row_offsets.data == nullptr ? starts_[sequence] : table_.row_offsets[b];
    pairs[i - first] = {block * block_size_ + row % block_size_, out + row};
  }
}

Status BlockRows::Check(const CacheLayout& from, const CacheLayout& to, bool is_one_cache) const {
  Status status = CheckRanges(from, to);
  return status.ok() ? CheckRepeats(is_one_cache) : status;
}

Status BlockRows::CheckRanges(const CacheLayout& from, const CacheLayout& to) const {
  for (int64_t i = 0; i < 2 * count_; ++i) {
    const bool is_source = i % 2 == 0;
    const int64_t blocks = is_source ? from.blocks : to.blocks;
    if (pairs_[i] >= 0 && pairs_[i] < blocks) continue;
    return Invalid("pairs: the ", is_source ? "source" : "destination", " of pair ", i / 2, " is ",
                   pairs_[i], ", must be a block of ", is_source ? "from" : "to", ", 0 to ",
                   blocks - 1);
  }
  return {};
}

Status BlockRows::CheckRepeats(bool is_one_cache) const {
  struct Named {
    int64_t block;
    int64_t pair;
    bool operator<(const Named& other) const noexcept {
      return block != other.block ? block < other.block : pair < other.pair;
    }
  };
  std::vector<Named> destinations;
  for (int64_t i = 0; i < count_; ++i) destinations.push_back({pairs_[2 * i + 1], i});
  std::sort(destinations.begin(), destinations.end());
  for (size_t i = 1; i < destinations.size(); ++i) {
    const Named& a = destinations[i - 1];
    const Named& b = destinations[i];
    if (a.block != b.block) continue;
    return Invalid("pairs: the destinations of pairs ", a.pair, " and ", b.pair, " are both ",
                   a.block, ", every destination must be named once");
  }
  for (int64_t i = 0; is_one_cache && i < count_; ++i) {
    const int64_t block = pairs_[2 * i];
    const auto at = std::lower_bound(destinations.begin(), destinations.end(), Named{block, 0});
    if (at == destinations.end() || at->block != block) continue;
    return Invalid("pairs: block ", block, " is the source of pair ", i,
                   " and the destination of pair ", at->pair,
                   ", must be only one of them within one cache");
  }
  return {};
}

void BlockRows::Resolve(int64_t first, int64_t count, kernels::RowPair* pairs) const noexcept {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pair = (first + i) / block_size_;
    const int64_t row = (first + i) % block_size_;
    pairs[i] = {pairs_[2 * pair] * block_size_ + row, pairs_[2 * pair + 1] * block_size_ + row};
  }
}

}  // namespace qkvfuse::internal
