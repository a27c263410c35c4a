// Applying rows of the contract tables.
#include "contract.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <utility>

#include "sample_calls.h"
#include "tests/support/sentences.h"

namespace qkvfuse::capi_test {
namespace {

void ExpectSentence(const Refusal& row) {
  const char* message = aclGetRecentErrMsg();
  ASSERT_NE(message, nullptr);
  const std::string sentence = message;
  EXPECT_NE(sentence.find(row.names), std::string::npos) << sentence;
  EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  EXPECT_GT(sentence.size(), row.names.size() + 10) << sentence;
  qkvfuse::testing::ExpectRecordedSentence(row.title, sentence);
}

}  // namespace

Change Absent(std::string name) {
  return [=](Call& call) { call[name].is_present = false; };
}

Change Typed(std::string name, aclDataType type) {
  return [=](Call& call) { Declare(call[name], type, call[name].dims); };
}

Change Shaped(std::string name, std::vector<int64_t> dims) {
  return [=](Call& call) { Declare(call[name], call[name].type, dims); };
}

Change Claimed(std::string name, std::vector<int64_t> dims) {
  return [=](Call& call) {
    call[name].dims = dims;
    call[name].has_data = false;
  };
}

Change Viewed(std::string name, std::vector<int64_t> strides, int64_t offset) {
  return [=](Call& call) {
    call[name].strides = strides;
    call[name].offset = offset;
  };
}

Change WithIntegers(std::string name, Integers values) {
  return [=](Call& call) { call.integers[name] = values; };
}

Change WithText(std::string name, Text text) {
  return [=](Call& call) { call.texts[name] = text; };
}

Change WithoutData(std::string name) {
  return [=](Call& call) { call[name].has_data = false; };
}

Change PlacedOn(std::string name, std::string other, int64_t bytes) {
  return [=](Call& call) { call[name].address = static_cast<char*>(call[other].Data()) + bytes; };
}

Change All(std::vector<Change> changes) {
  return [=](Call& call) {
    for (const Change& change : changes) change(call);
  };
}

void PrintTo(const Refusal& row, std::ostream* stream) { *stream << row.title; }

void ExpectPhaseOneRefuses(const Refusal& row, Call& call) {
  row.change(call);
  const auto before = call.Memory();
  call.executor = reinterpret_cast<aclOpExecutor*>(&call);  // must be overwritten
  EXPECT_EQ(call.PhaseOne(), row.code);
  EXPECT_EQ(call.executor, nullptr);
  EXPECT_EQ(call.workspace_size, 0u);
  ExpectSentence(row);
  EXPECT_EQ(call.Memory(), before);
}

void ExpectPhaseTwoRefuses(const Refusal& row, Call& call) {
  row.change(call);
  const auto before = call.Memory();
  ASSERT_EQ(call.PhaseOne(), ACLNN_SUCCESS) << aclGetRecentErrMsg();
  EXPECT_EQ(call.PhaseTwo(), row.code);
  ExpectSentence(row);
  EXPECT_EQ(call.Memory(), before);
  EXPECT_EQ(call.PhaseTwo(), ACLNN_ERR_PARAM_NULLPTR);  // refusing consumed it
  EXPECT_EQ(call.Memory(), before);
}

StrictEnvironment::StrictEnvironment() { setenv("QKVFUSE_STRICT", "1", /*overwrite=*/1); }

StrictEnvironment::~StrictEnvironment() { unsetenv("QKVFUSE_STRICT"); }

}  // namespace qkvfuse::capi_test
