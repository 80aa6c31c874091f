/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that join, split, reshape, permute and expand tensors without changing numbers. */
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/chunk.h"
#include "kernels/cpu/kernels.h"
#include "ops/layout.h"
#include "ops/ops.h"
#include "ops/views.h"

enum { CHUNK_BYTES = 4 * SLI_CHUNK_ELEMENTS };

/* ---- concatenation along one dim --------------------------------------------------- */

/* Counts the chunks of all arrays, concatenated in order. */
static int count_chunks(int n, const sl_type *types) {
  int count = 0;
  for (int i = 0; i < n; i++)
    count += sli_chunk_count((int64_t)sl_type_bytes(&types[i]), CHUNK_BYTES);
  return count;
}

/* Returns the array of chunk *i and sets *i to the chunk's number within it. */
static int array_of_chunk(const sl_type *types, int *i) {
  for (int a = 0;; a++) {
    int n = sli_chunk_count((int64_t)sl_type_bytes(&types[a]), CHUNK_BYTES);
    if (*i < n) return a;
    *i -= n;
  }
}

static void concat_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int a = array_of_chunk(call->in_type, &i);
  sl_part part = sli_concat_part(call->in_type, a, sli_concat_axis(call->attrs));
  sli_cut cut = sli_part_cut(&call->out_type[0], &part);
  sli_range r = sli_chunk_range(cut.rows * cut.part, CHUNK_BYTES, i);
  sli_cut_put(&cut, r.begin, r.end, (const char *)call->in[a] + r.begin, call->out[0]);
}

static void concat_cpu(const sl_call *call) {
  sl_team_for(call->team, count_chunks(call->nin, call->in_type), concat_chunk, (void *)call);
}

static void concat_b_chunk(void *arg, int i) {
  const sl_call *call = arg;
  int a = array_of_chunk(call->out_type, &i);
  if (!call->out[a]) return;
  sl_part part = sli_concat_part(call->out_type, a, sli_concat_axis(call->attrs));
  sli_cut cut = sli_part_cut(&call->in_type[0], &part);
  sli_range r = sli_chunk_range(cut.rows * cut.part, CHUNK_BYTES, i);
  sli_cut_take(&cut, r.begin, r.end, call->in[0], (char *)call->out[a] + r.begin);
}

static void concat_b_cpu(const sl_call *call) {
  sl_team_for(call->team, count_chunks(call->nout, call->out_type), concat_b_chunk, (void *)call);
}

/* ---- reshape ------------------------------------------------------------------------ */

static void copy_chunk(void *arg, int i) {
  const sl_call *call = arg;
  sli_range r = sli_chunk_range((int64_t)sl_type_bytes(&call->out_type[0]), CHUNK_BYTES, i);
  memcpy((char *)call->out[0] + r.begin, (const char *)call->in[0] + r.begin,
         (size_t)(r.end - r.begin));
}

static void reshape_cpu(const sl_call *call) {
  if (call->in[0] != call->out[0])
    sl_team_for(call->team, count_chunks(1, call->out_type), copy_chunk, (void *)call);
}

/* ---- permute ------------------------------------------------------------------------ */

typedef struct permuting {
  const sl_call *call;
  sli_permutation order;
} permuting;

/* Gathers a row of the output from elements `stride` apart. */
static void gather(const char *from, char *to, int64_t n, int64_t stride, size_t bytes) {
  if (stride == 1) {
    memcpy(to, from, (size_t)n * bytes);
    return;
  }
  for (int64_t i = 0; i < n; i++) switch (bytes) {
    case 2: ((uint16_t *)to)[i] = ((const uint16_t *)from)[i * stride]; break;
    case 4: ((uint32_t *)to)[i] = ((const uint32_t *)from)[i * stride]; break;
    default: ((uint64_t *)to)[i] = ((const uint64_t *)from)[i * stride]; break;
    }
}

static void permute_chunk(void *arg, int i) {
  const permuting *p = arg;
  const sli_permutation *o = &p->order;
  size_t bytes = sl_dtype_bytes(p->call->out_type[0].dtype);
  sli_range r = sli_elements(&p->call->out_type[0], i);
  int last = o->ndim - 1;
  for (int64_t n, at = r.begin; at < r.end; at += n) {
    int64_t width = last < 0 ? 1 : o->dim[last], stride = last < 0 ? 1 : o->stride[last];
    n = SLI_MIN(width - at % width, r.end - at);
    gather((const char *)p->call->in[0] + sli_permutation_from(o, at) * (int64_t)bytes,
           (char *)p->call->out[0] + at * (int64_t)bytes, n, stride, bytes);
  }
}

static void move_by(const sl_call *call, sli_permutation order) {
  permuting p = {call, order};
  sl_team_for(call->team, sli_element_chunks(&call->out_type[0]), permute_chunk, &p);
}

static void permute_cpu(const sl_call *call) {
  move_by(call, sli_permutation_of(&call->in_type[0], call->attrs, false));
}

static void permute_b_cpu(const sl_call *call) {
  move_by(call, sli_permutation_of(&call->in_type[0], call->attrs, true));
}

/* ---- expand ------------------------------------------------------------------------- */

static void expand_cpu(const sl_call *call) {
  move_by(call, sli_expansion_of(&call->in_type[0], &call->out_type[0]));
}

/* ---- tables ------------------------------------------------------------------------- */

const sl_kernel sli_cpu_concat = {.backend = "cpu", .run = concat_cpu};

const sl_kernel sli_cpu_concat_b = {.backend = "cpu", .run = concat_b_cpu};

const sl_kernel sli_cpu_split = {.backend = "cpu", .run = concat_b_cpu};

const sl_kernel sli_cpu_reshape = {.backend = "cpu", .run = reshape_cpu};

const sl_kernel sli_cpu_reshape_b = {.backend = "cpu", .run = reshape_cpu};

const sl_kernel sli_cpu_permute = {.backend = "cpu", .run = permute_cpu};

const sl_kernel sli_cpu_permute_b = {.backend = "cpu", .run = permute_b_cpu};

const sl_kernel sli_cpu_expand = {.backend = "cpu", .run = expand_cpu};
