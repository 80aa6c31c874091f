/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/planner/machine.h"

#include "base/base.h"
#include "graph/devices/devices.h"

/* Counts the devices [*first, end) of this process. */
static int count_devices(const settings *s, int *first) {
  int count = 0, all = s->lower.devices.count;
  for (int d = all - 1; d >= 0; d--)
    if (sl_device_process(d, all, s->lower.parallel.processes) == s->process) *first = d, count++;
  return count;
}

static sli_site site_of(settings *s) {
  sli_site site = {
      .devices = &s->lower.devices, .arena = &s->arena, .spec = sl_arg_text(s->run, "devices")};
  site.count = SLI_MAX(count_devices(s, &site.first), 1);
  return site;
}

sl_status machine_place(settings *s, machine *out) {
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind);
  sli_site site = site_of(s);
  sl_status status = kind->place ? kind->place(&site) : SL_OK;
  *out = (machine){site.machine, site.placement, site.first};
  if (status) machine_fini(out);
  return status;
}

sl_status machine_imagine(settings *s, machine *out) {
  const sli_kind *kind = sli_kind_find(s->lower.devices.kind);
  if (!kind->imagine) return machine_place(s, out);
  sli_site site = site_of(s);
  kind->imagine(&site);
  *out = (machine){.first = site.first};
  return SL_OK;
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
