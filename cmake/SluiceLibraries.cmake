# SPDX-License-Identifier: Apache-2.0
# The libraries that Sluice is built with. All but hwloc and cJSON are optional: a library is used if it is found and
# its option is ON (the default). For each library that is not used, the configuration prints what is missing. With
# SLUICE_ALL_LIBRARIES, for packages, a missing library is an error.
option(SLUICE_ALL_LIBRARIES "Fail where an optional library is missing, unless its option is OFF" OFF)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc>=2.0)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)

# sluice_without(NAME WHY LOST PACKAGES): records that the library NAME is not used.
macro(sluice_without name why lost packages)
  if(SLUICE_ALL_LIBRARIES AND SLUICE_${name})
    message(FATAL_ERROR "${why}, and SLUICE_ALL_LIBRARIES is ON. Debian: ${packages}; -DSLUICE_${name}=OFF does without")
  endif()
  message(STATUS "${why}: ${lost}. Debian: ${packages}")
  string(TOLOWER ${name} word)
  set_property(GLOBAL APPEND PROPERTY SLUICE_LEFT_OUT ${word})
endmacro()

# sluice_optional(NAME TITLE PACKAGES LOST MODULE...)
#
# Declares the option SLUICE_NAME and looks for the MODULEs with pkg-config. Sets the target PkgConfig::NAME and the
# variable SLUICE_HAS_NAME. LOST says what is missing without them, PACKAGES names their Debian packages.
macro(sluice_optional name title packages lost)
  option(SLUICE_${name} "Use ${title}, if it is there" ON)
  set(SLUICE_HAS_${name} OFF)
  if(SLUICE_${name})
    pkg_check_modules(${name} QUIET IMPORTED_TARGET ${ARGN})
    set(SLUICE_HAS_${name} ${${name}_FOUND})
    set(why "${title} is not found")
  else()
    set(why "${title} is left out")
  endif()
  if(NOT SLUICE_HAS_${name})
    sluice_without(${name} "${why}" "${lost}" "${packages}")
  endif()
endmacro()

option(SLUICE_ONEDNN "Multiply matrices by oneDNN, if its headers are there (it is loaded at run time)" ON)
if(SLUICE_ONEDNN)
  find_package(DNNL 2.0 QUIET)
endif()
if(NOT DNNL_FOUND)
  sluice_without(ONEDNN "oneDNN is not used"
    "f32 products by our own kernels; bf16 needs a processor with AMX, or ARM64's BF16" libdnnl-dev)
endif()
sluice_optional(ZEROMQ "ZeroMQ with libsodium" "libzmq3-dev libsodium-dev"
  "a job is one process: no -n, no several hosts" libzmq>=4.3 libsodium)
sluice_optional(UCX "UCX" libucx-dev # its headers; the library is loaded when needed
  "processes of one host exchange data by TCP, not by shared memory, and InfiniBand is not used" ucx>=1.13)
sluice_optional(LIBURING "liburing" liburing-dev
  "slots on disk are read and written one piece after another" liburing>=2.3)
sluice_optional(LIBEVENT "libevent" libevent-dev "no actorserve" libevent_core>=2.1)
sluice_optional(PCRE2 "PCRE2" libpcre2-dev
  "no tokenizers that cut texts by patterns (GPT-2's, LLaMA 3's, Qwen's), no patterns in adapters of PEFT" libpcre2-8)
sluice_optional(UTF8PROC "utf8proc" libutf8proc-dev
  "no tokenizers that bring texts to a normal form (Qwen's), or whose added tokens heed words or spaces around them"
  libutf8proc)
sluice_optional(TOMLPLUSPLUS "toml++ (which needs a C++ compiler)" "libtomlplusplus-dev g++" "no --config FILE.toml" tomlplusplus)
sluice_optional(LIBZIP "libzip" libzip-dev "no programs exported from PyTorch (.pt2)" libzip)
