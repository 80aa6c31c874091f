/* SPDX-License-Identifier: Apache-2.0 */
/* Activation checkpointing: activations that are recomputed instead of kept.
 *
 * Every stage keeps the activations that the backward pass reads, for every microbatch in flight.
 * Instead, a forward call can be repeated right before its results are read: then only the inputs
 * of that call must be kept.
 *
 *   full        all calls of a block, from the block's inputs (Chen et al., arXiv 1604.06174;
 *               one more forward pass)
 *   whole       these, and the exchanges between devices of a stage in the forward pass
 *   selective   calls that cost next to nothing, as their ops say (`cheap`), where their inputs
 *               are kept anyway (after Korthikanti et al., arXiv 2205.05198; the attention ops
 *               here never keep scores)
 *
 * The user chooses the amount for each block.
 *
 * The copies of a block's calls belong to its input gradient pass, on the same device, each right
 * before the first call that reads its result. That result is therefore in the pass's workspace,
 * one block after another. Outputs of the block are never recomputed, nor are exchanged tensors,
 * nor gradients computed during the forward pass. Two kinds of exchange are exceptions. An exchange
 * within a block that only changes the layout of a tensor (sli_node.repeats) is recomputed in full,
 * by all devices of its row. If the backward pass repeats a join of the forward pass, all of the
 * backward pass reads the new tensor, joined from recomputed parts.
 *
 * If a call keeps a record of its sequence, the record stays, and an op that reads the record
 * instead of updating it (sl_op.rematerialized) computes the other outputs. A sharded parameter is
 * gathered for each block only while it is needed, once forward and once backward: a call is
 * recomputed only if all parameters it reads are also gathered in the backward pass. The same calls
 * on the same data give the same bits.
 *
 * With --offload, only some pieces of a sequence recompute. A recomputed tensor then refers to its
 * original, and the piece determines which of the two is read (programs.c). */
#include <sluice/plan.h>

#include "graph/build/build.h"
#include "graph/passes/passes.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

/* Amount of recomputation. PART: all except attention and exchanges. SOME: the same, for some
 * pieces. */
typedef enum amount { NONE, SELECTIVE, FULL, WHOLE, PART, SOME } amount;

typedef struct pass {
  sl_graph *g;
  amount *amounts;    /* [nblocks] amount for each block */
  bool *backward;     /* [nnodes] in its block's backward pass, including exchanges that only that
                         pass reads */
  bool *late;         /* [nnodes] exchange that only backward passes read, another block's among
                         them */
  int *same;          /* [nnodes] previous node with the same first input, or SL_NONE */
  int *reader;        /* [ntensors] latest such node */
  bool *read;         /* [ntensors] read by the backward pass: kept, or recomputed */
  bool *shared;       /* [ntensors] read by nodes other than passes of its block on its device */
  bool *forth;        /* [nnodes] exchange of the forward pass */
  bool *can;          /* [nnodes] may be recomputed */
  bool *wanted;       /* [nnodes] is to be recomputed */
  sl_tensor **again;  /* [ntensors] tensor that replaces it in the backward pass; NULL: itself */
  sl_tensor **resent; /* [ntensors] copy that exchanges of the backward pass read; NULL: `again`,
                         or itself */
  int before;         /* number of nodes before this pass */
} pass;

static amount amount_of(const pass *p, const sli_node *n) {
  return n->block < 0 ? NONE : p->amounts[n->block];
}

static bool is_backward_pass(const sli_node *n) {
  bool passes = n->cls == SL_CLASS_B || n->cls == SL_CLASS_W;
  return (passes || n->rereads) && n->phase == SLI_PHASE_MAIN;
}

static bool is_exchange(const sli_node *n) {
  return n->cls == SL_CLASS_C && n->phase == SLI_PHASE_MAIN;
}

static bool same_place(const sli_node *a, const sli_node *b) {
  return a->block == b->block && a->rank == b->rank;
}

static bool is_forth(const pass *p, const sli_node *n) {
  return (n->cls == SL_CLASS_F && !n->rule) || p->forth[n->id];
}

/* Finds exchanges between calls of the forward pass. Exchanges of parameters are excluded, since
 * each pass repeats them, and so are exchanges of forward tensors by the backward pass. */
static void find_exchanges(pass *p) {
  bool *read = sli_calloc((size_t)p->before, sizeof *read);
  for (int i = 0; i < p->before; i++) {
    const sli_node *n = p->g->nodes[i];
    p->forth[i] = n->cls == SL_CLASS_C && n->phase == SLI_PHASE_MAIN && !n->per_step &&
                  !sli_makes_transient(n);
    for (int a = 0; a < n->nin && p->forth[i]; a++)
      p->forth[i] = n->in[a] && n->in[a]->producer && is_forth(p, n->in[a]->producer);
  }
  for (int i = p->before - 1; i >= 0; i--) {
    const sli_node *n = p->g->nodes[i];
    p->forth[i] &= read[i];
    for (int a = 0; a < n->nin; a++)
      if (n->in[a] && n->in[a]->producer) read[n->in[a]->producer->id] |= is_forth(p, n);
  }
  free(read);
}

/* Readers of a tensor: its block's backward pass, other backward passes, the forward pass. */
enum { BY_BACKWARD = 1, BY_OTHERS_BACKWARD = 2, BY_FORWARD = 4 };

static uint8_t reads_as(const pass *p, const sli_node *n, const sl_tensor *t) {
  if (!p->backward[n->id] && !p->late[n->id]) return BY_FORWARD;
  return p->backward[n->id] && t->producer && n->block == t->producer->block ? BY_BACKWARD
                                                                             : BY_OTHERS_BACKWARD;
}

/* Finds boxing for the backward pass, in blocks that are recomputed in full. */
static void find_backward(pass *p) {
  uint8_t *read = sli_calloc((size_t)p->g->ntensors, sizeof *read);
  for (int i = p->before - 1; i >= 0; i--) {
    const sli_node *n = p->g->nodes[i];
    uint8_t by = 0;
    for (int o = 0; o < n->nout; o++) by |= n->out[o] ? read[n->out[o]->id] : 0;
    bool boxed = is_exchange(n) && amount_of(p, n) == FULL;
    p->backward[i] = is_backward_pass(n) || (boxed && by == BY_BACKWARD);
    p->late[i] = boxed && !p->backward[i] && !(by & BY_FORWARD);
    for (int a = 0; a < n->nin; a++)
      if (n->in[a]) read[n->in[a]->id] |= reads_as(p, n, n->in[a]);
  }
  free(read);
}

/* True for an exchange that its block may recompute. */
static bool is_exchanged_again(const pass *p, const sli_node *n) {
  amount most = amount_of(p, n);
  if (n->arrives) return false;
  return (n->repeats && (most == FULL || most == WHOLE)) || (p->forth[n->id] && most == WHOLE);
}

static void find_same(pass *p) {
  for (int t = 0; t < p->g->ntensors; t++) p->reader[t] = SL_NONE;
  for (int i = 0; i < p->before; i++) {
    const sl_tensor *first = p->g->nodes[i]->nin ? p->g->nodes[i]->in[0] : NULL;
    p->same[i] = first ? p->reader[first->id] : SL_NONE;
    if (first) p->reader[first->id] = i;
  }
}

/* True for an exchange within a block, which reads the original, or in the backward pass the
 * recomputed tensor. */
static bool goes_along(const pass *p, const sli_node *n, const sl_tensor *t) {
  return amount_of(p, n) == FULL && is_exchange(n) && !p->late[n->id] &&
         n->block == t->producer->block;
}

static void find_readers(pass *p) {
  for (int i = 0; i < p->before; i++) {
    const sli_node *n = p->g->nodes[i];
    for (int a = 0; a < n->nin; a++) {
      const sl_tensor *t = n->in[a];
      if (!t || !t->producer) continue;
      bool rereads = n->rereads && (amount_of(p, n) == FULL || amount_of(p, n) == WHOLE);
      bool exchanged = goes_along(p, n, t) ||
                       ((rereads || is_exchanged_again(p, n)) && n->block == t->producer->block);
      p->read[t->id] |= p->backward[i];
      if (n->resends) p->resent[t->id] = n->out[0];
      p->shared[t->id] |= !exchanged && (!same_place(t->producer, n) ||
                                         (n->cls != SL_CLASS_F && !is_backward_pass(n)));
      p->shared[t->id] |= sli_bit(sli_op_cut(n->op)->sweeps, a); /* by other pieces */
    }
  }
}

static bool same_inputs(const sli_node *a, const sli_node *b) {
  return a->nin == b->nin && !memcmp(a->in, b->in, (size_t)a->nin * sizeof *a->in);
}

/* Returns a tensor that the backward pass computes from the same inputs in the same way, or NULL if
 * there is none. */
static sl_tensor *made_again(const pass *p, const sl_tensor *t) {
  const sli_node *n = t->producer;
  for (int i = n->nin && n->in[0] ? p->reader[n->in[0]->id] : SL_NONE; i != SL_NONE;
       i = p->same[i]) {
    const sli_node *m = p->g->nodes[i];
    if (m != n && m->op == n->op && m->cls == n->cls && same_place(m, n) && same_inputs(m, n) &&
        m->out[t->output] && p->read[m->out[t->output]->id])
      return m->out[t->output];
  }
  return NULL;
}

/* Returns the backward pass's tensor with the values of `t`, or NULL if there is none. */
static sl_tensor *on_the_way_backward(const pass *p, sl_tensor *t) {
  if (!t || !t->producer) return t;
  if (t->transient) return made_again(p, t);
  bool joined = (t->producer->op == &sl_op_join || t->producer->along) &&
                is_exchange(t->producer) && !p->read[t->id] && amount_of(p, t->producer) == FULL;
  sl_tensor *again = joined ? made_again(p, t) : NULL;
  return again ? again : t;
}

/* True if all inputs of the node are available when it is recomputed. */
static bool has_inputs(const pass *p, const sli_node *n) {
  for (int a = 0; a < n->nin; a++) {
    sl_tensor *t = n->in[a];
    if (!t || !t->producer) continue;
    if (t->transient ? !on_the_way_backward(p, t)
                     : amount_of(p, n) < FULL && !p->read[t->id] && !p->can[t->producer->id])
      return false;
  }
  return true;
}

/* True for a record that the call has updated: the backward pass has it, and nothing replaces
 * it. */
static bool is_record(const sli_node *n, int o) {
  return sli_bit(sli_op_memory(n->op)->updates, o);
}

/* True if the call has an output that it updates; an op's further outputs may be absent. */
static bool keeps_record(const sli_node *n) {
  for (int o = 0; o < n->nout; o++)
    if (is_record(n, o)) return true;
  return false;
}

/* Returns the op that computes a call again, or NULL if none does. */
static const sl_op *rematerialized_op(const sli_node *n) {
  return keeps_record(n) ? n->op->rematerialized : n->op;
}

static bool can_repeat(const pass *p, const sli_node *n) {
  amount most = amount_of(p, n);
  bool exchange = is_exchanged_again(p, n);
  if (!rematerialized_op(n) || (most >= PART && keeps_record(n))) return false;
  if (!exchange && (n->cls != SL_CLASS_F || n->rule)) return false;
  if (most == NONE || (!exchange && most == SELECTIVE && !sli_op_is(n->op, SL_OP_CHEAP)))
    return false;
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && !is_record(n, o) && p->shared[n->out[o]->id]) return false;
  return has_inputs(p, n);
}

/* True if the node reads its input a when it is recomputed. */
static bool reads_again(const sli_node *n, int a) {
  return !keeps_record(n) || !sli_bit_on(sli_op_memory(rematerialized_op(n))->unread, a);
}

static void want(pass *p, const sl_tensor *t) {
  if (!t || !t->producer || is_record(t->producer, t->output)) return;
  if (p->can[t->producer->id]) p->wanted[t->producer->id] = true;
}

static void recompute_choose(pass *p) {
  for (int i = 0; i < p->before; i++) p->can[i] = can_repeat(p, p->g->nodes[i]);
  for (int i = p->before - 1; i >= 0; i--) {
    const sli_node *n = p->g->nodes[i];
    for (int a = 0; a < n->nin; a++) {
      if (p->backward[i]) want(p, n->in[a]);
      else if (p->wanted[i] && reads_again(n, a)) want(p, on_the_way_backward(p, n->in[a]));
    }
  }
}

/* ---- rewriting ----------------------------------------------------------------------- */

/* Lists the inputs of a recomputed call: in[nin + nout]; returns their number. */
static int inputs_again(const pass *p, const sli_node *n, sl_tensor **in) {
  int nin = n->nin;
  for (int a = 0; a < nin; a++) in[a] = reads_again(n, a) ? on_the_way_backward(p, n->in[a]) : NULL;
  for (int o = 0; o < n->nout; o++)
    if (is_record(n, o)) in[nin++] = n->out[o];
  return nin;
}

/* Returns the types of a recomputed call's inputs, for a node with types in[] and out[]. */
static sl_type *types_again(sl_graph *g, const sli_node *n, const sl_type *in, const sl_type *out) {
  int nin = SLI_MAX(n->nin, n->op->max_in), count = n->nin;
  sl_type *types = sli_arena_alloc(&g->arena, (size_t)(nin + n->nout) * sizeof *types);
  memcpy(types, in, (size_t)nin * sizeof *types);
  for (int o = 0; o < n->nout; o++)
    if (is_record(n, o)) types[count++] = out[o];
  return types;
}

static sl_type *copy_types(sl_graph *g, const sl_type *types, int count) {
  sl_type *copy = sli_arena_alloc(&g->arena, (size_t)count * sizeof *copy);
  return count ? memcpy(copy, types, (size_t)count * sizeof *copy) : copy;
}

static void copy_shapes(sl_graph *g, const sli_node *from, sli_node *to) {
  to->in_type = types_again(g, from, from->in_type, from->out_type);
  to->out_type = copy_types(g, from->out_type, from->nout);
  if (!from->shapes) return;
  to->shapes = sli_arena_alloc(&g->arena, (size_t)g->cut.nvariants * sizeof *to->shapes);
  for (int v = 0; v < g->cut.nvariants; v++) {
    const sli_shapes *s = &from->shapes[v];
    to->shapes[v] = (sli_shapes){s->attrs, types_again(g, from, s->in, s->out),
                                 copy_types(g, s->out, from->nout), s->remote_bytes};
  }
  to->in_type = to->shapes[0].in;
  to->out_type = to->shapes[0].out;
}

static void read_again(const pass *p, sli_node *n) {
  for (int a = 0; a < n->nin; a++) {
    sl_tensor *t = n->in[a], *again = t ? p->again[t->id] : NULL;
    if (!again) continue;
    n->in[a] = again;
    if (amount_of(p, n) != SOME || n->rematerialized) continue;
    again->kept = t;
    t->leaves = true;
  }
}

/* Makes exchanges read the copy that is sent for the whole backward pass. */
static void read_resent(const pass *p, sli_node *n) {
  for (int a = 0; a < n->nin && n->cls == SL_CLASS_C; a++)
    if (n->in[a] && p->resent[n->in[a]->id]) n->in[a] = p->resent[n->in[a]->id];
}

static void repeat(pass *p, const sli_node *n) {
  sl_graph *g = p->g;
  const char *name = sli_arena_format(&g->arena, "%s:again", n->name);
  sl_tensor *in[n->nin + n->nout + 1];
  int nin = inputs_again(p, n, in);
  sl_class cls = n->cls == SL_CLASS_C ? SL_CLASS_C : SL_CLASS_B;
  sli_node *copy =
      sli_graph_node(g, rematerialized_op(n), name, &n->attrs, cls, n->block, nin, in, n->nout);
  copy->at = n->at;
  copy->remote_axis = n->remote_axis;
  copy->remote_bytes = n->remote_bytes;
  copy->along = n->along;
  copy->rank = n->rank;
  copy->rematerialized = true;
  copy_shapes(g, n, copy);
  read_resent(p, copy);
  read_again(p, copy);
  for (int o = 0; o < n->nout; o++)
    if (n->out[o] && !is_record(n, o))
      p->again[n->out[o]->id] =
          sli_node_output(g, copy, o, sli_arena_format(&g->arena, "%s:again", n->out[o]->name));
}

/* New order of the nodes, as far as it is known. */
typedef struct order {
  sli_node **nodes;
  int count;
  bool *placed; /* [nnodes] by the old number */
} order;

/* Places a node after all nodes that it reads. */
static void recompute_place(order *o, sli_node *n) {
  if (o->placed[n->id]) return;
  o->placed[n->id] = true;
  for (int a = 0; a < n->nin; a++)
    if (n->in[a] && n->in[a]->producer) recompute_place(o, n->in[a]->producer);
  o->nodes[o->count++] = n;
}

/* Moves each copy right before its first reader; the order is otherwise unchanged. */
static void put_in_place(pass *p) {
  sl_graph *g = p->g;
  size_t n = (size_t)g->nnodes;
  order o = {.nodes = sli_arena_alloc(&g->arena, n * sizeof *o.nodes),
             .placed = sli_calloc(n, sizeof *o.placed)};
  for (int i = 0; i < p->before; i++) recompute_place(&o, g->nodes[i]);
  SLI_CHECK(o.count == g->nnodes, "%d of %d nodes are read", o.count, g->nnodes);
  sli_graph_reorder(g, o.nodes);
  free(o.placed);
}

static void make_again(sl_graph *g, amount *of) {
  size_t nnodes = (size_t)g->nnodes, ntensors = (size_t)g->ntensors;
  pass p = {.g = g,
            .amounts = of,
            .before = g->nnodes,
            .backward = sli_calloc(nnodes, sizeof *p.backward),
            .late = sli_calloc(nnodes, sizeof *p.late),
            .same = sli_calloc(nnodes, sizeof *p.same),
            .reader = sli_calloc(ntensors, sizeof *p.reader),
            .read = sli_calloc(ntensors, sizeof *p.read),
            .shared = sli_calloc(ntensors, sizeof *p.shared),
            .forth = sli_calloc(nnodes, sizeof *p.forth),
            .can = sli_calloc(nnodes, sizeof *p.can),
            .wanted = sli_calloc(nnodes, sizeof *p.wanted),
            .again = sli_calloc(ntensors, sizeof(sl_tensor *)),
            .resent = sli_calloc(ntensors, sizeof(sl_tensor *))};
  find_exchanges(&p);
  find_backward(&p);
  find_same(&p);
  find_readers(&p);
  recompute_choose(&p);
  for (int i = 0; i < p.before; i++)
    if (p.wanted[i]) repeat(&p, g->nodes[i]);
  for (int i = 0; i < p.before; i++)
    if (p.backward[i]) read_again(&p, g->nodes[i]);
  put_in_place(&p);
  free(p.backward);
  free(p.late);
  free(p.same);
  free(p.reader);
  free(p.read);
  free(p.shared);
  free(p.forth);
  free(p.can);
  free(p.wanted);
  free(p.again);
  free(p.resent);
}

void sli_pass_offload(sl_graph *g, bool some) {
  amount *of = sli_calloc((size_t)g->nblocks + 1, sizeof *of);
  for (int b = 0; b < g->nblocks; b++) of[b] = some ? SOME : PART;
  make_again(g, of);
  free(of);
}

/* ---- options --------------------------------------------------------------------------------- */

static bool find_amount(const char *word, amount *out) {
  static const char *const words[] = {
      [NONE] = "none", [SELECTIVE] = "selective", [FULL] = "full", [WHOLE] = "whole"};
  for (size_t i = 0; i < SLI_COUNT(words); i++)
    if (!strcmp(word, words[i])) {
      *out = (amount)i;
      return true;
    }
  return false;
}

/* Reads "full" for all blocks, or "none@h.3" for those that match. */
static sl_status read_one(const sl_graph *g, char *text, amount *of) {
  char *at = strchr(text, '@');
  amount found;
  bool any = false;
  if (at) *at++ = 0;
  if (!find_amount(text, &found))
    return sl_fail(SL_E_USAGE, "unknown recompute '%s': must be none, selective, full or whole",
                   text);
  for (int b = 0; b < g->nblocks; b++) {
    if (at && !sli_pattern_finds(at, g->blocks[b].name)) continue;
    of[b] = found;
    any = true;
  }
  if (any) return SL_OK;
  return sl_fail(SL_E_USAGE, "recompute %s@%s: the model has no block of that name; its last is %s",
                 text, at ? at : "", g->blocks[g->nblocks - 1].name);
}

sl_status sli_pass_recompute(sl_graph *g, const char *what) {
  amount *of = sli_calloc((size_t)g->nblocks + 1, sizeof *of), most = NONE;
  char *words = sli_strdup(what ? what : "none"), *state = NULL;
  sl_status status = SL_OK;
  for (char *word = strtok_r(words, ",", &state); word && !status;
       word = strtok_r(NULL, ",", &state))
    status = read_one(g, word, of);
  for (int b = 0; b < g->nblocks; b++) most = SLI_MAX(most, of[b]);
  if (!status && most > NONE) make_again(g, of);
  free(words);
  free(of);
  return status;
}
