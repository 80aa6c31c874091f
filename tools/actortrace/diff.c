/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace diff: what became slower from one trace to another.
 *
 * Both traces are counted per step and matched by name: devices with their busy time and idle time
 * by reason, actors with the median and sum of their firings, registers with the time spent waiting
 * for them. */
#include "tools/actortrace/actortrace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One item in both traces, in nanoseconds per step; NAN: absent. */
typedef struct item {
  char name[128];
  double before, after;
} item;

typedef struct items {
  item *all;
  size_t count, capacity;
} items;

static item *find_item(items *x, const char *name) {
  for (size_t i = 0; i < x->count; i++)
    if (!strcmp(x->all[i].name, name)) return &x->all[i];
  SLI_GROW(x->all, x->count, x->capacity);
  item *i = &x->all[x->count++];
  *i = (item){.before = NAN, .after = NAN};
  snprintf(i->name, sizeof i->name, "%s", name);
  return i;
}

static void diff_add(items *x, const char *name, bool after, double ns) {
  item *i = find_item(x, name);
  double *to = after ? &i->after : &i->before;
  *to = (isnan(*to) ? 0 : *to) + ns;
}

/* One trace's values of everything compared. */
typedef struct comparison {
  items steps, devices, actors, waits;
} comparison;

typedef struct counting {
  comparison *c;
  const sl_plan *plan;
  bool after;
  double steps;
} counting;

static void count_wait(void *ctx, const piece *p) {
  counting *x = ctx;
  char name[128];
  const char *wait = sl_wait_name((sl_wait)p->wait);
  if (p->reg >= 0) snprintf(name, sizeof name, "%s: %s", wait, x->plan->regs[p->reg].name);
  else snprintf(name, sizeof name, "%s", wait);
  diff_add(&x->c->waits, name, x->after, (double)(p->to_ns - p->from_ns) / x->steps);
}

static void count_device(counting *x, const analysis *a, int32_t device, int64_t step) {
  account s = account_make(a, device, step);
  const char *device_name = a->plan->devices[device].name;
  char name[128];
  snprintf(name, sizeof name, "%s span", device_name);
  diff_add(&x->c->devices, name, x->after, (double)account_span(&s) / x->steps);
  snprintf(name, sizeof name, "%s busy", device_name);
  diff_add(&x->c->devices, name, x->after, (double)s.busy_ns / x->steps);
  for (int w = 0; w < SL_WAIT_COUNT; w++) {
    if (!s.idle_ns[w]) continue;
    snprintf(name, sizeof name, "%s idle: %s", device_name, sl_wait_name((sl_wait)w));
    diff_add(&x->c->devices, name, x->after, (double)s.idle_ns[w] / x->steps);
  }
  visit_idle(a, &s, device, count_wait, x);
}

static void count_trace(comparison *c, const analysis *a, const options *o, bool after) {
  step_range range = o->step >= 0 ? (step_range){o->step, o->step} : steps_to_count(a);
  const sl_trace *t = a->trace;
  counting x = {c, a->plan, after, (double)SLI_MAX(count_steps(t, range), 1)};
  for (size_t i = next_step(t, range, 0); i < t->nsteps; i = next_step(t, range, i + 1)) {
    int64_t step = t->step[i].step;
    uint64_t from, to;
    if (work_window(a, step, &from, &to))
      diff_add(&c->steps, "a step's work", after, (double)(to - from) / x.steps);
    for (int32_t d = 0; d < a->plan->ndevices; d++)
      if (o->device < 0 || o->device == d) count_device(&x, a, d, step);
  }
  for (size_t i = 0; i < a->nfirings; i++) {
    const sl_trace_firing *f = &a->firings[i];
    if (f->tick.step < range.first || f->tick.step > range.last) continue;
    if (o->device >= 0 && actor_device(a->plan, f->record.actor) != o->device) continue;
    diff_add(&c->actors, a->plan->actors[f->record.actor].name, after,
             (double)(f->record.end_ns - f->record.start_ns) / x.steps);
  }
}

static double change(const item *i) {
  return (isnan(i->after) ? 0 : i->after) - (isnan(i->before) ? 0 : i->before);
}

static int by_change(const void *a, const void *b) {
  const item *x = a, *y = b;
  double cx = change(x), cy = change(y);
  if (cx != cy) return cx > cy ? -1 : 1;
  return strcmp(x->name, y->name);
}

static const char *format_or_dash(char *out, double ns) {
  return isnan(ns) ? "-" : format_ns(out, ns);
}

static void print_item(FILE *out, const item *i) {
  char before[32], after[32], by[32], share[32] = "";
  double c = change(i);
  if (!isnan(i->before) && !isnan(i->after) && i->before > 0)
    snprintf(share, sizeof share, "%+.1f%%", 100 * c / i->before);
  const char *sign = c > 0 ? "+" : c < 0 ? "-" : " ";
  fprintf(out, "%s%10s %8s  %10s %10s  %s\n", sign, format_ns(by, fabs(c)), share,
          format_or_dash(before, i->before), format_or_dash(after, i->after), i->name);
}

/* Prints the items that slowed down most, then as many of the items that became faster. Items that
 * differ by less than a thousandth of the step are skipped. */
static void print_items(FILE *out, const char *title, items *x, double least) {
  enum { MOST = 8 };
  if (x->count) qsort(x->all, x->count, sizeof *x->all, by_change);
  fprintf(out, "\n%s\n", title);
  size_t shown = 0;
  for (size_t i = 0; i < x->count && i < MOST && change(&x->all[i]) > least; i++, shown++)
    print_item(out, &x->all[i]);
  size_t faster = 0;
  while (faster < x->count && faster < MOST && change(&x->all[x->count - 1 - faster]) < -least)
    faster++;
  for (size_t i = x->count - faster; i < x->count; i++, shown++) print_item(out, &x->all[i]);
  if (!shown) fputs("the same\n", out);
  free(x->all);
}

sl_status command_diff(const sl_trace *before, const sl_trace *after, const options *o, FILE *out) {
  comparison c = {0};
  const sl_trace *both[] = {before, after};
  for (int i = 0; i < 2; i++) {
    analysis *a = analysis_create(both[i]);
    count_trace(&c, a, o, i);
    analysis_destroy(a);
  }
  if (before->plan_hash != after->plan_hash)
    fprintf(out, "the plans differ: %016" PRIx64 " and %016" PRIx64 "\n", before->plan_hash,
            after->plan_hash);
  fprintf(out, "%11s %8s  %10s %10s\n", "change", "", "before", "after");
  double step = c.steps.count && !isnan(c.steps.all[0].before) ? c.steps.all[0].before : 0;
  for (size_t i = 0; i < c.steps.count; i++) print_item(out, &c.steps.all[i]);
  free(c.steps.all);
  print_items(out, "By device, per step", &c.devices, step * 1e-3);
  print_items(out, "By what idle devices waited for, per step", &c.waits, step * 1e-3);
  print_items(out, "By actor, all its firings of a step", &c.actors, step * 1e-3);
  return SL_OK;
}
