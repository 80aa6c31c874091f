/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention on sharded sequences, by exchange of states.
 *
 * Each device has a run of positions. It computes a record of their effect on a state, reads the
 * records of the preceding devices, and continues from the resulting state
 * (ops/linear_attention_share.c). In the backward pass it reads records of the following devices,
 * which describe the gradient of the state. The size of a record does not depend on the number of
 * positions. A device that reads no records also runs a join, which yields zeros. The join ends the
 * task that computes the device's own record, so that other devices do not wait for the rest of its
 * block.
 *
 * If sequences are also cut into pieces, every device reads the records of all devices and keeps
 * the state at the end of the piece. */
#include "graph/sharding/expand.h"
#include "graph/sharding/search.h"
#include "ops/linear_attention.h"
#include "ops/ops.h"

static const sli_along sequence = 1u << SLI_AXIS_SEQUENCE;

bool sli_has_states(const sli_node *forward) {
  return sli_op_sequence(forward->op) == SL_SEQUENCE_STATES;
}

bool sli_exchanges_states(const sli_expansion *x, const sli_node *forward) {
  sl_sbp lies = sli_signature_in(sli_share_signature(x, forward, SLI_AXIS_SEQUENCE), 0);
  return sli_has_states(forward) && lies.kind == SL_SPLIT && lies.dim == 1;
}

/* Exchange for a call, or for its backward pass. */
typedef struct exchange {
  sli_expansion *x;
  const sli_node *n, *forward;
  sli_moment at;
  int members;
  bool back, pieces;
  sl_tensor **records; /* [ranks] */
} exchange;

static exchange exchange_of(sli_expansion *x, const sli_node *n, const sli_node *forward,
                            sli_moment at) {
  return (exchange){
      .x = x,
      .n = n,
      .forward = forward,
      .at = at,
      .members = x->grid->size[SLI_AXIS_SEQUENCE],
      .back = n != forward,
      .pieces = sli_op_keeps_record(forward->op),
      .records = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof(sl_tensor *))};
}

/* ---- nodes --------------------------------------------------------------------------------- */

static sl_status add(const exchange *e, const sl_op *op, const char *what, sl_class cls, int rank,
                     int nin, sl_tensor *const *in, const sl_attrs *attrs, int nout,
                     sli_node **out) {
  const sli_making m = {.op = op,
                        .name = sli_arena_format(&e->x->g->arena, "%s:%s", e->n->name, what),
                        .at = e->at,
                        .cls = cls,
                        .rank = rank,
                        .nin = nin,
                        .nout = nout,
                        .in = in,
                        .attrs = attrs,
                        .where = e->n->at};
  return sli_expand_node(e->x, &m, out);
}

static sl_tensor *output(const exchange *e, sli_node *n, int o, int rank) {
  const char *name = sli_arena_format(&e->x->g->arena, "%s:%d", n->name, o);
  return sli_expand_output(e->x, n, o, sli_expand_name(e->x, name, rank));
}

/* ---- records ------------------------------------------------------------------------------- */

/* Returns the number of records that determine a member's initial state: those of the devices
 * before it or, in the backward pass, after it. */
static int records_before(const exchange *e, int member) {
  return e->back ? e->members - 1 - member : member;
}

static int member_of(const exchange *e, int rank) {
  return sli_rank_share(e->x->grid, rank, sequence);
}

/* Computes a device's record from its inputs q, k, v, gates and, in the backward pass, do. */
static sl_status make_record(const exchange *e, int rank, int nin, sl_tensor *const *in) {
  const sl_op *op = e->back ? &sl_op_linear_attention_share_b : &sl_op_linear_attention_share;
  const sl_attrs *attrs = sli_local_attrs(e->x, e->forward, e->forward, rank);
  sli_node *n;
  SLI_TRY(add(e, op, "record", e->at.cls, rank, nin, in, attrs, 1, &n));
  e->records[rank] = output(e, n, 0, rank);
  return SL_OK;
}

/* Returns the attributes of a join; `record` is one of the joined records. */
static const sl_attrs *join_attrs(const exchange *e, int rank, const sl_tensor *record) {
  sl_attrs *attrs = sli_arena_alloc(&e->x->g->arena, (size_t)e->x->nvariants * sizeof *attrs);
  const sl_attrs *own = sli_local_attrs(e->x, e->forward, e->forward, rank);
  const sli_node *maker = record->producer;
  sli_linear_shape s = sli_linear_shape_of(&maker->attrs, maker->in_type);
  for (int v = 0; v < e->x->nvariants; v++)
    attrs[v] = (sl_attrs){.states.gates = sli_linear_gap(&s),
                          .states.before = records_before(e, member_of(e, rank)),
                          .place.length = e->pieces ? own[v].place.length : 0,
                          .states.back = e->back};
  return attrs;
}

/* Counts records of other devices as traffic. */
static void note_records(const exchange *e, sli_node *n, int others) {
  n->remote_axis = SLI_AXIS_SEQUENCE;
  n->remote_bytes = (double)others * (double)sl_type_bytes(&n->in_type[0]);
  for (int v = 0; v < e->x->nvariants && n->shapes; v++)
    n->shapes[v].remote_bytes = n->remote_bytes;
}

/* Joins the records that a device reads, from the farthest on. *end is the state at the end of the
 * piece, or NULL. */
static sl_status join_records(const exchange *e, int rank, sl_tensor **state, sl_tensor **end) {
  int count = e->pieces ? e->members : records_before(e, member_of(e, rank));
  sl_tensor *in[e->members];
  sli_node *n;
  in[0] = e->records[rank];
  for (int i = 0; i < count; i++)
    in[i] = e->records[sli_rank_at(e->x->grid, rank, sequence, e->back ? e->members - 1 - i : i)];
  SLI_TRY(add(e, &sl_op_linear_attention_join, "join", SL_CLASS_C, rank, SLI_MAX(count, 1), in,
              join_attrs(e, rank, in[0]), 1 + e->pieces, &n));
  note_records(e, n, count - e->pieces);
  *state = output(e, n, 0, rank);
  *end = e->pieces ? output(e, n, 1, rank) : NULL;
  return SL_OK;
}

/* ---- the passes ---------------------------------------------------------------------------- */

/* Adds the call that walks a device's positions from a state, and its outputs. */
static sl_status walk(const exchange *e, const sl_op *op, int rank, int nin, sl_tensor *const *in,
                      int nout, sli_array *const *out) {
  const sl_attrs *attrs = sli_local_attrs(e->x, e->forward, e->forward, rank);
  sli_node *n;
  SLI_TRY(add(e, op, "step", e->at.cls, rank, nin, in, attrs, nout, &n));
  for (int o = 0; o < nout; o++)
    if (out[o])
      out[o]->on[rank] =
          sli_expand_output(e->x, n, o, sli_expand_name(e->x, out[o]->tensor->name, rank));
  return SL_OK;
}

static void inputs_of(sli_array *const *in, int count, int rank, sl_tensor **out) {
  for (int i = 0; i < count; i++) out[i] = in[i] ? in[i]->on[rank] : NULL;
}

static void stand_for_all(const exchange *e, int nout, sli_array *const *out) {
  for (int o = 0; o < nout; o++)
    if (out[o]) sli_stand_for_all(e->x, out[o]);
}

/* True if some device reads this device's record. */
static bool is_read(const exchange *e, int rank) {
  return e->pieces || e->x->grid->alike || records_before(e, member_of(e, rank)) < e->members - 1;
}

sl_status sli_expand_states(sli_expansion *x, const sli_node *n, sli_moment at,
                            sli_array *const *in, sli_array *const *out) {
  enum { BEFORE = 4, OUT_BEFORE = 1, OUT_END };
  exchange e = exchange_of(x, n, n, at);
  sl_tensor *from[BEFORE + 1];
  x->states[n->id] = sli_arena_alloc(&x->g->arena, (size_t)x->ranks * sizeof *x->states[n->id]);
  for (int r = 0; r < x->own; r++) {
    inputs_of(in, BEFORE, r, from);
    if (is_read(&e, r)) SLI_TRY(make_record(&e, r, BEFORE, from));
  }
  for (int r = 0; r < x->own; r++) {
    sl_tensor **before = &x->states[n->id][r], *end;
    SLI_TRY(join_records(&e, r, before, &end));
    inputs_of(in, BEFORE, r, from);
    from[BEFORE] = *before;
    SLI_TRY(walk(&e, &sl_op_linear_attention_step, r, BEFORE + 1, from, 1, out));
    if (e.pieces && out[OUT_BEFORE]) out[OUT_BEFORE]->on[r] = *before;
    if (e.pieces && out[OUT_END]) out[OUT_END]->on[r] = end;
  }
  stand_for_all(&e, n->nout, out);
  return SL_OK;
}

sl_status sli_expand_states_back(sli_expansion *x, const sli_node *n, sli_moment at,
                                 sli_array *const *in, sli_array *const *out) {
  enum { GATES = 3, O, BEFORE, DO, BEHIND, GRADIENTS = 4 };
  exchange e = exchange_of(x, n, n->about, at);
  sl_tensor *from[BEHIND + 1], *end;
  int dout = n->nin - 1;
  for (int r = 0; r < x->own; r++) {
    inputs_of(in, O, r, from);
    from[GATES + 1] = in[dout]->on[r];
    if (is_read(&e, r)) SLI_TRY(make_record(&e, r, O + 1, from));
  }
  for (int r = 0; r < x->own; r++) {
    inputs_of(in, BEFORE, r, from);
    from[BEFORE] = x->states[n->about->id][r];
    from[DO] = in[dout]->on[r];
    SLI_TRY(join_records(&e, r, &from[BEHIND], &end));
    SLI_TRY(walk(&e, &sl_op_linear_attention_step_b, r, BEHIND + 1, from, GRADIENTS, out));
    if (e.pieces && out[GRADIENTS]) out[GRADIENTS]->on[r] = end;
  }
  stand_for_all(&e, n->nout, out);
  return SL_OK;
}
