# SPDX-License-Identifier: Apache-2.0
# Files that `cmake --install` installs: headers, the library, the tools, the shipped models' sources, the modelled
# machines, files for pkg-config and CMake, and the pages, examples and licence, placed so that their links work.
# Everything belongs to one of three components, each a separate package (SluicePackage.cmake): library, tools and
# headers. The target `uninstall` removes the files of the last `cmake --install` of this build.
include(CMakePackageConfigHelpers)

set(name_without_version NAMELINK_COMPONENT headers)
if(SKBUILD) # a wheel has no symbolic links: it would contain the library three times
  set(name_without_version NAMELINK_SKIP)
  set_target_properties(sluice sluice_shipped PROPERTIES
    VERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH "\$ORIGIN")
endif()
install(TARGETS sluice EXPORT SluiceTargets LIBRARY
        DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library ${name_without_version})
install(TARGETS sluice_shipped LIBRARY
        DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library ${name_without_version})
install(DIRECTORY include/sluice DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT headers
        FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(DIRECTORY machines/ DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice/machines" COMPONENT tools
        FILES_MATCHING PATTERN "*.json")
install(DIRECTORY models/ DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice/models" COMPONENT tools
        FILES_MATCHING PATTERN "*.c" PATTERN "*.h" PATTERN "models.[ch]" EXCLUDE PATTERN "presets.c" EXCLUDE)
if(SKBUILD)
  return() # the rest is for C programs that use the library
endif()

set(doc "${CMAKE_INSTALL_DATAROOTDIR}/doc/sluice")
install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE DESTINATION "${doc}" COMPONENT tools)
install(DIRECTORY docs examples DESTINATION "${doc}" COMPONENT tools PATTERN "__pycache__" EXCLUDE)

install(EXPORT SluiceTargets NAMESPACE Sluice::
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice" COMPONENT headers)

configure_package_config_file(cmake/SluiceConfig.cmake.in SluiceConfig.cmake
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/SluiceConfig.cmake"
              "${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice" COMPONENT headers)

# The prefix is relative to the file, so that an installation can be moved. Programs get an rpath to the library,
# except under /usr, where the loader looks anyway.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(SLUICE_PC_RPATH "-Wl,-rpath,\${libdir} ")
  target_link_options(sluice INTERFACE
    "$<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>")
endif()
file(RELATIVE_PATH SLUICE_PC_PREFIX
     "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
configure_file(cmake/sluice.pc.in sluice.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/sluice.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT headers)

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall VERBATIM COMMAND "${CMAKE_COMMAND}"
    "-DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt" -P "${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake")
endif()
