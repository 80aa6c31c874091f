/* SPDX-License-Identifier: Apache-2.0 */
/* Attention to selected blocks of keys, after the prefill of Qwen2.5-1M (arXiv 2501.15383) and
 * MInference (Jiang et al., arXiv 2407.02490).
 *
 * A block has 64 positions. Each query block of each head has a list of key blocks, from its own
 * block backwards, and the kernels of plain attention walk it. With all blocks on the list the
 * result has the bits of plain attention.
 *
 * choose_blocks makes the lists. Three estimates give the fraction of a query block's softmax mass
 * that falls on a key block:
 *
 *   column     the fraction that the last 64 queries give to the block (vertical lines)
 *   distance   the fraction that they give to keys at the same distance (slashes)
 *   means      the softmax of the products of the blocks' mean queries and mean keys
 *
 * The largest of the three ranks a block. Among equal blocks the nearer one comes first. */
#include "ops/attention_blocks.h"
#include "ops/attention_table.h"

static sl_status want_causal(const sl_attrs *attrs) {
  const sl_attention_attrs *a = &attrs->attention;
  if (!a->full && !a->window && !a->shown && a->cap == 0) return SL_OK;
  return sl_fail(SL_E_SHAPE,
                 "choosing blocks needs plain causal attention, without attrs.attention.%s",
                 a->full     ? "full"
                 : a->window ? "window"
                 : a->shown  ? "shown"
                             : "cap");
}

sl_status sli_attention_blocks_infer(const sl_attrs *attrs, const sl_type *in, sl_type *out) {
  SLI_TRY(want_causal(attrs));
  SLI_TRY(sli_attention_infer(attrs, in, out));
  SLI_TRY(sli_want_array("blocks", &in[3], SL_I32, 4));
  sl_type blocks =
      SL_TYPE(SL_I32, in[0].dim[0], attrs->attention.heads, sli_blocks(in[0].dim[1]), in[3].dim[3]);
  return sli_want("blocks", &in[3], &blocks);
}

static sl_status want_budget(const sl_attrs *attrs) {
  if (attrs->attention.blocks && attrs->attention.share != 0)
    return sl_fail(
        SL_E_SHAPE,
        "give the budget as attrs.attention.blocks or as a share, attrs.attention.share, not both");
  if (attrs->attention.blocks ? attrs->attention.blocks >= 2
                              : attrs->attention.share > 0 && attrs->attention.share <= 1)
    return SL_OK;
  if (attrs->attention.blocks)
    return sl_fail(
        SL_E_SHAPE,
        "attrs.attention.blocks must be at least 2 blocks, the first and a query's own, got %lld",
        (long long)attrs->attention.blocks);
  return sl_fail(SL_E_SHAPE,
                 "attrs.attention.share must be a share of the blocks from above 0 to 1, got %g",
                 (double)attrs->attention.share);
}

static sl_status choose_infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)nin;
  sl_type forward[2];
  SLI_TRY(want_causal(attrs));
  SLI_TRY(want_budget(attrs));
  const sl_type all[] = {in[0], in[1], in[1]};
  SLI_TRY(sli_attention_infer(attrs, all, forward));
  int64_t blocks = sli_blocks(in[0].dim[1]);
  out[0] = SL_TYPE(SL_I32, in[0].dim[0], attrs->attention.heads, blocks,
                   sli_blocks_chosen(attrs, blocks - 1));
  out[1] = SL_TYPE(SL_F32, in[0].dim[0], attrs->attention.heads);
  return SL_OK;
}

/* ---- data ---------------------------------------------------------------------------------- */

static sl_status check_list(const int32_t *list, int64_t n, int64_t head, int64_t own) {
  if (list[0] != own)
    return sl_fail(SL_E_INPUT,
                   "the list of query block %lld, head %lld, begins with an invalid block %d",
                   (long long)own, (long long)head, (int)list[0]);
  for (int64_t i = 1; i < n; i++)
    if (list[i] < -1 || (list[i] >= 0 && list[i] >= list[i - 1]))
      return sl_fail(
          SL_E_INPUT,
          "the list of query block %lld, head %lld, has block %d after %d: it must be descending "
          "and end with -1",
          (long long)own, (long long)head, (int)list[i], (int)list[i - 1]);
  return SL_OK;
}

/* Checks that each list begins with the query block itself and then descends. */
sl_status sli_blocks_check(const sl_call *call) {
  const sl_type *type = &call->in_type[3];
  const int32_t *lists = call->in[3];
  for (int64_t i = 0; i < sl_type_rows(type); i++)
    SLI_TRY(check_list(lists + i * type->dim[3], type->dim[3], i / type->dim[2] % type->dim[1],
                       i % type->dim[2]));
  return SL_OK;
}

/* ---- costs and signatures ------------------------------------------------------------------ */

/* Counts the keys of lists of at most in[3].dim[3] blocks. */
double sli_blocks_pairs(const sl_attrs *attrs, const sl_type *in) {
  int64_t blocks = sli_blocks(in[0].dim[1]), most = in[3].dim[3], sum = 0;
  bool budget = attrs->attention.blocks || attrs->attention.share > 0;
  for (int64_t i = 0; i < blocks; i++)
    sum += SLI_MIN(budget ? sli_blocks_chosen(attrs, i) : i + 1, most);
  return 2 * ((double)sum * SLI_BLOCK / (double)blocks);
}

/* Counts the scores of the last queries, twice, and those of the means. */
static void choose_cost(const sl_attrs *attrs, int nin, const sl_type *in, const sl_type *out,
                        double *flops, double *bytes) {
  (void)attrs;
  double blocks = (double)sli_blocks(in[0].dim[1]);
  *flops = (4 * SLI_BLOCK + blocks / SLI_BLOCK) * (double)sl_type_elements(&in[0]);
  *bytes = sli_argument_bytes(nin, in, 2, out);
}

/* Splits by sequences or by heads. */
static int choose_signatures(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0] = (sl_signature){.in = {sli_split(0), sli_split(0)}, .out = {sli_split(0), sli_split(0)}};
  out[1] = (sl_signature){
      .in = {sli_split(2), sli_split(2)}, .out = {sli_split(1), sli_split(1)}, .heads = true};
  return 2;
}

const sl_op sl_op_choose_blocks = {
    .name = "choose_blocks",
    .attrs = {&sl_attrs_attention},
    .min_in = 2,
    .max_in = 2,
    .nout = 2,
    .traits = SL_OP_DETACHED,
    .infer = choose_infer,
    .cost = choose_cost,
    .shard = &(const sl_op_shard){.signatures = choose_signatures},
};
