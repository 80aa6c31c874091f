/* SPDX-License-Identifier: Apache-2.0 */
/* --assign: the user's choice of the device at each place.
 *
 * Places are numbered as in the layout, host by host. A list has the device of each place:
 * "0,2,1,3", or "4-7,0-3" for eight. It is a permutation, so every device has one place. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "graph/lower/lower.h"

typedef struct list {
  const char *text;
  int total, count;
  int *device, *place; /* [total] device by place; and by device, 1 + its place */
} list;

static sl_status assign_add(list *l, int device) {
  if (device >= l->total)
    return sl_fail(SL_E_USAGE, "assign %s: no device %d; devices are 0 to %d", l->text, device,
                   l->total - 1);
  if (l->place[device])
    return sl_fail(SL_E_USAGE, "assign %s: device %d is listed twice", l->text, device);
  l->device[l->count] = device;
  l->place[device] = ++l->count;
  return SL_OK;
}

/* Reads "3" or "4-7" and advances *at. */
static sl_status read_run(list *l, const char **at) {
  enum { MOST = 1 << 20 };
  int first, last;
  const char *from = *at;
  bool good = sli_number_read(at, 0, MOST, &first);
  last = first;
  if (good && **at == '-') {
    ++*at;
    good = sli_number_read(at, first, MOST, &last);
  }
  if (!good || (**at && **at != ','))
    return sl_fail(SL_E_USAGE, "assign %s: '%.*s' must be a device or a range such as 4-7", l->text,
                   (int)strcspn(from, ","), from);
  sl_status status = SL_OK;
  for (int d = first; d <= last && !status; d++) status = assign_add(l, d);
  return status;
}

static sl_status check_all(const list *l) {
  for (int d = 0; d < l->total; d++)
    if (!l->place[d])
      return sl_fail(SL_E_USAGE, "assign %s: device %d is missing; all %d devices must be listed",
                     l->text, d, l->total);
  return SL_OK;
}

sl_status sli_assign_read(const char *text, int total, int *to) {
  list l = {.text = text,
            .total = total,
            .device = to,
            .place = sli_calloc((size_t)total, sizeof *l.place)};
  const char *at = text;
  sl_status status = read_run(&l, &at);
  while (!status && *at++ == ',') status = read_run(&l, &at);
  if (!status) status = check_all(&l);
  free(l.place);
  return status;
}

sl_status sli_lower_read_assign(sli_inputs *in) {
  int total = in->p * sli_grid_ranks(&in->grid);
  if (!in->options->parallel.assign) return SL_OK;
  int *device = sli_arena_alloc(&in->g->arena, (size_t)total * sizeof *device);
  in->layout.assign = device;
  return sli_assign_read(in->options->parallel.assign, total, device);
}

char *sli_assign_format(const int *device, int n) {
  char *text = sli_strdup("");
  for (int i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && device[end] == device[end - 1] + 1; end++) {}
    char *more = end > i + 1
                     ? sli_format("%s%s%d-%d", text, i ? "," : "", device[i], device[end - 1])
                     : sli_format("%s%s%d", text, i ? "," : "", device[i]);
    free(text);
    text = more;
  }
  return text;
}
