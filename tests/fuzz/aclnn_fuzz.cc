// The aclnn door with descriptors of any content. What phase 1 refuses leaves no executor and has a
// sentence. What it accepts runs inside storage of the size that the descriptors tell (seen by
// AddressSanitizer), writes nothing beside the output views, and nothing at all on refusal.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "aclnn/aclnn_base.h"
#include "fuzz.h"
#include "tests/capi/sample_calls.h"

namespace qkvfuse::fuzz {
namespace {

using capi_test::Call;
using capi_test::Op;
using capi_test::TensorArgument;

constexpr int64_t kMaxStorageBytes = 1 << 18;
constexpr const char* kTexts[] = {"",     "PA_NZ",  "PA_BNSD", "contiguous", "page",
                                  "BSND", "static", "dynamic", "Norm"};

template <typename Value>
void DisturbOne(std::vector<Value>& values, FuzzedDataProvider& bytes) {
  if (values.empty() || bytes.ConsumeIntegralInRange(0, 15) == 0) {
    values.push_back(bytes.ConsumeIntegralInRange<int64_t>(-1, 4));
  } else if (bytes.ConsumeIntegralInRange(0, 15) == 0) {
    values.pop_back();
  } else {
    Value& value = values[bytes.ConsumeIntegralInRange<size_t>(0, values.size() - 1)];
    value = Disturbed(value, bytes);
  }
}

// A view that the storage holds: every second element, backwards, broadcast, shifted.
void MakeStrided(TensorArgument& t, FuzzedDataProvider& bytes) {
  if (t.strides.size() != t.dims.size()) {
    t.strides.assign(t.dims.size(), 1);
    for (size_t i = t.dims.size(); i-- > 1;) {
      t.strides[i - 1] = static_cast<int64_t>(static_cast<uint64_t>(t.strides[i]) *
                                              static_cast<uint64_t>(t.dims[i]));
    }
  }
  if (!t.storage) t.storage = t.dims;
  DisturbOne(t.strides, bytes);
  if (bytes.ConsumeBool()) t.offset = Disturbed(t.offset, bytes);
  if (bytes.ConsumeBool() && !t.storage->empty()) {
    t.storage->front() = bytes.ConsumeIntegralInRange<int64_t>(0, 64);
  }
}

void Disturb(TensorArgument& t, FuzzedDataProvider& bytes) {
  switch (bytes.ConsumeIntegralInRange(0, 8)) {
    case 0:
      t.is_present = !t.is_present;
      break;
    case 1:
      t.has_data = !t.has_data;
      break;
    case 2:
      t.type = static_cast<aclDataType>(bytes.ConsumeIntegralInRange(-2, 36));
      break;
    case 3:
    case 4:
      MakeStrided(t, bytes);
      break;
    case 5:
      if (!t.storage) t.storage = t.dims;
      DisturbOne(*t.storage, bytes);
      break;
    case 6:
      t.offset = Disturbed(t.offset, bytes);
      break;
    default:
      DisturbOne(t.dims, bytes);
      break;
  }
  // As many as dimensions, as the function that makes a tensor has to trust.
  if (!t.strides.empty()) t.strides.resize(t.dims.size(), 1);
}

void DisturbAttributes(Call& call, FuzzedDataProvider& bytes) {
  if (!call.integers.empty() && bytes.ConsumeBool()) {
    auto entry = call.integers.begin();
    if (bytes.ConsumeBool()) std::advance(entry, call.integers.size() - 1);
    if (!entry->second || bytes.ConsumeIntegralInRange(0, 15) == 0) {
      entry->second = std::vector<int64_t>{};
    }
    DisturbOne(*entry->second, bytes);
    return;
  }
  if (bytes.ConsumeBool()) {
    auto entry = call.texts.begin();
    std::advance(entry, bytes.ConsumeIntegralInRange<size_t>(0, call.texts.size() - 1));
    entry->second.reset();
    if (bytes.ConsumeBool()) entry->second = bytes.PickValueInArray(kTexts);
    return;
  }
  call.epsilon = bytes.ConsumeFloatingPoint<double>();
  call.kv_output = bytes.ConsumeBool();
}

// Elements of the storage, or -1 where they are more than a test wants, or not told: a storage of
// rank 0 is as large as the view needs.
int64_t StorageElements(const TensorArgument& t) {
  if (t.storage && t.storage->empty()) return -1;
  int64_t elements = 1;
  for (const int64_t dim : t.storage.value_or(t.dims)) {
    if (dim < 0 || dim > kMaxStorageBytes) return -1;
    elements *= dim;
    if (elements > kMaxStorageBytes) return -1;
  }
  return elements;
}

/// Memory of exactly the storage's size for every tensor. Large ones have none and are not run.
class Memory {
 public:
  Memory(Call& call, FuzzedDataProvider& bytes) : call_(call) {
    std::mt19937_64 random(bytes.ConsumeIntegral<uint32_t>());
    const int misaligned = bytes.ConsumeIntegralInRange(-32, 15);
    for (size_t i = 0; i < kTensors; ++i) {
      TensorArgument& t = Argument(i);
      t.bytes.clear();
      if (!t.is_present) continue;
      const int64_t elements = StorageElements(t);
      is_complete_ = is_complete_ && elements >= 0;
      if (elements < 0) continue;
      sizes_[i] = static_cast<size_t>(elements) * aclDataTypeSize(t.type);
      // The payload ends where the allocation ends; a byte before it belongs to the allocation when
      // the address is misaligned on purpose.
      const size_t gap = misaligned == static_cast<int>(i) ? 1 : 0;
      storage_[i] = std::make_unique<unsigned char[]>(sizes_[i] + gap);
      t.address = storage_[i].get() + gap;
      Fill(i, random);
    }
  }

  [[nodiscard]] bool is_complete() const { return is_complete_; }

  [[nodiscard]] std::vector<std::string> Bytes() const {
    std::vector<std::string> all(kTensors);
    for (size_t i = 0; i < kTensors; ++i) {
      if (storage_[i] == nullptr) continue;
      all[i].assign(static_cast<const char*>(Argument(i).address), sizes_[i]);
    }
    return all;
  }

  /// The tensors whose bytes differ, other than inside an output's view.
  void ExpectOnlyViewsChanged(const std::vector<std::string>& before) const {
    const std::vector<std::string> after = Bytes();
    for (size_t i = 0; i < kTensors; ++i) {
      if (storage_[i] == nullptr) continue;
      std::string expected = before[i];
      const bool is_dense_kv = Name(i) == "kOut" || Name(i) == "vOut";
      const bool is_written = capi_test::IsOutput(Name(i)) && (call_.kv_output || !is_dense_kv);
      if (is_written) CopyView(Argument(i), after[i], expected);
      if (after[i] != expected) Report(Name(i) + ": bytes outside its view have changed");
    }
  }

 private:
  static constexpr size_t kTensors = 16;

  [[nodiscard]] std::string Name(size_t i) const { return capi_test::TensorNames(call_.op())[i]; }
  [[nodiscard]] TensorArgument& Argument(size_t i) const { return call_[Name(i)]; }

  void Fill(size_t i, std::mt19937_64& random) {
    const TensorArgument& t = Argument(i);
    const auto element = std::max<size_t>(aclDataTypeSize(t.type), 1);
    for (size_t at = 0; at + element <= sizes_[i]; at += element) {
      // Small integers are slots as well as accumulators, few of them wrong; a float has a moderate
      // exponent.
      const int64_t integer = random() % 64 == 0 ? static_cast<int64_t>(random())
                                                 : static_cast<int64_t>(random() % 34) - 1;
      const float scale = 0.01F + static_cast<float>(random() % 64) / 64.0F;
      const uint16_t half = OrdinaryBits16(random());
      const void* const source = t.type == ACL_FLOAT ? static_cast<const void*>(&scale)
                                 : element == 2      ? static_cast<const void*>(&half)
                                                     : static_cast<const void*>(&integer);
      std::memcpy(static_cast<char*>(t.address) + at, source, std::min<size_t>(element, 4));
      if (element == 8) std::memcpy(static_cast<char*>(t.address) + at, &integer, 8);
    }
  }

  static void CopyView(const TensorArgument& t, const std::string& from, std::string& to) {
    const size_t element = aclDataTypeSize(t.type);
    const int64_t count = t.ElementCount();
    for (int64_t position = 0; position < count; ++position) {
      int64_t rest = position;
      int64_t offset = t.offset;
      int64_t contiguous = 1;
      for (size_t axis = t.dims.size(); axis-- > 0;) {
        offset += rest % t.dims[axis] * (t.strides.empty() ? contiguous : t.strides[axis]);
        rest /= t.dims[axis];
        contiguous *= t.dims[axis];
      }
      to.replace(static_cast<size_t>(offset) * element, element, from,
                 static_cast<size_t>(offset) * element, element);
    }
  }

  Call& call_;
  std::array<std::unique_ptr<unsigned char[]>, kTensors> storage_;
  std::array<size_t, kTensors> sizes_{};
  bool is_complete_ = true;
};

// The sentence of an older refusal, which a new one has to replace.
std::string older_sentence;

void RefuseSomethingElse() {
  static_cast<void>(aclSetRawTensorAddr(nullptr, nullptr));
  older_sentence = aclGetRecentErrMsg();
}

void ExpectSentence() {
  const char* const sentence = aclGetRecentErrMsg();
  if (sentence == nullptr || *sentence == '\0' || sentence == older_sentence) {
    Report("a refusal without a sentence");
  }
}

void ExpectRefused(const Call& call) {
  ExpectSentence();
  if (call.executor != nullptr || call.workspace_size != 0) {
    Report("a refused phase 1 left an executor or a workspace size");
  }
}

/// Whether there are calls that do not look at this tensor.
bool MayBeUnused(std::string_view name) {
  constexpr std::string_view kNames[] = {"weightScale", "activationScale", "bias", "kOut", "vOut"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

/// Between the phases: makes one tensor anew over the storage that it has. Whether the executor may
/// still run.
bool MakeAnew(Call& call, const char* name, FuzzedDataProvider& bytes) {
  const TensorArgument& t = call[name];
  aclTensor* const tensor = call.tensor(name);
  if (tensor == nullptr) return true;
  std::vector<int64_t> dims = t.dims;
  if (bytes.ConsumeBool()) DisturbOne(dims, bytes);
  const std::vector<int64_t>& storage = t.storage ? *t.storage : t.dims;
  const bool has_strides = !t.strides.empty() && t.strides.size() == dims.size();
  static_cast<void>(aclInitTensor(tensor, dims.data(), dims.size(), t.type,
                                  has_strides ? t.strides.data() : nullptr, t.offset, ACL_FORMAT_ND,
                                  storage.data(), storage.size(), t.address));
  return MayBeUnused(name) || (dims == t.dims && has_strides == !t.strides.empty());
}

}  // namespace

void RunInput(FuzzedDataProvider& bytes) {
  setenv("QKVFUSE_STRICT", bytes.ConsumeBool() ? "1" : "0", 1);
  const std::unique_ptr<Call> call = capi_test::Sample(bytes.ConsumeBool() ? Op::kQnr : Op::kDrq);
  const auto& names = capi_test::TensorNames(call->op());
  const int changes = bytes.ConsumeIntegralInRange(0, 6);
  for (int i = 0; i < changes; ++i) {
    if (bytes.ConsumeIntegralInRange(0, 4) == 0) {
      DisturbAttributes(*call, bytes);
    } else {
      Disturb((*call)[names[bytes.ConsumeIntegralInRange<size_t>(0, names.size() - 1)]], bytes);
    }
  }
  Memory memory(*call, bytes);
  const std::vector<std::string> before = memory.Bytes();
  RefuseSomethingElse();
  if (call->PhaseOne() != ACLNN_SUCCESS) {
    ExpectRefused(*call);
    return;
  }
  if (!memory.is_complete() || call->workspace_size > kMaxStorageBytes) return;
  const bool is_repeated = bytes.ConsumeBool();
  if (is_repeated) aclSetAclOpExecutorRepeatable(call->executor);
  const char* const renewed = names[bytes.ConsumeIntegralInRange<size_t>(0, names.size() - 1)];
  const bool has_view = !bytes.ConsumeBool() || MakeAnew(*call, renewed, bytes);
  RefuseSomethingElse();
  const aclnnStatus status = call->PhaseTwo();
  if (status == ACLNN_SUCCESS && !has_view) Report("ran with another view than that of phase 1");
  if (status != ACLNN_SUCCESS) ExpectSentence();
  if (status != ACLNN_SUCCESS && memory.Bytes() != before) Report("refused after writing");
  if (status == ACLNN_SUCCESS) memory.ExpectOnlyViewsChanged(before);
  if (is_repeated) {
    const std::vector<std::string> once = memory.Bytes();
    if (call->PhaseTwo() != status) Report("another status the second time");
    if (memory.Bytes() != once) Report("other bytes the second time");
    return;  // the Call destroys the executor
  }
  if (call->PhaseTwo() == ACLNN_SUCCESS) Report("a consumed executor ran again");
  call->executor = nullptr;
}

}  // namespace qkvfuse::fuzz
