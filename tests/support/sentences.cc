// Looking sentences up in the list, and recording them.
#include "tests/support/sentences.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

namespace qkvfuse::testing {
namespace {

std::set<std::string> ReadList() {
  std::ifstream file(QKVFUSE_SENTENCES);
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  return lines;
}

// The SIMD targets are those of the machine.
void LeaveOutTargets(std::string* sentence) {
  if (sentence->starts_with("target: ")) sentence->resize(sentence->find(", must be"));
}

}  // namespace

void ExpectRecordedSentence(const std::string& row, std::string sentence) {
  static const std::set<std::string> list = ReadList();
  const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  LeaveOutTargets(&sentence);
  const std::string line =
      std::string(test->test_suite_name()) + "." + test->name() + " " + row + ": " + sentence;
  if (const char* const path = std::getenv("QKVFUSE_RECORD_SENTENCES")) {
    std::ofstream(path, std::ios::app) << line << '\n';
    return;
  }
  EXPECT_TRUE(list.contains(line)) << "not in tests/support/sentences.txt: " << line;
}

}  // namespace qkvfuse::testing
