# SPDX-License-Identifier: Apache-2.0
# Toolchain file: cross-compiles for ARM64, against a folder of Debian's arm64 packages, which tests/portable/arm64
# makes. Tests, and programs that the build runs, run under qemu.
#
#   cmake --preset release -B build/arm64 --toolchain cmake/aarch64.cmake -DSLUICE_SYSROOT=DIR
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SLUICE_SYSROOT)
if(NOT EXISTS "${SLUICE_SYSROOT}/usr/lib/aarch64-linux-gnu/libc.so")
  message(FATAL_ERROR "SLUICE_SYSROOT (${SLUICE_SYSROOT}) is no folder of Debian's arm64 packages: libc6-dev is not in it")
endif()

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT "${SLUICE_SYSROOT}")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${SLUICE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${SLUICE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${SLUICE_SYSROOT}/usr/share/pkgconfig")

find_program(SLUICE_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(SLUICE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${SLUICE_QEMU};-L;${SLUICE_SYSROOT}")
endif()
