/* SPDX-License-Identifier: Apache-2.0 */
/* Ring attention over sharded sequences, chunk by chunk.
 *
 * Queries stay where they are. Each device's keys and values go around the ring: every device
 * copies the chunk that its neighbour has. It takes a step of attention with it while the next
 * one arrives, and so on, as far as its queries see. Only two chunks of other devices are
 * present at a time, for values passed from level to level share slots (lower/slot_pools.c). In the
 * backward pass the chunks go around once more. The gradients of their keys and values go to
 * their owner, which adds them up in the order of the steps.
 *
 * In a contiguous layout, a device has one run of positions and sees the chunks before its own:
 * the last device has the most to do. In the zigzag layout it has two runs, number r and number
 * 2P-1-r of 2P, and all have equally much to do: of each other device it sees the first run, and
 * of later devices the second as well. Runs are chunks of their own, so that only what is seen
 * goes around. */
#include "graph/share/expand.h"
#include "ops/ops.h"

enum { RUNS = 2 };
static const sli_along sequence = 1u << SLI_AXIS_SEQUENCE;

/* Tensors of one call that the backward pass reads again. */
struct sli_round {
  sl_tensor **q;           /* [ranks] */
  sl_tensor *(*own)[RUNS]; /* [ranks] keys and values, by runs */
};

typedef struct ring {
  sli_expansion *x;
  const sli_node *n; /* forward call */
  const char *name;
  sli_moment at;
  int members;
  struct sli_round *kept;
  sl_tensor *(*given)[RUNS];  /* [ranks] own chunks as other devices read them */
  sl_tensor *(*here)[RUNS];   /* [ranks] chunks for this step */
  sl_tensor *(*before)[RUNS]; /* [ranks] chunks of the step before */
} ring;

/* ---- positions ----------------------------------------------------------------------------- */

/* Returns the runs of positions of a member. */
static sl_part runs_of(const ring *g, int member) {
  sl_type type = sli_logical_type(g->n->in[0], 0);
  return sli_cut_part(g->x, g->n->in[0], (sli_cutting){sequence, 1}, member, &type);
}

static int member_of(const ring *g, int rank) { return sli_rank_share(g->x->grid, rank, sequence); }

static int64_t length_of(const ring *g) { return sli_logical_type(g->n->in[0], 0).dim[1]; }

/* Returns the member whose chunk a member has in step t; for t = 1, the neighbour it gets chunks
 * from. If work is uneven, later devices get chunks from earlier ones; else the direction is the
 * one in which the second runs are done soon. */
static int source_of(const ring *g, int member, int t) {
  int by = g->x->grid->zigzag ? t : g->members - t;
  return (member + by) % g->members;
}

/* True if a query of one run may see a key of another. */
static bool is_seen(const ring *g, const sl_part *q, int i, const sl_part *k, int j) {
  const sl_attrs *a = &g->n->attrs;
  int64_t behind = a->window > 0 ? a->window - 1 : length_of(g), ahead = a->full ? length_of(g) : 0;
  int64_t first = q->begin[i], last = first + q->count[i] - 1;
  return k->begin[j] <= last + ahead && k->begin[j] + k->count[j] - 1 >= first - behind;
}

static void add_span(sli_spans *to, const sl_part *q, int i, const sl_part *k, int j, int64_t keys,
                     bool fresh) {
  sli_span *s = &to->of[to->n++];
  *s = (sli_span){.query = i ? q->count[0] : 0,
                  .queries = q->count[i],
                  .keys = SLI_MIN(keys, k->count[j]),
                  .at_query = q->begin[i],
                  .at_key = k->begin[j],
                  .fresh = fresh};
}

/* Queries of a run that see a chunk: all of them; or, for the own chunk, those that begin with
 * it, or the rest. */
typedef enum which { ALL, FIRST, REST } which;

static const sli_spans *spans_of(const ring *g, int rank, int source, int j, which selected,
                                 const sl_tensor *chunk) {
  sl_part q = runs_of(g, member_of(g, rank)), k = runs_of(g, source);
  sli_spans *s = sli_arena_alloc(&g->x->g->arena, sizeof *s);
  *s = (sli_spans){.length = length_of(g)};
  for (int i = 0; i < q.nranges; i++) {
    bool first = i >= j;
    if (!is_seen(g, &q, i, &k, j) || (selected != ALL && first != (selected == FIRST))) continue;
    add_span(s, &q, i, &k, j, sli_expand_type(g->x, chunk, 0)->dim[1], selected == FIRST && i == j);
  }
  return s;
}

static bool sees(const ring *g, int rank, int source, int j) {
  sl_part q = runs_of(g, member_of(g, rank)), k = runs_of(g, source);
  bool any = false;
  for (int i = 0; i < q.nranges && j < k.nranges; i++) any |= is_seen(g, &q, i, &k, j);
  return any;
}

/* ---- nodes ------------------------------------------------------------------------------- */

/* Adds a node; out[nout]. */
static sl_status ring_add(const ring *g, const sl_op *op, const char *what, sl_class cls, int rank,
                          int nin, sl_tensor *const *in, const sl_attrs *attrs, int nout,
                          sl_tensor **out) {
  sli_expansion *x = g->x;
  const char *name = sli_arena_format(&x->g->arena, "%s:%s", g->name, what);
  sli_node *n;
  sli_making m = {.op = op,
                  .name = name,
                  .at = g->at,
                  .cls = cls,
                  .rank = rank,
                  .nin = nin,
                  .nout = nout,
                  .in = in,
                  .attrs = attrs,
                  .where = g->n->at};
  sl_status status = sli_expand_node(x, &m, &n);
  if (status) return status;
  if (cls == SL_CLASS_C) {
    n->remote_axis = SLI_AXIS_SEQUENCE;
    n->remote_bytes = (double)sl_type_bytes(&n->in_type[nin - 1]);
    n->repeats = g->at.cls == SL_CLASS_F;
    n->rereads = !n->repeats;
  }
  for (int o = 0; o < nout; o++) {
    const char *of = nout > 1 ? sli_arena_format(&x->g->arena, "%s:%d", name, o) : name;
    out[o] = sli_expand_output(x, n, o, sli_expand_name(x, of, rank));
  }
  return SL_OK;
}

static sl_status slice(const ring *g, const char *what, int rank, sl_tensor *t, sl_part part,
                       sl_tensor **out) {
  sl_part *own = sli_arena_alloc(&g->x->g->arena, sizeof *own);
  *own = part;
  return ring_add(g, &sl_op_slice, what, g->at.cls, rank, 1, &t, &(sl_attrs){.user = own}, 1, out);
}

/* Joins two arrays along a dim. */
static sl_status join(const ring *g, const char *what, int rank, sl_tensor *const *in, int dim,
                      sl_tensor **out) {
  sli_arena *arena = &g->x->g->arena;
  sl_joint *joint = sli_arena_alloc(arena, sizeof *joint);
  sl_part *parts = sli_arena_alloc(arena, 2 * sizeof *parts);
  sl_type whole = *sli_expand_type(g->x, in[0], 0);
  int64_t a = whole.dim[dim], b = sli_expand_type(g->x, in[1], 0)->dim[dim];
  whole.dim[dim] = a + b;
  parts[0] = (sl_part){dim, 1, {0}, {a}};
  parts[1] = (sl_part){dim, 1, {a}, {b}};
  *joint = (sl_joint){whole, parts};
  return ring_add(g, &sl_op_join, what, g->at.cls, rank, 2, in, &(sl_attrs){.user = joint}, 1, out);
}

/* ---- chunks ------------------------------------------------------------------------------ */

/* Splits one device's input into queries, and keys with values; in[]: the inputs of the call. */
static sl_status take_apart(const ring *g, int rank, sl_tensor *const *in, sl_tensor **kv) {
  const sl_attrs *attrs = sli_local_attrs(g->x, g->n, g->n, rank);
  if (g->n->op == &sl_op_attention) {
    g->kept->q[rank] = in[0];
    return join(g, "kv", rank, in + 1, 2, kv);
  }
  int64_t kv_heads = attrs->kv_heads ? attrs->kv_heads : attrs->heads;
  int64_t width = sli_expand_type(g->x, in[0], 0)->dim[2];
  int64_t queries = width / (attrs->heads + 2 * kv_heads) * attrs->heads;
  sl_status status = slice(g, "q", rank, in[0], (sl_part){2, 1, {0}, {queries}}, &g->kept->q[rank]);
  if (status) return status;
  return slice(g, "kv", rank, in[0], (sl_part){2, 1, {queries}, {width - queries}}, kv);
}

static sl_status cut_chunks(const ring *g, int rank, sl_tensor *const *in) {
  sl_part runs = runs_of(g, member_of(g, rank));
  sl_tensor *kv;
  sl_status status = take_apart(g, rank, in, &kv);
  int64_t begin = 0;
  for (int j = 0; j < runs.nranges && !status; begin += runs.count[j++]) {
    sl_tensor **to = &g->kept->own[rank][j];
    if (runs.nranges == 1) *to = kv;
    else
      status = slice(g, sli_arena_format(&g->x->g->arena, "kv%d", j), rank, kv,
                     (sl_part){1, 1, {begin}, {runs.count[j]}}, to);
  }
  return status;
}

/* Copies a chunk to a device: the neighbour's, or, if it has none, the owner's. */
static sl_status fetch(const ring *g, int rank, int t, int j) {
  int member = member_of(g, rank), from = source_of(g, member, 1), source = source_of(g, member, t);
  sl_tensor *chunk = g->before[sli_rank_at(g->x->grid, rank, sequence, from)][j];
  if (t == 1 || !chunk) chunk = g->given[sli_rank_at(g->x->grid, rank, sequence, source)][j];
  const char *what = sli_arena_format(&g->x->g->arena, "bring%d.%d", t, j);
  return ring_add(g, &sl_op_copy, what, SL_CLASS_C, rank, 1, &chunk, &(sl_attrs){0}, 1,
                  &g->here[rank][j]);
}

/* Sends chunks again for the backward pass to separate memories; otherwise the copies would be
 * kept there in between. */
static sl_status give_again(ring *g) {
  if (!g->x->grid->apart[SLI_AXIS_SEQUENCE]) return SL_OK;
  sl_status status = SL_OK;
  g->given = sli_arena_alloc(&g->x->g->arena, (size_t)g->x->ranks * sizeof *g->given);
  for (int r = 0; r < g->x->own; r++)
    for (int j = 0; j < RUNS && !status; j++)
      if (g->kept->own[r][j]) {
        status = ring_add(g, &sl_op_copy, sli_arena_format(&g->x->g->arena, "give.%d", j),
                          g->at.cls, r, 1, &g->kept->own[r][j], &(sl_attrs){0}, 1, &g->given[r][j]);
        if (!status) g->given[r][j]->producer->resends = true;
      }
  return status;
}

/* Brings the chunk of step t to all devices that see something of it. */
static sl_status go_around(ring *g, int t) {
  sl_tensor *(*before)[RUNS] = g->before;
  sl_status status = SL_OK;
  g->before = g->here;
  g->here = before;
  for (int r = 0; r < g->x->own; r++)
    for (int j = 0; j < RUNS && !status; j++) {
      g->here[r][j] = NULL;
      if (sees(g, r, source_of(g, member_of(g, r), t), j)) status = fetch(g, r, t, j);
    }
  return status;
}

static ring ring_of(sli_expansion *x, const sli_node *n, const char *name, sli_moment at,
                    struct sli_round *kept) {
  sli_arena *arena = &x->g->arena;
  return (ring){.x = x,
                .n = n,
                .name = name,
                .at = at,
                .members = x->grid->size[SLI_AXIS_SEQUENCE],
                .kept = kept,
                .given = kept->own,
                .here = sli_arena_alloc(arena, (size_t)x->ranks * sizeof(sl_tensor *[RUNS])),
                .before = sli_arena_alloc(arena, (size_t)x->ranks * sizeof(sl_tensor *[RUNS]))};
}

/* ---- forward pass ------------------------------------------------------------------------- */

/* Continues o and lse [2] with a chunk. */
static sl_status step(const ring *g, int rank, int source, int j, which selected, sl_tensor *chunk,
                      sl_tensor *ids, const char *what, sl_tensor **state) {
  sl_attrs attrs = *sli_local_attrs(g->x, g->n, g->n, rank);
  const sli_spans *spans = spans_of(g, rank, source, j, selected, chunk);
  sl_tensor *in[] = {g->kept->q[rank], chunk, ids, state[0], state[1]};
  attrs.user = spans;
  return spans->n
             ? ring_add(g, &sl_op_attention_step, what, g->at.cls, rank, 5, in, &attrs, 2, state)
             : SL_OK;
}

/* Takes the steps with a device's own chunks. Each query begins with its own run, where it
 * always sees a key. */
static sl_status own_steps(const ring *g, int rank, sl_tensor *ids, sl_tensor **state) {
  sli_arena *arena = &g->x->g->arena;
  int own = member_of(g, rank);
  sl_status status = SL_OK;
  static const which order[] = {FIRST, REST};
  for (int w = 0; w < 2; w++)
    for (int j = RUNS - 1; j >= 0 && !status; j--) {
      sl_tensor *chunk = g->kept->own[rank][j];
      const char *what = sli_arena_format(arena, "own%d.%d", w, j);
      if (chunk) status = step(g, rank, own, j, order[w], chunk, ids, what, state);
    }
  return status;
}

static sl_status steps(const ring *g, int rank, int t, sl_tensor *ids, sl_tensor **state) {
  int source = source_of(g, member_of(g, rank), t);
  sl_status status = SL_OK;
  for (int j = 0; j < RUNS && !status; j++) {
    const char *what = sli_arena_format(&g->x->g->arena, "step%d.%d", t, j);
    if (g->here[rank][j])
      status = step(g, rank, source, j, ALL, g->here[rank][j], ids, what, state);
  }
  return status;
}

static sl_tensor *on(sli_array *const *in, int nin, int i, int rank) {
  return i < nin && in[i] ? in[i]->on[rank] : NULL;
}

sl_status sli_expand_ring(sli_expansion *x, const sli_node *n, sli_moment at, sli_array *const *in,
                          sli_array *const *out) {
  struct sli_round *kept = x->rounds[n->id] = sli_arena_alloc(&x->g->arena, sizeof *kept);
  kept->q = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *kept->q);
  kept->own = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *kept->own);
  ring g = ring_of(x, n, n->name, at, kept);
  int ids = n->op == &sl_op_attention ? 3 : 1;
  sl_tensor *(*state)[2] = sli_arena_alloc(&x->g->arena, (size_t)x->own * sizeof *state);
  sl_status status = SL_OK;
  for (int r = 0; r < x->own && !status; r++) {
    sl_tensor *from[] = {on(in, n->nin, 0, r), on(in, n->nin, 1, r), on(in, n->nin, 2, r)};
    status = cut_chunks(&g, r, from);
    if (!status) status = own_steps(&g, r, on(in, n->nin, ids, r), state[r]);
  }
  for (int t = 1; t < g.members && !status; t++) {
    status = go_around(&g, t);
    for (int r = 0; r < x->own && !status; r++)
      status = steps(&g, r, t, on(in, n->nin, ids, r), state[r]);
  }
  for (int r = 0; r < x->own; r++)
    for (int o = 0; o < 2; o++)
      if (out[o]) out[o]->on[r] = state[r][o];
  return status;
}

/* ---- backward pass ------------------------------------------------------------------------ */

/* Inputs and results of a device's backward pass so far. */
typedef struct gradients {
  sl_tensor *o, *lse, *dout, *ids, *dq;
  sl_tensor *own[RUNS];  /* gradients of keys and values: sum so far */
  sl_tensor *made[RUNS]; /* gradients of this step's chunk, for its owner */
} gradients;

static sl_status step_back(const ring *g, int rank, int source, int j, sl_tensor *chunk,
                           gradients *d, const char *what, sl_tensor **dkv) {
  sl_attrs attrs = *sli_local_attrs(g->x, g->n, g->n, rank);
  sl_tensor *in[] = {g->kept->q[rank], chunk, d->o, d->lse, d->dout, d->ids, d->dq}, *out[2];
  attrs.user = spans_of(g, rank, source, j, ALL, chunk);
  sl_status status =
      ring_add(g, &sl_op_attention_step_b, what, g->at.cls, rank, 7, in, &attrs, 2, out);
  if (status) return status;
  d->dq = out[0];
  *dkv = out[1];
  return SL_OK;
}

static sl_status own_back(const ring *g, int rank, gradients *d) {
  sl_status status = SL_OK;
  for (int j = 0; j < RUNS && !status; j++)
    if (g->kept->own[rank][j])
      status = step_back(g, rank, member_of(g, rank), j, g->kept->own[rank][j], d,
                         sli_arena_format(&g->x->g->arena, "own.%d", j), &d->own[j]);
  return status;
}

static sl_status steps_back(const ring *g, int rank, int t, gradients *d) {
  int source = source_of(g, member_of(g, rank), t);
  sl_status status = SL_OK;
  for (int j = 0; j < RUNS && !status; j++) {
    d->made[j] = NULL;
    const char *what = sli_arena_format(&g->x->g->arena, "step%d.%d", t, j);
    if (g->here[rank][j])
      status = step_back(g, rank, source, j, g->here[rank][j], d, what, &d->made[j]);
  }
  return status;
}

/* Adds the gradient from the device that had this device's chunk in step t. */
static sl_status add_up(const ring *g, int rank, int t, gradients *all) {
  int member = member_of(g, rank), reader = source_of(g, member, g->members - t);
  const gradients *of = &all[sli_rank_at(g->x->grid, rank, sequence, reader)];
  sl_status status = SL_OK;
  for (int j = 0; j < RUNS && !status; j++) {
    const char *what = sli_arena_format(&g->x->g->arena, "sum%d.%d", t, j);
    sl_tensor *in[] = {all[rank].own[j], of->made[j]};
    if (in[0] && in[1])
      status = ring_add(g, &sl_op_sum, what, SL_CLASS_C, rank, 2, in, &(sl_attrs){0}, 1,
                        &all[rank].own[j]);
  }
  return status;
}

/* Assembles gradients in the form of the call's inputs. */
static sl_status put_together(const ring *g, int rank, const gradients *d, sli_array *const *out) {
  sl_tensor *dkv = d->own[0], *parts[] = {d->own[0], d->own[1]};
  sl_status status = d->own[1] ? join(g, "dkv", rank, parts, 1, &dkv) : SL_OK;
  if (status) return status;
  if (g->n->op != &sl_op_attention) {
    sl_tensor *both[] = {d->dq, dkv};
    return join(g, "dqkv", rank, both, 2, &out[0]->on[rank]);
  }
  if (out[0]) out[0]->on[rank] = d->dq;
  int64_t own = sli_expand_type(g->x, dkv, 0)->dim[2] / 2;
  for (int i = 1; i < 3 && !status; i++)
    if (out[i])
      status = slice(g, i == 1 ? "dk" : "dv", rank, dkv, (sl_part){2, 1, {(i - 1) * own}, {own}},
                     &out[i]->on[rank]);
  return status;
}

sl_status sli_expand_ring_back(sli_expansion *x, const sli_node *n, sli_moment at,
                               sli_array *const *in, sli_array *const *out) {
  const sli_node *forward = n->about;
  int o = forward->op == &sl_op_attention ? 3 : 1;
  ring g = ring_of(x, forward, n->name, at, x->rounds[forward->id]);
  gradients *all = sli_arena_alloc(&x->g->arena, (size_t)x->own * sizeof *all);
  sl_status status = give_again(&g);
  for (int r = 0; r < x->own && !status; r++) {
    all[r] = (gradients){.o = on(in, n->nin, o, r),
                         .lse = on(in, n->nin, o + 1, r),
                         .dout = on(in, n->nin, o + 2, r),
                         .ids = on(in, n->nin, o + 3, r)};
    status = own_back(&g, r, &all[r]);
  }
  for (int t = 1; t < g.members && !status; t++) {
    status = go_around(&g, t);
    for (int r = 0; r < x->own && !status; r++) status = steps_back(&g, r, t, &all[r]);
    for (int r = 0; r < x->own && !status; r++) status = add_up(&g, r, t, all);
  }
  for (int r = 0; r < x->own && !status; r++) status = put_together(&g, r, &all[r], out);
  return status;
}
