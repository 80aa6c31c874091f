/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention over sharded sequences, chunk by chunk.
 *
 * Queries stay in place. Each device's keys and values go around the ring: every device copies the
 * chunk that its neighbour holds and runs a step of attention with it while the next chunk arrives,
 * as far as its queries see. Only two chunks of other devices are present at a time, because values
 * passed from level to level share slots (lower/slot_pools.c). In the backward pass the chunks go
 * around again. The gradients of their keys and values go to the owner, which adds them in the
 * order of the steps. Exact sums use a different order of steps (ring_walk.c).
 *
 * In a contiguous layout, a device has one run of positions and sees the chunks before its own, so
 * the last device does the most work. In the zigzag layout device r has two runs, r and 2P-1-r of
 * 2P, and the work is balanced: a device sees the first run of every other device, and the second
 * run of later devices. Each run is a separate chunk, so that only visible chunks go around. */
#include "graph/sharding/ring.h"
#include "ops/ops.h"

/* Chunks in transit: [ranks]. */
typedef sl_tensor *(*chunks)[SLI_RUNS];
typedef struct ring {
  sli_chunk_ring g;
  chunks here, before; /* of this step; of the previous step */
} ring;

static ring ring_begin(const sli_chunk_ring *g) {
  size_t bytes = (size_t)g->x->ranks * sizeof(sl_tensor *[SLI_RUNS]);
  return (ring){*g, sli_arena_alloc(&g->x->g->arena, bytes),
                sli_arena_alloc(&g->x->g->arena, bytes)};
}

/* ---- positions ----------------------------------------------------------------------------- */

/* Returns the member whose chunk a member has in step t; for t = 1, the neighbour from which it
 * copies chunks. In a contiguous layout, later devices copy chunks from earlier ones; in a zigzag
 * layout chunks go in the direction in which the second runs finish early. */
static int source_of(const sli_chunk_ring *ring, int member, int t) {
  int by = ring->x->grid->zigzag ? t : ring->members - t;
  return (member + by) % ring->members;
}

/* Runs of queries that take a chunk: all; or, for a device's own chunk, the runs from the chunk's
 * own run on (FIRST), or the runs before it (REST). */
typedef enum which { ALL, FIRST, REST } which;

static const sli_spans *spans_of(const sli_chunk_ring *ring, int rank, int source, int j,
                                 which selected, const sl_tensor *chunk) {
  sl_part q = sli_ring_runs(ring, sli_ring_member(ring, rank)), k = sli_ring_runs(ring, source);
  sli_spans *s = sli_arena_alloc(&ring->x->g->arena, sizeof *s);
  *s = (sli_spans){.length = sli_ring_length(ring)};
  for (int i = 0; i < q.nranges; i++) {
    bool first = i >= j;
    if (!sli_ring_sees(ring, &q, i, &k, j, 1) || (selected != ALL && first != (selected == FIRST)))
      continue;
    sli_span *made = sli_ring_add_span(s, &q, i, &k, j, sli_expand_type(ring->x, chunk, 0)->dim[1]);
    made->fresh = selected == FIRST && i == j;
  }
  return s;
}

static bool sees(const sli_chunk_ring *ring, int rank, int source, int j) {
  sl_part q = sli_ring_runs(ring, sli_ring_member(ring, rank)), k = sli_ring_runs(ring, source);
  bool any = false;
  for (int i = 0; i < q.nranges && j < k.nranges; i++) any |= sli_ring_sees(ring, &q, i, &k, j, 1);
  return any;
}

/* ---- chunks ------------------------------------------------------------------------------ */

/* Copies a chunk to a device from its neighbour or, if the neighbour does not have it, from the
 * owner. */
static sl_status fetch(ring *r, int rank, int t, int j) {
  const sli_chunk_ring *g = &r->g;
  int member = sli_ring_member(g, rank), from = source_of(g, member, 1),
      source = source_of(g, member, t);
  sl_tensor *chunk = r->before[sli_ring_rank(g, rank, from)][j];
  if (t == 1 || !chunk) chunk = g->given[sli_ring_rank(g, rank, source)][j];
  const char *what = sli_arena_format(&g->x->g->arena, "bring%d.%d", t, j);
  return sli_ring_copy(g, what, rank, chunk, &r->here[rank][j]);
}

/* Copies the chunk of step t to all devices whose queries see part of it. */
static sl_status go_around(ring *r, int t) {
  const sli_chunk_ring *g = &r->g;
  chunks before = r->before;
  sl_status status = SL_OK;
  r->before = r->here;
  r->here = before;
  for (int rank = 0; rank < g->x->own; rank++)
    for (int j = 0; j < SLI_RUNS && !status; j++) {
      r->here[rank][j] = NULL;
      if (sees(g, rank, source_of(g, sli_ring_member(g, rank), t), j))
        status = fetch(r, rank, t, j);
    }
  return status;
}

/* ---- forward pass ------------------------------------------------------------------------- */

/* Updates o and lse, state[2], with a chunk. */
static sl_status step(const sli_chunk_ring *ring, int rank, int source, int j, which selected,
                      sl_tensor *chunk, sl_tensor *ids, const char *what, sl_tensor **state) {
  sl_attrs attrs = *sli_local_attrs(ring->x, ring->n, ring->n, rank);
  const sli_spans *spans = spans_of(ring, rank, source, j, selected, chunk);
  sl_tensor *in[] = {ring->kept->q[rank], chunk, ids, state[0], state[1]};
  attrs.user = spans;
  return spans->n ? sli_ring_add(ring, &sl_op_attention_step, what, ring->at.cls, rank, 5, in,
                                 &attrs, 2, state)
                  : SL_OK;
}

/* Runs the steps with a device's own chunks. Each query begins with its own run, in which it always
 * sees a key. */
static sl_status own_steps(const sli_chunk_ring *ring, int rank, sl_tensor *ids,
                           sl_tensor **state) {
  sli_arena *arena = &ring->x->g->arena;
  int own = sli_ring_member(ring, rank);
  sl_status status = SL_OK;
  static const which order[] = {FIRST, REST};
  for (int w = 0; w < 2; w++)
    for (int j = SLI_RUNS - 1; j >= 0 && !status; j--) {
      sl_tensor *chunk = ring->kept->own[rank][j];
      const char *what = sli_arena_format(arena, "own%d.%d", w, j);
      if (chunk) status = step(ring, rank, own, j, order[w], chunk, ids, what, state);
    }
  return status;
}

static sl_status steps(const ring *r, int rank, int t, sl_tensor *ids, sl_tensor **state) {
  const sli_chunk_ring *g = &r->g;
  int source = source_of(g, sli_ring_member(g, rank), t);
  sl_status status = SL_OK;
  for (int j = 0; j < SLI_RUNS && !status; j++) {
    const char *what = sli_arena_format(&g->x->g->arena, "step%d.%d", t, j);
    if (r->here[rank][j])
      status = step(g, rank, source, j, ALL, r->here[rank][j], ids, what, state);
  }
  return status;
}

/* Runs all steps, beginning with each device's own chunks. */
static sl_status go_all_around(const sli_chunk_ring *g, sli_array *const *in, int nin,
                               sli_array *const *out) {
  int own = g->x->own, ids = sli_ring_ids(g->n);
  ring r = ring_begin(g);
  sl_tensor *(*state)[2] = sli_arena_alloc(&g->x->g->arena, (size_t)own * sizeof *state);
  sl_status status = SL_OK;
  for (int rank = 0; rank < own && !status; rank++)
    status = own_steps(g, rank, sli_ring_on(in, nin, ids, rank), state[rank]);
  for (int t = 1; t < g->members && !status; t++) {
    status = go_around(&r, t);
    for (int rank = 0; rank < own && !status; rank++)
      status = steps(&r, rank, t, sli_ring_on(in, nin, ids, rank), state[rank]);
  }
  for (int rank = 0; rank < own; rank++)
    for (int o = 0; o < 2; o++)
      if (out[o]) out[o]->on[rank] = state[rank][o];
  return status;
}

sl_status sli_expand_ring(sli_expansion *x, const sli_node *n, sli_moment at, sli_array *const *in,
                          sli_array *const *out) {
  sli_chunk_ring g = sli_ring_of(x, n, n->name, at, sli_ring_keep(x, n));
  for (int r = 0; r < x->own; r++) {
    sl_tensor *from[SLI_RING_INPUTS];
    for (int i = 0; i < SLI_RING_INPUTS; i++) from[i] = sli_ring_on(in, n->nin, i, r);
    SLI_TRY(sli_ring_cut(&g, r, from));
  }
  return (n->attrs.numbers.exact ? sli_ring_walk : go_all_around)(&g, in, n->nin, out);
}

/* ---- backward pass ------------------------------------------------------------------------ */

/* Gradients of a device, accumulated so far. */
typedef struct gradients {
  sli_ring_back in;
  sl_tensor *dq;
  sl_tensor *own[SLI_RUNS];  /* gradients of its keys and values, summed so far */
  sl_tensor *made[SLI_RUNS]; /* gradients of this step's chunk, for its owner */
} gradients;

static sl_status step_back(const sli_chunk_ring *ring, int rank, int source, int j,
                           sl_tensor *chunk, gradients *d, const char *what, sl_tensor **dkv) {
  sl_attrs attrs = *sli_local_attrs(ring->x, ring->n, ring->n, rank);
  const sli_ring_back *in = &d->in;
  sl_tensor *from[] = {ring->kept->q[rank], chunk, in->o, in->lse, in->dout, in->ids, d->dq},
            *out[2];
  attrs.user = spans_of(ring, rank, source, j, ALL, chunk);
  SLI_TRY(sli_ring_add(ring, &sl_op_attention_step_b, what, ring->at.cls, rank, 7, from, &attrs, 2,
                       out));
  d->dq = out[0];
  *dkv = out[1];
  return SL_OK;
}

static sl_status own_back(const sli_chunk_ring *ring, int rank, gradients *d) {
  sl_status status = SL_OK;
  for (int j = 0; j < SLI_RUNS && !status; j++)
    if (ring->kept->own[rank][j])
      status = step_back(ring, rank, sli_ring_member(ring, rank), j, ring->kept->own[rank][j], d,
                         sli_arena_format(&ring->x->g->arena, "own.%d", j), &d->own[j]);
  return status;
}

static sl_status steps_back(const ring *r, int rank, int t, gradients *d) {
  const sli_chunk_ring *g = &r->g;
  int source = source_of(g, sli_ring_member(g, rank), t);
  sl_status status = SL_OK;
  for (int j = 0; j < SLI_RUNS && !status; j++) {
    d->made[j] = NULL;
    const char *what = sli_arena_format(&g->x->g->arena, "step%d.%d", t, j);
    if (r->here[rank][j])
      status = step_back(g, rank, source, j, r->here[rank][j], d, what, &d->made[j]);
  }
  return status;
}

/* Adds the gradient computed by the device that had this device's chunk in step t. */
static sl_status add_up(const sli_chunk_ring *ring, int rank, int t, gradients *all) {
  int reader = source_of(ring, sli_ring_member(ring, rank), ring->members - t);
  const gradients *of = &all[sli_ring_rank(ring, rank, reader)];
  sl_status status = SL_OK;
  for (int j = 0; j < SLI_RUNS && !status; j++) {
    const char *what = sli_arena_format(&ring->x->g->arena, "sum%d.%d", t, j);
    sl_tensor *in[] = {all[rank].own[j], of->made[j]};
    if (in[0] && in[1])
      status = sli_ring_add(ring, &sl_op_sum, what, SL_CLASS_C, rank, 2, in, &(sl_attrs){0}, 1,
                            &all[rank].own[j]);
  }
  return status;
}

static sl_status go_all_around_back(const sli_chunk_ring *g, sli_array *const *in, int nin,
                                    sli_array *const *out) {
  int own = g->x->own;
  ring r = ring_begin(g);
  gradients *all = sli_arena_alloc(&g->x->g->arena, (size_t)own * sizeof *all);
  sl_status status = SL_OK;
  for (int rank = 0; rank < own && !status; rank++) {
    all[rank] = (gradients){.in = sli_ring_back_of(g, in, nin, rank)};
    status = own_back(g, rank, &all[rank]);
  }
  for (int t = 1; t < g->members && !status; t++) {
    status = go_around(&r, t);
    for (int rank = 0; rank < own && !status; rank++) status = steps_back(&r, rank, t, &all[rank]);
    for (int rank = 0; rank < own && !status; rank++) status = add_up(g, rank, t, all);
  }
  for (int rank = 0; rank < own && !status; rank++)
    status = sli_ring_put_together(g, rank, all[rank].dq, all[rank].own, out);
  return status;
}

sl_status sli_expand_ring_back(sli_expansion *x, const sli_node *n, sli_moment at,
                               sli_array *const *in, sli_array *const *out) {
  const sli_node *forward = n->about;
  sli_chunk_ring g = sli_ring_of(x, forward, n->name, at, x->rounds[forward->id]);
  SLI_TRY(sli_ring_give_again(&g));
  return (forward->attrs.numbers.exact ? sli_ring_walk_back : go_all_around_back)(&g, in, n->nin,
                                                                                  out);
}
