/* SPDX-License-Identifier: Apache-2.0 */
/* References of ops that index, repeat and count, and of constants, group norm and bags, in
 * double precision. */
#ifndef SLUICE_TESTS_SUPPORT_REFERENCE_INDEXED_H
#define SLUICE_TESTS_SUPPORT_REFERENCE_INDEXED_H

#include "tests/support/reference_math.h"

static inline int ref_axis(const sl_attrs *attrs, const sl_type *x) {
  return attrs->along.axes ? __builtin_ctz(attrs->along.axes) : x->ndim - 1;
}

/* Returns the index in `to` of element e of `from`, with its position along `axis` replaced by
 * `at`. */
static inline int64_t ref_moved(const sl_type *from, const sl_type *to, int axis, int64_t e,
                                int64_t at) {
  int64_t place = 0, step = 1;
  for (int d = from->ndim - 1; d >= 0; e /= from->dim[d], step *= to->dim[d--]) {
    int64_t own = d == axis ? at : e % from->dim[d];
    if (to->dim[d] > 1) place += own * step;
  }
  return place;
}

/* Returns the index value for element e of an array of type `y`. */
static inline int64_t ref_index(const sl_type *y, const sl_type *index, const double *in, int axis,
                                int64_t e) {
  int64_t inner = 1;
  for (int d = axis + 1; d < y->ndim; d++) inner *= y->dim[d];
  return (int64_t)in[ref_moved(y, index, axis, e, e / inner % y->dim[axis])];
}

static inline void ref_gather(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  int axis = ref_axis(attrs, &type[0]);
  sl_type y = type[0];
  y.dim[axis] = type[1].dim[axis];
  for (int64_t e = 0; e < sl_type_elements(&y); e++)
    out[0][e] = in[0][ref_moved(&y, &type[0], axis, e, ref_index(&y, &type[1], in[1], axis, e))];
}

static inline void ref_scatter_add(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                   double *const *out) {
  int axis = ref_axis(attrs, &type[0]);
  sl_type y = type[0];
  y.dim[axis] = in[2] ? type[2].dim[axis] : attrs->place.whole;
  for (int64_t e = 0; e < sl_type_elements(&y); e++) out[0][e] = in[2] ? in[2][e] : 0;
  for (int64_t e = 0; e < sl_type_elements(&type[0]); e++) {
    int64_t at = ref_index(&type[0], &type[1], in[1], axis, e);
    out[0][ref_moved(&type[0], &y, axis, e, at)] += in[0][e];
  }
}

/* Ranks an element by counting the elements that come before it. */
static inline void ref_top_k(const sl_attrs *attrs, const sl_type *type, double *const *in,
                             double *const *out) {
  int axis = ref_axis(attrs, &type[0]);
  int64_t n = type[0].dim[axis], inner = 1;
  sl_type y = type[0];
  y.dim[axis] = attrs->along.k;
  for (int d = axis + 1; d < y.ndim; d++) inner *= y.dim[d];
  for (int64_t e = 0; e < sl_type_elements(&type[0]); e++) {
    int64_t own = e / inner % n, before = 0;
    for (int64_t k = 0; k < n; k++) {
      double other = in[0][e + (k - own) * inner];
      before += other > in[0][e] || (other == in[0][e] && k < own);
    }
    if (before >= attrs->along.k) continue;
    int64_t to = ref_moved(&type[0], &y, axis, e, before);
    if (attrs->along.k == 1) to = ref_moved(&type[0], &y, axis, e, 0);
    out[0][to] = in[0][e];
    out[1][to] = (double)own;
  }
}

static inline void ref_cumsum(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  int axis = ref_axis(attrs, &type[0]);
  int64_t n = type[0].dim[axis], inner = 1;
  for (int d = axis + 1; d < type[0].ndim; d++) inner *= type[0].dim[d];
  for (int64_t e = 0; e < sl_type_elements(&type[0]); e++) {
    int64_t own = e / inner % n;
    out[0][e] = 0;
    for (int64_t k = 0; k < n; k++) {
      bool counts = attrs->along.reverse ? k > own : k < own;
      if (counts || (k == own && !attrs->along.exclusive))
        out[0][e] += in[0][e + (k - own) * inner];
    }
  }
}

static inline void ref_expand(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  sl_type y = {.dtype = SL_F32, .ndim = type[1].ndim > 0 ? type[1].ndim : attrs->shape.ndims};
  for (int d = 0; d < y.ndim; d++) {
    int own = d - (y.ndim - type[0].ndim);
    y.dim[d] = type[1].ndim > 0 ? type[1].dim[d] : attrs->shape.dims[d];
    if (y.dim[d] == 0) y.dim[d] = own < 0 ? 1 : type[0].dim[own];
  }
  for (int64_t e = 0; e < sl_type_elements(&y); e++)
    out[0][e] = in[0][ref_place(&type[0], y.ndim, y.dim, e)];
}

static inline void ref_one_hot(const sl_attrs *attrs, const sl_type *type, double *const *in,
                               double *const *out) {
  for (int64_t e = 0; e < sl_type_elements(&type[0]) * attrs->one_hot.classes; e++)
    out[0][e] = (double)e == in[0][e / attrs->one_hot.classes] +
                                 (double)(e / attrs->one_hot.classes * attrs->one_hot.classes);
}

static inline void ref_cast(const sl_attrs *attrs, const sl_type *type, double *const *in,
                            double *const *out) {
  (void)attrs;
  for (int64_t e = 0; e < sl_type_elements(&type[0]); e++)
    out[0][e] = type[0].dtype == SL_I32 ? in[0][e] : trunc(in[0][e]);
}

static inline void ref_arange(const sl_attrs *attrs, const sl_type *type, double *const *in,
                              double *const *out) {
  (void)in;
  int axis = ref_axis(attrs, &type[0]);
  int64_t inner = 1;
  for (int d = axis + 1; d < type[0].ndim; d++) inner *= type[0].dim[d];
  for (int64_t e = 0; e < sl_type_elements(&type[0]); e++)
    out[0][e] = (double)(e / inner % type[0].dim[axis]);
}

static inline void ref_constant(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                double *const *out) {
  const sl_values *v = attrs->user;
  (void)type, (void)in;
  for (int64_t e = 0; e < sl_type_elements(&v->type); e++)
    out[0][e] = !v->values                ? (double)attrs->fill.value
                : v->type.dtype == SL_I32 ? (double)((const int32_t *)v->values)[e]
                                          : (double)((const float *)v->values)[e];
}

static inline void ref_batch_norm(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                  double *const *out) {
  int64_t N = type[0].dim[0], C = type[0].dim[1], inner = sl_type_elements(&type[0]) / N / C;
  double size = (double)(N * inner);
  for (int64_t c = 0; c < C; c++) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < N * inner; i++)
      mean += in[0][(i / inner * C + c) * inner + i % inner] / size;
    for (int64_t i = 0; i < N * inner; i++) {
      double away = in[0][(i / inner * C + c) * inner + i % inner] - mean;
      squares += away * away;
    }
    out[1][c] = attrs->norm.given ? in[3][c] : mean;
    out[2][c] = 1 / sqrt((attrs->norm.given ? in[4][c] : squares / size) + ref_eps(attrs));
    out[3][c] = attrs->norm.given ? in[4][c] : squares / (size - 1);
    for (int64_t i = 0; i < N * inner; i++) {
      int64_t e = (i / inner * C + c) * inner + i % inner;
      out[0][e] = (in[0][e] - out[1][c]) * out[2][c] * in[1][c] + in[2][c];
    }
  }
}

static inline void ref_group_norm(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                  double *const *out) {
  int64_t C = type[0].dim[1], G = attrs->norm.groups, all = sl_type_elements(&type[0]);
  int64_t size = all / type[0].dim[0] / G, inner = size / (C / G);
  for (int64_t g = 0; g < type[0].dim[0] * G; g++) {
    const double *x = in[0] + g * size;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < size; i++) mean += x[i] / (double)size;
    for (int64_t i = 0; i < size; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)size;
    double rstd = 1 / sqrt(variance + ref_eps(attrs));
    out[1][g] = mean;
    out[2][g] = rstd;
    for (int64_t i = 0; i < size; i++) {
      int64_t c = g % G * (C / G) + i / inner;
      out[0][g * size + i] = (x[i] - mean) * rstd * in[1][c] + in[2][c];
    }
  }
}

static inline void ref_embedding_bag(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                     double *const *out) {
  const sl_bag *bag = attrs->user;
  int64_t L = sl_type_last(&type[0]), C = type[1].dim[1];
  for (int64_t r = 0; r < sl_type_rows(&type[0]); r++)
    for (int64_t c = 0; c < C; c++) {
      double sum = 0, count = 0;
      for (int64_t l = r * L; l < (r + 1) * L; l++) {
        if (bag && bag->pads && in[0][l] == (double)bag->padding) continue;
        sum += in[1][(int64_t)in[0][l] * C + c] * (in[2] ? in[2][l] : 1);
        count++;
      }
      out[0][r * C + c] = bag && bag->mean && count > 0 ? sum / count : sum;
    }
}

#endif
