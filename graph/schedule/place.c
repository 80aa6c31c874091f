/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of stages on devices and chunks. */
#include "graph/schedule/schedule.h"

#include <string.h>

#include "base/base.h"

/* Layouts of stages along the model. Line: one stage per device. Loop: stages cycle through the
 * devices. Vee: stages reverse direction at the last and first device. */
static const struct layout {
  const char *name;
  bool chunks; /* several chunks per device */
  bool turns;
} layouts[] = {{"line", false, false}, {"loop", true, false}, {"vee", true, true}};

static const struct layout *find_layout(const char *name) {
  for (size_t i = 0; i < SLI_COUNT(layouts); i++)
    if (!strcmp(layouts[i].name, name)) return &layouts[i];
  return NULL;
}

sl_status sli_place_stages(const char *name, int p, int v, int *device_of, int *chunk_of) {
  const struct layout *layout = find_layout(name);
  if (!layout)
    return sl_fail(SL_E_USAGE, "unknown placement '%s': must be line, loop or vee", name);
  if (v > 1 && !layout->chunks)
    return sl_fail(
        SL_E_USAGE,
        "parallel.placement %s: puts one chunk on each device, but schedule.chunks is %d", name, v);
  for (int s = 0; s < p * v; s++) {
    int round = s / p, along = s % p;
    chunk_of[s] = round;
    device_of[s] = layout->turns && round % 2 ? p - 1 - along : along;
  }
  return SL_OK;
}
