// Hands two pages of a bf16 cache in the HND layout to an int8 cache in the NHD layout, with a
// scale for each row and head that the conversion finds, and reads the sequence that they hold as
// fp32.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "qkvfuse/qkvfuse.hpp"
#include "rope_table.h"

namespace {

constexpr int64_t kHeads = 2;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kBlockSize = 16;
constexpr int64_t kLength = 27;  // rows of the sequence

/// The value of an element, one of nine that bf16 has.
float Value(int64_t slot, int64_t head, int64_t channel) {
  return static_cast<float>((slot + 3 * head + 5 * channel) % 9 - 4);
}

struct Bf16Cache {
  static constexpr int64_t kBlocks = 4;
  qkvfuse::CacheView view;
  std::vector<uint16_t> data = std::vector<uint16_t>(kBlocks * kBlockSize * kHeads * kHeadDim);

  Bf16Cache() {
    view.spec.dtype = qkvfuse::DType::kBFloat16;
    view.spec.layout = qkvfuse::PagedHnd(kBlocks, kBlockSize, kHeads, kHeadDim);
    view.heads = kHeads;
    view.head_dim = kHeadDim;
    view.data = data.data();
    for (int64_t slot = 0; slot < kBlocks * kBlockSize; ++slot) {
      for (int64_t i = 0; i < kHeads * kHeadDim; ++i) {
        const int64_t at = view.spec.layout.AddressOf(slot, i / kHeadDim, i % kHeadDim);
        data[static_cast<size_t>(at)] =
            example::ToBFloat16(Value(slot, i / kHeadDim, i % kHeadDim));
      }
    }
  }
};

struct Int8Cache {
  static constexpr int64_t kBlocks = 2;
  qkvfuse::CacheView view;
  std::vector<int8_t> data = std::vector<int8_t>(kBlocks * kBlockSize * kHeads * kHeadDim);
  std::vector<float> scales = std::vector<float>(kBlocks * kBlockSize * kHeads);

  Int8Cache() {
    view.spec.dtype = qkvfuse::DType::kInt8;
    view.spec.layout = qkvfuse::PagedNhd(kBlocks, kBlockSize, kHeads, kHeadDim);
    view.spec.scale_rule = qkvfuse::ScaleRule::kDynamic;
    view.spec.scale_layout = qkvfuse::ScalesNh(kBlocks, kBlockSize, kHeads);
    view.heads = kHeads;
    view.head_dim = kHeadDim;
    view.data = data.data();
    view.scale_cache = scales.data();
  }
};

/// Prints the sentence of a refusal.
bool IsOk(const qkvfuse::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok();
}

}  // namespace

int main() {
  const Bf16Cache from;
  const Int8Cache to;
  const std::vector<int64_t> pairs{3, 0, 1, 1};  // block 3 goes to block 0, block 1 to block 1
  qkvfuse::MovePagesArguments move;
  move.from = from.view;
  move.to = to.view;
  move.count = 2;
  move.pairs = pairs.data();
  if (!IsOk(qkvfuse::ConvertPages(move))) return 1;

  const std::vector<int64_t> blocks{0, 1};  // of the sequence
  std::vector<float> out(kLength * kHeads * kHeadDim);
  qkvfuse::ReadCacheArguments read;
  read.cache = to.view;
  read.slot_spec.mode = qkvfuse::SlotMode::kPageTable;
  read.slot_spec.pages = 2;
  read.sequences = 1;
  read.slots = blocks.data();
  read.lengths = &kLength;
  read.rows = kLength;
  read.dtype = qkvfuse::DType::kFloat32;
  read.out = out.data();
  if (!IsOk(qkvfuse::ReadCache(read))) return 1;

  float worst = 0.0f;
  for (int64_t i = 0; i < kLength * kHeads * kHeadDim; ++i) {
    const int64_t row = i / (kHeads * kHeadDim);
    const int64_t slot = (row < kBlockSize ? 3 : 0) * kBlockSize + row;
    const float value = Value(slot, i / kHeadDim % kHeads, i % kHeadDim);
    worst = std::fmax(worst, std::fabs(out[static_cast<size_t>(i)] - value));
  }
  std::printf("largest difference %.4f, half a code is %.4f\n", worst, 4.0f / 127 / 2);
  return worst <= 4.0f / 127 / 2 * 1.0001f ? 0 : 1;
}
