/* SPDX-License-Identifier: Apache-2.0 */
/* Version of the headers and of the library that is loaded. docs/library.md says which versions fit
 * together. CMake, pkg-config, the Python package and the tools have the version from this file. */
#ifndef SLUICE_VERSION_H
#define SLUICE_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 2
#define SLUICE_VERSION_PATCH 0
#define SLUICE_VERSION "0.2.0"

/* A version as a number that grows: 0.2.0 -> 200, 1.12.3 -> 11203. */
#define SLUICE_VERSION_NUMBER_OF(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define SLUICE_VERSION_NUMBER \
  SLUICE_VERSION_NUMBER_OF(SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR, SLUICE_VERSION_PATCH)

/* Version of the loaded library, as SLUICE_VERSION was when it was built. */
const char *sl_version(void);
/* Version of the loaded library, as SLUICE_VERSION_NUMBER was when it was built. */
int sl_version_number(void);

#ifdef __cplusplus
}
#endif
#endif
