/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are losses. */
#include <math.h>
#include <string.h>

#include "ops/functions.h"
#include "pytorch/emit.h"

#define ONE(op, x) sl_op1_at(m->at, m->g, &sl_op_##op, NULL, x)
#define TWO(op, a, b) sl_op2_at(m->at, m->g, &sl_op_##op, NULL, a, b)
#define ADD(a, b) sl_add_at(m->at, m->g, a, b)
#define MUL(a, b) sl_mul_at(m->at, m->g, a, b)
#define SCALE(x, by) sl_scale_at(m->at, m->g, x, (float)(by))
#define SHIFT(x, by) sl_add_constant_at(m->at, m->g, x, (float)(by))
#define CLAMP(x, low, high) sl_clamp_at(m->at, m->g, x, (float)(low), (float)(high))

enum { NONE, MEAN, SUM }; /* `reduction` */

static sl_tensor *reduce(sli_import *m, sl_tensor *x, int64_t reduction) {
  if (!x || reduction == NONE) return x;
  if (!x->type.ndim) return x;
  return reduction == MEAN ? sl_mean_at(m->at, m->g, x, 0, false)
                           : sl_sum_at(m->at, m->g, x, 0, false);
}

void sli_emit_loss(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sli_pt_out(m, n, 0, reduce(m, row->of(m, n), sli_pt_whole(m, n, "reduction", MEAN)));
}

static sl_tensor *first(sli_import *m, const sli_pt_node *n) {
  return n->nargs ? sli_pt_in(m, n, n->args[0].name) : NULL;
}
static sl_tensor *target(sli_import *m, const sli_pt_node *n) { return sli_pt_in(m, n, "target"); }
static sl_tensor *apart(sli_import *m, const sli_pt_node *n) {
  return ONE(abs, TWO(sub, first(m, n), target(m, n)));
}

/* ---- of numbers ----------------------------------------------------------------------------- */

sl_tensor *sli_of_l1(sli_import *m, const sli_pt_node *n) { return apart(m, n); }

void sli_emit_mse(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = first(m, n), *t = target(m, n);
  int64_t reduction = sli_pt_whole(m, n, "reduction", MEAN);
  const sli_pt_value *to = sli_pt_arg_value(n, "target");
  if (!x || !t) return;
  if (reduction == MEAN && !sli_made_of(m, to)->learned && sl_type_equal(&x->type, &t->type) &&
      x->type.ndim) {
    sli_pt_out(m, n, 0, TWO(mse, x, t));
    return;
  }
  sl_tensor *off = TWO(sub, x, t);
  sli_pt_out(m, n, 0, reduce(m, MUL(off, off), reduction));
}

/* d^2 / (2 beta) up to beta, d - beta / 2 beyond: with c = min(d, beta), c^2 / (2 beta) + d - c. */
sl_tensor *sli_of_smooth_l1(sli_import *m, const sli_pt_node *n) {
  sl_tensor *d = apart(m, n);
  double beta = sli_pt_number(m, n, "beta", 1);
  if (beta == 0) return d;
  sl_tensor *c = CLAMP(d, 0, beta);
  return ADD(SCALE(MUL(c, c), 0.5 / beta), TWO(sub, d, c));
}
sl_tensor *sli_of_huber(sli_import *m, const sli_pt_node *n) {
  sl_tensor *d = apart(m, n);
  double delta = sli_pt_number(m, n, "delta", 1);
  sl_tensor *c = CLAMP(d, 0, delta);
  return ADD(SCALE(MUL(c, c), 0.5), SCALE(TWO(sub, d, c), delta));
}

/* ---- of probabilities ----------------------------------------------------------------------- */

static sl_tensor *weighed(sli_import *m, const sli_pt_node *n, sl_tensor *x) {
  sl_tensor *w = sli_pt_in(m, n, "weight");
  return w ? MUL(x, w) : x;
}

/* -(t log x + (1 - t) log(1 - x)); logarithms are at least -100. */
sl_tensor *sli_of_bce(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = first(m, n), *t = target(m, n);
  const sli_node *from = x ? x->producer : NULL; /* PyTorch's sigmoid reaches 0 and 1 */
  if (from && from->op == &sl_op_sigmoid) x = sli_pt_function(m, SLI_FUNCTION_sigmoid, from->in[0]);
  return weighed(m, n, sli_pt_function2(m, SLI_FUNCTION2_binary_entropy, x, t));
}

/* (1 - t) x + (1 + (w - 1) t) log(1 + e^-x), with w the weight of positive targets. */
sl_tensor *sli_of_bce_logits(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = first(m, n), *t = target(m, n), *w = sli_pt_in(m, n, "pos_weight");
  sl_tensor *soft = ONE(softplus, ONE(neg, x));
  if (w) soft = MUL(soft, SHIFT(MUL(SHIFT(w, -1), t), 1));
  return weighed(m, n, ADD(MUL(SHIFT(ONE(neg, t), 1), x), soft));
}

/* t (log t - x), or 0 where t is 0. */
sl_tensor *sli_of_kl_div(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = first(m, n), *t = target(m, n);
  if (sli_pt_flag(n, "log_target", false)) return MUL(ONE(exp, t), TWO(sub, t, x));
  return MUL(t, TWO(sub, ONE(log, CLAMP(t, 1e-37, INFINITY)), x));
}

sl_tensor *sli_of_soft_margin(sli_import *m, const sli_pt_node *n) {
  return ONE(softplus, ONE(neg, MUL(first(m, n), target(m, n))));
}

/* e^x - t x, or x - t log(x + eps). */
sl_tensor *sli_of_poisson_nll(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = first(m, n), *t = target(m, n);
  double eps = sli_pt_number(m, n, "eps", 1e-8);
  if (sli_pt_flag(n, "full", false)) return NULL;
  if (sli_pt_flag(n, "log_input", true)) return TWO(sub, ONE(exp, x), MUL(t, x));
  return TWO(sub, x, MUL(t, ONE(log, SHIFT(x, eps))));
}

/* ---- of distances --------------------------------------------------------------------------- */

static sl_tensor *length_along(sli_import *m, sl_tensor *x, int dim, bool keep) {
  sl_tensor *sum = sl_sum_at(m->at, m->g, MUL(x, x), 1u << dim, keep);
  return sli_pt_function(m, SLI_FUNCTION_length, sum);
}

static sl_tensor *positive(sli_import *m, sl_tensor *x) { return ONE(relu, x); }

/* Returns y where the target has a value, else 0. */
static sl_tensor *where_is(sli_import *m, sl_tensor *t, double value, sl_tensor *y) {
  if (!t || !y) return NULL;
  return sl_op3_at(m->at, m->g, &sl_op_where, NULL, TWO(eq, t, sli_pt_filled_like(m, t, value)), y,
                   sli_pt_filled_like(m, y, 0));
}

/* Dot product of a and b divided by both lengths, each at least eps. */
static sl_tensor *cosine(sli_import *m, sl_tensor *a, sl_tensor *b, int dim, double eps) {
  if (!a || !b) return NULL;
  sl_tensor *x = CLAMP(length_along(m, a, dim, true), eps, INFINITY),
            *y = CLAMP(length_along(m, b, dim, true), eps, INFINITY);
  return sl_sum_at(m->at, m->g, MUL(TWO(div, a, x), TWO(div, b, y)), 1u << dim, false);
}

sl_tensor *sli_of_cosine_similarity(sli_import *m, const sli_pt_node *n) {
  sl_tensor *a = sli_pt_in(m, n, "x1"), *b = sli_pt_in(m, n, "x2");
  if (!a || !b || !a->type.ndim || a->type.ndim != b->type.ndim) return NULL;
  return cosine(m, a, b, sli_pt_dim(m, n, "dim", a->type.ndim, 1),
                sli_pt_number(m, n, "eps", 1e-8));
}

/* 1 - cos where the target is 1, max(0, cos - margin) where it is -1. */
sl_tensor *sli_of_cosine_embedding(sli_import *m, const sli_pt_node *n) {
  sl_tensor *a = sli_pt_in(m, n, "input1"), *b = sli_pt_in(m, n, "input2"), *t = target(m, n);
  if (!a || !b || !t || !a->type.ndim) return NULL;
  uint32_t last = 1u << (a->type.ndim - 1);
  sl_tensor *x = SHIFT(sl_sum_at(m->at, m->g, MUL(a, a), last, false), 1e-12),
            *y = SHIFT(sl_sum_at(m->at, m->g, MUL(b, b), last, false), 1e-12);
  sl_tensor *dot = sl_sum_at(m->at, m->g, MUL(a, b), last, false);
  sl_tensor *c =
      TWO(div, sli_pt_narrow(m, dot), ONE(sqrt, MUL(sli_pt_narrow(m, x), sli_pt_narrow(m, y))));
  sl_tensor *far = positive(m, SHIFT(c, -sli_pt_number(m, n, "margin", 0)));
  return ADD(where_is(m, t, 1, SHIFT(ONE(neg, c), 1)), where_is(m, t, -1, far));
}

/* max(0, margin - t (a - b)). */
sl_tensor *sli_of_margin_ranking(sli_import *m, const sli_pt_node *n) {
  sl_tensor *off = TWO(sub, sli_pt_in(m, n, "input1"), sli_pt_in(m, n, "input2"));
  return positive(m, SHIFT(ONE(neg, MUL(off, target(m, n))), sli_pt_number(m, n, "margin", 0)));
}

/* x where the target is 1, max(0, margin - x) where it is -1. */
sl_tensor *sli_of_hinge_embedding(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = first(m, n), *t = target(m, n);
  sl_tensor *far = positive(m, SHIFT(ONE(neg, x), sli_pt_number(m, n, "margin", 1)));
  if (!x || !t || !far) return NULL;
  return ADD(TWO(sub, x, where_is(m, t, -1, x)), TWO(sub, far, where_is(m, t, 1, far)));
}

static sl_tensor *distance(sli_import *m, sl_tensor *a, sl_tensor *b, double eps, bool keep) {
  sl_tensor *off = SHIFT(TWO(sub, a, b), eps);
  return off && off->type.ndim ? length_along(m, off, off->type.ndim - 1, keep) : NULL;
}

sl_tensor *sli_of_pairwise_distance(sli_import *m, const sli_pt_node *n) {
  if (sli_pt_number(m, n, "p", 2) != 2) return NULL;
  return distance(m, sli_pt_in(m, n, "x1"), sli_pt_in(m, n, "x2"), sli_pt_number(m, n, "eps", 1e-6),
                  sli_pt_flag(n, "keepdim", false));
}

sl_tensor *sli_of_triplet_margin(sli_import *m, const sli_pt_node *n) {
  if (sli_pt_number(m, n, "p", 2) != 2 || sli_pt_flag(n, "swap", false)) return NULL;
  double eps = sli_pt_number(m, n, "eps", 1e-6);
  sl_tensor *anchor = sli_pt_in(m, n, "anchor");
  sl_tensor *near = distance(m, anchor, sli_pt_in(m, n, "positive"), eps, false),
            *far = distance(m, anchor, sli_pt_in(m, n, "negative"), eps, false);
  return positive(m, SHIFT(TWO(sub, near, far), sli_pt_number(m, n, "margin", 1)));
}

/* ---- of classes ----------------------------------------------------------------------------- */

/* Moves the class dim, dim 1 of [N, V, ...], to the end. */
static sl_tensor *classes_last(sli_import *m, sl_tensor *x) {
  int order[SLI_PT_DIMS], k = 0;
  if (!x || x->type.ndim < 3) return x;
  for (int d = 0; d < x->type.ndim; d++)
    if (d != 1) order[k++] = d;
  order[k++] = 1;
  return sli_pt_permute(m, x, k, order);
}

/* Negative log probability of each target, times its weight: [N, ...]. *counts is the weight of
 * each, 0 where the target is ignored. */
static sl_tensor *picked(sli_import *m, sl_tensor *logs, sl_tensor *ids, sl_tensor *weight,
                         int64_t ignore, sl_tensor **counts) {
  if (!logs || !ids) return NULL;
  sl_type one = {.dtype = SL_I32, .ndim = ids->type.ndim + 1}, none = SL_TYPE(SL_I32, 1);
  memcpy(one.dim, ids->type.dim, sizeof one.dim);
  one.dim[one.ndim - 1] = 1;
  if (!ids->type.ndim) none.ndim = 0;
  sl_tensor *skipped = sl_filled_at(m->at, m->g, none, (float)ignore, NULL);
  *counts = sl_cast_at(m->at, m->g, TWO(ne, ids, skipped), SL_F32);
  sl_tensor *known = sl_cast_at(m->at, m->g, MUL(sl_cast_at(m->at, m->g, ids, SL_F32), *counts),
                                SL_I32); /* ignored targets read class 0 */
  if (!known) return NULL;
  if (weight) {
    sl_type column = SL_TYPE(SL_F32, sl_dim(weight, 0), 1), flat = known->type;
    sl_tensor *of = TWO(embedding, known, sli_pt_reshape(m, weight, &column));
    flat.dtype = SL_F32;
    *counts = MUL(*counts, of ? sli_pt_reshape(m, of, &flat) : NULL);
  }
  sl_type flat = known->type;
  sl_tensor *y =
      sl_gather_at(m->at, m->g, logs, logs->type.ndim - 1, sli_pt_reshape(m, known, &one));
  flat.dtype = SL_F32;
  return MUL(ONE(neg, y ? sli_pt_reshape(m, y, &flat) : NULL), *counts);
}

static sl_tensor *nll(sli_import *m, const sli_pt_node *n, sl_tensor *logs, sl_tensor *ids) {
  int64_t reduction = sli_pt_whole(m, n, "reduction", MEAN);
  sl_tensor *counts = NULL;
  sl_tensor *y = picked(m, logs, ids, sli_pt_in(m, n, "weight"),
                        sli_pt_whole(m, n, "ignore_index", -100), &counts);
  if (!y || reduction == NONE || !y->type.ndim) return y;
  sl_tensor *sum = sl_sum_at(m->at, m->g, y, 0, false);
  return reduction == SUM ? sum : TWO(div, sum, sl_sum_at(m->at, m->g, counts, 0, false));
}

void sli_emit_nll(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *ids = sli_pt_in_i32(m, n, "target");
  sli_pt_out(m, n, 0, nll(m, n, classes_last(m, sli_pt_in(m, n, "self")), ids));
}

/* For targets that are probabilities: minus the sum of t log p, per row. */
static sl_tensor *soft_targets(sli_import *m, const sli_pt_node *n) {
  sl_tensor *x = classes_last(m, sli_pt_in(m, n, "self")), *t = classes_last(m, target(m, n));
  if (!x || !t || sli_pt_arg_value(n, "weight")) return NULL;
  double smoothing = sli_pt_number(m, n, "label_smoothing", 0);
  if (smoothing > 0) t = SHIFT(SCALE(t, 1 - smoothing), smoothing / (double)sl_dim(x, -1));
  int last = x->type.ndim - 1;
  sl_tensor *logs = sl_softmax_at(m->at, m->g, x, last, true);
  sl_tensor *y = ONE(neg, sl_sum_at(m->at, m->g, MUL(t, logs), 1u << last, false));
  return reduce(m, y, sli_pt_whole(m, n, "reduction", MEAN));
}

/* Returns the targets. Constant targets that count the rows are computed, because a microbatch may
 * have fewer rows than the exported batch. */
static sl_tensor *class_targets(sli_import *m, const sli_pt_node *n, const sl_tensor *logits) {
  const sli_pt_value *x = sli_pt_arg_value(n, "self"), *t = sli_pt_arg_value(n, "target");
  const sli_pt_array *fixed = sli_constant(m, t);
  if (!fixed) return sli_pt_i32(m, t);
  if (sl_dim(logits, 0) == x->type.dim[0]) return sli_pt_constant(m, fixed);
  bool counts = fixed->type.ndim == 1;
  for (int64_t i = 0; counts && i < fixed->type.dim[0]; i++)
    counts = sli_pt_get(fixed, i) == (double)i;
  if (!counts) {
    sli_pt_refuse(m, n, "the targets are constants that differ by row");
    return NULL;
  }
  sl_tensor *ids = sl_slice_at(m->at, m->g, (sl_tensor *)logits, 1, 0, 1);
  ids = sl_arange_at(m->at, m->g, ids, 0);
  return ids ? sli_pt_reshape(m, ids, &SL_TYPE(SL_I32, sl_dim(logits, 0))) : NULL;
}

/* Cross entropy of logits [V], [N, V] or [N, V, ...]. */
void sli_emit_cross_entropy(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *t = sli_pt_arg_value(n, "target");
  if (t && sli_pt_floats(t->type.dtype)) {
    sli_pt_out(m, n, 0, soft_targets(m, n));
    return;
  }
  sl_tensor *logits = sli_pt_in(m, n, "self");
  sl_tensor *targets = logits && t ? class_targets(m, n, logits) : NULL;
  if (!targets) return;
  float smoothing = (float)sli_pt_number(m, n, "label_smoothing", 0);
  logits = classes_last(m, logits);
  bool mean = sli_pt_whole(m, n, "reduction", MEAN) == MEAN;
  if (!mean || sli_pt_arg_value(n, "weight") || logits->type.ndim < 2) {
    if (smoothing > 0) sli_pt_refuse(m, n, "smoothed labels of this kind are not supported");
    else {
      int last = logits ? logits->type.ndim - 1 : 0;
      sli_pt_out(m, n, 0, nll(m, n, sl_softmax_at(m->at, m->g, logits, last, true), targets));
    }
    return;
  }
  /* Rows of sequences stay separate if both were only flattened. */
  sl_tensor *rows = sli_pt_before_flattening(logits);
  sl_tensor *ids = targets->producer && targets->producer->op == &sl_op_reshape
                       ? targets->producer->in[0]
                       : targets;
  bool same = rows != logits && ids && ids->type.ndim == rows->type.ndim - 1;
  for (int d = 0; same && d < ids->type.ndim; d++) same = ids->type.dim[d] == rows->type.dim[d];
  if (same) logits = rows, targets = ids;
  int64_t ignore = sli_pt_whole(m, n, "ignore_index", -100);
  sl_loss loss = {.ignore = SL_IGNORE((int32_t)ignore), .smoothing = smoothing};
  sli_pt_out(m, n, 0, sl_cross_entropy_with_at(m->at, m->g, logits, targets, &loss));
}
