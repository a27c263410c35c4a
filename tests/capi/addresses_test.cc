// The memory that an executor runs on: other addresses, other tensors, tensors made anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "sample_test.h"

namespace qkvfuse::capi_test {
namespace {

using Addresses = SampleTest;

INSTANTIATE_TEST_SUITE_P(Both, Addresses, testing::Values(Op::kQnr, Op::kDrq), Title);

// Each index stands for its parameter: with a null address there, phase 2 names it.
struct AddressFunction {
  aclnnStatus (*set)(aclOpExecutor*, size_t, aclTensor*, void*);
  std::vector<const char*> parameters;  // by index
};

std::vector<AddressFunction> AddressFunctions(Op op) {
  const auto& names = TensorNames(op);
  const std::vector<const char*> all(names.begin(), names.end());
  const std::vector<const char*> inputs(names.begin(), names.begin() + 13);
  const std::vector<const char*> outputs =
      op == Op::kQnr ? std::vector<const char*>{"qOut",
                                                "kCache",
                                                "vCache",
                                                "qOutBeforeQuant",
                                                "kOutBeforeQuant",
                                                "vOutBeforeQuant"}
                     : std::vector<const char*>{"qOut", "kOut", "vOut", "kCacheRef", "vCacheRef"};
  return {{aclSetTensorAddr, all},           {AclSetTensorAddr, all},
          {aclSetInputTensorAddr, inputs},   {AclSetInputTensorAddr, inputs},
          {aclSetOutputTensorAddr, outputs}, {AclSetOutputTensorAddr, outputs}};
}

TEST_P(Addresses, IndicesStandForTheirParameters) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call_->executor), ACLNN_SUCCESS);
  for (const AddressFunction& function : AddressFunctions(GetParam())) {
    for (size_t i = 0; i < function.parameters.size(); ++i) {
      const char* const name = function.parameters[i];
      aclTensor* const tensor = call_->tensor(name);
      EXPECT_EQ(function.set(call_->executor, i, tensor, nullptr), ACLNN_SUCCESS);
      EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);
      EXPECT_TRUE(LastErrorNames(name)) << name << ": " << aclGetRecentErrMsg();
      EXPECT_EQ(function.set(call_->executor, i, tensor, (*call_)[name].Data()), ACLNN_SUCCESS);
    }
    aclTensor* const tensor = call_->tensor(function.parameters[0]);
    EXPECT_EQ(function.set(call_->executor, function.parameters.size(), tensor, this),
              ACLNN_ERR_PARAM_INVALID);
    EXPECT_EQ(function.set(call_->executor, 0, nullptr, this), ACLNN_ERR_INNER_NULLPTR);
    EXPECT_EQ(function.set(nullptr, 0, tensor, this), ACLNN_ERR_INNER_NULLPTR);
  }
  EXPECT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ExpectGolden(*call_);
}

TEST_P(Addresses, ARepeatableExecutorFollowsItsTensors) {
  const char* const input = TensorNames(GetParam())[0];
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call_->executor), ACLNN_SUCCESS);
  ASSERT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS);
  const TensorArgument old_output = (*call_)["qOut"];
  // Other memory, with the input's bytes in another order.
  std::rotate((*call_)[input].bytes.begin(), (*call_)[input].bytes.begin() + 64,
              (*call_)[input].bytes.end());
  TensorArgument& moved = (*call_)["qOut"];
  moved.bytes = std::vector<unsigned char>(moved.bytes.size(), kPoison);
  EXPECT_EQ(aclSetInputTensorAddr(call_->executor, 0, call_->tensor(input), (*call_)[input].Data()),
            ACLNN_SUCCESS);
  EXPECT_EQ(aclSetOutputTensorAddr(call_->executor, 0, call_->tensor("qOut"), moved.Data()),
            ACLNN_SUCCESS);
  ASSERT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_NE(moved.bytes, old_output.bytes);
  ExpectGolden(*call_);
  void* address = nullptr;
  EXPECT_EQ(aclGetRawTensorAddr(call_->tensor("qOut"), &address), ACLNN_SUCCESS);
  EXPECT_EQ(address, moved.Data());
}

TEST_P(Addresses, AnotherTensorOfTheSameViewMayTakeOver) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call_->executor), ACLNN_SUCCESS);
  const std::vector<int64_t>& dims = (*call_)["qOut"].dims;
  call_->DestroyTensors();
  (*call_)["qOut"].bytes = std::vector<unsigned char>((*call_)["qOut"].bytes.size(), kPoison);
  aclTensor* same = aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT16, nullptr, 0,
                                    ACL_FORMAT_ND, dims.data(), dims.size(), nullptr);
  aclTensor* other = aclCreateTensor(dims.data(), dims.size(), ACL_BF16, nullptr, 0, ACL_FORMAT_ND,
                                     dims.data(), dims.size(), nullptr);
  EXPECT_EQ(aclSetOutputTensorAddr(call_->executor, 0, other, this), ACLNN_ERR_PARAM_INVALID);
  EXPECT_TRUE(LastErrorNames("qOut"));
  EXPECT_EQ(aclSetOutputTensorAddr(call_->executor, 0, same, (*call_)["qOut"].Data()),
            ACLNN_SUCCESS);
  aclDestroyTensor(same);
  aclDestroyTensor(other);
  ASSERT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ExpectGolden(*call_);
}

// Gives the tensor the view of the call's qOut, less one row.
void ShortenOutput(Call& call, aclTensor* tensor) {
  std::vector<int64_t> dims = call["qOut"].dims;
  --dims[0];
  ASSERT_EQ(aclInitTensor(tensor, dims.data(), dims.size(), ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND,
                          dims.data(), dims.size(), call["qOut"].Data()),
            ACLNN_SUCCESS);
}

// The plan would write more rows than the tensor has now.
TEST_P(Addresses, ATensorThatWasMadeAnewIsNotRunWithItsOldView) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call_->executor), ACLNN_SUCCESS);
  aclTensor* const tensor = call_->tensor("qOut");
  ShortenOutput(*call_, tensor);
  const auto before = call_->Memory();
  EXPECT_EQ(call_->PhaseTwo(), ACLNN_ERR_PARAM_INVALID);
  EXPECT_TRUE(LastErrorNames("qOut"));
  EXPECT_EQ(aclSetOutputTensorAddr(call_->executor, 0, tensor, (*call_)["qOut"].Data()),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(call_->Memory(), before);
  const std::vector<int64_t>& dims = (*call_)["qOut"].dims;
  ASSERT_EQ(aclInitTensor(tensor, dims.data(), dims.size(), ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND,
                          dims.data(), dims.size(), (*call_)["qOut"].Data()),
            ACLNN_SUCCESS);
  ASSERT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ExpectGolden(*call_);
}

// Two tensors that agree with each other, and not with phase 1.
TEST_P(Addresses, AnotherTensorHasToHaveTheViewOfPhaseOne) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  ShortenOutput(*call_, call_->tensor("qOut"));
  const std::vector<int64_t> dims = (*call_)["qOut"].dims;
  aclTensor* const other = aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT16, nullptr, 0,
                                           ACL_FORMAT_ND, dims.data(), dims.size(), nullptr);
  ShortenOutput(*call_, other);
  EXPECT_EQ(aclSetOutputTensorAddr(call_->executor, 0, other, (*call_)["qOut"].Data()),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_TRUE(LastErrorNames("qOut"));
  // The same view over too little storage.
  ASSERT_EQ(aclInitTensor(other, dims.data(), dims.size(), ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND,
                          dims.data() + 1, dims.size() - 1, nullptr),
            ACLNN_SUCCESS);
  EXPECT_EQ(aclSetOutputTensorAddr(call_->executor, 0, other, (*call_)["qOut"].Data()),
            ACLNN_ERR_PARAM_INVALID);
  aclDestroyTensor(other);
}

// Each run sees one address or the other, and never half of one.
TEST_P(Addresses, MayBeSetWhileAnotherThreadRuns) {
  ASSERT_EQ(call_->PhaseOne(), ACLNN_SUCCESS);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call_->executor), ACLNN_SUCCESS);
  TensorArgument& output = (*call_)["qOut"];
  std::vector<unsigned char> other(output.bytes.size(), kPoison);
  std::atomic<bool> is_done = false;
  std::thread setter([&] {
    for (int i = 0; !is_done; ++i) {
      void* const address = i % 2 == 0 ? other.data() : output.Data();
      EXPECT_EQ(aclSetOutputTensorAddr(call_->executor, 0, call_->tensor("qOut"), address),
                ACLNN_SUCCESS);
    }
  });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS);
  is_done = true;
  setter.join();
  for (void* const address : {static_cast<void*>(other.data()), output.Data()}) {
    EXPECT_EQ(aclSetOutputTensorAddr(call_->executor, 0, call_->tensor("qOut"), address),
              ACLNN_SUCCESS);
    EXPECT_EQ(call_->PhaseTwo(), ACLNN_SUCCESS);
  }
  EXPECT_EQ(other, output.bytes);
  ExpectGolden(*call_);
}

TEST(AddressesOfAbsentTensors, CannotBeSet) {
  const auto call = SampleQnr();
  const TensorArgument spare = (*call)["kOffset"];
  (*call)["kOffset"].is_present = false;
  ASSERT_EQ(call->PhaseOne(), ACLNN_SUCCESS);
  EXPECT_EQ(aclSetTensorAddr(call->executor, 11, call->tensor("kScale"), nullptr),
            ACLNN_ERR_PARAM_INVALID);
  ASSERT_EQ(call->PhaseTwo(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  ExpectGolden(*call);
}

}  // namespace
}  // namespace qkvfuse::capi_test
