/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA attention ops whose keys and values arrive piece by piece, for the kernels of
 * attention_forward.cuh. ops/attention_sweep.c describes them.
 *
 * The number of the current piece is in device memory, where the previous call left it. All calls
 * for a piece of queries therefore make the same launches and can be graphs. Tiles of keys begin at
 * the starts of pieces; if pieces begin at multiples of a tile's length, results have the same bits
 * as calls with all keys. */
#include <stdlib.h>

#include <sluice/cuda.h>

#include "kernels/cuda/attention_views.cuh"

namespace {

using namespace sli;

/* ---- moving columns ---------------------------------------------------------------- */

float *column(void *array, int64_t at) { return array ? (float *)array + at : NULL; }

/* Copies `width` columns of the call's rows. */
void move_columns(const sl_call *call, const float *from, int64_t from_row, float *to,
                  int64_t to_row, int64_t width, void *stream) {
  int64_t n = call->in_type[0].dim[1];
  move_rows(block<float>{from, to, from_row, n * from_row, to_row, n * to_row, width}, n,
            call->in_type[0].dim[0], stream);
}

/* ---- current piece ---------------------------------------------------- */

/* Advances the piece number: from 0 up to the queries' piece, then 0; or, with `falls`, from the
 * queries' piece down to 0, then to the one after the queries' piece. */
__global__ void leave_turn(float *row, int64_t rows, int64_t batch, int64_t width, bool first,
                           int own, bool falls) {
  int j = first ? 0 : (int)*row;
  __syncthreads(); /* all threads have read it */
  float next = (float)(falls ? (j ? j - 1 : own + 1) : j == own ? 0 : j + 1);
  for (int64_t b = 0; b < rows; b++)
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) row[b * batch + i] = next;
}

const sl_call_cut *cut_of(const sl_call *call) { return (const sl_call_cut *)call->attrs->user; }

/* Advances the number in `row` of an output, an extra row that holds no position. */
void pass_turn(const sl_call *call, int output, int64_t row, bool falls, void *stream) {
  const sl_type *t = &call->out_type[output];
  int64_t width = t->dim[2];
  launch(stream, dim3(1), threads_for(width), 0, leave_turn,
         (float *)call->out[output] + row * width, t->dim[0], t->dim[1] * width, width,
         !accumulates(call, output), call->tick.piece, falls);
}

int longest_piece(const sl_call_cut *cut) {
  int64_t most = 0;
  for (int32_t k = 0; k < cut->pieces; k++)
    if (cut->starts[k + 1] - cut->starts[k] > most) most = cut->starts[k + 1] - cut->starts[k];
  return (int)most;
}

/* Fills an attention of all queries of the call. */
attention<float> view(const sl_call *call, int output, int64_t row, const void *ids) {
  const sl_type *q = &call->in_type[0];
  attention<float> a = sizes<float>(call, q, call->tick.row);
  rows_of_q(a, a.o_row);
  a.keys = cut_of(call)->starts[call->tick.piece + 1];
  a.kv_row = 2 * a.kv_heads * a.dim;
  a.mask = sli_mask_of(call->attrs, call->attrs->place.length, ids);
  a.q = (const float *)call->in[0];
  a.k = (const float *)call->in[1];
  a.v = a.k + a.kv_heads * a.dim;
  a.comes.starts = (const int32_t *)call->state;
  a.comes.turn = (const float *)call->out[output] + row * a.kv_row;
  a.comes.first = !accumulates(call, output);
  a.comes.own = call->tick.piece;
  a.comes.longest = longest_piece(cut_of(call));
  return a;
}

/* ---- complete rows --------------------------------------------------- */

/* Copies the rows of dkv of the queries' own piece, after that piece. */
__global__ void hand_on(attention<float> a, const float *dkv, float *to) {
  if ((a.comes.first ? 0 : (int)*a.comes.turn) != a.comes.own) return;
  const float *from = dkv + blockIdx.y * a.comes.dkv_batch + (a.q0 + blockIdx.x) * a.kv_row;
  to += (blockIdx.y * (a.keys - a.q0) + blockIdx.x) * a.kv_row;
  for (int64_t c = threadIdx.x; c < a.kv_row; c += blockDim.x) to[c] = from[c];
}

} // namespace

void sli_cuda_attention_parts(const sl_call *call, void *stream) {
  int64_t q = call->in_type[0].dim[2], kv = call->in_type[1].dim[2];
  move_columns(call, (const float *)call->in[0], q, (float *)call->out[0], q, q, stream);
  for (int i = 0; i < 2; i++)
    move_columns(call, (const float *)call->in[1 + i], kv, column(call->out[1], i * kv), 2 * kv, kv,
                 stream);
}

void sli_cuda_attention_parts_b(const sl_call *call, void *stream) {
  int64_t q = call->in_type[0].dim[2], kv = call->in_type[1].dim[2] / 2;
  move_columns(call, (const float *)call->in[0], q, (float *)call->out[0], q, q, stream);
  for (int i = 0; i < 2; i++)
    move_columns(call, (const float *)call->in[1] + i * kv, 2 * kv, (float *)call->out[1 + i], kv,
                 kv, stream);
}

void sli_cuda_attention_packed_parts(const sl_call *call, void *stream) {
  int64_t row = call->in_type[0].dim[2], q = call->out_type[0].dim[2], kv = row - q;
  const float *qkv = (const float *)call->in[0];
  move_columns(call, qkv, row, (float *)call->out[0], q, q, stream);
  move_columns(call, qkv + q, row, (float *)call->out[1], kv, kv, stream);
}

void sli_cuda_attention_packed_parts_b(const sl_call *call, void *stream) {
  int64_t row = call->out_type[0].dim[2], q = call->in_type[0].dim[2], kv = row - q;
  move_columns(call, (const float *)call->in[0], q, (float *)call->out[0], row, q, stream);
  move_columns(call, (const float *)call->in[1], kv, column(call->out[0], q), row, kv, stream);
}

void sli_cuda_attention_sweep(const sl_call *call, void *stream) {
  int64_t turn = call->out_type[2].dim[1] - 1; /* the last row */
  attention<float> a = view(call, 2, turn, call->nin > 2 ? keep_ids(call, stream) : NULL);
  a.out = (float *)call->out[0];
  a.logs.lse = (float *)call->out[1];
  a.comes.seen = (float *)call->out[3];
  each_run(call, a, [&](const attention<float> &run, bool) { attend_sweep(run, stream); });
  pass_turn(call, 2, turn, true, stream);
}

void sli_cuda_attention_sweep_b(const sl_call *call, void *stream) {
  int64_t turn = call->attrs->place.length;
  float *dkv = (float *)call->out[2];
  attention<float> a = view(call, 2, turn, sli_optional(call, 5));
  backward_inputs(call, a, 2);
  a.dq = (float *)call->out[0];
  a.dk = dkv;
  a.dv = dkv + a.kv_row / 2;
  a.comes.dkv_batch = call->out_type[2].dim[1] * a.kv_row;
  each_run(call, a, [&](attention<float> run, bool first) {
    run.adds.kv = !first || a.comes.own + 1 < cut_of(call)->pieces;
    attend_sweep_b(run, stream);
  });
  if (call->out[1])
    launch(stream, dim3((unsigned)(a.keys - a.q0), (unsigned)a.batch), threads_for(a.kv_row), 0,
           hand_on, a, (const float *)dkv, (float *)call->out[1]);
  pass_turn(call, 2, turn, false, stream);
}

void sli_cuda_attention_sweep_release(void *state) { cudaFree(state); }

/* Copies the starts of the pieces to device memory. */
static sl_status copy_starts(const sl_call_cut *cut, int32_t *host, void **state) {
  size_t bytes = (size_t)(cut->pieces + 1) * sizeof *host;
  for (int32_t k = 0; k <= cut->pieces; k++) host[k] = (int32_t)cut->starts[k];
  if (cudaMalloc(state, bytes))
    return sl_fail(SL_E_MEMORY, "out of memory for the offsets of %d pieces", cut->pieces);
  return sl_cuda_copy(*state, host, bytes);
}

sl_status sli_cuda_attention_sweep_prepare(const sl_call *call, void **state) {
  const sl_call_cut *cut = cut_of(call);
  int32_t *host = (int32_t *)calloc((size_t)cut->pieces + 1, sizeof *host);
  *state = NULL;
  sl_status status =
      host ? copy_starts(cut, host, state)
           : sl_fail(SL_E_MEMORY, "out of memory for the offsets of %d pieces", cut->pieces);
  free(host);
  if (!status)
    status = prepare_attend(SL_F32, call->in_type[0].dim[2] / call->attrs->attention.heads);
  if (!status) return SL_OK;
  cudaFree(*state);
  *state = NULL;
  return status;
}
