/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace chrome: trace events in JSON for chrome://tracing, Perfetto and HTA. A process is a
 * device, a thread is a queue. Arrows follow the registers from the firing that made a slot to
 * those that read it. Counters show bytes and slots in use. Times are microseconds with three
 * decimals. */
#include "tools/actortrace/actortrace.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct writer {
  const analysis *a;
  FILE *out;
  const options *o;
  bool any;
} writer;

static void chrome_begin(writer *w) {
  fputs(w->any ? ",\n" : "\n", w->out);
  w->any = true;
}

static void put_us(FILE *out, uint64_t ns) {
  fprintf(out, "%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

static bool is_chosen(const writer *w, int64_t firing) {
  const sl_trace_firing *f = &w->a->firings[firing];
  return (w->o->step < 0 || f->tick.step == w->o->step) &&
         (w->o->device < 0 || actor_device(w->a->plan, f->record.actor) == w->o->device);
}

static void put_names(writer *w) {
  const sl_plan *plan = w->a->plan;
  for (int32_t d = 0; d < plan->ndevices; d++) {
    chrome_begin(w);
    fprintf(w->out,
            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":", d);
    put_json(w->out, plan->devices[d].name);
    fputs("}}", w->out);
  }
  for (int32_t q = 0; q < plan->nqueues; q++)
    for (int32_t s = 0; s < w->a->shelves[q]; s++) {
      chrome_begin(w);
      fprintf(w->out,
              "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":",
              plan->queues[q].device, s * plan->nqueues + q);
      put_json(w->out, plan->queues[q].name);
      fputs("}}", w->out);
    }
}

/* Returns the thread of a firing. Firings of a thread do not overlap, so a queue has as many
 * threads as it needs. */
static int32_t thread_of(const writer *w, int64_t i) {
  return w->a->shelf[i] * w->a->plan->nqueues +
         w->a->plan->actors[w->a->firings[i].record.actor].queue;
}

static void put_firing(writer *w, int64_t i) {
  const sl_plan *plan = w->a->plan;
  const sl_trace_firing *f = &w->a->firings[i];
  const sl_actor *x = &plan->actors[f->record.actor];
  const cause *c = &w->a->causes[i];
  chrome_begin(w);
  fputs("{\"ph\":\"X\",\"name\":", w->out);
  put_json(w->out, x->name);
  fprintf(w->out, ",\"cat\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":", sl_class_letter(x->cls),
          plan->queues[x->queue].device, thread_of(w, i));
  put_us(w->out, f->record.start_ns);
  fputs(",\"dur\":", w->out);
  put_us(w->out, f->record.end_ns - f->record.start_ns);
  fprintf(w->out,
          ",\"args\":{\"step\":%" PRId64
          ",\"microbatch\":%d,\"piece\":%d,\"stage\":%d,"
          "\"chunk\":%d,\"waited for\":\"%s\"",
          f->tick.step, f->tick.microbatch, f->tick.piece, x->stage, x->chunk,
          sl_wait_name((sl_wait)f->record.wait));
  if (c->reg >= 0) {
    fputs(",\"register\":", w->out);
    put_json(w->out, plan->regs[c->reg].name);
  }
  fputs("}}", w->out);
}

/* ---- arrows ---------------------------------------------------------------------------- */

static void put_arrow_end(writer *w, char phase, int32_t reg, size_t id, int64_t firing,
                          uint64_t ns) {
  const sl_plan *plan = w->a->plan;
  int32_t queue = plan->actors[w->a->firings[firing].record.actor].queue;
  chrome_begin(w);
  fprintf(w->out, "{\"ph\":\"%c\",\"cat\":\"register\",\"id\":%zu,\"name\":", phase, id);
  put_json(w->out, plan->regs[reg].name);
  fprintf(w->out, ",\"pid\":%d,\"tid\":%d%s,\"ts\":", plan->queues[queue].device,
          thread_of(w, firing), phase == 'f' ? ",\"bp\":\"e\"" : "");
  put_us(w->out, ns);
  fputs("}", w->out);
}

/* Draws arrows from the firing that made a slot ready to the one that waited for it last. Thousands
 * of arrows on which nothing waited are omitted. */
static void put_arrows(writer *w) {
  for (size_t i = 0; i < w->a->nfirings; i++) {
    const cause *c = &w->a->causes[i];
    if (c->wait != SL_WAIT_INPUT || c->by < 0 || !is_chosen(w, (int64_t)i) || !is_chosen(w, c->by))
      continue;
    const sl_trace_record *from = &w->a->firings[c->by].record, *to = &w->a->firings[i].record;
    uint64_t leaves = from->end_ns > from->start_ns ? from->end_ns - 1 : from->end_ns;
    put_arrow_end(w, 's', c->reg, i, c->by, leaves);
    put_arrow_end(w, 'f', c->reg, i, (int64_t)i, to->start_ns);
  }
}

/* ---- counters --------------------------------------------------------------------------- */

static void put_counter(void *ctx, int32_t device, const char *name, bool of_bytes,
                        const sample *all, size_t count) {
  writer *w = ctx;
  (void)of_bytes;
  for (size_t i = 0; i < count; i++) {
    chrome_begin(w);
    fputs("{\"ph\":\"C\",\"name\":", w->out);
    put_json(w->out, name);
    fprintf(w->out, ",\"pid\":%d,\"ts\":", device);
    put_us(w->out, all[i].ns);
    fprintf(w->out, ",\"args\":{\"value\":%" PRId64 "}}", all[i].value);
  }
}

sl_status command_chrome(const sl_trace *t, const options *o, FILE *out) {
  analysis *a = analysis_create(t);
  writer w = {.a = a, .out = out, .o = o};
  fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
  put_names(&w);
  for (size_t i = 0; i < a->nfirings; i++)
    if (is_chosen(&w, (int64_t)i)) put_firing(&w, (int64_t)i);
  put_arrows(&w);
  each_curve(a, o->device, put_counter, &w);
  fputs("\n]}\n", out);
  analysis_destroy(a);
  return SL_OK;
}
