/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serving/energy.h"

#include <stdio.h>

#include "base/base.h"

bool energy_is_known(const sl_hardware *h) { return h && h->busy_watts > 0; }

double energy_joules(const sl_hardware *h, double seconds, double busy) {
  if (!energy_is_known(h)) return 0;
  busy = SLI_MIN(busy, seconds);
  return busy * h->busy_watts + (seconds - busy) * h->idle_watts;
}

const char *energy_text(char out[32], double joules) {
  static const char *const units[] = {"mJ", "J", "kJ", "MJ", "GJ"};
  size_t i = 0;
  double x = joules * 1e3;
  for (; x >= 999.95 && i + 1 < SLI_COUNT(units); i++) x /= 1e3;
  snprintf(out, 32, "%.4g %s", x, units[i]);
  return out;
}
