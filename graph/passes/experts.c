/* SPDX-License-Identifier: Apache-2.0 */
/* Experts on disk: replaces the products of a mixture (gate, up, down) whose weights have that home
 * by two actors. `load_experts` reads the experts that a tick's rows want, into a cache;
 * `loaded_experts` computes their rows (ops/expert_loads.h). A mixture of another form stays as it
 * is, and its weights come block by block.
 *
 * With `routed`, a product of each row with its expert's bit router [levels, width] says how many
 * planes the row reads: the level of the largest number, the first of equal ones.
 *
 * With prefetch N, a layer's experts are guessed N mixtures earlier: by its own norm and router,
 * applied to the residual stream that enters the earlier mixture. */
#include "graph/build/build.h"
#include "graph/passes/passes.h"

#include <stdlib.h>
#include <string.h>

#include "ops/expert_loads.h"
#include "ops/planes.h"
#include "ops/storage.h"
#include "ops/ops.h"

/* The nodes of a mixture. */
typedef struct mixture {
  sli_node *gate, *up, *activation, *down;
} mixture;

static sli_node *maker_of(const sli_node *n, int input, const sl_op *op) {
  sli_node *maker = n->in[input] ? n->in[input]->producer : NULL;
  return maker && maker->op == op ? maker : NULL;
}

static bool reads_once(const sl_graph *g, const sl_tensor *t) {
  int readers = 0;
  for (int i = 0; i < g->nnodes; i++)
    for (int a = 0; a < g->nodes[i]->nin; a++) readers += g->nodes[i]->in[a] == t;
  for (int i = 0; i < g->noutputs; i++) readers += g->outputs[i].tensor == t;
  return readers == 1;
}

/* Finds the mixture that ends with a product of experts. */
static bool find_mixture(const sl_graph *g, sli_node *down, mixture *m) {
  const sl_op *product = &sl_op_grouped_linear_served;
  sli_node *activation = down->op == product ? maker_of(down, 0, &sl_op_swiglu) : NULL;
  if (!activation) return false;
  *m = (mixture){maker_of(activation, 0, product), maker_of(activation, 1, product), activation,
                 down};
  if (!m->gate || !m->up || m->gate == m->up) return false;
  bool same = m->gate->in[0] == m->up->in[0] && m->gate->in[1] == m->up->in[1] &&
              m->gate->in[1] == down->in[1] && m->gate->rank == down->rank;
  const sli_node *nodes[] = {m->gate, m->up, down};
  for (int i = 0; i < SLI_MATRICES; i++)
    same &= nodes[i]->in[2]->param && reads_once(g, nodes[i]->in[2]);
  same &= !m->gate->in[2]->shard && !m->up->in[2]->shard && !down->in[2]->shard;
  return same && reads_once(g, m->gate->out[0]) && reads_once(g, m->up->out[0]) &&
         reads_once(g, activation->out[0]);
}

/* Type of one expert's matrix. */
static sl_type matrix_of(const sl_tensor *weight) {
  return SL_TYPE(weight->type.dtype, weight->type.dim[1], weight->type.dim[2]);
}

static size_t whole_pages(size_t bytes) {
  return (bytes + SLI_SLOT_MULTIPLE - 1) / SLI_SLOT_MULTIPLE * SLI_SLOT_MULTIPLE;
}

/* Puts a weight into planes, whatever its format was. */
static void store_planes(sl_tensor *weight, int base, int width) {
  if (!weight->storage) weight->values = weight->type;
  weight->storage = sli_storage_planes(base, width);
  weight->type = sli_storage_type(weight->storage, &weight->values);
}

static sli_expert_loads *experts_in_planes(sl_graph *g, const mixture *m) {
  sl_tensor *weights[] = {m->gate->in[2], m->up->in[2], m->down->in[2]};
  const sl_serving_experts *e = &g->options.serve->experts;
  sli_expert_loads *x = sli_arena_alloc(&g->arena, sizeof *x);
  *x = (sli_expert_loads){.levels = e->most - e->least + 1,
                          .base = e->least,
                          .planes = true,
                          .each = (int32_t)sl_type_last(&m->down->in[1]->type)};
  for (int i = 0; i < SLI_MATRICES; i++) {
    store_planes(weights[i], e->least, e->most);
    const sl_type *values = &weights[i]->values;
    x->experts = (int32_t)values->dim[0];
    x->matrix[i] = SL_TYPE(SL_F32, values->dim[1], values->dim[2]);
    x->piece_bytes[i] = sli_plane_bytes(&x->matrix[i]);
    x->part_bytes += x->piece_bytes[i];
  }
  x->slot_bytes = whole_pages(x->part_bytes);
  return x;
}

static sli_expert_loads *whole_experts(sl_graph *g, const mixture *m) {
  const sl_tensor *weights[] = {m->gate->in[2], m->up->in[2], m->down->in[2]};
  sli_expert_loads *x = sli_arena_alloc(&g->arena, sizeof *x);
  *x = (sli_expert_loads){
      .experts = (int32_t)weights[0]->type.dim[0], .levels = 1, .base = 1, .each = 1};
  for (int i = 0; i < SLI_MATRICES; i++) {
    x->matrix[i] = matrix_of(weights[i]);
    x->storage[i] = weights[i]->storage;
    x->piece_bytes[i] = sl_type_bytes(&x->matrix[i]);
    x->part_bytes += x->piece_bytes[i];
  }
  x->slot_bytes = whole_pages(x->part_bytes);
  return x;
}

/* Sets the slots of a layer's cache; no more than all parts. */
static void settle(const sl_graph *g, const sl_type *ids, sli_expert_loads *x) {
  const sl_serving_experts *e = &g->options.serve->experts;
  int32_t all = x->experts * sli_expert_parts(x), least = sli_expert_least_slots(x);
  x->wanted = (int32_t)SLI_MIN(sl_type_elements(ids), x->experts);
  int32_t slots = e->slots ? e->slots : (all + 1) / 2;
  x->slots = SLI_MAX(SLI_MIN(slots, all), least);
  x->hits = e->hits > 0 ? e->hits : SLI_MIN((double)x->slots / all, 1);
  x->ascending = e->ascending;
  x->reads = e->reads;
  sli_expert_loads_settle(x);
}

/* Notes the sizes in force. */
static void note(sl_serving_experts *to, const sli_expert_loads *x) {
  to->parts = x->experts * sli_expert_parts(x);
  to->held = x->slots;
  to->part_bytes = (int64_t)x->part_bytes;
}

/* ---- guesses -------------------------------------------------------------------------------- */

/* Returns the residual stream that enters a mixture: the input of its norm, or if it has none its
 * own. */
static sl_tensor *stream_of(const mixture *m) {
  sl_tensor *x = m->gate->in[0], *before = NULL;
  int computed = 0;
  for (int i = 0; x->producer && i < x->producer->nin; i++) {
    sl_tensor *t = x->producer->in[i];
    if (t && t->producer) before = t, computed++;
  }
  return computed == 1 && sl_type_equal(&before->type, &x->type) ? before : x;
}

/* A copy of the nodes between a stream and a mixture's ids, for another stream. */
typedef struct copying {
  sl_graph *g;
  const sli_node *next;   /* the copies come before it */
  const sl_tensor *from;  /* replaced ... */
  sl_tensor *by;          /* ... by this stream */
  const sli_node *of[16]; /* nodes that have been copied */
  sli_node *copy[16];
  size_t count;
  bool fails; /* the ids depend on something else */
} copying;

static sl_tensor *copy_of(copying *c, sl_tensor *t);

static sli_node *copy_node(copying *c, const sli_node *n) {
  sl_graph *g = c->g;
  sl_tensor **in = sli_arena_alloc(&g->arena, (size_t)n->nin * sizeof *in);
  for (int i = 0; i < n->nin && !c->fails; i++) in[i] = copy_of(c, n->in[i]);
  c->fails |= c->count == SLI_COUNT(c->of);
  if (c->fails) return NULL;
  const char *name = sli_arena_format(&g->arena, "%s:guess", n->name);
  sli_node *copy = sli_graph_node(g, n->op, name, &n->attrs, n->cls, n->block, n->nin, in, n->nout);
  copy->at = n->at;
  copy->rank = n->rank;
  if (sli_node_infer(copy)) {
    c->fails = true;
    return NULL;
  }
  for (int o = 0; o < n->nout; o++)
    if (n->out[o])
      sli_node_output(g, copy, o, sli_arena_format(&g->arena, "%s:guess", n->out[o]->name))->rank =
          n->rank;
  sli_graph_move_before(g, c->next);
  c->of[c->count] = n;
  return c->copy[c->count++] = copy;
}

static sl_tensor *copy_of(copying *c, sl_tensor *t) {
  if (t == c->from) return c->by;
  if (!t || !t->producer || t == c->g->served.batch) return t;
  for (size_t i = 0; i < c->count; i++)
    if (c->of[i] == t->producer) return c->copy[i]->out[t->output];
  if (t->producer->block < 0 || !t->producer->nin) c->fails = true;
  sli_node *copy = c->fails ? NULL : copy_node(c, t->producer);
  return copy ? copy->out[t->output] : NULL;
}

/* Streams that enter the mixtures so far. */
typedef struct streams {
  size_t count, capacity;
  sl_tensor **all;
} streams;

/* Returns guesses of a mixture's ids by the stream of an earlier mixture, or NULL: there is none,
 * or the ids depend on more than their stream. */
static sl_tensor *add_guesses(sl_graph *g, const mixture *m, const streams *before) {
  size_t ahead = (size_t)g->options.serve->experts.prefetch;
  sl_tensor *ids = m->down->in[1];
  if (!ahead || ahead > before->count) return NULL;
  copying c = {
      .g = g, .next = m->gate, .from = stream_of(m), .by = before->all[before->count - ahead]};
  if (!sl_type_equal(&c.from->type, &c.by->type)) return NULL;
  sl_tensor *guesses = copy_of(&c, ids);
  return c.fails || guesses == ids ? NULL : guesses;
}

/* ---- bit routers ---------------------------------------------------------------------------- */

/* Adds a node before a mixture, in its block. Returns output `o`; NULL: an error. */
static sl_tensor *add_before(sl_graph *g, const mixture *m, const sl_op *op, const char *name,
                             const sl_attrs *attrs, int nin, sl_tensor *const *in, int nout,
                             int o) {
  name = sli_arena_format(&g->arena, "%s:%s", m->down->name, name);
  sli_node *n = sli_graph_node(g, op, name, attrs, SL_CLASS_F, m->down->block, nin, in, nout);
  n->at = m->down->at;
  n->rank = m->down->rank;
  if (sli_node_infer(n)) return NULL;
  for (int i = 0; i < nout; i++)
    sli_node_output(g, n, i, sli_arena_format(&g->arena, "%s.%d", name, i))->rank = n->rank;
  sli_graph_move_before(g, m->gate);
  return n->out[o];
}

/* Returns the level of each id. */
static sl_tensor *add_levels(sl_graph *g, const mixture *m, const sli_expert_loads *x) {
  sl_tensor *router =
      sli_bits_router(m->gate->at, g, m->gate->in[2], x->experts, x->levels, x->matrix[0].dim[1]);
  if (!router) return NULL;
  router->home = m->down->block, router->rank = m->down->rank;
  sl_tensor **in = sli_arena_alloc(&g->arena, (size_t)m->gate->nin * sizeof *in);
  memcpy(in, m->gate->in, (size_t)m->gate->nin * sizeof *in);
  in[2] = router;
  sl_tensor *y = add_before(g, m, m->gate->op, "bits", &m->gate->attrs, m->gate->nin, in, 1, 0);
  if (!y) return NULL;
  const sl_attrs best = {.along.axes = 1u << (y->type.ndim - 1), .along.k = 1};
  sl_tensor *ids = add_before(g, m, &sl_op_top_k, "level", &best, 1, &y, 2, 1);
  if (!ids) return NULL;
  sl_reshaping *r = sli_arena_alloc(&g->arena, sizeof *r);
  *r = (sl_reshaping){ids->type, m->down->in[1]->type};
  return add_before(g, m, &sl_op_reshape, "levels", &(sl_attrs){.user = r}, 1, &ids, 1, 0);
}

/* ---- the two actors ------------------------------------------------------------------------- */

/* Adds the node that loads, and returns what it lends. */
static sl_tensor *add_loads(sl_graph *g, const mixture *m, sl_tensor *levels, sl_tensor *guesses,
                            const sl_attrs *attrs) {
  sl_tensor *in[] = {m->down->in[1], levels, m->gate->in[2], m->up->in[2], m->down->in[2], guesses};
  const char *name = sli_arena_format(&g->arena, "%s:loads", m->down->name);
  sl_attrs with = *attrs;
  with.experts.firings += guesses != NULL;
  sli_node *n = sli_graph_node(g, &sl_op_load_experts, name, &with, SL_CLASS_F, m->down->block,
                               SLI_LOADS_GUESSED + (guesses != NULL), in, 3);
  n->at = m->down->at;
  n->rank = m->down->rank;
  if (sli_node_infer(n)) return NULL;
  for (int o = 0; o < 3; o++)
    sli_node_output(g, n, o, sli_arena_format(&g->arena, "%s.%d", name, o))->rank = n->rank;
  sl_tensor *lent = n->out[0];
  sli_graph_move_before(g, m->down);
  return lent;
}

/* Gives the last product the place of all. */
static sl_status replace(sl_graph *g, const mixture *m, sl_tensor *guesses,
                         const sli_expert_loads *x) {
  sli_node *n = m->down;
  sl_tensor *levels = g->options.serve->experts.routed ? add_levels(g, m, x) : NULL;
  if (g->options.serve->experts.routed && !levels) return g->status ? g->status : SL_E_UNSUPPORTED;
  sl_attrs attrs = m->gate->attrs;
  attrs.user = x;
  attrs.experts.firings = x->firings;
  sl_tensor *lent = add_loads(g, m, levels, guesses, &attrs);
  if (!lent) return g->status ? g->status : SL_E_SHAPE;
  sl_tensor *in[] = {m->gate->in[0], n->in[1], levels, lent};
  n->op = &sl_op_loaded_experts;
  n->attrs = attrs;
  n->nin = 4;
  n->in = sli_arena_alloc(&g->arena, sizeof in);
  n->in_type = sli_arena_alloc(&g->arena, 4 * sizeof *n->in_type);
  for (int i = 0; i < 4; i++) {
    n->in[i] = in[i];
    n->in_type[i] = *sl_tensor_type(in[i]);
  }
  SLI_TRY(sli_node_infer(n));
  sli_graph_drop(g, 3, (const sli_node *const[]){m->gate, m->up, m->activation});
  return SL_OK;
}

/* Refuses settings of experts that are read from disk if no mixture is. */
static sl_status refuse_without(const sl_graph *g, bool asked) {
  static const char why[] =
      "no experts here can be read as rows want them: the model needs mixtures of gate, up and down "
      "with SwiGLU, whole on a device (--weights disk reads other weights block by block)";
  const sl_serving_experts *e = &g->options.serve->experts;
  if (e->parts) return SL_OK;
  if (e->most) return sl_fail(SL_E_USAGE, "experts in planes: %s", why);
  if (e->slots) return sl_fail(SL_E_USAGE, "quota experts=%d: %s", e->slots, why);
  return asked ? sl_fail(SL_E_USAGE, "home experts=disk: %s", why) : SL_OK;
}

sl_status sli_pass_experts(sl_graph *g, const bool *on_disk, bool asked) {
  sl_status status = SL_OK;
  streams before = {0};
  for (int i = 0; i < g->nnodes && !status; i++) {
    mixture m;
    if (g->nodes[i]->block < 0 || !on_disk[g->nodes[i]->block]) continue;
    if (!find_mixture(g, g->nodes[i], &m)) continue;
    bool planes = g->options.serve->experts.most;
    sli_expert_loads *x = planes ? experts_in_planes(g, &m) : whole_experts(g, &m);
    settle(g, &m.down->in[1]->type, x);
    note(&g->options.serve->experts, x);
    sl_tensor *guesses = add_guesses(g, &m, &before);
    SLI_GROW(before.all, before.count, before.capacity);
    before.all[before.count++] = stream_of(&m);
    status = replace(g, &m, guesses, x);
    i = -1; /* nodes have moved */
  }
  free(before.all);
  return status ? status : refuse_without(g, asked);
}
