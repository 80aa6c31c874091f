/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of arrays, and parts of parts. */
#include "ops/layout.h"

#include <string.h>

#include "base/base.h"
#include "ops/ops.h"

/* ---- a part -------------------------------------------------------------------- */

/* Number of positions that the ranges index. */
static int64_t extent(const sl_type *whole, const sl_part *part) {
  return part->axis == SL_PART_FLAT ? sl_type_elements(whole) : whole->dim[part->axis];
}

sl_status sli_part_check(const sl_type *whole, const sl_part *part) {
  if (whole->ndim < 0) return sli_misfit(whole, "the array to take a part of must not be empty");
  if (part->axis == SL_PART_ALL) return SL_OK;
  if (part->axis < SL_PART_FLAT || part->axis >= whole->ndim)
    return sli_misfit(whole, "a part along dim %d needs an array with that dim", part->axis);
  if (part->nranges < 0 || part->nranges > SL_PART_RANGES)
    return sl_fail(SL_E_SHAPE, "a part must have 0 to %d ranges, got %d", SL_PART_RANGES,
                   part->nranges);
  int64_t end = 0, positions = extent(whole, part);
  for (int r = 0; r < part->nranges; r++) {
    int64_t begin = part->begin[r], count = part->count[r];
    if (begin < end || count < 0 || count > positions - begin)
      return sli_misfit(whole, "range %d of a part, %lld from %lld on, must lie in [%lld, %lld)", r,
                        (long long)count, (long long)begin, (long long)end, (long long)positions);
    end = begin + count;
  }
  return SL_OK;
}

static void must_fit(const sl_type *whole, const sl_part *part) {
  SLI_CHECK(!sli_part_check(whole, part), "%s", sl_detail());
}

static int64_t count_of(const sl_part *part) {
  int64_t count = 0;
  for (int r = 0; r < part->nranges; r++) count += part->count[r];
  return count;
}

sl_type sl_part_type(const sl_type *whole, const sl_part *part) {
  must_fit(whole, part);
  sl_type type = *whole;
  if (part->axis == SL_PART_FLAT) type = SL_TYPE(whole->dtype, count_of(part));
  else if (part->axis != SL_PART_ALL) type.dim[part->axis] = count_of(part);
  return type;
}

sli_cut sli_part_cut(const sl_type *whole, const sl_part *part) {
  int64_t bytes = (int64_t)sl_type_bytes(whole), unit = (int64_t)sl_dtype_bytes(whole->dtype);
  if (part->axis == SL_PART_ALL)
    return (sli_cut){.rows = 1, .whole = bytes, .part = bytes, .nranges = 1, .count = {bytes}};
  for (int d = whole->ndim - 1; part->axis >= 0 && d > part->axis; d--) unit *= whole->dim[d];
  sli_cut cut = {.rows = 1,
                 .whole = extent(whole, part) * unit,
                 .part = count_of(part) * unit,
                 .nranges = part->nranges};
  for (int d = 0; d < part->axis; d++) cut.rows *= whole->dim[d];
  for (int r = 0; r < part->nranges; r++) {
    cut.begin[r] = part->begin[r] * unit;
    cut.count[r] = part->count[r] * unit;
  }
  return cut;
}

int64_t sli_cut_find(const sli_cut *cut, int64_t at, int64_t *run) {
  int64_t row = at / cut->part, in_row = at % cut->part;
  int r = 0;
  while (in_row >= cut->count[r]) in_row -= cut->count[r++];
  *run = cut->count[r] - in_row;
  return row * cut->whole + cut->begin[r] + in_row;
}

void sli_cut_take(const sli_cut *cut, int64_t begin, int64_t end, const void *whole, void *part) {
  for (int64_t at = begin, run; at < end; at += run) {
    int64_t from = sli_cut_find(cut, at, &run);
    run = SLI_MIN(run, end - at);
    memcpy((char *)part + (at - begin), (const char *)whole + from, (size_t)run);
  }
}

void sli_cut_put(const sli_cut *cut, int64_t begin, int64_t end, const void *part, void *whole) {
  for (int64_t at = begin, run; at < end; at += run) {
    int64_t to = sli_cut_find(cut, at, &run);
    run = SLI_MIN(run, end - at);
    memcpy((char *)whole + to, (const char *)part + (at - begin), (size_t)run);
  }
}

sli_permutation sli_permutation_of(const sl_type *x, const sl_attrs *attrs, bool back) {
  sli_permutation o = {.ndim = x->ndim};
  int64_t stride[SL_MAX_DIMS], last = 1;
  for (int d = x->ndim - 1; d >= 0; last *= x->dim[d--]) stride[d] = last;
  for (int d = 0; d < x->ndim; d++) {
    int of = (int)attrs->shape.dims[d], from = back ? d : of, to = back ? of : d;
    o.dim[to] = x->dim[from];
    o.stride[to] = stride[from];
  }
  return o;
}

sli_permutation sli_expansion_of(const sl_type *x, const sl_type *y) {
  sli_permutation o = {.ndim = y->ndim};
  int64_t stride = 1;
  for (int d = y->ndim - 1, own = x->ndim - 1; d >= 0; d--, own--) {
    o.dim[d] = y->dim[d];
    o.stride[d] = own < 0 || x->dim[own] == 1 ? 0 : stride;
    if (own >= 0) stride *= x->dim[own];
  }
  return o;
}

sl_part sli_concat_part(const sl_type *types, int i, int dim) {
  sl_part part = {.axis = dim, .nranges = 1, .count = {types[i].dim[dim]}};
  for (int k = 0; k < i; k++) part.begin[0] += types[k].dim[dim];
  return part;
}

void sl_part_take(const sl_type *whole, const sl_part *part, const void *from, void *to) {
  must_fit(whole, part);
  sli_cut cut = sli_part_cut(whole, part);
  sli_cut_take(&cut, 0, cut.rows * cut.part, from, to);
}

void sl_part_put(const sl_type *whole, const sl_part *part, const void *from, void *to) {
  must_fit(whole, part);
  sli_cut cut = sli_part_cut(whole, part);
  sli_cut_put(&cut, 0, cut.rows * cut.part, from, to);
}

/* ---- a part of a part ------------------------------------------------------------ */

sl_type sl_shard_type(const sl_shard *shard) {
  sl_type type = shard->whole;
  for (int p = 0; p < SL_SHARD_PARTS; p++) type = sl_part_type(&type, &shard->parts[p]);
  return type;
}

void sli_shard_walk(const sl_shard *shard, sli_stretch *fn, void *ctx) {
  sli_cut cuts[SL_SHARD_PARTS];
  sl_type type = shard->whole;
  for (int p = 0; p < SL_SHARD_PARTS; p++) {
    must_fit(&type, &shard->parts[p]);
    cuts[p] = sli_part_cut(&type, &shard->parts[p]);
    type = sl_part_type(&type, &shard->parts[p]);
  }
  const sli_cut *last = &cuts[SL_SHARD_PARTS - 1];
  for (int64_t at = 0, run; at < last->rows * last->part; at += run) {
    int64_t whole = sli_cut_find(last, at, &run);
    for (int p = SL_SHARD_PARTS - 2; p >= 0; p--) {
      int64_t bytes;
      whole = sli_cut_find(&cuts[p], whole, &bytes);
      run = SLI_MIN(run, bytes);
    }
    fn(ctx, at, whole, run);
  }
}

typedef struct copying {
  const char *from;
  char *to;
} copying;

static void take_stretch(void *ctx, int64_t part, int64_t whole, int64_t bytes) {
  const copying *c = ctx;
  memcpy(c->to + part, c->from + whole, (size_t)bytes);
}

static void put_stretch(void *ctx, int64_t part, int64_t whole, int64_t bytes) {
  const copying *c = ctx;
  memcpy(c->to + whole, c->from + part, (size_t)bytes);
}

void sl_shard_take(const sl_shard *shard, const void *whole, void *to) {
  sli_shard_walk(shard, take_stretch, &(copying){whole, to});
}

void sl_shard_put(const sl_shard *shard, const void *from, void *whole) {
  sli_shard_walk(shard, put_stretch, &(copying){from, whole});
}
