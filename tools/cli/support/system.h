// What this program runs on and how it was built.
#pragma once

#include <string>

namespace qkvfuse::cli {

/// The processor's own name, or the architecture where the system does not tell.
[[nodiscard]] std::string CpuModel();

/// Compiler, version and build type of this program.
[[nodiscard]] std::string CompilerText();

/// "OpenMP", or "none" where the build has no thread library of its own.
[[nodiscard]] std::string ThreadLibrary();

/// Threads that a Run without RunOptions::threads may use.
[[nodiscard]] int DefaultThreads();

/// Processors that this process may run on.
[[nodiscard]] int HardwareThreads();

}  // namespace qkvfuse::cli
