/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/planes.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "ops/ops.h"

/* A group of a row, and where its bits and its number are in each plane. */
typedef struct group {
  const float *from;
  float *value; /* [n] what the planes so far stand for */
  int64_t n, bit, number;
  uint32_t *row; /* the row in the first plane; NULL: only the values are wanted */
  int64_t plane; /* words of a plane */
} group;

static void put_bit(const group *g, int plane, int64_t i, bool set) {
  if (!g->row) return;
  uint32_t *word = g->row + plane * g->plane + (g->bit + i) / 32, mask = 1U << (g->bit + i) % 32;
  *word = set ? *word | mask : *word & ~mask;
}

static void put_number(const group *g, int plane, float number) {
  if (g->row) memcpy(g->row + plane * g->plane + g->number, &number, sizeof number);
}

static void pack_base(const group *g, int base) {
  float least = g->from[0], most = least, top = (float)((1 << base) - 1);
  for (int64_t i = 1; i < g->n; i++) {
    least = fminf(least, g->from[i]);
    most = fmaxf(most, g->from[i]);
  }
  bool even = most == least;
  float s = even ? fabsf(most) : (most - least) / top;
  float z = even ? (float)(most < 0) : rintf(-least / s);
  for (int64_t i = 0; i < g->n; i++) {
    float q = s > 0 ? fminf(fmaxf(rintf(g->from[i] / s + z), 0), top) : 0;
    for (int b = 0; b < base; b++) put_bit(g, b, i, (int)q >> b & 1);
    g->value[i] = (q - z) * s;
  }
  for (int b = 0; b < base; b++) put_number(g, b, b > 1 ? 0 : b ? z : s);
}

static void pack_plane(const group *g, int plane) {
  double sum = 0;
  for (int64_t i = 0; i < g->n; i++) sum += fabsf(g->from[i] - g->value[i]);
  float s = (float)(sum / (double)g->n);
  for (int64_t i = 0; i < g->n; i++) {
    bool up = g->from[i] - g->value[i] >= 0;
    put_bit(g, plane, i, up);
    g->value[i] += up ? s : -s;
  }
  put_number(g, plane, s);
}

void sli_planes_pack(const sl_type *matrix, int base, int width, const float *from, void *out) {
  int64_t k = sl_type_last(matrix), rows = sl_type_rows(matrix), row = sli_plane_row(k);
  float value[SLI_PLANE_GROUP];
  memset(out, 0, (size_t)width * sli_plane_bytes(matrix));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t at = 0; at < k; at += SLI_PLANE_GROUP) {
      const group g = {.from = from + r * k + at,
                       .value = value,
                       .n = SLI_MIN(k - at, SLI_PLANE_GROUP),
                       .bit = at,
                       .number = sli_plane_words(k) + at / SLI_PLANE_GROUP,
                       .row = (uint32_t *)out + r * row,
                       .plane = rows * row};
      pack_base(&g, base);
      for (int p = base; p < width; p++) pack_plane(&g, p);
    }
}

void sli_planes_values(int64_t k, int base, int width, const float *from, float *out) {
  for (int64_t at = 0; at < k; at += SLI_PLANE_GROUP) {
    const group g = {.from = from + at, .value = out + at, .n = SLI_MIN(k - at, SLI_PLANE_GROUP)};
    pack_base(&g, base);
    for (int p = base; p < width; p++) pack_plane(&g, p);
  }
}

static float number_at(const uint32_t *row, int64_t words, int64_t group) {
  float number;
  memcpy(&number, row + words + group, sizeof number);
  return number;
}

/* Adds s or -s to each number, by the bits of a row. */
static void add_plane(const uint32_t *row, int64_t k, float *out) {
  int64_t words = sli_plane_words(k);
  for (int64_t w = 0; w < words; w++) {
    float s = number_at(row, words, w * 32 / SLI_PLANE_GROUP);
    uint32_t bits = ~row[w], size;
    int n = (int)SLI_MIN(k - w * 32, 32);
    memcpy(&size, &s, sizeof size);
    for (int i = 0; i < n; i++) {
      uint32_t signed_size = size ^ (bits >> i & 1U) << 31;
      float more;
      memcpy(&more, &signed_size, sizeof more);
      out[w * 32 + i] += more;
    }
  }
}

static void unpack_base(const uint32_t *const *rows, int base, int64_t k, float *out) {
  int64_t words = sli_plane_words(k);
  for (int64_t w = 0; w < words; w++) {
    int64_t group = w * 32 / SLI_PLANE_GROUP;
    float s = number_at(rows[0], words, group), z = number_at(rows[1], words, group);
    int n = (int)SLI_MIN(k - w * 32, 32);
    for (int i = 0; i < n; i++) {
      uint32_t q = 0;
      for (int b = 0; b < base; b++) q |= (rows[b][w] >> i & 1U) << b;
      out[w * 32 + i] = ((float)q - z) * s;
    }
  }
}

void sli_planes_unpack(const void *const *planes, int base, int width, int64_t k, int64_t row,
                       int64_t rows, float *out) {
  int64_t words = sli_plane_row(k);
  for (int64_t r = row; r < row + rows; r++, out += k) {
    const uint32_t *of[SLI_PLANES_MOST];
    for (int p = 0; p < width; p++) of[p] = (const uint32_t *)planes[p] + r * words;
    unpack_base(of, base, k, out);
    for (int p = base; p < width; p++) add_plane(of[p], k, out);
  }
}

/* ---- ops of training ------------------------------------------------------------------------ */

static sl_status plane_values_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  (void)nin;
  int64_t base = attrs->planes.base, width = attrs->planes.width;
  SLI_TRY(sli_want_array("w", &in[0], SL_F32, -1));
  if (base < SLI_PLANES_LEAST || base > width || width > SLI_PLANES_MOST)
    return sl_fail(
        SL_E_SHAPE,
        "attrs.planes must be the bits of the base and of all planes, %d <= base <= width <= "
        "%d",
        SLI_PLANES_LEAST, SLI_PLANES_MOST);
  out[0] = in[0];
  return SL_OK;
}

static sl_status bit_choice_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  int64_t all = 0;
  SLI_TRY(sli_want_array("p", &in[0], SL_F32, -1));
  sl_type ids = sli_type_without_last(&in[0], SL_I32);
  SLI_TRY(sli_want("ids", &in[1], &ids));
  for (int v = 0; v < attrs->experts.ncapacities; v++) all += attrs->experts.capacity[v];
  bool fits = attrs->experts.ncapacities == sl_type_last(&in[0]) && attrs->experts.count > 0 &&
              all >= SLI_BITS_ALL;
  if (attrs->experts.ncapacities && !fits)
    return sl_fail(
        SL_E_SHAPE,
        "attrs.experts.capacity must be a capacity for each of p's %lld, at least %d in all, and "
        "attrs.experts.count experts",
        (long long)sl_type_last(&in[0]), SLI_BITS_ALL);
  out[0] = in[0];
  return SL_OK;
}

/* Splits by tokens. */
static int bit_choice_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                                 sl_signature *out) {
  (void)attrs, (void)nin;
  for (int d = 0; d + 2 < in[0].ndim; d++)
    out[d] = (sl_signature){.in = {sli_split(d), sli_split(d)}, .out = {sli_split(d)}};
  return SLI_MAX(in[0].ndim - 2, 0);
}

SLI_COST(plane_values_cost, 0, 1, 20)

const sl_op sl_op_plane_values = {
    .name = "plane_values",
    .attrs = {&sl_attrs_planes},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .cut = &sl_cut_rows,
    .infer = plane_values_infer,
    .cost = plane_values_cost,
    .grad = {{.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};

const sl_op sl_op_bit_choice = {
    .name = "bit_choice",
    .attrs = {&sl_attrs_experts},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .cut = &(const sl_op_cut){.pieces = SL_PIECES_SIGNATURES, .along = SL_ALONG_AXIS},
    .shard = &(const sl_op_shard){.signatures = bit_choice_signatures},
    .infer = bit_choice_infer,
};
