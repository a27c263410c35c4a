// Building the aclnn objects of a Call and calling the two phases.
#include "call.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "aclnnop/aclnn_dequant_rope_quant_kvcache.h"
#include "aclnnop/aclnn_qkv_rms_norm_rope_cache.h"

namespace qkvfuse::capi_test {
namespace {

int64_t Product(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

aclTensor* MakeTensor(TensorArgument& argument) {
  if (!argument.is_present) return nullptr;
  const std::vector<int64_t>& storage = argument.storage.value_or(argument.dims);
  return aclCreateTensor(argument.dims.data(), argument.dims.size(), argument.type,
                         argument.strides.empty() ? nullptr : argument.strides.data(),
                         argument.offset, ACL_FORMAT_ND, storage.data(), storage.size(),
                         argument.has_data ? argument.Data() : nullptr);
}

aclIntArray* MakeIntegers(const Integers& values) {
  return values.has_value() ? aclCreateIntArray(values->data(), values->size()) : nullptr;
}

char* Characters(Text& text) { return text.has_value() ? text->data() : nullptr; }

}  // namespace

const std::array<const char*, 16>& TensorNames(Op op) {
  static constexpr std::array<const char*, 16> kQnr = {"qkv",
                                                       "qGamma",
                                                       "kGamma",
                                                       "cos",
                                                       "sin",
                                                       "index",
                                                       "qOut",
                                                       "kCache",
                                                       "vCache",
                                                       "kScale",
                                                       "vScale",
                                                       "kOffset",
                                                       "vOffset",
                                                       "qOutBeforeQuant",
                                                       "kOutBeforeQuant",
                                                       "vOutBeforeQuant"};
  static constexpr std::array<const char*, 16> kDrq = {
      "x",      "cos",    "sin",     "kCacheRef", "vCacheRef",   "indices",
      "scaleK", "scaleV", "offsetK", "offsetV",   "weightScale", "activationScale",
      "bias",   "qOut",   "kOut",    "vOut"};
  return op == Op::kQnr ? kQnr : kDrq;
}

bool IsOutput(std::string_view name) {
  return name.find("Out") != std::string_view::npos || name.find("Cache") != std::string_view::npos;
}

int64_t TensorArgument::ElementCount() const { return Product(dims); }

void TensorArgument::Allocate(unsigned char fill) {
  const int64_t elements = Product(storage.value_or(dims));
  bytes.assign(static_cast<size_t>(elements) * aclDataTypeSize(type), fill);
}

void* TensorArgument::Data() { return address != nullptr ? address : bytes.data(); }

Call::Call(Op op) : op_(op) {
  for (TensorArgument& argument : tensors_) argument.is_present = false;
}

Call::~Call() {
  DestroyTensors();
  if (executor != nullptr) aclDestroyAclOpExecutor(executor);
}

size_t Call::Find(std::string_view name) const {
  const auto& names = TensorNames(op_);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::invalid_argument(std::string(name));
  return static_cast<size_t>(found - names.begin());
}

TensorArgument& Call::operator[](std::string_view name) { return tensors_[Find(name)]; }

const TensorArgument& Call::operator[](std::string_view name) const { return tensors_[Find(name)]; }

aclTensor* Call::tensor(std::string_view name) const { return handles_[Find(name)]; }

void Call::DestroyTensors() {
  for (aclTensor*& handle : handles_) aclDestroyTensor(std::exchange(handle, nullptr));
}

aclnnStatus Call::PhaseOne() { return PhaseOne(&workspace_size, &executor); }

aclnnStatus Call::PhaseOne(uint64_t* size, aclOpExecutor** result) {
  DestroyTensors();
  std::transform(tensors_.begin(), tensors_.end(), handles_.begin(), MakeTensor);
  const auto& t = handles_;
  aclnnStatus status = ACLNN_SUCCESS;
  if (op_ == Op::kQnr) {
    aclIntArray* qkv_size = MakeIntegers(integers["qkvSize"]);
    aclIntArray* head_nums = MakeIntegers(integers["headNums"]);
    status = aclnnQkvRmsNormRopeCacheGetWorkspaceSize(
        t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12], qkv_size,
        head_nums, epsilon, Characters(texts["cacheMode"]), t[13], t[14], t[15], size, result);
    aclDestroyIntArray(qkv_size);
    aclDestroyIntArray(head_nums);
  } else {
    aclIntArray* size_splits = MakeIntegers(integers["sizeSplits"]);
    status = aclnnDequantRopeQuantKvcacheGetWorkspaceSize(
        t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12],
        size_splits, Characters(texts["quantMode"]), Characters(texts["layout"]), kv_output,
        Characters(texts["cacheMode"]), t[13], t[14], t[15], size, result);
    aclDestroyIntArray(size_splits);
  }
  return status;
}

aclnnStatus Call::PhaseTwo() {
  workspace_.assign(workspace_size, 0);
  return PhaseTwo(workspace_.data(), workspace_.size());
}

aclnnStatus Call::PhaseTwo(void* workspace, uint64_t bytes) {
  return op_ == Op::kQnr ? aclnnQkvRmsNormRopeCache(workspace, bytes, executor, nullptr)
                         : aclnnDequantRopeQuantKvcache(workspace, bytes, executor, nullptr);
}

aclnnStatus Call::Run() {
  const aclnnStatus status = PhaseOne();
  return status == ACLNN_SUCCESS ? PhaseTwo() : status;
}

void Call::PoisonOutputs() {
  for (const char* name : TensorNames(op_)) {
    TensorArgument& argument = (*this)[name];
    if (argument.is_present && IsOutput(name)) argument.Allocate(kPoison);
  }
}

std::vector<std::vector<unsigned char>> Call::Memory() const {
  std::vector<std::vector<unsigned char>> memory;
  for (const TensorArgument& argument : tensors_) memory.push_back(argument.bytes);
  return memory;
}

}  // namespace qkvfuse::capi_test
