// Tensors, scalars, arrays and lists of aclnn/acl_meta.h.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "aclnn/aclnn_base.h"

namespace {

using Getter = aclnnStatus (*)(const aclTensor*, int64_t**, uint64_t*);

// What a getter hands over, freed as its header says.
std::vector<int64_t> Fetch(Getter getter, const aclTensor* tensor) {
  int64_t* values = nullptr;
  uint64_t count = 0;
  EXPECT_EQ(getter(tensor, &values, &count), ACLNN_SUCCESS);
  const std::unique_ptr<int64_t[]> owner(values);
  return {values, values + count};
}

class TensorTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(aclDestroyTensor(tensor_), ACLNN_SUCCESS); }

  const std::vector<int64_t> dims_ = {2, 3, 4};
  const std::vector<int64_t> storage_ = {48};
  int data_ = 0;
  aclTensor* tensor_ = aclCreateTensor(dims_.data(), 3, ACL_BF16, nullptr, 5, ACL_FORMAT_NCHW,
                                       storage_.data(), 1, &data_);
};

TEST_F(TensorTest, RemembersWhatItWasMadeOf) {
  using Dims = std::vector<int64_t>;
  ASSERT_NE(tensor_, nullptr);
  EXPECT_EQ(Fetch(aclGetViewShape, tensor_), dims_);
  EXPECT_EQ(Fetch(aclGetStorageShape, tensor_), storage_);
  EXPECT_EQ(Fetch(aclGetViewStrides, tensor_), (Dims{12, 4, 1}));
  int64_t offset = 0;
  EXPECT_EQ(aclGetViewOffset(tensor_, &offset), ACLNN_SUCCESS);
  EXPECT_EQ(offset, 5);
  aclFormat format = ACL_FORMAT_UNDEFINED;
  EXPECT_EQ(aclGetFormat(tensor_, &format), ACLNN_SUCCESS);
  EXPECT_EQ(format, ACL_FORMAT_NCHW);
  aclDataType type = ACL_DT_UNDEFINED;
  EXPECT_EQ(aclGetDataType(tensor_, &type), ACLNN_SUCCESS);
  EXPECT_EQ(type, ACL_BF16);
  void* address = nullptr;
  EXPECT_EQ(aclGetRawTensorAddr(tensor_, &address), ACLNN_SUCCESS);
  EXPECT_EQ(address, &data_);
}

TEST_F(TensorTest, CanBeMadeAnewAndReaddressed) {
  const int64_t dims[] = {7};
  const int64_t strides[] = {-2};
  EXPECT_EQ(aclInitTensor(tensor_, dims, 1, ACL_INT8, strides, 12, ACL_FORMAT_ND, dims, 1, nullptr),
            ACLNN_SUCCESS);
  EXPECT_EQ(Fetch(aclGetViewShape, tensor_), std::vector<int64_t>{7});
  EXPECT_EQ(Fetch(aclGetViewStrides, tensor_), std::vector<int64_t>{-2});
  EXPECT_EQ(aclSetRawTensorAddr(tensor_, this), ACLNN_SUCCESS);
  void* address = nullptr;
  EXPECT_EQ(aclGetRawTensorAddr(tensor_, &address), ACLNN_SUCCESS);
  EXPECT_EQ(address, this);
  EXPECT_EQ(
      aclInitTensor(tensor_, nullptr, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, dims, 1, nullptr),
      ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(Fetch(aclGetViewShape, tensor_), std::vector<int64_t>{7});
}

TEST_F(TensorTest, NullArgumentsAreRefused) {
  int64_t* values = nullptr;
  uint64_t count = 0;
  for (const Getter getter : {aclGetViewShape, aclGetStorageShape, aclGetViewStrides}) {
    EXPECT_EQ(getter(nullptr, &values, &count), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(getter(tensor_, nullptr, &count), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(getter(tensor_, &values, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  }
  void* address = nullptr;
  EXPECT_EQ(aclGetViewOffset(tensor_, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetFormat(nullptr, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetDataType(tensor_, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetRawTensorAddr(nullptr, &address), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetRawTensorAddr(tensor_, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclSetRawTensorAddr(nullptr, this), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclInitTensor(nullptr, dims_.data(), 3, ACL_INT8, nullptr, 0, ACL_FORMAT_ND,
                          dims_.data(), 3, nullptr),
            ACLNN_ERR_PARAM_NULLPTR);
}

TEST(TensorCreation, AcceptsWhatOperatorsWillRefuse) {
  const int64_t huge[] = {INT64_MAX, INT64_MAX, INT64_MAX};
  const int64_t negative[] = {-1};
  aclTensor* tensors[] = {
      aclCreateTensor(huge, 3, ACL_INT8, nullptr, -9, ACL_FORMAT_ND, huge, 3, nullptr),
      aclCreateTensor(negative, 1, static_cast<aclDataType>(5), nullptr, 0, ACL_FORMAT_ND, negative,
                      1, nullptr),
      aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr)};
  for (const aclTensor* tensor : tensors) {
    EXPECT_NE(tensor, nullptr);
    aclDestroyTensor(tensor);
  }
  EXPECT_EQ(aclCreateTensor(nullptr, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, huge, 3, nullptr),
            nullptr);
  EXPECT_EQ(aclCreateTensor(huge, 3, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, nullptr, 1, nullptr),
            nullptr);
}

TEST(Arrays, KnowTheirSizes) {
  const int64_t integers[] = {1, 2, 3};
  const float floats[] = {1, 2};
  const bool bools[] = {true};
  uint64_t size = 99;
  aclIntArray* int_array = aclCreateIntArray(integers, 3);
  EXPECT_EQ(aclGetIntArraySize(int_array, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 3u);
  aclFloatArray* float_array = aclCreateFloatArray(floats, 2);
  EXPECT_EQ(aclGetFloatArraySize(float_array, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 2u);
  aclBoolArray* bool_array = aclCreateBoolArray(bools, 1);
  EXPECT_EQ(aclGetBoolArraySize(bool_array, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 1u);
  aclIntArray* empty = aclCreateIntArray(nullptr, 0);
  EXPECT_EQ(aclGetIntArraySize(empty, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(aclCreateIntArray(nullptr, 2), nullptr);
  EXPECT_EQ(aclGetIntArraySize(nullptr, &size), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetFloatArraySize(float_array, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetBoolArraySize(nullptr, &size), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyIntArray(int_array), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyIntArray(empty), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyFloatArray(float_array), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyBoolArray(bool_array), ACLNN_SUCCESS);
}

TEST(Lists, OwnTheirElements) {
  const int64_t dims[] = {1};
  float value = 1.5f;
  const aclTensor* tensors[] = {
      aclCreateTensor(dims, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, dims, 1, nullptr), nullptr};
  const aclScalar* scalars[] = {aclCreateScalar(&value, ACL_FLOAT)};
  EXPECT_NE(scalars[0], nullptr);
  EXPECT_EQ(aclCreateScalar(nullptr, ACL_FLOAT), nullptr);
  EXPECT_EQ(aclCreateScalar(&value, ACL_STRING), nullptr);
  uint64_t size = 99;
  aclTensorList* tensor_list = aclCreateTensorList(tensors, 2);
  EXPECT_EQ(aclGetTensorListSize(tensor_list, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 2u);
  aclScalarList* scalar_list = aclCreateScalarList(scalars, 1);
  EXPECT_EQ(aclGetScalarListSize(scalar_list, &size), ACLNN_SUCCESS);
  EXPECT_EQ(size, 1u);
  EXPECT_EQ(aclGetTensorListSize(nullptr, &size), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclGetScalarListSize(scalar_list, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyTensorList(tensor_list), ACLNN_SUCCESS);  // leak checkers see the elements
  EXPECT_EQ(aclDestroyScalarList(scalar_list), ACLNN_SUCCESS);
}

TEST(ArraysAndLists, MayBeEmptyAndAreNotMadeOfNull) {
  const auto expect = [](auto create, auto destroy) {
    auto* const empty = create(nullptr, 0);
    EXPECT_NE(empty, nullptr);
    EXPECT_EQ(destroy(empty), ACLNN_SUCCESS);
    EXPECT_EQ(create(nullptr, 1), nullptr);
  };
  expect(aclCreateIntArray, aclDestroyIntArray);
  expect(aclCreateFloatArray, aclDestroyFloatArray);
  expect(aclCreateBoolArray, aclDestroyBoolArray);
  expect(aclCreateTensorList, aclDestroyTensorList);
  expect(aclCreateScalarList, aclDestroyScalarList);
}

TEST(Destroying, NullIsFine) {
  EXPECT_EQ(aclDestroyTensor(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyScalar(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyIntArray(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyFloatArray(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyBoolArray(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyTensorList(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyScalarList(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclnnInit(nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclnnFinalize(), ACLNN_SUCCESS);
}

}  // namespace
