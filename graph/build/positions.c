/* SPDX-License-Identifier: Apache-2.0 */
/* Logits at chosen positions only.
 *
 * A model computes logits at all positions of its rows. If a loss needs only some, the calls that
 * compute the logits are rebuilt for these positions. Rebuilding goes back to the first call that
 * mixes positions, that has other readers, or that is in another block; the positions are gathered
 * from its result. The original calls then have no readers, and the gradients pass drops them. */
#include "graph/build/build.h"

#include "ops/ops.h"

typedef struct choosing {
  sl_here at;
  sl_graph *g;
  sl_tensor *positions; /* i32 [rows, chosen], or [rows, parts, chosen], counted within each part */
  int64_t rows, context;
  int *reads, *again_reads; /* [nodes] number of readers, and of rebuilt readers */
  bool *again;              /* [nodes] calls that are rebuilt */
  sl_tensor **chosen;       /* [tensors] chosen positions of a tensor; NULL: not created */
} choosing;

/* ---- calls that work position by position ------------------------------------------------------
 */

static bool has_positions(const choosing *c, const sl_type *t) {
  return t->ndim >= 2 && t->dim[0] == c->rows && t->dim[1] == c->context;
}

/* True if the input has the positions as dims, as the output does. */
static bool positions_along(const sli_node *n, int i) {
  const sl_type *x = &n->in_type[i];
  if (!n->in[i] || sli_bit(sli_op_cut(n->op)->whole, i)) return false;
  if (sli_op_cut(n->op)->pieces == SL_PIECES_ELEMENTS) return sl_type_elements(x) > 1;
  return x->ndim > 2; /* the last dim belongs to one position */
}

/* True for a call whose result at a position depends only on its inputs at that position. */
static bool is_by_position(const choosing *c, const sli_node *n) {
  sl_pieces pieces = sli_op_cut(n->op)->pieces;
  bool known = pieces == SL_PIECES_ELEMENTS || pieces == SL_PIECES_ROWS, any = false;
  if (!known || sli_op_memory(n->op)->updates || n->block != c->g->nblocks - 1 ||
      !has_positions(c, &n->out_type[0]) || n->out_type[0].ndim < 3)
    return false;
  for (int i = 0; i < n->nin; i++) {
    if (!positions_along(n, i)) continue;
    if (!has_positions(c, &n->in_type[i])) return false;
    any = true;
  }
  return any;
}

/* Counts a node as a reader of its inputs. */
static void note_reads(const choosing *c, const sli_node *n) {
  for (int i = 0; i < n->nin; i++) {
    const sli_node *p = n->in[i] ? n->in[i]->producer : NULL;
    if (!p) continue;
    c->reads[p->id]++;
    c->again_reads[p->id] += c->again[n->id];
  }
}

/* Chooses the calls to rebuild, from last to first: calls all of whose readers are rebuilt. */
static void choose_calls(const choosing *c, const sl_tensor *logits) {
  for (int i = c->g->nnodes - 1; i >= 0; i--) {
    const sli_node *n = c->g->nodes[i];
    bool alone = c->reads[i] && c->reads[i] == c->again_reads[i];
    c->again[i] = (n == logits->producer || alone) && is_by_position(c, n);
    note_reads(c, n);
  }
}

/* ---- rebuilt calls ----------------------------------------------------------------------------
 */

/* Returns a tensor with its first `count` dims replaced. */
static sl_tensor *reshaped(const choosing *c, sl_tensor *t, int count, int ndim,
                           const int64_t *dims) {
  sl_type shape = {.dtype = t->type.dtype};
  for (int d = 0; d < ndim; d++) shape.dim[shape.ndim++] = dims[d];
  for (int d = count; d < t->type.ndim; d++) shape.dim[shape.ndim++] = t->type.dim[d];
  return sl_reshape_at(c->at, c->g, t, shape);
}

/* Returns the positions as an index for a tensor with `behind` dims after those of positions. */
static sl_tensor *index_of(const choosing *c, int behind) {
  sl_type shape = c->positions->type;
  for (int d = 0; d < behind; d++) shape.dim[shape.ndim++] = 1;
  return behind ? sl_reshape_at(c->at, c->g, c->positions, shape) : c->positions;
}

/* Gathers within each part of a row, so that each device can have whole parts. */
static sl_tensor *gather_parts(const choosing *c, sl_tensor *t) {
  const int64_t *dim = c->positions->type.dim;
  const int64_t cut[] = {dim[0], dim[1], c->context / dim[1]}, whole[] = {dim[0], dim[1] * dim[2]};
  sl_tensor *parts = reshaped(c, t, 2, 3, cut);
  parts = sl_gather_at(c->at, c->g, parts, 2, index_of(c, t->type.ndim - 2));
  return reshaped(c, parts, 3, 2, whole);
}

/* Returns the chosen positions of a tensor. */
static sl_tensor *chosen(const choosing *c, sl_tensor *t) {
  sl_tensor **of = &c->chosen[t->id];
  if (*of || c->g->status) return *of;
  *of = c->positions->type.ndim == 3
            ? gather_parts(c, t)
            : sl_gather_at(c->at, c->g, t, 1, index_of(c, t->type.ndim - 2));
  return *of;
}

static void make_again(const choosing *c, const sli_node *n) {
  sl_tensor *in[n->nin + 1], *out[n->nout];
  for (int i = 0; i < n->nin; i++)
    in[i] = n->in[i] && positions_along(n, i) ? chosen(c, n->in[i]) : n->in[i];
  sl_apply_at(n->at, c->g, n->op, &n->attrs, n->nin, in, UINT32_MAX, out);
  for (int o = 0; o < n->nout; o++)
    if (n->out[o]) c->chosen[n->out[o]->id] = out[o];
}

sl_tensor *sli_at_positions(sl_here at, sl_graph *g, sl_tensor *logits, sl_tensor *positions) {
  sli_arena *arena = &g->arena;
  size_t nodes = (size_t)g->nnodes + 1, tensors = (size_t)g->ntensors + 1;
  choosing c = {.at = at,
                .g = g,
                .positions = positions,
                .rows = sl_dim(positions, 0),
                .context = sl_dim(logits, 1),
                .reads = sli_arena_alloc(arena, nodes * sizeof *c.reads),
                .again_reads = sli_arena_alloc(arena, nodes * sizeof *c.again_reads),
                .again = sli_arena_alloc(arena, nodes * sizeof *c.again),
                .chosen = sli_arena_alloc(arena, tensors * sizeof(sl_tensor *))};
  choose_calls(&c, logits);
  for (int i = 0, n = g->nnodes; i < n && !g->status; i++)
    if (c.again[i]) make_again(&c, g->nodes[i]);
  return g->status ? NULL : chosen(&c, logits);
}
