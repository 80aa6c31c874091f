/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/actortune/machine/probe.h"

#include <stdlib.h>
#include <string.h>

#include <sluice/lower.h>
#include <sluice/runtime.h>
#include <sluice/state.h>

#include "base/base.h"

/* ---- the model ------------------------------------------------------------------------------- */

/* Token data with arbitrary values. */
typedef struct text {
  sl_source source;
  sl_type types[2];
  int64_t count, vocab;
} text;

static void probe_fill(void *ctx, const sl_tick *tick, void *const *out) {
  const text *t = ctx;
  for (int o = 0; o < 2; o++)
    for (int64_t i = 0; i < t->count && out[o]; i++)
      ((int32_t *)out[o])[i] = (int32_t)((i * 7919 + tick->number + o) % t->vocab);
}

static sl_tensor *add_text(sl_graph *g, int64_t rows, int64_t context, int64_t vocab,
                           sl_tensor **next) {
  text *t = sl_graph_alloc(g, sizeof *t);
  sl_tensor *out[2];
  t->count = rows * context, t->vocab = vocab;
  t->types[0] = t->types[1] = SL_TYPE(SL_I32, rows, context);
  t->source = (sl_source){.nout = 2, .types = t->types, .fill = probe_fill, .ctx = t};
  sl_data(g, &t->source, out);
  *next = out[1];
  return out[0];
}

/* Returns whether a layer is a GPT block. The head is LLaMA's. */
static bool is_gpt(const probe *p, int layer) { return layer < p->layers && layer % 2; }

static sl_tensor *linear(sl_graph *g, const probe *p, sl_tensor *x, int64_t in, int64_t out,
                         int layer, const char *name) {
  bool gpt = is_gpt(p, layer);
  sl_type type = gpt ? SL_TYPE(SL_F32, in, out) : SL_TYPE(SL_F32, out, in);
  sl_tensor *w = sl_param(g, type, SL_NORMAL(0.02f), "%d.%s.w", layer, name);
  if (!gpt) return sl_linear(g, x, w, NULL);
  sl_tensor *b = sl_param(g, SL_TYPE(SL_F32, out), SL_CONSTANT(0), "%d.%s.b", layer, name);
  return sl_linear_transposed(g, x, w, b);
}

static sl_tensor *norm(sl_graph *g, const probe *p, sl_tensor *x, int layer, const char *name) {
  sl_tensor *gain = sl_param(g, SL_TYPE(SL_F32, p->width), SL_CONSTANT(1), "%d.%s.g", layer, name);
  if (!is_gpt(p, layer)) return sl_rmsnorm(g, x, gain, 1e-5f);
  sl_tensor *bias = sl_param(g, SL_TYPE(SL_F32, p->width), SL_CONSTANT(0), "%d.%s.b", layer, name);
  return sl_layernorm(g, x, gain, bias, 1e-5f);
}

static sl_tensor *attend(sl_graph *g, const probe *p, sl_tensor *x, int layer) {
  const sl_attention_attrs attrs = {.heads = p->heads, .kv_heads = p->heads};
  int64_t C = p->width;
  if (is_gpt(p, layer))
    return sl_attend_packed_within(g, linear(g, p, x, C, 3 * C, layer, "qkv"), NULL, &attrs);
  sl_tensor *q = sl_rotary(g, linear(g, p, x, C, C, layer, "q"), p->heads, 1e4f);
  sl_tensor *k = sl_rotary(g, linear(g, p, x, C, C, layer, "k"), p->heads, 1e4f);
  return sl_attend_within(g, q, k, linear(g, p, x, C, C, layer, "v"), NULL, &attrs);
}

static sl_tensor *add_block(sl_graph *g, const probe *p, sl_tensor *x, int layer) {
  int64_t C = p->width, N = p->inner;
  sl_block(g, "h.%d", layer);
  if (p->heads)
    x = sl_add(g, x,
               linear(g, p, attend(g, p, norm(g, p, x, layer, "1"), layer), C, C, layer, "o"));
  sl_tensor *y = norm(g, p, x, layer, "2"), *up = linear(g, p, y, C, N, layer, "up");
  if (is_gpt(p, layer)) up = sl_gelu(g, up);
  else up = sl_swiglu(g, linear(g, p, y, C, N, layer, "gate"), up);
  return sl_add(g, x, linear(g, p, up, N, C, layer, "down"));
}

static sl_graph *make_graph(const probe *p, int groups) {
  sl_graph *g =
      sl_graph_create(&(sl_graph_options){.microbatches = p->microbatches, .stages = p->stages});
  sl_tensor *next, *ids = add_text(g, p->rows * groups, p->context, p->vocab, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, p->vocab, p->width), SL_NORMAL(0.02f), "table");
  sl_tensor *places =
      sl_param(g, SL_TYPE(SL_F32, p->context, p->width), SL_NORMAL(0.02f), "places");
  sl_tensor *x = sl_position(g, sl_embedding(g, ids, table), places);
  for (int layer = 0; layer < p->layers; layer++) x = add_block(g, p, x, layer);
  sl_block(g, "head");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, p->vocab, p->width), SL_NORMAL(0.02f), "head");
  sl_train(g, sl_cross_entropy(g, sl_linear(g, norm(g, p, x, p->layers, "f"), head, NULL), next),
           &(sl_optimizer){.lr = 1e-3f, .clip = 1});
  return g;
}

double probe_flops(const probe *p) {
  double tokens = (double)(p->rows * p->context * p->microbatches), C = (double)p->width,
         N = (double)p->inner;
  double each = 2.5 * C * N + (p->heads ? 4 * C * C + C * (double)p->context : 0);
  return 6 * tokens * (p->layers * each + C * (double)p->vocab);
}

/* ---- calls of one shape ---------------------------------------------------------------------- */

/* A class of calls with the same op and shapes. */
typedef struct alike {
  sample is;
  double *seconds;  /* [steps] mean seconds of a call, in each step */
  double ns, calls; /* totals of the current step */
} alike;

typedef struct watched {
  const sl_program_call *call;
  size_t alike;
  bool pass;
  uint64_t ns, calls; /* totals so far */
  double fastest;     /* seconds of a call in its fastest step; 0 if not called yet */
  double now, quiet;  /* mean seconds of a call in the current step, and in the quietest step */
} watched;

typedef struct watch {
  int steps, done;
  double so_far, quietest; /* seconds of all calls so far, and in the quietest step */
  size_t count, capacity;
  alike *items;
  size_t ncalls, room;
  watched *calls;
} watch;

static sample shape_of(const sl_program_call *c, int devices) {
  const sl_hardware busy = {.busy = devices};
  const sli_work work = sli_work_of_call(c);
  sample s = {.op = c->op->name};
  for (int t = 0; t < SLI_TRAITS; t++) s.has[t] = sli_work_has(&work, (sli_trait)t);
  for (int a = 0; a < SL_CURVE_AXES; a++) s.at[a] = sli_work_along(&busy, &work, (sl_curve_axis)a);
  return s;
}

static bool is_alike(const sample *a, const sample *b) {
  return !strcmp(a->op, b->op) && !memcmp(a->has, b->has, sizeof a->has) &&
         !memcmp(a->at, b->at, sizeof a->at);
}

static size_t find_alike(watch *w, const sample *is) {
  for (size_t i = 0; i < w->count; i++)
    if (is_alike(&w->items[i].is, is)) return i;
  SLI_GROW(w->items, w->count, w->capacity);
  w->items[w->count] = (alike){.is = *is, .seconds = sli_calloc((size_t)w->steps, sizeof(double))};
  return w->count++;
}

static void watch_calls(watch *w, const sl_plan *plan, int devices) {
  for (int32_t a = 0; a < plan->nactors; a++) {
    const sl_program *program = plan->actors[a].program;
    for (int c = 0; program && c < program->ncalls; c++) {
      const sl_program_call *call = &program->calls[c];
      if (!call->time || !call->nout) continue;
      const sample is = shape_of(call, devices);
      SLI_GROW(w->calls, w->ncalls, w->room);
      w->calls[w->ncalls++] = (watched){
          .call = call, .alike = find_alike(w, &is), .pass = plan->actors[a].cls <= SL_CLASS_W};
    }
  }
}

static void watch_fini(watch *w) {
  for (size_t i = 0; i < w->count; i++) free(w->items[i].seconds);
  free(w->items);
  free(w->calls);
}

/* Returns the seconds of all calls so far, and the part spent in passes in *passes. */
static double seconds_so_far(const watch *w, double *passes) {
  double all = 0;
  *passes = 0;
  for (size_t i = 0; i < w->ncalls; i++) {
    double seconds = (double)w->calls[i].call->time->ns * 1e-9;
    all += seconds;
    if (w->calls[i].pass) *passes += seconds;
  }
  return all;
}

/* Updates a call with its time since the last step. */
static void take_call(watch *w, watched *c, bool warm) {
  const sl_call_time *t = c->call->time;
  double ns = (double)(t->ns - c->ns), calls = (double)(t->calls - c->calls);
  c->ns = t->ns, c->calls = t->calls;
  c->now = calls > 0 ? ns * 1e-9 / calls : 0;
  if (warm || calls <= 0) return;
  if (c->fastest <= 0 || c->now < c->fastest) c->fastest = c->now;
  w->items[c->alike].ns += ns, w->items[c->alike].calls += calls;
}

static void keep_step(watch *w, double seconds) {
  w->quietest = seconds;
  for (size_t i = 0; i < w->ncalls; i++) w->calls[i].quiet = w->calls[i].now;
}

/* Records the time of all calls since the last step, as step w->done. */
static void take_step(watch *w, bool warm) {
  for (size_t i = 0; i < w->count; i++) w->items[i].ns = w->items[i].calls = 0;
  double passes, before = w->so_far;
  for (size_t i = 0; i < w->ncalls; i++) take_call(w, &w->calls[i], warm);
  w->so_far = seconds_so_far(w, &passes);
  if (warm) return;
  if (!w->done || w->so_far - before < w->quietest) keep_step(w, w->so_far - before);
  for (size_t i = 0; i < w->count; i++)
    if (w->items[i].calls > 0)
      w->items[i].seconds[w->done] = w->items[i].ns * 1e-9 / w->items[i].calls;
  w->done++;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sets the mean over the calls of one class, each in its fastest step, and the mean in the quietest
 * step of all. Calls vary with the contents of the caches, steps with other load on the machine. */
static void set_seconds(const watch *w, size_t alike, sample *to) {
  double count = 0;
  to->seconds = to->quiet = 0;
  for (size_t i = 0; i < w->ncalls; i++) {
    const watched *c = &w->calls[i];
    if (c->alike == alike && c->quiet > 0)
      to->seconds += c->fastest, to->quiet += c->quiet, count++;
  }
  if (count > 0) to->seconds /= count, to->quiet /= count;
}

/* Keeps the faster of a sample and an earlier sample of the same call. */
static void keep_sample(samples *to, const sample *s) {
  size_t i = 0;
  while (i < to->count && !is_alike(&to->items[i], s)) i++;
  if (i == to->count) {
    SLI_GROW(to->items, to->count, to->capacity);
    to->items[to->count++] = *s;
  }
  to->items[i].seconds = SLI_MIN(to->items[i].seconds, s->seconds);
  to->items[i].quiet = SLI_MIN(to->items[i].quiet, s->quiet);
  to->items[i].median = SLI_MIN(to->items[i].median, s->median);
}

static void keep_samples(watch *w, samples *to) {
  for (size_t i = 0; i < w->count; i++) {
    alike *a = &w->items[i];
    qsort(a->seconds, (size_t)w->done, sizeof *a->seconds, by_size);
    set_seconds(w, i, &a->is);
    if (!w->done || a->is.seconds <= 0) continue;
    a->is.median = a->seconds[(w->done - 1) / 2];
    keep_sample(to, &a->is);
  }
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct running {
  sl_graph *graph;
  sl_lowered *lowered;
  const sl_plan *plan;
  machine machine;
  sl_runtime *rt;
} running;

static sl_status start(const settings *s, const probe *p, int devices, running *r) {
  settings own = *s;
  int groups = devices / p->stages;
  own.lower.devices.count = devices;
  const sl_lower_options options = {.parallel.stages = p->stages,
                                    .parallel.data = groups,
                                    .devices = own.lower.devices,
                                    .schedule.grain = p->grain,
                                    .numbers.dtype = settings_dtype(s)};
  r->graph = make_graph(p, groups);
  sl_status status = sl_graph_status(r->graph);
  if (!status) status = sl_lower(r->graph, &options, &r->lowered);
  if (!status) status = machine_place(&own, &r->machine);
  if (status) return status;
  r->plan = sl_lowered_plan(r->lowered);
  const sl_runtime_options run = {.bind = machine_bind, .bind_arg = &r->machine};
  status = sl_runtime_create(r->plan, &run, &r->rt);
  if (status) return status;
  sl_lowered_attach(r->lowered, r->rt);
  return sl_params_init(r->lowered, r->rt, 1);
}

static void end(running *r) {
  sl_runtime_destroy(r->rt);
  machine_fini(&r->machine);
  sl_lowered_destroy(r->lowered);
  sl_graph_destroy(r->graph);
}

static double now(void) { return (double)sli_now_ns() * 1e-9; }

/* Runs the steps. The first one is a warm-up. */
static sl_status run_samples(running *r, watch *w, double until) {
  sl_status status = sl_runtime_run(r->rt, 1);
  take_step(w, true);
  while (!status && w->done < w->steps && (w->done < 3 || now() < until)) {
    status = sl_runtime_run(r->rt, 1);
    take_step(w, false);
  }
  return status;
}

static sl_status run_times(running *r, const watch *w, probe_times *out) {
  double passes, passes_before;
  sl_status status = sl_runtime_run(r->rt, 1);
  double before = seconds_so_far(w, &passes_before);
  if (!status) status = sl_runtime_run(r->rt, w->steps);
  if (status) return status;
  double all = seconds_so_far(w, &passes) - before;
  sl_statistics f = sl_runtime_statistics(r->rt);
  *out = (probe_times){.step_seconds = f.step_seconds,
                       .passes_seconds = f.passes_seconds,
                       .call_seconds = all / w->steps,
                       .pass_seconds = (passes - passes_before) / w->steps};
  for (int32_t a = 0; a < r->plan->nactors; a++)
    out->firings += r->plan->actors[a].firings_per_step;
  free(f.devices);
  return SL_OK;
}

sl_status probe_run(const settings *s, const probe *p, int devices, int steps, double seconds,
                    samples *to, probe_times *times) {
  running r = {0};
  watch w = {.steps = steps};
  sl_status status = start(s, p, devices, &r);
  if (!status) watch_calls(&w, r.plan, devices);
  if (!status && to) status = run_samples(&r, &w, now() + seconds);
  if (!status && to) keep_samples(&w, to);
  if (!status && times) status = run_times(&r, &w, times);
  watch_fini(&w);
  end(&r);
  return status;
}
