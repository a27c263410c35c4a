// A sample call of either operator, as a test with a parameter.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "golden.h"
#include "sample_calls.h"

namespace qkvfuse::capi_test {

inline void ExpectGolden(const Call& call) {
  const Comparison found = CompareWithGolden(call);
  EXPECT_GT(found.elements, 0);
  EXPECT_EQ(found.outside, 0) << found.first_outside;
  EXPECT_EQ(found.disturbed, 0);
}

inline bool LastErrorNames(const std::string& name) {
  const char* message = aclGetRecentErrMsg();
  return message != nullptr && std::string(message).find(name) != std::string::npos;
}

class SampleTest : public testing::TestWithParam<Op> {
 protected:
  std::unique_ptr<Call> call_ = Sample(GetParam());
};

inline std::string Title(const testing::TestParamInfo<Op>& op) {
  return op.param == Op::kQnr ? "Qnr" : "Drq";
}

}  // namespace qkvfuse::capi_test
