/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/schedules.h"

#include <string.h>

#include "base/base.h"
#include "models/models.h"
#include "tests/support/test.h"

/* ---- a model on modelled devices ------------------------------------------------ */

static const sl_model *find_model(const char *name) {
  for (const sl_model *const *m = sli_models; *m; m++)
    if (!strcmp((*m)->name, name)) return *m;
  CHECK(false, "there is a model %s", name);
  return NULL;
}

/* Returns the number of stages of a run: the schedule's chunks unless the options say otherwise. */
static int count_stages(const sl_lower_options *o) {
  const char *name = o->schedule.name ? o->schedule.name : "1f1b";
  bool open = !strcmp(name, "auto");
  return o->parallel.stages * (o->schedule.chunks ? o->schedule.chunks
                               : open             ? 3
                                                  : sl_schedule_chunks(name));
}

sl_status lowered_model_init(lowered_model *x, const char *model, char *const *words, int m, int k,
                             const sl_lower_options *options) {
  const sl_model *found = find_model(model);
  *x = (lowered_model){0};
  CHECK(!sl_args_create(found->options, &x->args), "%s", sl_detail());
  for (int used; words && *words; words += used)
    CHECK(!sl_args_take(x->args, 2, words, &used) && used, "option %s", *words);
  x->graph = sl_graph_create(
      &(sl_graph_options){.microbatches = m, .pieces = k, .stages = count_stages(options)});
  CHECK(!found->build(x->graph, x->args), "%s", sl_detail());
  sl_status status = sl_lower(x->graph, options, &x->lowered);
  if (!status) x->plan = sl_lowered_plan(x->lowered);
  return status;
}

void lowered_model_fini(lowered_model *x) {
  sl_lowered_destroy(x->lowered);
  sl_graph_destroy(x->graph);
  sl_args_destroy(x->args);
}

void pipeline_init(lowered_model *x, int m, int k, const sl_lower_options *options) {
  sl_lower_options o = *options;
  o.devices.kind = "timed";
  CHECK(!lowered_model_init(x, "pipeline", NULL, m, k, &o), "%s: %s", o.schedule.name, sl_detail());
}

/* ---- durations by stage ---------------------------------------------------------- */

/* Returns an op's seconds. Ops of chunk s are named chunk.s/linear.1, and their gradients
 * chunk.s/linear.1:linear_x and :linear_w. The first linear represents all. */
double stage_op_seconds(void *ctx, const char *op) {
  const stage_seconds *seconds = ctx;
  int stage, length = 0;
  if (sscanf(op, "chunk.%d/linear.1%n", &stage, &length) != 1 || !length) return 0;
  CHECK(stage < seconds->stages, "op %s is of a stage there is", op);
  const char *rest = op + length;
  sl_class cls = !*rest ? SL_CLASS_F : !strcmp(rest, ":linear_w") ? SL_CLASS_W : SL_CLASS_B;
  return *rest && strncmp(rest, ":linear_", 8) ? 0 : seconds->of[stage][cls];
}

/* ---- timetables ------------------------------------------------------------------- */

static timetable timetable_new(int p, int most) {
  timetable t = {p, sli_calloc((size_t)p, sizeof *t.n), sli_calloc((size_t)p, sizeof *t.passes)};
  for (int d = 0; d < p; d++) t.passes[d] = sli_calloc((size_t)most, sizeof **t.passes);
  return t;
}

void timetable_free(timetable *t) {
  for (int d = 0; d < t->p; d++) free(t->passes[d]);
  free(t->passes);
  free(t->n);
}

static double device_span(const timetable *t, int d) {
  double last = 0;
  for (int i = 0; i < t->n[d]; i++) last = SLI_MAX(last, t->passes[d][i].end);
  return last - t->passes[d][0].start;
}

static double device_busy(const timetable *t, int d) {
  double busy = 0;
  for (int i = 0; i < t->n[d]; i++) busy += t->passes[d][i].end - t->passes[d][i].start;
  return busy;
}

double timetable_span(const timetable *t) {
  double span = 0;
  for (int d = 0; d < t->p; d++) span = SLI_MAX(span, device_span(t, d));
  return span;
}

double timetable_bubble(const timetable *t) {
  double busy = 0;
  for (int d = 0; d < t->p; d++) busy += device_busy(t, d) / t->p;
  return 1 - busy / timetable_span(t);
}

double timetable_idle(const timetable *t) {
  double idle = 0;
  for (int d = 0; d < t->p; d++) idle = SLI_MAX(idle, device_span(t, d) - device_busy(t, d));
  return idle;
}

char *timetable_text(const timetable *t, int device) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  for (int i = 0; i < t->n[device]; i++)
    fprintf(out, "%s%c%d", i ? " " : "", t->passes[device][i].cls, t->passes[device][i].stage);
  fclose(out);
  return text;
}

/* ---- measuring ----------------------------------------------------------------------- */

static int64_t step_firings(const sl_plan *plan) {
  int64_t sum = 0;
  for (int32_t i = 0; i < plan->nactors; i++) sum += plan->actors[i].firings_per_step;
  return sum;
}

static bool is_pass(const sl_actor *a) {
  return a->stage != SL_NONE &&
         (a->cls == SL_CLASS_F || a->cls == SL_CLASS_B || a->cls == SL_CLASS_W);
}

static void keep_pass(timetable *t, const sl_plan *plan, const sl_trace_record *r, uint64_t begin) {
  const sl_actor *a = &plan->actors[r->actor];
  int d = plan->queues[a->queue].device;
  sl_tick tick = sl_plan_tick(plan, r->actor, r->firing);
  t->passes[d][t->n[d]++] =
      (pass){sl_class_letter(a->cls), a->stage, tick.microbatch * plan->pieces + tick.piece,
             (double)(r->start_ns - begin) * 1e-9, (double)(r->end_ns - begin) * 1e-9};
}

static timetable step_one(const sl_plan *plan, const sl_runtime *rt) {
  sl_trace_record *records;
  uint64_t dropped, begin = 0;
  size_t n = sl_runtime_trace(rt, &records, &dropped);
  bool begun = false;
  CHECK(!dropped, "the ring holds the whole run");
  timetable t = timetable_new(plan->ndevices, (int)step_firings(plan));
  for (size_t i = 0; i < n; i++) {
    const sl_actor *a = &plan->actors[records[i].actor];
    if (!is_pass(a) || records[i].firing / a->firings_per_step != 1) continue;
    if (!begun) begin = records[i].start_ns, begun = true;
    keep_pass(&t, plan, &records[i], begin);
  }
  free(records);
  return t;
}

timetable measure(const sl_plan *plan, uint64_t jitter_seed, uint64_t jitter_ns, double *peak) {
  enum { STEPS = 2 };
  sl_runtime *rt;
  sl_runtime_options options = {.clock = SL_CLOCK_VIRTUAL,
                                .no_data = true,
                                .trace_records = (size_t)step_firings(plan) * STEPS,
                                .jitter_seed = jitter_seed,
                                .jitter_ns = jitter_ns};
  CHECK(!sl_runtime_create(plan, &options, &rt), "%s", sl_detail());
  CHECK(!sl_runtime_run(rt, STEPS), "%s", sl_detail());
  timetable t = step_one(plan, rt);
  *peak = 0;
  for (int32_t d = 0; d < plan->ndevices; d++)
    *peak = SLI_MAX(*peak, sl_runtime_peak_activations(rt, d));
  for (int32_t i = 0; i < plan->nregs; i++)
    CHECK(sl_runtime_peak_slots(rt, i) <= plan->regs[i].quota, "%s had %d slots in use, of %d",
          plan->regs[i].name, sl_runtime_peak_slots(rt, i), plan->regs[i].quota);
  sl_runtime_destroy(rt);
  return t;
}

/* ---- replaying ------------------------------------------------------------------------- */

/* Ends of passes so far, by class, stage and number; and the devices of stages. */
typedef struct known {
  int stages, numbers;
  double *end; /* [3][stages][numbers], negative: not known yet */
  double *length;
  int *device; /* [stages] */
  double comm;
} known;

static size_t index_of(const known *k, char cls, int stage, int number) {
  size_t c = cls == 'F' ? 0 : cls == 'B' ? 1 : 2;
  return (c * (size_t)k->stages + (size_t)stage) * (size_t)k->numbers + (size_t)number;
}

static known known_new(const timetable *t, double comm) {
  known k = {.comm = comm};
  for (int d = 0; d < t->p; d++)
    for (int i = 0; i < t->n[d]; i++) {
      k.stages = SLI_MAX(k.stages, t->passes[d][i].stage + 1);
      k.numbers = SLI_MAX(k.numbers, t->passes[d][i].number + 1);
    }
  size_t n = 3 * (size_t)k.stages * (size_t)k.numbers;
  k.end = sli_calloc(n, sizeof *k.end);
  k.length = sli_calloc(n, sizeof *k.length);
  k.device = sli_calloc((size_t)k.stages, sizeof *k.device);
  for (size_t i = 0; i < n; i++) k.end[i] = -1;
  for (int d = 0; d < t->p; d++)
    for (int i = 0; i < t->n[d]; i++) {
      const pass *x = &t->passes[d][i];
      k.device[x->stage] = d;
      k.length[index_of(&k, x->cls, x->stage, x->number)] = x->end - x->start;
    }
  return k;
}

/* Returns when a pass's result arrives at a stage, or negative if unknown. Stages that do not
 * exist provide their results at once. */
static double arrival(const known *k, char cls, int stage, int number, int to) {
  if (stage < 0 || stage >= k->stages) return 0;
  double end = k->end[index_of(k, cls, stage, number)];
  return end < 0 || k->device[stage] == k->device[to] ? end : end + k->comm;
}

/* Returns when a pass's inputs allow it to start, or negative if unknown. */
static double inputs_at(const known *k, const pass *x) {
  if (x->cls == 'F') return arrival(k, 'F', x->stage - 1, x->number, x->stage);
  if (x->cls == 'W') return arrival(k, 'B', x->stage, x->number, x->stage);
  double own = arrival(k, 'F', x->stage, x->number, x->stage);
  double later = arrival(k, 'B', x->stage + 1, x->number, x->stage);
  return own < 0 || later < 0 ? -1 : SLI_MAX(own, later);
}

/* Places passes of device d until one has to wait for another device. */
static bool place(known *k, const timetable *order, timetable *out, int d, double *free_at) {
  bool any = false;
  while (out->n[d] < order->n[d]) {
    pass x = order->passes[d][out->n[d]];
    double at = inputs_at(k, &x);
    if (at < 0) break;
    size_t i = index_of(k, x.cls, x.stage, x.number);
    x.start = SLI_MAX(at, *free_at);
    *free_at = x.end = k->end[i] = x.start + k->length[i];
    out->passes[d][out->n[d]++] = x;
    any = true;
  }
  return any;
}

timetable replay(const timetable *order, const timetable *durations, double comm) {
  known k = known_new(durations, comm);
  int most = 0;
  for (int d = 0; d < order->p; d++) most = SLI_MAX(most, order->n[d]);
  timetable out = timetable_new(order->p, most);
  double *free_at = sli_calloc((size_t)order->p, sizeof *free_at);
  for (bool any = true; any;) {
    any = false;
    for (int d = 0; d < order->p; d++) any |= place(&k, order, &out, d, &free_at[d]);
  }
  for (int d = 0; d < order->p; d++)
    CHECK(out.n[d] == order->n[d], "device %d of the replay stops at pass %d", d, out.n[d]);
  free(free_at);
  free(k.end);
  free(k.length);
  free(k.device);
  return out;
}

/* ---- published orders -------------------------------------------------------------------- */

static void put(timetable *t, int d, char cls, int stage, int number) {
  t->passes[d][t->n[d]++] = (pass){.cls = cls, .stage = stage, .number = number};
}

timetable gpipe_order(int p, int m) {
  timetable t = timetable_new(p, 2 * m);
  for (int d = 0; d < p; d++) {
    for (int i = 0; i < m; i++) put(&t, d, 'F', d, i);
    for (int i = 0; i < m; i++) put(&t, d, 'B', d, i);
  }
  return t;
}

/* Appends `warm` forwards, then pairs of a forward and a backward, then backwards. */
static void put_warm_steady_cool(timetable *t, int d, int m, int warm) {
  warm = SLI_MIN(warm, m);
  for (int i = 0; i < warm; i++) put(t, d, 'F', d, i);
  for (int i = 0; i < m - warm; i++) {
    put(t, d, 'F', d, warm + i);
    put(t, d, 'B', d, i);
  }
  for (int i = m - warm; i < m; i++) put(t, d, 'B', d, i);
}

timetable one_f_one_b_order(int p, int m) {
  timetable t = timetable_new(p, 2 * m);
  for (int d = 0; d < p; d++) put_warm_steady_cool(&t, d, m, p - 1 - d);
  return t;
}

timetable eager_order(int p, int m) {
  timetable t = timetable_new(p, 2 * m);
  for (int d = 0; d < p; d++) put_warm_steady_cool(&t, d, m, 2 * (p - 1 - d));
  return t;
}

/* Appends the i-th of a device's forwards, or of its backwards. */
static void put_virtual(timetable *t, int d, int v, char cls, int i) {
  int p = t->p, chunk = i / p % v, number = i / (p * v) * p + i % p;
  if (cls == 'B') chunk = v - 1 - chunk;
  put(t, d, cls, chunk * p + d, number);
}

timetable interleaved_order(int p, int v, int m) {
  timetable t = timetable_new(p, 2 * m * v);
  for (int d = 0; d < p; d++) {
    int all = m * v, warm = m == p ? all : SLI_MIN(2 * (p - 1 - d) + (v - 1) * p, all);
    for (int i = 0; i < warm; i++) put_virtual(&t, d, v, 'F', i);
    for (int i = 0; i < all - warm; i++) {
      put_virtual(&t, d, v, 'F', warm + i);
      put_virtual(&t, d, v, 'B', i);
    }
    for (int i = all - warm; i < all; i++) put_virtual(&t, d, v, 'B', i);
  }
  return t;
}

timetable zb_h1_order(int p, int m) {
  timetable t = timetable_new(p, 3 * m);
  for (int d = 0; d < p; d++) {
    int warm = SLI_MIN(p - 1 - d, m), w = 0;
    for (int i = 0; i < warm; i++) put(&t, d, 'F', d, i);
    for (int i = 0; i < m; i++) {
      if (warm + i < m) put(&t, d, 'F', d, warm + i);
      put(&t, d, 'B', d, i);
      if (i >= d) put(&t, d, 'W', d, w++);
    }
    while (w < m) put(&t, d, 'W', d, w++);
  }
  return t;
}

timetable seq1f1b_order(int p, int m, int k) {
  timetable t = timetable_new(p, 2 * m * k);
  for (int d = 0; d < p; d++) {
    int warm = SLI_MIN(p - 1 - d + k - 1, m * k);
    for (int i = 0; i < m * k + warm; i++) {
      int b = i - warm;
      if (i < m * k) put(&t, d, 'F', d, i);
      if (b >= 0) put(&t, d, 'B', d, b / k * k + k - 1 - b % k);
    }
  }
  return t;
}
