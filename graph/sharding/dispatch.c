/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch of rows to their experts, and back.
 *
 *     S -> R   each source sends each device the rows for its experts: dispatch; the device stores
 *              them consecutively, source by source: collect
 *     R -> S   each device sends each source the results of its rows: give_back; the source
 *              puts them back in the order of its ids: restore
 *
 * All devices along the axis know the ids of all their rows, so they know where each row is. Only
 * valid rows are transferred (extents). */
#include "graph/sharding/box.h"

#include <math.h>

#include <sluice/experts.h>

typedef struct routing {
  sli_boxing *b;
  const sli_array *ids, *all;
  int64_t experts;
  sli_layer layer;
} routing;

/* Finds the number of a layer and counts the layers; layers are distinguished by their ids. */
static void find_layer(const sli_expansion *x, const sl_tensor *ids, sli_layer *layer) {
  const sli_choice *experts = &x->choice[SLI_AXIS_EXPERT];
  const sl_tensor *last = NULL;
  for (int i = 0; i < x->nlogical; i++) {
    const sli_node *n = x->logical[i];
    if (!sli_is_forward(n) || !sli_is_at_experts(experts, n) || !n->out[0]) continue;
    const sl_tensor *of = sli_router_ids(experts->routers[n->out[0]->id]);
    if (of == last) continue;
    if (of == ids) layer->number = layer->count;
    layer->count++;
    last = of;
  }
}

static routing routing_of(sli_boxing *b, const sli_array *ids, const sli_array *all) {
  routing r = {b, ids, all, sli_router_experts(sli_router_of(b->x, b->from->tensor)), {0}};
  r.layer.experts = r.experts;
  if (b->x->grid->loads) find_layer(b->x, ids->tensor, &r.layer);
  return r;
}

/* ---- row counts ---------------------------------------------------------------------------- */

static int64_t ids_of(const routing *r, const sli_array *ids, int rank, int variant) {
  return sl_type_elements(sli_expand_type(r->b->x, ids->on[rank], variant));
}

static int rank_at(const routing *r, int rank, int member) {
  return sli_rank_at(r->b->x->grid, rank, r->b->along, member);
}

static int64_t first_expert(const routing *r, int member) {
  return sli_first_expert(r->experts, member, r->b->members);
}

/* Returns how many of `rows` rows are expected to go to a member's experts. */
static int64_t share_of(const routing *r, int64_t rows, int member) {
  return sli_loads_of_member(r->b->x->grid->loads, &r->layer, rows, member, r->b->members);
}

static int64_t share_of_all(const routing *r, int rank, int member, int variant) {
  int64_t rows = 0;
  for (int m = 0; m < r->b->members; m++)
    rows += share_of(r, ids_of(r, r->ids, rank_at(r, rank, m), variant), member);
  return rows;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Allocates attributes and their dispatch records: [nvariants]. */
static sl_attrs *attrs_for(const routing *r, sl_dispatch **dispatches) {
  int n = r->b->x->nvariants;
  sli_arena *arena = &r->b->x->g->arena;
  sl_attrs *attrs = sli_arena_alloc(arena, (size_t)n * sizeof *attrs);
  *dispatches = sli_arena_alloc(arena, (size_t)n * sizeof **dispatches);
  for (int v = 0; v < n; v++) attrs[v].user = &(*dispatches)[v];
  return attrs;
}

/* Sets the range of a member's experts. */
static void say_experts(const routing *r, sl_dispatch *dispatch, int member) {
  dispatch->first = first_expert(r, member);
  dispatch->count = first_expert(r, member + 1) - dispatch->first;
}

/* Returns the type of the rows transferred between a source and a device, in the device's
 * layout. */
static sl_type part_type(const routing *r, const sli_array *dispatched, int rank, int64_t rows,
                         int variant) {
  sl_type type = sli_local_type(r->b->x, dispatched->tensor, dispatched->layout, rank, variant);
  type.dim[1] = SLI_MIN(type.dim[1], rows);
  return type;
}

/* Records the bytes that a node reads from other devices, from expected row counts; they count
 * under the axis of experts. */
static void note_rows(const routing *r, sli_node *n, int parts) {
  const sli_expansion *x = r->b->x;
  int own = sli_rank_share(x->grid, n->rank, r->b->along);
  n->remote_axis = r->b->members > 1 ? SLI_AXIS_EXPERT : SLI_AXIS_DATA;
  for (int v = 0; v < x->nvariants; v++) {
    double bytes = 0;
    for (int m = 0; m < parts; m++) {
      const sli_node *of = n->in[n->nin - parts + m]->producer;
      const sl_type *type = sli_expand_type(x, n->in[n->nin - parts + m], v);
      const sl_dispatch *dispatch = n->shapes ? of->shapes[v].attrs.user : of->attrs.user;
      if (m != own)
        bytes += (double)sl_type_bytes(type) / (double)type->dim[1] * (double)dispatch->expected;
    }
    if (n->shapes) n->shapes[v].remote_bytes = bytes;
    else n->remote_bytes = bytes;
  }
}

static sl_status add_node(const routing *r, const sl_op *op, const char *what, sl_class cls,
                          int rank, int nin, sl_tensor *const *in, const sl_attrs *attrs,
                          sli_node **node, sl_tensor **out) {
  const sli_box_making m = {
      op, what, cls, op == &sl_op_dispatch || op == &sl_op_give_back, rank, nin, in, attrs, NULL};
  return sli_box_node(r->b, &m, node, out);
}

/* ---- to the experts
 * --------------------------------------------------------------------------- */

/* Adds the dispatch from a source to a member. */
static sl_status dispatch(const routing *r, int rank, int member, sl_tensor **out) {
  const sli_boxing *b = r->b;
  sl_dispatch *dispatches;
  sl_attrs *attrs = attrs_for(r, &dispatches);
  for (int v = 0; v < b->x->nvariants; v++) {
    int64_t rows = ids_of(r, r->ids, rank, v);
    say_experts(r, &dispatches[v], member);
    dispatches[v].type = part_type(r, b->to, rank_at(r, rank, member), rows, v);
    dispatches[v].expected = share_of(r, rows, member);
  }
  sl_tensor *in[] = {b->from->on[rank], r->ids->on[rank]};
  sli_node *n;
  return add_node(r, &sl_op_dispatch, sli_arena_format(&b->x->g->arena, "dispatch%d", member),
                  SL_CLASS_C, rank, 2, in, attrs, &n, out);
}

/* Returns attributes for a device's rows from all sources, with the device's experts. */
static sl_attrs *attrs_there(const routing *r, int rank) {
  sl_dispatch *dispatches;
  sl_attrs *attrs = attrs_for(r, &dispatches);
  int member = sli_rank_share(r->b->x->grid, rank, r->b->along);
  for (int v = 0; v < r->b->x->nvariants; v++) {
    say_experts(r, &dispatches[v], member);
    dispatches[v].type = sli_local_type(r->b->x, r->b->to->tensor, r->b->to->layout, rank, v);
    dispatches[v].expected = share_of_all(r, rank, member, v);
    dispatches[v].rank = rank;
  }
  return attrs;
}

static sl_status collect(const routing *r, int rank, sl_tensor *const *parts) {
  sli_boxing *b = r->b;
  const sli_grid *grid = b->x->grid;
  int own = sli_rank_member(grid, rank, b->along);
  sl_tensor *in[b->members];
  sli_node *n;
  for (int m = 0; m < b->members; m++)
    in[m] = grid->alike ? parts[m] : parts[own * b->x->ranks + rank_at(r, rank, m)];
  sl_status status = add_node(r, &sl_op_collect, "collect", SL_CLASS_C, rank, b->members, in,
                              attrs_there(r, rank), &n, &b->to->on[rank]);
  if (!status) note_rows(r, n, b->members);
  return status;
}

static sl_status take_ids(const routing *r, int rank) {
  sli_node *n;
  return add_node(r, &sl_op_own_ids, "own_ids", sli_box_class(r->b), rank, 1, &r->all->on[rank],
                  attrs_there(r, rank), &n, &r->b->to->on[rank]);
}

/* Returns attributes for the leaves of a device's rows: the regions of the whole tensor that its
 * sources hold. */
static sl_attrs *attrs_of_leaves(const routing *r, int rank) {
  sli_expansion *x = r->b->x;
  sl_attrs *attrs = attrs_there(r, rank);
  int members = r->b->members;
  for (int v = 0; v < x->nvariants; v++) {
    sl_type whole = sli_logical_type(r->ids->tensor, v);
    sl_dispatch_leaves *l = sli_arena_alloc(&x->g->arena, sizeof *l);
    const sl_region **of = sli_arena_alloc(&x->g->arena, (size_t)members * sizeof *of);
    for (int m = 0; m < members; m++)
      of[m] = sli_share_region(x, r->ids->tensor, r->ids->layout, rank_at(r, rank, m), v, NULL);
    int64_t positions = x->g->exact.leaf ? x->g->exact.leaf : whole.dim[1];
    *l = (sl_dispatch_leaves){*(const sl_dispatch *)attrs[v].user, members, of,
                              positions * whole.dim[2]};
    attrs[v].user = l;
  }
  return attrs;
}

sl_status sli_box_own_leaves(sli_boxing *b, const sli_array *ids, const sli_array *all) {
  const routing r = routing_of(b, ids, all);
  sl_status status = SL_OK;
  b->x->nboxes++;
  for (int rank = 0; rank < b->ranks && !status; rank++) {
    sli_node *n;
    status = add_node(&r, &sl_op_own_leaves, "own_leaves", sli_box_class(b), rank, 1,
                      &all->on[rank], attrs_of_leaves(&r, rank), &n, &b->to->on[rank]);
  }
  return status;
}

sl_status sli_box_to_experts(sli_boxing *b, const sli_array *ids, const sli_array *all) {
  const routing r = routing_of(b, ids, all);
  sl_status status =
      sli_loads_check(b->x->grid->loads, &r.layer, sl_type_elements(&ids->tensor->type));
  sl_tensor **parts =
      sli_arena_alloc(&b->x->g->arena, (size_t)(b->members * b->x->ranks) * sizeof *parts);
  b->x->nboxes++;
  for (int rank = 0; rank < b->ranks && b->from->tensor == ids->tensor && !status; rank++)
    status = take_ids(&r, rank);
  if (b->from->tensor == ids->tensor) return status;
  for (int rank = 0; rank < b->ranks; rank++)
    for (int m = 0; m < b->members && !status; m++)
      status = dispatch(&r, rank, m, &parts[m * b->x->ranks + rank]);
  for (int rank = 0; rank < b->ranks && !status; rank++) status = collect(&r, rank, parts);
  return status;
}

/* ---- back from the experts
 * ----------------------------------------------------------------------- */

/* Sends rows from a device back to the member they came from: the rows in that member's range of
 * all ids. */
static sl_status give_back(const routing *r, int rank, int member, sl_tensor **out) {
  const sli_boxing *b = r->b;
  sl_dispatch *dispatches;
  sl_attrs *attrs = attrs_for(r, &dispatches);
  int here = sli_rank_share(b->x->grid, rank, b->along);
  for (int v = 0; v < b->x->nvariants; v++) {
    int64_t begin = 0, rows = ids_of(r, r->ids, rank_at(r, rank, member), v);
    for (int m = 0; m < member; m++) begin += ids_of(r, r->ids, rank_at(r, rank, m), v);
    say_experts(r, &dispatches[v], here);
    dispatches[v].begin = begin;
    dispatches[v].end = begin + rows;
    dispatches[v].type = part_type(r, b->from, rank, rows, v);
    dispatches[v].expected = share_of(r, rows, here);
  }
  sl_tensor *in[] = {b->from->on[rank], r->all->on[rank]};
  sli_node *n;
  return add_node(r, &sl_op_give_back, sli_arena_format(&b->x->g->arena, "give_back%d", member),
                  SL_CLASS_C, rank, 2, in, attrs, &n, out);
}

static sl_status restore(const routing *r, int rank, sl_tensor *const *parts) {
  sli_boxing *b = r->b;
  const sli_grid *grid = b->x->grid;
  int own = sli_rank_member(grid, rank, b->along);
  sl_dispatch *dispatches;
  sl_attrs *attrs = attrs_for(r, &dispatches);
  for (int v = 0; v < b->x->nvariants; v++)
    dispatches[v] = (sl_dispatch){
        .type = sli_local_type(b->x, b->to->tensor, b->to->layout, rank, v), .count = r->experts};
  sl_tensor *in[b->members + 1];
  in[0] = r->ids->on[rank];
  for (int m = 0; m < b->members; m++)
    in[m + 1] = grid->alike ? parts[m] : parts[own * b->x->ranks + rank_at(r, rank, m)];
  sli_node *n;
  sl_status status = add_node(r, &sl_op_restore, "restore", SL_CLASS_C, rank, b->members + 1, in,
                              attrs, &n, &b->to->on[rank]);
  if (!status) note_rows(r, n, b->members);
  return status;
}

sl_status sli_box_from_experts(sli_boxing *b, const sli_array *ids, const sli_array *all) {
  const routing r = routing_of(b, ids, all);
  sl_status status = SL_OK;
  sl_tensor **parts =
      sli_arena_alloc(&b->x->g->arena, (size_t)(b->members * b->x->ranks) * sizeof *parts);
  b->x->nboxes++;
  for (int rank = 0; rank < b->ranks; rank++)
    for (int m = 0; m < b->members && !status; m++)
      status = give_back(&r, rank, m, &parts[m * b->x->ranks + rank]);
  for (int rank = 0; rank < b->ranks && !status; rank++) status = restore(&r, rank, parts);
  return status;
}
