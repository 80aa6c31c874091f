/* SPDX-License-Identifier: Apache-2.0 */
/* The gated delta rule: walks of a state along the positions. ops/delta_rule.c has the formulas. */
#include "base/base.h"
#include "kernels/walks/walks.h"

enum { Q = SLI_WALK_Q, K = SLI_WALK_K, V = SLI_WALK_V, GATES = SLI_WALK_GATES, PART, O, E };

static sli_linear_shape shape_of(const sl_call *call) {
  return sli_linear_shape_of(call->attrs, call->in_type);
}

static sli_walked part_of(const sl_call *call, const sli_linear_shape *s) {
  return sli_walk_array(s, call->in[PART], s->heads, 1);
}

/* ---- forward ------------------------------------------------------------------------------- */

sli_walk sli_delta_rule_walk(const sl_call *call, const sli_linear_shape *s) {
  sli_walk w = sli_walk_of(call, s, SLI_WALK_DELTA);
  w.b = sli_walk_input(call, s, K);
  w.c = sli_walk_input(call, s, V);
  w.d = sli_walk_input(call, s, Q);
  w.part = part_of(call, s);
  w.y = sli_walk_sum_of(s, call->out[0], s->heads, s->dv);
  w.y.factor = sli_linear_scale(call->attrs, s->dk);
  w.z = sli_walk_sum_of(s, call->out[1], s->heads, s->dv);
  sli_walk_by_values(s, &w);
  return w;
}

static void follow(const sl_call *call, const sli_walk_engine *e, float *from, float *to) {
  sli_linear_shape s = shape_of(call);
  sli_walk w = sli_delta_rule_walk(call, &s);
  w.from = from;
  w.to = to;
  e->walk(e, &w);
}

void sli_delta_rule_run(const sl_call *call, const sli_walk_engine *e) {
  follow(call, e, NULL, NULL);
}

void sli_delta_rule_piece_run(const sl_call *call, const sli_walk_engine *e) {
  size_t bytes = sl_type_bytes(&call->out_type[3]);
  float *state = call->out[3];
  if (!call->tick.row) e->clear(e, state, bytes);
  if (call->out[2]) e->copy(e, call->out[2], state, bytes);
  follow(call, e, state, state);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Gradients of a call: its outputs, or scratch for those not needed. Also arrays of v's shape: u,
 * and the gradient of o times the scale. With gates of channels also the part of dk from S'. */
typedef struct gradients {
  const sl_call *call;
  sli_linear_shape s;
  float *dq, *dk, *dv, *u, *dout;
  float *less;   /* NULL: not needed */
  float *before; /* states before the first position, or NULL */
  float *carry;  /* gradient record, or NULL */
  bool starts;   /* the record starts from zeros */
} gradients;

static gradients gradients_of(const sl_call *call, float *before, float *carry, bool starts) {
  gradients g = {
      .call = call, .s = shape_of(call), .before = before, .carry = carry, .starts = starts};
  float *scratch = call->scratch, **to[] = {&g.dq, &g.dk, &g.dv, &g.u, &g.dout};
  for (int i = 0; i < 5; i++) {
    *to[i] = i < 3 && call->out[i] ? call->out[i] : scratch;
    scratch += sl_type_elements(&call->in_type[SLI_MIN(i, V)]);
  }
  if (!g.s.per_head && call->out[GATES]) g.less = scratch;
  return g;
}

size_t sli_delta_rule_b_scratch(const sl_call *call) {
  size_t keys = sl_type_bytes(&call->in_type[K]);
  return sl_type_bytes(&call->in_type[Q]) + keys + 3 * sl_type_bytes(&call->in_type[V]) +
         (shape_of(call).per_head ? 0 : keys);
}

static sli_delta_parts parts_of(const gradients *g) {
  const sl_call *call = g->call;
  return (sli_delta_parts){.part = call->in[PART],
                           .e = call->in[E],
                           .dout = call->in[call->nin - 1],
                           .u = g->u,
                           .scaled = g->dout,
                           .dv = g->dv,
                           .dpart = call->out[PART],
                           .scale = sli_linear_scale(call->attrs, g->s.dk),
                           .positions = g->s.batch * g->s.positions,
                           .heads = g->s.heads,
                           .dv_width = g->s.dv};
}

static sli_walked values(const gradients *g, const float *x) {
  return sli_walk_array(&g->s, x, g->s.heads, g->s.dv);
}

/* Walks the state gradients backwards, for du. */
static void differentiate_v(const sli_walk_engine *e, const gradients *g) {
  sli_walk w = sli_walk_back_of(g->call, &g->s, SLI_WALK_DELTA_BACK);
  w.b = sli_walk_input(g->call, &g->s, Q);
  w.c = values(g, g->dout);
  w.d = sli_walk_input(g->call, &g->s, K);
  w.part = part_of(g->call, &g->s);
  w.y = sli_walk_sum_of(&g->s, g->dv, g->s.heads, g->s.dv);
  w.from = g->starts ? NULL : g->carry;
  sli_walk_by_values(&g->s, &w);
  e->walk(e, &w);
}

/* Walks the states again, for dq and their part of dk. */
static void differentiate_q(const sli_walk_engine *e, const gradients *g) {
  sli_walk w = sli_walk_of(g->call, &g->s, SLI_WALK_DELTA_KEYS);
  w.b = values(g, g->u);
  w.c = sli_walk_input(g->call, &g->s, K);
  w.d = values(g, g->dout);
  w.b2 = values(g, g->dv);
  w.y = sli_walk_sum_of(&g->s, g->dq, g->s.q_heads, g->s.dk);
  w.z = sli_walk_sum_of(&g->s, g->dk, g->s.k_heads, g->s.dk);
  w.z.factor = -1;
  w.from = g->before;
  sli_walk_by_keys(&g->s, &w);
  e->walk(e, &w);
}

/* Walks the state gradients backwards, for their part of dk, and passes the record on. */
static void differentiate_k(const sli_walk_engine *e, const gradients *g) {
  sli_walk w = sli_walk_back_of(g->call, &g->s, SLI_WALK_DELTA_KEYS_BACK);
  w.b = values(g, g->dout);
  w.c = sli_walk_input(g->call, &g->s, Q);
  w.d = values(g, g->u);
  w.b2 = values(g, g->dv);
  w.c2 = sli_walk_input(g->call, &g->s, K);
  w.y = sli_walk_sum_of(&g->s, g->dk, g->s.k_heads, g->s.dk);
  w.y.onto = true;
  w.from = g->starts ? NULL : g->carry;
  w.to = g->carry;
  sli_walk_by_keys(&g->s, &w);
  e->walk(e, &w);
}

static void differentiate(const sli_walk_engine *e, gradients g) {
  sli_delta_parts parts = parts_of(&g);
  e->first_parts(e, &parts);
  differentiate_v(e, &g);
  e->last_parts(e, &parts);
  differentiate_q(e, &g);
  if (g.less) e->copy(e, g.less, g.dk, sl_type_bytes(&g.call->in_type[K]));
  differentiate_k(e, &g);
  if (g.call->out[GATES])
    e->gates(e, &(sli_gate_gradients){.call = g.call,
                                      .shape = g.s,
                                      .dq = g.dq,
                                      .dk = g.dk,
                                      .dv = g.dv,
                                      .less = g.less,
                                      .o = g.call->in[O],
                                      .dout = g.call->in[g.call->nin - 1],
                                      .dgates = g.call->out[GATES],
                                      .carry = g.carry,
                                      .starts = g.starts});
}

void sli_delta_rule_b_run(const sl_call *call, const sli_walk_engine *e) {
  differentiate(e, gradients_of(call, NULL, NULL, true));
}

void sli_delta_rule_piece_b_run(const sl_call *call, const sli_walk_engine *e) {
  bool starts = call->tick.row + call->in_type[0].dim[1] == call->attrs->place.length;
  differentiate(e, gradients_of(call, (float *)call->in[E + 1], call->out[5], starts));
}
