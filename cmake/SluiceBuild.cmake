# SPDX-License-Identifier: Apache-2.0
# How a folder becomes a library.

# sluice_with(NAME REGEX...)
#
# Says which sources of the calling folder are compiled only with the optional library NAME: those whose name
# matches one of the REGEXes. Files named no_NAME.c, in small letters, take their place without it. The library is added
# to the list `found`.
macro(sluice_with name)
  if(SLUICE_HAS_${name})
    string(TOLOWER "/no_${name}\\.c$" stand_in)
    list(APPEND left_out "${stand_in}")
    list(APPEND found PkgConfig::${name})
  else()
    list(APPEND left_out ${ARGN})
  endif()
endmacro()

# Takes out of a list of sources which of them the options leave out.
macro(sluice_choose sources)
  foreach(regex ${left_out})
    list(FILTER ${sources} EXCLUDE REGEX "${regex}")
  endforeach()
endmacro()

# The processors whose instructions we know.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(SLUICE_PROCESSOR x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(SLUICE_PROCESSOR arm64)
else()
  set(SLUICE_PROCESSOR other)
endif()

# sluice_layer(NAME LIBRARIES...)
#
# Makes the static library sluice_NAME of all C files below the calling folder,
# linked to the layers declared before it and to LIBRARIES. A folder without a
# C file yet is no layer. Folders named cuda, with their .cu files, and files
# named no_cuda.c are for builds with and without SLUICE_CUDA; sluice_with() says of
# others. Folders named x86 and arm64 are for these processors, those named other for
# the rest. Unless a sanitizer
# is on, the layer is also linked into a module of its own that may leave nothing
# undefined: a call up the list of layers fails right there, with its name.
function(sluice_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.c")
  sluice_choose(sources)
  if(SLUICE_CUDA)
    file(GLOB_RECURSE device CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cu")
    list(FILTER sources EXCLUDE REGEX "/no_cuda\\.c$")
    list(APPEND sources ${device})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  set(processors x86 arm64 other)
  list(REMOVE_ITEM processors ${SLUICE_PROCESSOR})
  list(JOIN processors "|" processors)
  list(FILTER sources EXCLUDE REGEX "/(${processors})/")
  if(NOT sources)
    return()
  endif()
  get_property(below GLOBAL PROPERTY SLUICE_LAYERS)
  add_library(sluice_${name} STATIC ${sources})
  target_link_libraries(sluice_${name} PUBLIC ${below} ${ARGN} sluice_common)
  if(NOT SLUICE_SANITIZE)
    add_library(sluice_${name}_stands MODULE $<TARGET_OBJECTS:sluice_${name}>)
    target_link_libraries(sluice_${name}_stands PRIVATE ${below} ${ARGN} sluice_common)
    target_link_options(sluice_${name}_stands PRIVATE LINKER:-z,defs)
    set_target_properties(sluice_${name}_stands PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/layers")
  endif()
  list(PREPEND below sluice_${name})
  set_property(GLOBAL PROPERTY SLUICE_LAYERS ${below})
  set_property(GLOBAL APPEND PROPERTY SLUICE_LIBRARIES ${ARGN})
endfunction()

# The object files of all layers declared so far, and the libraries they need.
function(sluice_layers_collect objects libraries)
  get_property(layers GLOBAL PROPERTY SLUICE_LAYERS)
  list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  set(${objects} ${layers} PARENT_SCOPE)
  get_property(needed GLOBAL PROPERTY SLUICE_LIBRARIES)
  set(${libraries} ${needed} PARENT_SCOPE)
endfunction()
