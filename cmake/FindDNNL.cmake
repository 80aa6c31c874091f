# SPDX-License-Identifier: Apache-2.0
# Finds oneDNN's C headers: DNNL::headers. The library is loaded at run time, from version 2.0 on.
find_path(DNNL_INCLUDE_DIR dnnl.h)
foreach(header oneapi/dnnl/dnnl_version.h dnnl_version.h)
  if(DNNL_INCLUDE_DIR AND EXISTS "${DNNL_INCLUDE_DIR}/${header}" AND NOT DNNL_VERSION)
    file(STRINGS "${DNNL_INCLUDE_DIR}/${header}" lines
         REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers "." DNNL_VERSION)
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DNNL REQUIRED_VARS DNNL_INCLUDE_DIR VERSION_VAR DNNL_VERSION)
if(DNNL_FOUND AND NOT TARGET DNNL::headers)
  add_library(DNNL::headers INTERFACE IMPORTED)
  set_target_properties(DNNL::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${DNNL_INCLUDE_DIR}")
endif()
mark_as_advanced(DNNL_INCLUDE_DIR)
