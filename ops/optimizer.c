/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of the update: gradient norm, clipping, optimizers. */
#include <sluice/optimizer.h>

#include <math.h>

#include "ops/leaves.h"
#include "ops/muon.h"
#include "ops/ops.h"

static sl_status want_optimizer(const sl_attrs *attrs) {
  if (attrs->user) return SL_OK;
  return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_optimizer");
}

/* Checks that in[from..nin-1] are parts of one gradient. */
static sl_status want_parts(int from, int nin, const sl_type *in) {
  SLI_TRY(sli_want_array("gradient", &in[from], SL_F32, in[from].ndim ? -1 : 0));
  for (int i = from + 1; i < nin; i++) SLI_TRY(sli_want("gradient part", &in[i], &in[from]));
  return SL_OK;
}

static sl_status sumsq_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_parts(0, nin, in));
  out[0] = attrs->numbers.exact ? SL_TYPE(SL_F64, SLI_SQUARE_WORDS) : SL_SCALAR(SL_F64);
  return SL_OK;
}

static void sumsq_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                       double *flops, double *bytes) {
  (void)attrs;
  *flops = (nin + 1) * (double)sl_type_elements(&in[0]);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static sl_status clip_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(want_optimizer(attrs));
  for (int i = 0; i < nin; i++)
    SLI_TRY(sli_want_array("sum of squares", &in[i], SL_F64, attrs->numbers.exact ? 1 : 0));
  out[0] = SL_SCALAR(SL_F32);
  out[1] = SL_SCALAR(SL_F64);
  return SL_OK;
}

static sl_status step_infer(const sl_attrs *attrs, int nin, const sl_type *in, int nout,
                            sl_type *out) {
  SLI_TRY(want_optimizer(attrs));
  SLI_TRY(sli_want_array("scale", &in[0], SL_F32, 0));
  SLI_TRY(want_parts(1, nin, in));
  for (int o = 0; o < nout; o++) out[o] = in[1];
  return SL_OK;
}

/* Cost of a step, which reads and writes the parameter and its states. */
static void step_cost(int nin, const sl_type *in, int nout, const sl_type *out, double each,
                      double *flops, double *bytes) {
  *flops = (nin + each) * (double)sl_type_elements(&out[0]);
  *bytes = sli_argument_bytes(nin, in, nout, out) + nout * (double)sl_type_bytes(&out[0]);
}

/* Defines the op rules of an optimizer with states_ states per parameter and each_ operations per
 * element, in addition to the sum of the gradient's parts. */
#define STEP_ROW(rule, states_, each_)                                                             \
  static sl_status rule##_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) { \
    return step_infer(attrs, nin, in, 1 + (states_), out);                                         \
  }                                                                                                \
  static void rule##_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,   \
                          double *flops, double *bytes) {                                          \
    (void)attrs;                                                                                   \
    step_cost(nin, in, 1 + (states_), out, each_, flops, bytes);                                   \
  }

STEP_ROW(adamw, 2, 14)
STEP_ROW(adam, 2, 15)
STEP_ROW(sgd, 1, 8)
STEP_ROW(lion, 1, 12)

static sl_status muon_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(step_infer(attrs, nin, in, 2, out));
  return in[1].ndim == 2
             ? SL_OK
             : sl_fail(SL_E_SHAPE, "muon updates matrices, not tensors of %d dims", in[1].ndim);
}

/* Cost of a step: each iteration takes two products of the matrix with a square one, and one
 * product of two square ones. */
static void muon_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)attrs;
  double rows = (double)out[0].dim[0], columns = (double)out[0].dim[1];
  double side = rows < columns ? rows : columns;
  step_cost(nin, in, 2, out, 10, flops, bytes);
  *flops += SLI_MUON_STEPS * 2 * side * side * (2 * (rows > columns ? rows : columns) + side);
}

static int sgd_needs(const sl_optimizer *o) { return o->momentum != 0; }

static const sl_update adamw_update = {
    .states = {{.name = "m"}, {.name = "v"}}, .nstates = 2, .defaults = {.weight_decay = 0.1f}};
static const sl_update adam_update = {.states = {{.name = "m"}, {.name = "v"}}, .nstates = 2};
static const sl_update sgd_update = {
    .states = {{.name = "momentum"}}, .nstates = 1, .needs = sgd_needs};
static const sl_update lion_update = {
    .states = {{.name = "m"}}, .nstates = 1, .defaults = {.beta2 = 0.99f, .weight_decay = 0.1f}};

static const sl_update muon_update = {
    .states = {{.name = "momentum"}},
    .nstates = 1,
    .defaults = {.lr = 0.02f, .weight_decay = 0.1f, .momentum = 0.95f, .nesterov = true},
    .whole = true,
    .others = &sl_op_adamw};

const sl_op sl_op_sumsq = {
    .name = "sumsq",
    .min_in = 1,
    .max_in = -1,
    .nout = 1,
    .infer = sumsq_infer,
    .cost = sumsq_cost,
};

const sl_op sl_op_clip = {
    .name = "clip",
    .min_in = 1,
    .max_in = -1,
    .nout = 2,
    .infer = clip_infer,
    .hash = sl_optimizer_hash,
};

#define OPTIMIZER(rule, outputs, updates_, fixed_)                                  \
  const sl_op sl_op_##rule = {.name = #rule,                                        \
                              .min_in = 2,                                          \
                              .max_in = -1,                                         \
                              .nout = outputs,                                      \
                              .infer = rule##_infer,                                \
                              .cost = rule##_cost,                                  \
                              .memory = &(const sl_op_memory){.updates = updates_}, \
                              .hash = sl_optimizer_hash,                            \
                              .update = &rule##_update,                             \
                              .rows = &(const sl_op_rows){.fixed = fixed_}}

OPTIMIZER(adamw, 3, 7, false);
OPTIMIZER(adam, 3, 7, false);
OPTIMIZER(sgd, 2, 3, false);
OPTIMIZER(lion, 2, 3, false);
OPTIMIZER(muon, 2, 3, true);

/* ---- running statistics ------------------------------------------------------------- */

static sl_status running_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  if (!(attrs->running.momentum >= 0 && attrs->running.momentum <= 1))
    return sl_fail(SL_E_SHAPE, "attrs.running.momentum must be from 0 to 1, got %g",
                   (double)attrs->running.momentum);
  SLI_TRY(sli_want_array("value", &in[0], SL_F32, in[0].ndim ? -1 : 0));
  out[0] = in[0];
  return SL_OK;
}

SLI_COST(running_cost, 0, 1, 2)

const sl_op sl_op_running_part = {
    .name = "running_part",
    .attrs = {&sl_attrs_running},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .infer = running_infer,
    .cost = running_cost,
    .accumulates = 1,
};

static sl_status running_new_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                   sl_type *out) {
  SLI_TRY(running_infer(attrs, nin, in, out));
  return sli_want("p", &in[1], &in[0]);
}

const sl_op sl_op_running = {
    .name = "running",
    .attrs = {&sl_attrs_running},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .infer = running_new_infer,
    .cost = running_cost,
};

const sl_op sl_op_replace = {
    .name = "replace",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .infer = running_infer,
    .memory = &(const sl_op_memory){.updates = 1},
};

/* ---- frozen parameters -------------------------------------------------------------- */

static sl_status keep_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin, (void)in;
  if (!attrs->user) return sl_fail(SL_E_SHAPE, "attrs.user must point to an sl_type");
  out[0] = *(const sl_type *)attrs->user;
  return SL_OK;
}

static void keep_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)attrs, (void)nin, (void)in, (void)out;
  *flops = *bytes = 0;
}

const sl_op sl_op_keep = {
    .name = "keep",
    .nout = 1,
    .infer = keep_infer,
    .cost = keep_cost,
    .memory = &(const sl_op_memory){.updates = 1},
};
