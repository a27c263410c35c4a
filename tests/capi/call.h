// A call of either operator through the aclnn door, described argument by argument, so that a test
// can change one and see what happens.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aclnn/aclnn_base.h"

namespace qkvfuse::capi_test {

enum class Op { kQnr, kDrq };

inline constexpr unsigned char kPoison = 0x5A;  // what outputs hold before a call

/// A tensor argument and its memory.
struct TensorArgument {
  bool is_present = true;
  aclDataType type = ACL_FLOAT16;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;                 // empty: a null pointer, contiguous
  int64_t offset = 0;                           // elements
  std::optional<std::vector<int64_t>> storage;  // absent: dims

  std::vector<unsigned char> bytes;  // the storage; Allocate makes it
  bool has_data = true;              // false: a null data pointer
  void* address = nullptr;           // in place of bytes.data()

  [[nodiscard]] int64_t ElementCount() const;  // of the view
  void Allocate(unsigned char fill);           // bytes of the storage
  [[nodiscard]] void* Data();
  template <typename T>
  [[nodiscard]] T* As() {
    return static_cast<T*>(Data());
  }
  template <typename T>
  [[nodiscard]] const T* As() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

using Integers = std::optional<std::vector<int64_t>>;
using Text = std::optional<std::string>;

/// Owns all its memory and aclnn objects. Addresses are handed over when phase 1 is called.
class Call {
 public:
  explicit Call(Op op);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] Op op() const { return op_; }
  [[nodiscard]] TensorArgument& operator[](std::string_view name);
  [[nodiscard]] const TensorArgument& operator[](std::string_view name) const;

  std::map<std::string, Integers, std::less<>> integers;  // qkvSize, headNums, sizeSplits
  std::map<std::string, Text, std::less<>> texts;  // cacheMode, quantMode, layout; absent: null
  double epsilon = 1e-6;
  bool kv_output = true;

  aclnnStatus PhaseOne();
  /// With these results pointers instead of the call's own.
  aclnnStatus PhaseOne(uint64_t* workspace_size, aclOpExecutor** executor);
  /// On a workspace of the size that phase 1 asked for.
  aclnnStatus PhaseTwo();
  aclnnStatus PhaseTwo(void* workspace, uint64_t bytes);
  /// Both; the first failure's code.
  aclnnStatus Run();

  [[nodiscard]] aclTensor* tensor(std::string_view name) const;  // of the last phase 1
  void DestroyTensors();

  /// Allocates all present outputs anew, filled with kPoison.
  void PoisonOutputs();
  /// The memory of every tensor, inputs and outputs.
  [[nodiscard]] std::vector<std::vector<unsigned char>> Memory() const;

  uint64_t workspace_size = 12345;  // what phase 1 must overwrite
  aclOpExecutor* executor = nullptr;

 private:
  [[nodiscard]] size_t Find(std::string_view name) const;

  Op op_;
  std::array<TensorArgument, 16> tensors_;
  std::array<aclTensor*, 16> handles_{};
  std::vector<unsigned char> workspace_;
};

/// The tensor parameters in the order of the phase 1 function, without "Optional".
[[nodiscard]] const std::array<const char*, 16>& TensorNames(Op op);

/// Those that the operator writes.
[[nodiscard]] bool IsOutput(std::string_view name);

}  // namespace qkvfuse::capi_test
