# Finds Gloo through its headers and library: the target gloo. Debian's own GlooConfig.cmake
# has the library's path in full, wherever its package is unpacked.
find_path(GLOO_INCLUDE_DIR gloo/config.h)
find_library(GLOO_LIBRARY gloo)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gloo
  REQUIRED_VARS GLOO_LIBRARY GLOO_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Debian has it as libgloo-dev, and tools/setup installs it.")
if(Gloo_FOUND AND NOT TARGET gloo)
  add_library(gloo UNKNOWN IMPORTED)
  set_target_properties(gloo PROPERTIES
    IMPORTED_LOCATION "${GLOO_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${GLOO_INCLUDE_DIR}")
endif()
mark_as_advanced(GLOO_INCLUDE_DIR GLOO_LIBRARY)
