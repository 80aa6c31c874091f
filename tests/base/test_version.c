/* SPDX-License-Identifier: Apache-2.0 */
/* The library reports the version of its headers, as a text and as a number.
 * labels: unthreaded */
#include <stdio.h>
#include <string.h>

#include <sluice/version.h>

#include "tests/support/test.h"

_Static_assert(SLUICE_VERSION_NUMBER_OF(1, 12, 3) == 11203, "numbers of versions");

int main(void) {
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", SLUICE_VERSION_MAJOR, SLUICE_VERSION_MINOR,
           SLUICE_VERSION_PATCH);
  CHECK(!strcmp(SLUICE_VERSION, text), "SLUICE_VERSION is %s, the parts are %s", SLUICE_VERSION,
        text);
  CHECK(!strcmp(sl_version(), text), "the library says %s, its header %s", sl_version(), text);
  CHECK(sl_version_number() == SLUICE_VERSION_NUMBER, "%d against %d", sl_version_number(),
        SLUICE_VERSION_NUMBER);
  return 0;
}
