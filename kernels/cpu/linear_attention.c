/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of gated linear attention: each result is one walk of a state along the positions.
 * ops/linear_attention.c has the formulas. */
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/walks.h"

enum { Q = SLI_WALK_Q, K = SLI_WALK_K, V = SLI_WALK_V, GATES = SLI_WALK_GATES, O, BEFORE = O };

static sli_linear_shape shape_of(const sl_call *call) {
  return sli_linear_shape_of(call->attrs, call->in_type);
}

/* ---- forward ------------------------------------------------------------------------------- */

/* Returns the walk that computes o. */
static sli_walk attention_of(const sl_call *call, const sli_linear_shape *s) {
  sli_walk w = sli_walk_of(call, s, SLI_WALK_FORTH);
  w.b = sli_walk_input(call, s, K);
  w.c = sli_walk_input(call, s, V);
  w.d = sli_walk_input(call, s, Q);
  w.y = sli_walk_sum_of(s, call->out[0], s->heads, s->dv);
  w.y.factor = sli_linear_scale(call->attrs, s->dk);
  return w;
}

/* Computes o. If not NULL, `from` is the states before the first position and `to` those after the
 * last one. */
static void attend(const sl_call *call, float *from, float *to) {
  sli_linear_shape s = shape_of(call);
  sli_walk w = attention_of(call, &s);
  w.from = from;
  w.to = to;
  sli_walk_values(call, &s, &w);
}

static void linear_attention_cpu(const sl_call *call) { attend(call, NULL, NULL); }

static void piece_cpu(const sl_call *call) {
  size_t bytes = sl_type_bytes(&call->out_type[2]);
  float *state = call->out[2];
  if (!call->tick.row) memset(state, 0, bytes);
  if (call->out[1]) memcpy(call->out[1], state, bytes);
  attend(call, state, state);
}

static void step_cpu(const sl_call *call) { attend(call, (float *)call->in[BEFORE], NULL); }

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

static size_t b_scratch(const sl_call *call, int threads) {
  (void)threads;
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
static void differentiate_q(const gradients *g, float *before) {
  sli_walk w = sli_walk_of(g->call, &g->s, SLI_WALK_FORTH);
  w.b = sli_walk_input(g->call, &g->s, V);
  w.c = sli_walk_input(g->call, &g->s, K);
  w.d = dout_of(g);
  w.y = sli_walk_sum_of(&g->s, g->dq, g->s.q_heads, g->s.dk);
  w.y.factor = g->scale;
  w.from = before;
  w.to = g->end;
  sli_walk_keys(g->call, &g->s, &w);
}

static void differentiate_k(const gradients *g) {
  sli_walk w = back_of(g);
  w.b = dout_of(g);
  w.c = sli_walk_input(g->call, &g->s, Q);
  w.d = sli_walk_input(g->call, &g->s, V);
  w.y = sli_walk_sum_of(&g->s, g->dk, g->s.k_heads, g->s.dk);
  w.y.factor = g->scale;
  sli_walk_keys(g->call, &g->s, &w);
}

static void differentiate_v(const gradients *g) {
  sli_walk w = back_of(g);
  w.b = sli_walk_input(g->call, &g->s, Q);
  w.c = dout_of(g);
  w.d = sli_walk_input(g->call, &g->s, K);
  w.y = sli_walk_sum_of(&g->s, g->dv, g->s.v_heads, g->s.dv);
  w.y.factor = g->scale;
  w.to = g->carry;
  sli_walk_values(g->call, &g->s, &w);
}

static void differentiate(const gradients *g, float *before) {
  const sl_call *call = g->call;
  bool gates = call->out[GATES], channels = gates && !g->s.per_head;
  if (call->out[Q] || channels || (gates && g->behind)) differentiate_q(g, before);
  if (call->out[K] || channels) differentiate_k(g);
  if (call->out[V] || g->carry || (gates && g->s.per_head)) differentiate_v(g);
  if (gates)
    sli_gate_gradients_run(&(sli_gate_gradients){.call = call,
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

static void linear_attention_b_cpu(const sl_call *call) {
  gradients g = gradients_of(call, NULL, true);
  differentiate(&g, NULL);
}

static void piece_b_cpu(const sl_call *call) {
  bool starts = call->tick.row + call->in_type[0].dim[1] == call->attrs->length;
  gradients g = gradients_of(call, call->out[4], starts);
  differentiate(&g, (float *)call->in[O + 1]);
}

static void step_b_cpu(const sl_call *call) {
  enum { STEP_DO = O + 2, BEHIND };
  gradients g = gradients_of(call, NULL, true);
  g.dout = call->in[STEP_DO];
  g.behind = call->in[BEHIND];
  g.end = (float *)call->scratch + b_scratch(call, 1) / sizeof(float);
  differentiate(&g, (float *)call->in[O + 1]);
}

static size_t step_b_scratch(const sl_call *call, int threads) {
  sli_linear_shape s = shape_of(call);
  return b_scratch(call, threads) + (size_t)(s.batch * s.v_heads * s.dk * s.dv) * sizeof(float);
}

/* ---- serving ------------------------------------------------------------------------------- */

static void walk_sequence(const sl_call *call, const sli_linear_shape *s, int32_t row,
                          sli_walk *w) {
  *w = attention_of(call, s);
  sli_walked *all[] = {&w->b, &w->c, &w->d, &w->g};
  for (int i = 0; i < 4; i++) all[i]->x += row * all[i]->row;
  w->y.y += row * w->y.row;
}

static void served_cpu(const sl_call *call) { sli_walk_served(call, 1, walk_sequence); }

const sl_kernel sli_cpu_linear_attention_served = {
    .backend = "cpu", .run = served_cpu, .scratch = sli_walk_served_scratch};

const sl_kernel sli_cpu_linear_attention = {.backend = "cpu", .run = linear_attention_cpu};

const sl_kernel sli_cpu_linear_attention_b = {
    .backend = "cpu", .run = linear_attention_b_cpu, .scratch = b_scratch};

const sl_kernel sli_cpu_linear_attention_piece = {.backend = "cpu", .run = piece_cpu};

const sl_kernel sli_cpu_linear_attention_piece_b = {
    .backend = "cpu", .run = piece_b_cpu, .scratch = b_scratch};

const sl_kernel sli_cpu_linear_attention_step = {.backend = "cpu", .run = step_cpu};

const sl_kernel sli_cpu_linear_attention_step_b = {
    .backend = "cpu", .run = step_b_cpu, .scratch = step_b_scratch};
