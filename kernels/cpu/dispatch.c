/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that dispatch (route) rows to the devices of their experts and collect the results.
 * ops/dispatch.c describes the order of rows. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/crowded.h"
#include "ops/ops.h"
#include "ops/dispatch.h"
#include "ops/layout.h"

/* ---- shapes ------------------------------------------------------------------------------ */

static int64_t width_of(const sl_type *t) { return sl_type_last(t); }

/* Returns the number of rows that an array can hold. Arrays for tokens and for ids both count rows
 * along the first dim that is not 1. */
static int64_t room_of(const sl_type *t) { return sl_type_elements(t) / width_of(t); }

static int64_t dispatch_rows_of(const sl_call *call, int i) {
  return sl_call_rows(call, i, room_of(&call->in_type[i]));
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static void dispatch_cpu(const sl_call *call) {
  const sl_dispatch *r = sli_dispatch_of(call);
  const int32_t *ids = call->in[1];
  int64_t count = sl_type_elements(&call->in_type[1]), width = width_of(&call->in_type[0]), n = 0;
  int64_t each = count / room_of(&call->in_type[0]), room = room_of(&call->out_type[0]);
  const float *x = call->in[0];
  float *out = call->out[0];
  for (int64_t i = 0; i < count && n < room; i++)
    if (sli_dispatch_has(r, ids[i]))
      memcpy(out + n++ * width, x + i / each * width, (size_t)width * sizeof *out);
  sl_call_fill(call, 0, n);
}

/* ---- collect --------------------------------------------------------------------------------- */

static void collect_cpu(const sl_call *call) {
  int64_t width = width_of(&call->out_type[0]), room = room_of(&call->out_type[0]), n = 0;
  float *out = call->out[0];
  for (int p = 0; p < call->nin; p++) {
    int64_t rows = SLI_MIN(dispatch_rows_of(call, p), room - n);
    memcpy(out + n * width, call->in[p], (size_t)(rows * width) * sizeof *out);
    n += rows;
  }
  sl_call_fill(call, 0, n);
}

/* ---- own_ids --------------------------------------------------------------------------------- */

static void own_ids_cpu(const sl_call *call) {
  const sl_dispatch *r = sli_dispatch_of(call);
  const int32_t *ids = call->in[0];
  int32_t *out = call->out[0];
  int64_t count = sl_type_elements(&call->in_type[0]), room = sl_type_elements(&call->out_type[0]),
          n = 0;
  for (int64_t i = 0; i < count && n < room; i++)
    if (sli_dispatch_has(r, ids[i])) out[n++] = ids[i];
  sl_call_fill(call, 0, n);
}

/* ---- own_leaves ------------------------------------------------------------------------------ */

/* Returns the dims of a part of the whole. */
static sl_type part_type(const sl_region *r) {
  sl_type type = {.dtype = SL_I32, .ndim = r->ndim};
  for (int d = 0; d < r->ndim; d++) {
    type.dim[d] = r->parts[d].nranges ? 0 : r->whole[d];
    for (int i = 0; i < r->parts[d].nranges; i++) type.dim[d] += r->parts[d].count[i];
  }
  return type;
}

/* Writes the leaves of a source's ids; returns their number. */
static int64_t leaves_of_source(const sl_dispatch_leaves *l, const sl_region *from,
                                const int32_t *ids, int32_t *out, int64_t room) {
  sl_type type = part_type(from);
  int64_t count = sl_type_elements(&type), n = 0, run = 1;
  for (int64_t e = 0; e < count; e += run) {
    int64_t place = sli_region_index(from, type.dim, 0, e, &run);
    for (int64_t i = 0; i < run && e + i < count; i++)
      if (sli_dispatch_has(&l->to, ids[e + i]) && n < room)
        out[n++] = (int32_t)((place + i) / l->leaf);
  }
  return n;
}

static void own_leaves_cpu(const sl_call *call) {
  const sl_dispatch_leaves *l = call->attrs->user;
  const int32_t *ids = call->in[0];
  int64_t room = sl_type_elements(&call->out_type[0]), n = 0;
  for (int s = 0; s < l->sources; s++) {
    sl_type type = part_type(l->regions[s]);
    n += leaves_of_source(l, l->regions[s], ids, (int32_t *)call->out[0] + n, room - n);
    ids += sl_type_elements(&type);
  }
  sl_call_fill(call, 0, n);
}

/* ---- give_back ------------------------------------------------------------------------------- */

static void give_back_cpu(const sl_call *call) {
  const sl_dispatch *r = sli_dispatch_of(call);
  const int32_t *ids = call->in[1];
  int64_t width = width_of(&call->in_type[0]), have = dispatch_rows_of(call, 0);
  int64_t begin = SLI_MIN(sli_dispatch_count(r, ids, r->begin), have);
  int64_t rows = SLI_MIN(sli_dispatch_count(r, ids, r->end), have) - begin;
  rows = SLI_MIN(rows, room_of(&call->out_type[0]));
  memcpy(call->out[0], (const float *)call->in[0] + begin * width,
         (size_t)(rows * width) * sizeof(float));
  sl_call_fill(call, 0, rows);
}

/* ---- restore --------------------------------------------------------------------------------- */

/* Returns the part that has the rows of an expert. */
static int part_of(const sl_dispatch *r, int parts, int32_t id) {
  int part = (int)((int64_t)id * parts / r->count);
  while ((part + 1) * r->count / parts <= id) part++;
  while (part * r->count / parts > id) part--;
  return part;
}

/* Returns the next row of the id's part, or NULL if the id names no expert or there was no room for
 * the row. */
static const float *next_row(const sl_call *call, int32_t id, int64_t *at, int64_t width) {
  const sl_dispatch *r = sli_dispatch_of(call);
  if (id < 0 || id >= r->count) return NULL;
  int part = part_of(r, call->nin - 1, id);
  if (at[part] >= dispatch_rows_of(call, part + 1)) return NULL;
  return (const float *)call->in[part + 1] + at[part]++ * width;
}

static size_t restore_scratch(const sl_call *call, int threads) {
  (void)threads;
  return (size_t)call->nin * sizeof(int64_t);
}

/* Writes a row for each id, or the sum of a token's rows in order. */
static void restore_cpu(const sl_call *call) {
  const int32_t *ids = call->in[0];
  int64_t count = sl_type_elements(&call->in_type[0]), width = width_of(&call->out_type[0]);
  int64_t each = count / room_of(&call->out_type[0]), *at = call->scratch;
  float *out = call->out[0];
  memset(at, 0, (size_t)call->nin * sizeof *at);
  for (int64_t i = 0; i < count; i++, out += i % each ? 0 : width) {
    const float *row = next_row(call, ids[i], at, width);
    if (i % each == 0) memset(out, 0, (size_t)width * sizeof *out);
    for (int64_t c = 0; row && c < width; c++) out[c] = i % each ? out[c] + row[c] : row[c];
  }
}

/* ---- tables ---------------------------------------------------------------------------------- */

const sl_kernel sli_cpu_dispatch = {.backend = "cpu", .run = dispatch_cpu};

const sl_kernel sli_cpu_collect = {.backend = "cpu", .run = collect_cpu};

const sl_kernel sli_cpu_own_ids = {.backend = "cpu", .run = own_ids_cpu};

const sl_kernel sli_cpu_own_leaves = {.backend = "cpu", .run = own_leaves_cpu};

const sl_kernel sli_cpu_give_back = {.backend = "cpu", .run = give_back_cpu};

const sl_kernel sli_cpu_restore = {
    .backend = "cpu",
    .run = restore_cpu,
    .scratch = restore_scratch,
};
