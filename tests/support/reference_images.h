/* SPDX-License-Identifier: Apache-2.0 */
/* References of the image ops, in double precision. */
#ifndef SLUICE_TESTS_SUPPORT_REFERENCE_IMAGES_H
#define SLUICE_TESTS_SUPPORT_REFERENCE_IMAGES_H

#include "ops/layout.h"
#include "tests/support/reference_kernels.h"

/* Returns value (c, h, w) of an image with `channels` channels, 0 beyond the edges. */
static inline double ref_pixel(const sli_window *w, const double *x, int64_t plane, int64_t i,
                               int64_t j) {
  bool inside = i >= 0 && i < w->in[0] && j >= 0 && j < w->in[1];
  return inside ? x[(plane * w->in[0] + i) * w->in[1] + j] : 0;
}

/* Returns one value of a convolution; o counts through all groups. */
static inline double ref_conv_at(const sli_window *w, const double *x, const double *kernel,
                                 int64_t n, int64_t o, int64_t outputs, const int64_t *at) {
  int64_t channels = w->channels / w->groups, first = o / (outputs / w->groups) * channels;
  double sum = 0;
  for (int64_t c = 0; c < channels; c++)
    for (int64_t k = 0; k < w->size[0]; k++)
      for (int64_t l = 0; l < w->size[1]; l++) {
        int64_t i = at[0] * w->stride[0] - w->pad[0] + k * w->dilation[0];
        int64_t j = at[1] * w->stride[1] - w->pad[1] + l * w->dilation[1];
        sum += kernel[((o * channels + c) * w->size[0] + k) * w->size[1] + l] *
               ref_pixel(w, x, n * w->channels + first + c, i, j);
      }
  return sum;
}

static inline void ref_conv(const sl_attrs *attrs, const sl_type *type, double *const *in,
                            double *const *out) {
  sli_window w = sli_window_of(attrs, &type[0], &type[1]);
  int64_t outputs = type[1].dim[0];
  double *y = out[0];
  for (int64_t n = 0; n < w.images; n++)
    for (int64_t o = 0; o < outputs; o++)
      for (int64_t i = 0; i < w.out[0]; i++)
        for (int64_t j = 0; j < w.out[1]; j++)
          *y++ = ref_conv_at(&w, in[0], in[1], n, o, outputs, (int64_t[]){i, j}) +
                 (in[2] ? in[2][o] : 0);
}

static inline void ref_pool(const sl_attrs *attrs, const sl_type *type, double *const *in,
                            double *const *out, bool mean) {
  sli_window w = sli_window_of(attrs, &type[0], NULL);
  double *y = out[0];
  for (int64_t plane = 0; plane < w.images * w.channels; plane++)
    for (int64_t i = 0; i < w.out[0]; i++)
      for (int64_t j = 0; j < w.out[1]; j++) {
        double top = -INFINITY, sum = 0;
        for (int64_t k = 0; k < w.size[0]; k++)
          for (int64_t l = 0; l < w.size[1]; l++) {
            int64_t r = i * w.stride[0] - w.pad[0] + k, c = j * w.stride[1] - w.pad[1] + l;
            sum += ref_pixel(&w, in[0], plane, r, c);
            if (r >= 0 && r < w.in[0] && c >= 0 && c < w.in[1])
              top = fmax(top, ref_pixel(&w, in[0], plane, r, c));
          }
        *y++ = mean ? sum / (double)(w.size[0] * w.size[1]) : top;
      }
}

static inline void ref_max_pool(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                double *const *out) {
  ref_pool(attrs, type, in, out, false);
}

static inline void ref_mean_pool(const sl_attrs *attrs, const sl_type *type, double *const *in,
                                 double *const *out) {
  ref_pool(attrs, type, in, out, true);
}

#endif
