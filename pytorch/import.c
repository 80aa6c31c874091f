/* SPDX-License-Identifier: Apache-2.0 */
/* Functions shared by the rows of the call table: arguments, tensors of values, shapes. */
#include "pytorch/import.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ----------------------------------------------------------------------------- */

sli_pt_value *sli_pt_arg_value(const sli_pt_node *n, const char *name) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (!arg || arg->kind != SLI_PT_VALUE || arg->value->symbol) return NULL;
  arg->read = true;
  return arg->value;
}

sli_pt_value *sli_pt_first(const sli_pt_node *n) {
  return n->nargs ? sli_pt_arg_value(n, n->args[0].name) : NULL;
}

static double size_mul(double a, double b) { return a * b; }
static double size_add(double a, double b) { return a + b; }
static double size_sub(double a, double b) { return a - b; }
static double size_floordiv(double a, double b) { return b != 0 ? floor(a / b) : 0; }
static double size_truediv(double a, double b) { return b != 0 ? a / b : 0; }

/* Computes a size as a number. A number of rows becomes that of a microbatch, any other size its
 * example. */
static double symbol_number(const sli_import *m, const sli_pt_value *v) {
  static const struct {
    const char *name;
    double (*of)(double, double);
  } functions[] = {{"mul", size_mul},
                   {"add", size_add},
                   {"sub", size_sub},
                   {"floordiv", size_floordiv},
                   {"truediv", size_truediv}};
  const sli_pt_node *n = v->def;
  double a, b;
  if (n && strstr(n->target, "sym_size")) {
    const sli_pt_value *of = sli_pt_arg_value(n, n->args[0].name);
    bool rows = of && of->type.ndim && m->exported && of->type.dim[0] == m->exported &&
                !sli_pt_whole(m, n, "dim", 0) && v->hint == m->exported;
    return rows ? (double)m->rows : (double)v->hint;
  }
  const char *dot = n && n->nargs == 2 ? strrchr(n->target, '.') : NULL;
  for (size_t i = 0; dot && i < SLI_COUNT(functions); i++)
    if (!strcmp(dot + 1, functions[i].name) && sli_pt_scalar(m, &n->args[0], &a) &&
        sli_pt_scalar(m, &n->args[1], &b))
      return functions[i].of(a, b);
  return (double)v->hint;
}

bool sli_pt_scalar(const sli_import *m, const sli_pt_arg *arg, double *out) {
  if (!arg) return false;
  switch (arg->kind) {
  case SLI_PT_INT: return *out = (double)arg->i, true;
  case SLI_PT_FLOAT: return *out = arg->f, true;
  case SLI_PT_FLAG: return *out = arg->flag, true;
  case SLI_PT_VALUE:
    if (arg->value->symbol) return *out = symbol_number(m, arg->value), true;
    const sli_pt_array *a = sli_constant(m, arg->value);
    if (!a || !sli_pt_elements(&a->type) || !sli_pt_uniform(a)) return false;
    return *out = sli_pt_at(a, a->offset), true;
  case SLI_PT_ABSENT:
  case SLI_PT_TEXT:
  case SLI_PT_DTYPE:
  case SLI_PT_OTHER:
  case SLI_PT_LIST: break;
  }
  return false;
}

double sli_pt_number(const sli_import *m, const sli_pt_node *n, const char *name, double absent) {
  double v;
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (!sli_pt_scalar(m, arg, &v)) return absent;
  arg->read = true;
  return v;
}

int64_t sli_pt_whole(const sli_import *m, const sli_pt_node *n, const char *name, int64_t absent) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  double v;
  if (!sli_pt_scalar(m, arg, &v)) return absent;
  arg->read = true;
  return arg->kind == SLI_PT_INT ? arg->i : sli_pt_integer(v);
}

bool sli_pt_flag(const sli_pt_node *n, const char *name, bool absent) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (!arg || arg->kind != SLI_PT_FLAG) return absent;
  arg->read = true;
  return arg->flag;
}

sli_pt_dtype sli_pt_type_arg(const sli_pt_node *n, const char *name) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  if (!arg || arg->kind != SLI_PT_DTYPE) return SLI_PT_NONE;
  arg->read = true;
  return (sli_pt_dtype)arg->i;
}

/* Returns a dim counted from the beginning, clamped to the valid range. */
static int inside(int64_t dim, int ndim) {
  if (dim < 0) dim += ndim;
  return (int)SLI_MAX(0, SLI_MIN(dim, ndim - 1));
}

int sli_pt_dims(const sli_import *m, const sli_pt_node *n, const char *name, int ndim, int *out) {
  int64_t dims[SLI_PT_DIMS];
  int count = sli_pt_wholes(m, n, name, SLI_PT_DIMS, dims);
  uint32_t seen = 0;
  for (int i = 0; i < count; i++) {
    if (dims[i] < -ndim || dims[i] >= ndim) return -1;
    out[i] = (int)(dims[i] < 0 ? dims[i] + ndim : dims[i]);
    if (seen >> out[i] & 1) return -1;
    seen |= 1u << out[i];
  }
  return count;
}

bool sli_pt_order(const sli_import *m, const sli_pt_node *n, int ndim, int *out) {
  if (sli_pt_arg_find(n, "dims")) return sli_pt_dims(m, n, "dims", ndim, out) == ndim;
  bool named = sli_pt_arg_find(n, "dim0") != NULL; /* otherwise t() */
  bool axes = sli_pt_arg_find(n, "axis0") != NULL, last = strstr(n->target, ".mT.") != NULL;
  int a = sli_pt_dim(m, n, named ? "dim0" : "axis0", ndim, last ? -2 : 0);
  int b = sli_pt_dim(m, n, named ? "dim1" : "axis1", ndim, ndim - 1);
  if (!named && !axes && !last) a = 0, b = ndim - 1;
  bool reverses = strstr(n->target, "numpy_T") != NULL;
  for (int d = 0; d < ndim; d++) out[d] = reverses ? ndim - 1 - d : d == a ? b : d == b ? a : d;
  return true;
}

int sli_pt_dim(const sli_import *m, const sli_pt_node *n, const char *name, int ndim, int absent) {
  return inside(sli_pt_whole(m, n, name, absent), ndim);
}

int sli_pt_wholes(const sli_import *m, const sli_pt_node *n, const char *name, int most,
                  int64_t *out) {
  sli_pt_arg *arg = sli_pt_arg_peek(n, name);
  double v;
  if (!arg) return -1;
  if (arg->kind != SLI_PT_LIST)
    return sli_pt_scalar(m, arg, &v) && most > 0 ? (out[0] = sli_pt_whole(m, n, name, 0), 1) : -1;
  if (arg->list.count > most) return -1;
  arg->read = true;
  for (int i = 0; i < arg->list.count; i++) {
    const sli_pt_arg *one = &arg->list.of[i];
    if (one->kind == SLI_PT_INT) out[i] = one->i;
    else if (sli_pt_scalar(m, one, &v)) out[i] = sli_pt_integer(v);
    else return -1;
  }
  return arg->list.count;
}

uint32_t sli_pt_axes(const sli_import *m, const sli_pt_node *n, const char *name, int ndim) {
  int64_t dims[SLI_PT_DIMS];
  int count = sli_pt_wholes(m, n, name, SLI_PT_DIMS, dims);
  uint32_t all = (1u << ndim) - 1, axes = 0;
  for (int i = 0; i < count && ndim; i++) axes |= 1u << inside(dims[i], ndim);
  return count > 0 ? axes : all;
}

/* ---- refusal ------------------------------------------------------------------------------- */

void sli_pt_refuse(sli_import *m, const sli_pt_node *n, const char *format, ...) {
  char why[512];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  sl_graph_fail(m->g, SL_E_UNSUPPORTED, "%s: %s%s%s%s%.0d: %s", sli_archive_path(m->p->archive),
                n->target, n->file ? " at " : "", n->file ? n->file : "", n->file ? ":" : "",
                n->file ? n->line : 0, why);
}

/* ---- constants as tensors ------------------------------------------------------------------ */

sl_tensor *sli_pt_constant(sli_import *m, const sli_pt_array *a) {
  bool floats = sli_pt_floats(a->type.dtype);
  sl_type type = {.dtype = floats ? SL_F32 : SL_I32, .ndim = a->type.ndim};
  memcpy(type.dim, a->type.dim, sizeof type.dim);
  int64_t elements = sli_pt_elements(&a->type);
  if (!elements || elements > SLI_PT_MOST || a->type.ndim > SL_MAX_DIMS) {
    sl_graph_fail(m->g, SL_E_UNSUPPORTED, "%s: a constant of %lld elements and %d dims%s%s",
                  sli_archive_path(m->p->archive), (long long)elements, a->type.ndim,
                  m->at.file ? " at " : "", m->at.file ? m->at.file : "");
    return NULL;
  }
  if (sli_pt_uniform(a))
    return sl_filled_at(m->at, m->g, type, (float)sli_pt_at(a, a->offset), NULL);
  int64_t count = sl_type_elements(&type), index[SLI_PT_DIMS] = {0};
  int32_t *values = sl_graph_alloc(m->g, (size_t)count * sizeof *values);
  for (int64_t i = 0; i < count; i++, sli_pt_step(&a->type, index)) {
    double v = sli_pt_at(a, sli_pt_broadcast(a, a->type.ndim, index));
    float f = (float)v;
    if (floats) memcpy(&values[i], &f, sizeof f);
    else values[i] = (int32_t)fmax(fmin(v, INT32_MAX), INT32_MIN);
  }
  return sl_constant_at(m->at, m->g, type, values, NULL);
}

/* Makes zeros, from which row numbers and constants that repeat for each row are computed. */
sl_tensor *sli_pt_row_zeros(sli_import *m) {
  if (m->zeros || m->g->status) return m->zeros;
  for (int i = 0; i < m->p->ninputs && !m->zeros; i++) {
    const sli_pt_input *in = &m->p->inputs[i];
    sl_tensor *t = in->role == SLI_PT_USER ? sli_made_of(m, in->value)->tensor : NULL;
    if (!t || !t->type.ndim || t->type.dim[0] != m->rows || in->value->type.dim[0] != m->exported)
      continue;
    for (int d = 1; t && d < t->type.ndim; d++) t = sl_slice_at(m->at, m->g, t, d, 0, 1);
    t = t ? sli_pt_reshape(m, t, &SL_TYPE(SL_F32, m->rows)) : NULL;
    m->zeros = t ? sl_filled_at(m->at, m->g, SL_TYPE(SL_F32, m->rows), 0, t) : NULL;
  }
  return m->zeros;
}

/* Returns whether positions along dim 0 repeat after `period`. */
static bool has_period(const sli_pt_array *a, int64_t period) {
  int64_t n = sli_pt_elements(&a->type), index[SLI_PT_DIMS] = {0};
  if (n > SLI_PT_MOST) return false;
  for (int64_t i = 0; i < n; i++, sli_pt_step(&a->type, index)) {
    int64_t at = a->offset;
    for (int d = 0; d < a->type.ndim; d++) at += index[d] * a->stride[d];
    if (index[0] >= period && sli_pt_at(a, at) != sli_pt_at(a, at - period * a->stride[0]))
      return false;
  }
  return true;
}

/* Makes [rows * period, ...] from a constant [period, ...] that repeats for each row. */
static sl_tensor *tile(sli_import *m, const sli_pt_array *a, int64_t period) {
  sli_pt_array *one = sli_pt_array_view(&m->arena, a);
  one->type.dim[0] = period;
  sl_tensor *t = sli_pt_constant(m, one), *zeros = sli_pt_row_zeros(m);
  bool whole = t && t->type.dtype == SL_I32;
  if (whole) t = sl_cast_at(m->at, m->g, t, SL_F32);
  if (!t || !zeros || t->type.ndim == SL_MAX_DIMS) return NULL;
  sl_type rows = {.dtype = SL_F32, .ndim = t->type.ndim + 1}, out = t->type;
  for (int d = 0; d < rows.ndim; d++) rows.dim[d] = d ? 1 : m->rows;
  t = sl_add_at(m->at, m->g, sli_pt_reshape(m, zeros, &rows), t);
  out.dim[0] *= m->rows;
  t = t ? sl_reshape_at(m->at, m->g, t, out) : NULL;
  return t && whole ? sl_cast_at(m->at, m->g, t, SL_I32) : t;
}

/* Makes the numbers 0, 1, ... of the rows, i32 [rows]. */
static sl_tensor *row_numbers(sli_import *m) {
  sl_tensor *zeros = sli_pt_row_zeros(m);
  return zeros ? sl_arange_at(m->at, m->g, zeros, 0) : NULL;
}

/* Returns whether the array is 0, 1, 2, ... along its only dim. */
static bool counts(const sli_pt_array *a) {
  if (a->type.ndim != 1) return false;
  for (int64_t i = 0; i < a->type.dim[0]; i++)
    if (sli_pt_get(a, i) != (double)i) return false;
  return a->type.ndim == 1;
}

/* Makes a constant that may have rows. Along dim 0 it is constant, and then gets length 1; or is
 * periodic; or counts the rows. */
static sl_tensor *constant_with_rows(sli_import *m, const sli_pt_array *a) {
  int64_t length = a->type.ndim ? a->type.dim[0] : 0;
  if (!m->exported || m->exported == 1 || length < m->exported || length % m->exported)
    return sli_pt_constant(m, a);
  if (length == m->exported && sli_pt_repeats(a, 0)) {
    sli_pt_array *narrow = sli_pt_array_view(&m->arena, a);
    narrow->type.dim[0] = 1, narrow->stride[0] = 0;
    return sli_pt_constant(m, narrow);
  }
  if (length == m->exported && counts(a) && m->rows != m->exported) return row_numbers(m);
  if (length > m->exported && !sli_pt_uniform(a) && has_period(a, length / m->exported))
    return tile(m, a, length / m->exported);
  return sli_pt_constant(m, a);
}

sl_tensor *sli_pt_constant_beside(sli_import *m, const sli_pt_array *a, const sli_pt_type *exported,
                                  const sl_type *type) {
  sli_pt_array *narrow = sli_pt_array_view(&m->arena, a);
  int shift = type->ndim - a->type.ndim;
  for (int d = 0; d < a->type.ndim; d++) {
    int other = d + shift;
    bool there = other >= 0 && other < exported->ndim && a->type.dim[d] > 1 &&
                 exported->dim[other] == a->type.dim[d]; /* the other tensor has the dim */
    bool rows = there && type->dim[other] != exported->dim[other];
    if (there && (!a->stride[d] || (rows && sli_pt_repeats(a, d))))
      narrow->type.dim[d] = 1, narrow->stride[d] = 0;
  }
  return constant_with_rows(m, narrow);
}

/* Expands dims of length 1 that represent all rows, and takes the other lengths from `like`. */
sl_tensor *sli_pt_widen(sli_import *m, sl_tensor *t, sl_tensor *like, int but) {
  if (!t || !like || t->type.ndim != like->type.ndim) return t;
  bool same = true;
  for (int d = 0; d < t->type.ndim; d++) same &= d == but || t->type.dim[d] == like->type.dim[d];
  if (same) return t;
  if (but >= 0 && like->type.dim[but] != 1) like = sl_slice_at(m->at, m->g, like, but, 0, 1);
  if (!like || but < 0 || t->type.dim[but] == 1) return sl_expand_like_at(m->at, m->g, t, like);
  bool whole = t->type.dtype == SL_I32; /* longer than `like`: adds zeros of its shape */
  sl_type zeros = like->type;
  zeros.dtype = SL_F32;
  if (whole) t = sl_cast_at(m->at, m->g, t, SL_F32);
  t = sl_add_at(m->at, m->g, t, sl_filled_at(m->at, m->g, zeros, 0, like));
  return t && whole ? sl_cast_at(m->at, m->g, t, SL_I32) : t;
}

/* ---- inputs -------------------------------------------------------------------------------- */

/* Initial values of a parameter, read from the archive when needed. */
typedef struct initial {
  sl_given given;
  const sli_pt_program *p;
  const sli_pt_input *in;
} initial;

/* Reads float data as f32. A file that has become unreadable since it was opened yields NaN, which
 * the first loss shows. */
static void read_numbers(void *ctx, int64_t first, int64_t count, float *out) {
  const initial *from = ctx;
  sli_pt_type part = {.dtype = from->in->value->type.dtype, .ndim = 1, .dim = {count}};
  size_t width = (size_t)sli_pt_dtype_bytes(part.dtype);
  char *data = sli_calloc((size_t)count + 1, width);
  sli_arena arena = {0};
  const sli_pt_array *a = NULL;
  if (!sli_pt_input_part(from->p, from->in, first, count, data))
    a = sli_pt_array_of(&arena, &part, data);
  for (int64_t i = 0; i < count; i++) out[i] = a ? (float)a->of[i] : NAN;
  sli_arena_fini(&arena);
  free(data);
}

static void read_f32(void *ctx, int64_t first, int64_t count, float *out) {
  const initial *from = ctx;
  if (sli_pt_input_part(from->p, from->in, first, count, out))
    for (int64_t i = 0; i < count; i++) out[i] = NAN;
}

/* Makes a parameter with the archive's values. */
static sl_tensor *given_tensor(sli_import *m, sli_pt_input *in) {
  const sli_pt_type *from = &in->value->type;
  sl_type type = {.dtype = SL_F32, .ndim = from->ndim};
  memcpy(type.dim, from->dim, sizeof type.dim);
  initial *values = sl_graph_alloc(m->g, sizeof *values);
  uint64_t hash = sli_hash_word(SLI_HASH_SEED, sli_archive_checksum(m->p->archive, in->entry));
  *values =
      (initial){{from->dtype == SLI_PT_F32 ? read_f32 : read_numbers, values, hash}, m->p, in};
  return sl_param_at(m->at, m->g, type, SL_GIVEN(&values->given), "%s", in->name);
}

static sl_tensor *param_tensor(sli_import *m, sli_pt_input *in) {
  const sli_pt_type *from = &in->value->type;
  if (in->same) return sli_pt_tensor(m, in->same->value);
  if (!sli_pt_floats(from->dtype)) {
    sl_graph_fail(m->g, SL_E_UNSUPPORTED, "%s: parameter %s is %s; parameters are float tensors",
                  sli_archive_path(m->p->archive), in->name, sli_pt_dtype_name(from->dtype));
    return NULL;
  }
  sl_tensor *t = given_tensor(m, in);
  if (!from->trained || !sli_made_of(m, in->value)->learned) sl_freeze_at(m->at, m->g, in->name);
  return t;
}

sl_tensor *sli_pt_buffer(sli_import *m, const sli_pt_value *v) {
  sli_pt_input *in = v ? v->input : NULL;
  if (!in || in->role != SLI_PT_BUFFER || m->g->status) return NULL;
  if (in->same) return sli_pt_buffer(m, in->same->value);
  sli_made *made = sli_made_of(m, v);
  if (!made->tensor) made->tensor = given_tensor(m, in);
  return made->tensor;
}

/* ---- tensors of values --------------------------------------------------------------------- */

sl_tensor *sli_pt_tensor(sli_import *m, const sli_pt_value *v) {
  sli_made *made = v ? sli_made_of(m, v) : NULL;
  if (!v || m->g->status) return NULL;
  if (made->tensor) return made->tensor;
  if (v->input && v->input->role == SLI_PT_PARAM) return made->tensor = param_tensor(m, v->input);
  if (made->array) return constant_with_rows(m, made->array);
  sl_graph_fail(m->g, SL_E_UNSUPPORTED, "%s: %s is not known where it is read",
                sli_archive_path(m->p->archive), v->name);
  return NULL;
}

sl_tensor *sli_pt_f32(sli_import *m, const sli_pt_value *v) {
  sl_tensor *t = sli_pt_tensor(m, v);
  return t && t->type.dtype == SL_I32 ? sl_cast_at(m->at, m->g, t, SL_F32) : t;
}

sl_tensor *sli_pt_i32(sli_import *m, const sli_pt_value *v) {
  sl_tensor *t = sli_pt_tensor(m, v);
  return t && t->type.dtype == SL_F32 ? sl_cast_at(m->at, m->g, t, SL_I32) : t;
}

sl_tensor *sli_pt_narrow(sli_import *m, sl_tensor *t) {
  return t && t->type.dtype == SL_F64 ? sl_op1_at(m->at, m->g, &sl_op_to_f32, NULL, t) : t;
}

sl_tensor *sli_pt_unrepeated(sli_import *m, const sli_pt_value *v) {
  const sli_pt_array *a = v ? sli_constant(m, v) : NULL;
  return a && m->rows == m->exported ? sli_pt_constant(m, a) : sli_pt_tensor(m, v);
}

sl_tensor *sli_pt_in(sli_import *m, const sli_pt_node *n, const char *name) {
  return sli_pt_f32(m, sli_pt_arg_value(n, name));
}

sl_tensor *sli_pt_in_i32(sli_import *m, const sli_pt_node *n, const char *name) {
  return sli_pt_i32(m, sli_pt_arg_value(n, name));
}

void sli_pt_out(sli_import *m, const sli_pt_node *n, int i, sl_tensor *t) {
  if (i < n->nouts && n->outs[i]) sli_made_of(m, n->outs[i])->tensor = t;
}

void sli_pt_out_array(sli_import *m, const sli_pt_node *n, int i, sli_pt_array *a) {
  if (i < n->nouts && n->outs[i]) sli_made_of(m, n->outs[i])->array = a;
}

/* ---- shapes -------------------------------------------------------------------------------- */

/* Scales the dims of one group, `to` from t to t_end, by the ratio of the actual to the exported
 * lengths of `from`. */
static bool scale_group(const sl_type *x, const sli_pt_type *from, int f, int f_end,
                        const sli_pt_type *to, int t, int t_end, sl_type *out) {
  int64_t above = 1, below = 1;
  for (; f < f_end; f++) above *= x->dim[f], below *= from->dim[f];
  for (int d = t; d < t_end; d++) out->dim[d] = to->dim[d];
  if (above == below) return true;
  for (int d = t; d < t_end; d++) {
    if (to->dim[d] == 1 && t_end - t > 1 && below > 1) continue;
    if (to->dim[d] * above % below) continue;
    out->dim[d] = to->dim[d] * above / below;
    return true;
  }
  return false;
}

bool sli_pt_view_dims(const sl_type *x, const sli_pt_type *from, const sli_pt_type *to,
                      sl_type *out) {
  int f = 0, t = 0;
  *out = (sl_type){.dtype = x->dtype, .ndim = to->ndim};
  if (x->ndim != from->ndim) return false;
  while (f < from->ndim || t < to->ndim) {
    int f_end = f, t_end = t;
    int64_t a = 1, b = 1;
    if (f_end < from->ndim) a = from->dim[f_end++];
    if (t_end < to->ndim) b = to->dim[t_end++];
    while (a != b) {
      if (a < b && f_end < from->ndim) a *= from->dim[f_end++];
      else if (b < a && t_end < to->ndim) b *= to->dim[t_end++];
      else return false;
    }
    if (!scale_group(x, from, f, f_end, to, t, t_end, out)) return false;
    f = f_end, t = t_end;
  }
  return true;
}

static bool same_dims(const sl_type *a, const sl_type *b) {
  bool same = a->ndim == b->ndim;
  for (int d = 0; same && d < a->ndim; d++) same = a->dim[d] == b->dim[d];
  return same;
}

sl_tensor *sli_pt_reshape(sli_import *m, sl_tensor *x, const sl_type *to) {
  if (!x || m->g->status) return NULL;
  if (to->ndim) x = sli_pt_narrow(m, x);
  while (x && x->producer && x->producer->op == &sl_op_reshape && !same_dims(&x->type, to))
    x = x->producer->in[0];
  return !x || same_dims(&x->type, to) ? x : sl_reshape_at(m->at, m->g, x, *to);
}

sl_tensor *sli_pt_permute(sli_import *m, sl_tensor *x, int ndim, const int *order) {
  if (!x || m->g->status) return NULL;
  int all[SL_MAX_DIMS];
  memcpy(all, order, (size_t)ndim * sizeof *all);
  if (x->producer && x->producer->op == &sl_op_permute) {
    for (int d = 0; d < ndim; d++) all[d] = (int)x->producer->attrs.dims[order[d]];
    x = x->producer->in[0];
  }
  sl_type dims = {.dtype = SL_I32, .ndim = ndim};
  bool same = true, ones = true;
  int64_t last = -1;
  for (int d = 0; d < ndim; d++) {
    dims.dim[d] = all[d];
    same &= all[d] == d;
    if (x->type.dim[all[d]] == 1) continue;
    ones &= all[d] > last;
    last = all[d];
  }
  if (same) return x;
  if (!ones) return sl_permute_at(m->at, m->g, x, dims);
  sl_type to = {.dtype = x->type.dtype, .ndim = ndim}; /* only dims of length 1 are moved */
  for (int d = 0; d < ndim; d++) to.dim[d] = x->type.dim[all[d]];
  return sli_pt_reshape(m, x, &to);
}

sl_tensor *sli_pt_add_dim(sli_import *m, sl_tensor *t, int dim) {
  if (!t || t->type.ndim == SL_MAX_DIMS) return NULL;
  sl_type to = t->type;
  memmove(to.dim + dim + 1, to.dim + dim, (size_t)(to.ndim - dim) * sizeof *to.dim);
  to.dim[dim] = 1;
  to.ndim++;
  return sli_pt_reshape(m, t, &to);
}

/* ---- calls that change nothing ------------------------------------------------------------- */

static bool is_float_value(const sli_pt_value *v) { return v && sli_pt_floats(v->type.dtype); }

/* Returns whether the call only passes on its first argument. */
static bool passes_on(const sli_import *m, const sli_pt_node *n) {
  static const char *const always[] = {"aten.alias.default", "aten.contiguous.default",
                                       "aten.clone.default", "aten.lift_fresh_copy.default", NULL};
  static const char *const views[] = {"aten.view.default", "aten.reshape.default",
                                      "aten.expand.default", NULL};
  const sli_pt_value *in = n->nargs && n->args[0].kind == SLI_PT_VALUE ? n->args[0].value : NULL;
  if (!in || n->nouts != 1 || !n->outs[0]) return false;
  for (int i = 0; always[i]; i++)
    if (!strcmp(n->target, always[i])) return true;
  for (int i = 0; views[i]; i++)
    if (!strcmp(n->target, views[i])) return sli_pt_same_dims(&in->type, &n->outs[0]->type);
  if (!strncmp(n->target, "aten.to.", 8) || !strcmp(n->target, "aten.type_as.default") ||
      !strcmp(n->target, "aten._to_copy.default"))
    return in->type.dtype == n->outs[0]->type.dtype ||
           (is_float_value(in) && is_float_value(n->outs[0]));
  return !strcmp(n->target, "aten.dropout.default") &&
         (!sli_pt_flag(n, "train", true) || sli_pt_number(m, n, "p", 0.5) == 0);
}

const sli_pt_value *sli_pt_peel(const sli_import *m, const sli_pt_value *v) {
  while (v && v->def && !sli_constant(m, v) && passes_on(m, v->def)) v = v->def->args[0].value;
  return v;
}

const sli_pt_node *sli_pt_made_by(const sli_import *m, const sli_pt_value *v, const char *target) {
  v = sli_pt_peel(m, v);
  bool is = v && v->def && !strcmp(v->def->target, target) && sli_pt_plain(v->def);
  return is ? v->def : NULL;
}
