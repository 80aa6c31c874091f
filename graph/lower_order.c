/* A fixed order of passes: derived, or read from a file.
 *
 * The file has a line per device, `0: F0 F0 B0 F0 B0 B0 ...`: the passes of one
 * step in their order, each a class letter and the stage along the model.
 * Microbatches need no mention, for a pass takes them in their own order. What
 * else a device does in a step (gradient norm, update) follows the passes. Empty
 * lines and what stands behind a # do not count. */
#include "graph/lower.h"

#include <stdlib.h>
#include <string.h>

static int32_t find_pass(const sl_plan *plan, int32_t queue, const char *name) {
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].queue == queue && !strcmp(plan->actors[i].name, name)) return i;
  return SL_NONE;
}

static bool is_pass(const sl_actor *a) {
  return a->cls == SL_CLASS_F || a->cls == SL_CLASS_B || a->cls == SL_CLASS_W;
}

static int32_t count_firings(const sl_plan *plan, int32_t queue) {
  int32_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++)
    if (plan->actors[i].queue == queue) sum += plan->actors[i].firings_per_step;
  return sum;
}

/* The passes of one line. */
static sl_status read_passes(sli_lowering *l, const char *path, int line, int device, char *text) {
  sl_plan *plan = l->plan;
  int32_t queue = 2 * device, most = count_firings(plan, queue), n = 0;
  int32_t *order = sl_plan_alloc(plan, (size_t)most * sizeof *order);
  char *state = NULL;
  for (char *word = strtok_r(text, " \t\r\n", &state); word;
       word = strtok_r(NULL, " \t\r\n", &state)) {
    int32_t actor = find_pass(plan, queue, word);
    if (actor == SL_NONE)
      return sl_fail(SL_E_INPUT, "%s:%d: device %d has no pass %s", path, line, device, word);
    if (n == most)
      return sl_fail(SL_E_INPUT, "%s:%d: device %d has more passes than the %d of a step", path,
                     line, device, most);
    order[n++] = actor;
  }
  for (int32_t i = 0; i < plan->nactors; i++)
    for (int32_t f = 0; plan->actors[i].queue == queue && !is_pass(&plan->actors[i]) &&
                        f < plan->actors[i].firings_per_step && n < most; f++)
      order[n++] = i;
  plan->queues[queue].order = order;
  plan->queues[queue].norder = n;
  return SL_OK;
}

static sl_status read_line(sli_lowering *l, const char *path, int line, char *text) {
  text[strcspn(text, "#")] = 0;
  char *at = text + strspn(text, " \t\r\n"), *end;
  if (!*at) return SL_OK;
  long device = strtol(at, &end, 10);
  if (end == at || *end != ':' || device < 0 || device >= l->p)
    return sl_fail(SL_E_INPUT, "%s:%d: a line begins with a device, 0: to %d:", path, line,
                   l->p - 1);
  if (l->plan->queues[2 * device].order)
    return sl_fail(SL_E_INPUT, "%s:%d: device %ld has an order already", path, line, device);
  return read_passes(l, path, line, (int)device, end + 1);
}

static sl_status read_orders(sli_lowering *l, const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) return sl_fail(SL_E_INPUT, "%s: %m", path);
  char *text = NULL;
  size_t size = 0;
  sl_status status = SL_OK;
  for (int line = 1; !status && getline(&text, &size, file) >= 0; line++)
    status = read_line(l, path, line, text);
  free(text);
  fclose(file);
  return status;
}

sl_status sli_lower_order(sli_lowering *l) {
  const char *order = l->options->order;
  bool fixed = l->schedule->fixed_order && sli_lower_crossing(l) > 0;
  if (l->tune && l->tune->order) fixed = l->tune->order == 2;
  if (!order && !fixed) return SL_OK;
  if (!order || !strcmp(order, "derive")) return sl_plan_fix_order(l->plan, NULL);
  return read_orders(l, order);
}
