/* SPDX-License-Identifier: Apache-2.0 */
/* Attention to chosen tokens, and the loss that trains an indexer to choose (DeepSeek-V3.2, arXiv
 * 2512.02556). Both go row by row over the chosen tokens, so they keep nothing for pairs of tokens.
 *
 * B, T rows; H heads of E numbers per key and V per value; K chosen tokens; I heads of the indexer,
 * of D numbers. */
#include "ops/attention_latent.h"
#include "ops/attention_table.h"

/* Checks that x is [B, T, parts n] for x [B, T, ...] in `like`. */
static sl_status want_rows(const char *name, const sl_type *x, const sl_type *like, int64_t parts) {
  SLI_TRY(sli_want_array(name, x, SL_F32, 3));
  sl_type want = sli_type_with_last(like, x->dim[2]);
  if (parts < 1 || x->dim[2] % parts)
    return sli_misfit(x, "%s must be f32[b, t, %lld * n]", name, (long long)parts);
  return sli_want(name, x, &want);
}

static sl_status want_chosen(const sl_type *chosen, const sl_type *like) {
  SLI_TRY(sli_want_array("chosen", chosen, SL_I32, 3));
  sl_type want = SL_TYPE(SL_I32, like->dim[0], like->dim[1], chosen->dim[2]);
  return sli_want("chosen", chosen, &want);
}

/* Checks the positions that a call is about to read. */
static sl_status check_list(const sl_call *call, int i) {
  const int32_t *list = call->in[i];
  int64_t T = call->in_type[i].dim[1];
  for (int64_t n = list ? sl_type_elements(&call->in_type[i]) : 0; n--; list++)
    if (*list < -1 || *list >= T)
      return sl_fail(SL_E_INPUT, "position %d was chosen among %lld", (int)*list, (long long)T);
  return SL_OK;
}

/* ---- attention ------------------------------------------------------------------------------- */

sl_status sli_attention_chosen_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("q", &in[0], SL_F32, 3));
  SLI_TRY(want_rows("q", &in[0], &in[0], attrs->attention.heads));
  SLI_TRY(sli_want("k", &in[1], &in[0]));
  SLI_TRY(want_rows("v", &in[2], &in[0], attrs->attention.heads));
  SLI_TRY(want_chosen(&in[3], &in[0]));
  out[0] = in[2];
  out[1] = sli_type_with_last(&in[0], attrs->attention.heads);
  return SL_OK;
}

sl_status sli_chosen_check(const sl_call *call) { return check_list(call, 3); }

double sli_chosen_pairs(const sl_attrs *attrs, const sl_type *in) {
  (void)attrs;
  return 2 * (double)in[3].dim[2];
}

/* ---- the indexer's loss ---------------------------------------------------------------------- */

/* in: q, k, w, queries, keys, [chosen] */
static sl_status loss_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  SLI_TRY(sli_want_array("w", &in[2], SL_F32, 3));
  SLI_TRY(want_rows("q", &in[0], &in[2], in[2].dim[2]));
  sl_type key = sli_type_with_last(&in[2], in[0].dim[2] / in[2].dim[2]);
  SLI_TRY(sli_want("k", &in[1], &key));
  SLI_TRY(want_rows("queries", &in[3], &in[2], attrs->attention.heads));
  SLI_TRY(sli_want("keys", &in[4], &in[3]));
  if (nin > 5 && in[5].ndim >= 0) SLI_TRY(want_chosen(&in[5], &in[2]));
  out[0] = sli_type_without_last(&in[2], SL_F32);
  return SL_OK;
}

static sl_status loss_check(const sl_call *call) {
  return call->nin > 5 ? check_list(call, 5) : SL_OK;
}

/* in: q, k, w, queries, keys, dloss, [chosen] */
static sl_status loss_b_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  sl_type loss, forward[6] = {in[0], in[1], in[2], in[3], in[4]};
  if (nin > 6) forward[5] = in[6];
  SLI_TRY(loss_infer(attrs, nin - 1, forward, &loss));
  SLI_TRY(sli_want("dloss", &in[5], &loss));
  for (int i = 0; i < 3; i++) out[i] = in[i];
  return SL_OK;
}

/* Counts the products of queries and keys of pairs, whose number is that of the chosen tokens. */
static void loss_flops(int products, const sl_type *in, const sl_type *chosen, double *flops) {
  double T = (double)in[2].dim[1],
         pairs = chosen ? (double)sl_type_elements(chosen) : (double)in[2].dim[0] * T * (T + 1) / 2;
  *flops = 2 * pairs * (double)(products * in[0].dim[2] + in[3].dim[2]);
}

static void loss_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                      double *flops, double *bytes) {
  (void)attrs;
  loss_flops(1, in, nin > 5 && in[5].ndim >= 0 ? &in[5] : NULL, flops);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

static void loss_b_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  (void)attrs;
  loss_flops(3, in, nin > 6 && in[6].ndim >= 0 ? &in[6] : NULL, flops);
  *bytes = sli_argument_bytes(nin, in, 3, out);
}

/* Splits by sequences. */
static int loss_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in;
  out[0] = (sl_signature){.out = {sli_split(0)}};
  for (int i = 0; i < nin; i++) out[0].in[i] = sli_split(0);
  return 1;
}

const sl_op sl_op_index_loss = {
    .name = "index_loss",
    .attrs = {&sl_attrs_attention},
    .min_in = 5,
    .max_in = 6,
    .nout = 1,
    .infer = loss_infer,
    .check = loss_check,
    .cost = loss_cost,
    .shard = &(const sl_op_shard){.signatures = loss_signatures},
    .grad = {{.op = &sl_op_index_loss_b,
              .cls = SL_CLASS_B,
              .in = {SL_IN(0), SL_IN(1), SL_IN(2), SL_IN(3), SL_IN(4), SL_DOUT(0), SL_INS(5)},
              .nwrt = 3,
              .wrt = {0, 1, 2}}},
};

const sl_op sl_op_index_loss_b = {
    .name = "index_loss_b",
    .attrs = {&sl_attrs_attention},
    .min_in = 6,
    .max_in = 7,
    .nout = 3,
    .infer = loss_b_infer,
    .cost = loss_b_cost,
};
