/* Rows that put tensors together and take them apart, and change no number. */
#include <stdio.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"
#include "kernels/ops/ops.h"

enum { CHUNK_BYTES = 4 * SLI_CHUNK_ELEMENTS };

/* A byte is read, and a byte is written. */
static void move_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)out;
  *flops = 0;
  for (int i = 0; i < nin; i++)
    if (in[i].ndim >= 0) *bytes += 2 * (double)sl_type_bytes(&in[i]);
}

/* ---- several arrays and the whole they make along one dim -------------------------- */

static int axis(const sl_attrs *attrs) { return __builtin_ctz(attrs->axes); }

static sl_status want_axis(const sl_attrs *attrs, const sl_type *type) {
  if (attrs->axes && !(attrs->axes & (attrs->axes - 1)) && axis(attrs) < type->ndim) return SL_OK;
  return sli_misfit(type, "attrs.axes must have one bit, of a dim of the inputs, not %#x",
                    attrs->axes);
}

/* The arrays' type but along the axis, where they add up to `*sum`. */
static sl_status want_row(const sl_attrs *attrs, int n, const sl_type *types, int64_t *sum) {
  SLI_TRY(want_axis(attrs, &types[0]));
  *sum = 0;
  for (int i = 0; i < n; i++) {
    sl_type want = types[0];
    char name[32];
    if (types[i].ndim == want.ndim) want.dim[axis(attrs)] = types[i].dim[axis(attrs)];
    snprintf(name, sizeof name, "input %d", i);
    SLI_TRY(sli_want(name, &types[i], &want));
    *sum += want.dim[axis(attrs)];
  }
  return SL_OK;
}

static sl_status concat_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  int64_t sum;
  SLI_TRY(want_row(attrs, nin, in, &sum));
  out[0] = in[0];
  out[0].dim[axis(attrs)] = sum;
  return SL_OK;
}

static sl_status concat_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  int64_t sum;
  SLI_TRY(want_row(attrs, nin - 1, in + 1, &sum));
  for (int o = 0; o + 1 < nin; o++) {
    out[o] = in[1 + o];
    out[o].dtype = in[0].dtype;
  }
  sl_type whole = out[0];
  whole.dim[axis(attrs)] = sum;
  return sli_want("dy", &in[0], &whole);
}

static int concat_b_outputs(const sl_attrs *attrs, int nin) {
  (void)attrs;
  return nin - 1;
}

/* Chunks of the first array, then chunks of the second, ... */
static int count_chunks(int n, const sl_type *types) {
  int count = 0;
  for (int i = 0; i < n; i++)
    count += sli_chunk_count((int64_t)sl_type_bytes(&types[i]), CHUNK_BYTES);
  return count;
}

/* Which array chunk *i is of; makes *i its number there. */
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
  sl_part part = sli_concat_part(call->in_type, a, axis(call->attrs));
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
  sl_part part = sli_concat_part(call->out_type, a, axis(call->attrs));
  sli_cut cut = sli_part_cut(&call->in_type[0], &part);
  sli_range r = sli_chunk_range(cut.rows * cut.part, CHUNK_BYTES, i);
  sli_cut_take(&cut, r.begin, r.end, call->in[0], (char *)call->out[a] + r.begin);
}

static void concat_b_cpu(const sl_call *call) {
  sl_team_for(call->team, count_chunks(call->nout, call->out_type), concat_b_chunk, (void *)call);
}

/* Along any dim but the one in which they lie one behind the other. */
static int concat_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                             sl_signature *out) {
  int count = 0;
  for (int d = 0; d < in[0].ndim; d++) {
    if (d == axis(attrs)) continue;
    sl_signature *s = &out[count++];
    *s = (sl_signature){0};
    for (int i = 0; i < SLI_MIN(nin, SL_SIGNATURE_ARGS); i++) s->in[i] = sli_split(d);
    s->out[0] = sli_split(d);
  }
  return count;
}

/* ---- rows --------------------------------------------------------------------------- */

const sl_op sl_op_concat = {
    .name = "concat", .min_in = 1, .max_in = -1, .nout = 1,
    .narrow_in = ~0u, .narrow_out = 1,
    .pieces = SL_PIECES_SIGNATURES, .signatures = concat_signatures,
    .infer = concat_infer, .cost = move_cost, .cpu = concat_cpu, .cheap = true,
    .grad = {{.op = &sl_op_concat_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0), SL_INS(0)}, .nof = 1,
              .of = {0}, .rest = true}},
};

const sl_op sl_op_concat_b = {
    .name = "concat_b", .min_in = 2, .max_in = -1, .nout = -1, .outputs = concat_b_outputs,
    .narrow_in = ~0u, .narrow_out = ~0u, .unread = ~1u,
    .pieces = SL_PIECES_SIGNATURES,
    .infer = concat_b_infer, .cost = move_cost, .cpu = concat_b_cpu,
};
