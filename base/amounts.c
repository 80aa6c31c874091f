/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts as text: bytes, seconds, rates. */
#include <stdio.h>

#include "base/base.h"

char *sli_format_bytes(char *out, double bytes) {
  static const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < SLI_COUNT(units)) bytes /= 1024, unit++;
  snprintf(out, 32, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return out;
}

typedef struct scale {
  double least;
  const char *prefix;
} scale;

/* Formats four digits with the prefix of the largest scale that the value reaches after
 * rounding. */
static char *format_scaled(char *out, double value, const scale *scales, const char *unit) {
  while (scales[1].prefix && value < scales->least * 0.99995) scales++;
  snprintf(out, 32, "%.4g %s%s", value / scales->least, scales->prefix, unit);
  return out;
}

char *sli_format_seconds(char *out, double seconds) {
  static const scale scales[] = {{1, ""}, {1e-3, "m"}, {1e-6, "u"}, {1e-9, "n"}, {0, NULL}};
  return format_scaled(out, seconds, scales, "s");
}

char *sli_format_rate(char *out, double rate, const char *unit) {
  static const scale scales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"},
                                 {1e3, "k"},  {1, ""},    {0, NULL}};
  return format_scaled(out, rate, scales, unit);
}
