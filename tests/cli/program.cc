// Starts the program through the shell and collects what it prints.
#include "program.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

namespace qkvfuse::cli {
namespace {

// The files of the tests, removed when the process ends.
class TestFiles {
 public:
  ~TestFiles() {
    for (const std::string& path : paths_) unlink(path.c_str());
  }
  std::string Add(const std::string& path) { return *paths_.insert(path).first; }

 private:
  std::set<std::string> paths_;
};
TestFiles g_files;

}  // namespace

ProgramResult RunProgram(const std::string& arguments, const std::string& environment) {
  const std::string err_path = TestFilePath("stderr");
  const std::string command =
      environment + " '" QKVFUSE_PROGRAM "' " + arguments + " 2>'" + err_path + "'";
  ProgramResult result;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer;
  for (size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    result.out.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  result.err = ReadFile(err_path);
  return result;
}

nlohmann::json RunForJson(const std::string& arguments, const std::string& environment) {
  const ProgramResult result = RunProgram(arguments, environment);
  const nlohmann::json json =
      nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded()) return json;
  ADD_FAILURE() << "no JSON: " << result.out << result.err;
  return nullptr;
}

// Tests may run at the same time: the name of the process and of the test are part of the path.
std::string TestFilePath(const std::string& name) {
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  std::string file = "qkvfuse_" + std::to_string(getpid()) + "_" + info->name() + "_" + name;
  std::replace(file.begin(), file.end(), '/', '_');
  return g_files.Add(testing::TempDir() + file);
}

std::string WriteTestFile(const std::string& name, const std::string& text) {
  const std::string path = TestFilePath(name);
  std::ofstream(path) << text;
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace qkvfuse::cli
