/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to shard a call over devices.
 *
 * Full replication is always one way. Other ways follow from an op's promises about pieces
 * (sl_pieces), since a device's part of a call is a piece of it: a call that may be cut along a dim
 * may be sharded along it. The op declares all remaining ways itself. */
#include <stdio.h>
#include <string.h>

#include "graph/sharding/search.h"

static const sl_sbp partial = {SL_PARTIAL, 0}, broadcast = {SL_BROADCAST, 0};
static sl_sbp split(int dim) { return (sl_sbp){SL_SPLIT, dim}; }

/* ---- ways from promises about pieces -------------------------------------------------------- */

static bool is_whole(const sl_op *op, int i) { return sli_bit(sli_op_cut(op)->whole, i); }

static bool same_dims(const sl_type *a, const sl_type *b) {
  return a->ndim == b->ndim && !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

/* Sets the layout of argument i. Returns false if the last entry would have to represent different
 * layouts. */
static bool signatures_put(sl_sbp *of, int i, sl_sbp sbp) {
  int at = SLI_MIN(i, SL_SIGNATURE_ARGS - 1);
  if (i > at && !sli_sbp_equal(of[at], sbp)) return false;
  of[at] = sbp;
  return true;
}

/* Splits element by element: along a dim of the output, and of inputs with the same dims. */
static bool split_elements(const sli_node *n, int dim, sl_signature *out) {
  const sl_type *y = &n->out_type[0];
  bool any = false;
  if (!n->nout || dim >= y->ndim) return false;
  for (int i = 0; i < n->nin; i++) {
    const sl_type *x = &n->in_type[i];
    bool stays = !n->in[i] || is_whole(n->op, i), alike = !stays && same_dims(x, y);
    if (!stays && !alike && x->ndim) return false;
    if (!signatures_put(out->in, i, alike ? split(dim) : broadcast)) return false;
    any |= alike;
  }
  for (int o = 0; o < n->nout; o++)
    if (!same_dims(&n->out_type[o], y) || !signatures_put(out->out, o, split(dim))) return false;
  return any;
}

/* Splits row by row: along a dim of rows that all inputs have. */
static bool split_rows(const sli_node *n, int dim, sl_signature *out) {
  int64_t length = 0;
  for (int i = 0; i < n->nin; i++) {
    const sl_type *x = &n->in_type[i];
    bool stays = !n->in[i] || is_whole(n->op, i) || dim >= sli_row_dims(x);
    if (!signatures_put(out->in, i, stays ? broadcast : split(dim))) return false;
    if (stays) continue;
    if (length && x->dim[dim] != length) return false;
    length = x->dim[dim];
  }
  for (int o = 0; o < n->nout; o++) {
    const sl_type *y = &n->out_type[o];
    bool one = sli_op_cut(n->op)->pieces != SL_PIECES_ROWS && !o; /* output 0 is a mean or a sum */
    if (!one && (dim >= y->ndim || y->dim[dim] != length)) return false;
    if (!signatures_put(out->out, o, one ? partial : split(dim))) return false;
  }
  return length > 0;
}

/* Splits all outputs of a source along the first dim. */
static bool split_source(const sli_node *n, int dim, sl_signature *out) {
  for (int o = 0; o < n->nout; o++) {
    if (dim || !n->out_type[o].ndim || !signatures_put(out->out, o, split(0))) return false;
  }
  return n->nout > 0;
}

static bool promised(const sli_node *n, int dim, sl_signature *out) {
  if (sli_op_is(n->op, SL_OP_SOURCE)) return split_source(n, dim, out);
  switch (sli_op_cut(n->op)->pieces) {
  case SL_PIECES_ELEMENTS: return split_elements(n, dim, out);
  case SL_PIECES_ROWS:
  case SL_PIECES_MEAN:
  case SL_PIECES_SUM: return split_rows(n, dim, out);
  default: return false; /* ways declared by the op, if any */
  }
}

/* ---- all ways ----------------------------------------------------------------------------- */

static bool same_layouts(const sl_signature *a, const sl_signature *b) {
  for (int i = 0; i < SL_SIGNATURE_ARGS; i++)
    if (!sli_sbp_equal(a->in[i], b->in[i]) || !sli_sbp_equal(a->out[i], b->out[i])) return false;
  return true;
}

static bool in_range(sl_sbp sbp, int count, int i, const sl_type *types) {
  return (sbp.kind != SL_SPLIT && sbp.kind != SL_DISPATCHED) ||
         (i < count && sbp.dim >= 0 && sbp.dim < types[i].ndim);
}

static void check_own(const sli_node *n, const sl_signature *s) {
  for (int i = 0; i < SL_SIGNATURE_ARGS; i++)
    SLI_CHECK(
        in_range(s->in[i], n->nin, i, n->in_type) && in_range(s->out[i], n->nout, i, n->out_type),
        "op %s (%s): a signature of its row splits argument %d along a dim that is not there",
        n->name, n->op->name, i);
}

/* Adds a signature. It replaces an earlier one with the same layouts, since it may carry more
 * information. */
static void signatures_add(sl_signature *all, int *count, const sl_signature *s) {
  for (int i = 0; i < *count; i++)
    if (same_layouts(&all[i], s)) {
      all[i] = *s;
      return;
    }
  all[(*count)++] = *s;
}

int sli_signatures_raw(const sli_node *n, sl_signature *out) {
  int count = 1;
  if (!sli_is_shared(n)) return 0;
  out[0] = (sl_signature){0};
  for (int d = 0; d < SL_MAX_DIMS; d++) {
    sl_signature s = {0};
    if (promised(n, d, &s)) signatures_add(out, &count, &s);
  }
  sl_signature own[SL_SIGNATURES];
  memset(own, 0, sizeof own);
  int more = sli_op_signatures(n->op, &n->attrs, n->nin, n->in_type, own);
  for (int i = 0; i < more; i++) {
    check_own(n, &own[i]);
    signatures_add(out, &count, &own[i]);
  }
  return count;
}

/* ---- layouts ------------------------------------------------------------------------------- */

const char *sli_sbp_format(char out[SLI_SBP_TEXT], sl_sbp a) {
  if (a.kind == SL_SPLIT) snprintf(out, SLI_SBP_TEXT, "S%d", a.dim & 7);
  else
    snprintf(out, SLI_SBP_TEXT, "%s",
             a.kind == SL_PARTIAL      ? "P"
             : a.kind == SL_DISPATCHED ? "R"
                                       : "B");
  return out;
}

double sli_boxing_bytes(sl_sbp a, sl_sbp b, int size, double bytes) {
  /* a device's own part, and the rest */
  double share = bytes / size, others = bytes - share;
  if (sli_sbp_equal(a, b) || a.kind == SL_BROADCAST) return 0;
  if (a.kind == SL_PARTIAL) return b.kind == SL_SPLIT ? others : 2 * others;
  return b.kind == SL_BROADCAST ? others : others / size;
}

/* ---- backward pass ------------------------------------------------------------------ */

bool sli_is_repeated(const sl_signature *s) {
  for (int i = 0; i < SL_SIGNATURE_ARGS; i++)
    if (s->in[i].kind != SL_BROADCAST || s->out[i].kind != SL_BROADCAST) return false;
  return true;
}

sl_sbp sli_gradient_wanted(const sl_signature *s, int o) {
  sl_sbp y = sli_signature_out(s, o);
  return y.kind == SL_PARTIAL ? (sl_sbp){SL_BROADCAST, 0} : y;
}

sl_sbp sli_gradient_given(const sl_signature *s, int i) {
  sl_sbp in = sli_signature_in(s, i);
  if (in.kind == SL_SPLIT || in.kind == SL_DISPATCHED) return in;
  bool shared = in.kind == SL_BROADCAST && !sli_is_repeated(s);
  return (sl_sbp){shared ? SL_PARTIAL : SL_BROADCAST, 0};
}
