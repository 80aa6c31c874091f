/* SPDX-License-Identifier: Apache-2.0 */
/* Bags of embeddings: sums, means and maxima of rows of a table. */
#include <math.h>

#include "pytorch/emit.h"

/* Returns the length of all bags, or 0 if it differs or depends on data. */
static int64_t bag_length(const sli_import *m, const sli_pt_value *ids, const sli_pt_value *begin) {
  const sli_pt_array *a = begin ? sli_constant(m, begin) : NULL;
  if (!a || a->type.ndim != 1 || ids->type.ndim != 1 || a->type.dim[0] < 1) return 0;
  int64_t length = ids->type.dim[0] / a->type.dim[0];
  if (length * a->type.dim[0] != ids->type.dim[0]) return 0;
  for (int64_t i = 0; i < a->type.dim[0]; i++)
    if (sli_pt_get(a, i) != (double)(i * length)) return 0;
  return length;
}

/* Makes bags [bags, length] of a tensor of all bags' elements. */
static sl_tensor *in_bags(sli_import *m, sl_tensor *t, int64_t length) {
  if (!t) return NULL;
  sl_type type = {.dtype = t->type.dtype, .ndim = 2, .dim = {t->type.dim[0] / length, length}};
  return sli_pt_reshape(m, t, &type);
}

/* Returns the maxima over the rows of each bag, without padding; 0 if a bag has only that. */
static sl_tensor *maxima(sli_import *m, sl_tensor *ids, sl_tensor *table, int64_t padding) {
  const sl_attrs attrs = {.along.axes = 1u << 1};
  sl_tensor *y = sl_op2_at(m->at, m->g, &sl_op_embedding, NULL, ids, table),
            *most[2] = {NULL, NULL};
  sl_tensor *lowest = sli_pt_filled_like(m, y, -INFINITY), *zero = sli_pt_filled_like(m, y, 0);
  if (padding >= 0 && y) {
    sl_type type = {.dtype = SL_I32, .ndim = 1, .dim = {1}};
    sl_tensor *id = sl_filled_at(m->at, m->g, type, (float)padding, NULL);
    sl_tensor *pads = sl_op2_at(m->at, m->g, &sl_op_eq, NULL, ids, id);
    pads = pads ? sli_pt_add_dim(m, pads, 2) : NULL;
    y = sl_op3_at(m->at, m->g, &sl_op_where, NULL, pads, lowest, y);
  }
  sl_apply_at(m->at, m->g, &sl_op_reduce_max, &attrs, 1, &y, 0, most);
  if (padding < 0) return most[0];
  sl_tensor *none = sl_op2_at(m->at, m->g, &sl_op_eq, NULL, most[0], lowest);
  return sl_op3_at(m->at, m->g, &sl_op_where, NULL, none, zero, most[0]);
}

void sli_emit_embedding_bag(sli_import *m, const sli_pt_node *n, const sli_pt_call *row) {
  (void)row;
  enum { SUM, MEAN, MAX };
  const sli_pt_value *all = sli_pt_arg_value(n, "indices");
  const sli_pt_value *by = sli_pt_arg_value(n, "per_sample_weights");
  if (sli_pt_flag(n, "scale_grad_by_freq", false) || sli_pt_flag(n, "include_last_offset", false)) {
    sli_pt_refuse(m, n, "scale_grad_by_freq and include_last_offset are not supported");
    return;
  }
  int64_t length = all ? bag_length(m, all, sli_pt_arg_value(n, "offsets")) : 0;
  if (!length) {
    sli_pt_refuse(m, n,
                  "bags of different lengths are not supported; give ids [bags, length], "
                  "filled up with padding_idx");
    return;
  }
  int64_t mode = sli_pt_whole(m, n, "mode", SUM), padding = sli_pt_whole(m, n, "padding_idx", -1);
  sl_tensor *table = sli_pt_in(m, n, "weight"), *ids = in_bags(m, sli_pt_i32(m, all), length);
  sl_tensor *weights = by ? in_bags(m, sli_pt_f32(m, by), length) : NULL;
  if (!table || !ids) return;
  const sl_bag bag = {.mean = mode == MEAN, .pads = padding >= 0, .padding = (int32_t)padding};
  sli_pt_out(m, n, 0,
             mode == MAX ? maxima(m, ids, table, padding)
                         : sl_embedding_bag_at(m->at, m->g, ids, table, weights, &bag));
}
