/* SPDX-License-Identifier: Apache-2.0 */
/* Version of the headers and of the loaded library. docs/library.md says which versions are
 * compatible. CMake, pkg-config, the Python package and the tools take the version from this
 * file. */
#ifndef SLUICE_VERSION_H
#define SLUICE_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 2
#define SLUICE_VERSION_PATCH 0
#define SLUICE_VERSION "0.2.0"

/* A version as an increasing number: 0.2.0 -> 200, 1.12.3 -> 11203. */
#define SLUICE_VERSION_NUMBER_OF(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define SLUICE_VERSION_NUMBER \
  SLUICE_VERSION_NUMBER_OF(SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR, SLUICE_VERSION_PATCH)

/* Returns the version of the loaded library: SLUICE_VERSION at its build. */
const char *sl_version(void);
/* Returns the version of the loaded library: SLUICE_VERSION_NUMBER at its build. */
int sl_version_number(void);

#ifdef __cplusplus
}
#endif
#endif
