// The life of a Problem: filling, specs of the C++ door, poison.
#include "cases/problem.h"

#include <cstring>
#include <new>
#include <utility>

#include "cases/fill.h"
#include "cases/problem_memory.h"
#include "reference/exact.h"

namespace qkvfuse::cases {
namespace {

constexpr size_t kGaps = 64;    // alignments, in bytes
constexpr size_t kGapStep = 7;  // between neighbouring tensors

// Depends on the position, and is never part of a NaN or an infinity of 16 bits.
std::byte PoisonAt(size_t position) {
  const size_t mixed = (position * 37) ^ (position >> 8) * 11;
  const size_t low = mixed & 0xFF;
  return static_cast<std::byte>((low & 0x7C) == 0x7C ? low ^ 0x40 : low);
}

std::vector<NamedView> ViewsOf(const ProblemMemory& memory, TensorId first, TensorId last) {
  std::vector<NamedView> views;
  for (auto i = static_cast<size_t>(first); i <= static_cast<size_t>(last); ++i) {
    const auto id = static_cast<TensorId>(i);
    // The reference's x is the pristine one.
    const TensorView& view =
        id == TensorId::kX ? memory.member(id).reference : memory.member(id).library;
    if (view.data != nullptr) views.push_back({id, Name(id), view});
  }
  return views;
}

}  // namespace

OutputStorage::OutputStorage(size_t bytes, BufferPlacement placement, size_t tail,
                             const Buffer* x_buffer)
    : payload_bytes(bytes),
      x(x_buffer),
      library(bytes, placement, tail),
      reference(bytes, placement, tail) {}

BufferPlacement Placements::Of(TensorId id, DType dtype) const {
  BufferPlacement placement;
  if (guard == Guard::kFront) placement.side = BufferPlacement::Side::kFront;
  if (gap) {
    const size_t bytes = (*gap + kGapStep * static_cast<size_t>(id)) % kGaps;
    placement.gap = bytes - bytes % static_cast<size_t>(SizeOf(dtype));
  }
  return placement;
}

std::vector<std::byte> OutputStorage::InitialBytes() const {
  std::vector<std::byte> bytes(library.whole().size());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = PoisonAt(i);
  const auto payload = static_cast<size_t>(library.data() - library.whole().data());
  if (x != nullptr) std::memcpy(bytes.data() + payload, x->data(), payload_bytes);
  return bytes;
}

void OutputStorage::ResetTo(const Buffer& buffer) const {
  const std::vector<std::byte> initial = InitialBytes();
  std::memcpy(buffer.whole().data(), initial.data(), initial.size());
}

uint64_t ProblemMemory::InputChecksum() const {
  uint64_t checksum = 0xCBF29CE484222325U;
  for (const auto& buffer : inputs) {
    const std::span<const std::byte> bytes = buffer->whole();  // whole pages
    for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, sizeof(word));
      checksum = (checksum ^ word) * 0x100000001B3U;
    }
  }
  return checksum;
}

Problem::Problem(std::unique_ptr<ProblemMemory> memory) : memory_(std::move(memory)) {}
Problem::~Problem() = default;

Result<std::unique_ptr<Problem>> Problem::Make(const Case& c, const Placements& placements) {
  if (Status status = Validate(c); !status.ok()) return status;
  try {
    auto memory = std::make_unique<ProblemMemory>(c, placements);
    BuildTensors(*memory);
    // Gaps of inputs hold NaN: a kernel that reads one cannot hide it.
    for (const auto& buffer : memory->inputs) {
      std::memset(buffer->whole().data(), 0xFF, buffer->whole().size());
    }
    std::unique_ptr<Problem> problem(new Problem(std::move(memory)));
    for (const NamedView& input : problem->Inputs()) Fill(c, input.id, input.view);
    problem->ResetOutputs();
    return problem;
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "case: not enough memory");
  }
}

const Case& Problem::description() const { return memory_->c; }
const Tensors& Problem::tensors() const { return memory_->tensors; }
TokenCount Problem::tokens() const { return memory_->c.token_count(); }
RunOptions Problem::run_options() const { return {memory_->c.threads, memory_->c.force_split}; }
const reference::Problem& Problem::ReferenceProblem() const { return memory_->reference; }

void Problem::RunReference() const {
  if (memory_->c.is_fused()) return reference::RunExact(memory_->fused_reference);
  reference::RunExact(memory_->reference);
}

reference::Problem Problem::LibraryProblem() const {
  reference::Problem p = memory_->reference;
  const auto view = [&](TensorId id) { return memory_->member(id).library; };
  p.q_out = view(TensorId::kQOut);
  p.q_before_quant = view(TensorId::kQBeforeQuant);
  p.k_out = view(TensorId::kKOut);
  p.v_out = view(TensorId::kVOut);
  p.k_cache.data = view(TensorId::kKCache);
  p.v_cache.data = view(TensorId::kVCache);
  return p;
}

std::vector<NamedView> Problem::Inputs() const {
  return ViewsOf(*memory_, TensorId::kX, TensorId::kKSums);
}

std::vector<NamedView> Problem::Outputs() const {
  return ViewsOf(*memory_, TensorId::kQOut, TensorId::kVScaleCache);
}

void Problem::ResetOutputs() {
  ResetLibraryOutputs();
  for (const auto& storage : memory_->outputs) storage->ResetTo(storage->reference);
  memory_->input_checksum = memory_->InputChecksum();
}

void Problem::ResetLibraryOutputs() {
  for (const auto& storage : memory_->outputs) storage->ResetTo(storage->library);
}

}  // namespace qkvfuse::cases
