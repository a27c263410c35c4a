// Byte comparison of both sets of outputs, and the sentence about the first difference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cases/fill.h"
#include "cases/problem_memory.h"

namespace qkvfuse::cases {
namespace {

using Bytes = std::vector<std::byte>;

uint16_t Read16(const Bytes& bytes, size_t at) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + at, sizeof(bits));
  return bits;
}

// Where the view's element lies within its storage's bytes.
size_t PlaceOf(const TensorView& view, int64_t position, const Buffer& buffer) {
  const int64_t offset = OffsetOf(view.shape, position) * SizeOf(view.dtype);
  return static_cast<size_t>(static_cast<std::byte*>(view.data) + offset - buffer.whole().data());
}

// Whether an output of floats is computed: a NaN among its elements has no required payload.
bool IsComputed(const Case& c, TensorId id, DType dtype) {
  if (!IsFloat(dtype) || dtype != c.x_dtype) return IsFloat(dtype);
  const bool is_v = id == TensorId::kVOut || id == TensorId::kVCache;
  if (!c.is_fused()) return !is_v;
  const bool is_q = id == TensorId::kQOut || id == TensorId::kQBeforeQuant;
  const NormSpec::Kind norm = is_v ? c.fused.v_norm : is_q ? c.fused.q_norm : c.fused.k_norm;
  const bool has_rope = !is_v && c.fused.rope != RopeSpec::Pairing::kNone;
  return norm != NormSpec::Kind::kNone || has_rope || c.bias.has_value();
}

bool IsNan(const Bytes& bytes, size_t at, DType dtype) {
  if (dtype == DType::kFloat32) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return std::isnan(value);
  }
  const int infinity = dtype == DType::kFloat16 ? 0x7C00 : 0x7F80;
  return (Read16(bytes, at) & 0x7FFF) > infinity;
}

// Makes NaN that both sides computed equal.
void UnifyNans(const TensorView& view, const Buffer& buffer, Bytes& found, Bytes& expected) {
  for (int64_t i = 0; i < view.shape.ElementCount(); ++i) {
    const size_t at = PlaceOf(view, i, buffer);
    if (!IsNan(found, at, view.dtype) || !IsNan(expected, at, view.dtype)) continue;
    std::memcpy(found.data() + at, expected.data() + at, static_cast<size_t>(SizeOf(view.dtype)));
  }
}

std::string IndexText(const StridedShape& shape, int64_t position) {
  std::string text;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    const int64_t size = shape.dims[static_cast<size_t>(axis)];
    text = std::to_string(position % size) + (text.empty() ? "" : ", ") + text;
    position /= size;
  }
  return "[" + text + "]";
}

std::string Hex(const Bytes& bytes, size_t at, size_t count) {
  std::string text = "0x";
  for (size_t i = count; i-- > 0;) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", std::to_integer<unsigned>(bytes[at + i]));
    text += digits;
  }
  return text;
}

class StorageComparison {
 public:
  StorageComparison(const ProblemMemory& memory, size_t storage)
      : memory_(memory), storage_(storage), buffer_(memory.outputs[storage]->library) {}

  [[nodiscard]] Status Compare(Bytes found, Bytes expected) const {
    if (found == expected) return {};
    for (const TensorId id : Members()) {
      const TensorView& view = memory_.member(id).library;
      if (IsComputed(memory_.c, id, view.dtype)) UnifyNans(view, buffer_, found, expected);
    }
    const auto [left, right] = std::mismatch(found.begin(), found.end(), expected.begin());
    if (left == found.end()) return {};
    return Describe(found, expected, static_cast<size_t>(left - found.begin()));
  }

 private:
  [[nodiscard]] std::vector<TensorId> Members() const {
    std::vector<TensorId> ids;
    for (size_t i = static_cast<size_t>(TensorId::kQOut); i < kTensorCount; ++i) {
      const auto id = static_cast<TensorId>(i);
      const Member& member = memory_.member(id);
      if (member.library.data != nullptr && member.storage == storage_) ids.push_back(id);
    }
    return ids;
  }

  [[nodiscard]] Status Describe(const Bytes& found, const Bytes& expected, size_t at) const {
    std::string names;
    for (const TensorId id : Members()) {
      const TensorView& view = memory_.member(id).library;
      const auto size = static_cast<size_t>(SizeOf(view.dtype));
      for (int64_t i = 0; i < view.shape.ElementCount(); ++i) {
        const size_t place = PlaceOf(view, i, buffer_);
        if (at < place || at >= place + size) continue;
        return Refuse(std::string(Name(id)) + IndexText(view.shape, i) + ": found " +
                      Hex(found, place, size) + ", expected " + Hex(expected, place, size));
      }
      names += (names.empty() ? "" : ", ") + std::string(Name(id));
    }
    return Refuse("byte " + std::to_string(at) + " of the buffer of " + names +
                  ", outside every element: found " + Hex(found, at, 1) + ", expected " +
                  Hex(expected, at, 1));
  }

  [[nodiscard]] static Status Refuse(std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  }

  const ProblemMemory& memory_;
  size_t storage_;
  const Buffer& buffer_;
};

Bytes Copy(const Buffer& buffer) { return {buffer.whole().begin(), buffer.whole().end()}; }

bool SameBytes(const Buffer& a, const Buffer& b) {
  return std::memcmp(a.whole().data(), b.whole().data(), a.whole().size()) == 0;
}

}  // namespace

Status Problem::Compare() const {
  if (memory_->InputChecksum() != memory_->input_checksum) {
    return Status(StatusCode::kInvalidArgument, "an input has changed");
  }
  for (size_t i = 0; i < memory_->outputs.size(); ++i) {
    const OutputStorage& storage = *memory_->outputs[i];
    if (SameBytes(storage.library, storage.reference)) continue;
    const StorageComparison comparison(*memory_, i);
    Status status = comparison.Compare(Copy(storage.library), Copy(storage.reference));
    if (!status.ok()) return status;
  }
  return {};
}

Status Problem::CompareUntouched() const {
  for (size_t i = 0; i < memory_->outputs.size(); ++i) {
    const OutputStorage& storage = *memory_->outputs[i];
    const StorageComparison comparison(*memory_, i);
    Status status = comparison.Compare(Copy(storage.library), storage.InitialBytes());
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace qkvfuse::cases
