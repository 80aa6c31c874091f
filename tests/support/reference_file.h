/* SPDX-License-Identifier: Apache-2.0 */
/* Files of reference values written by a script in tests/reference. */
#ifndef SLUICE_TESTS_SUPPORT_REFERENCE_FILE_H
#define SLUICE_TESTS_SUPPORT_REFERENCE_FILE_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/support/test.h"

/* Calls `check` with each line that does not begin with '#', and returns their number. The
 * callee may modify the line. */
static inline int reference_lines(const char *path, void (*check)(char *line)) {
  FILE *file = fopen(path, "r");
  CHECK(file, "%s is there", path);
  char *line = NULL;
  size_t room = 0;
  int lines = 0;
  while (getline(&line, &room, file) > 0)
    if (*line != '#') check(line), lines++;
  free(line);
  fclose(file);
  return lines;
}

#endif
