/* Rows of softmax along a dim: the bit of attrs.axes, or the last. */
#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"
#include "kernels/space.h"

static sl_status want_axis(const sl_attrs *attrs, const sl_type *x) {
  SLI_TRY(sli_want_array("x", x, SL_F32, -1));
  if (!(attrs->axes & (attrs->axes - 1)) && !(attrs->axes >> x->ndim)) return SL_OK;
  return sli_misfit(x, "attrs.axes must have one bit, of a dim of x, not %#x", attrs->axes);
}

static sl_status softmax_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(want_axis(attrs, &in[0]));
  out[0] = in[0];
  return SL_OK;
}

static sl_status softmax_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(softmax_infer(attrs, nin, in, out));
  return sli_want("dy", &in[1], &in[0]);
}

static int softmax_signatures(const sl_attrs *attrs, int nin, const sl_type *in,
                              sl_signature *out) {
  (void)nin;
  int n = 0, axis = sli_one_axis(attrs, &in[0]);
  for (int d = 0; d < in[0].ndim; d++)
    if (d != axis) out[n++] = (sl_signature){.in = {sli_split(d)}, .out = {sli_split(d)}};
  return n;
}

SLI_COST(softmax_cost, 0, 1, 20)
SLI_COST(softmax_b_cost, 0, 1, 5)

static void run(const sl_call *call, bool is_log, sli_chunk_fn *fn) {
  const sl_type *x = &call->in_type[0];
  sli_softmax s = {.outer = 1, .inner = 1, .is_log = is_log, .in = {call->in[0]},
                   .out = call->out[0]};
  int axis = sli_one_axis(call->attrs, x);
  if (call->nin > 1) s.in[1] = call->in[1];
  s.n = x->dim[axis];
  for (int d = 0; d < axis; d++) s.outer *= x->dim[d];
  for (int d = axis + 1; d < x->ndim; d++) s.inner *= x->dim[d];
  s.block = sli_chunk_rows(s.n * s.inner);
  sl_team_for(call->team, sli_chunk_count(s.outer, s.block), fn, &s);
}

static void softmax_cpu(const sl_call *call) { run(call, false, sli_cpu()->softmax); }
static void softmax_b_cpu(const sl_call *call) { run(call, false, sli_cpu()->softmax_b); }
static void log_softmax_cpu(const sl_call *call) { run(call, true, sli_cpu()->softmax); }
static void log_softmax_b_cpu(const sl_call *call) { run(call, true, sli_cpu()->softmax_b); }

#define ROWS(name_)                                                            \
  const sl_op sl_op_##name_ = {                                                \
      .name = #name_, .min_in = 1, .max_in = 1, .nout = 1,                     \
      .narrow_in = 1, .narrow_out = 1,                                         \
      .pieces = SL_PIECES_SIGNATURES,                                          \
      .infer = softmax_infer, .cost = softmax_cost, .cpu = name_##_cpu,        \
      .signatures = softmax_signatures,                                        \
      .grad = {{.op = &sl_op_##name_##_b, .cls = SL_CLASS_B,                   \
                .in = {SL_OUT(0), SL_DOUT(0)}, .nof = 1, .of = {0}}},          \
  };                                                                           \
  const sl_op sl_op_##name_##_b = {                                            \
      .name = #name_ "_b", .min_in = 2, .max_in = 2, .nout = 1,                \
      .narrow_in = 3, .narrow_out = 1,                                         \
      .pieces = SL_PIECES_ELEMENTS,                                            \
      .infer = softmax_b_infer, .cost = softmax_b_cost, .cpu = name_##_b_cpu,  \
  };
ROWS(softmax)
ROWS(log_softmax)
