/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are layers: products, norms, attention, convolutions, pools. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pytorch/emit.h"
#include "pytorch/rows.h"

/* ---- products ------------------------------------------------------------------------------ */

/* Finds the tensor whose leading dims were merged to get x, so that products keep the rows of
 * sequences separate. */
sl_tensor *sli_pt_before_flattening(sl_tensor *x) {
  const sli_node *p = x ? x->producer : NULL;
  bool flattened = p && p->op == &sl_op_reshape && x->type.ndim == 2 && p->in[0]->type.ndim > 2 &&
                   p->in[0]->type.dim[p->in[0]->type.ndim - 1] == x->type.dim[1];
  return flattened ? p->in[0] : x;
}

/* Applies a linear map, and gives the result x's leading dims. */
static sl_tensor *linear(sli_import *m, sl_tensor *x, sl_tensor *w, sl_tensor *b, bool transposed) {
  if (!x || !w) return NULL;
  sl_tensor *from = sli_pt_before_flattening(x);
  sl_tensor *y = sl_linear_at(m->at, m->g, from, w, b, transposed);
  if (!y || from == x) return y;
  sl_type to = x->type;
  to.dim[to.ndim - 1] = sl_dim(y, -1);
  sli_rows rows = *sli_rows_of(m, x);
  rows.dim[to.ndim - 1] = (sli_dim_rows){0};
  return sli_pt_reshape_rows(m, y, &to, &rows);
}

void sli_emit_linear(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "input"), *w = sli_pt_in(m, n, "weight");
  sl_tensor *b = sli_pt_in(m, n, "bias");
  sli_pt_out(m, n, 0, linear(m, x, w, b, false));
}

/* Returns whether a tensor is a weight matrix: a parameter or a constant. */
static bool is_weight(const sl_tensor *t) { return t && t->param && t->type.ndim == 2; }

void sli_emit_addmm(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  if (n->nargs < 3) return;
  sl_tensor *b = sli_pt_in(m, n, "self"), *x = sli_pt_in(m, n, n->args[1].name),
            *w = sli_pt_in(m, n, n->args[2].name);
  if (!x || !w || !b) return;
  double alpha = sli_pt_number(m, n, "alpha", 1), beta = sli_pt_number(m, n, "beta", 1);
  if (alpha != 1 || beta != 1) {
    sl_tensor *y =
        sl_scale_at(m->at, m->g, sl_matmul_at(m->at, m->g, x, w, false, false), (float)alpha);
    sli_pt_out(m, n, 0, sl_add_at(m->at, m->g, y, sl_scale_at(m->at, m->g, b, (float)beta)));
  } else if (is_weight(w) && b->type.ndim == 1) sli_pt_out(m, n, 0, linear(m, x, w, b, true));
  else
    sli_pt_out(m, n, 0, sl_add_at(m->at, m->g, sl_matmul_at(m->at, m->g, x, w, false, false), b));
}

/* Undoes a permutation of a tensor's last two dims, if there is one. */
static sl_tensor *without_swap(sl_tensor *t, bool *swapped) {
  const sli_node *p = t ? t->producer : NULL;
  int ndim = t ? t->type.ndim : 0;
  *swapped = p && p->op == &sl_op_permute && p->attrs.shape.dims[ndim - 1] == ndim - 2 &&
             p->attrs.shape.dims[ndim - 2] == ndim - 1;
  for (int d = 0; *swapped && d < ndim - 2; d++) *swapped = p->attrs.shape.dims[d] == d;
  return *swapped ? p->in[0] : t;
}

static sl_tensor *product(sli_import *m, sl_tensor *a, sl_tensor *b) {
  bool left, right;
  if (!a || !b) return NULL;
  if (a->type.ndim >= 2 && is_weight(b)) return linear(m, a, b, NULL, true);
  a = without_swap(a, &left);
  b = without_swap(b, &right);
  if (!left && b->param && b->type.ndim == 2 && right) return linear(m, a, b, NULL, false);
  return sl_matmul_at(m->at, m->g, a, b, left, right);
}

/* matmul, mm, bmm. Vectors become matrices of one row or column. */
void sli_emit_matmul(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  if (n->nargs < 2) return;
  const sli_pt_value *other = sli_pt_arg_value(n, n->args[1].name);
  sl_tensor *a = sli_pt_in(m, n, "self"), *b = sli_pt_f32(m, other);
  if (!a || !b || !a->type.ndim || !b->type.ndim) return;
  bool row_vector = a->type.ndim == 1, column = b->type.ndim == 1;
  if (row_vector) a = sli_pt_add_dim(m, a, 0);
  if (column) b = sli_pt_add_dim(m, b, 1);
  sl_tensor *y = product(m, a, b);
  if (!y) return;
  sl_type to = y->type;
  if (column) to.ndim--;
  if (row_vector) {
    if (!column) to.dim[to.ndim - 2] = to.dim[to.ndim - 1];
    to.ndim--;
  }
  sli_pt_out(m, n, 0, to.ndim ? sli_pt_reshape(m, y, &to) : sl_sum_at(m->at, m->g, y, 0, false));
}

/* outer(self, vec2): each element of one times each of the other. */
void sli_emit_outer(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *a = sli_pt_in(m, n, "self"), *b = sli_pt_in(m, n, "vec2");
  if (!a || !b || a->type.ndim != 1 || b->type.ndim != 1) return;
  sli_pt_out(m, n, 0, sl_mul_at(m->at, m->g, sli_pt_add_dim(m, a, 1), sli_pt_add_dim(m, b, 0)));
}

/* ---- einsum -------------------------------------------------------------------------------- */

/* The letters of an equation "abc,cd->abd". */
typedef struct equation {
  char in[2][SLI_PT_DIMS + 1], out[SLI_PT_DIMS + 1];
} equation;

static bool read_equation(const char *text, equation *e) {
  int part = 0, at = 0;
  char *to[] = {e->in[0], e->in[1], e->out};
  memset(e, 0, sizeof *e);
  for (; *text; text++) {
    if (*text == ' ') continue;
    if (*text == ',' && part == 0) part = 1, at = 0;
    else if (*text == '-' && text[1] == '>' && part == 1) part = 2, at = 0, text++;
    else if (*text >= 'A' && *text <= 'z' && at < SLI_PT_DIMS) to[part][at++] = *text;
    else return false;
  }
  return part == 2;
}

static void add_letter(char *to, char c) {
  size_t n = strlen(to);
  to[n] = c, to[n + 1] = 0;
}

/* Appends the letters of `from` that the other terms have, or lack. */
static void pick_letters(const char *from, const char *a, bool in_a, const char *b, bool in_b,
                         char *out) {
  for (; *from; from++)
    if ((strchr(a, *from) != NULL) == in_a && (strchr(b, *from) != NULL) == in_b)
      add_letter(out, *from);
}

/* Permutes dims named by `has` into the order `wants`, then merges them into three groups. */
static sl_tensor *arrange(sli_import *m, sl_tensor *t, const char *has, const char *groups[3],
                          int count) {
  int order[SLI_PT_DIMS], k = 0;
  sl_type to = {.dtype = SL_F32, .ndim = count};
  for (int i = 0; i < count; i++) {
    to.dim[i] = 1;
    for (const char *c = groups[i]; *c; c++) {
      order[k] = (int)(strchr(has, *c) - has);
      to.dim[i] *= t->type.dim[order[k++]];
    }
  }
  t = sli_pt_permute(m, t, k, order);
  return t ? sli_pt_reshape(m, t, &to) : NULL;
}

/* Sums over dims that only one input has. */
static sl_tensor *sum_alone(sli_import *m, sl_tensor *t, char *has, const char *other,
                            const char *out) {
  uint32_t axes = 0;
  char kept[SLI_PT_DIMS + 1] = "";
  for (int d = 0; has[d]; d++)
    if (!strchr(other, has[d]) && !strchr(out, has[d])) axes |= 1u << d;
    else add_letter(kept, has[d]);
  if (!axes) return t;
  strcpy(has, kept);
  return sl_sum_at(m->at, m->g, t, axes, false);
}

void sli_emit_einsum(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_arg *text = sli_pt_arg_find(n, "equation"), *list = sli_pt_arg_find(n, "tensors");
  equation e;
  if (!text || text->kind != SLI_PT_TEXT || !list || list->kind != SLI_PT_LIST ||
      list->list.count != 2 || !read_equation(text->text, &e)) {
    sli_pt_refuse(m, n, "only einsum of two tensors is supported");
    return;
  }
  sl_tensor *t[2] = {sli_pt_f32(m, list->list.of[0].value), sli_pt_f32(m, list->list.of[1].value)};
  if (!t[0] || !t[1] || strlen(e.in[0]) != (size_t)t[0]->type.ndim ||
      strlen(e.in[1]) != (size_t)t[1]->type.ndim)
    return;
  for (int i = 0; i < 2; i++) t[i] = sum_alone(m, t[i], e.in[i], e.in[1 - i], e.out);
  char batch[32] = "", left[32] = "", inner[32] = "", right[32] = "", now[96];
  pick_letters(e.in[0], e.in[1], true, e.out, true, batch);
  pick_letters(e.in[0], e.in[1], false, e.out, true, left);
  pick_letters(e.in[0], e.in[1], true, e.out, false, inner);
  pick_letters(e.in[1], e.in[0], false, e.out, true, right);
  if (!t[0] || !t[1]) return;
  sl_type to = {.dtype = SL_F32};
  snprintf(now, sizeof now, "%s%s%s", batch, left, right);
  for (const char *c = now; *c; c++) {
    const char *in = strchr(e.in[0], *c);
    to.dim[to.ndim++] =
        in ? t[0]->type.dim[in - e.in[0]] : t[1]->type.dim[strchr(e.in[1], *c) - e.in[1]];
  }
  sl_tensor *a = arrange(m, t[0], e.in[0], (const char *[]){batch, left, inner}, 3);
  sl_tensor *b = arrange(m, t[1], e.in[1], (const char *[]){batch, inner, right}, 3);
  sl_tensor *y = product(m, a, b);
  y = y ? sli_pt_reshape(m, y, &to) : NULL;
  int order[SLI_PT_DIMS], k = 0;
  for (const char *c = e.out; *c; c++) order[k++] = (int)(strchr(now, *c) - now);
  sli_pt_out(m, n, 0, sli_pt_permute(m, y, k, order));
}

/* ---- norms --------------------------------------------------------------------------------- */

/* Returns ones or zeros [C] for an absent gain or bias. */
static sl_tensor *or_filled(sli_import *m, sl_tensor *t, int64_t channels, float value) {
  return t ? t : sl_filled_at(m->at, m->g, SL_TYPE(SL_F32, channels), value, NULL);
}

void sli_emit_layer_norm(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  int64_t shape[SLI_PT_DIMS];
  sl_tensor *x = sli_pt_in(m, n, "input");
  int count = sli_pt_wholes(m, n, "normalized_shape", SLI_PT_DIMS, shape);
  if (!x || count < 1 || count > x->type.ndim) return;
  sl_type flat = x->type, whole = x->type;
  int64_t channels = 1;
  for (int i = 0; i < count; i++) channels *= shape[i];
  flat.ndim -= count - 1;
  flat.dim[flat.ndim - 1] = channels;
  sl_type vector = SL_TYPE(SL_F32, channels);
  sl_tensor *gain = sli_pt_in(m, n, "weight"), *bias = sli_pt_in(m, n, "bias");
  if (gain) gain = sli_pt_reshape(m, gain, &vector);
  if (bias) bias = sli_pt_reshape(m, bias, &vector);
  sl_tensor *y =
      sl_layernorm_at(m->at, m->g, sli_pt_reshape(m, x, &flat), or_filled(m, gain, channels, 1),
                      or_filled(m, bias, channels, 0), (float)sli_pt_number(m, n, "eps", 1e-5));
  sli_pt_out(m, n, 0, y ? sli_pt_reshape(m, y, &whole) : NULL);
}

void sli_emit_rms_norm(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "input"), *gain = sli_pt_in(m, n, "weight");
  int64_t shape[SLI_PT_DIMS];
  if (!x) return;
  if (sli_pt_wholes(m, n, "normalized_shape", SLI_PT_DIMS, shape) != 1) {
    sli_pt_refuse(m, n, "norms over several dims are not supported");
    return;
  }
  double eps = sli_pt_number(m, n, "eps", 0x1p-23);
  sli_pt_out(m, n, 0,
             sl_rmsnorm_at(m->at, m->g, x, or_filled(m, gain, sl_dim(x, -1), 1), (float)eps));
}

void sli_emit_group_norm(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "input");
  if (!x) return;
  if (x->type.ndim < 2) return;
  int64_t channels = x->type.dim[1];
  sli_pt_out(m, n, 0,
             sl_group_norm_at(m->at, m->g, x,
                              (int)sli_pt_whole(m, n, "num_groups", sli_pt_whole(m, n, "group", 1)),
                              or_filled(m, sli_pt_in(m, n, "weight"), channels, 1),
                              or_filled(m, sli_pt_in(m, n, "bias"), channels, 0),
                              (float)sli_pt_number(m, n, "eps", 1e-5)));
}

/* instance_norm: one group per channel. */
void sli_emit_instance_norm(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "input");
  if (!x || x->type.ndim < 3) return;
  if (!sli_pt_flag(n, "use_input_stats", true) || sli_pt_arg_value(n, "running_mean")) {
    sli_pt_refuse(m, n, "running statistics are not supported");
    return;
  }
  int64_t channels = x->type.dim[1];
  sli_pt_out(m, n, 0,
             sl_group_norm_at(m->at, m->g, x, (int)channels,
                              or_filled(m, sli_pt_in(m, n, "weight"), channels, 1),
                              or_filled(m, sli_pt_in(m, n, "bias"), channels, 0),
                              (float)sli_pt_number(m, n, "eps", 1e-5)));
}

/* ---- images -------------------------------------------------------------------------------- */

/* Reads a pair: height and width, or only the width for sequences. */
static void read_pair(const sli_import *m, const sli_pt_node *n, const char *name, int dims,
                      int64_t absent, int64_t out[2]) {
  int64_t of[2];
  int count = sli_pt_wholes(m, n, name, 2, of);
  out[0] = dims == 2 && count > 0 ? of[0] : absent;
  out[1] = count > 0 ? of[count - 1] : absent;
  for (int d = 0; d < 2; d++) out[d] = SLI_MAX(-SLI_PT_MOST, SLI_MIN(out[d], SLI_PT_MOST));
  if (dims == 1) out[0] = 0;
}

void sli_emit_conv(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "input"), *w = sli_pt_in(m, n, "weight"),
            *b = sli_pt_in(m, n, "bias");
  if (!x || !w) return;
  int dims = x->type.ndim - 2;
  const sli_pt_arg *pad = sli_pt_arg_find(n, "padding");
  if (dims < 1 || dims > 2 || sli_pt_flag(n, "transposed", false)) {
    sli_pt_refuse(m, n, "only convolutions of images and sequences are supported");
    return;
  }
  sl_window window = {.groups = sli_pt_whole(m, n, "groups", 1)};
  read_pair(m, n, "stride", dims, 1, window.stride);
  read_pair(m, n, "dilation", dims, 1, window.dilation);
  read_pair(m, n, "padding", dims, 0, window.pad);
  if (pad && pad->kind == SLI_PT_TEXT && !strcmp(pad->text, "same"))
    for (int d = 0; d < 2; d++)
      window.pad[d] =
          dims == 1 && !d ? 0 : (w->type.dim[w->type.ndim - 2 + d] - 1) * window.dilation[d] / 2;
  sli_pt_out(m, n, 0, sl_conv_at(m->at, m->g, x, w, b, &window));
}

/* Pads after the end so that the windows of ceil_mode are complete. */
static sl_tensor *pad_last(sli_import *m, const sli_pt_node *n, sl_tensor *x, sl_window *w) {
  int dims = x->type.ndim - 2;
  for (int d = 2 - dims; d < 2; d++) {
    int at = x->type.ndim - 2 + d;
    int64_t stride = w->stride[d] ? w->stride[d] : w->size[d];
    if (at < 0 || stride < 1 || w->size[d] < 1 || w->pad[d] < 0) return NULL;
    int64_t before = w->pad[d], windows = n->outs[0]->type.dim[at], length = x->type.dim[at];
    if (stride > SLI_PT_MOST || windows > SLI_PT_MOST || before > SLI_PT_MOST) return NULL;
    int64_t after = (windows - 1) * stride + w->size[d] - length - before;
    w->pad[d] = 0;
    if (after > w->size[d] + stride) return NULL;
    x = sli_pt_pad_dim(m, x, at, before, SLI_MAX(after, 0), -3.4e38);
    if (!x) return NULL;
  }
  return x;
}

/* max_pool and avg_pool. */
void sli_emit_pool(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sl_tensor *x = sli_pt_in(m, n, "self");
  if (!x || x->type.ndim < 3 || x->type.ndim > 4) return;
  int dims = x->type.ndim - 2;
  bool largest = row->op == &sl_op_max_pool, ceils = sli_pt_flag(n, "ceil_mode", false);
  sl_window window = {0};
  int64_t apart[2];
  read_pair(m, n, "dilation", dims, 1, apart);
  if ((dims == 2 && apart[0] != 1) || apart[1] != 1) {
    sli_pt_refuse(m, n, "dilation is not supported");
    return;
  }
  read_pair(m, n, "kernel_size", dims, 0, window.size);
  read_pair(m, n, "stride", dims, 0, window.stride);
  read_pair(m, n, "padding", dims, 0, window.pad);
  bool pads = window.pad[0] || window.pad[1];
  bool plain = !ceils && (!pads || sli_pt_flag(n, "count_include_pad", true)) &&
               !sli_pt_arg_find(n, "divisor_override");
  if (ceils && largest) x = pad_last(m, n, x, &window);
  if (largest) sli_pt_out(m, n, 0, sl_max_pool_at(m->at, m->g, x, &window));
  else if (plain) sli_pt_out(m, n, 0, sl_mean_pool_at(m->at, m->g, x, &window));
  else sli_pt_out(m, n, 0, sli_pt_window_mean(m, n));
}

/* adaptive_avg_pool and adaptive_max_pool. Windows of equal size become a pool. */
void sli_emit_adaptive_pool(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sl_tensor *x = sli_pt_in(m, n, "self");
  if (!x || x->type.ndim < 3 || x->type.ndim > 4) return;
  int dims = x->type.ndim - 2;
  bool largest = row->op == &sl_op_max_pool;
  sl_window window = {0};
  for (int d = 2 - dims; d < 2; d++) {
    int at = x->type.ndim - 2 + d;
    int64_t length = x->type.dim[at], out = n->outs[0]->type.dim[at];
    if (out < 1) return;
    if (length % out == 0) window.size[d] = window.stride[d] = length / out;
    else if (!largest) {
      sli_pt_out(m, n, 0, sli_pt_adaptive_mean(m, n));
      return;
    } else {
      sli_pt_refuse(m, n, "%lld positions into %lld are not supported", (long long)length,
                    (long long)out);
      return;
    }
  }
  if (largest) sli_pt_out(m, n, 0, sl_max_pool_at(m->at, m->g, x, &window));
  else sli_pt_out(m, n, 0, sl_mean_pool_at(m->at, m->g, x, &window));
}

/* Reshapes a vector [C] to [1, C, 1, ...], to be combined with x. */
static sl_tensor *per_channel(sli_import *m, sl_tensor *t, const sl_tensor *x) {
  sl_type to = {.dtype = SL_F32, .ndim = x->type.ndim};
  for (int d = 0; d < to.ndim; d++) to.dim[d] = d == 1 ? x->type.dim[1] : 1;
  return t ? sli_pt_reshape(m, t, &to) : NULL;
}

/* Batch norm without running statistics, as used to standardize weights: (x - mean) / deviation
 * over all dims except 1. */
static sl_tensor *normed(sli_import *m, const sli_pt_node *n, sl_tensor *x) {
  uint32_t axes = ((1u << x->type.ndim) - 1) & ~2u;
  sl_tensor *off =
      sl_op2_at(m->at, m->g, &sl_op_sub, NULL, x, sl_mean_at(m->at, m->g, x, axes, true));
  sl_tensor *variance = sl_mean_at(m->at, m->g, sl_mul_at(m->at, m->g, off, off), axes, true);
  variance = sl_add_constant_at(m->at, m->g, variance, (float)sli_pt_number(m, n, "eps", 1e-5));
  sl_tensor *y = sl_mul_at(m->at, m->g, off, sl_op1_at(m->at, m->g, &sl_op_rsqrt, NULL, variance));
  sl_tensor *gain = sli_pt_in(m, n, "weight"), *bias = sli_pt_in(m, n, "bias");
  if (gain) y = sl_mul_at(m->at, m->g, y, per_channel(m, gain, x));
  if (bias) y = sl_add_at(m->at, m->g, y, per_channel(m, bias, x));
  return y;
}

/* batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps). */
void sli_emit_batch_norm(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "input");
  bool training = sli_pt_flag(n, "training", true);
  double momentum = sli_pt_number(m, n, "momentum", 0.1);
  if (!x) return;
  int64_t channels = x->type.dim[1];
  if (training && !sli_pt_arg_find(n, "running_mean") && !sli_pt_arg_find(n, "running_var")) {
    m->note[n->id] = "sub, mul, reduce_sum, rsqrt: no statistics are kept";
    sli_pt_out(m, n, 0, normed(m, n, x));
    return;
  }
  sl_tensor *mean = sli_pt_buffer(m, sli_pt_arg_value(n, "running_mean")),
            *variance = sli_pt_buffer(m, sli_pt_arg_value(n, "running_var"));
  if (!mean || !variance || (training && !(momentum > 0 && momentum <= 1))) {
    sli_pt_refuse(m, n, "it needs running statistics, and a momentum above 0");
    return;
  }
  sl_tensor *gain = or_filled(m, sli_pt_in(m, n, "weight"), channels, 1),
            *bias = or_filled(m, sli_pt_in(m, n, "bias"), channels, 0);
  sli_pt_out(m, n, 0,
             sl_batch_norm_at(m->at, m->g, x, gain, bias, mean, variance,
                              training ? (float)momentum : SL_OFF,
                              (float)sli_pt_number(m, n, "eps", 1e-5)));
}

/* ---- attention ----------------------------------------------------------------------------- */

/* Which keys a query attends to. */
typedef struct mask {
  bool known, full;
  int64_t window; /* 0 if unlimited */
} mask;

/* Returns whether a query attends to a key, for a mask of flags, which may say that it is hidden,
 * or of numbers to add. */
static bool sees(const sli_pt_array *a, bool hides, double v) {
  return a->mask ? (v != 0) != hides : v > -1e30;
}

/* Classifies a constant mask [.., .., T, S] as one that the attention op supports, if possible. */
static mask read_mask(const sli_pt_array *a, bool hides) {
  mask out = {.known = true, .full = true};
  int ndim = a->type.ndim;
  if (ndim < 2) return (mask){0};
  int64_t queries = a->type.dim[ndim - 2], keys = a->type.dim[ndim - 1];
  if (queries > 1 << 20 || keys > 1 << 20 || queries * keys > SLI_PT_MOST) return (mask){0};
  for (int d = 0; d < ndim - 2; d++)
    if (!sli_pt_repeats(a, d)) return (mask){0};
  for (int64_t q = 0; q < queries; q++)
    for (int64_t k = 0; k < keys; k++) {
      double v = sli_pt_at(a, a->offset + q * a->stride[ndim - 2] + k * a->stride[ndim - 1]);
      if (!a->mask && v > -1e30 && v != 0) return (mask){0}; /* a bias */
      if (!sees(a, hides, v)) out.full = false;
      bool past =
          k <= q && !sees(a, hides, v); /* the query does not attend to keys this far back */
      if (past && (!out.window || q - k < out.window)) out.window = q - k;
    }
  if (out.full) return out;
  for (int64_t q = 0; q < queries; q++)
    for (int64_t k = 0; k < keys; k++) {
      double v = sli_pt_at(a, a->offset + q * a->stride[ndim - 2] + k * a->stride[ndim - 1]);
      bool expected = k <= q && (!out.window || q - k < out.window);
      if (sees(a, hides, v) != expected) return (mask){0};
    }
  return queries == keys ? out : (mask){0};
}

/* Converts heads [B, H, T, D] to the attention op's layout, [B, T, H * D]. */
static sl_tensor *heads_last(sli_import *m, sl_tensor *t) {
  t = sli_pt_permute(m, t, 4, (int[]){0, 2, 1, 3});
  if (!t) return NULL;
  sl_type to = {.dtype = SL_F32,
                .ndim = 3,
                .dim = {t->type.dim[0], t->type.dim[1], t->type.dim[2] * t->type.dim[3]}};
  return sli_pt_reshape(m, t, &to);
}

/* Finds the packed tensor of which q, k and v are consecutive parts. */
static sl_tensor *packed(const sl_tensor *q, const sl_tensor *k, const sl_tensor *v) {
  const sli_node *p = q->producer;
  bool one = p && p->op == &sl_op_split && p->nout == 3 && k->producer == p && v->producer == p;
  return one && !q->output && k->output == 1 && v->output == 2 &&
                 sl_dim(p->in[0], -1) == sl_dim(q, -1) + 2 * sl_dim(k, -1)
             ? p->in[0]
             : NULL;
}

typedef struct heads {
  sl_tensor *q, *k, *v; /* [B, H, T, D] */
  double scale, cap;    /* cap 0: none */
} heads;

/* Computes attention with the op, whose mask it supports. */
static sl_tensor *known_attention(sli_import *m, const heads *h, const mask *mask) {
  int64_t batch = h->q->type.dim[0], time = h->q->type.dim[2], width = h->v->type.dim[3];
  sl_attention_attrs attrs = {.heads = (int)h->q->type.dim[1],
                              .kv_heads = (int)h->k->type.dim[1],
                              .full = mask->full,
                              .window = mask->window,
                              .cap = (float)h->cap,
                              .scale = (float)h->scale};
  sl_tensor *q = heads_last(m, h->q), *k = heads_last(m, h->k), *v = heads_last(m, h->v);
  if (!q || !k || !v) return NULL;
  sl_tensor *qkv = packed(q, k, v), *y;
  if (qkv) y = sl_attend_packed_at(m->at, m->g, qkv, &attrs);
  else y = sl_attend_at(m->at, m->g, q, k, v, &attrs);
  if (!y) return NULL;
  sl_type to = {.dtype = SL_F32, .ndim = 4, .dim = {batch, time, attrs.heads, width}};
  return sli_pt_permute(m, sl_reshape_at(m->at, m->g, y, to), 4, (int[]){0, 2, 1, 3});
}

/* Repeats heads of keys or values for groups of queries: [B, H, T, D] becomes [B, H * times, T,
 * D]. */
static sl_tensor *repeat_heads(sli_import *m, sl_tensor *t, int64_t times) {
  if (times == 1) return t;
  const int64_t *d = t->type.dim;
  sl_type one = {SL_F32, 5, {d[0], d[1], 1, d[2], d[3]}}, many = one;
  sl_type to = {SL_F32, 4, {d[0], d[1] * times, d[2], d[3]}};
  many.dim[2] = times;
  t = sl_expand_at(m->at, m->g, sl_reshape_at(m->at, m->g, t, one), many);
  return t ? sl_reshape_at(m->at, m->g, t, to) : NULL;
}

/* Returns whether a query of a constant mask attends to no key. */
static bool has_empty_row(const sli_pt_array *a) {
  int64_t count = sli_pt_elements(&a->type),
          keys = a->type.ndim ? a->type.dim[a->type.ndim - 1] : 1;
  bool any = false;
  if (count > SLI_PT_MOST) return false;
  for (int64_t i = 0; i < count; i++) {
    double v = sli_pt_get(a, i);
    any |= a->mask ? v != 0 : v != -INFINITY;
    if ((i + 1) % keys) continue;
    if (!any) return true;
    any = false;
  }
  return false;
}

/* Returns 1 for queries that attend to a key, else 0: [..., T, 1]. NULL if all do: learned biases
 * and constants without an empty row. */
static sl_tensor *queries_with_keys(sli_import *m, const sli_pt_node *n, const sl_tensor *scores,
                                    const sli_pt_type *exported) {
  const sli_pt_value *v = sli_pt_arg_value(n, "attn_mask");
  const sli_pt_array *a = v ? sli_constant(m, v) : NULL;
  if (!v || (a ? !has_empty_row(a) : sli_made_of(m, v)->learned)) return NULL;
  sl_tensor *x = a ? sli_pt_constant_beside(m, a, exported, scores) : sli_pt_f32(m, v);
  if (x && x->type.dtype == SL_I32) x = sl_cast_at(m->at, m->g, x, SL_F32);
  if (!x || !x->type.ndim) return NULL;
  const sl_attrs attrs = {.along.axes = 1u << (x->type.ndim - 1), .along.keep = true};
  sl_tensor *most[2] = {NULL, NULL};
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &x, 0, most);
  sl_tensor *least =
      sli_pt_filled_like(m, most[0], v->type.dtype == SLI_PT_BOOL ? 0 : (double)-INFINITY);
  sl_tensor *yes = sl_op2_at(m->at, m->g, &sl_op_gt, NULL, most[0], least);
  return yes ? sl_cast_at(m->at, m->g, yes, SL_F32) : NULL;
}

/* Converts a mask to numbers that are added to the scores. */
static sl_tensor *bias_of_mask(sli_import *m, const sli_pt_node *n, const sl_tensor *scores,
                               const sli_pt_type *exported) {
  const sli_pt_value *v = sli_pt_arg_value(n, "attn_mask");
  if (!v) return NULL;
  const sli_pt_array *a = sli_constant(m, v);
  if (a) {
    sli_pt_array *sum = sli_pt_array_cast(&m->arena, a, SLI_PT_F32);
    int64_t count = sum ? sli_pt_elements(&a->type) : 0;
    for (int64_t i = 0; i < count; i++)
      sum->of[i] = !a->mask ? fmax(sum->of[i], -1e30) : sum->of[i] != 0 ? 0 : -1e30;
    if (!sum) return NULL;
    a = sum;
  }
  if (a) return sli_pt_constant_beside(m, a, exported, scores);
  sl_tensor *t = sli_pt_tensor(m, v);
  bool bounded = v->type.dtype != SLI_PT_BOOL && !sli_made_of(m, v)->learned;
  if (bounded) return sl_clamp_at(m->at, m->g, sli_pt_f32(m, v), -1e30f, INFINITY);
  if (v->type.dtype != SLI_PT_BOOL) return sli_pt_f32(m, v);
  if (t && t->type.dtype == SL_I32) t = sl_cast_at(m->at, m->g, t, SL_F32);
  t = sl_add_constant_at(m->at, m->g, t, -1); /* 0 and -1 */
  return sl_scale_at(m->at, m->g, t, 1e30f);
}

/* Computes attention as products and a softmax, for masks that are tensors. */
static sl_tensor *plain_attention(sli_import *m, const sli_pt_node *n, const heads *h,
                                  const sli_pt_type *q_type, const sli_pt_type *k_type) {
  int64_t times = h->q->type.dim[1] / h->k->type.dim[1];
  sl_tensor *k = repeat_heads(m, h->k, times), *v = repeat_heads(m, h->v, times);
  sl_tensor *scores = sl_matmul_at(m->at, m->g, h->q, k, false, true);
  scores = sl_scale_at(m->at, m->g, scores, (float)h->scale);
  if (!scores) return NULL;
  sli_pt_type exported = *q_type;
  exported.dim[3] = k_type->dim[2];
  sl_tensor *bias = bias_of_mask(m, n, scores, &exported);
  if (sli_pt_flag(n, "is_causal", false)) {
    int64_t t = sl_dim(scores, -2), s = sl_dim(scores, -1);
    float *of = sl_graph_alloc(m->g, (size_t)(t * s) * sizeof *of);
    for (int64_t i = 0; i < t * s; i++) of[i] = i % s <= i / s ? 0 : -1e30f;
    bias = sl_constant_at(m->at, m->g, SL_TYPE(SL_F32, t, s), of, NULL);
  }
  if (bias) scores = sl_add_at(m->at, m->g, scores, bias);
  sl_tensor *seen = queries_with_keys(m, n, scores, &exported);
  scores = sl_softmax_at(m->at, m->g, scores, -1, false);
  if (seen) scores = sl_mul_at(m->at, m->g, scores, seen);
  double p = sli_pt_number(m, n, "dropout_p", 0);
  if (p > 0) scores = sl_dropout_at(m->at, m->g, scores, (float)p);
  return sl_matmul_at(m->at, m->g, scores, v, false, false);
}

sl_tensor *sli_pt_attend(sli_import *m, const sli_pt_node *n, const sli_pt_value *q,
                         const sli_pt_value *k, const sli_pt_value *v) {
  heads h = {sli_pt_f32(m, q), sli_pt_f32(m, k), sli_pt_f32(m, v), 0, 0};
  if (!h.q || !h.k || !h.v) return NULL;
  h.scale = sli_pt_number(m, n, "scale", 1 / sqrt((double)sl_dim(h.q, -1)));
  const sli_pt_value *given = sli_pt_arg_value(n, "attn_mask");
  mask mask = {.known = !given, .full = !sli_pt_flag(n, "is_causal", false)};
  if (given && sli_constant(m, given)) mask = read_mask(sli_constant(m, given), false);
  bool square = sl_dim(h.q, 2) == sl_dim(h.k, 2) && sl_dim(h.q, 3) == sl_dim(h.v, 3) &&
                sl_dim(h.q, 3) <= 256 && sl_dim(h.k, 0) == sl_dim(h.q, 0);
  bool drops = sli_pt_number(m, n, "dropout_p", 0) > 0 && !sl_graph_infer(m->g);
  bool known = mask.known && square && !drops;
  m->note[n->id] = !known        ? "matmul, softmax, matmul: the mask is a tensor"
                   : mask.full   ? "attention"
                   : mask.window ? "attention, causal, window"
                                 : "attention, causal";
  return known ? known_attention(m, &h, &mask) : plain_attention(m, n, &h, &q->type, &k->type);
}

bool sli_pt_causal(const sli_pt_array *a, bool hides, int64_t *window) {
  mask known = a && (a->mask || !hides) ? read_mask(a, hides) : (mask){0};
  *window = known.window;
  return known.known && !known.full;
}

/* Returns heads as [B, H, T, D]: three dims are those of one row. */
static sl_tensor *four_dims(sli_import *m, const sli_pt_value *v) {
  sl_tensor *t = sli_pt_f32(m, v);
  return t && t->type.ndim == 3 ? sli_pt_add_dim(m, t, 0) : t;
}

sl_tensor *sli_pt_attend_causal(sli_import *m, const sli_pt_node *n, const sli_match *of) {
  heads h = {four_dims(m, of->part[0]), four_dims(m, of->part[1]), four_dims(m, of->part[2]),
             of->number[0], of->number[1]};
  if (!h.q || !h.k || !h.v) return NULL;
  m->note[n->id] = of->whole[0] ? "attention, causal, window" : "attention, causal";
  sl_tensor *y = known_attention(m, &h, &(mask){.known = true, .window = of->whole[0]});
  return y && of->part[0]->type.ndim == 3 ? sli_pt_drop_dims(m, y, 1) : y;
}

void sli_emit_attention(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  const sli_pt_value *q = sli_pt_arg_value(n, "query"), *k = sli_pt_arg_value(n, "key"),
                     *v = sli_pt_arg_value(n, "value");
  if (q && k && v && q->type.ndim == 4 && k->type.ndim == 4)
    sli_pt_out(m, n, 0, sli_pt_attend(m, n, q, k, v));
  else sli_pt_refuse(m, n, "queries, keys and values need four dims");
}
