/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention with exact sums: the steps of a query, and the summands of a key's gradient, run
 * in the same order as on one device (docs/exact.md).
 *
 * Runs are numbered by position; each is both a chunk of keys and a run of queries. In the forward
 * pass a device walks the chunks from the last one that its queries see to the first. A neighbour
 * walks one chunk ahead, so the chunks still go around a ring, in a contiguous or zigzag layout.
 * Queries visit tiles of keys, and the last tile of a chunk may extend into the chunk visited just
 * before; the first keys of that chunk are therefore passed along.
 *
 * In the backward pass queries take the chunks from the first to the last. A chunk travels from the
 * last run of queries that sees it to the first, together with the sum of its gradients so far.
 * With R runs, run i takes chunk c in step c + R - 1 - i, so all devices work concurrently. */
#include "graph/sharding/ring.h"
#include "ops/attention_shape.h"
#include "ops/ops.h"

/* ---- runs by position ---------------------------------------------------------------------- */

/* A run: number j of its member's runs. */
typedef struct run {
  int member, j;
  sl_part part; /* all runs of the member */
} run;

static bool is_zigzag(const sli_chunk_ring *ring) { return ring->x->grid->zigzag; }
static int run_count(const sli_chunk_ring *ring) {
  return ring->members * (is_zigzag(ring) ? 2 : 1);
}

static run run_at(const sli_chunk_ring *ring, int number) {
  bool second = number >= ring->members;
  int member = second ? 2 * ring->members - 1 - number : number;
  return (run){member, second, sli_ring_runs(ring, member)};
}

/* Returns the number, by position, of a member's run j. */
static int number_of(const sli_chunk_ring *ring, int member, int j) {
  return j ? 2 * ring->members - 1 - member : member;
}

static int runs_of(const sli_chunk_ring *ring) { return is_zigzag(ring) ? 2 : 1; }

/* True if a run of queries sees keys of a chunk, or of tiles that begin in it. */
static bool sees(const sli_chunk_ring *ring, int queries, int chunk, int64_t tile) {
  run q = run_at(ring, queries), k = run_at(ring, chunk);
  return sli_ring_sees(ring, &q.part, q.j, &k.part, k.j, tile);
}

static sl_tensor *own_chunk(const sli_chunk_ring *ring, int rank, int chunk) {
  run k = run_at(ring, chunk);
  return k.member == sli_ring_member(ring, rank) ? ring->kept->own[rank][k.j] : NULL;
}

static sl_tensor *given_chunk(const sli_chunk_ring *ring, int rank, int chunk) {
  run k = run_at(ring, chunk);
  return ring->given[sli_ring_rank(ring, rank, k.member)][k.j];
}

static const char *name_of(const sli_chunk_ring *ring, const char *what, int queries, int chunk) {
  return sli_arena_format(&ring->x->g->arena, "%s%d.%d", what, queries, chunk);
}

/* ---- forward pass ------------------------------------------------------------------------- */

/* Walks of all devices: [ranks]. */
typedef struct walks {
  const sli_chunk_ring *g;
  sl_tensor **here, **before; /* chunk of this step, and of the previous step; NULL: none */
  sl_tensor *(*state)[2];     /* o and lse so far */
} walks;

/* Returns the chunk with which a member's walk begins. */
static int top_of(const sli_chunk_ring *ring, int member) {
  return ring->n->attrs.attention.full ? run_count(ring) - 1
                                       : number_of(ring, member, runs_of(ring) - 1);
}

/* True if one of a member's runs sees a chunk. */
static bool member_sees(const sli_chunk_ring *ring, int member, int chunk) {
  bool any = false;
  for (int j = 0; j < runs_of(ring) && chunk >= 0; j++)
    any |= sees(ring, number_of(ring, member, j), chunk, SLI_KEY_TILE);
  return any;
}

static bool is_last_step(const sli_chunk_ring *ring, int member, int chunk) {
  while (--chunk >= 0)
    if (member_sees(ring, member, chunk)) return false;
  return true;
}

/* True if the run takes its first step with this chunk. */
static bool is_fresh(const sli_chunk_ring *ring, int queries, int chunk) {
  while (++chunk < run_count(ring))
    if (sees(ring, queries, chunk, SLI_KEY_TILE)) return false;
  return true;
}

/* Returns the nearest copy of a chunk: on the device whose walk is one step ahead, or the
 * owner's. */
static sl_tensor *nearest(const walks *w, int rank, int chunk, int step) {
  const sli_chunk_ring *g = w->g;
  int member = sli_ring_member(g, rank), next = member + (is_zigzag(g) ? 1 : -1);
  bool ahead = step > 0 && next >= 0 && next < g->members && top_of(g, next) < top_of(g, member);
  int neighbour = ahead ? sli_ring_rank(g, rank, next) : rank;
  bool has = ahead && w->before[neighbour] && !own_chunk(g, neighbour, chunk);
  return has ? w->before[neighbour] : given_chunk(g, rank, chunk);
}

/* Copies to each device the chunk of its next step. */
static sl_status fetch(walks *w, int step) {
  const sli_chunk_ring *g = w->g;
  sl_tensor **before = w->before;
  w->before = w->here;
  w->here = before;
  for (int rank = 0; rank < g->x->own; rank++) {
    int member = sli_ring_member(g, rank), chunk = top_of(g, member) - step;
    bool seen = chunk >= 0 && member_sees(g, member, chunk);
    w->here[rank] = seen ? own_chunk(g, rank, chunk) : NULL;
    if (seen && !w->here[rank])
      SLI_TRY(sli_ring_copy(g, name_of(g, "bring", step, chunk), rank,
                            nearest(w, rank, chunk, step), &w->here[rank]));
  }
  return SL_OK;
}

static const sli_spans *spans_of(const sli_chunk_ring *ring, int rank, int chunk) {
  int member = sli_ring_member(ring, rank);
  run k = run_at(ring, chunk);
  sl_part q = sli_ring_runs(ring, member);
  sli_spans *s = sli_arena_alloc(&ring->x->g->arena, sizeof *s);
  *s = (sli_spans){.length = sli_ring_length(ring), .ends = is_last_step(ring, member, chunk)};
  for (int j = 0; j < runs_of(ring); j++) {
    int queries = number_of(ring, member, j);
    if (!s->ends && !sees(ring, queries, chunk, SLI_KEY_TILE)) continue;
    sli_ring_add_span(s, &q, j, &k.part, k.j, k.part.count[k.j])->fresh =
        is_fresh(ring, queries, chunk);
  }
  return s;
}

/* Takes the first keys of the previously visited chunk, which complete the last tile of this
 * chunk. */
static sl_status take_tail(const walks *w, int rank, int chunk, sl_tensor **tail) {
  const sli_chunk_ring *g = w->g;
  *tail = NULL;
  if (chunk + 1 >= run_count(g) || !w->before[rank]) return SL_OK;
  run k = run_at(g, chunk + 1);
  int64_t rows = (SLI_KEY_TILE - k.part.begin[k.j] % SLI_KEY_TILE) % SLI_KEY_TILE;
  rows = SLI_MIN(rows, k.part.count[k.j]);
  return rows ? sli_ring_slice(g, name_of(g, "tail", rank, chunk), rank, w->before[rank],
                               (sl_part){1, 1, {0}, {rows}}, tail)
              : SL_OK;
}

static sl_status take_step(const walks *w, int rank, int step, sl_tensor *ids) {
  const sli_chunk_ring *g = w->g;
  int chunk = top_of(g, sli_ring_member(g, rank)) - step;
  sl_tensor *tail, **state = w->state[rank];
  if (!w->here[rank]) return SL_OK;
  SLI_TRY(take_tail(w, rank, chunk, &tail));
  sl_attrs attrs = *sli_local_attrs(g->x, g->n, g->n, rank);
  attrs.user = spans_of(g, rank, chunk);
  sl_tensor *in[] = {g->kept->q[rank], w->here[rank], ids, state[0], state[1], tail};
  return sli_ring_add(g, &sl_op_attention_step, name_of(g, "step", step, chunk), g->at.cls, rank, 6,
                      in, &attrs, 2, state);
}

sl_status sli_ring_walk(const sli_chunk_ring *ring, sli_array *const *in, int nin,
                        sli_array *const *out) {
  size_t ranks = (size_t)ring->x->ranks;
  sli_arena *arena = &ring->x->g->arena;
  walks w = {ring, sli_arena_alloc(arena, ranks * sizeof *w.here),
             sli_arena_alloc(arena, ranks * sizeof *w.before),
             sli_arena_alloc(arena, ranks * sizeof *w.state)};
  int ids = sli_ring_ids(ring->n);
  for (int step = 0; step < run_count(ring); step++) {
    SLI_TRY(fetch(&w, step));
    for (int rank = 0; rank < ring->x->own; rank++)
      SLI_TRY(take_step(&w, rank, step, sli_ring_on(in, nin, ids, rank)));
  }
  for (int rank = 0; rank < ring->x->own; rank++)
    for (int o = 0; o < 2; o++)
      if (out[o]) out[o]->on[rank] = w.state[rank][o];
  return SL_OK;
}

/* ---- backward pass ------------------------------------------------------------------------ */

/* A chunk in transit, with the gradients of its keys and values so far. */
typedef struct parcel {
  int rank;            /* current device */
  sl_tensor *kv, *sum; /* kv NULL: at the owner; sum NULL: none yet */
} parcel;

/* Backward pass of all devices: [ranks]. */
typedef struct back {
  const sli_chunk_ring *g;
  sli_ring_back *in;
  sl_tensor **dq;
  parcel (*of)[SLI_RUNS]; /* by owner */
} back;

static parcel *parcel_of(const back *b, int rank, int chunk) {
  run k = run_at(b->g, chunk);
  return &b->of[sli_ring_rank(b->g, rank, k.member)][k.j];
}

/* Moves a chunk and its sum to a device. */
static sl_status bring(const back *b, int rank, int queries, int chunk, parcel *p) {
  const sli_chunk_ring *g = b->g;
  sl_tensor *own = own_chunk(g, rank, chunk), *from = p->kv ? p->kv : given_chunk(g, rank, chunk);
  bool moves = p->rank != rank;
  if (own) p->kv = NULL;
  else if (moves || !p->kv)
    SLI_TRY(sli_ring_copy(g, name_of(g, "bring", queries, chunk), rank, from, &p->kv));
  if (moves && p->sum)
    SLI_TRY(sli_ring_copy(g, name_of(g, "sum", queries, chunk), rank, p->sum, &p->sum));
  p->rank = rank;
  return SL_OK;
}

static sl_status visit(const back *b, int rank, int j, int chunk) {
  const sli_chunk_ring *g = b->g;
  int member = sli_ring_member(g, rank), queries = number_of(g, member, j);
  parcel *p = parcel_of(b, rank, chunk);
  SLI_TRY(bring(b, rank, queries, chunk, p));
  run k = run_at(g, chunk);
  sl_part q = sli_ring_runs(g, member);
  sli_spans *spans = sli_arena_alloc(&g->x->g->arena, sizeof *spans);
  *spans = (sli_spans){.length = sli_ring_length(g)};
  sli_ring_add_span(spans, &q, j, &k.part, k.j, k.part.count[k.j]);
  sl_attrs attrs = *sli_local_attrs(g->x, g->n, g->n, rank);
  attrs.user = spans;
  const sli_ring_back *d = &b->in[rank];
  sl_tensor *kv = p->kv ? p->kv : own_chunk(g, rank, chunk), *out[2];
  sl_tensor *in[] = {g->kept->q[rank], kv, d->o, d->lse, d->dout, d->ids, b->dq[rank], p->sum};
  SLI_TRY(sli_ring_add(g, &sl_op_attention_step_b, name_of(g, "step", queries, chunk), g->at.cls,
                       rank, 8, in, &attrs, 2, out));
  b->dq[rank] = out[0];
  p->sum = out[1];
  return SL_OK;
}

/* Runs a device's visits of a step, its later run first. */
static sl_status visits(const back *b, int rank, int step) {
  const sli_chunk_ring *g = b->g;
  int runs = run_count(g);
  for (int j = runs_of(g) - 1; j >= 0; j--) {
    int queries = number_of(g, sli_ring_member(g, rank), j), chunk = step - (runs - 1 - queries);
    if (chunk >= 0 && chunk < runs && sees(g, queries, chunk, 1)) SLI_TRY(visit(b, rank, j, chunk));
  }
  return SL_OK;
}

/* Copies the sums of a device's chunks back to it. */
static sl_status collect(const back *b, int rank, sl_tensor **own) {
  const sli_chunk_ring *g = b->g;
  for (int j = 0; j < runs_of(g); j++) {
    parcel *p = &b->of[rank][j];
    int chunk = number_of(g, sli_ring_member(g, rank), j);
    own[j] = p->sum;
    if (p->rank != rank)
      SLI_TRY(sli_ring_copy(g, name_of(g, "sum", rank, chunk), rank, p->sum, &own[j]));
  }
  return SL_OK;
}

static back back_of(const sli_chunk_ring *ring, sli_array *const *in, int nin) {
  size_t ranks = (size_t)ring->x->ranks;
  sli_arena *arena = &ring->x->g->arena;
  back b = {ring, sli_arena_alloc(arena, ranks * sizeof *b.in),
            sli_arena_alloc(arena, ranks * sizeof *b.dq),
            sli_arena_alloc(arena, ranks * sizeof *b.of)};
  for (int rank = 0; rank < ring->x->own; rank++) {
    b.in[rank] = sli_ring_back_of(ring, in, nin, rank);
    for (int j = 0; j < SLI_RUNS; j++) b.of[rank][j].rank = rank;
  }
  return b;
}

sl_status sli_ring_walk_back(const sli_chunk_ring *ring, sli_array *const *in, int nin,
                             sli_array *const *out) {
  back b = back_of(ring, in, nin);
  for (int step = 0; step < 2 * run_count(ring) - 1; step++)
    for (int rank = 0; rank < ring->x->own; rank++) SLI_TRY(visits(&b, rank, step));
  for (int rank = 0; rank < ring->x->own; rank++) {
    sl_tensor *own[SLI_RUNS] = {NULL};
    SLI_TRY(collect(&b, rank, own));
    SLI_TRY(sli_ring_put_together(ring, rank, b.dq[rank], own, out));
  }
  return SL_OK;
}
