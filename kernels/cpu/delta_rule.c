/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels of the gated delta rule: walks of a state along the positions. ops/delta_rule.c has
 * the formulas. */
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/walks.h"

enum { Q = SLI_WALK_Q, K = SLI_WALK_K, V = SLI_WALK_V, GATES = SLI_WALK_GATES, PART, O, E };

static sli_linear_shape shape_of(const sl_call *call) {
  return sli_linear_shape_of(call->attrs, call->in_type);
}

static sli_walked part_of(const sl_call *call, const sli_linear_shape *s) {
  return sli_walk_array(s, call->in[PART], s->heads, 1);
}

/* ---- forward ------------------------------------------------------------------------------- */

/* Returns the walk that computes o and e. */
static sli_walk rule_of(const sl_call *call, const sli_linear_shape *s) {
  sli_walk w = sli_walk_of(call, s, SLI_WALK_DELTA);
  w.b = sli_walk_input(call, s, K);
  w.c = sli_walk_input(call, s, V);
  w.d = sli_walk_input(call, s, Q);
  w.part = part_of(call, s);
  w.y = sli_walk_sum_of(s, call->out[0], s->heads, s->dv);
  w.y.factor = sli_linear_scale(call->attrs, s->dk);
  w.z = sli_walk_sum_of(s, call->out[1], s->heads, s->dv);
  return w;
}

static void follow(const sl_call *call, float *from, float *to) {
  sli_linear_shape s = shape_of(call);
  sli_walk w = rule_of(call, &s);
  w.from = from;
  w.to = to;
  sli_walk_values(call, &s, &w);
}

static void delta_rule_cpu(const sl_call *call) { follow(call, NULL, NULL); }

static void piece_cpu(const sl_call *call) {
  size_t bytes = sl_type_bytes(&call->out_type[3]);
  float *state = call->out[3];
  if (!call->tick.row) memset(state, 0, bytes);
  if (call->out[2]) memcpy(call->out[2], state, bytes);
  follow(call, state, state);
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Gradients of a call: its outputs, or scratch for those not needed. Also arrays of v's shape: u,
 * and the gradient of o times the scale. */
typedef struct gradients {
  const sl_call *call;
  sli_linear_shape s;
  float *dq, *dk, *dv, *u, *dout;
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
  return g;
}

static size_t b_scratch(const sl_call *call, int threads) {
  (void)threads;
  return sl_type_bytes(&call->in_type[Q]) + sl_type_bytes(&call->in_type[K]) +
         3 * sl_type_bytes(&call->in_type[V]);
}

/* Runs chunk i, a position: fills in u and dout. */
static void prepare_chunk(void *arg, int i) {
  const gradients *g = arg;
  const float *part = g->call->in[PART], *e = g->call->in[E], *dout = g->call->in[g->call->nin - 1];
  float scale = sli_linear_scale(g->call->attrs, g->s.dk);
  int64_t n = g->s.heads * g->s.dv;
  for (int64_t at = i * n, j = 0; j < n; j++, at++) {
    g->u[at] = part[i * g->s.heads + j / g->s.dv] * e[at];
    g->dout[at] = dout[at] * scale;
  }
}

/* Runs chunk i, a position: turns du into dv and the gradient of b. */
static void part_chunk(void *arg, int i) {
  const gradients *g = arg;
  const float *part = (const float *)g->call->in[PART] + i * g->s.heads;
  float *dpart = g->call->out[PART];
  for (int64_t h = 0; h < g->s.heads; h++) {
    int64_t at = (i * g->s.heads + h) * g->s.dv;
    const float *e = (const float *)g->call->in[E] + at;
    double sum = 0;
    for (int64_t j = 0; j < g->s.dv; j++) {
      sum += (double)g->dv[at + j] * (double)e[j];
      g->dv[at + j] *= part[h];
    }
    if (dpart) dpart[i * g->s.heads + h] = (float)sum;
  }
}

static sli_walked values(const gradients *g, const float *x) {
  return sli_walk_array(&g->s, x, g->s.heads, g->s.dv);
}

/* Walks the state gradients backwards, for du. */
static void differentiate_v(const gradients *g) {
  sli_walk w = sli_walk_back_of(g->call, &g->s, SLI_WALK_DELTA_BACK);
  w.b = sli_walk_input(g->call, &g->s, Q);
  w.c = values(g, g->dout);
  w.d = sli_walk_input(g->call, &g->s, K);
  w.part = part_of(g->call, &g->s);
  w.y = sli_walk_sum_of(&g->s, g->dv, g->s.heads, g->s.dv);
  w.from = g->starts ? NULL : g->carry;
  sli_walk_values(g->call, &g->s, &w);
}

/* Walks the states again, for dq and their part of dk. */
static void differentiate_q(const gradients *g) {
  sli_walk w = sli_walk_of(g->call, &g->s, SLI_WALK_DELTA_KEYS);
  w.b = values(g, g->u);
  w.c = sli_walk_input(g->call, &g->s, K);
  w.d = values(g, g->dout);
  w.b2 = values(g, g->dv);
  w.y = sli_walk_sum_of(&g->s, g->dq, g->s.q_heads, g->s.dk);
  w.z = sli_walk_sum_of(&g->s, g->dk, g->s.k_heads, g->s.dk);
  w.z.factor = -1;
  w.from = g->before;
  sli_walk_keys(g->call, &g->s, &w);
}

/* Walks the state gradients backwards, for their part of dk, and passes the record on. */
static void differentiate_k(const gradients *g) {
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
  sli_walk_keys(g->call, &g->s, &w);
}

static void differentiate(gradients g) {
  int positions = (int)(g.s.batch * g.s.positions);
  sl_team_for(g.call->team, positions, prepare_chunk, &g);
  differentiate_v(&g);
  sl_team_for(g.call->team, positions, part_chunk, &g);
  differentiate_q(&g);
  differentiate_k(&g);
  if (g.call->out[GATES])
    sli_gate_gradients_run(&(sli_gate_gradients){.call = g.call,
                                                 .shape = g.s,
                                                 .dv = g.dv,
                                                 .o = g.call->in[O],
                                                 .dout = g.call->in[g.call->nin - 1],
                                                 .dgates = g.call->out[GATES],
                                                 .carry = g.carry,
                                                 .starts = g.starts});
}

static void delta_rule_b_cpu(const sl_call *call) {
  differentiate(gradients_of(call, NULL, NULL, true));
}

static void piece_b_cpu(const sl_call *call) {
  bool starts = call->tick.row + call->in_type[0].dim[1] == call->attrs->length;
  differentiate(gradients_of(call, (float *)call->in[E + 1], call->out[5], starts));
}

/* ---- serving ------------------------------------------------------------------------------- */

static void walk_sequence(const sl_call *call, const sli_linear_shape *s, int32_t row,
                          sli_walk *w) {
  *w = rule_of(call, s);
  sli_walked *all[] = {&w->b, &w->c, &w->d, &w->g, &w->part};
  for (int i = 0; i < 5; i++) all[i]->x += row * all[i]->row;
  w->y.y += row * w->y.row;
  if (w->z.y) w->z.y += row * w->z.row;
}

static void served_cpu(const sl_call *call) { sli_walk_served(call, 2, walk_sequence); }

const sl_kernel sli_cpu_delta_rule_served = {
    .backend = "cpu", .run = served_cpu, .scratch = sli_walk_served_scratch};

const sl_kernel sli_cpu_delta_rule = {.backend = "cpu", .run = delta_rule_cpu};

const sl_kernel sli_cpu_delta_rule_b = {
    .backend = "cpu", .run = delta_rule_b_cpu, .scratch = b_scratch};

const sl_kernel sli_cpu_delta_rule_piece = {.backend = "cpu", .run = piece_cpu};

const sl_kernel sli_cpu_delta_rule_piece_b = {
    .backend = "cpu", .run = piece_b_cpu, .scratch = b_scratch};
