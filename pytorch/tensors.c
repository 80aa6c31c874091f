/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a program's values: constants, inputs, and results in the form that a call reads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/functions.h"
#include "pytorch/rows.h"

/* ---- constants as tensors ------------------------------------------------------------------ */

/* Refuses integers that do not fit. */
static bool fits_32_bits(sli_import *m, const sli_pt_array *a) {
  int64_t count = sli_pt_elements(&a->type);
  for (int64_t i = 0; i < count; i++) {
    double v = sli_pt_get(a, i);
    if (v >= INT32_MIN && v <= INT32_MAX) continue;
    sl_graph_fail(m->g, SL_E_UNSUPPORTED,
                  "%s: a constant of integers holds %.0f, which does not fit 32 bits%s%s",
                  sli_archive_path(m->p->archive), v, m->at.file ? " at " : "",
                  m->at.file ? m->at.file : "");
    return false;
  }
  return true;
}

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
  if (!floats && !fits_32_bits(m, a)) return NULL;
  if (sli_pt_uniform(a) && (floats || fabs(sli_pt_at(a, a->offset)) <= 0x1p24))
    return sl_filled_at(m->at, m->g, type, (float)sli_pt_at(a, a->offset), NULL);
  int64_t count = sl_type_elements(&type), index[SLI_PT_DIMS] = {0};
  int32_t *values = sl_graph_alloc(m->g, (size_t)count * sizeof *values);
  for (int64_t i = 0; i < count; i++, sli_pt_step(&a->type, index)) {
    double v = sli_pt_at(a, sli_pt_broadcast(a, a->type.ndim, index));
    float f = (float)v;
    if (floats) memcpy(&values[i], &f, sizeof f);
    else values[i] = (int32_t)v;
  }
  return sl_constant_at(m->at, m->g, type, values, NULL);
}

/* Makes zeros, from which row numbers and constants that repeat for each row are computed. */
sl_tensor *sli_pt_row_zeros(sli_import *m) {
  if (m->zeros || m->g->status) return m->zeros;
  for (int i = 0; i < m->p->ninputs && !m->zeros; i++) {
    const sli_pt_input *in = &m->p->inputs[i];
    sl_tensor *t = in->role == SLI_PT_USER ? sli_made_of(m, in->value)->tensor : NULL;
    if (!t || !t->type.ndim || !sli_has_rows(sli_rows_of(m, t), 0)) continue;
    for (int d = 1; t && d < t->type.ndim; d++) t = sl_slice_at(m->at, m->g, t, d, 0, 1);
    t = t ? sli_pt_reshape(m, t, &SL_TYPE(SL_F32, m->rows)) : NULL;
    sli_rows_set_first(m, t);
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
  const sli_rows merged = {.dim = {{1, period, false}}};
  sli_rows_set(m, t, &merged);
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

bool sli_pt_may_be_rows(const sli_import *m, const sli_pt_type *type, int d) {
  return m->p->rows ? (type->rows >> d & 1) != 0 : m->exported > 1 && type->dim[d] == m->exported;
}

/* Makes a constant that differs along dim 0, a dim of rows. */
static sl_tensor *differing(sli_import *m, const sli_pt_array *a) {
  int64_t period = a->type.dim[0] / SLI_MAX(m->exported, 1);
  bool known = m->p->rows && a->type.rows & 1;
  if (known && period == 1 && counts(a)) return row_numbers(m);
  if (period > 1 && !sli_pt_uniform(a) && has_period(a, period)) return tile(m, a, period);
  return sli_pt_constant(m, a);
}

/* Makes a constant that may have rows. Dims of rows in which it is constant get length 1. Otherwise
 * it is periodic, or counts the rows. */
static sl_tensor *constant_with_rows(sli_import *m, const sli_pt_array *a) {
  sli_pt_array *narrow = sli_pt_array_view(&m->arena, a);
  bool differs = false;
  for (int d = 0; d < a->type.ndim; d++) {
    if (!sli_pt_may_be_rows(m, &a->type, d) || (!m->p->rows && d)) continue;
    if (sli_pt_repeats(a, d)) narrow->type.dim[d] = 1, narrow->stride[d] = 0;
    else differs = true;
  }
  bool some = a->type.ndim && m->exported > 1 && a->type.dim[0] % m->exported == 0 &&
              narrow->type.dim[0] > 1;
  return (m->p->rows ? differs : some) ? differing(m, narrow) : sli_pt_constant(m, narrow);
}

/* Returns whether a dim of a constant has the length of a dim of another tensor. */
static bool is_beside(const sli_pt_array *a, int d, const sli_pt_type *exported, int other) {
  return other >= 0 && other < exported->ndim && a->type.dim[d] > 1 &&
         exported->dim[other] == a->type.dim[d];
}

sl_tensor *sli_pt_constant_beside(sli_import *m, const sli_pt_array *a, const sli_pt_type *exported,
                                  const sl_tensor *beside) {
  const sli_rows *rows = sli_rows_of(m, beside);
  sli_pt_array *narrow = sli_pt_array_view(&m->arena, a);
  int shift = beside->type.ndim - a->type.ndim;
  bool settled = false; /* dim 0 is known to have rows, or none */
  for (int d = 0; d < a->type.ndim; d++) {
    int other = d + shift;
    if (!is_beside(a, d, exported, other)) continue;
    bool has = sli_has_rows(rows, other);
    bool fixed = !has && beside->type.dim[other] == a->type.dim[d];
    if (!a->stride[d] || (has && sli_pt_repeats(a, d)))
      narrow->type.dim[d] = 1, narrow->stride[d] = 0;
    else if (has && m->rows != m->exported &&
             (d || rows->dim[other].outer > 1 || !has_period(a, rows->dim[other].inner))) {
      sli_pt_refuse(m, m->now,
                    "a constant differs by row: it has numbers for the %lld rows of the "
                    "exported batch, and a microbatch has %lld",
                    (long long)m->exported, (long long)m->rows);
      return NULL;
    } else if (has && !d && m->rows != m->exported) return tile(m, narrow, rows->dim[other].inner);
    settled |= !d && (has || fixed);
  }
  return settled ? sli_pt_constant(m, narrow) : constant_with_rows(m, narrow);
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

/* Reads float data as f32. A file that changes after it was checked yields NaN, which the first
 * loss shows. */
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
  bool used = sl_graph_reads_data(m->g) || sl_graph_infer(m->g);
  if (used && sli_archive_verify(m->p->archive, in->entry)) {
    sl_graph_fail(m->g, SL_E_INPUT, "%s", sl_detail());
    return NULL;
  }
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

/* ---- repeated dims --------------------------------------------------------------------------- */

sl_tensor *sli_pt_expand_repeated(sli_import *m, sl_tensor *t, const sli_pt_type *type,
                                  uint32_t dims) {
  if (!t || t->type.ndim != type->ndim) return t;
  sli_rows rows = *sli_rows_of(m, t);
  sl_type to = t->type;
  bool any = false, has = sli_any_rows(&rows); /* rows enter another dim, so hardly this one */
  for (int d = 0; d < to.ndim; d++) {
    if (!(dims >> d & 1) || to.dim[d] != 1 || type->dim[d] == 1 || sli_has_rows(&rows, d)) continue;
    bool known = m->p->rows && type->rows >> d & 1;
    if (!known && !has && sli_pt_may_be_rows(m, type, d) && m->rows != m->exported) {
      sli_pt_refuse(m, m->now,
                    "dim %d, of %lld, may be the rows of the exported batch, or not; "
                    "export with torch.export.Dim, or with a batch size that no other dim has",
                    d, (long long)type->dim[d]);
      return NULL;
    }
    to.dim[d] = known ? type->dim[d] / m->exported * m->rows : type->dim[d];
    if (known) rows.dim[d] = (sli_dim_rows){1, type->dim[d] / m->exported, false};
    any = true;
  }
  if (!any) return t;
  t = sl_expand_at(m->at, m->g, t, to);
  sli_rows_set(m, t, &rows);
  return t;
}

static bool is_tensor(const sli_pt_arg *a) { return a->kind == SLI_PT_VALUE && !a->value->symbol; }

static uint32_t named_dims(sli_import *m, const sli_pt_node *n, const sli_pt_value *v) {
  uint32_t all = (1u << v->type.ndim) - 1;
  bool stacks = strstr(n->target, ".stack.") != NULL;
  if (stacks || sli_pt_first(n) == NULL) /* a list of tensors */
    return stacks || !v->type.ndim ? 0 : 1u << sli_pt_dim(m, n, "dim", v->type.ndim, 0);
  if (sli_pt_arg_find(n, "dims")) return sli_pt_axes(m, n, "dims", v->type.ndim);
  bool first = strstr(n->target, "select") || strstr(n->target, "slice") ||
               strstr(n->target, "split") || strstr(n->target, "chunk") ||
               strstr(n->target, "unbind");
  if (!sli_pt_arg_find(n, "dim") && first) return 1;
  return sli_pt_arg_find(n, "dim") ? sli_pt_axes(m, n, "dim", v->type.ndim) : all;
}

static uint32_t product_dims(const sli_pt_node *n, const sli_pt_value *v) {
  int ndim = v->type.ndim, left = strstr(n->target, "addmm") ? 1 : 0;
  uint32_t dims = 0;
  for (int i = left; i < n->nargs; i++)
    if (is_tensor(&n->args[i]) && n->args[i].value == v && ndim)
      dims |= 1u << (i == left || ndim == 1 ? ndim - 1 : ndim - 2);
  return dims;
}

/* Returns the dims of an argument that must have all of their positions. */
static uint32_t whole_dims(sli_import *m, const sli_pt_value *v) {
  enum { SUM = 2 };
  uint32_t all = (1u << v->type.ndim) - 1;
  switch (m->repeats) {
  case REPEATS_PASS: return 0;
  case REPEATS_DIM: return named_dims(m, m->now, v);
  case REPEATS_PRODUCT: return product_dims(m->now, v);
  case REPEATS_SUM: return sli_pt_whole(m, m->now, "reduction", 1) == SUM ? all : 0;
  case REPEATS_ALL: return all;
  }
  return 0;
}

/* Returns the tensor of an argument in the form that the current call may read. */
static sl_tensor *form(sli_import *m, const sli_pt_value *v, sl_tensor *t) {
  if (!t || !m->now) return t;
  if (!m->any_order) t = sli_pt_true_order(m, t);
  uint32_t dims = whole_dims(m, v);
  return dims ? sli_pt_expand_repeated(m, t, &v->type, dims) : t;
}

/* ---- tensors of values --------------------------------------------------------------------- */

sl_tensor *sli_pt_tensor(sli_import *m, const sli_pt_value *v) {
  sli_made *made = v ? sli_made_of(m, v) : NULL;
  if (!v || m->g->status) return NULL;
  if (made->tensor) return form(m, v, made->tensor);
  if (v->input && v->input->role == SLI_PT_PARAM) return made->tensor = param_tensor(m, v->input);
  if (made->array) return form(m, v, constant_with_rows(m, made->array));
  sl_graph_fail(m->g, SL_E_UNSUPPORTED, "%s: %s is not known where it is read",
                sli_archive_path(m->p->archive), v->name);
  return NULL;
}

sl_tensor *sli_pt_f32(sli_import *m, const sli_pt_value *v) {
  sl_tensor *t = sli_pt_tensor(m, v);
  if (!t || t->type.dtype != SL_I32) return t;
  bool exact = m->exact && v->type.dtype != SLI_PT_BOOL;
  const sl_attrs attrs = {.cast.refuses = exact ? SLI_CAST_EXACT : SLI_CAST_ANY};
  return sl_op1_at(m->at, m->g, &sl_op_cast, &attrs, t);
}

sl_tensor *sli_pt_i32(sli_import *m, const sli_pt_value *v) {
  sl_tensor *t = sli_pt_narrow(m, sli_pt_tensor(m, v));
  const sl_attrs attrs = {.cast.refuses = SLI_CAST_EXACT};
  return t && t->type.dtype == SL_F32 ? sl_op1_at(m->at, m->g, &sl_op_cast, &attrs, t) : t;
}

sl_tensor *sli_pt_filled_like(sli_import *m, const sl_tensor *x, double value) {
  if (!x) return NULL;
  sl_type type = {.dtype = SL_F32, .ndim = 1, .dim = {1}};
  if (!x->type.ndim) type.ndim = 0, type.dtype = x->type.dtype;
  return sl_filled_at(m->at, m->g, type, (float)value, NULL);
}

/* Finds an argument as a tensor to be combined with another. A constant has length 1 in dims in
 * which the other has rows. */
sl_tensor *sli_pt_operand(sli_import *m, const sli_pt_node *n, const char *name,
                          const sli_pt_value *other) {
  const sli_pt_value *v = sli_pt_arg_value(n, name);
  const sli_pt_array *a = v ? sli_constant(m, v) : NULL;
  if (!v) { /* a number combined with a tensor */
    double number = sli_pt_number(m, n, name, NAN);
    return sli_pt_filled_like(m, other ? sli_pt_f32(m, other) : NULL, number);
  }
  if (!a) return sli_pt_f32(m, v);
  sl_tensor *beside = other ? sli_pt_tensor(m, other) : NULL;
  if (!beside) return NULL;
  sl_tensor *t = sli_pt_constant_beside(m, a, &other->type, beside);
  return t && t->type.dtype == SL_I32 ? sl_cast_at(m->at, m->g, t, SL_F32) : t;
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
