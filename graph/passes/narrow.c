/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the tensors that are bf16, on devices that compute on bf16 tensors.
 *
 * A graph is written in f32. Activations and their gradients may be bf16 instead, if every op that
 * writes or reads them allows it (narrow_in, narrow_out). Weights, statistics, losses and sums over
 * a step stay as they are. Most ops need all their data in one type, so tensors form sets that are
 * narrow as a whole or not at all. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

#include <stdlib.h>

typedef struct sets {
  int *leader; /* [ntensors] link towards the leader of its set */
  bool *wide;  /* [ntensors] by leader: a tensor of the set must stay f32 */
} sets;

static bool may_be(uint32_t narrow, int argument) { return narrow >> SLI_MIN(argument, 31) & 1; }

static int leader_of(sets *s, int t) {
  while (s->leader[t] != t) t = s->leader[t] = s->leader[s->leader[t]];
  return t;
}

static void unite(sets *s, int a, int b) {
  a = leader_of(s, a);
  b = leader_of(s, b);
  s->leader[b] = a;
  s->wide[a] |= s->wide[b];
}

/* Adds an argument of a call; *first is the first argument of the same type. Integers are
 * ignored. */
static void add_argument(sets *s, const sl_op *op, const sl_tensor *t, bool narrow, int *first) {
  if (t->type.dtype == SL_I32) return;
  if (!narrow) s->wide[leader_of(s, t->id)] = true;
  else if (!sli_op_narrow(op)->mixed && *first >= 0) unite(s, *first, t->id);
  else *first = t->id;
}

static void add_node(sets *s, const sli_node *n) {
  bool flows = sli_is_in_pass(n) && !n->per_step;
  int first = -1;
  for (int i = 0; i < n->nin; i++)
    if (n->in[i])
      add_argument(s, n->op, n->in[i], flows && may_be(sli_op_narrow(n->op)->in, i), &first);
  for (int o = 0; o < n->nout; o++)
    if (n->out[o]) {
      bool summed = sli_bit(n->accumulate_span, o);
      add_argument(s, n->op, n->out[o], flows && !summed && may_be(sli_op_narrow(n->op)->out, o),
                   &first);
    }
}

void sli_narrow_mark(sl_graph *g) {
  size_t n = (size_t)g->ntensors;
  sets s = {sli_calloc(n, sizeof *s.leader), sli_calloc(n, sizeof *s.wide)};
  for (int t = 0; t < g->ntensors; t++) {
    s.leader[t] = t;
    s.wide[t] = g->tensors[t]->type.dtype != SL_F32 || g->tensors[t]->param;
  }
  for (int i = 0; i < g->nnodes; i++) add_node(&s, g->nodes[i]);
  for (int t = 0; t < g->ntensors; t++) g->tensors[t]->narrow = !s.wide[leader_of(&s, t)];
  free(s.leader);
  free(s.wide);
}

/* Returns true for an unread output of a call that reads narrow inputs. */
static bool is_output_narrow(const sli_node *n, int o) {
  if (n->out[o]) return n->out[o]->narrow;
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && n->in[i]->narrow) return may_be(sli_op_narrow(n->op)->out, o);
  return false;
}

/* Narrows the types of one call of the node, for whole sequences or for one piece length. */
static void narrow_types(const sli_node *n, sl_type *in, sl_type *out) {
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] && n->in[i]->narrow) in[i].dtype = SL_BF16;
  for (int o = 0; o < n->nout; o++)
    if (is_output_narrow(n, o)) out[o].dtype = SL_BF16;
}

/* Narrows a node; bytes read from other devices have the width of its output. */
static void narrow_node(sl_graph *g, sli_node *n) {
  bool half = n->nout && n->out[0] && n->out[0]->narrow;
  sli_node_own_types(g, n);
  narrow_types(n, n->in_type, n->out_type);
  if (half) n->remote_bytes /= 2;
  for (int v = 0; n->shapes && v < g->cut.nvariants; v++) {
    narrow_types(n, n->shapes[v].in, n->shapes[v].out);
    if (half) n->shapes[v].remote_bytes /= 2;
  }
}

void sli_pass_narrow(sl_graph *g) {
  sli_narrow_mark(g);
  for (int i = 0; i < g->nnodes; i++) narrow_node(g, g->nodes[i]);
  for (int t = 0; t < g->ntensors; t++)
    if (g->tensors[t]->narrow) g->tensors[t]->type.dtype = SL_BF16;
}
