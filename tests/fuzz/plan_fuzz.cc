// Specs of any content: MakePlan does not fail otherwise than by a Status, and what it accepts runs
// inside buffers of exactly the size that the Spec claims, with the same bytes on every SIMD target
// through both paths. AddressSanitizer sees the buffers' ends.
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cases/problem.h"
#include "claims.h"
#include "draw_case.h"
#include "fuzz.h"
#include "spec_fields.h"
#include "tests/support/same_bits.h"

namespace qkvfuse::fuzz {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;  // of all tensors of a call that is run
constexpr unsigned char kPoison = 0x5A;

/// The tensors of a call, each in an allocation of its own.
class Memory {
 public:
  Memory(const std::vector<Claim>& claims, int64_t slots, uint64_t seed) : claims_(claims) {
    std::mt19937_64 random(seed);
    for (const Claim& claim : claims_) {
      const auto bytes = static_cast<size_t>(claim.reach.elements() * SizeOf(claim.dtype));
      storage_.push_back(std::make_unique<unsigned char[]>(bytes));
      bytes_.push_back(bytes);
      unsigned char* const first =
          storage_.back().get() - static_cast<int64_t>(claim.reach.lowest) * SizeOf(claim.dtype);
      if (claim.input != nullptr) tensors_.*claim.input = first;
      if (claim.output != nullptr) tensors_.*claim.output = first;
      if (claim.input != nullptr) Fill(claim, storage_.size() - 1, slots, random);
    }
  }

  [[nodiscard]] const Tensors& tensors() const { return tensors_; }

  void PoisonOutputs() {
    for (size_t i = 0; i < claims_.size(); ++i) {
      if (claims_[i].output != nullptr) std::memset(storage_[i].get(), kPoison, bytes_[i]);
    }
  }

  [[nodiscard]] std::string Outputs() const {
    std::string all;
    for (size_t i = 0; i < claims_.size(); ++i) {
      if (claims_[i].output == nullptr) continue;
      all.append(reinterpret_cast<const char*>(storage_[i].get()), bytes_[i]);
    }
    return all;
  }

 private:
  template <typename T, typename Make>
  void FillWith(size_t i, Make&& make) {
    for (size_t at = 0; at + sizeof(T) <= bytes_[i]; at += sizeof(T)) {
      const T value = static_cast<T>(make());
      std::memcpy(storage_[i].get() + at, &value, sizeof(T));
    }
  }

  // Values whose results are finite: NaN payloads are nobody's promise.
  void Fill(const Claim& claim, size_t i, int64_t slots, std::mt19937_64& random) {
    const bool is_slots = claim.input == &Tensors::slots;
    const uint64_t range = is_slots ? static_cast<uint64_t>(slots) + 1 : 2001;
    const int64_t low = is_slots ? -1 : -1000;
    const bool has_wrong = random() % 8 == 0;
    const auto integer = [&] {
      if (has_wrong && random() % 8 == 0) return static_cast<int64_t>(random());
      return low + static_cast<int64_t>(random() % range);
    };
    switch (claim.dtype) {
      case DType::kFloat32:
        return FillWith<float>(i, [&] { return 0.01 + static_cast<double>(random() % 64) / 64; });
      case DType::kFloat16:
      case DType::kBFloat16:
        return FillWith<uint16_t>(i, [&] { return OrdinaryBits16(random()); });
      case DType::kInt8:
      case DType::kFloat8E4M3:  // any byte is a code of these formats
      case DType::kFloat8E5M2:
        return FillWith<int8_t>(i, integer);
      case DType::kInt32:
        return FillWith<int32_t>(i, integer);
      case DType::kInt64:
        return FillWith<int64_t>(i, integer);
    }
  }

  std::vector<Claim> claims_;
  std::vector<std::unique_ptr<unsigned char[]>> storage_;
  std::vector<size_t> bytes_;
  Tensors tensors_;
};

bool IsSmall(const std::vector<Claim>& claims) {
  __int128 bytes = 0;
  for (const Claim& claim : claims) {
    bytes += claim.reach.elements() * SizeOf(claim.dtype);
    if (bytes > kMaxBytes) return false;
  }
  return true;
}

/// What is left in the outputs, the status included, must be the same for every variant.
template <typename Spec>
void RunEverywhere(const Spec& spec, TokenCount tokens, bool is_strict, int threads,
                   Memory& memory) {
  std::string first;
  for (const testing::Variant& variant : testing::TargetsAndPaths()) {
    const auto plan = MakePlan(spec, {is_strict, variant.path, variant.target});
    if (!plan.ok()) Report("accepted once, then refused: " + plan.status().message());
    memory.PoisonOutputs();
    const std::string untouched = memory.Outputs();
    const Status status = plan->Run(memory.tensors(), tokens, {threads, threads > 1});
    const std::string outputs = memory.Outputs();
    if (!status.ok() && outputs != untouched) Report("refused after writing: " + status.message());
    const std::string result = status.message() + outputs;
    if (first.empty()) first = result;
    if (result != first)
      Report("other bytes on " + variant.target + ":\n" + plan->Describe(tokens));
  }
}

template <typename Spec>
void Run(Spec spec, TokenCount tokens, FuzzedDataProvider& bytes) {
  Disturb(spec, bytes);
  if (bytes.ConsumeBool()) tokens.batch = Disturbed(tokens.batch, bytes);
  if (bytes.ConsumeBool()) tokens.sequence = Disturbed(tokens.sequence, bytes);
  const bool is_strict = bytes.ConsumeBool();
  const int threads = bytes.ConsumeIntegralInRange(1, 4);
  const auto plan = MakePlan(spec, {is_strict, Path::kAuto, ""});
  if (!plan.ok()) {
    if (plan.status().message().empty()) Report("a refusal without a sentence");
    return;
  }
  if (plan->Describe(tokens).empty()) Report("nothing to describe");
  static_cast<void>(plan->TrafficOf(tokens));
  const size_t workspace_bytes = plan->WorkspaceBytes(tokens);
  if (const Status extents = plan->CheckExtents(tokens); !extents.ok()) {
    if (extents.message().empty()) Report("a refusal without a sentence");
    return;
  }
  const std::vector<Claim> claims = ClaimsOf(spec, tokens);
  if (!IsSmall(claims) || workspace_bytes > size_t{kMaxBytes}) return;
  Memory memory(claims, spec.k_cache.layout.slots(), bytes.ConsumeIntegral<uint32_t>());
  RunEverywhere(spec, tokens, is_strict, threads, memory);
}

}  // namespace

void RunInput(FuzzedDataProvider& bytes) {
  const auto c = DrawCase(bytes);
  if (!c) return;
  const auto problem = cases::Problem::Make(*c);
  if (!problem.ok()) return;
  if (c->is_qnr()) {
    Run((*problem)->QnrSpec(), c->tokens, bytes);
  } else {
    Run((*problem)->DrqSpec(), c->tokens, bytes);
  }
}

}  // namespace qkvfuse::fuzz
