/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/state/scaled.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/small.h"
#include "ops/storage.h"

enum { BLOCK = 128 };

/* ---- names ------------------------------------------------------------------------------------
 */

static const sli_stored_tensor *beside(const sli_shards *from, const char *name, const char *end,
                                       int *file) {
  char *whole = sli_format("%s%s", name, end);
  const sli_stored_tensor *t = sli_shards_find(from, whole, file);
  free(whole);
  return t;
}

static bool is_type(const sli_stored_tensor *t, const char *const *types) {
  for (; *types; types++)
    if (!strcmp(t->dtype, *types)) return true;
  return false;
}

/* Returns the length of a name without "_packed". */
static size_t stem_of(const char *name, bool *packed) {
  static const char end[] = "_packed";
  size_t n = strlen(name), m = strlen(end);
  *packed = n > m && !strcmp(name + n - m, end);
  return *packed ? n - m : n;
}

sli_scaled sli_scaled_find(const sli_shards *from, const sli_stored_tensor *numbers, int file) {
  static const char *const small[] = {"F8_E4M3", "I8", "U8", NULL}, *const words[] = {"U8", "I32",
                                                                                      NULL};
  bool packed = false;
  size_t stem = numbers ? stem_of(numbers->name, &packed) : 0;
  if (!numbers || !is_type(numbers, packed ? words : small)) return (sli_scaled){0};
  char *name = sli_format("%.*s", (int)stem, numbers->name);
  sli_scaled s = {.numbers = numbers, .file = {file}};
  s.scales = beside(from, name, "_scale_inv", &s.file[1]);
  if (!s.scales) s.scales = beside(from, name, "_scale", &s.file[1]);
  s.second = beside(from, name, "_scale_2", &s.file[2]);
  if (!s.second) {
    s.second = beside(from, name, "_global_scale", &s.file[2]);
    s.divides = s.second != NULL;
  }
  free(name);
  return s;
}

bool sli_scaled_beside(const char *name) {
  static const char *const ends[] = {".input_scale",  ".input_global_scale",
                                     ".output_scale", ".weight_shape",
                                     ".k_scale",      ".v_scale",
                                     ".q_scale"};
  size_t n = strlen(name);
  for (size_t i = 0; i < SLI_COUNT(ends); i++)
    if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i])) return true;
  return false;
}

/* ---- shapes -----------------------------------------------------------------------------------
 */

/* A matrix, with numbers in words and a scale for each part of its rows and columns. */
typedef struct layout {
  int64_t outer, rows, columns;
  int bits; /* of a number; 0: the numbers do not fit */
  bool floats;
  int64_t down, across; /* rows and columns of a part */
  int64_t high, wide;   /* parts of a matrix; 0: the scales do not fit */
  bool each;            /* scales for each matrix, not the same for all */
} layout;

static int64_t parts_of(int64_t n, int64_t part) { return (n + part - 1) / part; }

/* Finds the parts by the scales' shape. */
static void read_scales(const sli_stored_tensor *t, layout *l) {
  int64_t count = (int64_t)t->elements, matrices = l->outer;
  l->down = l->rows, l->across = l->columns, l->high = l->wide = 1;
  l->each = count == matrices && count > 1;
  if (count == 1 || l->each) return;
  l->each = matrices > 1;
  int64_t own = count / matrices, last = t->dim[t->ndim - 1],
          rows = t->ndim > 1 && own % SLI_MAX(last, 1) == 0 ? own / SLI_MAX(last, 1) : 0;
  bool row = own == l->rows && (t->ndim == 1 || last == 1),
       runs = rows == l->rows && last > 0 && l->columns % last == 0,
       blocks = rows == parts_of(l->rows, BLOCK) && last == parts_of(l->columns, BLOCK);
  l->high = l->wide = 0;
  if (count % matrices || !(row || runs || blocks)) return;
  l->high = row ? l->rows : rows, l->wide = row ? 1 : last;
  l->down = row || runs ? 1 : BLOCK;
  l->across = row ? l->columns : runs ? l->columns / last : BLOCK;
}

static layout layout_of(const sli_scaled *s, const sl_type *type) {
  const sli_stored_tensor *t = s->numbers;
  layout l = {.outer = 1,
              .rows = type->ndim > 1 ? type->dim[type->ndim - 2] : 0,
              .columns = sl_type_last(type)};
  for (int d = 0; d < type->ndim - 2; d++) l.outer *= type->dim[d];
  bool same = t->ndim == type->ndim;
  for (int d = 0; d < type->ndim - 1 && same; d++) same = t->dim[d] == type->dim[d];
  int64_t stored = t->ndim ? t->dim[t->ndim - 1] : 0;
  bool words = !strcmp(t->dtype, "I32"), bytes = !strcmp(t->dtype, "U8");
  int64_t each = stored > 0 && l.columns % stored == 0 ? l.columns / stored : 0;
  l.floats = !strcmp(t->dtype, "F8_E4M3") || bytes;
  if (same && bytes && each == 2) l.bits = 4;
  if (same && words && (each == 8 || each == 4)) l.bits = (int)(32 / each);
  if (same && !words && !bytes && each == 1) l.bits = 8;
  if (s->scales && l.rows) read_scales(s->scales, &l);
  return l;
}

const char *sli_scaled_format(const sli_scaled *s, const sl_type *type) {
  layout l = layout_of(s, type);
  return l.floats ? l.bits == 8 ? "FP8" : "NVFP4" : l.bits == 8 ? "INT8" : "INT4";
}

static sl_status refuse(const sli_shards *from, const sli_scaled *s, int which,
                        const sli_stored_tensor *t, const sl_type *type) {
  char has[256], wants[SL_TYPE_TEXT];
  return sl_fail(SL_E_INPUT, "%s: tensor %s is %s, which does not fit a weight %s",
                 sli_shards_path(from, s->file[which]), t->name, sli_stored_format(has, t),
                 sl_type_format(wants, type));
}

/* Refuses tensors that would change the numbers: zero points, and an order of columns. */
static sl_status check_others(const sli_shards *from, const sli_scaled *s) {
  static const char *const ends[] = {"_zero_point", "_g_idx"};
  bool packed;
  size_t stem = stem_of(s->numbers->name, &packed);
  char *name = sli_format("%.*s", (int)stem, s->numbers->name);
  sl_status status = SL_OK;
  for (size_t i = 0; i < SLI_COUNT(ends) && !status; i++) {
    int file;
    const sli_stored_tensor *t = beside(from, name, ends[i], &file);
    if (t)
      status = sl_fail(SL_E_INPUT,
                       "%s: tensor %s: weights with zero points or reordered columns "
                       "are not supported",
                       sli_shards_path(from, file), t->name);
  }
  free(name);
  return status;
}

sl_status sli_scaled_check(const sli_shards *from, const sli_scaled *s, const sl_type *type) {
  layout l = layout_of(s, type);
  if (!l.bits) return refuse(from, s, 0, s->numbers, type);
  if (!s->scales)
    return sl_fail(SL_E_INPUT, "%s: tensor %s is %s, but the scales of its numbers are missing",
                   sli_shards_path(from, s->file[0]), s->numbers->name, s->numbers->dtype);
  if (!l.high) return refuse(from, s, 1, s->scales, type);
  if (s->second && s->second->elements != 1) return refuse(from, s, 2, s->second, type);
  return check_others(from, s);
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

/* Returns number i of words of integers, which are stored with an offset, or of bytes. */
static float small_at(const layout *l, const unsigned char *bytes, bool words, int64_t i) {
  if (l->bits == 8 && !words) return (float)(int8_t)bytes[i];
  unsigned v = l->bits == 8 ? bytes[i] : bytes[i / 2] >> i % 2 * 4 & 15;
  return l->floats ? sli_e2m1_to_float(v) : (float)v - (float)(1 << (l->bits - 1));
}

static sl_status read_numbers(const sli_shards *from, const sli_scaled *s, const layout *l,
                              float *out) {
  const sli_stored_tensor *t = s->numbers;
  if (!strcmp(t->dtype, "F8_E4M3")) return sli_shards_read(from, s->file[0], t, out);
  unsigned char *bytes;
  SLI_TRY(SLI_ALLOCATE(bytes, t->bytes + 1, t->name));
  sl_status status = sli_shards_blocks(from, s->file[0], t, bytes);
  bool words = !strcmp(t->dtype, "I32");
  for (int64_t i = 0; i < l->outer * l->rows * l->columns && !status; i++)
    out[i] = small_at(l, bytes, words, i);
  free(bytes);
  return status;
}

sl_status sli_scaled_read(const sli_shards *from, const sli_scaled *s, const sl_type *type,
                          float *out) {
  layout l = layout_of(s, type);
  float *scales, second = 1;
  SLI_TRY(SLI_ALLOCATE(scales, s->scales->elements + 1, s->scales->name));
  sl_status status = read_numbers(from, s, &l, out);
  if (!status) status = sli_shards_read(from, s->file[1], s->scales, scales);
  if (!status && s->second) status = sli_shards_read(from, s->file[2], s->second, &second);
  for (size_t i = 0; i < s->scales->elements && !status; i++)
    scales[i] = s->divides ? scales[i] / second : scales[i] * second;
  for (int64_t row = 0; row < l.outer * l.rows && !status; row++) {
    const float *of =
        scales + (l.each ? row / l.rows * l.high * l.wide : 0) + row % l.rows / l.down * l.wide;
    for (int64_t c = 0; c < l.columns; c++) out[row * l.columns + c] *= of[c / l.across];
  }
  free(scales);
  return status;
}

/* ---- at rest ----------------------------------------------------------------------------------
 */

/* Returns the type of the matrices that the numbers are. */
static sl_type values_of(const sli_stored_tensor *t) {
  sl_type type = {.dtype = SL_F32, .ndim = t->ndim <= SL_MAX_DIMS ? t->ndim : 0};
  for (int d = 0; d < type.ndim; d++) type.dim[d] = t->dim[d];
  if (type.ndim && !strcmp(t->dtype, "U8")) type.dim[type.ndim - 1] *= 2;
  return type;
}

sl_storage sli_scaled_storage(const sli_scaled *s) {
  if (!s->numbers || !s->scales) return SL_STORAGE_F32;
  sl_type type = values_of(s->numbers);
  layout l = layout_of(s, &type);
  bool fits = type.ndim > 1 && l.bits && l.high && l.floats && l.columns % SLI_SMALL_BLOCK == 0;
  if (fits && l.bits == 8 && l.across % SLI_SMALL_BLOCK == 0) return SL_STORAGE_SCALED;
  bool small = !strcmp(s->scales->dtype, "F8_E4M3") && l.across % SLI_NVFP4_RUN == 0;
  return fits && l.bits == 4 && small ? SL_STORAGE_NVFP4 : SL_STORAGE_F32;
}

/* Parts of blocks: bytes of numbers and of scales, or scales as floats. */
typedef struct parts {
  const layout *l;
  unsigned char *numbers, *small;
  float *scales, second;
} parts;

/* Returns the place of the scale of a number. */
static int64_t scale_at(const layout *l, int64_t row, int64_t column) {
  int64_t matrix = l->each ? row / l->rows * l->high * l->wide : 0;
  return matrix + row % l->rows / l->down * l->wide + column / l->across;
}

static void put_block(const parts *p, int64_t row, int64_t column, unsigned char *block) {
  const layout *l = p->l;
  int64_t first = row * l->columns + column;
  if (l->bits == 8) {
    memcpy(block, p->numbers + first, SLI_SMALL_BLOCK);
    memcpy(block + SLI_SMALL_BLOCK, &p->scales[scale_at(l, row, column)], sizeof(float));
    return;
  }
  memcpy(block, p->numbers + first / 2, SLI_SMALL_BLOCK / 2);
  for (int i = 0; i < SLI_SMALL_BLOCK / SLI_NVFP4_RUN; i++)
    block[SLI_NVFP4_SCALES + i] = p->small[scale_at(l, row, column + i * SLI_NVFP4_RUN)];
  memcpy(block + SLI_NVFP4_FACTOR, &p->second, sizeof p->second);
}

static bool has_nan(const unsigned char *bytes, size_t n) {
  bool any = false;
  for (size_t i = 0; i < n; i++) any |= (bytes[i] & 127) == 127;
  return any;
}

static sl_status read_parts(const sli_shards *from, const sli_scaled *s, parts *p) {
  const sli_stored_tensor *numbers = s->numbers, *scales = s->scales;
  SLI_TRY(sli_shards_blocks(from, s->file[0], numbers, p->numbers));
  if (s->second) SLI_TRY(sli_shards_read(from, s->file[2], s->second, &p->second));
  if (p->l->bits == 8) SLI_TRY(sli_shards_read(from, s->file[1], scales, p->scales));
  else SLI_TRY(sli_shards_blocks(from, s->file[1], scales, p->small));
  bool wrong = p->l->bits == 8 ? has_nan(p->numbers, numbers->bytes)
                               : has_nan(p->small, scales->bytes) || !(p->second > 0);
  if (wrong)
    return sl_fail(SL_E_INPUT, "%s: tensor %s: a number or a scale is NaN, or a scale not positive",
                   sli_shards_path(from, s->file[0]), numbers->name);
  for (size_t i = 0; i < scales->elements && p->l->bits == 8; i++)
    p->scales[i] = s->divides ? p->scales[i] / p->second : p->scales[i] * p->second;
  if (s->divides) p->second = -p->second;
  return SL_OK;
}

sl_status sli_scaled_blocks(const sli_shards *from, const sli_scaled *s, const sl_type *type,
                            void *blocks) {
  layout l = layout_of(s, type);
  parts p = {.l = &l, .second = 1};
  sl_status status = SLI_ALLOCATE(p.numbers, s->numbers->bytes + 1, s->numbers->name);
  if (!status) status = SLI_ALLOCATE(p.small, s->scales->bytes + 1, s->scales->name);
  if (!status) status = SLI_ALLOCATE(p.scales, s->scales->elements + 1, s->scales->name);
  if (!status) status = read_parts(from, s, &p);
  unsigned char *block = blocks;
  for (int64_t row = 0; row < l.outer * l.rows && !status; row++)
    for (int64_t c = 0; c < l.columns; c += SLI_SMALL_BLOCK) {
      put_block(&p, row, c, block);
      block += l.bits == 8 ? SLI_FP8_BYTES : SLI_NVFP4_BYTES;
    }
  free(p.numbers);
  free(p.small);
  free(p.scales);
  return status;
}
