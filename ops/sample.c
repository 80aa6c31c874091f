/* SPDX-License-Identifier: Apache-2.0 */
/* Ops at the ends of a served graph: begin selects the tick's rows, picks lists those whose logits
 * are needed, pick selects them, and allow the tokens that may come next; sample draws a token for
 * each picked row. begin, picks and allow run on the host, so numbers of rows are known there. */
#include "ops/batch.h"
#include "ops/ops.h"

/* ---- begin ------------------------------------------------------------------------------ */

static sl_status begin_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(sli_want_array("tokens", &in[0], SL_I32, 2));
  SLI_TRY(sli_want_batch(nin, in, 1));
  out[0] = in[0];
  return SL_OK;
}

const sl_op sl_op_begin = {
    .name = "begin",
    .attrs = {&sl_attrs_sampling},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .infer = begin_infer,
    .rows = &(const sl_op_rows){.fills = 1, .second = 1},
};

/* ---- pick ------------------------------------------------------------------------------- */

/* attrs.sampling.picks: maximum number of rows */
static sl_status picks_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_batch(nin, in, 0));
  out[0] = SL_TYPE(SL_I32, attrs->sampling.picks);
  return SL_OK;
}

const sl_op sl_op_picks = {
    .name = "picks",
    .attrs = {&sl_attrs_sampling},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .infer = picks_infer,
    .rows = &(const sl_op_rows){.fills = 1},
};

static sl_status pick_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  SLI_TRY(sli_want_array("picks", &in[0], SL_I32, 1));
  SLI_TRY(sli_want_array("x", &in[1], SL_F32, 3));
  out[0] = in[1];
  out[0].dim[1] = in[0].dim[0];
  return SL_OK;
}

const sl_op sl_op_pick = {
    .name = "pick",
    .attrs = {&sl_attrs_sampling},
    .min_in = 2,
    .max_in = 2,
    .nout = 1,
    .infer = pick_infer,
    .rows = &(const sl_op_rows){.looks = 3, .follows = 1},
};

/* ---- allow ------------------------------------------------------------------------------ */

/* attrs.user: the sl_serving; attrs.sampling.picks: rows; attrs.sampling.words: words per row */
static sl_status allow_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("batch", &in[0], SL_I32, 1));
  out[0] = SL_TYPE(SL_I32, attrs->sampling.picks, attrs->sampling.words);
  return SL_OK;
}

const sl_op sl_op_allow = {
    .name = "allow",
    .attrs = {&sl_attrs_sampling},
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .infer = allow_infer,
};

/* ---- sample ----------------------------------------------------------------------------- */

static sl_status sample_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs;
  SLI_TRY(sli_want_array("logits", &in[0], SL_F32, 3));
  SLI_TRY(sli_want_array("batch", &in[1], SL_I32, 1));
  if (nin > 2) SLI_TRY(sli_want_array("allowed", &in[2], SL_I32, 2));
  out[0] = SL_TYPE(SL_I32, in[0].dim[1], (int64_t)(sizeof(sl_sampled) / sizeof(int32_t)));
  return SL_OK;
}

/* ---- one token ---------------------------------------------------------------------------- */

const sl_op sl_op_sample = {
    .name = "sample",
    .attrs = {&sl_attrs_sampling},
    .min_in = 2,
    .max_in = 3,
    .nout = 1,
    .infer = sample_infer,
    .exact = &sli_exact_groups,
    .rows = &(const sl_op_rows){.looks = 1},
};
