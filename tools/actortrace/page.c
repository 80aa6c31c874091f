/* SPDX-License-Identifier: Apache-2.0 */
/* actortrace page: the trace as one self-contained HTML file.
 *
 * The page's own parts (tools/actortrace/page) are text in the program. Its data are one JSON
 * object for names, and streams of numbers. Each stream is base64 text of variable-length
 * integers, seven bits a byte, with zigzag signs and times as differences. 200,000 firings take
 * a few megabytes. */
#include "tools/actortrace/actortrace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

extern const char page_html[], page_css[], page_js[]; /* made by CMake from page/ */

/* ---- streams ------------------------------------------------------------------------ */

typedef struct stream {
  unsigned char *bytes;
  size_t count, capacity;
} stream;

static void put_number(stream *s, int64_t value) {
  uint64_t v = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
  do {
    SLI_GROW(s->bytes, s->count, s->capacity);
    s->bytes[s->count++] = (unsigned char)((v & 127) | (v > 127 ? 128 : 0));
    v >>= 7;
  } while (v);
}

static void print_stream(FILE *out, const char *name, stream *s) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  fprintf(out, ",\n\"%s\":\"", name);
  for (size_t i = 0; i < s->count; i += 3) {
    size_t left = SLI_MIN(s->count - i, (size_t)3);
    uint32_t bits = (uint32_t)s->bytes[i] << 16 | (left > 1 ? (uint32_t)s->bytes[i + 1] << 8 : 0) |
                    (left > 2 ? s->bytes[i + 2] : 0);
    for (size_t k = 0; k < 4; k++) fputc(k <= left ? digits[bits >> (18 - 6 * k) & 63] : '=', out);
  }
  fputc('"', out);
  free(s->bytes);
}

/* Appends a time as the difference from the last one. */
static void put_time(stream *s, uint64_t ns, uint64_t *last) {
  put_number(s, (int64_t)(ns - *last));
  *last = ns;
}

static void print_firings(FILE *out, const char *name, const sl_trace_firing *f, size_t count) {
  stream s = {0};
  uint64_t last = 0;
  for (size_t i = 0; i < count; i++) {
    put_time(&s, f[i].record.start_ns, &last);
    put_number(&s, (int64_t)(f[i].record.end_ns - f[i].record.start_ns));
    put_number(&s, f[i].record.actor);
    put_number(&s, f[i].tick.step);
    put_number(&s, f[i].tick.microbatch);
    put_number(&s, f[i].tick.piece);
    put_number(&s, f[i].rows);
  }
  print_stream(out, name, &s);
}

/* Prints idle pieces device by device: start, length, reason, register, firing. */
static void print_idle(FILE *out, const analysis *a) {
  stream s = {0};
  for (int32_t d = 0; d < a->plan->ndevices; d++) {
    const line *l = &a->lines[d];
    int64_t count = 0;
    for (size_t i = 0; i < l->count; i++) count += l->pieces[i].wait != SL_WAIT_NONE;
    put_number(&s, count);
    uint64_t last = 0;
    for (size_t i = 0; i < l->count; i++) {
      const piece *p = &l->pieces[i];
      if (p->wait == SL_WAIT_NONE) continue;
      put_time(&s, p->from_ns, &last);
      put_number(&s, (int64_t)(p->to_ns - p->from_ns));
      put_number(&s, p->wait);
      put_number(&s, p->reg);
      put_number(&s, p->firing);
    }
  }
  print_stream(out, "idle", &s);
}

/* Prints for each register how many slots were in use at the start, then when each was taken and
 * how long it was held (-1: never freed). */
static void print_holds(FILE *out, const analysis *a) {
  stream s = {0};
  for (int32_t r = 0; r < a->plan->nregs; r++) {
    const sl_register *g = &a->plan->regs[r];
    size_t begin = a->first_hold[r], end = g->held ? begin : a->first_hold[r + 1];
    bool always = g->held || (begin == end && g->initial);
    put_number(&s, always ? SLI_MAX(g->initial, 1) : 0);
    put_number(&s, (int64_t)(end - begin));
    uint64_t last = 0;
    for (size_t h = begin; h < end; h++) {
      const hold *x = &a->holds[h];
      put_time(&s, x->taken_ns, &last);
      put_number(&s, x->freed_ns == UINT64_MAX ? -1 : (int64_t)(x->freed_ns - x->taken_ns));
    }
  }
  print_stream(out, "holds", &s);
}

/* ---- names --------------------------------------------------------------------------- */

static void print_plan(FILE *out, const analysis *a) {
  const sl_plan *plan = a->plan;
  fputs(",\n\"devices\":[", out);
  for (int32_t i = 0; i < plan->ndevices; i++) {
    fputs(i ? ",[" : "[", out);
    put_json(out, plan->devices[i].name);
    fprintf(out, ",%zu,%zu]", sl_device_bytes(&plan->devices[i]),
            plan->devices[i].room[SL_SPACE_DEVICE].workspace_bytes);
  }
  fputs("],\n\"queues\":[", out);
  for (int32_t i = 0; i < plan->nqueues; i++) {
    fputs(i ? ",[" : "[", out);
    put_json(out, plan->queues[i].name);
    fprintf(out, ",%d,%d]", plan->queues[i].device, a->work_queue[i]);
  }
  fputs("],\n\"registers\":[", out);
  for (int32_t i = 0; i < plan->nregs; i++) {
    const sl_register *r = &plan->regs[i];
    fputs(i ? ",[" : "[", out);
    put_json(out, r->name);
    fputc(',', out);
    put_json(out, r->quota_name);
    fprintf(out, ",%d,%d,%d,%zu]", r->device, r->producer, r->quota, sl_slot_device_bytes(r));
  }
  fputs("],\n\"actors\":[", out);
  for (int32_t i = 0; i < plan->nactors; i++) {
    const sl_actor *x = &plan->actors[i];
    fputs(i ? ",[" : "[", out);
    put_json(out, x->name);
    fprintf(out, ",%d,%d,%d]", x->cls, x->queue, x->stage);
  }
  fputs("]", out);
}

static void print_facts(FILE *out, const sl_trace *t, const char *path) {
  const char *slash = strrchr(path, '/');
  fputs("{\"name\":", out);
  put_json(out, slash ? slash + 1 : path);
  fprintf(out,
          ",\"virtual\":%d,\"microbatches\":%d,\"pieces\":%d,\"dropped\":%" PRIu64
          ",\"truncated\":%d,\"damaged\":%d,\"waits\":[",
          t->clock == SL_CLOCK_VIRTUAL, t->plan->microbatches, t->plan->pieces, t->dropped,
          t->truncated, t->damaged);
  for (int w = 0; w < SL_WAIT_COUNT; w++) {
    if (w) fputc(',', out);
    put_json(out, sl_wait_name((sl_wait)w));
  }
  fputs("],\"classes\":\"", out);
  for (int c = 0; c < SL_CLASS_COUNT; c++) fputc(sl_class_letter((sl_class)c), out);
  fputs("\",\"classNames\":[", out);
  for (int c = 0; c < SL_CLASS_COUNT; c++) {
    if (c) fputc(',', out);
    put_json(out, class_label(t->plan, (sl_class)c));
  }
  fputc(']', out);
}

/* ---- counters of steps ----------------------------------------------------------------- */

static void print_counts(FILE *out, int64_t n, const double *counts) {
  fputc('[', out);
  for (int64_t i = 0; i < n; i++) fprintf(out, i ? ",%.9g" : "%.9g", counts[i]);
  fputc(']', out);
}

static void print_counters(FILE *out, const sl_trace *t) {
  fputs(",\n\"tallies\":[", out);
  for (int i = 0; i < t->ncounters; i++) {
    const sl_trace_counter *x = &t->counters[i];
    fputs(i ? ",[" : "[", out);
    put_json(out, x->name);
    fputc(',', out);
    print_counts(out, x->n, x->sum);
    fputc(',', out);
    print_counts(out, x->n, x->last);
    fputc(']', out);
  }
  fputc(']', out);
}

/* ---- predicted steps ------------------------------------------------------------------- */

/* Simulates a few steps of the plan with the median durations. The page shows one of them beside
 * each measured step. */
static void print_replay(FILE *out, const sl_trace *t) {
  enum { STEPS = 3 };
  double *seconds = measured_seconds(t);
  replay r;
  if (!t->nfirings || replay_run(t->plan, seconds, NULL, STEPS, &r)) {
    free(seconds);
    return;
  }
  sl_trace_record *records;
  size_t count = sl_runtime_trace(r.simulation.rt, &records, NULL), n = 0;
  sl_trace_firing *firings = sli_calloc(count + 1, sizeof *firings);
  for (size_t i = 0; i < count; i++) {
    sl_tick tick = sl_plan_tick(t->plan, records[i].actor, records[i].firing);
    if (tick.step == 1) firings[n++] = (sl_trace_firing){records[i], tick, SL_NONE};
  }
  print_firings(out, "replay", firings, n);
  free(firings);
  free(records);
  free(seconds);
  replay_fini(&r);
}

/* ---- the page ------------------------------------------------------------------------------ */

static void print_data(FILE *out, const analysis *a, const options *o) {
  print_facts(out, a->trace, o->path);
  print_plan(out, a);
  print_firings(out, "firings", a->firings, a->nfirings);
  print_idle(out, a);
  print_holds(out, a);
  print_replay(out, a->trace);
  print_counters(out, a->trace);
  fputs("}", out);
}

/* Prints the page with its placeholders filled: @CSS@, @DATA@, @JS@. */
sl_status command_page(const sl_trace *t, const options *o, FILE *out) {
  analysis *a = analysis_create(t);
  for (const char *c = page_html; *c;) {
    const char *place = strchr(c, '@');
    if (!place) {
      fputs(c, out);
      break;
    }
    fwrite(c, 1, (size_t)(place - c), out);
    c = place + 1;
    if (!strncmp(c, "CSS@", 4)) fputs(page_css, out), c += 4;
    else if (!strncmp(c, "JS@", 3)) fputs(page_js, out), c += 3;
    else if (!strncmp(c, "DATA@", 5)) print_data(out, a, o), c += 5;
    else fputc('@', out);
  }
  analysis_destroy(a);
  return SL_OK;
}
