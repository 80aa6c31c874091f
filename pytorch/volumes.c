/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of volumes: sums of convolutions of images, one for each depth of the kernel. */
#include "pytorch/emit.h"

/* Window of a convolution: depth, height, width. */
typedef struct window {
  int64_t stride[3], pad[3], dilation[3], groups;
} window;

/* Reads an argument of three numbers, or of one for all dims. */
static bool read_three(const sli_import *m, const sli_pt_node *n, const char *name, int64_t absent,
                       int64_t out[3]) {
  int count = sli_pt_wholes(m, n, name, 3, out);
  if (count < 0) out[0] = absent;
  for (int d = count == 3 ? 3 : 1; d < 3; d++) out[d] = out[0];
  for (int d = 0; d < 3; d++)
    if (out[d] < 0 || out[d] > SLI_PT_MOST) return false;
  return count != 2;
}

/* Makes images [N * depth, C, H, W] of the depths of x [N, C, D, H, W] that meet one depth of the
 * kernel. */
static sl_tensor *images(sli_import *m, sl_tensor *x, const window *w, int64_t at, int64_t depth) {
  int64_t *taken = sli_arena_alloc(&m->arena, (size_t)depth * sizeof *taken);
  for (int64_t i = 0; i < depth; i++) taken[i] = at * w->dilation[0] + i * w->stride[0];
  x = sli_pt_permute(m, sli_pt_take(m, x, 2, depth, taken), 5, (int[]){0, 2, 1, 3, 4});
  if (!x) return NULL;
  const int64_t *dim = x->type.dim;
  return sli_pt_reshape(m, x, &SL_TYPE(SL_F32, dim[0] * dim[1], dim[2], dim[3], dim[4]));
}

/* conv3d(input [N, C, D, H, W], weight [O, C / groups, kD, kH, kW], bias, ...). */
void sli_emit_conv3d(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  sl_tensor *x = sli_pt_in(m, n, "input"), *w = sli_pt_in(m, n, "weight"),
            *bias = sli_pt_in(m, n, "bias"), *y = NULL;
  window of = {.groups = sli_pt_whole(m, n, "groups", 1)};
  bool known = read_three(m, n, "stride", 1, of.stride) && read_three(m, n, "padding", 0, of.pad) &&
               read_three(m, n, "dilation", 1, of.dilation);
  if (!x || !w || !known || x->type.ndim != 5 || w->type.ndim != 5) return;
  int64_t rows = sl_dim(x, 0), depth = n->outs[0]->type.dim[2], kernel = sl_dim(w, 2);
  if (of.pad[0]) x = sli_pt_pad_dim(m, x, 2, of.pad[0], of.pad[0], 0);
  const sl_window flat = {.groups = of.groups,
                          .stride = {of.stride[1], of.stride[2]},
                          .dilation = {of.dilation[1], of.dilation[2]},
                          .pad = {of.pad[1], of.pad[2]}};
  for (int64_t i = 0; i < kernel && x && !m->g->status; i++) {
    sl_tensor *plane = sli_pt_drop_dims(m, sl_slice_at(m->at, m->g, w, 2, i, 1), 1u << 2);
    sl_tensor *part =
        sl_conv_at(m->at, m->g, images(m, x, &of, i, depth), plane, i ? NULL : bias, &flat);
    y = y ? sl_add_at(m->at, m->g, y, part) : part;
  }
  if (!y) return;
  const int64_t *dim = y->type.dim;
  y = sli_pt_reshape(m, y, &SL_TYPE(SL_F32, rows, depth, dim[1], dim[2], dim[3]));
  sli_pt_out(m, n, 0, sli_pt_permute(m, y, 5, (int[]){0, 2, 1, 3, 4}));
}
