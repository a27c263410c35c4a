// Help texts and exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "program.h"

namespace qkvfuse::cli {
namespace {

using testing::HasSubstr;

class SubcommandTest : public testing::TestWithParam<const char*> {};

TEST_P(SubcommandTest, HelpHasExamplesOfTheSubcommand) {
  const ProgramResult result = RunProgram(std::string(GetParam()) + " --help");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("Examples:\n  qkvfuse " + std::string(GetParam())));
  EXPECT_THAT(result.out, HasSubstr("--json"));
  EXPECT_EQ(result.err, "");
}

TEST_P(SubcommandTest, IsListedByTheProgramsHelp) {
  const ProgramResult result = RunProgram("--help");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("\n  " + std::string(GetParam()) + " "));
}

TEST_P(SubcommandTest, RefusesAnUnknownOption) {
  const ProgramResult result = RunProgram(std::string(GetParam()) + " --no-such-option");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err, "");
  EXPECT_EQ(result.out, "");
}

INSTANTIATE_TEST_SUITE_P(All, SubcommandTest,
                         testing::Values("demo", "bench", "run", "verify", "explain", "info"));

struct WrongUse {
  const char* arguments;
  const char* expected;  // part of what stderr says
};

// What a failing test is called by.
void PrintTo(const WrongUse& use, std::ostream* out) { *out << "qkvfuse " << use.arguments; }

class WrongUseTest : public testing::TestWithParam<WrongUse> {};

TEST_P(WrongUseTest, ExitsWithTwoAndSaysWhy) {
  const ProgramResult result = RunProgram(GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr(GetParam().expected));
  EXPECT_EQ(result.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongUseTest,
    testing::Values(WrongUse{"", "subcommand"}, WrongUse{"dance", "dance"}, WrongUse{"run", "case"},
                    WrongUse{"explain", "case"}, WrongUse{"run op=dance", "op"},
                    WrongUse{"run op=qnr tokens=many", "tokens"},
                    WrongUse{"explain op=qnr head_dim=7", "head_dim"},
                    WrongUse{"run op=qnr target=abacus", "abacus"},
                    WrongUse{"verify /no/such/file.txt", "/no/such/file.txt"},
                    WrongUse{"demo --quick --svg /no/such/folder/a.svg", "/no/such/folder/a.svg"},
                    WrongUse{"demo --threads 0", "threads"},
                    WrongUse{"bench --filter no/such/row", "no/such/row"},
                    WrongUse{"bench --filter '(' --list", "regular expression"},
                    WrongUse{"bench --json --markdown --list", "--markdown"},
                    WrongUse{"bench --seconds 0 --list", "--seconds"},
                    WrongUse{"bench --threads none --list", "--threads"},
                    WrongUse{"bench --save /no/such/folder/a.json", "/no/such/folder/a.json"},
                    WrongUse{"bench --plot /no/such/folder/a.svg", "/no/such/folder/a.svg"}));

TEST(Version, IsPrinted) {
  const ProgramResult result = RunProgram("--version");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, testing::MatchesRegex("qkvfuse [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

}  // namespace
}  // namespace qkvfuse::cli
