#include "reference/places.h"

namespace qkvfuse::reference {

std::byte* Element(const TensorView& view, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  size_t axis = 0;
  for (const int64_t i : index) offset += i * view.shape.strides[axis++];
  return static_cast<std::byte*>(view.data) + offset * SizeOf(view.dtype);
}

std::byte* Element(const TensorView& view, int64_t position) {
  int64_t offset = 0;
  for (int axis = view.shape.rank - 1; axis >= 0; --axis) {
    const size_t a = static_cast<size_t>(axis);
    offset += position % view.shape.dims[a] * view.shape.strides[a];
    position /= view.shape.dims[a];
  }
  return static_cast<std::byte*>(view.data) + offset * SizeOf(view.dtype);
}

int64_t ReadIndex(const TensorView& view, int64_t position) {
  const std::byte* address = Element(view, position);
  return view.dtype == DType::kInt64 ? Read<int64_t>(address) : int64_t{Read<int32_t>(address)};
}

int64_t SequenceOf(const FusedProblem& p, int64_t token) {
  int64_t b = 0;
  while (ReadIndex(p.row_offsets, b + 1) <= token) ++b;
  return b;
}

CacheRow PageRow(const FusedProblem& p, int64_t b, int64_t row) {
  const int64_t pages = p.slots.shape.dims[1];
  return {ReadIndex(p.slots, b * pages + row / p.block_size), row % p.block_size};
}

CacheRow RowOf(const FusedProblem& p, const HeadPosition& at) {
  if (p.slot_rule == SlotRule::kPageTable) {
    const int64_t b = SequenceOf(p, at.token);
    const int64_t from_end = ReadIndex(p.row_offsets, b + 1) - at.token;
    return PageRow(p, b, ReadIndex(p.lengths, b) - from_end);
  }
  const bool per_token = p.slot_rule == SlotRule::kPerToken;
  const int64_t slot = ReadIndex(p.slots, per_token ? at.token : at.batch);
  if (!per_token) return {at.batch, slot + at.sequence};
  if (slot < 0) return {-1, -1};
  return {slot / p.block_size, slot % p.block_size};
}

std::byte* CacheElement(const FusedOutput& cache, int64_t head_dim, CacheRow to, int64_t head,
                        int64_t d) {
  const auto& dims = cache.data.shape.dims;
  switch (cache.order) {
    case CacheOrder::kPaNz: {
      const int64_t channel = head * head_dim + d;
      return Element(cache.data, {to.block, channel / dims[3], to.row, channel % dims[3]});
    }
    case CacheOrder::kNd:
      return Element(cache.data, {to.block, to.row, head, d});
    case CacheOrder::kHeadsFirst:
      return Element(cache.data, {to.block, head, to.row, d});
    case CacheOrder::kChunked:
      return Element(cache.data, {to.block, head, d / dims[4], to.row, d % dims[4]});
    case CacheOrder::kTransposed:
      return Element(cache.data, {to.block, head, d, to.row});
    case CacheOrder::kRowChunked:
      return Element(cache.data, {to.block, head, to.row / dims[4], d, to.row % dims[4]});
  }
  return nullptr;
}

}  // namespace qkvfuse::reference
