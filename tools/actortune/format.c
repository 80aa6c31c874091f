/* Figures in four digits, with a unit that suits. */
#include "tools/actortune/actortune.h"

char *format_seconds(char out[32], double seconds) {
  static const struct {
    double least, scale;
    const char *unit;
  } units[] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {0, 1e6, "us"}};
  size_t i = 0;
  while (i + 1 < SLI_COUNT(units) && seconds < units[i].least) i++;
  snprintf(out, 32, "%.4g %s", seconds * units[i].scale, units[i].unit);
  return out;
}

/* Memory, so that plans close to each other can be told apart. */
char *format_memory(char out[32], double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t i = 0;
  for (; bytes >= 1024 && i + 1 < SLI_COUNT(units); i++) bytes /= 1024;
  snprintf(out, 32, "%.4g %s", bytes, units[i]);
  return out;
}
