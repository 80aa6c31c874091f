/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear attention: each result is one walk of a state along the positions.
 * ops/linear_attention.c has the formulas. */
#include "kernels/walks/walks.h"

enum { Q = SLI_WALK_Q, K = SLI_WALK_K, V = SLI_WALK_V, GATES = SLI_WALK_GATES, O, BEFORE = O };

static sli_linear_shape shape_of(const sl_call *call) {
  return sli_linear_shape_of(call->attrs, call->in_type);
}

/* ---- forward ------------------------------------------------------------------------------- */

sli_walk sli_linear_attention_walk(const sl_call *call, const sli_linear_shape *s) {
  sli_walk w = sli_walk_of(call, s, SLI_WALK_FORTH);
  w.b = sli_walk_input(call, s, K);
  w.c = sli_walk_input(call, s, V);
  w.d = sli_walk_input(call, s, Q);
  w.y = sli_walk_sum_of(s, call->out[0], s->heads, s->dv);
  w.y.factor = sli_linear_scale(call->attrs, s->dk);
  sli_walk_by_values(s, &w);
  return w;
}

/* Computes o. If not NULL, `from` is the states before the first position and `to` those after the
 * last one. */
static void attend(const sl_call *call, const sli_walk_engine *e, float *from, float *to) {
  sli_linear_shape s = shape_of(call);
  sli_walk w = sli_linear_attention_walk(call, &s);
  w.from = from;
  w.to = to;
  e->walk(e, &w);
}

void sli_linear_attention_run(const sl_call *call, const sli_walk_engine *e) {
  attend(call, e, NULL, NULL);
}

void sli_linear_attention_piece_run(const sl_call *call, const sli_walk_engine *e) {
  size_t bytes = sl_type_bytes(&call->out_type[2]);
  float *state = call->out[2];
  if (!call->tick.row) e->clear(e, state, bytes);
  if (call->out[1]) e->copy(e, call->out[1], state, bytes);
  attend(call, e, state, state);
}

void sli_linear_attention_step_run(const sl_call *call, const sli_walk_engine *e) {
  attend(call, e, (float *)call->in[BEFORE], NULL);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Gradients of a call: its outputs, or scratch for those that are computed but not needed. */
typedef struct gradients {
  const sl_call *call;
  sli_linear_shape s;
  float scale;
  const float *dout;
  float *dq, *dk, *dv;
  float *carry;        /* gradient record, or NULL */
  bool starts;         /* the record starts from zeros */
  const float *behind; /* for a share: the gradient of the state after it; otherwise NULL */
  float *end;          /* the state after it, in the scratch */
} gradients;

static gradients gradients_of(const sl_call *call, float *carry, bool starts) {
  gradients g = {.call = call,
                 .s = shape_of(call),
                 .dout = call->in[call->nin - 1],
                 .carry = carry,
                 .starts = starts};
  float *scratch = call->scratch;
  g.scale = sli_linear_scale(call->attrs, g.s.dk);
  float **to[] = {&g.dq, &g.dk, &g.dv};
  for (int i = 0; i < 3; i++) {
    *to[i] = call->out[i] ? call->out[i] : scratch;
    scratch += sl_type_elements(&call->in_type[i]);
  }
  return g;
}

size_t sli_linear_attention_b_scratch(const sl_call *call) {
  size_t bytes = 0;
  for (int i = 0; i < 3; i++) bytes += sl_type_bytes(&call->in_type[i]);
  return bytes;
}

static sli_walked dout_of(const gradients *g) {
  return sli_walk_array(&g->s, g->dout, g->s.heads, g->s.dv);
}

/* Returns a walk of the state gradients, from those after the last position. */
static sli_walk back_of(const gradients *g) {
  if (!g->behind) {
    sli_walk w = sli_walk_back_of(g->call, &g->s, SLI_WALK_BACK);
    w.from = g->starts ? NULL : g->carry;
    return w;
  }
  sli_walk w = sli_walk_of(g->call, &g->s, SLI_WALK_BACK);
  w.from = (float *)g->behind;
  return w;
}

/* Computes dq. `before` is the states before the first position. */
static void differentiate_q(const sli_walk_engine *e, const gradients *g, float *before) {
  sli_walk w = sli_walk_of(g->call, &g->s, SLI_WALK_FORTH);
  w.b = sli_walk_input(g->call, &g->s, V);
  w.c = sli_walk_input(g->call, &g->s, K);
  w.d = dout_of(g);
  w.y = sli_walk_sum_of(&g->s, g->dq, g->s.q_heads, g->s.dk);
  w.y.factor = g->scale;
  w.from = before;
  w.to = g->end;
  sli_walk_by_keys(&g->s, &w);
  e->walk(e, &w);
}

static void differentiate_k(const sli_walk_engine *e, const gradients *g) {
  sli_walk w = back_of(g);
  w.b = dout_of(g);
  w.c = sli_walk_input(g->call, &g->s, Q);
  w.d = sli_walk_input(g->call, &g->s, V);
  w.y = sli_walk_sum_of(&g->s, g->dk, g->s.k_heads, g->s.dk);
  w.y.factor = g->scale;
  sli_walk_by_keys(&g->s, &w);
  e->walk(e, &w);
}

static void differentiate_v(const sli_walk_engine *e, const gradients *g) {
  sli_walk w = back_of(g);
  w.b = sli_walk_input(g->call, &g->s, Q);
  w.c = dout_of(g);
  w.d = sli_walk_input(g->call, &g->s, K);
  w.y = sli_walk_sum_of(&g->s, g->dv, g->s.v_heads, g->s.dv);
  w.y.factor = g->scale;
  w.to = g->carry;
  sli_walk_by_values(&g->s, &w);
  e->walk(e, &w);
}

static void differentiate(const sli_walk_engine *e, const gradients *g, float *before) {
  const sl_call *call = g->call;
  bool gates = call->out[GATES], channels = gates && !g->s.per_head;
  if (call->out[Q] || channels || (gates && g->behind)) differentiate_q(e, g, before);
  if (call->out[K] || channels) differentiate_k(e, g);
  if (call->out[V] || g->carry || (gates && g->s.per_head)) differentiate_v(e, g);
  if (gates)
    e->gates(e, &(sli_gate_gradients){.call = call,
                                      .shape = g->s,
                                      .dq = g->dq,
                                      .dk = g->dk,
                                      .dv = g->dv,
                                      .o = call->in[O],
                                      .dout = g->dout,
                                      .dgates = call->out[GATES],
                                      .end = g->end,
                                      .behind = g->behind,
                                      .carry = g->carry,
                                      .starts = g->starts});
}

void sli_linear_attention_b_run(const sl_call *call, const sli_walk_engine *e) {
  gradients g = gradients_of(call, NULL, true);
  differentiate(e, &g, NULL);
}

void sli_linear_attention_piece_b_run(const sl_call *call, const sli_walk_engine *e) {
  bool starts = call->tick.row + call->in_type[0].dim[1] == call->attrs->place.length;
  gradients g = gradients_of(call, call->out[4], starts);
  differentiate(e, &g, (float *)call->in[O + 1]);
}

void sli_linear_attention_step_b_run(const sl_call *call, const sli_walk_engine *e) {
  enum { STEP_DO = O + 2, BEHIND };
  gradients g = gradients_of(call, NULL, true);
  g.dout = call->in[STEP_DO];
  g.behind = call->in[BEHIND];
  g.end = (float *)call->scratch + sli_linear_attention_b_scratch(call) / sizeof(float);
  differentiate(e, &g, (float *)call->in[O + 1]);
}

size_t sli_linear_attention_step_b_scratch(const sl_call *call) {
  sli_linear_shape s = shape_of(call);
  return sli_linear_attention_b_scratch(call) +
         (size_t)(s.batch * s.v_heads * s.dk * s.dv) * sizeof(float);
}
