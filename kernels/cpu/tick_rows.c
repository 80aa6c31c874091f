/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that share the rows of a served tick among devices. */
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/layout.h"
#include "ops/ops.h"

enum { CHUNK_BYTES = 4 * SLI_CHUNK_ELEMENTS };

typedef struct moved {
  const char *from;
  char *to;
  int64_t bytes;
} moved;

static void move_chunk(void *arg, int i) {
  const moved *m = arg;
  sli_range r = sli_chunk_range(m->bytes, CHUNK_BYTES, i);
  memcpy(m->to + r.begin, m->from + r.begin, (size_t)(r.end - r.begin));
}

static void move_rows(const sl_call *call, moved m) {
  sl_team_for(call->team, sli_chunk_count(m.bytes, CHUNK_BYTES), move_chunk, &m);
}

static void part_rows_cpu(const sl_call *call) {
  int64_t width = sli_row_bytes(&call->in_type[0]),
          rows = sl_call_rows(call, 0, call->in_type[0].dim[1]);
  int64_t begin = sli_rows_before(call->attrs, rows, 0),
          end = sli_rows_before(call->attrs, rows, 1);
  move_rows(call, (moved){(const char *)call->in[0] + begin * width, call->out[0],
                          (end - begin) * width});
  sl_call_fill(call, 0, end - begin);
}

static void join_rows_cpu(const sl_call *call) {
  int64_t width = sli_row_bytes(&call->out_type[0]), done = 0;
  for (int i = 0; i < call->nin; i++) {
    int64_t rows = sl_call_rows(call, i, call->in_type[i].dim[1]);
    move_rows(call, (moved){call->in[i], (char *)call->out[0] + done * width, rows * width});
    done += rows;
  }
  sl_call_fill(call, 0, done);
}

const sl_kernel sli_cpu_part_rows = {.backend = "cpu", .run = part_rows_cpu};

const sl_kernel sli_cpu_join_rows = {.backend = "cpu", .run = join_rows_cpu};
