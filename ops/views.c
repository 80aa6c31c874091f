/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that join, split, reshape, permute and expand tensors without changing numbers. */
#include <stdio.h>
#include <string.h>

#include "ops/layout.h"
#include "ops/ops.h"
#include "ops/views.h"

/* Each byte is read once and written once. */
static void move_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)out;
  *flops = 0;
  for (int i = 0; i < nin; i++)
    if (in[i].ndim >= 0) *bytes += 2 * (double)sl_type_bytes(&in[i]);
}

/* ---- concatenation along one dim --------------------------------------------------- */

static sl_status want_axis(const sl_attrs *attrs, const sl_type *type) {
  if (attrs->along.axes && !(attrs->along.axes & (attrs->along.axes - 1)) &&
      sli_concat_axis(attrs) < type->ndim)
    return SL_OK;
  return sli_misfit(type,
                    "attrs.along.axes must have exactly one bit, for a dim of the inputs, not %#x",
                    attrs->along.axes);
}

/* Checks that the arrays agree in all dims except sli_concat_axis, and sets *sum to their total
 * length along it. */
static sl_status want_row(const sl_attrs *attrs, int n, const sl_type *types, int64_t *sum) {
  SLI_TRY(want_axis(attrs, &types[0]));
  *sum = 0;
  for (int i = 0; i < n; i++) {
    sl_type want = types[0];
    char name[32];
    if (types[i].ndim == want.ndim)
      want.dim[sli_concat_axis(attrs)] = types[i].dim[sli_concat_axis(attrs)];
    snprintf(name, sizeof name, "input %d", i);
    SLI_TRY(sli_want(name, &types[i], &want));
    *sum += want.dim[sli_concat_axis(attrs)];
  }
  return SL_OK;
}

static sl_status concat_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  int64_t sum;
  SLI_TRY(want_row(attrs, nin, in, &sum));
  out[0] = in[0];
  out[0].dim[sli_concat_axis(attrs)] = sum;
  return SL_OK;
}

static sl_status concat_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  int64_t sum;
  SLI_TRY(want_row(attrs, nin - 1, in + 1, &sum));
  for (int o = 0; o + 1 < nin; o++) {
    out[o] = in[1 + o];
    out[o].dtype = in[0].dtype;
  }
  sl_type whole = out[0];
  whole.dim[sli_concat_axis(attrs)] = sum;
  return sli_want("dy", &in[0], &whole);
}

static int concat_b_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin - 1;
}

/* Splits along any dim except the concatenated one. */
static int concat_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  int count = 0;
  for (int d = 0; d < in[0].ndim; d++) {
    if (d == sli_concat_axis(attrs)) continue;
    sl_signature *s = &out[count++];
    *s = (sl_signature){0};
    for (int i = 0; i < SLI_MIN(nin, SL_SIGNATURE_ARGS); i++) s->in[i] = sli_split(d);
    s->out[0] = sli_split(d);
  }
  return count;
}

/* ---- split -------------------------------------------------------------------------- */

static int split_outputs(const sl_attrs *attrs, int nin) {
  (void)nin;
  return attrs->user ? ((const sl_lengths *)attrs->user)->count : -1;
}

static sl_status split_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_lengths *lengths = attrs->user;
  int64_t sum = 0;
  (void)nin;
  SLI_TRY(want_axis(attrs, &in[0]));
  for (int o = 0; o < lengths->count; o++) {
    out[o] = in[0];
    sum += out[o].dim[sli_concat_axis(attrs)] = lengths->lengths[o];
    if (lengths->lengths[o] < 1)
      return sl_fail(SL_E_SHAPE, "part %d must have at least one position", o);
  }
  return sum == in[0].dim[sli_concat_axis(attrs)]
             ? SL_OK
             : sli_misfit(&in[0], "the parts have %lld positions of dim %d together",
                          (long long)sum, sli_concat_axis(attrs));
}

static int split_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  int count = 0, parts = split_outputs(attrs, nin);
  for (int d = 0; d < in[0].ndim; d++) {
    if (d == sli_concat_axis(attrs)) continue;
    sl_signature *s = &out[count++];
    *s = (sl_signature){.in = {sli_split(d)}};
    for (int o = 0; o < SLI_MIN(parts, SL_SIGNATURE_ARGS); o++) s->out[o] = sli_split(d);
  }
  return count;
}

static uint64_t split_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_lengths *lengths = attrs->user;
  (void)nin;
  for (int o = 0; o < lengths->count; o++)
    hash = sli_hash_word(hash, (uint64_t)lengths->lengths[o]);
  return hash;
}

/* ---- reshape ------------------------------------------------------------------------ */

/* A smallest group of consecutive dims of both shapes with equal products. */
typedef struct group {
  int from, to;           /* first dim of the group */
  int from_end, to_end;   /* end of the group */
  int from_lead, to_lead; /* first dim of each that is not 1; splits of the group are along it */
} group;

static int lead_of(const sl_type *type, int begin, int end) {
  while (begin + 1 < end && type->dim[begin] == 1) begin++;
  return begin;
}

static bool next_group(const sl_reshaping *r, group *g) {
  const sl_type *x = &r->from, *y = &r->to;
  int i = g->from = g->from_end, j = g->to = g->to_end;
  if (i == x->ndim && j == y->ndim) return false;
  int64_t a = i < x->ndim ? x->dim[i++] : 1, b = j < y->ndim ? y->dim[j++] : 1;
  while (a != b)
    if (a < b) a *= x->dim[i++];
    else b *= y->dim[j++];
  g->from_end = i;
  g->to_end = j;
  g->from_lead = lead_of(x, g->from, i);
  g->to_lead = lead_of(y, g->to, j);
  return true;
}

/* Returns the part of the output for a part of the input, within one group of dims. */
static sl_status reshape_group(const sl_reshaping *r, const group *g, const sl_type *in,
                               sl_type *out) {
  for (int d = g->from; d < g->from_end; d++)
    if (d != g->from_lead && in->dim[d] != r->from.dim[d])
      return sli_misfit(in, "dim %d must be %lld", d, (long long)r->from.dim[d]);
  if (g->from == g->from_end || g->to == g->to_end) return SL_OK;
  int64_t whole = r->from.dim[g->from_lead], part = in->dim[g->from_lead];
  int64_t length = r->to.dim[g->to_lead] * part;
  if (length % whole)
    return sli_misfit(
        in,
        "%lld of %lld positions of dim %d do not make whole positions of dim %d of the new shape",
        (long long)part, (long long)whole, g->from_lead, g->to_lead);
  out->dim[g->to_lead] = length / whole;
  return SL_OK;
}

static sl_status reshape_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_reshaping *r = attrs->user;
  (void)nin;
  if (!r) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_reshaping");
  char text[SL_TYPE_TEXT];
  if (sl_type_elements(&r->from) != sl_type_elements(&r->to))
    return sli_misfit(&r->from, "x must have %lld elements, as the new shape %s has",
                      (long long)sl_type_elements(&r->to), sl_type_format(text, &r->to));
  if (in[0].ndim != r->from.ndim) return sli_misfit(&in[0], "x must have %d dims", r->from.ndim);
  out[0] = r->to;
  out[0].dtype = in[0].dtype;
  for (group g = {0}; next_group(r, &g);) SLI_TRY(reshape_group(r, &g, &in[0], &out[0]));
  return SL_OK;
}

static sl_status reshape_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type y;
  SLI_TRY(reshape_infer(attrs, nin, &in[1], &y));
  y.dtype = in[0].dtype;
  out[0] = in[1];
  out[0].dtype = in[0].dtype;
  return sli_want("dy", &in[0], &y);
}

static int reshape_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                              sl_signature *out) {
  const sl_reshaping *r = attrs->user;
  int count = 0;
  (void)nin;
  if (in[0].dtype == SL_F32)
    out[count++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  for (group g = {0}; next_group(r, &g);)
    if (g.from < g.from_end && g.to < g.to_end)
      out[count++] = (sl_signature){.in = {sli_split(g.from_lead)}, .out = {sli_split(g.to_lead)}};
  return count;
}

static uint64_t reshape_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sl_reshaping *r = attrs->user;
  (void)nin;
  return sli_hash_type(sli_hash_type(hash, &r->from), &r->to);
}

/* ---- permute ------------------------------------------------------------------------ */

static sl_status want_order(const sl_attrs *attrs, const sl_type *x) {
  uint32_t seen = 0;
  for (int d = 0; d < attrs->shape.ndims && d < SL_MAX_DIMS; d++)
    if (attrs->shape.dims[d] >= 0 && attrs->shape.dims[d] < SL_MAX_DIMS)
      seen |= 1u << attrs->shape.dims[d];
  if (attrs->shape.ndims == x->ndim && seen == (1u << x->ndim) - 1) return SL_OK;
  return sli_misfit(x, "attrs.shape.dims must name each of the %d dims once", x->ndim);
}

static sl_status order_infer(const sl_attrs *attrs, const sl_type *x, bool back, sl_type *out) {
  SLI_TRY(want_order(attrs, x));
  sli_permutation o = sli_permutation_of(x, attrs, back);
  *out = *x;
  memcpy(out->dim, o.dim, sizeof o.dim);
  return SL_OK;
}

static sl_status permute_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  return order_infer(attrs, &in[0], false, out);
}

static sl_status permute_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  return order_infer(attrs, &in[0], true, out);
}

static int permute_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                              sl_signature *out) {
  int count = 0;
  (void)nin;
  if (in[0].dtype == SL_F32)
    out[count++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  for (int d = 0; d < in[0].ndim; d++)
    out[count++] =
        (sl_signature){.in = {sli_split((int)attrs->shape.dims[d])}, .out = {sli_split(d)}};
  return count;
}

/* ---- expand ------------------------------------------------------------------------- */

/* Returns the length to which a dim of length 1 expands: that of `like`, or of this device's part
 * of the whole. */
static int64_t expanded(const sl_attrs *attrs, const sl_type *like, int d) {
  if (like) return like->dim[d];
  if (!attrs->region || !attrs->region->parts[d].nranges)
    return attrs->shape.dims[d] ? attrs->shape.dims[d] : 1;
  int64_t sum = 0;
  for (int r = 0; r < attrs->region->parts[d].nranges; r++) sum += attrs->region->parts[d].count[r];
  return sum;
}

static sl_status expand_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  const sl_type *x = &in[0], *like = nin > 1 && in[1].ndim >= 0 ? &in[1] : NULL;
  int ndim = like ? like->ndim : attrs->shape.ndims;
  if (x->dtype != SL_F32 && x->dtype != SL_I32) return sli_misfit(x, "x must be f32 or i32");
  if (ndim < x->ndim || ndim > SL_MAX_DIMS)
    return sli_misfit(x, "x cannot be expanded to %d dims: at least its own number, and at most %d",
                      ndim, SL_MAX_DIMS);
  *out = (sl_type){.dtype = x->dtype, .ndim = ndim};
  for (int d = 0; d < ndim; d++) {
    int64_t own = d < ndim - x->ndim ? 1 : x->dim[d - (ndim - x->ndim)];
    int64_t want = like ? like->dim[d] : attrs->shape.dims[d];
    out->dim[d] = own == 1 ? expanded(attrs, like, d) : own;
    if (own == 1 || !want || want == own) continue;
    return sli_misfit(x, "x must have %lld or 1 at dim %d from the end", (long long)want, ndim - d);
  }
  return SL_OK;
}

/* Splits along dims that x has, and along expanded dims, where x is replicated. */
static int expand_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  const sl_type *x = &in[0];
  bool like = nin > 1 && in[1].ndim >= 0;
  int ndim = like ? in[1].ndim : attrs->shape.ndims, n = 0;
  if (x->dtype == SL_F32) out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  for (int d = 0; d < ndim; d++) {
    int own = d - (ndim - x->ndim);
    out[n] = (sl_signature){.out = {sli_split(d)}};
    if (own >= 0 && x->dim[own] > 1) out[n].in[0] = sli_split(own);
    if (like) out[n].in[1] = sli_split(d);
    n++;
  }
  return n;
}

/* ---- ops ---------------------------------------------------------------------------- */

const sl_op sl_op_concat = {
    .name = "concat",
    .attrs = {&sl_attrs_along},
    .min_in = 1,
    .max_in = -1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = ~0u, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXIS},
    .shard = &(const sl_op_shard){.signatures = concat_signatures},
    .infer = concat_infer,
    .cost = move_cost,
    .traits = SL_OP_CHEAP,
    .grad = {{.op = &sl_op_concat_b,
              .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_INS(0)},
              .nwrt = 1,
              .wrt = {0},
              .rest = true}},
};

const sl_op sl_op_concat_b = {
    .name = "concat_b",
    .attrs = {&sl_attrs_along},
    .min_in = 2,
    .max_in = -1,
    .nout = -1,
    .outputs = concat_b_outputs,
    .narrow = &(const sl_op_narrow){.in = ~0u, .out = ~0u},
    .memory = &(const sl_op_memory){.unread = ~1u},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .exact = &sli_exact_moves,
    .infer = concat_b_infer,
    .cost = move_cost,
};

const sl_op sl_op_split = {
    .name = "split",
    .attrs = {&sl_attrs_along},
    .min_in = 1,
    .max_in = 1,
    .nout = -1,
    .outputs = split_outputs,
    .narrow = &(const sl_op_narrow){.in = 1, .out = ~0u},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXIS},
    .shard = &(const sl_op_shard){.signatures = split_signatures},
    .infer = split_infer,
    .cost = move_cost,
    .traits = SL_OP_CHEAP,
    .hash = split_hash,
    .grad = {{.op = &sl_op_concat, .cls = SL_CLASS_B, .in = {SL_DOUTS(0)}, .nwrt = 1, .wrt = {0}}},
};

const sl_op sl_op_reshape = {
    .name = "reshape",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .memory = &(const sl_op_memory){.in_place = {1}},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .shard = &(const sl_op_shard){.signatures = reshape_signatures},
    .infer = reshape_infer,
    .cost = move_cost,
    .traits = SL_OP_RESHAPE | SL_OP_CHEAP,
    .hash = reshape_hash,
    .grad = {{.op = &sl_op_reshape_b,
              .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(0)},
              .nwrt = 1,
              .wrt = {0}}},
};

const sl_op sl_op_reshape_b = {
    .name = "reshape_b",
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .memory = &(const sl_op_memory){.in_place = {1}, .unread = 2},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .exact = &sli_exact_moves,
    .infer = reshape_b_infer,
    .cost = move_cost,
    .hash = reshape_hash,
};

const sl_op sl_op_permute = {
    .name = "permute",
    .attrs = {&sl_attrs_shape},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .shard = &(const sl_op_shard){.signatures = permute_signatures},
    .infer = permute_infer,
    .cost = move_cost,
    .traits = SL_OP_CHEAP,
    .grad =
        {{.op = &sl_op_permute_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};

const sl_op sl_op_permute_b = {
    .name = "permute_b",
    .attrs = {&sl_attrs_shape},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 1, .out = 1},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES},
    .exact = &sli_exact_moves,
    .infer = permute_b_infer,
    .cost = move_cost,
};

const sl_op sl_op_expand = {
    .name = "expand",
    .attrs = {&sl_attrs_shape},
    .min_in = 1,
    .max_in = 2,
    .nout = 1,
    .narrow = &(const sl_op_narrow){.in = 3, .out = 1},
    .traits = SL_OP_LOCATED | SL_OP_CHEAP,
    .memory = &(const sl_op_memory){.unread = 2},
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_NOTHING},
    .shard = &(const sl_op_shard){.signatures = expand_signatures},
    .infer = expand_infer,
    .cost = move_cost,
    .grad = {{.op = &sl_op_expand_b,
              .cls = SL_CLASS_B,
              .in = {SL_DOUT(0), SL_IN(0)},
              .nwrt = 1,
              .wrt = {0}}},
};
