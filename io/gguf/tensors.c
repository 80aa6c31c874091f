/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a GGUF file under their Hugging Face names and in Hugging Face's order. A tensor is
 * made of one tensor of the file, or of several that hold parts of its rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "io/gguf/gguf_inner.h"

/* A source as matrices [outer, rows, columns]. A bias is a column. */
typedef struct matrices {
  size_t outer, rows, columns;
  bool column;
} matrices;

static matrices matrices_of(const sli_stored_tensor *t) {
  size_t n = strlen(t->name);
  bool column = t->ndim == 1 || (n > 5 && !strcmp(t->name + n - 5, ".bias"));
  size_t columns = column ? 1 : (size_t)t->dim[t->ndim - 1],
         rows = (size_t)t->dim[t->ndim - (column ? 1 : 2)];
  return (matrices){t->elements / rows / columns, rows, columns, column};
}

static bool is_plain(const sli_gguf_place *p) {
  return !p->rows.groups && !p->columns.groups && p->parts == 1 && !p->turned && !p->spread.groups;
}

/* ---- tensors of sources ---------------------------------------------------------------------- */

static int by_part(const void *a, const void *b) {
  const sli_gguf_source *x = a, *y = b;
  int order = strcmp(x->place.name, y->place.name);
  return order ? order : x->place.part - y->place.part;
}

/* Returns the number of sources of the tensor that begins with source `first`. */
static int parts_at(const sli_gguf *file, int first) {
  const sli_gguf_source *s = &file->sources[first];
  int n = 1;
  while (n < s->place.parts && first + n < file->count && !strcmp(s[n].place.name, s->place.name))
    n++;
  return n;
}

static bool splits_blocks(const sli_gguf_runs *columns, int numbers) {
  return columns->groups && (columns->first % (size_t)numbers || columns->width % (size_t)numbers);
}

/* Returns the type of a tensor: that of its sources, if their blocks can be kept. */
static const char *type_of(const sli_gguf_source *s, int parts) {
  const sli_gguf_type *type = sli_gguf_type_named(s->own.dtype);
  for (int i = 0; i < parts; i++) {
    const sli_gguf_place *p = &s[i].place;
    bool kept = !p->plus_one && !p->minus_exp && !p->turned &&
                !splits_blocks(&p->columns, type->numbers) && !strcmp(s[i].own.dtype, s->own.dtype);
    if (!kept && type->unpack) return "F32";
  }
  return s->own.dtype;
}

/* Gives a tensor the shape that its place describes. */
static void shape_tensor(sli_stored_tensor *t, const char *shape) {
  int64_t n = (int64_t)t->elements;
  if (!strcmp(shape, "flat")) t->ndim = 1, t->dim[0] = n;
  if (!strcmp(shape, "row")) t->ndim = 2, t->dim[0] = 1, t->dim[1] = n;
  if (!strcmp(shape, "joined") && t->ndim == 3)
    t->ndim = 2, t->dim[0] *= t->dim[1], t->dim[1] = t->dim[2];
  if (!strcmp(shape, "channels") && t->ndim == 2) t->ndim = 3, t->dim[2] = t->dim[1], t->dim[1] = 1;
}

static sl_status refuse_source(const sli_gguf *file, const sli_gguf_source *s) {
  return sl_fail(SL_E_INPUT, "%s: tensor %s has %zu rows, which do not form the heads of %s",
                 file->path, s->own.name, matrices_of(&s->own).rows, s->place.name);
}

/* Refuses a tensor that has a source whose rows are not whole runs. */
static sl_status check_runs(const sli_gguf *file, const sli_gguf_source *s) {
  for (int i = 0; i < s->place.parts; i++)
    if (s[i].place.uneven) return refuse_source(file, &s[i]);
  return SL_OK;
}

/* Checks the orders and the shapes of a tensor's sources, and places their rows. Returns the rows
 * of the tensor's matrices. */
static sl_status place_parts(const sli_gguf *file, sli_gguf_source *s, int parts, size_t *rows) {
  matrices first = matrices_of(&s->own);
  *rows = 0;
  for (int i = 0; i < parts; i++) {
    matrices m = matrices_of(&s[i].own);
    const sli_gguf_runs *c = &s[i].place.columns;
    size_t period = c->groups * c->each * c->width;
    bool fits =
        !s[i].place.uneven && (m.columns >= c->first) &&
        (!c->groups || (period && (m.columns - c->first) % period == 0)) &&
        (is_plain(&s[i].place) || !m.column || sli_gguf_type_named(s[i].own.dtype)->numbers == 1);
    s[i].place.uneven = !fits;
    size_t own = s[i].place.turned ? m.columns : m.rows,
           across = s[i].place.turned ? m.rows : m.columns;
    s[i].begin = s[i].place.woven ? (size_t)s[i].place.part : *rows;
    *rows += own;
    if (m.outer != first.outer || m.column != first.column ||
        across != (s->place.turned ? first.rows : first.columns) ||
        (s->place.woven && own != first.rows))
      return sl_fail(SL_E_INPUT, "%s: tensors %s and %s have shapes that do not fit together",
                     file->path, s->own.name, s[i].own.name);
  }
  for (int i = 0; i < parts; i++) {
    s[i].rows = *rows;
    s[i].place.uneven |=
        s[i].place.spread.groups && s[i].place.spread.groups * s[i].place.spread.period != *rows;
  }
  return SL_OK;
}

static sl_status make_tensor(sli_gguf *file, int first, int parts) {
  sli_gguf_source *s = &file->sources[first];
  size_t rows;
  if (parts < s->place.parts)
    return sl_fail(SL_E_INPUT, "%s: tensor %s is a part of %s, and the rest is missing", file->path,
                   s->own.name, s->place.name);
  SLI_TRY(place_parts(file, s, parts, &rows));
  matrices m = matrices_of(&s->own);
  sli_stored_tensor *t = &file->tensors[file->ntensors++];
  *t = s->own;
  t->name = s->place.name;
  t->offset = (size_t)first;
  t->dim[t->ndim - (m.column ? 1 : 2)] = (int64_t)rows;
  if (!m.column) t->dim[t->ndim - 1] = (int64_t)(s->place.turned ? m.rows : m.columns);
  t->elements = t->bytes = 0;
  for (int i = 0; i < parts; i++) t->elements += s[i].own.elements, t->bytes += s[i].own.bytes;
  t->dtype = type_of(s, parts);
  if (strcmp(t->dtype, s->own.dtype) != 0) t->bytes = t->elements * sizeof(float);
  shape_tensor(t, s->place.shape);
  return SL_OK;
}

sl_status sli_gguf_make_tensors(sli_gguf *file) {
  for (int i = 0; i < file->count; i++) {
    sli_gguf_source *s = &file->sources[i];
    s->place = sli_gguf_place_of(file->path, file->metadata.values, s->own.name,
                                 matrices_of(&s->own).rows);
  }
  qsort(file->sources, (size_t)file->count, sizeof *file->sources, by_part);
  file->tensors = sli_calloc((size_t)file->count + 1, sizeof *file->tensors);
  for (int i = 0, parts; i < file->count; i += parts) {
    parts = parts_at(file, i);
    SLI_TRY(make_tensor(file, i, parts));
  }
  return sli_stored_sort(file->path, file->tensors, file->ntensors);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Copies `count` units of a row, in Hugging Face's order. */
static void place_columns(const sli_gguf_runs *columns, size_t per_unit, const char *from, char *to,
                          size_t count, size_t unit) {
  const sli_gguf_runs runs = {columns->first / per_unit, columns->groups, columns->each,
                              columns->width / per_unit};
  if (!columns->groups) memcpy(to, from, count * unit);
  for (size_t i = 0; i < count && columns->groups; i++)
    memcpy(to + sli_gguf_row_of(&runs, i) * unit, from + i * unit, unit);
}

/* Returns the row of the whole tensor that row r of matrix o of a source is. */
static size_t row_of(const sli_gguf_source *s, size_t o, size_t r) {
  size_t row = sli_gguf_row_of(&s->place.rows, r);
  if (s->place.spread.groups) return o * s->rows + sli_gguf_spread_row(&s->place.spread, r);
  return o * s->rows + (s->place.woven ? row * (size_t)s->place.parts + s->begin : s->begin + row);
}

/* Unpacks a source with exchanged dims. */
static void read_turned(const sli_gguf_source *s, const sli_gguf_type *type,
                        const unsigned char *from, float *out) {
  matrices m = matrices_of(&s->own);
  float *matrix = sli_calloc(m.rows * m.columns, sizeof *matrix);
  size_t blocks = m.rows * m.columns / (size_t)type->numbers;
  for (size_t o = 0; o < m.outer; o++, from += blocks * (size_t)type->bytes) {
    type->unpack(from, blocks, matrix);
    for (size_t c = 0; c < m.columns; c++)
      for (size_t r = 0; r < m.rows; r++)
        out[row_of(s, o, c) * m.rows + r] = matrix[r * m.columns + c];
  }
  free(matrix);
}

static void read_source(const sli_gguf *file, const sli_gguf_source *s, float *out) {
  const sli_gguf_type *type = sli_gguf_type_named(s->own.dtype);
  const unsigned char *from = file->data + s->own.offset;
  matrices m = matrices_of(&s->own);
  if (is_plain(&s->place)) {
    type->unpack(from, s->own.elements / (size_t)type->numbers, out);
    return;
  }
  if (s->place.turned) {
    read_turned(s, type, from, out);
    return;
  }
  float *row = sli_calloc(m.columns, sizeof *row);
  size_t blocks = m.columns / (size_t)type->numbers;
  for (size_t i = 0; i < m.outer * m.rows; i++, from += blocks * (size_t)type->bytes) {
    type->unpack(from, blocks, row);
    place_columns(&s->place.columns, 1, (const char *)row,
                  (char *)(out + row_of(s, i / m.rows, i % m.rows) * m.columns), m.columns,
                  sizeof *row);
  }
  free(row);
}

/* Undoes the function that a file's values went through. */
static void restore_values(const sli_gguf_place *place, size_t count, float *values) {
  for (size_t i = 0; i < count && place->plus_one; i++) values[i] -= 1;
  for (size_t i = 0; i < count && place->minus_exp; i++) values[i] = logf(-values[i]);
}

sl_status sli_gguf_read(const sli_gguf *file, const sli_stored_tensor *t, float *out) {
  const sli_gguf_source *s = &file->sources[t->offset];
  char names[160];
  SLI_TRY(check_runs(file, s));
  for (int i = 0; i < s->place.parts; i++)
    if (!sli_gguf_type_named(s[i].own.dtype)->unpack)
      return sl_fail(SL_E_INPUT, "%s: tensor %s is %s; supported types: %s", file->path, t->name,
                     s[i].own.dtype, sli_gguf_type_names(names, sizeof names));
  for (int i = 0; i < s->place.parts; i++) read_source(file, &s[i], out);
  restore_values(&s->place, t->elements, out);
  return SL_OK;
}

sl_status sli_gguf_blocks(const sli_gguf *file, const sli_stored_tensor *t, void *out) {
  const sli_gguf_type *type = sli_gguf_type_named(t->dtype);
  const sli_gguf_source *s = &file->sources[t->offset];
  SLI_TRY(check_runs(file, s));
  for (int part = 0; part < s->place.parts; part++, s++) {
    matrices m = matrices_of(&s->own);
    size_t blocks = m.columns / (size_t)type->numbers, bytes = blocks * (size_t)type->bytes;
    const char *from = (const char *)file->data + s->own.offset;
    for (size_t i = 0; i < m.outer * m.rows; i++)
      place_columns(&s->place.columns, (size_t)type->numbers, from + i * bytes,
                    (char *)out + row_of(s, i / m.rows, i % m.rows) * bytes, blocks,
                    (size_t)type->bytes);
  }
  return SL_OK;
}
