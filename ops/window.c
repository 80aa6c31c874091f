/* SPDX-License-Identifier: Apache-2.0 */
/* Geometry of windows on images. A sequence is an image of height 1. */
#include "ops/ops.h"
#include "ops/layout.h"

static const sl_window plain;

static const sl_window *record_of(const sl_attrs *attrs) {
  return attrs->user ? attrs->user : &plain;
}

static int64_t or_else(int64_t value, int64_t otherwise) { return value ? value : otherwise; }

/* Returns the dim of an array along axis a of an image, or 0 if there is none. */
static int dim_along(const sl_type *type, int a) { return type->ndim == 4 ? 2 + a : a ? 2 : 0; }

static int64_t length_along(const sl_type *type, int a) {
  int d = dim_along(type, a);
  return d ? type->dim[d] : 1;
}

static int64_t reach(const sli_window *w, int a) { return w->dilation[a] * (w->size[a] - 1) + 1; }

sli_window sli_window_of(const sl_attrs *attrs, const sl_type *x, const sl_type *w) {
  const sl_window *r = record_of(attrs);
  sli_window to = {.images = x->dim[0], .channels = x->dim[1], .groups = or_else(r->groups, 1)};
  for (int a = 0; a < 2; a++) {
    to.in[a] = length_along(x, a);
    to.size[a] = w ? length_along(w, a) : or_else(r->size[a], to.in[a]);
    to.stride[a] = or_else(r->stride[a], w ? 1 : to.size[a]);
    to.pad[a] = r->pad[a];
    to.dilation[a] = or_else(r->dilation[a], 1);
    to.out[a] = (to.in[a] + 2 * to.pad[a] - reach(&to, a)) / to.stride[a] + 1;
  }
  return to;
}

/* ---- checks ------------------------------------------------------------------------------ */

static sl_status check_numbers(const sl_window *r, const sl_type *x) {
  enum { MOST = 1 << 24 };
  const int64_t *const of[] = {r->size, r->stride, r->pad, r->dilation};
  static const char *const names[] = {"size", "stride", "pad", "dilation"};
  for (int i = 0; i < 4; i++)
    for (int a = 0; a < 2; a++) {
      if (of[i][a] < 0 || of[i][a] > MOST)
        return sl_fail(SL_E_SHAPE, "%s must be from 0 to %d, got %lld", names[i], MOST,
                       (long long)of[i][a]);
      if (of[i][a] && !dim_along(x, a))
        return sl_fail(SL_E_SHAPE, "%s[0] must be 0 for sequences, which use %s[1]", names[i],
                       names[i]);
    }
  if (r->groups < 0) return sl_fail(SL_E_SHAPE, "groups must not be negative");
  return SL_OK;
}

static sl_status check_pool(const sl_window *r, const sli_window *w) {
  if (r->groups || r->dilation[0] || r->dilation[1])
    return sl_fail(SL_E_SHAPE, "pooling does not take groups or dilation");
  for (int a = 0; a < 2; a++)
    if (2 * w->pad[a] > w->size[a])
      return sl_fail(SL_E_SHAPE,
                     "the padding of a pool must be at most half its size %lld, got %lld",
                     (long long)w->size[a], (long long)w->pad[a]);
  return SL_OK;
}

static sl_status check_kernel(const sl_window *r, const sli_window *w, const sl_type *x,
                              const sl_type *kernel) {
  if (r->size[0] || r->size[1])
    return sl_fail(SL_E_SHAPE,
                   "size is for pools only; a convolution's size is that of its weight");
  if (w->channels % w->groups)
    return sli_misfit(x, "x must have channels in %lld equal groups", (long long)w->groups);
  if (kernel->dim[1] != w->channels / w->groups)
    return sli_misfit(kernel, "weight must be f32[o, %lld, ...]",
                      (long long)(w->channels / w->groups));
  if (kernel->dim[0] % w->groups)
    return sli_misfit(kernel, "weight must have outputs in %lld equal groups",
                      (long long)w->groups);
  return SL_OK;
}

static sl_status want_image(const char *name, const sl_type *type) {
  if (type->ndim == 3 || type->ndim == 4) return sli_want_array(name, type, SL_F32, type->ndim);
  return sli_misfit(type, "%s must be f32[n, c, h, w] or f32[n, c, w]", name);
}

sl_status sli_window_check(const sl_attrs *attrs, const sl_type *x, const sl_type *w) {
  const sl_window *r = record_of(attrs);
  SLI_TRY(want_image("x", x));
  if (w) SLI_TRY(sli_want_array("weight", w, SL_F32, x->ndim));
  SLI_TRY(check_numbers(r, x));
  sli_window to = sli_window_of(attrs, x, w);
  SLI_TRY(w ? check_kernel(r, &to, x, w) : check_pool(r, &to));
  for (int a = 0; a < 2; a++)
    if (reach(&to, a) > to.in[a] + 2 * to.pad[a])
      return sl_fail(
          SL_E_SHAPE,
          "a window of %lld does not fit into %lld positions with a padding of %lld on both sides",
          (long long)reach(&to, a), (long long)to.in[a], (long long)to.pad[a]);
  return SL_OK;
}

sl_type sli_window_output(const sli_window *window, const sl_type *x, int64_t channels) {
  sl_type type = *x;
  type.dim[1] = channels;
  for (int a = 0; a < 2; a++)
    if (dim_along(x, a)) type.dim[dim_along(x, a)] = window->out[a];
  return type;
}

uint64_t sli_window_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  const sl_window *r = attrs->user;
  if (!r) return hash;
  for (int a = 0; a < 2; a++) {
    hash = sli_hash_word(hash, (uint64_t)r->size[a]);
    hash = sli_hash_word(hash, (uint64_t)r->stride[a]);
    hash = sli_hash_word(hash, (uint64_t)r->pad[a]);
    hash = sli_hash_word(hash, (uint64_t)r->dilation[a]);
  }
  return sli_hash_word(hash, (uint64_t)r->groups);
}
