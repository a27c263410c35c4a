// Starts the program through the shell and collects what it prints.
#include "program.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace qkvfuse::cli {

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
  return testing::TempDir() + "qkvfuse_" + std::to_string(getpid()) + "_" + info->name() + "_" +
         name;
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
