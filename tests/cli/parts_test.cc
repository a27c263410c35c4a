// The small parts of the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "support/checksum.h"
#include "support/outputs.h"
#include "support/parallel.h"
#include "support/table.h"
#include "support/timing.h"

namespace qkvfuse::cli {
namespace {

TEST(Checksum, IsFnv1a) {
  // Published values of the 64-bit hash.
  EXPECT_EQ(ChecksumText(Checksum("", 0, DType::kInt8)), "cbf29ce484222325");
  EXPECT_EQ(ChecksumText(Checksum("a", 1, DType::kInt8)), "af63dc4c8601ec8c");
  EXPECT_EQ(ChecksumText(Checksum("foobar", 6, DType::kInt8)), "85944171f73967e8");
}

TEST(Checksum, TakesEveryNanForTheSame) {
  const uint16_t quiet[] = {0x3C00, 0x7E00};
  const uint16_t other[] = {0x3C00, 0xFD01};
  const uint16_t number[] = {0x3C00, 0x7C00};  // infinity
  EXPECT_EQ(Checksum(quiet, 2, DType::kFloat16), Checksum(other, 2, DType::kFloat16));
  EXPECT_NE(Checksum(quiet, 2, DType::kFloat16), Checksum(number, 2, DType::kFloat16));
  EXPECT_NE(Checksum(quiet, 2, DType::kBFloat16), Checksum(other, 2, DType::kBFloat16));
}

TEST(Table, AlignsColumnsAndSeparatesGroups) {
  Table table({{"name", Table::Align::kLeft}, {"long\ntitle"}});
  table.AddRow({"a", "1"});
  table.EndGroup();
  table.AddRow({"bcdef", "1000000"});
  table.EndGroup();
  EXPECT_EQ(table.Render(),
            "          long\n"
            "name     title\n"
            "-----  -------\n"
            "a            1\n"
            "-----  -------\n"
            "bcdef  1000000\n");
}

TEST(Parallel, CoversEveryItemOnce) {
  std::vector<std::atomic<int>> visits(1001);
  ParallelChunks(1001, 7, 4, [&](int64_t begin, int64_t end) {
    ASSERT_LE(end - begin, 7);
    for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
  });
  for (const auto& count : visits) EXPECT_EQ(count, 1);
}

TEST(Parallel, PassesAnExceptionOn) {
  const auto fail_late = [](int64_t begin, int64_t) {
    if (begin == 90) throw std::runtime_error("late");
  };
  EXPECT_THROW(ParallelChunks(100, 10, 3, fail_late), std::runtime_error);
}

TEST(Timing, TakesTurnsAndCallsEachEquallyOften) {
  std::string order;
  const auto times = MeasureTimes({[&] { order += 'a'; }, [&] { order += 'b'; }},
                                  {.at_least = 3, .at_most = 3, .seconds = 0});
  EXPECT_EQ(order, "abababab");
  ASSERT_EQ(times.size(), 2u);
  for (const Times& of_one : times) EXPECT_LE(of_one.best, of_one.median);
}

TEST(Outputs, UnitInLastPlace) {
  EXPECT_EQ(UnitInLastPlace(DType::kBFloat16, 1.0), 0x1p-7);
  EXPECT_EQ(UnitInLastPlace(DType::kBFloat16, -1.99), 0x1p-7);
  EXPECT_EQ(UnitInLastPlace(DType::kFloat16, 2.0), 0x1p-9);
  EXPECT_EQ(UnitInLastPlace(DType::kFloat16, 0.0), 0x1p-24);
}

}  // namespace
}  // namespace qkvfuse::cli
