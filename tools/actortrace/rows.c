/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace rows and actortrace reasons: tables for other programs. */
#include "tools/actortrace/actortrace.h"

#include <inttypes.h>

static bool has_rows(const sl_trace *t) {
  bool any = false;
  for (size_t i = 0; i < t->nfirings; i++) any |= t->firings[i].rows >= 0;
  return any;
}

static void print_tick(const tick_taken *x, FILE *out) {
  if (x) fprintf(out, "\t%d\t%d\t%" PRId64, x->sequences, x->chunk_rows, x->behind);
  else fputs("\t-\t-\t-", out);
}

/* Prints one line per firing, with its number of valid rows if slots have rows. With a server's
 * log, also prints the tick's number of sequences, its rows of prompt chunks, and the positions
 * before them. */
sl_status command_rows(const sl_trace *t, const options *o, FILE *out) {
  const sl_plan *plan = t->plan;
  bool rows = has_rows(t);
  fprintf(out,
          "step\tdevice\tclass\tstage\tchunk\tmicrobatch\tpiece\tstart_ns\tend_ns\tactor%s%s\n",
          rows ? "\trows" : "", o->ticks ? "\tsequences\tchunk_rows\tbehind" : "");
  for (size_t i = 0; i < t->nfirings; i++) {
    const sl_trace_firing *f = &t->firings[i];
    const sl_actor *a = &plan->actors[f->record.actor];
    int32_t device = actor_device(plan, f->record.actor);
    if ((o->step >= 0 && f->tick.step != o->step) || (o->device >= 0 && device != o->device))
      continue;
    fprintf(out, "%" PRId64 "\t%d\t%c\t%d\t%d\t%d\t%d\t%" PRIu64 "\t%" PRIu64 "\t%s", f->tick.step,
            device, sl_class_letter(a->cls), a->stage, a->chunk, f->tick.microbatch, f->tick.piece,
            f->record.start_ns, f->record.end_ns, a->name);
    if (rows && f->rows >= 0) fprintf(out, "\t%d", f->rows);
    else if (rows) fputs("\t-", out);
    if (o->ticks) print_tick(tick_of(t, o->ticks, f), out);
    fputc('\n', out);
  }
  return SL_OK;
}

typedef struct reason_printer {
  FILE *out;
  const sl_plan *plan;
  int64_t step;
  int32_t device;
} reason_printer;

static void print_reason(void *ctx, const piece *p) {
  const reason_printer *r = ctx;
  const sl_register *g = p->reg >= 0 ? &r->plan->regs[p->reg] : NULL;
  const char *producer = g && g->producer != SL_NONE ? r->plan->actors[g->producer].name : "-";
  fprintf(r->out, "%" PRId64 "\t%d\t%s\t%s\t%s\t%" PRIu64 "\t%" PRIu64 "\n", r->step, r->device,
          sl_wait_name((sl_wait)p->wait), g ? g->name : "-", producer, p->from_ns,
          p->to_ns - p->from_ns);
}

/* Prints for each step and device a line for its span, one for its work, one for other work, and
 * one for each idle time. These add up to the span. */
sl_status command_reasons(const sl_trace *t, const options *o, FILE *out) {
  analysis *a = analysis_create(t);
  fprintf(out, "step\tdevice\treason\tregister\tproducer\tstart_ns\tns\n");
  for (size_t i = 0; i < t->nsteps; i++)
    for (int32_t d = 0; d < t->plan->ndevices; d++) {
      int64_t step = t->step[i].step;
      if ((o->step >= 0 && step != o->step) || (o->device >= 0 && d != o->device)) continue;
      account x = account_make(a, d, step);
      fprintf(out, "%" PRId64 "\t%d\tspan\t-\t-\t%" PRIu64 "\t%" PRIu64 "\n", step, d, x.from_ns,
              account_span(&x));
      fprintf(out, "%" PRId64 "\t%d\tbusy\t-\t-\t%" PRIu64 "\t%" PRIu64 "\n", step, d, x.from_ns,
              x.busy_ns);
      fprintf(out, "%" PRId64 "\t%d\tother\t-\t-\t%" PRIu64 "\t%" PRIu64 "\n", step, d, x.from_ns,
              x.other_ns);
      reason_printer r = {out, t->plan, step, d};
      visit_idle(a, &x, d, print_reason, &r);
    }
  analysis_destroy(a);
  return SL_OK;
}
