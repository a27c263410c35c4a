// Runs the program qkvfuse as a person or a script would.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace qkvfuse::cli {

struct ProgramResult {
  int exit_code = -1;  // -1 when the program did not exit by itself
  std::string out;
  std::string err;
};

/// `arguments` as typed into a shell, `environment` as in "A=1 B=2".
[[nodiscard]] ProgramResult RunProgram(const std::string& arguments,
                                       const std::string& environment = "");

/// The JSON that the program prints; a failed expectation, and null, when it prints none.
[[nodiscard]] nlohmann::json RunForJson(const std::string& arguments,
                                        const std::string& environment = "");

/// A file of this test's own, with this text.
[[nodiscard]] std::string WriteTestFile(const std::string& name, const std::string& text);
[[nodiscard]] std::string TestFilePath(const std::string& name);
[[nodiscard]] std::string ReadFile(const std::string& path);

}  // namespace qkvfuse::cli
