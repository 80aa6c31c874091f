/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of gated linear attention: each result is one walk of a state along the positions
 * (vector/linear_attention.h). ops/linear_attention.c has the formulas. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/served.h"
#include "ops/attention_shape.h"
#include "ops/linear_attention.h"

/* ---- walks --------------------------------------------------------------------------------- */

/* Inputs of a call. */
enum { Q, K, V, GATES };

static sli_walked operand(const sl_call *call, int input, int64_t group, int64_t width) {
  return (sli_walked){call->in[input], call->in_type[input].dim[2], group, width};
}

static sli_walk walk_of(const sl_call *call, const sli_linear_shape *s, float *y, int64_t y_row) {
  int64_t group = s->heads / s->kv_heads;
  return (sli_walk){.batch = s->batch,
                    .positions = s->positions,
                    .heads = s->heads,
                    .kv_heads = s->kv_heads,
                    .per_head = s->per_head,
                    .g = operand(call, GATES, group, s->per_head ? 1 : s->dk),
                    .scale = sli_linear_scale(call->attrs, s->dk),
                    .y = y,
                    .y_row = y_row,
                    .y_group = 1,
                    .states = s->kv_heads,
                    .state_group = group};
}

/* Walks by rows of keys, with lanes of values. */
static void walk_values(const sl_call *call, const sli_linear_shape *s, sli_walk *w) {
  w->rows = s->dk, w->lanes = s->dv;
  w->state_row = s->dv, w->state_lane = 1;
  sl_team_for(call->team, sli_walk_chunks(w), sli_cpu()->linear_attention, w);
}

/* Walks by rows of values, with lanes of keys. */
static void walk_keys(const sl_call *call, const sli_linear_shape *s, sli_walk *w) {
  w->rows = s->dv, w->lanes = s->dk;
  w->state_row = 1, w->state_lane = s->dv;
  w->by_lane = true;
  sl_team_for(call->team, sli_walk_chunks(w), sli_cpu()->linear_attention, w);
}

static sli_linear_shape shape_of(const sl_call *call) {
  return sli_linear_shape_of(call->attrs, call->in_type);
}

/* ---- forward ------------------------------------------------------------------------------- */

/* Computes o; states of the positions before, and after the last one, if not NULL. */
static void attend(const sl_call *call, float *from, float *to) {
  sli_linear_shape s = shape_of(call);
  int64_t group = s.heads / s.kv_heads;
  sli_walk w = walk_of(call, &s, call->out[0], call->out_type[0].dim[2]);
  w.b = operand(call, K, group, s.dk);
  w.c = operand(call, V, group, s.dv);
  w.d = operand(call, Q, 1, s.dk);
  w.from = from;
  w.to = to;
  walk_values(call, &s, &w);
}

static void linear_attention_cpu(const sl_call *call) { attend(call, NULL, NULL); }

static void piece_cpu(const sl_call *call) {
  size_t bytes = sl_type_bytes(&call->out_type[2]);
  float *state = call->out[2];
  if (!call->tick.row) memset(state, 0, bytes);
  if (call->out[1]) memcpy(call->out[1], state, bytes);
  attend(call, state, state);
}

/* ---- backward ------------------------------------------------------------------------------ */

typedef struct gradients {
  const sl_call *call;
  sli_linear_shape shape;
  const float *dq, *dk; /* [batch, positions, heads * dk], [..., kv_heads * dk] */
  float *dgates;
  float *carry; /* of the first sequence's gates; NULL: starts from 0 and is dropped */
  int64_t carry_row;
  bool starts;
} gradients;

/* Adds a position's terms to the gradients of the gates of key head h's channels. */
static void add_position(const gradients *g, int64_t row, int64_t h, double *sum) {
  const sli_linear_shape *s = &g->shape;
  const float *q = g->call->in[Q], *k = g->call->in[K];
  int64_t group = s->heads / s->kv_heads, at = (row * s->kv_heads + h) * s->dk;
  for (int64_t i = 0; i < s->dk; i++) {
    double term = 0;
    for (int64_t n = 0; n < group; n++) {
      int64_t q_at = (row * s->heads + h * group + n) * s->dk + i;
      term += (double)q[q_at] * (double)g->dq[q_at];
    }
    sum[i] += term - (double)k[at + i] * (double)g->dk[at + i];
  }
}

static void write_gates(const gradients *g, int64_t row, int64_t h, const double *sum) {
  const sli_linear_shape *s = &g->shape;
  double all = 0;
  for (int64_t i = 0; i < s->dk; i++)
    if (s->per_head) all += sum[i];
    else g->dgates[(row * s->kv_heads + h) * s->dk + i] = (float)sum[i];
  if (s->per_head) g->dgates[row * s->kv_heads + h] = (float)all;
}

/* Runs chunk i: sequence, key head. Sums of many positions cancel, so they are in f64. */
static void gates_chunk(void *arg, int i) {
  const gradients *g = arg;
  const sli_linear_shape *s = &g->shape;
  int64_t b = i / s->kv_heads, h = i % s->kv_heads;
  double sum[SLI_MAX_HEAD_DIM] = {0};
  float *carry = g->carry ? g->carry + b * g->carry_row + 2 * h * s->dk : NULL;
  if (carry && !g->starts) memcpy(sum, carry, (size_t)s->dk * sizeof *sum);
  for (int64_t t = s->positions - 1; t >= 0; t--) {
    add_position(g, b * s->positions + t, h, sum);
    write_gates(g, b * s->positions + t, h, sum);
  }
  if (carry) memcpy(carry, sum, (size_t)s->dk * sizeof *sum);
}

/* Walks back, through the gradients of the states of the query heads. */
static sli_walk walk_back(const sl_call *call, const sli_linear_shape *s, float *y, int64_t y_row,
                          float *carry, bool starts) {
  sli_walk w = walk_of(call, s, y, y_row);
  w.back = true;
  w.y_group = s->heads / s->kv_heads;
  w.states = s->heads;
  w.state_group = 1;
  w.state_rest = 2 * s->kv_heads * s->dk;
  w.from = starts ? NULL : carry;
  return w;
}

/* Computes all gradients. `before`: states before the first position; `carry`: the record of
 * gradients, which begins anew if the call `starts` it; both may be NULL. */
static void differentiate(const sl_call *call, float *before, float *carry, bool starts) {
  sli_linear_shape s = shape_of(call);
  int64_t group = s.heads / s.kv_heads;
  sli_walked dout = operand(call, call->nin - 1, 1, s.dv);
  float *scratch = call->scratch, *dk = call->out[K] ? call->out[K] : scratch;
  float *dq = call->out[Q] ? call->out[Q] : scratch + s.batch * s.positions * s.kv_heads * s.dk;

  sli_walk w = walk_of(call, &s, dq, s.heads * s.dk);
  w.b = operand(call, V, group, s.dv);
  w.c = operand(call, K, group, s.dk);
  w.d = dout;
  w.from = before;
  walk_keys(call, &s, &w);

  w = walk_back(call, &s, dk, s.kv_heads * s.dk, carry, starts);
  w.b = dout;
  w.c = operand(call, Q, 1, s.dk);
  w.d = operand(call, V, group, s.dv);
  walk_keys(call, &s, &w);

  gradients g = {.call = call,
                 .shape = s,
                 .dq = dq,
                 .dk = dk,
                 .dgates = call->out[GATES],
                 .carry = carry ? carry + s.heads * s.dk * s.dv : NULL,
                 .carry_row = sli_linear_carry(&s),
                 .starts = starts};
  if (g.dgates) sl_team_for(call->team, (int)(s.batch * s.kv_heads), gates_chunk, &g);

  if (!call->out[V] && !carry) return;
  float *dv = call->out[V] ? call->out[V] : scratch;
  w = walk_back(call, &s, dv, s.kv_heads * s.dv, carry, starts);
  w.b = operand(call, Q, 1, s.dk);
  w.c = dout;
  w.d = operand(call, K, group, s.dk);
  w.to = carry;
  walk_values(call, &s, &w);
}

/* Room for gradients that are computed and not wanted. */
static size_t b_scratch(const sl_call *call, int threads) {
  (void)threads;
  sli_linear_shape s = shape_of(call);
  int64_t width = s.kv_heads * SLI_MAX(s.dk, s.dv) + s.heads * s.dk;
  return (size_t)(s.batch * s.positions * width) * sizeof(float);
}

static void linear_attention_b_cpu(const sl_call *call) { differentiate(call, NULL, NULL, true); }

static void piece_b_cpu(const sl_call *call) {
  bool starts = call->tick.row + call->in_type[0].dim[1] == call->attrs->length;
  differentiate(call, (float *)call->in[4], call->out[4], starts);
}

/* ---- serving ------------------------------------------------------------------------------- */

/* Walks of a tick's sequences, all of so many chunks. */
typedef struct walks {
  sli_walk *of;
  int chunks;
} walks;

static size_t served_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)call->in_type[0].dim[1] * sizeof(sli_walk);
}

/* Makes the walk of the sequence whose rows begin at `row`; returns the row behind them. */
static int32_t walk_sequence(const sl_call *call, const sl_batch *batch, int32_t row, sli_walk *w) {
  sli_linear_shape s = shape_of(call);
  const int32_t *sequence = sl_batch_sequence_of(batch);
  int64_t group = s.heads / s.kv_heads, state = s.kv_heads * s.dk * s.dv;
  int32_t end = row;
  while (end < batch->rows && sequence[end] == sequence[row]) end++;
  s.batch = 1;
  s.positions = end - row;
  *w = walk_of(call, &s, (float *)call->out[0] + row * s.heads * s.dv, s.heads * s.dv);
  w->b = operand(call, K, group, s.dk);
  w->c = operand(call, V, group, s.dv);
  w->d = operand(call, Q, 1, s.dk);
  sli_walked *all[] = {&w->b, &w->c, &w->d, &w->g};
  for (int i = 0; i < 4; i++) all[i]->x += row * all[i]->row;
  w->to = (float *)call->out[1] + sl_batch_settings(batch)[sequence[row]].slot * state;
  w->from = sl_batch_position(batch)[row] ? w->to : NULL;
  w->rows = s.dk, w->lanes = s.dv;
  w->state_row = s.dv, w->state_lane = 1;
  return end;
}

static void served_chunk(void *arg, int i) {
  const walks *w = arg;
  sli_cpu()->linear_attention(&w->of[i / w->chunks], i % w->chunks);
}

static void served_cpu(const sl_call *call) {
  const sl_batch *batch = sli_batch_of(call);
  walks w = {.of = call->scratch};
  int count = 0;
  for (int32_t row = 0; row < batch->rows; count++)
    row = walk_sequence(call, batch, row, &w.of[count]);
  if (!count) return;
  w.chunks = sli_walk_chunks(&w.of[0]);
  sl_team_for(call->team, count * w.chunks, served_chunk, &w);
}

const sl_kernel sli_cpu_linear_attention_served = {
    .backend = "cpu", .run = served_cpu, .scratch = served_scratch};

const sl_kernel sli_cpu_linear_attention = {.backend = "cpu", .run = linear_attention_cpu};

const sl_kernel sli_cpu_linear_attention_b = {
    .backend = "cpu", .run = linear_attention_b_cpu, .scratch = b_scratch};

const sl_kernel sli_cpu_linear_attention_piece = {.backend = "cpu", .run = piece_cpu};

const sl_kernel sli_cpu_linear_attention_piece_b = {
    .backend = "cpu", .run = piece_b_cpu, .scratch = b_scratch};
