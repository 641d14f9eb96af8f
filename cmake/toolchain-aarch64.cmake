# Cross build for 64-bit Arm Linux on x86; ctest runs the binaries under QEMU.
#   cmake -B build/aarch64 --toolchain cmake/toolchain-aarch64.cmake -DINTATTENTION_TESTS=ON
#   QEMU_CPU=cortex-a76 ctest --test-dir build/aarch64        (also: cortex-a72, max)
# Needs g++-aarch64-linux-gnu and qemu-user-static.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# QEMU itself reads $QEMU_CPU when -cpu is not given, so the variable works at configure time and at run
# time; the cache variable pins one CPU for a build folder.
set(QEMU_CPU "" CACHE STRING "QEMU's -cpu for the tests: cortex-a72, cortex-a76, max; empty: $QEMU_CPU, else max")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
if(QEMU_CPU)
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -cpu ${QEMU_CPU})
elseif(NOT DEFINED ENV{QEMU_CPU})
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -cpu max)
endif()
