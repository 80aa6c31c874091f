/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of dims with rows, which new dims share out in order. */
#include "pytorch/row_factors.h"

#include <string.h>

static sli_factor *add(sli_factors *f, int64_t size, int64_t actual) {
  sli_factor *new = &f->of[f->count++];
  *new = (sli_factor){.size = size, .actual = actual, .place = f->places++, .to = -1};
  return new;
}

static void add_plain(sli_factors *f, int64_t size) {
  sli_factor *last = f->count ? &f->of[f->count - 1] : NULL;
  bool joins = last && !last->rows && !last->repeats && last->place == f->places - 1;
  if (size == 1) return;
  if (joins) last->size *= size, last->actual *= size;
  else add(f, size, size);
}

/* Adds the factors of a dim into which rows enter. With the rows first in memory, places swap. */
static void add_rows(sli_factors *f, const sli_dim_rows *r, int64_t size, int64_t actual) {
  int first = -1;
  if (r->first) first = f->places++;
  if (r->outer > 1) r->first ? (void)add(f, r->outer, r->outer) : add_plain(f, r->outer);
  sli_factor *rows = add(f, size, actual);
  rows->rows = true, rows->alone = r->outer == 1 && r->inner == 1;
  if (r->first) rows->place = first;
  if (r->inner > 1) add(f, r->inner, r->inner);
}

/* Counts the dims of length 1 around a dim: before it, and in all. */
static void count_ones(const int64_t *dims, int ndim, int d, int *before, int *all) {
  int from = d, to = d;
  while (from > 0 && dims[from - 1] == 1) from--;
  while (to + 1 < ndim && dims[to + 1] == 1) to++;
  *before = d - from, *all = to - from + 1;
}

/* ---- sharing out ------------------------------------------------------------------------------
 */

/* Chooses the new dim of rows of size 1, which meet before dim `t`. Returns -1 if several fit. */
static int dim_of_one(const sli_factor *rows, int at, const sli_factors *f, const int64_t *to,
                      int t, int ndim) {
  int begin = t;
  while (begin > 0 && to[begin - 1] == 1) begin--;
  int ones = t - begin;
  if (!rows->alone) return at && f->of[at - 1].from == rows->from ? f->of[at - 1].to : t;
  if (ones) {
    if (ones != rows->run && rows->ones) return -1;
    return begin + (ones == rows->run ? rows->ones : 0);
  }
  if (t < ndim && !at) return t;
  if (at && t == ndim) return f->of[at - 1].to;
  return -1;
}

/* Splits factor `at` after `size` of its positions. */
static bool split_factor(sli_factors *f, int at, int64_t size) {
  sli_factor *a = &f->of[at];
  if (a->rows || a->size % size || f->count == SLI_MOST_FACTORS) return false;
  memmove(a + 1, a, (size_t)(f->count - at) * sizeof *a);
  f->count++;
  a[1].size /= size, a[1].actual = a->repeats ? 1 : a[1].size;
  a->size = size, a->actual = a->repeats ? 1 : size;
  return true;
}

/* Gives each factor a new dim. */
bool sli_factors_share(sli_factors *f, const int64_t *to, int ndim) {
  int at = 0;
  for (int t = 0; t < ndim; t++) {
    bool begun = false;
    for (int64_t need = to[t]; need > 1; at++, begun = true) {
      if (at == f->count) return false;
      sli_factor *a = &f->of[at];
      if (a->size == 1 && !begun) {
        a->to = dim_of_one(a, at, f, to, t, ndim);
        if (a->to < 0) return false;
        begun = a->to == t;
        continue;
      }
      if (need % a->size && !split_factor(f, at, need)) return false;
      a->to = t;
      need /= a->size;
    }
  }
  for (; at < f->count; at++) {
    if (f->of[at].size != 1) return false;
    f->of[at].to = dim_of_one(&f->of[at], at, f, to, ndim, ndim);
    if (f->of[at].to < 0) return false;
  }
  return true;
}

/* ---- new dims ---------------------------------------------------------------------------------
 */

/* Finds the new actual dims, and the rows in them. Returns false if a dim would have rows twice, or
 * repeated positions beside others. */
bool sli_factors_dims(const sli_factors *f, sl_type *out, sli_rows *rows) {
  bool repeats[SL_MAX_DIMS] = {0}, others[SL_MAX_DIMS] = {0};
  int64_t inner[SL_MAX_DIMS];
  for (int d = 0; d < out->ndim; d++) out->dim[d] = 1, inner[d] = 1;
  for (int i = 0; i < f->count; i++) {
    const sli_factor *a = &f->of[i];
    sli_dim_rows *r = &rows->dim[a->to];
    if (a->rows && r->outer) return false;
    if (a->rows) *r = (sli_dim_rows){inner[a->to], 1, inner[a->to] > 1};
    else if (r->outer) r->inner *= a->size;
    else inner[a->to] *= a->size;
    out->dim[a->to] *= a->actual;
    repeats[a->to] |= a->repeats, others[a->to] |= !a->repeats;
  }
  for (int d = 0; d < out->ndim; d++)
    if (repeats[d] && others[d]) return false;
  return true;
}

/* ---- factors of a tensor ----------------------------------------------------------------------
 */

/* Finds the factors of a tensor's dims, by exported lengths, or by the actual ones if `exported` is
 * NULL. */
bool sli_factors_find(sli_import *m, const sl_type *x, const sli_rows *rows,
                      const sli_pt_type *exported, sli_factors *f) {
  const int64_t *dims = exported ? exported->dim : x->dim;
  *f = (sli_factors){0};
  for (int d = 0; d < x->ndim; d++) {
    const sli_dim_rows *r = &rows->dim[d];
    int before = f->count;
    if (r->outer) {
      int64_t size = exported ? m->exported : m->rows;
      if (exported && dims[d] != r->outer * size * r->inner) return false;
      add_rows(f, r, size, m->rows);
      for (int i = before; i < f->count; i++)
        if (f->of[i].rows) count_ones(dims, x->ndim, d, &f->of[i].ones, &f->of[i].run);
    } else if (dims[d] == x->dim[d]) add_plain(f, dims[d]);
    else if (x->dim[d] == 1) add(f, dims[d], 1)->repeats = true;
    else return false;
    bool joined = r->outer > 1 && !r->first && before && f->of[before].rows;
    for (int i = before - joined; i < f->count; i++) f->of[i].from = d;
  }
  return true;
}

sli_rows sli_rows_reshaped(sli_import *m, const sl_type *from, const sli_rows *rows,
                           const sl_type *to) {
  sli_factors f;
  sli_rows out = {0};
  sl_type dims = *to;
  bool first = false, same = from->ndim == to->ndim;
  for (int d = 0; d < from->ndim && same; d++) same = from->dim[d] == to->dim[d];
  if (same) return *rows;
  for (int d = 0; d < from->ndim; d++) first |= rows->dim[d].first;
  out.lost = !sli_factors_find(m, from, rows, NULL, &f) ||
             !sli_factors_share(&f, to->dim, to->ndim) || !sli_factors_dims(&f, &dims, &out);
  for (int d = 0; d < to->ndim; d++) {
    if (first && out.dim[d].outer)
      out.lost |= rows->dim[d].outer != out.dim[d].outer || from->dim[d] != to->dim[d];
    out.dim[d].first = first && rows->dim[d].first;
  }
  return out;
}
