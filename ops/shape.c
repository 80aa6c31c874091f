/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for shape rules. The text of a misfit says what was expected; the graph adds the op and
 * the tensor. */
#include <stdarg.h>
#include <stdio.h>

#include "ops/ops.h"

sl_status sli_misfit(const sl_type *got, const char *expected, ...) {
  char want[256], type[SL_TYPE_TEXT];
  va_list args;
  va_start(args, expected);
  vsnprintf(want, sizeof want, expected, args);
  va_end(args);
  return sl_fail(SL_E_SHAPE, "%s, got %s", want, sl_type_format(type, got));
}

sl_status sli_want(const char *name, const sl_type *got, const sl_type *want) {
  char type[SL_TYPE_TEXT];
  if (got->ndim >= 0 && sl_type_equal(got, want)) return SL_OK;
  return sli_misfit(got, "%s must be %s", name, sl_type_format(type, want));
}

sl_status sli_want_array(const char *name, const sl_type *got, sl_dtype dtype, int ndim) {
  static const char *const dims[] = {"scalar", "[n]", "[m, n]", "[l, m, n]", "[k, l, m, n]"};
  bool fits = got->dtype == dtype && (ndim < 0 ? got->ndim >= 1 : got->ndim == ndim);
  for (int d = 0; fits && d < got->ndim; d++) fits = got->dim[d] > 0;
  if (fits) return SL_OK;
  return sli_misfit(got, "%s must be %s%s%s", name, sl_dtype_name(dtype), ndim ? "" : " ",
                    ndim < 0 ? "[..., n]" : dims[ndim]);
}

sl_status sli_want_numbers(const char *name, const sl_type *got) {
  if (got->dtype == SL_F64 && !got->ndim) return SL_OK;
  if (got->dtype == SL_F32 && got->ndim >= 0)
    return sli_want_array(name, got, SL_F32, got->ndim ? -1 : 0);
  return sli_misfit(got, "%s must be f32 or an f64 scalar", name);
}

sl_type sli_type_with_last(const sl_type *type, int64_t last) {
  sl_type t = *type;
  t.dim[t.ndim - 1] = last;
  return t;
}

sl_type sli_type_without_last(const sl_type *type, sl_dtype dtype) {
  sl_type t = *type;
  t.dtype = dtype;
  t.dim[--t.ndim] = 0;
  return t;
}

int sli_mean_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs;
  if (in[0].ndim != 1) return 0;
  out[0] = (sl_signature){.out = {sli_partial()}};
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0);
  return 1;
}

double sli_argument_bytes(int nin, const sl_type *in, int nout, const sl_type *out) {
  double bytes = 0;
  for (int i = 0; i < nin; i++)
    if (in[i].ndim >= 0) bytes += (double)sl_type_bytes(&in[i]);
  for (int o = 0; o < nout; o++) bytes += (double)sl_type_bytes(&out[o]);
  return bytes;
}
