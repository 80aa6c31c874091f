# SPDX-License-Identifier: Apache-2.0
# Functions that make a library of a folder.

# sluice_with(NAME REGEX...)
#
# Declares that sources of the calling folder whose names match one of the REGEXes are compiled only with the optional
# library NAME. Without it, files named no_NAME.c, in lower case, are compiled instead. The library is added to the
# list `found`.
macro(sluice_with name)
  if(SLUICE_HAS_${name})
    string(TOLOWER "/no_${name}\\.c$" stand_in)
    list(APPEND left_out "${stand_in}")
    list(APPEND found PkgConfig::${name})
  else()
    list(APPEND left_out ${ARGN})
  endif()
endmacro()

# Removes from a list the sources that the options leave out.
macro(sluice_choose sources)
  foreach(regex ${left_out})
    list(FILTER ${sources} EXCLUDE REGEX "${regex}")
  endforeach()
endmacro()

# The processors with specialised sources.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(SLUICE_PROCESSOR x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(SLUICE_PROCESSOR arm64)
else()
  set(SLUICE_PROCESSOR other)
endif()

# sluice_layer(NAME LIBRARIES...)
#
# Makes the static library sluice_NAME of all C files below the calling folder, linked to the layers declared before
# it and to LIBRARIES. A folder without C files is not a layer. Folders named cuda, with their .cu files, are compiled
# with SLUICE_CUDA, and files named no_cuda.c without it; sluice_with() handles other libraries. Folders named x86 and
# arm64 are for these processors, folders named other for the rest. Unless a sanitizer is on, the layer is also linked
# into a separate module without undefined symbols, so a call to a higher layer fails to link, with an error that
# names it.
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

# Returns the object files of all layers declared so far, and the libraries they need.
function(sluice_layers_collect objects libraries)
  get_property(layers GLOBAL PROPERTY SLUICE_LAYERS)
  list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  set(${objects} ${layers} PARENT_SCOPE)
  get_property(needed GLOBAL PROPERTY SLUICE_LIBRARIES)
  set(${libraries} ${needed} PARENT_SCOPE)
endfunction()
