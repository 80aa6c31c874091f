/* Rows of the update: the gradient's norm, clipping, AdamW. */
#include <sluice/optimizer.h>

#include <math.h>

#include "kernels/cpu/chunk.h"
#include "kernels/kernels.h"

static sl_status want_optimizer(const sl_attrs *attrs) {
  if (attrs->user) return SL_OK;
  return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_optimizer");
}

/* in[from..nin-1] are parts of one gradient. */
static sl_status want_parts(int from, int nin, const sl_type *in) {
  SLI_TRY(sli_want_array("gradient", &in[from], SL_F32, in[from].ndim ? -1 : 0));
  for (int i = from + 1; i < nin; i++) SLI_TRY(sli_want("gradient part", &in[i], &in[from]));
  return SL_OK;
}

static sl_status sumsq_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(want_parts(0, nin, in));
  out[0] = SL_SCALAR(SL_F64);
  return SL_OK;
}

static void sumsq_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)attrs;
  *flops = (nin + 1) * (double)sl_type_elements(&in[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static size_t sumsq_scratch(const sl_call *call, int threads) {
  (void)threads;
  int64_t n = sl_type_elements(&call->in_type[0]);
  return (size_t)sli_chunk_count(n, SLI_CHUNK_ELEMENTS) * sizeof(double);
}

static void sumsq_cpu(const sl_call *call) {
  const double *partial = call->scratch;
  double *total = call->out[0];
  int n = sli_chunk_count(sl_type_elements(&call->in_type[0]), SLI_CHUNK_ELEMENTS);
  sli_for_elements(call, &call->in_type[0], sli_cpu()->sumsq);
  *total = 0;
  for (int i = 0; i < n; i++) *total += partial[i];
}

static sl_status clip_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_optimizer(attrs));
  for (int i = 0; i < nin; i++) SLI_TRY(sli_want_array("sum of squares", &in[i], SL_F64, 0));
  out[0] = SL_SCALAR(SL_F32);
  out[1] = SL_SCALAR(SL_F64);
  return SL_OK;
}

static void clip_cpu(const sl_call *call) {
  const sl_optimizer *o = call->attrs->user;
  float *scale = call->out[0];
  double *norm = call->out[1], total = 0;
  for (int i = 0; i < call->nin; i++) total += *(const double *)call->in[i];
  double length = sqrt(total), limit = o->clip / (length + 1e-6);
  if (scale) *scale = o->clip > 0 && limit < 1 ? (float)limit : 1.0f;
  if (norm) *norm = length;
}

static sl_status adamw_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_optimizer(attrs));
  SLI_TRY(sli_want_array("scale", &in[0], SL_F32, 0));
  SLI_TRY(want_parts(1, nin, in));
  out[0] = out[1] = out[2] = in[1];
  return SL_OK;
}

static void adamw_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)attrs;
  *flops = (nin + 14) * (double)sl_type_elements(&out[0]);
  *bytes = sli_argument_bytes(nin, in, 3, out) + 3.0 * (double)sl_type_bytes(&out[0]);
}

static void adamw_cpu(const sl_call *call) {
  sli_for_elements(call, &call->out_type[0], sli_cpu()->adamw);
}

static uint64_t optimizer_hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  (void)nin;
  const sl_optimizer *o = attrs->user;
  const float reals[] = {o->lr, o->min_lr, o->beta1, o->beta2, o->eps, o->weight_decay, o->clip};
  for (size_t i = 0; i < SLI_COUNT(reals); i++) hash = sli_hash_real(hash, (double)reals[i]);
  hash = sli_hash_word(hash, (uint64_t)o->warmup);
  return sli_hash_word(hash, (uint64_t)o->decay_steps);
}

const sl_op sl_op_sumsq = {
    .name = "sumsq", .min_in = 1, .max_in = -1, .nout = 1,
    .infer = sumsq_infer, .cost = sumsq_cost, .scratch = sumsq_scratch, .cpu = sumsq_cpu,
};

const sl_op sl_op_clip = {
    .name = "clip", .min_in = 1, .max_in = -1, .nout = 2,
    .infer = clip_infer, .cpu = clip_cpu, .hash = optimizer_hash,
};

const sl_op sl_op_adamw = {
    .name = "adamw", .min_in = 2, .max_in = -1, .nout = 3,
    .infer = adamw_infer, .cost = adamw_cost, .cpu = adamw_cpu,
    .updates = 7, .hash = optimizer_hash,
};
