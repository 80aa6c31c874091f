/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of calls that a single op replaces. A group is found at its last call. Calls inside it
 * that nothing else reads are never emitted. A group that is not recognized is emitted call by
 * call. */
#include <math.h>
#include <string.h>

#include "pytorch/emit.h"

/* Returns a call's argument, if it is a tensor. */
static const sli_pt_value *tensor_arg(const sli_pt_node *n, int i) {
  return i < n->nargs ? sli_pt_arg_value(n, n->args[i].name) : NULL;
}

static bool number_arg(const sli_import *m, const sli_pt_node *n, int i, double *out) {
  return i < n->nargs && sli_pt_scalar(m, sli_pt_arg_find(n, n->args[i].name), out);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b); }

/* ---- RMS norm ------------------------------------------------------------------------------ */

/* Finds x in x * rsqrt(mean(x^2) + eps), over the last dim. */
static const sli_pt_value *normed_of(const sli_import *m, const sli_pt_value *v, double *eps) {
  const sli_pt_node *scaled = sli_pt_made_by(m, v, "aten.mul.Tensor");
  for (int i = 0; scaled && i < 2; i++) {
    const sli_pt_value *x = tensor_arg(scaled, i), *root = tensor_arg(scaled, 1 - i);
    const sli_pt_node *r = root ? sli_pt_made_by(m, root, "aten.rsqrt.default") : NULL;
    if (!r && root) { /* pow(.., -0.5) */
      r = sli_pt_made_by(m, root, "aten.pow.Tensor_Scalar");
      double e;
      if (r && !(number_arg(m, r, 1, &e) && e == -0.5)) r = NULL;
    }
    const sli_pt_node *sum = r ? sli_pt_made_by(m, tensor_arg(r, 0), "aten.add.Tensor") : NULL;
    const sli_pt_node *mean = NULL;
    for (int k = 0; sum && k < 2 && !mean; k++)
      if (tensor_arg(sum, k) && number_arg(m, sum, 1 - k, eps))
        mean = sli_pt_made_by(m, tensor_arg(sum, k), "aten.mean.dim");
    const sli_pt_value *squared = mean ? tensor_arg(mean, 0) : NULL;
    if (!squared || !sli_pt_flag(mean, "keepdim", false) ||
        sli_pt_axes(m, mean, "dim", squared->type.ndim) != 1u << (squared->type.ndim - 1))
      continue;
    const sli_pt_node *power = sli_pt_made_by(m, squared, "aten.pow.Tensor_Scalar");
    const sli_pt_node *times = sli_pt_made_by(m, squared, "aten.mul.Tensor");
    const sli_pt_value *of = NULL;
    double e;
    if (power && number_arg(m, power, 1, &e) && e == 2) of = tensor_arg(power, 0);
    if (times && tensor_arg(times, 0) == tensor_arg(times, 1)) of = tensor_arg(times, 0);
    if (of && x && sli_pt_peel(m, of) == sli_pt_peel(m, x)) return of;
  }
  return NULL;
}

static bool match_rms(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  for (int i = 0; i < 2; i++) {
    const sli_pt_value *gain = tensor_arg(n, i), *normed = tensor_arg(n, 1 - i);
    if (!gain || !normed || gain->type.ndim != 1 || sli_constant(m, gain)) continue;
    const sli_pt_value *x = normed_of(m, normed, &out->number[0]);
    if (!x || x->type.dim[x->type.ndim - 1] != gain->type.dim[0]) continue;
    out->part[0] = (sli_pt_value *)x, out->part[1] = (sli_pt_value *)gain;
    return true;
  }
  return false;
}

static sl_tensor *emit_rms(sli_import *m, const sli_pt_node *n, const sli_match *of) {
  (void)n;
  return sl_rmsnorm_at(m->at, m->g, sli_pt_f32(m, of->part[0]), sli_pt_f32(m, of->part[1]),
                       (float)of->number[0]);
}

/* The variant of Gemma: x_hat * (1 + w). */
static bool match_rms_one(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  for (int i = 0; i < 2; i++) {
    const sli_pt_node *one = sli_pt_made_by(m, tensor_arg(n, i), "aten.add.Tensor");
    double v;
    for (int k = 0; one && k < 2; k++) {
      const sli_pt_value *gain = tensor_arg(one, k);
      if (!gain || gain->type.ndim != 1 || !number_arg(m, one, 1 - k, &v)) continue;
      const sli_pt_value *x = normed_of(m, tensor_arg(n, 1 - i), &out->number[0]);
      if (!x || x->type.dim[x->type.ndim - 1] != gain->type.dim[0]) continue;
      out->number[1] = v;
      out->part[0] = (sli_pt_value *)x, out->part[1] = (sli_pt_value *)gain;
      return true;
    }
  }
  return false;
}

static sl_tensor *emit_rms_one(sli_import *m, const sli_pt_node *n, const sli_match *of) {
  (void)n;
  sl_tensor *gain =
      sl_add_constant_at(m->at, m->g, sli_pt_f32(m, of->part[1]), (float)of->number[1]);
  return sl_rmsnorm_at(m->at, m->g, sli_pt_f32(m, of->part[0]), gain, (float)of->number[0]);
}

/* ---- rotary positions ---------------------------------------------------------------------- */

/* Finds x in cat(-x[D/2:], x[:D/2]). */
static const sli_pt_value *half_turned(const sli_import *m, const sli_pt_value *v) {
  const sli_pt_node *cat = sli_pt_made_by(m, v, "aten.cat.default");
  const sli_pt_arg *list = cat ? sli_pt_arg_find(cat, "tensors") : NULL;
  if (!list || list->kind != SLI_PT_LIST || list->list.count != 2 ||
      list->list.of[0].kind != SLI_PT_VALUE || list->list.of[1].kind != SLI_PT_VALUE)
    return NULL;
  const sli_pt_node *minus = sli_pt_made_by(m, list->list.of[0].value, "aten.neg.default");
  const sli_pt_node *high =
      minus ? sli_pt_made_by(m, tensor_arg(minus, 0), "aten.slice.Tensor") : NULL;
  const sli_pt_node *low = sli_pt_made_by(m, list->list.of[1].value, "aten.slice.Tensor");
  if (!high || !low) return NULL;
  const sli_pt_value *x = sli_pt_arg_value(high, "self");
  if (!x || x->type.ndim != 4 || sli_pt_peel(m, x) != sli_pt_peel(m, sli_pt_arg_value(low, "self")))
    return NULL;
  int64_t half = x->type.dim[3] / 2;
  bool halves = sli_pt_dim(m, cat, "dim", 4, 0) == 3 && sli_pt_dim(m, high, "dim", 4, 0) == 3 &&
                sli_pt_dim(m, low, "dim", 4, 0) == 3 && sli_pt_whole(m, high, "start", 0) == half &&
                sli_pt_whole(m, low, "start", 0) == 0 && sli_pt_whole(m, low, "end", -1) == half &&
                sli_pt_whole(m, high, "step", 1) == 1 && sli_pt_whole(m, low, "step", 1) == 1;
  return halves && 2 * half == x->type.dim[3] ? x : NULL;
}

/* Reads element (t, j) of a table of cosines or sines of angles, which is the same for all
 * heads. */
static double angle_at(const sli_pt_array *a, int64_t t, int64_t j) {
  int n = a->type.ndim;
  return sli_pt_at(a, a->offset + t * a->stride[n - 2] + j * a->stride[n - 1]);
}

/* Finds the base of the rotary angles with the given cosines and sines [.., T, D]. */
static bool rotary_base(const sli_pt_array *c, const sli_pt_array *s, double *theta) {
  int n = c->type.ndim;
  if (n < 2 || s->type.ndim != n) return false;
  int64_t time = c->type.dim[n - 2], width = c->type.dim[n - 1];
  for (int d = 0; d < n - 2; d++)
    if (!sli_pt_repeats(c, d) || !sli_pt_repeats(s, d)) return false;
  if (time < 2 || width < 4 || width % 2 || s->type.dim[n - 2] != time) return false;
  double first = atan2(angle_at(s, 1, 1), angle_at(c, 1, 1)); /* theta^(-2 / D) */
  if (!(first > 0) || first > 1) return false;
  *theta = pow(first, -(double)width / 2);
  double whole = round(*theta); /* bases are integers */
  if (fabs(*theta - whole) < 1e-3 * whole) *theta = whole;
  for (int64_t t = 0; t < time; t++)
    for (int64_t j = 0; j < width; j++) {
      double angle = (double)t * pow(*theta, -2.0 * (double)(j % (width / 2)) / (double)width);
      double limit = 2e-6 + 2e-7 * (double)t;
      if (fabs(angle_at(c, t, j) - cos(angle)) > limit ||
          fabs(angle_at(s, t, j) - sin(angle)) > limit)
        return false;
    }
  return true;
}

/* x * cos + half_turned(x) * sin, for x [B, H, T, D]. */
static bool match_rotary(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  if (!sli_pt_plain(n)) return false;
  for (int i = 0; i < 2; i++) {
    const sli_pt_node *plain = sli_pt_made_by(m, tensor_arg(n, i), "aten.mul.Tensor");
    const sli_pt_node *turned = sli_pt_made_by(m, tensor_arg(n, 1 - i), "aten.mul.Tensor");
    if (!plain || !turned) continue;
    const sli_pt_value *x = half_turned(m, tensor_arg(turned, 0)), *s = tensor_arg(turned, 1);
    const sli_pt_value *c = tensor_arg(plain, 1);
    if (!x || !s || !c || sli_pt_peel(m, tensor_arg(plain, 0)) != sli_pt_peel(m, x)) continue;
    const sli_pt_array *cosines = sli_constant(m, c), *sines = sli_constant(m, s);
    if (!cosines || !sines || x->type.dim[2] != cosines->type.dim[cosines->type.ndim - 2] ||
        !rotary_base(cosines, sines, &out->number[0]))
      continue;
    out->part[0] = (sli_pt_value *)x;
    return true;
  }
  return false;
}

static sl_tensor *emit_rotary(sli_import *m, const sli_pt_node *n, const sli_match *of) {
  (void)n;
  sl_tensor *x = sli_pt_f32(m, of->part[0]);
  if (!x) return NULL;
  sl_type heads = x->type, flat = {.dtype = SL_F32, .ndim = 3};
  x = sli_pt_permute(m, x, 4, (int[]){0, 2, 1, 3});
  flat.dim[0] = heads.dim[0], flat.dim[1] = heads.dim[2], flat.dim[2] = heads.dim[1] * heads.dim[3];
  x = x ? sli_pt_reshape(m, x, &flat) : NULL;
  x = sl_rotary_at(m->at, m->g, x, (int)heads.dim[1], (float)of->number[0], NULL);
  if (!x) return NULL;
  sl_type to = {SL_F32, 4, {heads.dim[0], heads.dim[2], heads.dim[1], heads.dim[3]}};
  return sli_pt_permute(m, sl_reshape_at(m->at, m->g, x, to), 4, (int[]){0, 2, 1, 3});
}

/* ---- gated and activated ------------------------------------------------------------------- */

/* silu(gate) * up. */
static bool match_swiglu(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  for (int i = 0; i < 2; i++) {
    const sli_pt_node *silu = sli_pt_made_by(m, tensor_arg(n, i), "aten.silu.default");
    const sli_pt_value *gate = silu ? tensor_arg(silu, 0) : NULL, *up = tensor_arg(n, 1 - i);
    if (!gate || !up || sli_constant(m, up) || gate->type.ndim != up->type.ndim ||
        memcmp(gate->type.dim, up->type.dim, (size_t)up->type.ndim * sizeof *up->type.dim))
      continue;
    out->part[0] = (sli_pt_value *)gate, out->part[1] = (sli_pt_value *)up;
    return true;
  }
  return false;
}

static sl_tensor *emit_swiglu(sli_import *m, const sli_pt_node *n, const sli_match *of) {
  (void)n;
  return sl_op2_at(m->at, m->g, &sl_op_swiglu, NULL, sli_pt_f32(m, of->part[0]),
                   sli_pt_f32(m, of->part[1]));
}

/* Matches a product with a number. Sets *number and returns the other factor. */
static const sli_pt_value *scaled_by(const sli_import *m, const sli_pt_value *v, double *number) {
  const sli_pt_node *mul = sli_pt_made_by(m, v, "aten.mul.Tensor");
  for (int i = 0; mul && i < 2; i++)
    if (tensor_arg(mul, i) && !sli_constant(m, tensor_arg(mul, i)) &&
        number_arg(m, mul, 1 - i, number))
      return tensor_arg(mul, i);
  return NULL;
}

/* Finds x in x + 0.044715 x^3. */
static const sli_pt_value *cubic_of(const sli_import *m, const sli_pt_value *v) {
  const sli_pt_node *sum = sli_pt_made_by(m, v, "aten.add.Tensor");
  for (int i = 0; sum && i < 2; i++) {
    double by, e;
    const sli_pt_value *x = tensor_arg(sum, i);
    const sli_pt_value *cube =
        tensor_arg(sum, 1 - i) ? scaled_by(m, tensor_arg(sum, 1 - i), &by) : NULL;
    const sli_pt_node *power = cube ? sli_pt_made_by(m, cube, "aten.pow.Tensor_Scalar") : NULL;
    if (x && power && near(by, 0.044715) && number_arg(m, power, 1, &e) && e == 3 &&
        sli_pt_peel(m, tensor_arg(power, 0)) == sli_pt_peel(m, x))
      return x;
  }
  return NULL;
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
static bool match_gelu(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  for (int i = 0; i < 2; i++) {
    double half, one, root;
    const sli_pt_value *x = tensor_arg(n, i) ? scaled_by(m, tensor_arg(n, i), &half) : NULL;
    const sli_pt_node *sum = sli_pt_made_by(m, tensor_arg(n, 1 - i), "aten.add.Tensor");
    const sli_pt_node *tanh_node = NULL;
    for (int k = 0; sum && k < 2 && !tanh_node; k++)
      if (tensor_arg(sum, k) && number_arg(m, sum, 1 - k, &one) && one == 1)
        tanh_node = sli_pt_made_by(m, tensor_arg(sum, k), "aten.tanh.default");
    const sli_pt_value *inner = tanh_node ? scaled_by(m, tensor_arg(tanh_node, 0), &root) : NULL;
    const sli_pt_value *of = inner ? cubic_of(m, inner) : NULL;
    if (!x || !of || half != 0.5 || !near(root, 0.7978845608028654) ||
        sli_pt_peel(m, of) != sli_pt_peel(m, x))
      continue;
    out->part[0] = (sli_pt_value *)x;
    return true;
  }
  return false;
}

static sl_tensor *emit_gelu(sli_import *m, const sli_pt_node *n, const sli_match *of) {
  (void)n;
  return sl_op1_at(m->at, m->g, &sl_op_gelu, NULL, sli_pt_f32(m, of->part[0]));
}

/* ---- heads shared by groups ---------------------------------------------------------------- */

/* Finds keys or values before their heads were repeated for groups of queries: reshape(expand(
 * unsqueeze(x, 2))), or repeat_interleave(x, dim 1). */
static const sli_pt_value *before_repeat(const sli_import *m, const sli_pt_value *v) {
  const sli_pt_node *whole = sli_pt_made_by(m, v, "aten.reshape.default");
  if (!whole) whole = sli_pt_made_by(m, v, "aten.view.default");
  const sli_pt_value *wide = whole ? sli_pt_arg_value(whole, "self") : NULL;
  if (wide) {
    const sli_pt_node *clone = sli_pt_made_by(m, wide, "aten.expand.default");
    const sli_pt_value *narrow = clone ? sli_pt_peel(m, sli_pt_arg_value(clone, "self")) : NULL;
    const sli_pt_node *add = narrow ? sli_pt_made_by(m, narrow, "aten.unsqueeze.default") : NULL;
    const sli_pt_value *x = add ? sli_pt_arg_value(add, "self") : NULL;
    if (x && x->type.ndim == 4 && narrow->type.ndim == 5 && narrow->type.dim[2] == 1 &&
        narrow->type.dim[1] == x->type.dim[1] && narrow->type.dim[3] == x->type.dim[2])
      return x;
  }
  const sli_pt_node *repeat = sli_pt_made_by(m, v, "aten.repeat_interleave.self_int");
  const sli_pt_value *x = repeat ? tensor_arg(repeat, 0) : NULL;
  return x && x->type.ndim == 4 && sli_pt_dim(m, repeat, "dim", 4, 0) == 1 ? x : v;
}

static bool match_groups(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  const sli_pt_value *q = sli_pt_arg_value(n, "query"), *k = sli_pt_arg_value(n, "key"),
                     *v = sli_pt_arg_value(n, "value");
  if (!q || !k || !v || q->type.ndim != 4 || k->type.ndim != 4) return false;
  const sli_pt_value *keys = before_repeat(m, k), *values = before_repeat(m, v);
  if (keys == k || values == v) return false;
  out->part[0] = (sli_pt_value *)q, out->part[1] = (sli_pt_value *)keys;
  out->part[2] = (sli_pt_value *)values, out->part[3] = sli_pt_arg_value(n, "attn_mask");
  return true;
}

static sl_tensor *emit_groups(sli_import *m, const sli_pt_node *n, const sli_match *of) {
  return sli_pt_attend(m, n, of->part[0], of->part[1], of->part[2]);
}

/* ---- attention, written out ---------------------------------------------------------------- */

/* Finds keys in a product of queries with transposed keys; NULL if it is none. */
static const sli_pt_value *keys_of(const sli_import *m, const sli_pt_node *product) {
  const sli_pt_value *of = tensor_arg(product, 1);
  const sli_pt_node *swap = of ? sli_pt_made_by(m, of, "aten.transpose.int") : NULL;
  const sli_pt_node *order = of && !swap ? sli_pt_made_by(m, of, "aten.permute.default") : NULL;
  if (order) {
    int dims[SLI_PT_DIMS];
    bool last = sli_pt_order(m, order, 4, dims) && dims[0] == 0 && dims[1] == 1 && dims[2] == 3;
    return last ? tensor_arg(order, 0) : NULL;
  }
  if (!swap) return NULL;
  int a = sli_pt_dim(m, swap, "dim0", 4, 0), b = sli_pt_dim(m, swap, "dim1", 4, 0);
  return a + b == 5 && a != b && SLI_MIN(a, b) == 2 ? tensor_arg(swap, 0) : NULL;
}

/* Finds x in x multiplied or divided by numbers, which multiply *factor. */
static const sli_pt_value *unscaled(const sli_import *m, const sli_pt_value *v, double *factor) {
  for (;;) {
    double number;
    const sli_pt_value *x = scaled_by(m, v, &number);
    const sli_pt_node *div = x ? NULL : sli_pt_made_by(m, v, "aten.div.Tensor");
    if (div && tensor_arg(div, 0) && !sli_constant(m, tensor_arg(div, 0)) &&
        number_arg(m, div, 1, &number) && number != 0)
      x = tensor_arg(div, 0), number = 1 / number;
    if (!x) return v;
    *factor *= number;
    v = x;
  }
}

/* Finds s in c tanh(s / c), and sets *cap to c; 0 and v itself if there is none. *factor becomes
 * that of s. */
static const sli_pt_value *uncapped(const sli_import *m, const sli_pt_value *v, double *factor,
                                    double *cap) {
  double c = 1;
  const sli_pt_value *x = unscaled(m, v, &c);
  const sli_pt_node *tanh_node = sli_pt_made_by(m, x, "aten.tanh.default");
  *cap = tanh_node ? c : 0;
  *factor = c;
  if (tanh_node) x = unscaled(m, tensor_arg(tanh_node, 0), factor);
  return x;
}

/* Returns the scores before a mask that hides keys, and sets *mask to a constant of flags or of
 * numbers to add; *hides: its flags say which keys are hidden. */
static const sli_pt_value *unmasked(const sli_import *m, const sli_pt_value *v,
                                    const sli_pt_value **mask, bool *hides) {
  double low;
  const sli_pt_node *fill = sli_pt_made_by(m, v, "aten.masked_fill.Scalar");
  if (fill && number_arg(m, fill, 2, &low) && low <= -1e30) {
    *mask = tensor_arg(fill, 1), *hides = true;
    return *mask && sli_constant(m, *mask) ? tensor_arg(fill, 0) : NULL;
  }
  const sli_pt_node *where = sli_pt_made_by(m, v, "aten.where.self");
  if (where && number_arg(m, where, 2, &low) && low <= -1e30) {
    *mask = tensor_arg(where, 0), *hides = false;
    return *mask && sli_constant(m, *mask) ? tensor_arg(where, 1) : NULL;
  }
  const sli_pt_node *sum = sli_pt_made_by(m, v, "aten.add.Tensor");
  for (int i = 0; sum && sli_pt_plain(sum) && i < 2; i++) {
    const sli_pt_value *a = tensor_arg(sum, i), *x = tensor_arg(sum, 1 - i);
    if (!a || !x || !sli_constant(m, a) || sli_constant(m, a)->mask) continue;
    *mask = a, *hides = false;
    return x;
  }
  return NULL;
}

/* Returns the softmax over the last dim that makes a value, or NULL. */
static const sli_pt_node *softmax_of(const sli_import *m, const sli_pt_value *v) {
  const sli_pt_node *n = sli_pt_made_by(m, v, "aten.softmax.int");
  if (!n) n = sli_pt_made_by(m, v, "aten._softmax.default");
  return n && sli_pt_dim(m, n, "dim", v->type.ndim, 0) == v->type.ndim - 1 ? n : NULL;
}

/* Returns whether heads [B, H, T, D] of a call fit the op. */
static bool heads_fit(const sli_pt_value *q, const sli_pt_value *k, const sli_pt_value *v) {
  const int64_t *dq = q->type.dim, *dk = k->type.dim, *dv = v->type.dim;
  return q->type.ndim == 4 && k->type.ndim == 4 && v->type.ndim == 4 && dk[1] &&
         dq[1] % dk[1] == 0 && dk[1] == dv[1] && dq[0] == dk[0] && dq[0] == dv[0] &&
         dq[2] == dk[2] && dk[2] == dv[2] && dq[3] == dk[3] && dq[3] == dv[3] && dq[3] <= 256;
}

/* softmax(scale q k^T, masked) v, for q [B, H, T, D] and a constant mask. The scores may have a
 * cap. */
static bool match_attention(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  const sli_pt_value *weights = tensor_arg(n, 0), *v = tensor_arg(n, 1), *mask = NULL;
  if (!weights || !v || v->type.ndim != 4 || weights->type.ndim != 4) return false;
  const sli_pt_node *softmax = softmax_of(m, weights);
  bool hides = false;
  double factor = 1, cap = 0;
  const sli_pt_value *scores = softmax ? unmasked(m, tensor_arg(softmax, 0), &mask, &hides) : NULL;
  scores = scores ? uncapped(m, scores, &factor, &cap) : NULL;
  const sli_pt_node *product = scores ? sli_pt_made_by(m, scores, "aten.matmul.default") : NULL;
  const sli_pt_value *k = product ? keys_of(m, product) : NULL;
  const sli_pt_value *q = k ? tensor_arg(product, 0) : NULL;
  if (!q || q->type.ndim != 4 || k->type.ndim != 4) return false;
  q = unscaled(m, q, &factor);
  k = unscaled(m, k, &factor);
  const sli_pt_value *keys = before_repeat(m, k), *values = before_repeat(m, v);
  if (keys == k || values == v) keys = k, values = v;
  if (!heads_fit(q, keys, values) || (cap && !(cap > 0)) ||
      !sli_pt_causal(sli_constant(m, mask), hides, &out->whole[0]))
    return false;
  out->part[0] = (sli_pt_value *)q, out->part[1] = (sli_pt_value *)keys;
  out->part[2] = (sli_pt_value *)values;
  out->number[0] = factor;
  out->number[1] = cap;
  return true;
}

static sl_tensor *emit_attention(sli_import *m, const sli_pt_node *n, const sli_match *of) {
  return sli_pt_attend_causal(m, n, of);
}

/* bmm(softmax(baddbmm(mask, q, k^T)), v), for heads [H, T, D] of one row, as MultiheadAttention
 * writes it. */
static bool match_heads(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  const sli_pt_value *weights = tensor_arg(n, 0), *v = tensor_arg(n, 1);
  if (m->rows != 1 || !sl_graph_infer(m->g) || !weights || !v || v->type.ndim != 3) return false;
  const sli_pt_node *softmax = softmax_of(m, weights);
  const sli_pt_node *sum =
      softmax ? sli_pt_made_by(m, tensor_arg(softmax, 0), "aten.baddbmm.default") : NULL;
  const sli_pt_value *mask = sum ? tensor_arg(sum, 0) : NULL, *q = sum ? tensor_arg(sum, 1) : NULL;
  const sli_pt_node *swap =
      sum ? sli_pt_made_by(m, tensor_arg(sum, 2), "aten.transpose.int") : NULL;
  const sli_pt_value *k = swap ? tensor_arg(swap, 0) : NULL;
  if (!mask || !q || !k || !sli_pt_same_dims(&q->type, &k->type) ||
      !sli_pt_same_dims(&q->type, &v->type) || q->type.dim[2] > 256 ||
      sli_pt_dim(m, swap, "dim0", 3, 0) + sli_pt_dim(m, swap, "dim1", 3, 0) != 3 ||
      !sli_pt_dim(m, swap, "dim0", 3, 0) || !sli_pt_dim(m, swap, "dim1", 3, 0) ||
      !sli_pt_causal(sli_constant(m, mask), false, &out->whole[0]))
    return false;
  double factor = 1;
  q = unscaled(m, q, &factor);
  if (q->type.ndim != 3) return false;
  out->part[0] = (sli_pt_value *)q, out->part[1] = (sli_pt_value *)k;
  out->part[2] = (sli_pt_value *)v;
  out->number[0] = factor;
  return true;
}

static const sli_pattern patterns[] = {
    {"RMS norm", "rmsnorm", "aten.mul.Tensor", match_rms, emit_rms},
    {"RMS norm, gain + 1", "rmsnorm", "aten.mul.Tensor", match_rms_one, emit_rms_one},
    {"rotary positions", "rotary", "aten.add.Tensor", match_rotary, emit_rotary},
    {"attention, heads in groups", "attention", "aten.scaled_dot_product_attention.default",
     match_groups, emit_groups},
    {"attention, written out", "attention", "aten.matmul.default", match_attention, emit_attention},
    {"attention, heads in rows", "attention", "aten.bmm.default", match_heads, emit_attention},
    {"SwiGLU", "swiglu", "aten.mul.Tensor", match_swiglu, emit_swiglu},
    {"GELU, written out", "gelu", "aten.mul.Tensor", match_gelu, emit_gelu},
};

/* ---- values needed by the outputs ------------------------------------------------------------ */

static void need(sli_import *m, const sli_pt_value *v) {
  if (v && !v->symbol) sli_made_of(m, v)->needed = true;
}

static void need_args(sli_import *m, const sli_pt_arg *args, int count) {
  for (int i = 0; i < count; i++)
    if (args[i].kind == SLI_PT_LIST) need_args(m, args[i].list.of, args[i].list.count);
    else if (args[i].kind == SLI_PT_VALUE) need(m, args[i].value);
}

static const sli_pattern *find_pattern(const sli_import *m, const sli_pt_node *n, sli_match *out) {
  for (size_t i = 0; i < SLI_COUNT(patterns); i++) {
    *out = (sli_match){0};
    if (!strcmp(n->target, patterns[i].target) && patterns[i].match(m, n, out)) return &patterns[i];
  }
  return NULL;
}

void sli_pt_mark(sli_import *m, sli_pt_value *const *outs, int count) {
  for (int i = 0; i < count; i++) need(m, outs[i]);
  for (int i = m->p->nnodes - 1; i >= 0; i--) {
    const sli_pt_node *n = m->p->nodes[i];
    if (!sli_pt_wanted(m, n)) continue;
    m->pattern[i] = find_pattern(m, n, &m->match[i]);
    if (!m->pattern[i]) need_args(m, n->args, n->nargs);
    for (int k = 0; m->pattern[i] && k < SLI_PT_PARTS; k++) need(m, m->match[i].part[k]);
  }
}
