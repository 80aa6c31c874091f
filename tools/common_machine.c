#include "tools/common_machine.h"

#include <string.h>

#include "base/base.h"

/* The devices [*first, end) of this process; returns how many. */
static int count_devices(const settings *s, int *first) {
  int count = 0, all = s->devices.count;
  for (int d = all - 1; d >= 0; d--)
    if (sl_device_process(d, all, s->processes) == s->process) *first = d, count++;
  return count;
}

sl_status machine_place(settings *s, machine *out) {
  machine m = {0};
  if (strcmp(s->devices.kind, "cpu")) {
    *out = m;
    return SL_OK;
  }
  int count = SLI_MAX(count_devices(s, &m.first), 1);
  sl_status status = sl_machine_create(NULL, &m.machine);
  if (!status && !s->devices.threads)
    s->devices.threads = sl_placement_default(m.machine, count);
  if (!status) status = sl_placement_create(m.machine, count, s->devices.threads, &m.placement);
  if (status)
    machine_fini(&m);
  else
    *out = m;
  return status;
}

void machine_bind(void *m, int device, int thread) {
  const machine *on = m;
  sl_placement_bind(on->placement, device - on->first, thread);
}

void machine_fini(machine *m) {
  sl_placement_destroy(m->placement);
  sl_machine_destroy(m->machine);
  *m = (machine){0};
}
