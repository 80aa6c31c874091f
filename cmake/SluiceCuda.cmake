# SPDX-License-Identifier: Apache-2.0
# Finds the CUDA toolkit and chooses the GPUs to compile for. By default: Ampere, Ada, Hopper with its
# architecture-specific instructions, Blackwell, and PTX of the newest one for later GPUs. `native` means this
# machine's GPUs.
find_package(CUDAToolkit 12 REQUIRED)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  if(CUDAToolkit_VERSION VERSION_LESS 12.8) # does not support Blackwell
    set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90a-real 90-virtual)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90a-real 100)
  endif()
endif()
set(CMAKE_CUDA_STANDARD 17)
enable_language(CUDA)
if(CMAKE_CUDA_ARCHITECTURES STREQUAL native)
  if(NOT CMAKE_CUDA_ARCHITECTURES_NATIVE) # from the driver
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=native: this machine has no GPU; name some, as in 80 or \"80;90a\"")
  endif()
  # Drivers report 90 for Hopper, without its architecture-specific instructions.
  string(REGEX REPLACE "(^|;)90(-real)?(;|$)" "\\190a-real\\3" CMAKE_CUDA_ARCHITECTURES
         "${CMAKE_CUDA_ARCHITECTURES_NATIVE}")
endif()
if("90a" IN_LIST CMAKE_CUDA_ARCHITECTURES OR "90a-real" IN_LIST CMAKE_CUDA_ARCHITECTURES)
  add_compile_definitions($<$<COMPILE_LANGUAGE:CUDA>:SLI_SM90A>)
endif()
list(JOIN CMAKE_CUDA_ARCHITECTURES ", " architectures)
message(STATUS "CUDA ${CUDAToolkit_VERSION}, for GPUs of architectures ${architectures}")
