/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace show: a step as a picture in the terminal, with tables of waits and advice below. */
#include "tools/actortrace/show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- the table of devices -------------------------------------------------------------- */

static const sl_wait shown_waits[] = {SL_WAIT_INPUT, SL_WAIT_CREDIT, SL_WAIT_DEVICE, SL_WAIT_POLICY,
                                      SL_WAIT_START};

static account sum_accounts(const shower *s, int32_t device) {
  account sum = {0};
  const sl_trace *t = s->a->trace;
  for (size_t i = next_step(t, s->range, 0); i < t->nsteps; i = next_step(t, s->range, i + 1)) {
    account x = account_make(s->a, device, t->step[i].step);
    sum.to_ns += account_span(&x);
    sum.busy_ns += x.busy_ns;
    sum.other_ns += x.other_ns;
    for (int w = 0; w < SL_WAIT_COUNT; w++) sum.idle_ns[w] += x.idle_ns[w];
  }
  return sum;
}

/* Returns whether there is room for the total memory beside the memory in use. */
static bool is_wide(const shower *s, int names) { return s->width >= names + 83; }

static void print_device(const shower *s, int names, const char *name, const account *x,
                         int64_t steps, uint64_t peak, uint64_t arena) {
  char span[32], bytes[32], all[32];
  fprintf(s->out, "%-*.*s %9s %5.1f%%", names, names, name,
          format_ns(span, (double)account_span(x) / (double)steps),
          percent(x->busy_ns, account_span(x)));
  for (size_t w = 0; w < SLI_COUNT(shown_waits); w++)
    fprintf(s->out, " %5.1f%%", percent(x->idle_ns[shown_waits[w]], account_span(x)));
  fprintf(s->out, " %5.1f%%  %s", percent(x->other_ns, account_span(x)),
          sli_format_bytes(bytes, (double)peak));
  if (is_wide(s, names)) fprintf(s->out, " of %s", sli_format_bytes(all, (double)arena));
  fputc('\n', s->out);
}

static void print_devices(const shower *s) {
  int names = name_width(s);
  int64_t steps = SLI_MAX(count_steps(s->a->trace, s->range), 1);
  char title[96];
  snprintf(title, sizeof title,
           steps > 1 ? "Where the time went, mean of steps %" PRId64 " to %" PRId64
                     : "Where the time went in step %" PRId64,
           s->range.first, s->range.last);
  show_heading(s, title);
  fprintf(s->out, "%-*s %9s %6s", names, "device", "span", "busy");
  for (size_t w = 0; w < SLI_COUNT(shown_waits); w++)
    fprintf(s->out, " %6s", sl_wait_name(shown_waits[w]));
  fprintf(s->out, " %6s  %s\n", "other", is_wide(s, names) ? "peak memory in use" : "memory");
  uint64_t busy = 0, longest = 0, devices = 0;
  for (int32_t d = 0; d < s->plan->ndevices; d++) {
    if (!is_shown(s, d)) continue;
    account x = sum_accounts(s, d);
    print_device(s, names, s->plan->devices[d].name, &x, steps, peak_bytes(s->a, d),
                 sl_device_bytes(&s->plan->devices[d]));
    busy += x.busy_ns;
    longest = SLI_MAX(longest, account_span(&x));
    devices++;
  }
  if (longest)
    fprintf(s->out, "bubble %.1f%% of the longest span\n",
            100 - percent(busy, longest) / (double)devices);
}

/* Percent of the workers' ready time below which waits for a core are not printed. */
static const double little_core_wait = 5;

static void print_cores(const shower *s) {
  const sl_trace *t = s->a->trace;
  double share = percent(t->coreless_ns, t->ran_ns + t->coreless_ns);
  if (share < little_core_wait) return;
  print_wrapped(s->out, s->width, 0, "%s", "");
  print_wrapped(s->out, s->width, 0,
                "Devices had no core to run on for %.0f%% of the time they had work to do: more "
                "threads want to run than there are cores free. Those waits are part of the busy, "
                "input and device times above, and of the bubble.",
                share);
}

/* ---- advice --------------------------------------------------------------------------------- */

static void print_one_advice(const shower *s, const advices *all, const advice *k) {
  char saved[32], step[32], bytes[32], where[48] = "", option[80] = "";
  if (k->stage != SL_NONE) snprintf(where, sizeof where, " of stage %d", k->stage);
  else if (k->nregs > 1 && k->pool == SL_NONE) snprintf(where, sizeof where, " at every stage");
  double gain = all->step_seconds - k->step_seconds;
  if (k->stage != SL_NONE)
    snprintf(option, sizeof option, " (--quota %s@%d=%d)", k->knob, k->stage, k->slots + 1);
  fprintf(s->out, "%9s %5.1f%%  ", format_ns(saved, gain * 1e9), 100 * gain / all->step_seconds);
  print_wrapped(s->out, s->width, ENTRY_INDENT,
                "one more slot of %s%s (%s has %d): a step of %s for %s more%s%s", k->knob, where,
                k->pool == SL_NONE ? s->plan->regs[k->reg].name : "it", k->slots,
                format_ns(step, k->step_seconds * 1e9),
                sli_format_bytes(bytes, (double)k->more_bytes), option, sli_quota_warning(k->knob));
}

static void print_advice(const shower *s) {
  enum { MOST = 3 };
  const advices *all = &s->advices;
  char text[32], title[128];
  if (s->no_advice) {
    show_heading(s, "What more slots would save is not known");
    fprintf(s->out, "the plan cannot be replayed: %s\n", s->no_advice);
    return;
  }
  snprintf(title, sizeof title, "One more slot would save, of the %s a step takes when replayed",
           format_ns(text, all->step_seconds * 1e9));
  show_heading(s, title);
  for (int32_t i = 0; i < all->count && i < MOST; i++) print_one_advice(s, all, &all->items[i]);
  if (!all->count) fputs("nothing: no single quota holds this plan up\n", s->out);
  if (all->tried < all->candidates)
    fprintf(s->out, "(%d of %d quotas tried, those most waited for)\n", all->tried,
            all->candidates);
  uint64_t from, to;
  double replayed = all->step_seconds * 1e9;
  if (work_window(s->a, s->step, &from, &to) && (double)(to - from) > 1.1 * replayed)
    print_wrapped(s->out, s->width, 0,
                  "(Step %" PRId64
                  " took %s. The replay takes each actor's median time and always "
                  "has a core: the rest is waiting for cores, waking up and uneven kernels.)",
                  s->step, format_ns(text, (double)(to - from)));
}

/* ---- the command ---------------------------------------------------------------------- */

static int find_width(const options *o, FILE *out) {
  struct winsize size;
  if (o->width) return SLI_MAX(o->width, 40);
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col) return SLI_MAX(size.ws_col, 40);
  const char *columns = getenv("COLUMNS");
  int width = columns ? atoi(columns) : 0;
  return width >= 40 && width < 10000 ? width : 100;
}

static void print_facts(const shower *s) {
  const sl_trace *t = s->a->trace;
  fprintf(s->out, "%zu firings of %d actors on %d devices, %s clock\n", t->nfirings,
          s->plan->nactors, s->plan->ndevices, t->clock == SL_CLOCK_VIRTUAL ? "virtual" : "real");
  fprintf(s->out, "%" PRId64 " step%s of %d microbatch%s", t->steps, t->steps == 1 ? "" : "s",
          s->plan->microbatches, s->plan->microbatches == 1 ? "" : "es");
  if (s->plan->pieces > 1) fprintf(s->out, " of %d pieces", s->plan->pieces);
  fputc('\n', s->out);
}

sl_status command_show(const sl_trace *t, const options *o, FILE *out) {
  analysis *a = analysis_create(t);
  bool color = o->color >= 0 ? o->color : isatty(fileno(out)) && !getenv("NO_COLOR");
  shower s = {.a = a,
              .plan = t->plan,
              .out = out,
              .width = find_width(o, out),
              .color = color,
              .range = steps_to_count(a),
              .device = o->device,
              .queues = o->queues};
  s.step = o->step >= 0 ? o->step : typical_step(a);
  if (o->step >= 0) s.range = (step_range){o->step, o->step};
  sl_status status = SL_OK;
  if (!t->nfirings) status = sl_fail(SL_E_INPUT, "%s has no firings to show", o->path);
  else if (!find_step(t, s.step))
    status = sl_fail(SL_E_USAGE, "step %" PRId64 " is not in %s, which has %" PRId64 " to %" PRId64,
                     s.step, o->path, t->step[0].step, t->step[t->nsteps - 1].step);
  if (!status) {
    if (advise(a, 5, &s.advices)) s.no_advice = sli_strdup(sl_detail());
    print_facts(&s);
    if (o->ticks) ticks_print(t, o->ticks, out);
    draw_step(&s);
    print_devices(&s);
    print_cores(&s);
    print_waits(&s);
    print_path(&s);
    print_advice(&s);
    free(s.advices.items);
    free(s.no_advice);
  }
  analysis_destroy(a);
  return status;
}
