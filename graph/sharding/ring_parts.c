/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention: chunks of keys and values, and the nodes that handle them. */
#include "graph/sharding/ring.h"
#include "ops/heads.h"
#include "ops/ops.h"

static const sli_along sequence = 1u << SLI_AXIS_SEQUENCE;

/* ---- positions ----------------------------------------------------------------------------- */

sl_part sli_ring_runs(const sli_chunk_ring *ring, int member) {
  sl_type type = sli_logical_type(ring->n->in[0], 0);
  return sli_cut_part(ring->x, ring->n->in[0], (sli_cutting){sequence, 1}, member, &type);
}

int sli_ring_member(const sli_chunk_ring *ring, int rank) {
  return sli_rank_share(ring->x->grid, rank, sequence);
}

int sli_ring_rank(const sli_chunk_ring *ring, int rank, int member) {
  return sli_rank_at(ring->x->grid, rank, sequence, member);
}

int64_t sli_ring_length(const sli_chunk_ring *ring) {
  return sli_logical_type(ring->n->in[0], 0).dim[1];
}

bool sli_ring_sees(const sli_chunk_ring *ring, const sl_part *q, int i, const sl_part *k, int j,
                   int64_t tile) {
  const sl_attrs *a = &ring->n->attrs;
  int64_t all = sli_ring_length(ring),
          behind = a->attention.window > 0 ? a->attention.window - 1 : all;
  int64_t begin = q->begin[i], last = begin + q->count[i] - 1 + (a->attention.full ? all : 0);
  int64_t first = SLI_MAX(begin - behind, 0) / tile * tile;
  return k->begin[j] <= last && k->begin[j] + k->count[j] - 1 >= first;
}

sli_span *sli_ring_add_span(sli_spans *to, const sl_part *q, int i, const sl_part *k, int j,
                            int64_t keys) {
  sli_span *s = &to->items[to->n++];
  *s = (sli_span){.query = i ? q->count[0] : 0,
                  .queries = q->count[i],
                  .keys = SLI_MIN(keys, k->count[j]),
                  .at_query = q->begin[i],
                  .at_key = k->begin[j]};
  return s;
}

/* ---- nodes ------------------------------------------------------------------------------- */

sl_status sli_ring_add(const sli_chunk_ring *ring, const sl_op *op, const char *what, sl_class cls,
                       int rank, int nin, sl_tensor *const *in, const sl_attrs *attrs, int nout,
                       sl_tensor **out) {
  sli_expansion *x = ring->x;
  const char *name = sli_arena_format(&x->g->arena, "%s:%s", ring->name, what);
  sli_node *n;
  sli_making m = {.op = op,
                  .name = name,
                  .at = ring->at,
                  .cls = cls,
                  .rank = rank,
                  .nin = nin,
                  .nout = nout,
                  .in = in,
                  .attrs = attrs,
                  .where = ring->n->at};
  sl_status status = sli_expand_node(x, &m, &n);
  if (status) return status;
  if (cls == SL_CLASS_C) {
    n->remote_axis = SLI_AXIS_SEQUENCE;
    n->remote_bytes = (double)sl_type_bytes(&n->in_type[nin - 1]);
    n->repeats = ring->at.cls == SL_CLASS_F;
    n->rereads = !n->repeats;
  }
  for (int o = 0; o < nout; o++) {
    const char *of = nout > 1 ? sli_arena_format(&x->g->arena, "%s:%d", name, o) : name;
    out[o] = sli_expand_output(x, n, o, sli_expand_name(x, of, rank));
  }
  return SL_OK;
}

sl_status sli_ring_slice(const sli_chunk_ring *ring, const char *what, int rank, sl_tensor *t,
                         sl_part part, sl_tensor **out) {
  sl_part *own = sli_arena_alloc(&ring->x->g->arena, sizeof *own);
  *own = part;
  return sli_ring_add(ring, &sl_op_slice, what, ring->at.cls, rank, 1, &t, &(sl_attrs){.user = own},
                      1, out);
}

sl_status sli_ring_copy(const sli_chunk_ring *ring, const char *what, int rank, sl_tensor *t,
                        sl_tensor **out) {
  return sli_ring_add(ring, &sl_op_copy, what, SL_CLASS_C, rank, 1, &t, &(sl_attrs){0}, 1, out);
}

/* Joins two tensors along a dim. */
static sl_status join(const sli_chunk_ring *ring, const char *what, int rank, sl_tensor *const *in,
                      int dim, sl_tensor **out) {
  sli_arena *arena = &ring->x->g->arena;
  sl_joint *joint = sli_arena_alloc(arena, sizeof *joint);
  sl_part *parts = sli_arena_alloc(arena, 2 * sizeof *parts);
  sl_type whole = *sli_expand_type(ring->x, in[0], 0);
  int64_t a = whole.dim[dim], b = sli_expand_type(ring->x, in[1], 0)->dim[dim];
  whole.dim[dim] = a + b;
  parts[0] = (sl_part){dim, 1, {0}, {a}};
  parts[1] = (sl_part){dim, 1, {a}, {b}};
  *joint = (sl_joint){whole, parts};
  return sli_ring_add(ring, &sl_op_join, what, ring->at.cls, rank, 2, in,
                      &(sl_attrs){.user = joint}, 1, out);
}

/* ---- chunks ------------------------------------------------------------------------------ */

/* Splits one device's inputs in[] of the call into queries, and keys joined with values. */
static sl_status take_apart(const sli_chunk_ring *ring, int rank, sl_tensor *const *in,
                            sl_tensor **kv) {
  const sl_attrs *attrs = sli_local_attrs(ring->x, ring->n, ring->n, rank);
  if (sli_op_shard(ring->n->op)->heads == SL_HEADS_SEPARATE) {
    ring->kept->q[rank] = in[0];
    return join(ring, "kv", rank, in + 1, 2, kv);
  }
  int64_t kv_heads = sli_key_heads(attrs);
  int64_t width = sli_expand_type(ring->x, in[0], 0)->dim[2];
  int64_t queries = width / (attrs->attention.heads + 2 * kv_heads) * attrs->attention.heads;
  sl_status status =
      sli_ring_slice(ring, "q", rank, in[0], (sl_part){2, 1, {0}, {queries}}, &ring->kept->q[rank]);
  if (status) return status;
  return sli_ring_slice(ring, "kv", rank, in[0], (sl_part){2, 1, {queries}, {width - queries}}, kv);
}

sl_status sli_ring_cut(const sli_chunk_ring *ring, int rank, sl_tensor *const *in) {
  sl_part runs = sli_ring_runs(ring, sli_ring_member(ring, rank));
  sl_tensor *kv;
  sl_status status = take_apart(ring, rank, in, &kv);
  int64_t begin = 0;
  for (int j = 0; j < runs.nranges && !status; begin += runs.count[j++]) {
    sl_tensor **to = &ring->kept->own[rank][j];
    if (runs.nranges == 1) *to = kv;
    else
      status = sli_ring_slice(ring, sli_arena_format(&ring->x->g->arena, "kv%d", j), rank, kv,
                              (sl_part){1, 1, {begin}, {runs.count[j]}}, to);
  }
  return status;
}

sl_status sli_ring_give_again(sli_chunk_ring *ring) {
  if (!ring->x->grid->apart[SLI_AXIS_SEQUENCE]) return SL_OK;
  sl_status status = SL_OK;
  ring->given = sli_arena_alloc(&ring->x->g->arena, (size_t)ring->x->ranks * sizeof *ring->given);
  for (int r = 0; r < ring->x->own; r++)
    for (int j = 0; j < SLI_RUNS && !status; j++)
      if (ring->kept->own[r][j]) {
        status = sli_ring_add(ring, &sl_op_copy, sli_arena_format(&ring->x->g->arena, "give.%d", j),
                              ring->at.cls, r, 1, &ring->kept->own[r][j], &(sl_attrs){0}, 1,
                              &ring->given[r][j]);
        if (!status) ring->given[r][j]->producer->resends = true;
      }
  return status;
}

sl_status sli_ring_put_together(const sli_chunk_ring *ring, int rank, sl_tensor *dq,
                                sl_tensor *const *own, sli_array *const *out) {
  sl_tensor *dkv = own[0];
  sl_status status = own[1] ? join(ring, "dkv", rank, own, 1, &dkv) : SL_OK;
  if (status) return status;
  if (sli_op_shard(ring->n->op)->heads != SL_HEADS_SEPARATE) {
    sl_tensor *both[] = {dq, dkv};
    return join(ring, "dqkv", rank, both, 2, &out[0]->on[rank]);
  }
  if (out[0]) out[0]->on[rank] = dq;
  int64_t width = sli_expand_type(ring->x, dkv, 0)->dim[2] / 2;
  for (int i = 1; i < 3 && !status; i++)
    if (out[i])
      status = sli_ring_slice(ring, i == 1 ? "dk" : "dv", rank, dkv,
                              (sl_part){2, 1, {(i - 1) * width}, {width}}, &out[i]->on[rank]);
  return status;
}

struct sli_round *sli_ring_keep(sli_expansion *x, const sli_node *n) {
  struct sli_round *kept = x->rounds[n->id] = sli_arena_alloc(&x->g->arena, sizeof *kept);
  kept->q = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *kept->q);
  kept->own = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *kept->own);
  return kept;
}

sli_chunk_ring sli_ring_of(sli_expansion *x, const sli_node *n, const char *name, sli_moment at,
                           struct sli_round *kept) {
  return (sli_chunk_ring){.x = x,
                          .n = n,
                          .name = name,
                          .at = at,
                          .members = x->grid->size[SLI_AXIS_SEQUENCE],
                          .kept = kept,
                          .given = kept->own};
}

/* ---- inputs -------------------------------------------------------------------------------- */

int sli_ring_ids(const sli_node *forward) {
  return sli_op_shard(forward->op)->heads == SL_HEADS_SEPARATE ? SLI_RING_INPUTS : 1;
}

sli_ring_back sli_ring_back_of(const sli_chunk_ring *ring, sli_array *const *in, int nin,
                               int rank) {
  int o = sli_ring_ids(ring->n); /* follows the inputs of the call */
  return (sli_ring_back){.o = sli_ring_on(in, nin, o, rank),
                         .lse = sli_ring_on(in, nin, o + 1, rank),
                         .dout = sli_ring_on(in, nin, o + 2, rank),
                         .ids = sli_ring_on(in, nin, o + 3, rank)};
}
