/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a neighbouring device, for short convolutions on sharded sequences.
 *
 * Each device has a run of positions. A convolution over W positions also reads the last W - 1 rows
 * of the preceding device; its backward pass reads the first rows of the following device's
 * gradient. If sequences are also cut into pieces, the first device gets the last device's rows and
 * keeps them for the next piece (ops/causal_conv.c). */
#include "graph/sharding/box.h"
#include "ops/ops.h"

static const sli_along sequence = 1u << SLI_AXIS_SEQUENCE;

static int64_t taps_of(const sli_node *forward) { return sl_type_last(&forward->in_type[1]); }

bool sli_reads_near(const sli_expansion *x, const sli_node *forward) {
  if (sli_op_sequence(forward->op) != SL_SEQUENCE_NEAR || taps_of(forward) < 2) return false;
  sl_sbp lies = sli_signature_in(sli_share_signature(x, forward, SLI_AXIS_SEQUENCE), 0);
  return lies.kind == SL_SPLIT && lies.dim == 1;
}

/* Returns slice attributes for the first or last rows of a device's part, in each variant. */
static const sl_attrs *edge_of(const sli_expansion *x, const sl_tensor *t, int64_t rows,
                               bool first) {
  sl_attrs *attrs = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *attrs);
  sl_part *parts = sli_arena_alloc(&x->g->arena, (size_t)x->nvariants * sizeof *parts);
  for (int v = 0; v < x->nvariants; v++) {
    int64_t begin = first ? 0 : sli_expand_type(x, t, v)->dim[1] - rows;
    parts[v] = (sl_part){.axis = 1, .nranges = 1, .begin = {begin}, .count = {rows}};
    attrs[v].user = &parts[v];
  }
  return attrs;
}

static void note_copy(const sli_expansion *x, sli_node *n) {
  n->remote_axis = SLI_AXIS_SEQUENCE;
  n->remote_bytes = (double)sl_type_bytes(&n->in_type[0]);
  for (int v = 0; v < x->nvariants && n->shapes; v++)
    n->shapes[v].remote_bytes = (double)sl_type_bytes(&n->shapes[v].in[0]);
}

/* Returns the member whose rows a device reads, or -1 if none. */
static int near_member(const sli_expansion *x, int rank, bool behind, bool around) {
  int members = x->grid->size[SLI_AXIS_SEQUENCE];
  int member = sli_rank_share(x->grid, rank, sequence) + (behind ? 1 : -1);
  bool there = member >= 0 && member < members;
  return there ? member : around ? (member + members) % members : -1;
}

static sl_status copy_near(const sli_boxing *b, int rank, sl_tensor *edge) {
  sl_attrs *attrs = sli_arena_alloc(&b->x->g->arena, (size_t)b->x->nvariants * sizeof *attrs);
  sli_node *n;
  const sli_box_making m = {&sl_op_copy, "near", SL_CLASS_C, false, rank, 1, &edge, attrs, NULL};
  SLI_TRY(sli_box_node(b, &m, &n, &b->to->on[rank]));
  note_copy(b->x, n);
  return SL_OK;
}

sl_status sli_box_near(sli_expansion *x, const sli_node *forward, sli_array *have, bool behind,
                       sli_moment at, sli_array **out) {
  enum { BEFORE = SL_MAX_DIMS, BEHIND }; /* mark arrays of neighbours' rows */
  bool around = sli_op_keeps_record(forward->op);
  sli_layout lies = have->layout;
  lies.axis[SLI_AXIS_SEQUENCE].dim = behind ? BEHIND : BEFORE;
  *out = sli_array_find(x, have->tensor, &lies, &at);
  if (*out) return SL_OK;
  *out = sli_array_add(x, have->tensor, lies, at);
  (*out)->kept = at.phase == SLI_PHASE_MAIN && at.cls == SL_CLASS_F;
  sli_boxing b = {x, have, *out, sequence, x->grid->size[SLI_AXIS_SEQUENCE], x->own};
  sl_tensor *edges[x->ranks];
  x->nboxes++;
  for (int r = 0; r < x->own; r++) {
    sli_node *n;
    const sli_box_making m = {&sl_op_slice,
                              "edge",
                              SL_CLASS_C,
                              true,
                              r,
                              1,
                              &have->on[r],
                              edge_of(x, have->on[r], taps_of(forward) - 1, behind),
                              NULL};
    SLI_TRY(sli_box_node(&b, &m, &n, &edges[r]));
  }
  for (int r = 0; r < x->own; r++) {
    int member = near_member(x, r, behind, around);
    if (member >= 0) SLI_TRY(copy_near(&b, r, edges[sli_rank_at(x->grid, r, sequence, member)]));
  }
  sli_stand_for_all(x, *out);
  return SL_OK;
}
