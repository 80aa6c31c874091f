/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool sli_number_read(const char **at, int least, int most, int *out) {
  if (!isdigit((unsigned char)**at)) return false;
  char *end;
  errno = 0;
  long v = strtol(*at, &end, 10);
  if (errno || v < least || v > most) return false;
  *at = end;
  *out = (int)v;
  return true;
}

/* Returns the factor of a K, M, G or T at *at, or 1 if there is none. */
static double read_unit(const char **at) {
  static const char units[] = "KMGT";
  const char *unit = **at ? strchr(units, toupper((unsigned char)**at)) : NULL;
  double scale = 1;
  if (unit) {
    for (const char *u = units; u <= unit; u++) scale *= 1024;
    ++*at;
    if (**at == 'i') ++*at;
  }
  if (**at == 'B') ++*at;
  return scale;
}

bool sli_number_read_size(const char **at, size_t *out) {
  char *end;
  double v = strtod(*at, &end);
  if (end == *at) return false;
  const char *behind = end;
  v *= read_unit(&behind);
  if (!(v >= 1 && v <= 1e18)) return false;
  *at = behind;
  *out = (size_t)v;
  return true;
}
