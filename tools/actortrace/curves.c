/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and slots in use over time. */
#include "tools/actortrace/actortrace.h"

#include <stdlib.h>

static int by_time(const void *a, const void *b) {
  const sample *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  return x->value < y->value ? -1 : x->value > y->value;
}

/* Appends a register's changes, `unit` for each slot. Constant use is added to *start. */
static size_t list_changes(const analysis *a, int32_t reg, int64_t unit, sample *out,
                           int64_t *start) {
  const sl_register *r = &a->plan->regs[reg];
  size_t begin = a->first_hold[reg], end = a->first_hold[reg + 1], n = 0;
  if (r->held || (begin == end && r->initial)) {
    *start += SLI_MAX(r->initial, 1) * unit;
    return 0;
  }
  for (size_t h = begin; h < end; h++) {
    const hold *x = &a->holds[h];
    if (x->taken_by < 0) *start += unit;
    else out[n++] = (sample){x->taken_ns, unit};
    if (x->freed_ns != UINT64_MAX) out[n++] = (sample){x->freed_ns, -unit};
  }
  return n;
}

/* Turns changes into values, one for each time. A slot returned exactly when another is taken is
 * not counted twice. */
static size_t sum_up(sample *all, size_t n, int64_t start) {
  qsort(all + 1, n, sizeof *all, by_time);
  all[0] = (sample){0, start};
  size_t last = 0;
  for (size_t i = 1; i <= n; i++) {
    int64_t value = all[last].value + all[i].value;
    if (all[i].ns != all[last].ns) last++;
    all[last] = (sample){all[i].ns, value};
  }
  return last + 1;
}

sample *bytes_curve(const analysis *a, int32_t device, size_t *count) {
  sample *all = sli_calloc(2 * a->nholds + 1, sizeof *all);
  int64_t start = (int64_t)a->plan->devices[device].room[SL_SPACE_DEVICE].workspace_bytes;
  size_t n = 0;
  for (int32_t r = 0; r < a->plan->nregs; r++)
    if (a->plan->regs[r].device == device)
      n +=
          list_changes(a, r, (int64_t)sl_slot_device_bytes(&a->plan->regs[r]), all + 1 + n, &start);
  *count = sum_up(all, n, start);
  return all;
}

sample *slots_curve(const analysis *a, int32_t reg, size_t *count) {
  size_t holds = a->first_hold[reg + 1] - a->first_hold[reg];
  sample *all = sli_calloc(2 * holds + 1, sizeof *all);
  int64_t start = 0;
  size_t n = list_changes(a, reg, 1, all + 1, &start);
  *count = sum_up(all, n, start);
  return all;
}

uint64_t peak_bytes(const analysis *a, int32_t device) {
  size_t count;
  sample *all = bytes_curve(a, device, &count);
  int64_t most = 0;
  for (size_t i = 0; i < count; i++) most = SLI_MAX(most, all[i].value);
  free(all);
  return (uint64_t)most;
}

void each_curve(const analysis *a, int32_t device, curve_reader *read, void *ctx) {
  const sl_plan *plan = a->plan;
  size_t n;
  for (int32_t d = 0; d < plan->ndevices; d++) {
    if (device >= 0 && device != d) continue;
    sample *bytes = bytes_curve(a, d, &n);
    read(ctx, d, "bytes in use", true, bytes, n);
    free(bytes);
    for (int32_t r = 0; r < plan->nregs; r++) {
      const sl_register *reg = &plan->regs[r];
      if (reg->device != d || reg->held || reg->quota < 2) continue;
      char name[256];
      snprintf(name, sizeof name, "slots of %s (%d)", reg->name, reg->quota);
      sample *slots = slots_curve(a, r, &n);
      read(ctx, d, name, false, slots, n);
      free(slots);
    }
  }
}
