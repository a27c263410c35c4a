# Cross-build for aarch64 with Debian's compiler and Debian's arm64 libraries; tests run under
# qemu-user, and QEMU_CPU chooses the processor (docs/testing.md).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# The C library for -L is the cross compiler's; what it lacks (Highway) is looked up where Debian
# installs arm64 packages.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
