# SPDX-License-Identifier: Apache-2.0
# Debian packages of a build's components, made by CPack: libsluice0.2, sluice and libsluice-dev. tools/package makes
# them from a build with the prefix /usr.
if(NOT PROJECT_IS_TOP_LEVEL OR SKBUILD)
  return()
endif()

# Sets `out` to the installed package that contains a library loaded at run time, if there is one.
function(package_of out library)
  execute_process(COMMAND dpkg-query -S "*/${library}" OUTPUT_VARIABLE found ERROR_QUIET)
  string(REGEX MATCH "^[a-z0-9.+-]+" found "${found}")
  set(${out} ${found} PARENT_SCOPE)
endfunction()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_VENDOR "the authors of Sluice")
set(CPACK_PACKAGE_CONTACT "Sluice maintainers <maintainers@sluice.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL library tools headers)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/debian.cmake")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")

get_target_property(soversion sluice SOVERSION)
set(same "libsluice${soversion} (= ${PROJECT_VERSION})") # the tools use private symbols (sluice.map)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libsluice${soversion})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(loaded libucp.so.0)
if(DNNL_FILE)
  list(APPEND loaded ${DNNL_FILE})
endif()
set(recommended)
foreach(library IN LISTS loaded)
  package_of(found ${library})
  list(APPEND recommended ${found})
endforeach()
list(JOIN recommended ", " CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
    "Sluice trains and serves neural networks: a model becomes a dataflow of actors,\ncut over devices and processes.\n\nThis package has the library, which programs load.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME sluice)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${same}")
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "libsluice-dev, gcc, libc6-dev") # to compile a user's FILE.c
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
    "The tools of Sluice: actorrun trains, actorserve serves over HTTP, actortune\nchooses plans and actortrace shows where the time went. Shipped models, pages\nand examples come with them.")

set(CPACK_DEBIAN_HEADERS_PACKAGE_NAME libsluice-dev)
set(CPACK_DEBIAN_HEADERS_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_HEADERS_PACKAGE_DEPENDS "${same}")
set(CPACK_COMPONENT_HEADERS_DESCRIPTION
    "Headers of Sluice, for models and programs in C and C++.")

include(CPack)
