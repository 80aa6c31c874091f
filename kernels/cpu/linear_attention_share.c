/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of gated linear attention on devices that share positions: records of shares, and
 * states from records. ops/linear_attention_share.c has the formulas. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/walks.h"
#include "ops/attention_shape.h"

/* ---- records ------------------------------------------------------------------------------- */

/* A call that computes a record of shape `s`. */
typedef struct record {
  const sl_call *call;
  sli_linear_shape s;
} record;

/* Sums the logarithms of the gates of chunk i: sequence, state. */
static void gates_chunk(void *arg, int i) {
  const record *r = arg;
  const sli_linear_shape *s = &r->s;
  int64_t b = i / s->v_heads, h = i % s->v_heads, n = sli_linear_gap(s);
  int64_t row = s->v_heads * n, state = s->dk * s->dv;
  const float *g = (const float *)r->call->in[SLI_WALK_GATES] + b * s->positions * row + h * n;
  float *to = (float *)r->call->out[0] + i * (state + n) + state;
  double sum[SLI_MAX_STATE_DIM] = {0};
  for (int64_t t = 0; t < s->positions; t++, g += row)
    for (int64_t c = 0; c < n; c++) sum[c] += (double)g[c];
  for (int64_t c = 0; c < n; c++) to[c] = (float)sum[c];
}

/* Computes a record by a walk without results at positions. */
static void make_record(const record *r, sli_walk *w) {
  w->to = r->call->out[0];
  w->state_gap = sli_linear_gap(&r->s);
  sli_walk_values(r->call, &r->s, w);
  sl_team_for(r->call->team, (int)(r->s.batch * r->s.v_heads), gates_chunk, (void *)r);
}

/* Runs one walk per state, however many heads read it. */
static void share_cpu(const sl_call *call) {
  record r = {call, sli_linear_shape_of(call->attrs, call->in_type)};
  r.s.heads = r.s.v_heads;
  sli_walk w = sli_walk_of(call, &r.s, SLI_WALK_FORTH);
  w.b = sli_walk_input(call, &r.s, SLI_WALK_K);
  w.c = sli_walk_input(call, &r.s, SLI_WALK_V);
  make_record(&r, &w);
}

static void share_b_cpu(const sl_call *call) {
  record r = {call, sli_linear_shape_of(call->attrs, call->in_type)};
  sli_walk w = sli_walk_of(call, &r.s, SLI_WALK_BACK);
  w.b = sli_walk_input(call, &r.s, SLI_WALK_Q);
  w.c = sli_walk_array(&r.s, call->in[SLI_WALK_GATES + 1], r.s.heads, r.s.dv);
  make_record(&r, &w);
}

const sl_kernel sli_cpu_linear_attention_share = {.backend = "cpu", .run = share_cpu};
const sl_kernel sli_cpu_linear_attention_share_b = {.backend = "cpu", .run = share_b_cpu};

/* ---- states -------------------------------------------------------------------------------- */

/* Decays a state by the gates of a record, and adds the record's state. */
static void add_record(const sl_call *call, int64_t i, int record, float *state) {
  int64_t gates = call->attrs->states.gates, all = call->in_type[0].dim[2],
          n = (all - gates) / gates;
  const float *of = (const float *)call->in[record] + i * all, *logs = of + all - gates;
  for (int64_t r = 0; r < gates; r++) {
    float gate = expf(logs[r]);
    for (int64_t j = r * n; j < (r + 1) * n; j++) state[j] = gate * state[j] + of[j];
  }
}

/* Joins chunk i: sequence, state. */
static void join_chunk(void *arg, int i) {
  const sl_call *call = arg;
  size_t bytes = (size_t)call->out_type[0].dim[2] * sizeof(float);
  float *state = (float *)call->out[0] + i * call->out_type[0].dim[2];
  memset(state, 0, bytes);
  for (int record = 0; record < call->attrs->states.before; record++)
    add_record(call, i, record, state);
}

/* Returns true in the piece whose states begin with zeros. */
static bool is_first(const sl_call *call) {
  const sl_attrs *attrs = call->attrs;
  return attrs->states.back ? call->tick.row + call->tick.rows == attrs->place.length
                            : !call->tick.row;
}

/* Joins chunk i of a piece. */
static void join_piece_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int64_t n = call->out_type[0].dim[2], first = call->attrs->states.before;
  float *state = (float *)call->out[0] + i * n, *end = (float *)call->out[1] + i * n;
  if (is_first(call)) memset(end, 0, (size_t)n * sizeof *end);
  for (int record = 0; record < call->nin; record++) {
    if (record == first) memcpy(state, end, (size_t)n * sizeof *end);
    add_record(call, i, record, end);
  }
  if (first == call->nin) memcpy(state, end, (size_t)n * sizeof *end);
}

static void join_cpu(const sl_call *call) {
  const sl_type *state = &call->out_type[0];
  sl_team_for(call->team, (int)(state->dim[0] * state->dim[1]),
              call->attrs->place.length ? join_piece_chunk : join_chunk, (void *)call);
}

const sl_kernel sli_cpu_linear_attention_join = {.backend = "cpu", .run = join_cpu};
