/* SPDX-License-Identifier: Apache-2.0 */
/* Writes GGUF files: keys with values, then tensors in blocks, in the layout of ggml's
 * docs/gguf.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/atomic.h"
#include "io/gguf/gguf_inner.h"

/* Kinds of values. */
enum { KIND_U32 = 4, KIND_I32 = 5, KIND_F32 = 6, KIND_BOOL = 7, KIND_TEXT = 8, KIND_ARRAY = 9 };
enum { VERSION = 3, ALIGNMENT = 32 };

/* ---- keys --------------------------------------------------------------------------------- */

struct sli_gguf_keys {
  FILE *out;
  char *bytes;
  size_t size;
  uint64_t count;
  cJSON *named; /* keys that tensor names depend on */
};

sli_gguf_keys *sli_gguf_keys_create(void) {
  sli_gguf_keys *k = sli_calloc(1, sizeof *k);
  k->out = sli_memory_stream(&k->bytes, &k->size);
  k->named = cJSON_CreateObject();
  return k;
}

void sli_gguf_keys_destroy(sli_gguf_keys *k) {
  if (!k) return;
  fclose(k->out);
  free(k->bytes);
  cJSON_Delete(k->named);
  free(k);
}

static void put(FILE *out, const void *bytes, size_t n) { fwrite(bytes, 1, n, out); }
static void put_u32(FILE *out, uint32_t x) { put(out, &x, sizeof x); }
static void put_u64(FILE *out, uint64_t x) { put(out, &x, sizeof x); }
static void put_text(FILE *out, const char *text) {
  put_u64(out, strlen(text));
  put(out, text, strlen(text));
}

static FILE *put_key(sli_gguf_keys *k, const char *key, uint32_t kind) {
  k->count++;
  put_text(k->out, key);
  put_u32(k->out, kind);
  return k->out;
}

void sli_gguf_put_text(sli_gguf_keys *k, const char *key, const char *value) {
  put_text(put_key(k, key, KIND_TEXT), value);
  cJSON_AddStringToObject(k->named, key, value);
}

void sli_gguf_put_count(sli_gguf_keys *k, const char *key, int64_t value) {
  put_u32(put_key(k, key, KIND_U32), (uint32_t)value);
  cJSON_AddNumberToObject(k->named, key, (double)value);
}

void sli_gguf_put_number(sli_gguf_keys *k, const char *key, double value) {
  float x = (float)value;
  put(put_key(k, key, KIND_F32), &x, sizeof x);
}

void sli_gguf_put_flag(sli_gguf_keys *k, const char *key, bool value) {
  put(put_key(k, key, KIND_BOOL), &(char){value}, 1);
}

static FILE *put_array(sli_gguf_keys *k, const char *key, uint32_t kind, const cJSON *values) {
  FILE *out = put_key(k, key, KIND_ARRAY);
  put_u32(out, kind);
  put_u64(out, (uint64_t)cJSON_GetArraySize(values));
  return out;
}

void sli_gguf_put_texts(sli_gguf_keys *k, const char *key, const cJSON *values) {
  FILE *out = put_array(k, key, KIND_TEXT, values);
  const cJSON *item;
  cJSON_ArrayForEach(item, values) put_text(out, item->valuestring);
}

void sli_gguf_put_integers(sli_gguf_keys *k, const char *key, const cJSON *values) {
  FILE *out = put_array(k, key, KIND_I32, values);
  const cJSON *item;
  cJSON_ArrayForEach(item, values) put_u32(out, (uint32_t)item->valueint);
}

void sli_gguf_put_numbers(sli_gguf_keys *k, const char *key, const cJSON *values) {
  FILE *out = put_array(k, key, KIND_F32, values);
  const cJSON *item;
  cJSON_ArrayForEach(item, values) put(out, &(float){(float)item->valuedouble}, sizeof(float));
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* A tensor of the file: one of the content, or a part of one. */
typedef struct target {
  int from; /* index in the content */
  char *name;
  int ndim;
  int64_t dim[SLI_STORED_DIMS];
  sli_gguf_place place;
  size_t outer, rows, columns; /* matrices of the file; a bias is a column */
  size_t all_rows, begin;      /* rows of a matrix of the whole tensor, and the part's first */
  const sli_gguf_type *type;
} target;

/* A file being written. */
typedef struct writing {
  const sli_gguf_content *content;
  sli_atomic_file file;
  target *targets; /* [count] */
  int count;
} writing;

static const sli_gguf_type *named_or(const char *type, const char *otherwise) {
  const sli_gguf_type *t = type ? sli_gguf_type_named(type) : NULL;
  return t && t->pack ? t : sli_gguf_type_named(otherwise);
}

static bool ends_with(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && !strcmp(name + n - m, end);
}

/* Chooses a tensor's type. Gains, biases, routers and tensors that are no matrices are F32. Rows
 * that are not whole blocks are Q8_0 or F16. The output projection is Q8_0 where other matrices
 * have four bits. */
static const sli_gguf_type *type_for(const sli_gguf_content *c, const target *t) {
  int64_t k = t->dim[t->ndim - 1];
  const sli_gguf_type *type = named_or(c->type, "F32");
  bool predicts = c->predicts && !strcmp(c->predicts, c->tensors[t->from].name),
       four = !strncmp(type->name, "Q4", 2);
  if (t->ndim < 2 || *t->place.shape || ends_with(t->name, ".bias") ||
      strstr(t->name, ".ffn_gate_inp."))
    return sli_gguf_type_named("F32");
  if (k % type->numbers || (four && predicts)) type = sli_gguf_type_named("Q8_0");
  return k % type->numbers ? sli_gguf_type_named("F16") : type;
}

static uint64_t elements(const target *t) { return (uint64_t)(t->outer * t->rows * t->columns); }

static uint64_t bytes_of(const target *t) {
  return elements(t) / (uint64_t)t->type->numbers * (uint64_t)t->type->bytes;
}

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Gives a target the file's dims: those of its tensor in the shape of the file, a part of the rows,
 * with the last two exchanged. Returns false if they do not fit. */
static bool shape_target(target *t, const sli_tensor_data *of) {
  const sli_gguf_place *p = &t->place;
  t->ndim = of->ndim;
  memcpy(t->dim, of->dim, (size_t)of->ndim * sizeof *t->dim);
  if (!strcmp(p->shape, "row") && t->ndim == 2) t->ndim = 1, t->dim[0] = t->dim[1];
  if (!strcmp(p->shape, "channels") && t->ndim == 3) t->ndim = 2, t->dim[1] = t->dim[2];
  bool column = t->ndim == 1 || ends_with(t->name, ".bias"),
       fits = strcmp(p->shape, "joined") != 0 && !p->spread.groups;
  int64_t *rows = &t->dim[t->ndim - (column ? 1 : 2)];
  fits &= *rows % p->parts == 0 && !(column && p->turned);
  t->all_rows = (size_t)*rows;
  *rows /= p->parts;
  t->begin = p->woven ? (size_t)p->part : (size_t)*rows * (size_t)p->part;
  if (p->turned && !column) {
    int64_t last = t->dim[t->ndim - 1];
    t->dim[t->ndim - 1] = *rows;
    t->dim[t->ndim - 2] = last;
  }
  t->columns = column ? 1 : (size_t)t->dim[t->ndim - 1];
  t->rows = (size_t)t->dim[t->ndim - (column ? 1 : 2)];
  t->outer = 1;
  for (int d = 0; d < t->ndim - (column ? 1 : 2); d++) t->outer *= (size_t)t->dim[d];
  if (p->last) { /* [n] in the file as [n / last, last] */
    fits &= t->ndim == 1 && t->dim[0] % (int64_t)p->last == 0;
    t->ndim = 2, t->dim[0] /= (int64_t)p->last, t->dim[1] = (int64_t)p->last;
  }
  return fits;
}

static sl_status make_target(const writing *w, int from, char *name, target *out) {
  const sli_tensor_data *of = &w->content->tensors[from];
  bool column = of->ndim == 1 || ends_with(name, ".bias"),
       channels = of->ndim == 3 && of->dim[1] == 1 && !strchr(of->name, '*');
  *out = (target){.from = from, .name = name};
  out->place = sli_gguf_place_of("", w->content->keys->named, name,
                                 (size_t)of->dim[channels ? 0 : of->ndim - (column ? 1 : 2)]);
  bool fits = shape_target(out, of) && !out->place.uneven;
  const sli_gguf_runs *c = &out->place.columns;
  size_t period = c->groups * c->each * c->width;
  fits &=
      !c->groups || (period && out->columns >= c->first && !((out->columns - c->first) % period));
  out->type = type_for(w->content, out);
  return fits ? SL_OK
              : sl_fail(SL_E_UNSUPPORTED, "%s has a shape that a GGUF file cannot have as %s",
                        of->name, name);
}

static const char *architecture_of(const cJSON *keys) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(keys, "general.architecture");
  return cJSON_IsString(item) ? item->valuestring : "this architecture";
}

static sl_status make_targets(writing *w) {
  const sli_gguf_content *c = w->content;
  w->targets = sli_calloc((size_t)c->count * SLI_GGUF_PARTS + 1, sizeof *w->targets);
  for (int i = 0; i < c->count; i++) {
    char *names[SLI_GGUF_PARTS];
    int parts = sli_gguf_own_names(c->keys->named, c->tensors[i].name, names);
    sl_status status = parts ? SL_OK
                             : sl_fail(SL_E_UNSUPPORTED, "%s has no name in GGUF files of %s",
                                       c->tensors[i].name, architecture_of(c->keys->named));
    for (int k = 0; k < parts; k++) {
      sl_status made = make_target(w, i, names[k], &w->targets[w->count++]);
      if (made) status = made;
    }
    SLI_TRY(status);
  }
  return SL_OK;
}

static void put_infos(const writing *w) {
  uint64_t offset = 0;
  for (int i = 0; i < w->count; i++) {
    const target *t = &w->targets[i];
    put_text(w->file.stream, t->name);
    put_u32(w->file.stream, (uint32_t)t->ndim);
    for (int d = t->ndim - 1; d >= 0; d--) put_u64(w->file.stream, (uint64_t)t->dim[d]);
    put_u32(w->file.stream, sli_gguf_type_number(t->type));
    put_u64(w->file.stream, offset);
    offset = aligned(offset + bytes_of(t));
  }
}

static void put_padding(const writing *w, uint64_t at) {
  static const char zeros[ALIGNMENT];
  put(w->file.stream, zeros, aligned(at) - at);
}

/* Returns the row of the whole tensor that row r of matrix o of a target is. */
static size_t row_of(const target *t, size_t o, size_t r) {
  size_t row = sli_gguf_row_of(&t->place.rows, r);
  return o * t->all_rows +
         (t->place.woven ? row * (size_t)t->place.parts + t->begin : t->begin + row);
}

/* Returns the value of the whole tensor that a target has at a place. */
static float value_at(const target *t, const float *values, size_t o, size_t r, size_t c) {
  float x = t->place.turned
                ? values[row_of(t, o, c) * t->rows + r]
                : values[row_of(t, o, r) * t->columns + sli_gguf_row_of(&t->place.columns, c)];
  return t->place.plus_one ? x + 1 : t->place.minus_exp ? -expf(x) : x;
}

/* Writes the values in the order of the file: rows, or a column as a whole. */
static void put_values(const writing *w, const target *t, const float *values) {
  bool whole = t->columns == 1;
  size_t rows = whole ? 1 : t->outer * t->rows, row = (size_t)elements(t) / rows,
         bytes = row / (size_t)t->type->numbers * (size_t)t->type->bytes;
  unsigned char *packed = sli_calloc(1, bytes);
  float *line = sli_calloc(row, sizeof *line);
  bool moved =
      t->place.turned || t->place.columns.groups || t->place.plus_one || t->place.minus_exp;
  for (size_t r = 0; r < rows; r++) {
    if (!moved && !whole)
      memcpy(line, values + row_of(t, r / t->rows, r % t->rows) * row, row * sizeof *line);
    for (size_t e = 0; e < row && (moved || whole); e++) {
      size_t at = whole ? e : r;
      line[e] = value_at(t, values, at / t->rows, at % t->rows, whole ? 0 : e);
    }
    t->type->pack(line, row / (size_t)t->type->numbers, packed);
    put(w->file.stream, packed, bytes);
  }
  free(line);
  free(packed);
}

static sl_status put_tensors(const writing *w) {
  const sli_gguf_content *c = w->content;
  sl_status status = SL_OK;
  for (int i = 0; i < w->count && !status; i++) {
    const target *t = &w->targets[i];
    const float *values = c->tensors[t->from].data;
    if (!values) status = c->values(c->ctx, t->from, &values);
    if (status) break;
    put_values(w, t, values);
    put_padding(w, bytes_of(t));
  }
  return status;
}

static void put_head(const writing *w) {
  const sli_gguf_content *c = w->content;
  FILE *out = w->file.stream;
  fflush(c->keys->out);
  put(out, "GGUF", 4);
  put_u32(out, VERSION);
  put_u64(out, (uint64_t)w->count);
  put_u64(out, c->keys->count);
  put(out, c->keys->bytes, c->keys->size);
  put_infos(w);
  put_padding(w, (uint64_t)ftell(out));
}

sl_status sli_gguf_write(const char *path, const sli_gguf_content *content) {
  writing w = {.content = content};
  sl_status status = make_targets(&w), opened = status ? status : sli_atomic_open(path, &w.file);
  if (!opened) {
    put_head(&w);
    status = put_tensors(&w);
    if (!status) status = sli_atomic_commit(&w.file);
    else sli_atomic_abandon(&w.file);
  }
  for (int i = 0; i < w.count; i++) {
    free(w.targets[i].name);
    free(w.targets[i].place.name);
  }
  free(w.targets);
  return opened ? opened : status;
}

bool sli_gguf_writes(const char *type) {
  const sli_gguf_type *t = sli_gguf_type_named(type);
  return t && t->pack;
}
