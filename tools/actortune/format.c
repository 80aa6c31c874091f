/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in four significant digits, with a suitable unit. */
#include "tools/actortune/actortune.h"

/* Formats memory precisely enough to tell similar plans apart. */
char *format_memory(char out[32], double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t i = 0;
  for (; bytes >= 1024 && i + 1 < SLI_COUNT(units); i++) bytes /= 1024;
  snprintf(out, 32, "%.4g %s", bytes, units[i]);
  return out;
}
