/* Rows of rotary positions. The table of angles is the calls' state. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"

static sl_status rotary_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, 3));
  if (attrs->heads < 1 || in[0].dim[2] % (2 * attrs->heads))
    return sli_misfit(&in[0], "x must be f32[b, t, n] with n a multiple of 2 * %d heads",
                      attrs->heads);
  out[0] = in[0];
  return SL_OK;
}

/* Sequences, positions or heads are shared out. */
static int rotary_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                             sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  int n = 0;
  out[n++] = (sl_signature){.in = {sli_split(0)}, .out = {sli_split(0)}};
  out[n++] = (sl_signature){.in = {sli_split(1)}, .out = {sli_split(1)}, .first = 1};
  out[n++] = (sl_signature){.in = {sli_split(2)}, .out = {sli_split(2)}, .heads = true};
  return n;
}

SLI_COST(rotary_cost, 0, 1, 3)

static sl_status rotary_prepare(const sl_call *call, void **state) {
  const sl_type *x = &call->in_type[0];
  int64_t length = call->attrs->length ? call->attrs->length : x->dim[1];
  int64_t positions = call->attrs->first + length;
  int64_t pairs = x->dim[2] / call->attrs->heads / 2;
  size_t count = (size_t)(positions * pairs);
  sli_rotary *r = malloc(sizeof *r + 2 * count * sizeof(float));
  if (!r) return sl_fail(SL_E_MEMORY, "no memory for a table of %zu angles", count);
  *r = (sli_rotary){positions, pairs, (float *)(r + 1), (float *)(r + 1) + count};
  double theta = call->attrs->theta > 0 ? (double)call->attrs->theta : 10000.0;
  for (int64_t t = 0; t < positions; t++)
    for (int64_t j = 0; j < pairs; j++) {
      double angle = (double)t * pow(theta, -(double)j / (double)pairs);
      r->cos[t * pairs + j] = (float)cos(angle);
      r->sin[t * pairs + j] = (float)sin(angle);
    }
  *state = r;
  return SL_OK;
}

static void rotary_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->rotary);
}

static void rotary_b_cpu(const sl_call *call) {
  sli_for_rows(call, &call->in_type[0], sli_cpu()->rotary_b);
}

const sl_op sl_op_rotary = {
    .name = "rotary", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1, .cheap = true,
    .pieces = SL_PIECES_POSITIONS, .over = {1},
    .infer = rotary_infer, .cost = rotary_cost,
    .prepare = rotary_prepare, .release = free, .cpu = rotary_cpu,
    .signatures = rotary_signatures,
    .grad = {{.op = &sl_op_rotary_b, .cls = SL_CLASS_B,
              .in = {SL_DOUT(0)}, .nof = 1, .of = {0}}},
};

const sl_op sl_op_rotary_b = {
    .name = "rotary_b", .min_in = 1, .max_in = 1, .nout = 1,
    .narrow_in = 1, .narrow_out = 1,
    .pieces = SL_PIECES_ROWS, .over = {1},
    .infer = rotary_infer, .cost = rotary_cost,
    .prepare = rotary_prepare, .release = free, .cpu = rotary_b_cpu,
};
