/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/expert_loads.h"

#include <math.h>

#include "ops/ops.h"

void sli_expert_loads_settle(sli_expert_loads *x) {
  int32_t each = sli_expert_each(x);
  x->firings = 1 + SLI_LENT + (x->wanted + each - 1) / each;
}

static uint64_t hash(uint64_t hash, const sl_attrs *attrs, int nin) {
  const sli_expert_loads *x = attrs->user;
  const int64_t fields[] = {x->experts, x->levels, x->base, x->slots,
                            x->firings, x->planes, x->each, x->ascending};
  (void)nin;
  return sli_hash(hash, fields, sizeof fields);
}

static sl_status load_experts_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                    sl_type *out) {
  const sli_expert_loads *x = attrs->user;
  SLI_TRY(sli_want_array("ids", &in[0], SL_I32, -1));
  if (in[1].ndim >= 0) SLI_TRY(sli_want("levels", &in[1], &in[0]));
  if (nin > SLI_LOADS_GUESSED) SLI_TRY(sli_want("guessed", &in[SLI_LOADS_GUESSED], &in[0]));
  size_t lent = sizeof(sli_lent) + (size_t)(x->experts * x->levels) * sli_lent_item_bytes(x);
  out[0] = SL_TYPE(SL_I32, (int64_t)((lent + 3) / 4));
  out[1] = SL_TYPE(SL_I32, (int64_t)(((size_t)x->slots * x->slot_bytes + SLI_SLOT_MULTIPLE) / 4));
  out[2] = SL_TYPE(SL_I32, (int64_t)((sli_loads_bytes(x) + 3) / 4));
  return SL_OK;
}

/* Returns the experts that the tokens of ids choose, each evenly. */
static double wanted_experts(const sli_expert_loads *x, const sl_type *ids) {
  double tokens = (double)sl_type_rows(ids), each = (double)sl_type_last(ids);
  return x->experts * (1 - pow(1 - SLI_MIN(each / x->experts, 1), tokens));
}

/* Returns the parts that they read of each: up to the highest level of its rows, which are spread
 * over the levels. */
static double parts_of_each(const sli_expert_loads *x, const sl_type *ids, double wanted) {
  double rows = wanted > 0 ? (double)sl_type_elements(ids) / wanted : 0;
  return x->base + (x->levels - 1) * rows / (rows + 1);
}

/* Counts the bytes that are read from disk. */
static void load_experts_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                              double *flops, double *bytes) {
  const sli_expert_loads *x = attrs->user;
  (void)nin, (void)out;
  *flops = *bytes = 0;
  if (in[0].ndim < 0) return;
  double wanted = wanted_experts(x, &in[0]), parts = wanted * parts_of_each(x, &in[0], wanted);
  *bytes = parts * (1 - x->hits) * (double)x->part_bytes / (double)attrs->experts.firings;
}

const sl_op sl_op_load_experts = {
    .name = "load_experts",
    .attrs = {&sl_attrs_experts},
    .min_in = 0, /* a firing reads ids or guesses */
    .max_in = 6,
    .nout = 3,
    .infer = load_experts_infer,
    .cost = load_experts_cost,
    .hash = hash,
    .traits = SL_OP_REPEATS | SL_OP_LOADS,
    .memory = &(const sl_op_memory){.updates = 6, .lasts = 6, .near = 2},
    .rows = &(const sl_op_rows){.looks = 3 | 1 << SLI_LOADS_GUESSED},
};

static sl_status loaded_experts_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                      sl_type *out) {
  const sli_expert_loads *x = attrs->user;
  (void)nin;
  SLI_TRY(sli_want_array("x", &in[0], SL_F32, -1));
  SLI_TRY(sli_want_array("ids", &in[1], SL_I32, -1));
  if (in[2].ndim >= 0) SLI_TRY(sli_want("levels", &in[2], &in[1]));
  out[0] = in[1];
  out[0].dtype = SL_F32;
  out[0].dim[out[0].ndim++] = x->matrix[SLI_MATRICES - 1].dim[0];
  return SL_OK;
}

/* Counts the weights of the experts that rows choose. A number in planes takes an operation for
 * each plane. */
static void loaded_experts_cost(const sl_attrs *attrs, int nin, const sl_type *in,
                                const sl_type *out, double *flops, double *bytes) {
  const sli_expert_loads *x = attrs->user;
  (void)nin;
  double rows = (double)sl_type_elements(&in[1]), width = (double)sl_type_last(&in[0]),
         inner = (double)x->matrix[0].dim[0], wanted = wanted_experts(x, &in[1]),
         parts = wanted * parts_of_each(x, &in[1], wanted);
  *flops = 2 * SLI_MATRICES * rows * width * inner;
  if (x->planes) *flops += parts * SLI_MATRICES * width * inner;
  *flops /= attrs->experts.firings;
  *bytes =
      ((double)sl_type_bytes(&out[0]) + parts * (double)x->part_bytes) / attrs->experts.firings;
}

const sl_op sl_op_loaded_experts = {
    .name = "loaded_experts",
    .attrs = {&sl_attrs_experts},
    .min_in = 4,
    .max_in = 4,
    .nout = 1,
    .infer = loaded_experts_infer,
    .cost = loaded_experts_cost,
    .hash = hash,
    .traits = SL_OP_REPEATS,
    .rows = &(const sl_op_rows){.looks = 7, .follows = 1},
};
