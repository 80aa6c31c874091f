/* SPDX-License-Identifier: Apache-2.0 */
/* Version of the library. */
#include <sluice/version.h>

const char *sl_version(void) { return SLUICE_VERSION; }

int sl_version_number(void) { return SLUICE_VERSION_NUMBER; }
