/* Rows that take elements of an array by their positions along a dim, and that add elements to such
 * positions. What is added to one position is added in the order of the index, by one thread. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/indexing.h"
#include "kernels/kernels.h"

/* ---- shapes ---------------------------------------------------------------------------- */

static sl_status want_numbers(const char *name, const sl_type *x) {
  if (x->dtype == SL_I32) return sli_want_array(name, x, SL_I32, -1);
  return sli_want_array(name, x, SL_F32, -1);
}

static sl_status gather_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_numbers("x", &in[0]));
  return sli_indexing_check(attrs, &in[0], &in[1], &out[0]);
}

static sl_status gather_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  sl_type y;
  SLI_TRY(sli_indexing_check(attrs, &in[2], &in[0], &y));
  y.dtype = SL_F32;
  SLI_TRY(sli_want("dy", &in[1], &y));
  out[0] = in[2];
  out[0].dtype = SL_F32;
  return SL_OK;
}

/* Without x only attrs.count says how long the output is. */
static sl_status scatter_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  bool onto = nin > 2 && in[2].ndim >= 0;
  SLI_TRY(sli_want_array("src", &in[0], SL_F32, -1));
  int axis = sli_one_axis(attrs, &in[0]);
  sl_type src, y = onto ? in[2] : in[0];
  if (onto) SLI_TRY(sli_want_array("x", &in[2], SL_F32, -1));
  else if (attrs->count < 1)
    return sl_fail(SL_E_SHAPE, "attrs.count must say how many positions the sums have, where there "
                   "is no x");
  else if (axis < y.ndim) y.dim[axis] = attrs->count;
  SLI_TRY(sli_indexing_check(attrs, &y, &in[1], &src));
  SLI_TRY(sli_want("src", &in[0], &src));
  out[0] = y;
  return SL_OK;
}

SLI_COST(gather_cost, 1, 1, 1)

/* What moves is what is named. */
static void scatter_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                         double *flops, double *bytes) {
  (void)attrs;
  *flops = (double)sl_type_elements(&in[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

/* ---- ways to share --------------------------------------------------------------------- */

/* Along a dim that is not indexed. */
static sl_sbp index_along(const sl_type *index, int dim) {
  return index->dim[dim] > 1 ? sli_split(dim) : (sl_sbp){0};
}

/* Dims that are not indexed; positions that are asked for; positions that there are. */
static int gather_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                             sl_signature *out) {
  int axis = sli_one_axis(attrs, &in[0]), n = 0;
  (void)nin;
  for (int d = 0; d < in[0].ndim; d++)
    if (d != axis)
      out[n++] = (sl_signature){.in = {sli_split(d), index_along(&in[1], d)}, .out = {sli_split(d)}};
  out[n++] = (sl_signature){.in = {[1] = sli_split(axis)}, .out = {sli_split(axis)}};
  if (in[0].dtype == SL_I32) return n;
  out[n++] = (sl_signature){.in = {sli_split(axis)}, .out = {sli_partial()}, .first = 1};
  out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  return n;
}

static int scatter_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                              sl_signature *out) {
  int axis = sli_one_axis(attrs, &in[0]), n = 0;
  bool onto = nin > 2 && in[2].ndim >= 0;
  for (int d = 0; d < in[0].ndim; d++)
    if (d != axis)
      out[n++] = (sl_signature){.in = {sli_split(d), index_along(&in[1], d)}, .out = {sli_split(d)}};
  for (int s = 0; s < n && onto; s++) out[s].in[2] = out[s].in[0];
  out[n++] = (sl_signature){.in = {sli_split(axis), sli_split(axis)}, .out = {sli_partial()}};
  out[n++] = (sl_signature){.in = {sli_partial()}, .out = {sli_partial()}};
  if (!onto) return n;
  out[n - 1].in[2] = out[n - 2].in[2] = sli_partial();
  out[n++] = (sl_signature){.in = {[2] = sli_split(axis)}, .out = {sli_split(axis)}, .first = 3};
  return n;
}

/* ---- what types cannot say ------------------------------------------------------------- */

/* `there`: positions of the array here, which may be a part of the whole. */
static sl_status check_index(const sl_call *call, int64_t there) {
  int64_t count = call->attrs->count ? call->attrs->count : there;
  if (call->attrs->partial && !call->attrs->count) return SL_OK;
  const sl_type *type = &call->in_type[1];
  const int32_t *index = call->in[1];
  char text[SL_TYPE_TEXT];
  for (int64_t i = 0; i < sl_type_elements(type); i++)
    if (index[i] < 0 || index[i] >= count)
      return sl_fail(SL_E_INPUT, "element %lld of its index, %s, is %d, and there are positions 0 to "
                     "%lld", (long long)i, sl_type_format(text, type), (int)index[i],
                     (long long)count - 1);
  return SL_OK;
}

static sl_status gather_check(const sl_call *call) {
  const sl_type *x = &call->in_type[0];
  return check_index(call, x->dim[sli_one_axis(call->attrs, x)]);
}

static sl_status scatter_check(const sl_call *call) {
  const sl_type *y = &call->out_type[0];
  return check_index(call, y->dim[sli_one_axis(call->attrs, y)]);
}

/* ---- gather ---------------------------------------------------------------------------- */

typedef struct taking {
  const sl_call *call;
  sli_indexing by;
  uint32_t other; /* in place of what is not there */
} taking;

static uint32_t other_word(const sl_call *call) {
  const float nan = NAN;
  uint32_t word;
  memcpy(&word, &nan, sizeof word);
  if (call->attrs->partial) return 0;
  return call->out_type[0].dtype == SL_I32 ? UINT32_MAX : word;
}

static void gather_chunk(void *arg, int i) {
  const taking *t = arg;
  const sli_indexing *x = &t->by;
  const uint32_t *from = t->call->in[0];
  const int32_t *index = t->call->in[1];
  uint32_t *to = t->call->out[0];
  sli_range r = sli_elements(&t->call->out_type[0], i);
  for (int64_t run, at = r.begin; at < r.end; at += run) {
    int64_t row = at / x->inner, c = at % x->inner;
    int64_t id = index[sli_permutation_from(&x->index, at)] - x->first;
    run = x->rows ? SLI_MIN(x->inner - c, r.end - at) : 1;
    if (id >= 0 && id < x->n)
      memcpy(to + at, from + (row / x->m * x->n + id) * x->inner + c, (size_t)run * sizeof *to);
    else
      for (int64_t e = 0; e < run; e++) to[at + e] = t->other;
  }
}

static void gather_cpu(const sl_call *call) {
  taking t = {call, sli_indexing_of(call->attrs, &call->in_type[0], &call->in_type[1]),
              other_word(call)};
  sl_team_for(call->team, sli_element_chunks(&call->out_type[0]), gather_chunk, &t);
}

/* ---- sums ------------------------------------------------------------------------------ */

/* y [outer, n, inner] += src [outer, m, inner] at index. */
typedef struct adding {
  sli_indexing by;
  const int32_t *index;
  const float *src, *base; /* base: what y begins with; NULL: zeros; y itself: what is there */
  float *y;
  bool shows;    /* an index that is not there makes its line no number */
  int64_t block; /* lines, outer times inner of them, of a chunk */
} adding;

/* Columns [begin, end) of a row. */
static void begin_row(const adding *a, int64_t at, int64_t count) {
  if (!a->base) memset(a->y + at, 0, (size_t)count * sizeof *a->y);
  else if (a->base != a->y) memcpy(a->y + at, a->base + at, (size_t)count * sizeof *a->y);
}

static void add_row(const adding *a, int64_t outer, int64_t id, const float *src, int64_t begin,
                    int64_t end) {
  const sli_indexing *x = &a->by;
  bool there = id >= 0 && id < x->n;
  float *y = a->y + (outer * x->n + (there ? id : 0)) * x->inner;
  if (there)
    for (int64_t c = begin; c < end; c++) y[c] += src[c];
  else if (a->shows)
    for (int64_t c = begin; c < end; c++) y[c] = NAN;
}

/* Columns [begin, end) of one of the outer positions. */
static void add_columns(const adding *a, int64_t outer, int64_t begin, int64_t end) {
  const sli_indexing *x = &a->by;
  for (int64_t r = 0; r < x->n; r++)
    begin_row(a, (outer * x->n + r) * x->inner + begin, end - begin);
  for (int64_t k = 0; k < x->m; k++) {
    int64_t row = (outer * x->m + k) * x->inner;
    for (int64_t c = begin, next; c < end; c = next) {
      next = x->rows ? end : c + 1;
      int64_t id = a->index[sli_permutation_from(&x->index, row + c)] - x->first;
      add_row(a, outer, id, a->src + row, c, next);
    }
  }
}

static void add_chunk(void *arg, int i) {
  const adding *a = arg;
  sli_range r = sli_chunk_range(a->by.outer * a->by.inner, a->block, i);
  for (int64_t next, at = r.begin; at < r.end; at = next) {
    int64_t outer = at / a->by.inner, begin = at % a->by.inner;
    int64_t end = SLI_MIN(a->by.inner, begin + r.end - at);
    next = at + end - begin;
    add_columns(a, outer, begin, end);
  }
}

static void add_all(const sl_call *call, adding *a) {
  int64_t few = SLI_MIN(a->by.inner, SLI_CHUNK_COLUMNS);
  a->block = SLI_MAX(few, SLI_CHUNK_ELEMENTS / (a->by.n + a->by.m));
  sl_team_for(call->team, sli_chunk_count(a->by.outer * a->by.inner, a->block), add_chunk, a);
}

static void gather_b_cpu(const sl_call *call) {
  adding a = {.by = sli_indexing_of(call->attrs, &call->out_type[0], &call->in_type[0]),
              .index = call->in[0], .src = call->in[1], .y = call->out[0],
              .base = sli_accumulates(call, 0) ? call->out[0] : NULL};
  add_all(call, &a);
}

static void scatter_add_cpu(const sl_call *call) {
  adding a = {.by = sli_indexing_of(call->attrs, &call->out_type[0], &call->in_type[1]),
              .src = call->in[0], .index = call->in[1], .y = call->out[0],
              .base = call->nin > 2 ? call->in[2] : NULL, .shows = !call->attrs->partial};
  add_all(call, &a);
}

/* ---- rows ------------------------------------------------------------------------------ */

const sl_op sl_op_gather = {
    .name = "gather", .min_in = 2, .max_in = 2, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .mixed = true, .cheap = true,
    .pieces = SL_PIECES_SIGNATURES, .signatures = gather_signatures,
    .infer = gather_infer, .cost = gather_cost, .check = gather_check, .cpu = gather_cpu,
    .grad = {{.op = &sl_op_gather_b, .cls = SL_CLASS_B, .in = {SL_IN(1), SL_DOUT(0), SL_IN(0)},
              .nof = 1, .of = {0}}},
};

const sl_op sl_op_gather_b = {
    .name = "gather_b", .min_in = 3, .max_in = 3, .nout = 1,
    .narrow_in = 6, .narrow_out = 1, .mixed = true, .unread = 4,
    .pieces = SL_PIECES_SIGNATURES,
    .infer = gather_b_infer, .cost = gather_cost, .cpu = gather_b_cpu, .accumulates = 1,
};

const sl_op sl_op_scatter_add = {
    .name = "scatter_add", .min_in = 2, .max_in = 3, .nout = 1,
    .narrow_in = 5, .narrow_out = 1, .mixed = true, .over = {4},
    .pieces = SL_PIECES_SIGNATURES, .signatures = scatter_signatures,
    .infer = scatter_infer, .cost = scatter_cost, .check = scatter_check, .cpu = scatter_add_cpu,
    .grad = {{.op = &sl_op_gather, .cls = SL_CLASS_B, .in = {SL_DOUT(0), SL_IN(1)}, .nof = 1,
              .of = {0}},
             {.cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nof = 1, .of = {2}}},
};
