# SPDX-License-Identifier: Apache-2.0
# Run by CPack before it packs: adds the files that Debian requires in each package beyond the installed ones, and
# compresses man pages.
file(WRITE "${CPACK_TEMPORARY_DIRECTORY}/copyright" [[
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Sluice

Files: *
Copyright: the authors of Sluice
License: Apache-2.0
 Licensed under the Apache License, Version 2.0; you may not use these files
 except in compliance with the License.
 .
 On Debian systems its text is in /usr/share/common-licenses/Apache-2.0.
]])
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(share "${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_PACKAGING_INSTALL_PREFIX}/share")
  file(COPY "${CPACK_TEMPORARY_DIRECTORY}/copyright"
       DESTINATION "${share}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}"
       FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  file(GLOB pages "${share}/man/man1/*.1")
  if(pages)
    execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
file(REMOVE "${CPACK_TEMPORARY_DIRECTORY}/copyright")
