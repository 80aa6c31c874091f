/* SPDX-License-Identifier: Apache-2.0 */
/* Ticks of a graph that generates: the rows of a tick, guidance, and the solver's step. Attention
 * is in generation_attend.c. */
#include <math.h>
#include <string.h>

#include "graph/build/build.h"
#include "graph/build/generation.h"
#include "ops/ops.h"

sl_generation *sl_graph_generation(const sl_graph *g) { return g->options.generate; }

void sl_generation_features(float level, float out[SL_GENERATION_FEATURES]) {
  enum { HALF = SL_GENERATION_FEATURES / 2 };
  for (int i = 0; i < HALF; i++) {
    double angle = 1000 * (double)level * pow(10000, -(double)i / HALF);
    out[i] = (float)cos(angle);
    out[HALF + i] = (float)sin(angle);
  }
}

/* ---- rows of a tick ------------------------------------------------------------------------ */

static const sl_generation *record_of(const sl_attrs *attrs) { return attrs->user; }

static int64_t rows_of(const sl_generation *how) {
  return (how->frames + how->context) * how->patches;
}

static uint64_t generation_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_generation *h = record_of(attrs);
  const int64_t words[] = {h->lag,     h->near,    h->ways,    h->frames,
                           h->context, h->patches, h->channels};
  (void)nin;
  for (size_t i = 0; i < SLI_COUNT(words); i++) hash = sli_hash_word(hash, (uint64_t)words[i]);
  return hash;
}

sl_generation_tick sli_generation_expected(const sl_generation *how, int32_t tick) {
  sl_generation_tick t = {.own = (int32_t)how->frames, .context = (int32_t)how->context, .done = 1};
  if (how->expect) how->expect(how->ctx, tick, &t);
  return t;
}

/* Latents are few numbers beside a pass through the network. */
static void no_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                    double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in, (void)out;
  *flops = *bytes = 0;
}

/* rows(noise [1, frames, channels], tick, before [1, R, channels], near [1, R, channels]) -> [1, R,
 * channels]: the context, then the block's own rows. Latents that a tick does not need may be
 * absent. */
static sl_status rows_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in;
  const sl_generation *how = record_of(attrs);
  out[0] = SL_TYPE(SL_F32, 1, rows_of(how), how->channels);
  return SL_OK;
}

static int64_t rows_expects(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick) {
  sl_generation_tick t = sli_generation_expected(record_of(attrs), tick);
  (void)o, (void)type;
  return t.own ? (t.own + t.context) * record_of(attrs)->patches : 0;
}

static void rows_cpu(const sl_call *call) {
  const sl_generation *how = record_of(call->attrs);
  const float *noise = call->in[0], *before = call->in[2], *near = call->in[3];
  const sl_generation_tick *t = call->in[1];
  float *x = call->out[0];
  size_t frame = (size_t)(how->patches * how->channels), context = (size_t)t->context * frame;
  if (t->own) {
    const float *own = t->fresh ? noise : before + (size_t)t->was_context * frame;
    if (t->from_near) before = near ? near + (size_t)(t->near_frames - t->context) * frame : NULL;
    if (context) memcpy(x, before, context * sizeof *x);
    memcpy(x + context, own, (size_t)t->own * frame * sizeof *x);
  }
  sl_call_fill(call, 0, t->own ? (t->own + t->context) * how->patches : 0);
}

static const sl_op rows_op = {
    .name = "generation_rows",
    .min_in = 2,
    .max_in = 4,
    .nout = 1,
    .traits = SL_OP_DETACHED,
    .cost = no_cost,
    .infer = rows_infer,
    .hash = generation_hash,
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .looks = 12, .expects = rows_expects},
    .kernels = SL_CPU_KERNEL(rows_cpu)};

/* ---- guidance and solver ------------------------------------------------------------------- */

/* guide(y [1, R, ways, channels], tick) -> v [1, R, channels] */
static sl_status guide_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  if (in[0].ndim != 4) return sl_fail(SL_E_SHAPE, "y must be [1, rows, ways, channels]");
  out[0] = SL_TYPE(SL_F32, 1, in[0].dim[1], in[0].dim[3]);
  return SL_OK;
}

static void guide_cpu(const sl_call *call) {
  const sl_generation_tick *t = call->in[1];
  int64_t ways = call->in_type[0].dim[2], n = call->in_type[0].dim[3],
          rows = sl_call_rows(call, 0, call->in_type[0].dim[1]);
  const float *y = call->in[0];
  float *v = call->out[0];
  for (int64_t r = 0; r < rows; r++, y += ways * n, v += n)
    for (int64_t i = 0; i < n; i++)
      v[i] = ways < 2 ? y[i] : y[n + i] + t->guidance * (y[i] - y[n + i]);
}

static const sl_op guide_op = {.name = "generation_guide",
                               .min_in = 2,
                               .max_in = 2,
                               .nout = 1,
                               .traits = SL_OP_DETACHED,
                               .cost = no_cost,
                               .infer = guide_infer,
                               .rows = &(const sl_op_rows){.looks = 1, .follows = 1},
                               .kernels = SL_CPU_KERNEL(guide_cpu)};

/* step(x [1, R, channels], v [1, R, channels], tick) -> x [1, R, channels]: one step of the own
 * rows. */
static sl_status step_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return sl_type_equal(&in[0], &in[1]) ? SL_OK : sl_fail(SL_E_SHAPE, "v must have the shape of x");
}

static void step_cpu(const sl_call *call) {
  const sl_generation_tick *t = call->in[2];
  const float *x = call->in[0], *v = call->in[1];
  float *y = call->out[0];
  int64_t rows = sl_call_rows(call, 0, call->in_type[0].dim[1]), n = call->in_type[0].dim[2];
  int64_t first = t->own ? rows * t->context / (t->own + t->context) * n : 0;
  float by = t->next - t->level;
  for (int64_t i = 0; i < rows * n; i++) y[i] = i < first ? x[i] : x[i] + by * v[i];
}

static const sl_op step_op = {.name = "generation_step",
                              .min_in = 3,
                              .max_in = 3,
                              .nout = 1,
                              .traits = SL_OP_DETACHED,
                              .cost = no_cost,
                              .infer = step_infer,
                              .rows = &(const sl_op_rows){.looks = 3, .follows = 1},
                              .kernels = SL_CPU_KERNEL(step_cpu)};

/* frames(x [1, R, channels], tick) -> [1, frames, patches channels]: the own frames of a block that
 * is done. */
static sl_status frames_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_generation *how = record_of(attrs);
  (void)nin, (void)in;
  out[0] = SL_TYPE(SL_F32, 1, how->frames, how->patches * how->channels);
  return SL_OK;
}

static int64_t frames_expects(const sl_attrs *attrs, int o, const sl_type *type, int32_t tick) {
  sl_generation_tick t = sli_generation_expected(record_of(attrs), tick);
  (void)o, (void)type;
  return t.done ? t.own : 0;
}

static void frames_cpu(const sl_call *call) {
  const sl_generation *how = record_of(call->attrs);
  const sl_generation_tick *t = call->in[1];
  size_t frame = (size_t)(how->patches * how->channels);
  int32_t count = t->done ? t->own : 0;
  memcpy(call->out[0], (const float *)call->in[0] + (size_t)t->context * frame,
         (size_t)count * frame * sizeof(float));
  sl_call_fill(call, 0, count);
}

static const sl_op frames_op = {
    .name = "generation_frames",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .traits = SL_OP_DETACHED,
    .cost = no_cost,
    .infer = frames_infer,
    .hash = generation_hash,
    .rows = &(const sl_op_rows){.fills = 1, .second = 1, .looks = 1, .expects = frames_expects},
    .kernels = SL_CPU_KERNEL(frames_cpu)};

bool sli_is_frames_done(const sl_tensor *t) { return t->producer && t->producer->op == &frames_op; }

/* ---- calls --------------------------------------------------------------------------------- */

static void source_fill(void *ctx, const sl_tick *tick, void *const *out) {
  const sl_generation *how = ctx;
  sl_generation_tick t = {0}, *words = out[1];
  how->fill(how->ctx, tick, &t, out[0]);
  if (words) *words = t;
  if (out[2]) memcpy(out[2], t.features, sizeof t.features);
  int32_t *labels = out[3];
  for (int i = 0; labels && i < how->ways; i++) labels[i] = i ? t.none : t.label;
}

static uint64_t always(void *ctx, const sl_tick *tick) { return (void)ctx, (void)tick, 0; }

static sl_status check_settings(sl_graph *g, const sl_generation *how) {
  bool fine = how->lag > 0 && how->near > 0 && (how->ways == 1 || how->ways == 2) &&
              how->frames > 0 && how->context >= 0 && how->patches > 0 && how->channels > 0;
  if (!fine) return sl_graph_fail(g, SL_E_USAGE, "generation: a size of the model or a delay is 0");
  if (how->context <= how->frames) return SL_OK;
  return sl_graph_fail(g, SL_E_USAGE,
                       "generation: a context of %lld frames is more than a block of %lld has",
                       (long long)how->context, (long long)how->frames);
}

/* Returns latents of earlier ticks, or NULL if no tick reads them. */
static sl_tensor *delay_latents(sl_graph *g, const sl_type *type, int ticks,
                                const sl_delay_ticks *in, const char *name) {
  bool any = !in;
  for (int i = 0; i < g->options.microbatches && in; i++) any |= in->reads[i];
  if (!any) return NULL;
  return in ? sl_delayed_in(g, *type, 0, in, name) : sl_delayed_rows(g, *type, ticks, name);
}

sl_generated sl_generate_begin(sl_graph *g) {
  sl_generation *how = sl_graph_generation(g);
  sl_generated none = {0};
  if (sl_graph_status(g) || check_settings(g, how)) return none;
  sl_type *types = sl_graph_alloc(g, 4 * sizeof *types);
  types[0] = SL_TYPE(SL_F32, 1, how->frames * how->patches, how->channels);
  types[1] = SL_TYPE(SL_I32, sizeof(sl_generation_tick) / sizeof(int32_t));
  types[2] = SL_TYPE(SL_F32, 1, SL_GENERATION_FEATURES);
  types[3] = SL_TYPE(SL_I32, how->ways);
  sl_source *source = sl_graph_alloc(g, sizeof *source);
  *source = (sl_source){.nout = 4,
                        .types = types,
                        .fill = source_fill,
                        .await = how->behind ? always : NULL,
                        .behind = how->behind,
                        .ctx = how};
  sl_tensor *data[4], *rows = NULL;
  sl_data(g, source, data);
  const sl_type state = SL_TYPE(SL_F32, 1, rows_of(how), how->channels);
  sli_generated_delays *delays = sl_graph_alloc(g, sizeof *delays);
  delays->before = delay_latents(g, &state, how->lag, how->before_in, "latents");
  if (how->context)
    delays->near = delay_latents(g, &state, how->near, how->near_in, "latents.near");
  uint32_t absent = (delays->before ? 0 : 1u << 2) | (delays->near ? 0 : 1u << 3);
  sl_apply(g, &rows_op, (&(sl_attrs){.user = how}), 4,
           ((sl_tensor *[]){data[0], data[1], delays->before, delays->near}), absent, &rows);
  if (sl_graph_status(g)) return none;
  return (sl_generated){rows, data[1], data[2], data[3], g->blocks[g->nblocks - 1].name, delays};
}

sl_tensor *sl_generate_guide(sl_graph *g, const sl_generated *tick, sl_tensor *y) {
  sl_tensor *v = NULL;
  sl_apply(g, &guide_op, NULL, 2, ((sl_tensor *[]){y, tick->tick}), 0, &v);
  return v;
}

sl_tensor *sl_generate_end(sl_graph *g, const sl_generated *tick, sl_tensor *v) {
  sl_tensor *x = NULL, *frames = NULL;
  const sli_generated_delays *delays = tick->delays;
  if (sl_graph_status(g)) return NULL;
  sl_block_again(g, "%s", tick->block);
  sl_apply(g, &step_op, NULL, 3, ((sl_tensor *[]){tick->rows, v, tick->tick}), 0, &x);
  if (delays->before) sl_delay(g, delays->before, x);
  if (delays->near) sl_delay(g, delays->near, x);
  sl_apply(g, &frames_op, (&(sl_attrs){.user = sl_graph_generation(g)}), 2,
           ((sl_tensor *[]){x, tick->tick}), 0, &frames);
  return frames;
}
