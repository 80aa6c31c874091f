#include "tools/common_machine.h"

#include <string.h>

sl_status machine_place(settings *s, machine *out) {
  machine m = {0};
  if (strcmp(s->devices.kind, "cpu")) {
    *out = m;
    return SL_OK;
  }
  sl_status status = sl_machine_create(NULL, &m.machine);
  if (!status && !s->devices.threads)
    s->devices.threads = sl_placement_default(m.machine, s->devices.count);
  if (!status)
    status = sl_placement_create(m.machine, s->devices.count, s->devices.threads, &m.placement);
  if (status)
    machine_fini(&m);
  else
    *out = m;
  return status;
}

void machine_fini(machine *m) {
  sl_placement_destroy(m->placement);
  sl_machine_destroy(m->machine);
  *m = (machine){0};
}
