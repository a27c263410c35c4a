# Cross-build for aarch64 with Debian's compiler and Debian's arm64 libraries; tests run under
# qemu-user, and QEMU_CPU chooses the processor (docs/testing.md).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# No -L: the loader and every library are those of Debian's arm64 packages. Part of them from the
# cross compiler's folder, as -L gives, would be two C libraries in one process.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
