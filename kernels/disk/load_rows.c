/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tables on disk. Reads the whole pages of each id's row, all rows of a tick at once, and
 * unpacks the rows. */
#include <math.h>

#include <sluice/graph.h>

#include "base/base.h"
#include "kernels/disk/disk.h"
#include "kernels/disk/loaders.h"
#include "ops/ops.h"
#include "ops/storage.h"
#include "ops/table_loads.h"

typedef struct rows {
  int64_t count, width;
  sl_storage storage;
  size_t row_bytes, room; /* room: pages that hold any row */
} rows;

static rows rows_of(const sl_call *call) {
  const sl_type *ids = &call->in_type[0], *table = &call->in_type[1];
  int64_t tokens = ids->dim[0] * ids->dim[1], width = sl_type_last(&call->out_type[0]);
  sl_type row = SL_TYPE(table->dtype, sl_type_last(table));
  size_t bytes = sl_type_bytes(&row);
  return (rows){.count = sl_call_rows(call, 0, tokens) * (sl_type_elements(ids) / tokens),
                .width = width,
                .storage = sli_storage_of(call->attrs, table),
                .row_bytes = bytes,
                .room = sli_disk_pages(bytes) + SLI_DISK_PAGE};
}

static size_t load_rows_scratch(const sl_call *call) {
  rows r = rows_of(call);
  return (size_t)sl_type_elements(&call->in_type[0]) * r.room;
}

/* Offset of a row in its first page. */
static size_t offset_of(const sl_call *call, const rows *r, int32_t id) {
  return ((uintptr_t)call->in[1] + (size_t)id * r->row_bytes) % SLI_DISK_PAGE;
}

/* False for an id beyond the table, whose numbers are NaN as those of a table in memory. */
static bool has_row(const sl_call *call, int32_t id) {
  return id >= 0 && id < call->in_type[1].dim[0];
}

static sl_status load_rows_begin(const sl_call *call, const char *name, sli_load_copy *copy,
                                 void *ctx) {
  rows r = rows_of(call);
  const int32_t *ids = call->in[0];
  sl_row_reads *reads = ((const sl_serving *)call->attrs->user)->row_reads;
  size_t all = 0;
  for (int64_t i = 0; i < r.count; i++) {
    if (!has_row(call, ids[i])) continue;
    size_t skip = offset_of(call, &r, ids[i]), bytes = sli_disk_pages(skip + r.row_bytes);
    const char *from = (const char *)call->in[1] + (size_t)ids[i] * r.row_bytes - skip;
    SLI_TRY(copy(ctx, name, (char *)call->scratch + (size_t)i * r.room, from, bytes));
    all += bytes;
  }
  if (!reads) return SL_OK;
  __atomic_fetch_add(&reads->rows, (uint64_t)r.count, __ATOMIC_RELAXED);
  __atomic_fetch_add(&reads->bytes, all, __ATOMIC_RELAXED);
  return SL_OK;
}

static void load_rows_end(const sl_call *call) {
  rows r = rows_of(call);
  const int32_t *ids = call->in[0];
  const sl_type row = SL_TYPE(SL_F32, r.width);
  for (int64_t i = 0; i < r.count; i++) {
    float *out = (float *)call->out[0] + i * r.width;
    for (int64_t k = 0; k < r.width && !has_row(call, ids[i]); k++) out[k] = NAN;
    if (has_row(call, ids[i]))
      sli_storage_unpack(
          r.storage, &row,
          (const char *)call->scratch + (size_t)i * r.room + offset_of(call, &r, ids[i]), out);
  }
}

const sli_loader sli_load_rows = {&sl_op_load_rows, load_rows_scratch, load_rows_begin,
                                  load_rows_end};
