/* SPDX-License-Identifier: Apache-2.0 */
/* Walks of states on CPUs: gradients of gates, the engine, and walks of a tick's sequences. */
#include "kernels/cpu/walks.h"

#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/attention_shape.h"

/* ---- gradients of gates ---------------------------------------------------------------------- */

/* Adds a position's terms to the gradients of the gates of each of a key head's channels. */
static void add_channels(const sli_gate_gradients *g, int64_t row, int64_t h, double *sum) {
  const sli_linear_shape *s = &g->shape;
  const float *q = g->call->in[SLI_WALK_Q], *k = g->call->in[SLI_WALK_K];
  int64_t group = s->q_heads / s->k_heads, at = (row * s->k_heads + h) * s->dk;
  for (int64_t i = 0; i < s->dk; i++) {
    double term = 0;
    for (int64_t n = 0; n < group; n++) {
      int64_t q_at = (row * s->q_heads + h * group + n) * s->dk + i;
      term += (double)q[q_at] * (double)g->dq[q_at];
    }
    double dk = (double)g->dk[at + i] - (g->less ? 2 * (double)g->less[at + i] : 0);
    sum[i] += term - (double)k[at + i] * dk;
  }
}

/* Adds a position's terms to the gradient of the gate of value head h. */
static void add_head(const sli_gate_gradients *g, int64_t row, int64_t h, double *sum) {
  const sli_linear_shape *s = &g->shape;
  const float *v = g->call->in[SLI_WALK_V];
  int64_t n = s->heads / s->v_heads * s->dv, o_at = (row * s->v_heads + h) * n;
  int64_t v_at = (row * s->v_heads + h) * s->dv;
  double term = 0;
  for (int64_t j = 0; j < n; j++) term += (double)g->o[o_at + j] * (double)g->dout[o_at + j];
  for (int64_t j = 0; j < s->dv; j++) term -= (double)v[v_at + j] * (double)g->dv[v_at + j];
  *sum += term;
}

/* Initialises the sums of the gates of value head h with the contributions of positions after a
 * share. */
static void begin_behind(const sli_gate_gradients *g, int64_t b, int64_t h, double *sum) {
  const sli_linear_shape *s = &g->shape;
  double scale = (double)sli_linear_scale(g->call->attrs, s->dk);
  int64_t at = (b * s->v_heads + h) * s->dk * s->dv;
  for (int64_t i = 0; i < s->dk; i++) {
    double term = 0;
    for (int64_t j = 0; j < s->dv; j++, at++) term += (double)g->end[at] * (double)g->behind[at];
    sum[s->per_head ? 0 : i] += scale * term;
  }
}

/* Clears the sums of gates that are shut: later positions do not depend on earlier ones. */
static void shut(const float *gates, int64_t n, double *sum) {
  const float least = -86.6f; /* e^g is 0 below (vexp) */
  for (int64_t c = 0; c < n; c++)
    if (gates[c] < least) sum[c] = 0;
}

/* Runs chunk i: sequence, value head. Sums of many positions cancel, so they are in f64. */
static void gates_chunk(void *arg, int i) {
  const sli_gate_gradients *g = arg;
  const sli_linear_shape *s = &g->shape;
  int64_t b = i / s->v_heads, h = i % s->v_heads, n = s->per_head ? 1 : s->dk;
  int64_t states = s->heads * s->dk * s->dv;
  double sum[SLI_MAX_STATE_DIM] = {0};
  float *carry = g->carry ? g->carry + b * sli_linear_carry(s) + states + 2 * h * n : NULL;
  if (carry && !g->starts) memcpy(sum, carry, (size_t)n * sizeof *sum);
  if (g->behind) begin_behind(g, b, h, sum);
  for (int64_t t = s->positions - 1; t >= 0; t--) {
    int64_t row = b * s->positions + t, at = (row * s->v_heads + h) * n;
    (s->per_head ? add_head : add_channels)(g, row, h, sum);
    shut((const float *)g->call->in[SLI_WALK_GATES] + at, n, sum);
    for (int64_t c = 0; c < n; c++) g->dgates[at + c] = (float)sum[c];
  }
  if (carry) memcpy(carry, sum, (size_t)n * sizeof *sum);
}

/* ---- the engine ------------------------------------------------------------------------------ */

/* Runs chunk i, a position: fills in u and the scaled gradient of o. */
static void first_chunk(void *arg, int i) {
  const sli_delta_parts *p = arg;
  int64_t n = p->heads * p->dv_width;
  for (int64_t at = i * n, j = 0; j < n; j++, at++) {
    p->u[at] = p->part[i * p->heads + j / p->dv_width] * p->e[at];
    p->scaled[at] = p->dout[at] * p->scale;
  }
}

/* Runs chunk i, a position: turns du into dv and the gradient of b. */
static void last_chunk(void *arg, int i) {
  const sli_delta_parts *p = arg;
  for (int64_t h = i * p->heads; h < (i + 1) * p->heads; h++) {
    const float *e = p->e + h * p->dv_width;
    float *dv = p->dv + h * p->dv_width;
    double sum = 0;
    for (int64_t j = 0; j < p->dv_width; j++) {
      sum += (double)dv[j] * (double)e[j];
      dv[j] *= p->part[h];
    }
    if (p->dpart) p->dpart[h] = (float)sum;
  }
}

static void run_walk(const sli_walk_engine *e, const sli_walk *w) {
  sl_team_for(e->on, sli_walk_chunks(w), sli_cpu()->linear_attention, (void *)w);
}

static void run_gates(const sli_walk_engine *e, const sli_gate_gradients *g) {
  sl_team_for(e->on, (int)(g->shape.batch * g->shape.v_heads), gates_chunk, (void *)g);
}

static void run_first(const sli_walk_engine *e, const sli_delta_parts *p) {
  sl_team_for(e->on, (int)p->positions, first_chunk, (void *)p);
}

static void run_last(const sli_walk_engine *e, const sli_delta_parts *p) {
  sl_team_for(e->on, (int)p->positions, last_chunk, (void *)p);
}

static void clear(const sli_walk_engine *e, void *to, size_t bytes) {
  (void)e;
  memset(to, 0, bytes);
}

static void copy(const sli_walk_engine *e, void *to, const void *from, size_t bytes) {
  (void)e;
  memcpy(to, from, bytes);
}

void sli_walk_on_cpu(const sl_call *call, sli_walk_run *run) {
  const sli_walk_engine e = {run_walk, run_gates, run_first, run_last, clear, copy, call->team};
  run(call, &e);
}

void sli_walk_values(const sl_call *call, const sli_linear_shape *s, sli_walk *w) {
  sli_walk_by_values(s, w);
  sl_team_for(call->team, sli_walk_chunks(w), sli_cpu()->linear_attention, w);
}

/* ---- serving ------------------------------------------------------------------------------- */

/* Walks of a tick's sequences, each with `chunks` chunks, and their states of `bytes` each. A
 * sequence has one walk for the rows up to the first drafted one, and one for each drafted row. */
typedef struct walks {
  sli_walk *items;
  int32_t *first; /* [sequences] first walk of each */
  int chunks;
  const sl_batch *batch;
  char *states;
  size_t bytes;
} walks;

size_t sli_walk_served_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)call->in_type[0].dim[1] * (sizeof(sli_walk) + sizeof(int32_t));
}

static void served_chunk(void *arg, int i) {
  const walks *w = arg;
  const int k = i / w->chunks;
  for (int32_t n = 0; n <= sl_batch_settings(w->batch)[k].drafted; n++)
    sli_cpu()->linear_attention(&w->items[w->first[k] + n], i % w->chunks);
}

/* Stores the state of sequence i in another slot, if requested. */
static void keep_chunk(void *arg, int i) {
  const walks *w = arg;
  int32_t kept = sl_batch_settings(w->batch)[i].kept;
  if (kept >= 0) memcpy(w->states + (size_t)kept * w->bytes, w->items[w->first[i]].to, w->bytes);
}

static float *state_at(const walks *w, int32_t slot) {
  return slot < 0 ? NULL : (float *)(void *)(w->states + (size_t)slot * w->bytes);
}

void sli_walk_served(const sl_call *call, int states, sli_make_walk *make) {
  const sl_batch *batch = sli_batch_of(call);
  const int32_t *sequence = sl_batch_sequence_of(batch);
  sli_linear_shape s = sli_linear_shape_of(call->attrs, call->in_type);
  walks w = {.items = call->scratch,
             .first = (int32_t *)((sli_walk *)call->scratch + call->in_type[0].dim[1]),
             .batch = batch,
             .states = call->out[states],
             .bytes = (size_t)(s.v_heads * s.dk * s.dv) * sizeof(float)};
  int32_t count = 0, made = 0;
  s.batch = 1;
  for (int32_t row = 0, end = 0; row < batch->rows; count++) {
    const sl_batch_sequence *own = &sl_batch_settings(batch)[sequence[row]];
    int32_t from = own->from;
    while (end < batch->rows && sequence[end] == sequence[row]) end++;
    w.first[count] = made;
    for (int32_t next = end - own->drafted; row < end; row = next++) {
      s.positions = next - row;
      sli_walk *walk = &w.items[made++];
      make(call, &s, row, walk);
      walk->from = state_at(&w, from);
      from = sl_batch_slot(own, sl_batch_position(batch)[next - 1]);
      walk->to = state_at(&w, from);
    }
  }
  if (!count) return;
  w.chunks = sli_walk_chunks(&w.items[0]);
  sl_team_for(call->team, count * w.chunks, served_chunk, &w);
  sl_team_for(call->team, count, keep_chunk, &w);
}
