/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on images and sequences: resampling, pooling over any windows, transposed convolutions,
 * padding modes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pytorch/emit.h"

/* ---- linear maps along a dim ---------------------------------------------------------------- */

/* A map of `from` positions to `to`: weights [to, from]. */
typedef struct map {
  int64_t from, to;
  float *of;
} map;

static bool map_make(sli_import *m, int64_t from, int64_t to, map *out) {
  *out = (map){from, to, NULL};
  if (from < 1 || to < 1 || from > 1 << 15 || to > 1 << 15) return false;
  out->of = sl_graph_alloc(m->g, (size_t)(from * to) * sizeof *out->of);
  return true;
}

/* Applies a map to the last dim, or to the one before it. */
static sl_tensor *map_apply(sli_import *m, sl_tensor *x, int from_end, const map *a) {
  sl_tensor *c = sl_constant_at(m->at, m->g, SL_TYPE(SL_F32, a->to, a->from), a->of, NULL);
  return from_end == 1 ? sl_matmul_at(m->at, m->g, x, c, false, true)
                       : sl_matmul_at(m->at, m->g, c, x, false, false);
}

/* Applies maps to the spatial dims of [N, C, W] or [N, C, H, W]; each is filled by `fill`. */
typedef bool fill_fn(sli_import *m, const sli_pt_node *n, int dim, map *a);
static sl_tensor *map_all(sli_import *m, const sli_pt_node *n, fill_fn *fill) {
  const sli_pt_value *v = sli_pt_arg_value(n, n->args[0].name);
  sl_tensor *x = sli_pt_f32(m, v);
  const sli_pt_type *to = &n->outs[0]->type;
  int dims = v ? v->type.ndim - 2 : 0;
  if (!x || dims < 1 || dims > 2 || to->ndim != v->type.ndim) return NULL;
  for (int d = 0; d < dims; d++) {
    map a;
    if (!map_make(m, v->type.dim[2 + d], to->dim[2 + d], &a) || !fill(m, n, d, &a)) return NULL;
    x = map_apply(m, x, dims - d, &a);
  }
  return x;
}

/* Returns the distance between positions of the result, in positions of the input, by the exported
 * sizes. */
static double step_of(const sli_import *m, const sli_pt_node *n, int dim, const map *a) {
  static const char *const names[] = {"scales_h", "scales_w"};
  const sli_pt_arg *scales = sli_pt_arg_find(n, "scale_factors");
  double v;
  if (!scales && dim < 2 && (v = sli_pt_number(m, n, names[dim], 0)) > 0) return 1 / v;
  if (sli_pt_flag(n, "align_corners", false))
    return a->to > 1 ? (double)(a->from - 1) / (double)(a->to - 1) : 0;
  if (scales && scales->kind == SLI_PT_LIST && dim < scales->list.count &&
      sli_pt_scalar(m, &scales->list.of[dim], &v) && v > 0)
    return 1 / v;
  return (double)a->from / (double)a->to;
}

static double source_of(const sli_pt_node *n, double step, int64_t i) {
  return sli_pt_flag(n, "align_corners", false) ? step * (double)i : step * ((double)i + 0.5) - 0.5;
}

static bool fill_linear(sli_import *m, const sli_pt_node *n, int dim, map *a) {
  double step = step_of(m, n, dim, a);
  for (int64_t i = 0; i < a->to; i++) {
    double at = fmin(fmax(source_of(n, step, i), 0), (double)(a->from - 1));
    int64_t low = (int64_t)at, high = SLI_MIN(low + 1, a->from - 1);
    a->of[i * a->from + low] += (float)(1 - (at - (double)low));
    a->of[i * a->from + high] += (float)(at - (double)low);
  }
  return true;
}

/* Keys' cubic kernel with a = -0.75. */
static double cubic(double x) {
  const double a = -0.75;
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static bool fill_cubic(sli_import *m, const sli_pt_node *n, int dim, map *a) {
  double step = step_of(m, n, dim, a);
  for (int64_t i = 0; i < a->to; i++) {
    double at = source_of(n, step, i), low = floor(at);
    for (int k = -1; k <= 2; k++) {
      int64_t from = SLI_MAX(0, SLI_MIN((int64_t)low + k, a->from - 1));
      a->of[i * a->from + from] += (float)cubic(at - low - k);
    }
  }
  return true;
}

static bool fill_nearest(sli_import *m, const sli_pt_node *n, int dim, map *a) {
  double step = step_of(m, n, dim, a);
  for (int64_t i = 0; i < a->to; i++)
    a->of[i * a->from + SLI_MIN((int64_t)(step * (double)i), a->from - 1)] = 1;
  return true;
}

/* Windows from floor(i in / out) to ceil((i + 1) in / out). */
static bool fill_adaptive(sli_import *m, const sli_pt_node *n, int dim, map *a) {
  (void)m, (void)n, (void)dim;
  for (int64_t i = 0; i < a->to; i++) {
    int64_t begin = i * a->from / a->to, end = ((i + 1) * a->from + a->to - 1) / a->to;
    for (int64_t k = begin; k < end; k++) a->of[i * a->from + k] = 1 / (float)(end - begin);
  }
  return true;
}

static int64_t of_pair(const sli_import *m, const sli_pt_node *n, const char *name, int dim,
                       int64_t absent) {
  int64_t of[2];
  int count = sli_pt_wholes(m, n, name, 2, of);
  if (count < 1) return absent;
  const int64_t most = 1 << 16; /* no image is larger */
  return SLI_MAX(-most, SLI_MIN(of[SLI_MIN(dim, count - 1)], most));
}

/* Means over windows, counting padding as PyTorch does. */
static bool fill_mean(sli_import *m, const sli_pt_node *n, int dim, map *a) {
  int64_t size = of_pair(m, n, "kernel_size", dim, 1), stride = of_pair(m, n, "stride", dim, size);
  int64_t pad = of_pair(m, n, "padding", dim, 0);
  bool counts = sli_pt_flag(n, "count_include_pad", true);
  if (size < 1 || size > 1 << 15 || stride < 1 || stride > 1 << 15 || pad < 0 || pad > size)
    return false;
  for (int64_t i = 0; i < a->to; i++) {
    int64_t begin = i * stride - pad, end = SLI_MIN(begin + size, a->from + pad);
    int64_t from = SLI_MAX(begin, 0), to = SLI_MIN(end, a->from);
    float share = 1 / (float)(counts ? end - begin : to - from);
    for (int64_t k = from; k < to; k++) a->of[i * a->from + k] = share;
  }
  return true;
}

bool sli_pt_repeats_positions(const sli_import *m, const sli_pt_node *n) {
  const sli_pt_type *from = &sli_pt_first(n)->type, *to = &n->outs[0]->type;
  bool even = true;
  for (int d = 2; d < from->ndim; d++) {
    map a = {from->dim[d], to->dim[d], NULL};
    double times = (double)a.to / (double)a.from;
    even &= a.to % a.from == 0 && fabs(step_of(m, n, d - 2, &a) * times - 1) < 1e-12;
  }
  return even;
}

void sli_emit_linear_up(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sli_pt_out(m, n, 0, map_all(m, n, fill_linear));
}

void sli_emit_cubic_up(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sli_pt_out(m, n, 0, map_all(m, n, fill_cubic));
}

sl_tensor *sli_pt_nearest(sli_import *m, const sli_pt_node *n) {
  return map_all(m, n, fill_nearest);
}

sl_tensor *sli_pt_adaptive_mean(sli_import *m, const sli_pt_node *n) {
  return map_all(m, n, fill_adaptive);
}

sl_tensor *sli_pt_window_mean(sli_import *m, const sli_pt_node *n) {
  if (sli_pt_arg_find(n, "divisor_override")) return NULL;
  return map_all(m, n, fill_mean);
}

/* ---- positions ------------------------------------------------------------------------------ */

sl_tensor *sli_pt_take(sli_import *m, sl_tensor *x, int dim, int64_t count, const int64_t *at) {
  if (!x) return NULL;
  sl_type type = {.dtype = SL_I32, .ndim = x->type.ndim};
  for (int d = 0; d < type.ndim; d++) type.dim[d] = d == dim ? count : 1;
  int32_t *values = sl_graph_alloc(m->g, (size_t)(count + 1) * sizeof *values);
  for (int64_t i = 0; i < count; i++) values[i] = (int32_t)at[i];
  return sl_gather_at(m->at, m->g, x, dim, sl_constant_at(m->at, m->g, type, values, NULL));
}

/* Returns the position that a position beyond an edge repeats. */
static int64_t beyond(const char *mode, int64_t at, int64_t length) {
  if (!strcmp(mode, "replicate")) return SLI_MAX(0, SLI_MIN(at, length - 1));
  if (!strcmp(mode, "circular")) return (at % length + length) % length;
  return at < 0 ? -at : at >= length ? 2 * (length - 1) - at : at; /* reflect */
}

/* Pads the last dims with positions of the tensor itself. Returns NULL for an unknown mode. */
sl_tensor *sli_pt_edges(sli_import *m, const sli_pt_node *n, sl_tensor *x, const char *mode) {
  int64_t pad[2 * SLI_PT_DIMS];
  int count =
      sli_pt_wholes(m, n, sli_pt_arg_find(n, "pad") ? "pad" : "padding", 2 * SLI_PT_DIMS, pad);
  if (strcmp(mode, "replicate") != 0 && strcmp(mode, "circular") != 0 &&
      strcmp(mode, "reflect") != 0)
    return NULL;
  for (int i = 0; x && i + 1 < count; i += 2) {
    int dim = x->type.ndim - 1 - i / 2;
    if (dim < 0) return NULL;
    int64_t length = x->type.dim[dim], before = pad[i], after = pad[i + 1];
    if (!before && !after) continue;
    if (before < 0 || after < 0 || before > length || after > length || length < 2) return NULL;
    int64_t all = before + length + after,
            *at = sli_arena_alloc(&m->arena, (size_t)all * sizeof *at);
    for (int64_t k = 0; k < all; k++)
      at[k] = SLI_MAX(0, SLI_MIN(beyond(mode, k - before, length), length - 1));
    x = sli_pt_take(m, x, dim, all, at);
  }
  return x;
}

void sli_emit_edges(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  const char *mode = strstr(row->target, "reflection") ? "reflect" : "replicate";
  sli_pt_out(m, n, 0, sli_pt_edges(m, n, sli_pt_in(m, n, "self"), mode));
}

/* unfold(dimension, size, step): windows along a dim, as an additional last dim. */
void sli_emit_unfold(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "self");
  if (!x || !x->type.ndim || x->type.ndim == SL_MAX_DIMS) return;
  int ndim = x->type.ndim, dim = sli_pt_dim(m, n, "dimension", ndim, 0), order[SL_MAX_DIMS], k = 0;
  int64_t length = sl_dim(x, dim), size = sli_pt_whole(m, n, "size", 1),
          step = sli_pt_whole(m, n, "step", 1);
  if (size < 1 || size > length || step < 1) return;
  int64_t count = (length - size) / step + 1;
  int64_t *at = sli_arena_alloc(&m->arena, (size_t)(count * size) * sizeof *at);
  for (int64_t i = 0; i < count * size; i++) at[i] = i / size * step + i % size;
  x = sli_pt_take(m, x, dim, count * size, at);
  if (!x) return;
  sl_type to = x->type;
  memmove(to.dim + dim + 2, to.dim + dim + 1, (size_t)(ndim - dim - 1) * sizeof *to.dim);
  to.dim[dim] = count, to.dim[dim + 1] = size;
  to.ndim++;
  for (int d = 0; d <= ndim; d++)
    if (d != dim + 1) order[k++] = d;
  order[k++] = dim + 1;
  sli_pt_out(m, n, 0, sli_pt_permute(m, sli_pt_reshape(m, x, &to), k, order));
}

static sl_tensor *add_zeros(sli_import *m, sl_tensor *x, int dim, int64_t before, int64_t after) {
  sl_tensor *parts[3];
  int count = 0;
  if (!x || (!before && !after)) return x;
  sl_type type = x->type;
  type.dim[dim] = before;
  sl_tensor *like = sl_slice_at(m->at, m->g, x, dim, 0, 1);
  sl_tensor *zero = like ? sl_filled_at(m->at, m->g, like->type, 0, like) : NULL;
  for (int i = 0; i < 2; i++) {
    int64_t length = i ? after : before;
    if (i) parts[count++] = x;
    if (!length || !zero) continue;
    type.dim[dim] = length;
    parts[count++] = length == 1 ? zero : sl_expand_at(m->at, m->g, zero, type);
  }
  return sl_concat_at(m->at, m->g, dim, count, parts);
}

/* im2col: the windows of an image, [N, C * kernel, windows]. */
void sli_emit_im2col(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "self");
  if (!x || x->type.ndim != 4) return;
  int64_t size[2], count[2];
  for (int d = 0; d < 2; d++) {
    int64_t pad = of_pair(m, n, "padding", d, 0), gap = of_pair(m, n, "dilation", d, 1);
    int64_t step = of_pair(m, n, "stride", d, 1);
    size[d] = of_pair(m, n, "kernel_size", d, 1);
    if (pad < 0 || pad > 1 << 15 || gap < 1 || step < 1 || size[d] < 1 || size[d] > 1 << 15) return;
    x = add_zeros(m, x, 2 + d, pad, pad);
    if (!x || (size[d] - 1) * gap >= sl_dim(x, 2 + d)) return;
    count[d] = (sl_dim(x, 2 + d) - (size[d] - 1) * gap - 1) / step + 1;
    int64_t all = size[d] * count[d], *at = sli_arena_alloc(&m->arena, (size_t)all * sizeof *at);
    for (int64_t i = 0; i < all; i++) at[i] = i / count[d] * gap + i % count[d] * step;
    x = sli_pt_take(m, x, 2 + d, all, at);
  }
  if (!x) return;
  int64_t rows = x->type.dim[0], channels = x->type.dim[1];
  const sl_type apart = {SL_F32, 6, {rows, channels, size[0], count[0], size[1], count[1]}};
  const sl_type to = {SL_F32, 3, {rows, channels * size[0] * size[1], count[0] * count[1]}};
  x = sli_pt_permute(m, sli_pt_reshape(m, x, &apart), 6, (int[]){0, 1, 2, 4, 3, 5});
  sli_pt_out(m, n, 0, sli_pt_reshape(m, x, &to));
}

/* pixel_shuffle: [N, C r r, H, W] to [N, C, H r, W r]; pixel_unshuffle: the inverse. */
void sli_emit_pixels(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  sl_tensor *x = sli_pt_in(m, n, "self");
  bool back = strstr(row->target, "unshuffle") != NULL;
  int64_t r = sli_pt_whole(m, n, back ? "downscale_factor" : "upscale_factor", 1);
  if (!x || x->type.ndim != 4 || r < 1 || r > 1 << 10) return;
  int64_t rows = x->type.dim[0], c = x->type.dim[1], h = x->type.dim[2], w = x->type.dim[3];
  if (back ? h % r || w % r : c % (r * r)) return;
  const sl_type apart = back ? (sl_type){SL_F32, 6, {rows, c, h / r, r, w / r, r}}
                             : (sl_type){SL_F32, 6, {rows, c / r / r, r, r, h, w}};
  const sl_type to = back ? (sl_type){SL_F32, 4, {rows, c * r * r, h / r, w / r}}
                          : (sl_type){SL_F32, 4, {rows, c / r / r, h * r, w * r}};
  x = sli_pt_reshape(m, x, &apart);
  x = sli_pt_permute(m, x, 6, back ? (int[]){0, 1, 3, 5, 2, 4} : (int[]){0, 1, 4, 2, 5, 3});
  sli_pt_out(m, n, 0, sli_pt_reshape(m, x, &to));
}

void sli_emit_channels(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "self");
  int64_t groups = sli_pt_whole(m, n, "groups", 1);
  if (!x || x->type.ndim < 3 || groups < 1 || x->type.dim[1] % groups) return;
  int64_t each = x->type.dim[1] / groups, rows = x->type.dim[0];
  int64_t rest = sl_type_elements(&x->type) / rows / x->type.dim[1];
  sl_type to = x->type;
  x = sli_pt_reshape(m, x, &SL_TYPE(SL_F32, rows, groups, each, rest));
  x = sli_pt_permute(m, x, 4, (int[]){0, 2, 1, 3});
  sli_pt_out(m, n, 0, sli_pt_reshape(m, x, &to));
}

/* ---- transposed convolutions ---------------------------------------------------------------- */

/* Inserts stride - 1 zeros between positions. */
static sl_tensor *spread(sli_import *m, sl_tensor *x, int dim, int64_t stride) {
  if (!x || stride == 1) return x;
  sl_type apart = x->type, to = x->type;
  int64_t length = x->type.dim[dim];
  if (apart.ndim == SL_MAX_DIMS) return NULL;
  memmove(apart.dim + dim + 2, apart.dim + dim + 1,
          (size_t)(apart.ndim - dim - 1) * sizeof *apart.dim);
  apart.dim[dim + 1] = 1;
  apart.ndim++;
  to.dim[dim] = length * stride;
  x = add_zeros(m, sl_reshape_at(m->at, m->g, x, apart), dim + 1, 0, stride - 1);
  x = x ? sl_reshape_at(m->at, m->g, x, to) : NULL;
  return x ? sl_slice_at(m->at, m->g, x, dim, 0, length * stride - stride + 1) : NULL;
}

/* Converts the weight [in, out / groups, ...] of a transposed convolution to that of a convolution,
 * [out, in / groups, ...], with a flipped kernel. */
static sl_tensor *turn_weight(sli_import *m, sl_tensor *w, int64_t groups) {
  int64_t in = w->type.dim[0], out = w->type.dim[1], kernel = 1;
  for (int d = 2; d < w->type.ndim; d++) {
    int64_t length = w->type.dim[d], *at = sli_arena_alloc(&m->arena, (size_t)length * sizeof *at);
    kernel *= length;
    for (int64_t i = 0; i < length; i++) at[i] = length - 1 - i;
    if (length > 1) w = sli_pt_take(m, w, d, length, at);
    if (!w) return NULL;
  }
  sl_type to = w->type;
  to.dim[0] = out * groups, to.dim[1] = in / groups;
  w = sli_pt_reshape(m, w, &SL_TYPE(SL_F32, groups, in / groups, out, kernel));
  w = sli_pt_permute(m, w, 4, (int[]){0, 2, 1, 3});
  return sli_pt_reshape(m, w, &to);
}

void sli_emit_conv_transpose(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "input"), *w = sli_pt_in(m, n, "weight");
  if (!x || !w || x->type.ndim != w->type.ndim) return;
  int dims = x->type.ndim - 2;
  sl_window window = {.groups = sli_pt_whole(m, n, "groups", 1)};
  if (dims < 1 || dims > 2 || window.groups < 1 || w->type.dim[0] % window.groups) return;
  for (int d = 0; d < dims; d++) {
    int64_t stride = of_pair(m, n, "stride", d, 1), gap = of_pair(m, n, "dilation", d, 1);
    int64_t pad = of_pair(m, n, "padding", d, 0), more = of_pair(m, n, "output_padding", d, 0);
    int64_t edge = gap * (w->type.dim[2 + d] - 1) - pad;
    if (stride < 1 || stride > 1 << 15 || edge < 0 || more < 0) {
      sli_pt_refuse(m, n, "padding beyond the kernel is not supported");
      return;
    }
    x = add_zeros(m, spread(m, x, 2 + d, stride), 2 + d, edge, edge + more);
    window.dilation[d + 2 - dims] = gap, window.stride[d + 2 - dims] = 1;
  }
  w = turn_weight(m, w, window.groups);
  sli_pt_out(m, n, 0, sl_conv_at(m->at, m->g, x, w, sli_pt_in(m, n, "bias"), &window));
}
