/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/planes.h"

#include <math.h>
#include <string.h>

#include "base/base.h"

/* A group of a row, and where its bits and its number are in each plane. */
typedef struct group {
  const float *from;
  float *value; /* [n] what the planes so far stand for */
  int64_t n, bit, number;
  uint32_t *row; /* the row in the first plane */
  int64_t plane; /* words of a plane */
} group;

static void put_bit(const group *g, int plane, int64_t i, bool set) {
  uint32_t *word = g->row + plane * g->plane + (g->bit + i) / 32, mask = 1U << (g->bit + i) % 32;
  *word = set ? *word | mask : *word & ~mask;
}

static void put_number(const group *g, int plane, float number) {
  memcpy(g->row + plane * g->plane + g->number, &number, sizeof number);
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
