/* SPDX-License-Identifier: Apache-2.0 */
#include "pytorch/inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "graph/build/build.h"
#include "io/file.h"
#include "io/npy.h"
#include "io/safetensors.h"

/* One input's file: mapped, with the type of its elements. */
typedef struct column {
  void *map;
  size_t bytes;
  sli_safetensors *tensors;
  const char *data;
  int width, ndim;
  bool is_float, is_signed;
  int64_t dim[SLI_NPY_DIMS];
  int64_t count, each; /* rows, and elements per row; or 1, and all elements */
  bool rows;
} column;

typedef struct table {
  sl_source source;
  sl_type *types;
  int count;
  int64_t rows, batch;
  column *of;
} table;

static void close_table(void *arg) {
  table *t = arg;
  for (int i = 0; i < t->count; i++) {
    if (t->of[i].map) munmap(t->of[i].map, t->of[i].bytes);
    if (t->of[i].tensors) sli_safetensors_close(t->of[i].tensors);
  }
}

/* ---- files --------------------------------------------------------------------------------- */

static sl_status open_npy(const char *path, column *c) {
  sli_npy array;
  sl_status status = sli_file_map(path, &c->map, &c->bytes);
  if (!status) status = sli_npy_read(path, c->map, c->bytes, &array);
  if (status) return status;
  c->data = (const char *)c->map + array.offset;
  c->width = array.width, c->is_float = array.is_float, c->is_signed = array.is_signed;
  c->ndim = array.ndim;
  memcpy(c->dim, array.dim, sizeof c->dim);
  return SL_OK;
}

/* Opens FILE.safetensors, or one tensor of it: FILE.safetensors:NAME. */
static sl_status open_safetensors(const char *path, const char *name, const char *input,
                                  column *c) {
  static const struct {
    const char *name;
    int width;
    bool is_float, is_signed;
  } types[] = {{"F32", 4, true, true},  {"F64", 8, true, true},   {"I64", 8, false, true},
               {"I32", 4, false, true}, {"I16", 2, false, true},  {"I8", 1, false, true},
               {"U8", 1, false, false}, {"BOOL", 1, false, false}};
  sl_status status = sli_safetensors_open(path, &c->tensors);
  if (status) return status;
  const sli_stored_tensor *t = sli_safetensors_find(c->tensors, name ? name : input);
  if (!t && !name && sli_safetensors_count(c->tensors) == 1) t = sli_safetensors_at(c->tensors, 0);
  if (!t) return sl_fail(SL_E_INPUT, "%s: it has no tensor %s", path, name ? name : input);
  for (size_t i = 0; i < SLI_COUNT(types); i++)
    if (!strcmp(types[i].name, t->dtype)) {
      c->data = sli_safetensors_bytes(c->tensors, t);
      c->width = types[i].width;
      c->is_float = types[i].is_float, c->is_signed = types[i].is_signed;
      c->ndim = t->ndim;
      memcpy(c->dim, t->dim, sizeof t->dim);
      return SL_OK;
    }
  return sl_fail(SL_E_INPUT, "%s: tensor %s is %s, which is not read as data", path, t->name,
                 t->dtype);
}

static sl_status open_file(const char *path, const char *input, column *c) {
  const char *kind = strstr(path, ".safetensors");
  if (!kind) return open_npy(path, c);
  const char *colon = strchr(kind, ':');
  char *file = colon ? sli_format("%.*s", (int)(colon - path), path) : sli_strdup(path);
  sl_status status = open_safetensors(file, colon ? colon + 1 : NULL, input, c);
  free(file);
  return status;
}

/* Checks the shape: rows with the input's other dims, or the whole shape for an input without
 * rows. */
static sl_status check_shape(const char *path, const sl_exported_input *in, int64_t rows,
                             column *c) {
  sl_type file = {.dtype = in->type.dtype, .ndim = SLI_MIN(c->ndim, SL_MAX_DIMS)};
  memcpy(file.dim, c->dim, sizeof file.dim);
  char has[SL_TYPE_TEXT], wants[SL_TYPE_TEXT];
  bool same = c->ndim == in->type.ndim;
  for (int d = in->rows; same && d < c->ndim; d++) same = c->dim[d] == in->type.dim[d];
  if (!same)
    return sl_fail(SL_E_INPUT, "%s: its shape is %s; input %s takes %s%s", path,
                   strchr(sl_type_format(has, &file), '['), in->name, in->rows ? "rows of " : "",
                   strchr(sl_type_format(wants, &in->type), '['));
  if (c->is_float && in->type.dtype == SL_I32)
    return sl_fail(SL_E_INPUT, "%s: it holds floats; input %s takes whole numbers", path, in->name);
  c->rows = in->rows;
  c->count = in->rows ? c->dim[0] : 1;
  c->each = 1;
  for (int d = in->rows; d < c->ndim; d++) c->each *= c->dim[d];
  if (c->count < (in->rows ? rows : 1))
    return sl_fail(SL_E_INPUT, "%s: %lld rows, fewer than the %lld of a microbatch", path,
                   (long long)c->count, (long long)rows);
  return SL_OK;
}

/* ---- filling ------------------------------------------------------------------------------- */

static double column_at(const column *c, int64_t i) {
  const char *at = c->data + i * c->width;
  union {
    float f;
    double d;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
  } v;
  memcpy(&v, at, (size_t)c->width);
  if (c->is_float) return c->width == 4 ? (double)v.f : v.d;
  switch (c->width) {
  case 1: return c->is_signed ? v.i8 : v.u8;
  case 2: return c->is_signed ? v.i16 : v.u16;
  case 4: return c->is_signed ? v.i32 : (double)v.u32;
  default: return c->is_signed ? (double)v.i64 : (double)v.u64;
  }
}

static void fill_column(const column *c, const sl_type *type, int64_t first, int64_t rows,
                        void *out) {
  int64_t count = c->rows ? rows : 1;
  for (int64_t r = 0; r < count; r++) {
    int64_t from = (first + r) % c->count * c->each, to = r * c->each;
    if (type->dtype == SL_F32 && c->is_float && c->width == 4) {
      memcpy((float *)out + to, c->data + from * c->width, (size_t)c->each * sizeof(float));
      continue;
    }
    for (int64_t i = 0; i < c->each; i++) {
      double v = column_at(c, from + i);
      if (type->dtype == SL_F32) ((float *)out)[to + i] = (float)v;
      else ((int32_t *)out)[to + i] = (int32_t)v;
    }
  }
}

static void fill_table(void *ctx, const sl_tick *tick, void *const *out) {
  const table *t = ctx;
  int64_t first = tick->step * t->batch + tick->microbatch * t->rows;
  for (int i = 0; i < t->count; i++)
    if (out[i]) fill_column(&t->of[i], &t->types[i], first, t->rows, out[i]);
}

/* Checks that integers fit an i32, by examining all of them once. */
static sl_status check_numbers(const char *path, const sl_exported_input *in, const column *c) {
  if (in->type.dtype != SL_I32 || c->width < 4) return SL_OK;
  for (int64_t i = 0; i < c->count * c->each; i++) {
    double v = column_at(c, i);
    if (v < INT32_MIN || v > INT32_MAX)
      return sl_fail(SL_E_INPUT, "%s: element %lld is %.0f, which does not fit 32 bits", path,
                     (long long)i, v);
  }
  return SL_OK;
}

/* Checks that all files have the same number of rows, so that rows are not mispaired. */
static sl_status check_rows(const table *t, const char *const *files) {
  int first = -1;
  for (int i = 0; i < t->count; i++) {
    if (!t->of[i].rows) continue;
    if (first >= 0 && t->of[i].count != t->of[first].count)
      return sl_fail(SL_E_INPUT, "%s has %lld rows, and %s %lld: they must be as many",
                     files[first], (long long)t->of[first].count, files[i],
                     (long long)t->of[i].count);
    if (first < 0) first = i;
  }
  return SL_OK;
}

static sl_status open_columns(table *t, const sl_exported_input *inputs, const char *const *files) {
  sl_status status = SL_OK;
  for (int i = 0; i < t->count && !status; i++) {
    status = open_file(files[i], inputs[i].name, &t->of[i]);
    if (!status) status = check_shape(files[i], &inputs[i], t->rows, &t->of[i]);
    if (!status) status = check_numbers(files[i], &inputs[i], &t->of[i]);
  }
  return status ? status : check_rows(t, files);
}

sl_status sli_pt_inputs(sl_graph *g, int count, const sl_exported_input *inputs,
                        const char *const *files, int64_t rows, sl_tensor **outs) {
  table *t = sl_graph_alloc(g, sizeof *t);
  t->count = count;
  t->rows = rows;
  t->batch = rows * sl_graph_microbatches(g);
  t->of = sl_graph_alloc(g, (size_t)count * sizeof *t->of);
  t->types = sl_graph_alloc(g, (size_t)count * sizeof *t->types);
  for (int i = 0; i < count; i++) {
    t->types[i] = inputs[i].type;
    if (inputs[i].rows) t->types[i].dim[0] = rows;
  }
  t->source = (sl_source){.nout = count, .types = t->types, .fill = fill_table, .ctx = t};
  if (sl_graph_reads_data(g)) {
    sli_graph_cleanup(g, close_table, t);
    sl_status status = open_columns(t, inputs, files);
    if (status) return sl_graph_fail(g, status, "%s", sl_detail());
  }
  sl_data(g, &t->source, outs);
  return sl_graph_status(g);
}
