/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434). The keys and values of all heads are
 * linear maps of one latent per position, plus a rotated part of the keys that all heads share.
 *
 * Training expands keys and values and runs ordinary attention (graph/build/ops.c). A served graph
 * stores the latent and the shared part of each position in its pages: rank + rope numbers instead
 * of heads (nope + rope + values). A head's scores q (W c) equal (q W) c, so queries are mapped
 * into the latent space, and the sums of latents are mapped to values at the end. */
#include <sluice/attention.h>

#include "ops/attention_latent.h"
#include "ops/batch.h"
#include "ops/ops.h"
#include "ops/storage.h"

static sl_status want_widths(const sl_attrs *attrs, const sl_type *in) {
  for (int i = 0; i < 3; i++)
    SLI_TRY(sli_want_array(i ? i > 1 ? "k" : "c" : "q", &in[i], SL_F32, 3));
  SLI_TRY(sli_want_array("weight", &in[3], SL_F32, 2));
  int64_t query = attrs->attention.heads > 0 ? in[0].dim[2] / attrs->attention.heads : 0;
  if (attrs->attention.heads < 1 || in[0].dim[2] % attrs->attention.heads || query <= in[2].dim[2])
    return sli_misfit(&in[0], "q must be f32[b, t, %d * n] with n greater than k's %lld",
                      attrs->attention.heads, (long long)in[2].dim[2]);
  if (in[3].dim[0] % attrs->attention.heads ||
      in[3].dim[0] / attrs->attention.heads <= query - in[2].dim[2])
    return sli_misfit(&in[3], "weight must be f32[%d * n, m] with n greater than %lld",
                      attrs->attention.heads, (long long)(query - in[2].dim[2]));
  if (in[1].dim[2] + in[2].dim[2] > SLI_MAX_LATENT)
    return sli_misfit(&in[1], "c and k may have at most %d numbers together", SLI_MAX_LATENT);
  return SL_OK;
}

static sl_status want_chosen(const sl_type *in) {
  if (in[4].ndim < 0) return SL_OK;
  SLI_TRY(sli_want_array("chosen", &in[4], SL_I32, 3));
  sl_type want = SL_TYPE(SL_I32, in[0].dim[0], in[0].dim[1], in[4].dim[2]);
  return sli_want("chosen", &in[4], &want);
}

/* in: q, c, k, weight, [chosen] */
static sl_status latent_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin > 4) SLI_TRY(want_chosen(in));
  if (attrs->attention.cap != 0)
    return sl_fail(SL_E_SHAPE, "scores of latents cannot have a cap (attrs.attention.cap)");
  SLI_TRY(want_widths(attrs, in));
  sl_type latent = sli_type_with_last(&in[0], in[3].dim[1]),
          key = sli_type_with_last(&in[0], in[2].dim[2]);
  SLI_TRY(sli_want("c", &in[1], &latent));
  SLI_TRY(sli_want("k", &in[2], &key));
  int64_t query = in[0].dim[2] / attrs->attention.heads,
          each = in[3].dim[0] / attrs->attention.heads;
  out[0] = sli_type_with_last(&in[0], attrs->attention.heads * (each - (query - in[2].dim[2])));
  return SL_OK;
}

/* Splits by heads. */
static int latent_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)in, (void)nin;
  out[0] = (sl_signature){
      .in = {sli_split(2), [3] = sli_split(0)}, .out = {sli_split(2)}, .heads = true};
  return 1;
}

static sl_status served_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  if (nin != 6) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  if (attrs->pages.count < 1) return sl_fail(SL_E_SHAPE, "attrs.pages.count must be given");
  SLI_TRY(latent_infer(attrs, 5, in, out));
  SLI_TRY(sli_want_array("batch", &in[5], SL_I32, 1));
  int64_t width = in[1].dim[2] + in[2].dim[2];
  out[1] = sli_pages_type(attrs, &SL_TYPE(SL_F32, attrs->pages.count, SL_PAGE, width), 1, SL_PAGE,
                          width);
  return SL_OK;
}

const sl_op sl_op_attention_latent = {
    .name = "attention_latent",
    .attrs = {&sl_attrs_attention},
    .serve = &(const sl_op_serve){.op = &sl_op_attention_latent_served},
    .min_in = 4,
    .max_in = 5,
    .nout = 1,
    .infer = latent_infer,
    .shard = &(const sl_op_shard){.signatures = latent_signatures},
    .exact = &(const sl_op_exact){.reorders = true},
};

const sl_op sl_op_attention_latent_served = {
    .name = "attention_latent_served",
    .attrs = {&sl_attrs_attention},
    .min_in = 6,
    .max_in = 6,
    .nout = 2,
    .memory = &(const sl_op_memory){.updates = 2},
    .infer = served_infer,
    .rows = &(const sl_op_rows){.looks = 23, .follows = 1},
};

/* ---- choice of tokens ------------------------------------------------------------------------ */

/* in: q, k, w */
static sl_status choose_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  SLI_TRY(sli_want_array("q", &in[0], SL_F32, 3));
  SLI_TRY(sli_want_array("k", &in[1], SL_F32, 3));
  sl_type weights = sli_type_with_last(&in[0], attrs->attention.heads),
          all = sli_type_with_last(&in[0], attrs->attention.heads * in[1].dim[2]);
  SLI_TRY(sli_want("q", &in[0], &all));
  SLI_TRY(sli_want("w", &in[2], &weights));
  if (attrs->attention.tokens < 1)
    return sl_fail(SL_E_SHAPE, "attrs.attention.tokens, the number of tokens, must be given");
  if (in[1].dim[2] > SLI_MAX_LATENT)
    return sli_misfit(&in[1], "k may have at most %d numbers", SLI_MAX_LATENT);
  out[0] = sli_type_with_last(&in[0], attrs->attention.tokens);
  out[0].dtype = SL_I32;
  return SL_OK;
}

/* Counts the products of queries with keys of earlier positions. */
static void choose_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  (void)attrs;
  *flops = (double)sl_type_elements(&in[0]) * (double)(in[0].dim[1] + 1);
  *bytes = sli_argument_bytes(nin, in, 1, out);
}

/* Splits by sequences. */
static int choose_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_split(0), sli_split(0), sli_split(0)}, .out = {sli_split(0)}};
  return 1;
}

static sl_status choose_served_infer(const sl_attrs *attrs, int nin, const sl_type *in,
                                     sl_type *out) {
  if (nin != 4) return sl_fail(SL_E_SHAPE, "it has no batch to read");
  if (attrs->pages.count < 1) return sl_fail(SL_E_SHAPE, "attrs.pages.count must be given");
  SLI_TRY(choose_infer(attrs, 3, in, out));
  SLI_TRY(sli_want_array("batch", &in[3], SL_I32, 1));
  int64_t width = in[1].dim[2];
  out[1] = sli_pages_type(attrs, &SL_TYPE(SL_F32, attrs->pages.count, SL_PAGE, width), 1, SL_PAGE,
                          width);
  return SL_OK;
}

const sl_op sl_op_choose_tokens = {
    .name = "choose_tokens",
    .attrs = {&sl_attrs_attention},
    .serve = &(const sl_op_serve){.op = &sl_op_choose_tokens_served},
    .min_in = 3,
    .max_in = 3,
    .nout = 1,
    .infer = choose_infer,
    .cost = choose_cost,
    .shard = &(const sl_op_shard){.signatures = choose_signatures},
};

const sl_op sl_op_choose_tokens_served = {
    .name = "choose_tokens_served",
    .attrs = {&sl_attrs_attention},
    .min_in = 4,
    .max_in = 4,
    .nout = 2,
    .memory = &(const sl_op_memory){.updates = 2},
    .infer = choose_served_infer,
    .rows = &(const sl_op_rows){.looks = 7, .follows = 1},
};
