/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that share the rows of a served tick (--sequence).
 *
 * A row's results depend on that row alone, except in ops that read the batch: attention, states,
 * rotations. Calls on rows run where the rows are, with whole weights. The others are sharded by
 * heads, so that each device has some heads of all rows and their pages or states, and an
 * all-to-all converts between the two, as in DeepSpeed-Ulysses (arXiv 2309.14509). Every number is
 * computed as on one device. Calls that can do neither run on every device. */
#include "graph/build/build.h"
#include "graph/sharding/box.h"
#include "graph/sharding/search.h"
#include "ops/heads.h"
#include "ops/ops.h"

#include <string.h>

static const sl_sbp rows = {SL_SPLIT, 1};

typedef struct pass {
  sl_graph *g;
  const sli_dim *dims;
  int size, tensors; /* devices that share rows, and that share tensors besides */
  bool *ticks;       /* [ntensors] the tensor has a row for each row of the tick */
  bool *chosen;      /* [nparams] a reader has set the layout */
  sli_choice *choice;
} pass;

static bool is_tick(const pass *p, const sl_tensor *t) {
  return t && p->ticks[t->id] && t->type.ndim > 1 && t->type.dim[1] == p->g->options.serve->rows;
}

static bool has_rows(const pass *p, const sli_node *n, int o) {
  const sl_type *type = &n->out_type[o];
  return type->ndim > 1 && type->dim[0] == 1 && type->dim[1] == p->g->options.serve->rows;
}

static bool splits_rows(const pass *p, const sli_node *n, const sl_signature *s) {
  bool fine = n->nout > 0;
  for (int i = 0; i < n->nin && fine; i++) {
    sl_sbp in = sli_signature_in(s, i);
    fine = !n->in[i] || (is_tick(p, n->in[i]) ? sli_sbp_equal(in, rows) : in.kind == SL_BROADCAST);
  }
  for (int o = 0; o < n->nout && fine; o++) fine = sli_sbp_equal(sli_signature_out(s, o), rows);
  return fine;
}

static bool splits_heads(const pass *p, const sli_node *n, const sl_signature *s) {
  bool any = false;
  for (int o = 0; o < n->nout; o++) {
    sl_sbp out = sli_signature_out(s, o);
    if (out.kind == SL_PARTIAL || (has_rows(p, n, o) && sli_sbp_equal(out, rows))) return false;
    any |= out.kind == SL_SPLIT && out.dim > 1;
  }
  for (int i = 0; i < n->nin; i++) {
    sl_sbp in = sli_signature_in(s, i);
    if (is_tick(p, n->in[i]) && in.kind == SL_SPLIT && in.dim < 2) return false;
  }
  return any && !s->local;
}

/* True for a call that knows its rows' sequences and positions. Products and tables do not. */
static bool reads_batch(const sli_node *n) {
  sl_weight weight = sli_op_weight(n->op);
  return n->op->serve && weight != SL_WEIGHT_PRODUCT && weight != SL_WEIGHT_TABLE;
}

static bool reads_tick(const pass *p, const sli_node *n) {
  bool any = false;
  for (int i = 0; i < n->nin; i++) any |= is_tick(p, n->in[i]);
  return any;
}

static bool is_end(const sl_op *op) {
  return op == &sl_op_begin || op == &sl_op_picks || op == &sl_op_pick || op == &sl_op_sample;
}

/* Refuses pages or states that each device would hold in full. */
static sl_status refuse(const pass *p, const sli_node *n) {
  int queries = n->attrs.attention.heads, keys = sli_key_heads(&n->attrs);
  const char *by =
      p->tensors > 1 ? sli_arena_format(&p->g->arena, " times parallel.tensor %d", p->tensors) : "";
  return sli_graph_fail_at(
      p->g, n->at, SL_E_USAGE,
      "op %s (%s) cannot be split by heads over parallel.sequence %d%s devices: it has %d %s heads",
      n->name, n->op->name, p->size, by, SLI_MIN(queries, keys), keys < queries ? "key" : "query");
}

static bool keeps_pages(const sli_node *n) {
  return n->op->serve && sli_op_memory(n->op->serve->op)->updates;
}

static sl_status choose(const pass *p, const sli_node *n, sl_signature *out) {
  sl_signature all[SL_SIGNATURES];
  if (is_end(n->op) || !reads_tick(p, n)) return SL_OK;
  for (int by_rows = !reads_batch(n); by_rows >= 0; by_rows--) {
    int devices = by_rows ? p->size : p->size * p->tensors;
    int count = sli_signatures(p->dims, n, SLI_AXIS_SEQUENCE, devices, all);
    for (int i = 0; i < count; i++) {
      if (by_rows ? !splits_rows(p, n, &all[i]) : !splits_heads(p, n, &all[i])) continue;
      *out = all[i];
      return SL_OK;
    }
  }
  return keeps_pages(n) ? refuse(p, n) : SL_OK;
}

/* Lays out a parameter as its readers want it, or whole if they differ. */
static void choose_params(pass *p, const sli_node *n, const sl_signature *s) {
  for (int i = 0; i < n->nin; i++) {
    const sl_tensor *t = n->in[i];
    if (!t || !t->param) continue;
    sl_sbp *lies = &p->choice->params[t->param_index], want = sli_signature_in(s, i);
    bool first = !p->chosen[t->param_index];
    *lies = first || sli_sbp_equal(*lies, want) ? want : (sl_sbp){SL_BROADCAST, 0};
    p->chosen[t->param_index] = true;
  }
}

sl_status sli_choose_ticks(sl_graph *g, const sli_dim *dims, const sli_grid *grid,
                           sli_choice *out) {
  size_t nodes = (size_t)g->nnodes + 1, params = (size_t)g->nparams + 1;
  *out = (sli_choice){.signatures = sli_calloc(nodes, sizeof *out->signatures),
                      .params = sli_calloc(params, sizeof *out->params)};
  pass p = {.g = g,
            .dims = dims,
            .size = grid->size[SLI_AXIS_SEQUENCE],
            .tensors = sli_choice_size(grid, SLI_AXIS_TENSOR),
            .choice = out};
  p.ticks = sli_arena_alloc(&g->arena, ((size_t)g->ntensors + 1) * sizeof *p.ticks);
  p.chosen = sli_arena_alloc(&g->arena, params * sizeof *p.chosen);
  sl_status status = SL_OK;
  for (int i = 0; i < g->nnodes && !status; i++) {
    const sli_node *n = g->nodes[i];
    if (sli_is_shared(n)) status = choose(&p, n, &out->signatures[i]);
    if (sli_is_shared(n)) choose_params(&p, n, &out->signatures[i]);
    bool ticks = n->op == &sl_op_begin || (reads_tick(&p, n) && n->op != &sl_op_pick);
    for (int o = 0; o < n->nout; o++)
      if (n->out[o]) p.ticks[n->out[o]->id] = ticks && has_rows(&p, n, o);
  }
  return status;
}

/* ---- boxing ---------------------------------------------------------------------------------- */

static bool along_sequence(const sli_boxing *b) { return b->along == 1u << SLI_AXIS_SEQUENCE; }

bool sli_box_shares_ticks(const sli_boxing *b, sl_sbp from, sl_sbp to) {
  bool any = sli_sbp_equal(from, rows) || sli_sbp_equal(to, rows);
  return any && b->x->g->options.serve && along_sequence(b) && !b->from->tensor->param;
}

static sl_status add(sli_boxing *b, const sl_op *op, const char *what, sl_class cls, int rank,
                     int nin, sl_tensor *const *in, int member, sl_tensor **out) {
  sl_attrs *attrs = sli_arena_alloc(&b->x->g->arena, sizeof *attrs);
  attrs->members.own = member;
  attrs->members.count = b->members;
  bool near = op == &sl_op_part_rows && cls == SL_CLASS_C;
  const sli_box_making m = {op, what, cls, near, rank, nin, in, attrs, NULL};
  sli_node *n;
  return sli_box_node(b, &m, &n, out);
}

static sl_status part(sli_boxing *b, int rank, int member, sl_class cls, sl_tensor **out) {
  const char *what = sli_arena_format(&b->x->g->arena, "rows%d", member);
  return add(b, &sl_op_part_rows, what, cls, rank, 1, &b->from->on[rank], member, out);
}

sl_status sli_box_own_rows(sli_boxing *b, int rank, sl_tensor **out) {
  return part(b, rank, sli_rank_share(b->x->grid, rank, b->along), sli_box_class(b), out);
}

sl_status sli_box_part_rows(sli_boxing *b, int rank, int member, sl_tensor **out) {
  return part(b, rank, member, SL_CLASS_C, out);
}

sl_status sli_box_join_rows(sli_boxing *b, int rank, sl_tensor *const *in, sl_tensor **out) {
  return add(b, &sl_op_join_rows, "join", SL_CLASS_C, rank, b->members, in, 0, out);
}
