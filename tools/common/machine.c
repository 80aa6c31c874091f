#include "tools/common/machine.h"

#include <stdlib.h>
#include <string.h>

#include <sluice/cuda.h>

#include "base/base.h"

/* The devices [*first, end) of this process; returns how many. */
static int count_devices(const settings *s, int *first) {
  int count = 0, all = s->devices.count;
  for (int d = all - 1; d >= 0; d--)
    if (sl_device_process(d, all, s->processes) == s->process) *first = d, count++;
  return count;
}

static sl_status place_cpus(settings *s, int count, machine *m) {
  sl_status status = sl_machine_create(NULL, &m->machine);
  if (!status && !s->devices.threads)
    s->devices.threads = sl_placement_default(m->machine, count);
  return status ? status
                : sl_placement_create(m->machine, count, s->devices.threads, &m->placement);
}

static void use_gpus(settings *s, int count) {
  int *numbers = sli_arena_alloc(&s->arena, (size_t)count * sizeof *numbers);
  for (int i = 0; i < count; i++) numbers[i] = i;
  s->devices.numbers = numbers;
  s->devices.nnumbers = count;
}

/* Which GPUs there are is known now: all of them, in turn, unless some were named. */
static sl_status find_gpus(settings *s) {
  int count;
  sl_status status = sl_cuda_count(&count);
  if (status) return status;
  for (int i = 0; i < s->devices.nnumbers; i++)
    if (s->devices.numbers[i] >= count)
      return sl_fail(SL_E_USAGE, "--devices %s: there is no GPU %d: there %s %d, counted from 0",
                     sl_arg_text(s->run, "devices"), s->devices.numbers[i], count > 1 ? "are" : "is",
                     count);
  if (!s->devices.nnumbers) use_gpus(s, count);
  return SL_OK;
}

void machine_imagine(settings *s) {
  if (!strcmp(s->devices.kind, "cuda") && !s->devices.nnumbers) use_gpus(s, s->devices.count);
}

/* Unless the user says how much, a device can have what is free now: what needs more is known
 * before it is asked for. The GPUs of other processes are taken to be like these. */
static void set_budget(settings *s, const sl_cuda_device *gpus, int count) {
  if (s->devices.budget_bytes) return;
  s->devices.budget_bytes = gpus[0].free_bytes;
  for (int d = 1; d < count; d++)
    s->devices.budget_bytes = SLI_MIN(s->devices.budget_bytes, gpus[d].free_bytes);
}

static sl_status place_gpus(settings *s, int count, machine *m) {
  sl_status status = find_gpus(s);
  if (!status) status = sl_machine_create(NULL, &m->machine);
  if (status) return status;
  sl_cuda_device *gpus = sli_calloc((size_t)count, sizeof *gpus);
  const char **pci = sli_calloc((size_t)count, sizeof *pci);
  for (int d = 0; d < count && !status; d++) {
    status = sl_cuda_describe(s->devices.numbers[(m->first + d) % s->devices.nnumbers], &gpus[d]);
    pci[d] = gpus[d].pci;
  }
  if (!status) set_budget(s, gpus, count);
  if (!status) status = sl_placement_create_near(m->machine, count, pci, &m->placement);
  free(pci);
  free(gpus);
  return status;
}

sl_status machine_place(settings *s, machine *out) {
  static const struct {
    const char *kind;
    sl_status (*place)(settings *s, int count, machine *m);
  } rows[] = {{"cpu", place_cpus}, {"cuda", place_gpus}};
  machine m = {0};
  int count = SLI_MAX(count_devices(s, &m.first), 1);
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(rows) && !status; i++)
    if (!strcmp(s->devices.kind, rows[i].kind)) status = rows[i].place(s, count, &m);
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
