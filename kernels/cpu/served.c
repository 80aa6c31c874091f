/* Rows that stand for others where a graph is served: products, positions, and the rows to be
 * sampled. Each computes the rows that there are, each as if it were alone. */
#include "kernels/cpu/served.h"

#include <string.h>

static sl_status want_batch(int nin, const sl_type *in, int at) {
  if (nin == at + 1) return sli_want_array("batch", &in[at], SL_I32, 1);
  return sl_fail(SL_E_SHAPE, "it has no batch to read");
}

/* The shapes of the row it stands for: shape rules look at all inputs that row may have. */
static sl_status linear_served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_batch(nin, in, 4));
  return sl_op_linear.infer(attrs, 4, in, out);
}

static sl_status rotary_served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_batch(nin, in, 1));
  return sl_op_rotary.infer(attrs, 1, in, out);
}

static sl_status position_served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_batch(nin, in, 2));
  if (in[1].dim[0] < attrs->length)
    return sli_misfit(&in[1], "the table must have %lld positions", (long long)attrs->length);
  return sl_op_position.infer(attrs, 2, in, out);
}

/* attrs.count: how many. */
static sl_status pick_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 3));
  SLI_TRY(want_batch(nin, in, 1));
  out[0] = in[0];
  out[0].dim[1] = attrs->count;
  return SL_OK;
}

static void linear_served_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                               double *flops, double *bytes) {
  sl_op_linear.cost(attrs, nin, in, out, flops, bytes);
}

static sl_status rotary_served_prepare(const sl_call *call, void **state) {
  return sl_op_rotary.prepare(call, state);
}

static void rotary_served_release(void *state) { sl_op_rotary.release(state); }

static size_t rotary_served_keeps(const sl_call *call, uint64_t *which) {
  return sl_op_rotary.keeps(call, which);
}

static uint64_t rotary_served_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  return sl_op_rotary.hash(hash, attrs, nin);
}

static void linear_served_cpu(const sl_call *call) {
  int chunks = sli_chunk_count(sl_type_last(&call->out_type[0]), SLI_SERVED_COLUMNS);
  sl_team_for(call->team, chunks, sli_cpu()->linear_served, (void *)call);
}

static void rotary_served_cpu(const sl_call *call) {
  sl_team_for(call->team, sli_batch_of(call)->rows, sli_cpu()->rotary_served, (void *)call);
}

static void position_served_cpu(const sl_call *call) {
  sl_team_for(call->team, sli_batch_of(call)->rows, sli_cpu()->position_served, (void *)call);
}

static void pick_cpu(const sl_call *call) {
  const sl_batch *batch = sli_batch_of(call);
  size_t width = (size_t)sl_type_last(&call->in_type[0]);
  const float *x = call->in[0];
  float *y = call->out[0];
  for (int32_t i = 0; i < batch->picks; i++)
    memcpy(y + (size_t)i * width, x + (size_t)sl_batch_pick(batch)[i] * width, width * sizeof *y);
}

const sl_op sl_op_linear_served = {
    .name = "linear_served", .min_in = 5, .max_in = 5, .nout = 1,
    .infer = linear_served_infer, .cost = linear_served_cost, .cpu = linear_served_cpu,
};

const sl_op sl_op_rotary_served = {
    .name = "rotary_served", .min_in = 2, .max_in = 2, .nout = 1, .over = {1},
    .infer = rotary_served_infer, .prepare = rotary_served_prepare, .release = rotary_served_release,
    .keeps = rotary_served_keeps, .hash = rotary_served_hash, .cpu = rotary_served_cpu,
};

const sl_op sl_op_position_served = {
    .name = "position_served", .min_in = 3, .max_in = 3, .nout = 1, .over = {1},
    .infer = position_served_infer, .cpu = position_served_cpu,
};

const sl_op sl_op_pick = {
    .name = "pick", .min_in = 2, .max_in = 2, .nout = 1, .infer = pick_infer, .cpu = pick_cpu,
};
