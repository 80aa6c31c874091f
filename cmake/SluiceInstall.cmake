# What `cmake --install` lays down: headers, the library, the tools, the
# shipped models' sources, the modelled machines, and what pkg-config and CMake
# need to find them.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/sluice DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")
install(TARGETS sluice EXPORT SluiceTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT SluiceTargets NAMESPACE Sluice::
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice")
install(DIRECTORY machines/ DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice/machines"
        FILES_MATCHING PATTERN "*.json")
install(DIRECTORY models/ DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice/models"
        FILES_MATCHING PATTERN "*.c" PATTERN "*.h" PATTERN "models.[ch]" EXCLUDE)

configure_package_config_file(cmake/SluiceConfig.cmake.in SluiceConfig.cmake
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/SluiceConfig.cmake"
              "${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice")

# The prefix is written relative to the file, so that a tree can be moved.
file(RELATIVE_PATH SLUICE_PC_PREFIX
     "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
configure_file(cmake/sluice.pc.in sluice.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/sluice.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
