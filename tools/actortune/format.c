/* Figures in four digits, with a unit that suits. */
#include "tools/actortune/actortune.h"

/* Memory, so that plans close to each other can be told apart. */
char *format_memory(char out[32], double bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t i = 0;
  for (; bytes >= 1024 && i + 1 < SLI_COUNT(units); i++) bytes /= 1024;
  snprintf(out, 32, "%.4g %s", bytes, units[i]);
  return out;
}
