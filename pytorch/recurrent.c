/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers: LSTM, GRU and RNN, written out step by step. */
#include <string.h>

#include "pytorch/emit.h"

/* State of a layer in one direction. `cell` is LSTM's. */
typedef struct state {
  sl_tensor *hidden, *cell;
} state;

/* Computes the state after a step from the one before. `input` and `hidden` are the weighted input
 * and hidden state [rows, gates * width]. */
typedef state step_fn(sli_import *m, sl_tensor *input, sl_tensor *hidden, state before);

enum { MOST_GATES = 4 };

static sl_tensor *one(sli_import *m, const sl_op *op, sl_tensor *x) {
  return sl_op1_at(m->at, m->g, op, NULL, x);
}

/* Splits a tensor into equal parts of a dim. */
static void split(sli_import *m, sl_tensor *x, int dim, int count, sl_tensor **parts) {
  int64_t *lengths = sli_arena_alloc(&m->arena, (size_t)count * sizeof *lengths);
  for (int i = 0; i < count; i++) parts[i] = NULL, lengths[i] = x ? sl_dim(x, dim) / count : 0;
  if (x) sl_split_at(m->at, m->g, x, dim, count, lengths, parts);
}

static state lstm_step(sli_import *m, sl_tensor *input, sl_tensor *hidden, state before) {
  sl_tensor *gates[MOST_GATES];
  split(m, sl_add_at(m->at, m->g, input, hidden), 1, 4, gates);
  sl_tensor *kept = sl_mul_at(m->at, m->g, one(m, &sl_op_sigmoid, gates[1]), before.cell);
  sl_tensor *added =
      sl_mul_at(m->at, m->g, one(m, &sl_op_sigmoid, gates[0]), one(m, &sl_op_tanh, gates[2]));
  sl_tensor *cell = sl_add_at(m->at, m->g, kept, added);
  sl_tensor *shown =
      sl_mul_at(m->at, m->g, one(m, &sl_op_sigmoid, gates[3]), one(m, &sl_op_tanh, cell));
  return (state){shown, cell};
}

static state gru_step(sli_import *m, sl_tensor *input, sl_tensor *hidden, state before) {
  sl_tensor *in[MOST_GATES], *was[MOST_GATES];
  split(m, input, 1, 3, in);
  split(m, hidden, 1, 3, was);
  sl_tensor *reset = one(m, &sl_op_sigmoid, sl_add_at(m->at, m->g, in[0], was[0]));
  sl_tensor *update = one(m, &sl_op_sigmoid, sl_add_at(m->at, m->g, in[1], was[1]));
  sl_tensor *fresh =
      one(m, &sl_op_tanh, sl_add_at(m->at, m->g, in[2], sl_mul_at(m->at, m->g, reset, was[2])));
  sl_tensor *off = sl_op2_at(m->at, m->g, &sl_op_sub, NULL, before.hidden, fresh);
  return (state){sl_add_at(m->at, m->g, sl_mul_at(m->at, m->g, off, update), fresh), NULL};
}

static state tanh_step(sli_import *m, sl_tensor *input, sl_tensor *hidden, state before) {
  (void)before;
  return (state){one(m, &sl_op_tanh, sl_add_at(m->at, m->g, input, hidden)), NULL};
}

static state relu_step(sli_import *m, sl_tensor *input, sl_tensor *hidden, state before) {
  (void)before;
  return (state){one(m, &sl_op_relu, sl_add_at(m->at, m->g, input, hidden)), NULL};
}

static const struct kind {
  const char *target; /* without what follows: of all steps, or of a cell */
  int states;
  step_fn *step;
} kinds[] = {{"aten.lstm", 2, lstm_step},
             {"aten.gru", 1, gru_step},
             {"aten.rnn_tanh", 1, tanh_step},
             {"aten.rnn_relu", 1, relu_step}};

/* Finds the kind of a call, and the arguments that are its states. */
static const struct kind *find_kind(const sli_pt_node *n, const sli_pt_arg *states[2]) {
  const sli_pt_arg *given = sli_pt_arg_find(n, "hx");
  for (size_t i = 0; i < SLI_COUNT(kinds) && given; i++) {
    const struct kind *kind = &kinds[i];
    if (strncmp(n->target, kind->target, strlen(kind->target))) continue;
    bool list = given->kind == SLI_PT_LIST;
    if (list != (kind->states == 2) || (list && given->list.count != 2)) return NULL;
    for (int s = 0; s < kind->states; s++) {
      states[s] = list ? &given->list.of[s] : given;
      if (states[s]->kind != SLI_PT_VALUE) return NULL;
    }
    return kind;
  }
  return NULL;
}

/* A call. */
typedef struct recurrent {
  const sli_pt_node *n;
  const struct kind *kind;
  int layers, directions, steps, time; /* time: the dim of steps */
  int each;                            /* parameters of a layer in one direction */
  bool biases;
  const sli_pt_arg *params, *states[2];
} recurrent;

static bool read_call(sli_import *m, const sli_pt_node *n, recurrent *r) {
  const sli_pt_value *x = sli_pt_first(n);
  *r = (recurrent){.n = n, .params = sli_pt_arg_find(n, "params")};
  r->kind = find_kind(n, r->states);
  if (!r->kind || !x || x->type.ndim != 3 || !r->params || r->params->kind != SLI_PT_LIST)
    return false;
  r->layers = (int)sli_pt_whole(m, n, "num_layers", 1);
  r->directions = sli_pt_flag(n, "bidirectional", false) ? 2 : 1;
  r->biases = sli_pt_flag(n, "has_biases", true);
  r->time = sli_pt_flag(n, "batch_first", false) ? 1 : 0;
  r->steps = (int)x->type.dim[r->time];
  int runs = r->layers * r->directions, least = r->biases ? 4 : 2;
  r->each = runs > 0 ? r->params->list.count / runs : 0; /* LSTM's projections have one more */
  return (r->each == least || (r->kind->states == 2 && r->each == least + 1)) &&
         r->params->list.count == runs * r->each && r->steps > 0;
}

/* Returns a parameter of a run, or NULL if it has fewer. */
static sl_tensor *param(sli_import *m, const recurrent *r, int run, int which) {
  if (which < 0 || which >= r->each) return NULL;
  return sli_pt_f32(m, r->params->list.of[run * r->each + which].value);
}

/* Returns a state before the first step, [rows, width]. */
static sl_tensor *first_state(sli_import *m, const sli_pt_arg *arg, int run, sl_tensor *input) {
  const sli_pt_value *v = arg->value;
  double value;
  if (sli_pt_scalar(m, arg, &value)) {
    sl_tensor *like = sl_slice_at(m->at, m->g, input, 1, 0, v->type.dim[v->type.ndim - 1]);
    return like ? sl_filled_at(m->at, m->g, like->type, (float)value, like) : NULL;
  }
  sl_tensor *all = sli_pt_f32(m, v);
  if (!all || all->type.ndim != 3) return all;
  all = sl_slice_at(m->at, m->g, all, 0, run, 1);
  return all ? sli_pt_drop_dims(m, all, 1) : NULL;
}

static state first_states(sli_import *m, const struct kind *kind, const sli_pt_arg *const *states,
                          int run, sl_tensor *input) {
  state s = {NULL, NULL};
  if (!input) return s;
  s.hidden = first_state(m, states[0], run, input);
  if (kind->states > 1) s.cell = first_state(m, states[1], run, input);
  return s;
}

/* Goes through the steps in one direction. Sets the output [.., steps, .., width], and returns the
 * last state. */
static state go(sli_import *m, const recurrent *r, int run, sl_tensor *x, sl_tensor **out) {
  bool backwards = run % r->directions;
  sl_tensor *w = param(m, r, run, 1), *bias = r->biases ? param(m, r, run, 3) : NULL;
  sl_tensor *projection = param(m, r, run, r->biases ? 4 : 2);
  sl_tensor **input = sli_arena_alloc(&m->arena, (size_t)r->steps * sizeof *input);
  sl_tensor **shown = sli_arena_alloc(&m->arena, (size_t)r->steps * sizeof *shown);
  split(m,
        sl_linear_at(m->at, m->g, x, param(m, r, run, 0), r->biases ? param(m, r, run, 2) : NULL,
                     false),
        r->time, r->steps, input);
  state s = {NULL, NULL};
  for (int i = 0; i < r->steps && !m->g->status; i++) {
    int t = backwards ? r->steps - 1 - i : i;
    sl_tensor *now = sli_pt_drop_dims(m, input[t], 1u << r->time);
    if (!i) s = first_states(m, r->kind, r->states, run, now);
    s = r->kind->step(m, now, sl_linear_at(m->at, m->g, s.hidden, w, bias, false), s);
    if (projection) s.hidden = sl_linear_at(m->at, m->g, s.hidden, projection, NULL, false);
    shown[t] = sli_pt_add_dim(m, s.hidden, r->time);
  }
  *out = m->g->status ? NULL : sl_concat_at(m->at, m->g, r->time, r->steps, shown);
  return s;
}

/* Sets an output to the last states [layers * directions, rows, width], if it is needed. */
static void last_states(sli_import *m, const recurrent *r, int output, sl_tensor **last) {
  const sli_pt_node *n = r->n;
  if (output >= n->nouts || !n->outs[output] || !sli_made_of(m, n->outs[output])->needed) return;
  int runs = r->layers * r->directions;
  for (int i = 0; i < runs; i++) last[i] = sli_pt_add_dim(m, last[i], 0);
  sli_pt_out(m, n, output, sl_concat_at(m->at, m->g, 0, runs, last));
}

/* lstm, gru, rnn_tanh, rnn_relu. */
void sli_emit_recurrent(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  recurrent r;
  sl_tensor *x = sli_pt_in(m, n, "input");
  if (!x || !read_call(m, n, &r)) return;
  double dropout = sli_pt_number(m, n, "dropout", 0);
  if (!sli_pt_flag(n, "train", false)) dropout = 0;
  size_t runs = (size_t)(r.layers * r.directions);
  sl_tensor **hidden = sli_arena_alloc(&m->arena, runs * sizeof *hidden);
  sl_tensor **cell = sli_arena_alloc(&m->arena, runs * sizeof *cell);
  for (int layer = 0; layer < r.layers && !m->g->status; layer++) {
    sl_tensor *out[2] = {NULL, NULL};
    for (int d = 0; d < r.directions; d++) {
      state last = go(m, &r, layer * r.directions + d, x, &out[d]);
      hidden[layer * r.directions + d] = last.hidden, cell[layer * r.directions + d] = last.cell;
    }
    x = r.directions > 1 && out[1] ? sl_concat_at(m->at, m->g, 2, 2, out) : out[0];
    if (x && dropout > 0 && layer < r.layers - 1) x = sl_dropout_at(m->at, m->g, x, (float)dropout);
  }
  sli_pt_out(m, n, 0, x);
  last_states(m, &r, 1, hidden);
  if (r.kind->states > 1) last_states(m, &r, 2, cell);
}

/* lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell: one step. */
void sli_emit_cell(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_arg *states[2] = {NULL, NULL};
  const struct kind *kind = find_kind(n, states);
  sl_tensor *x = sli_pt_in(m, n, "input");
  if (!kind || !x || x->type.ndim != 2) return;
  x = sl_linear_at(m->at, m->g, x, sli_pt_in(m, n, "w_ih"), sli_pt_in(m, n, "b_ih"), false);
  state s = first_states(m, kind, states, 0, x);
  sl_tensor *hidden =
      sl_linear_at(m->at, m->g, s.hidden, sli_pt_in(m, n, "w_hh"), sli_pt_in(m, n, "b_hh"), false);
  s = kind->step(m, x, hidden, s);
  sli_pt_out(m, n, 0, s.hidden);
  sli_pt_out(m, n, 1, s.cell);
}
