/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-Next: blocks with gated delta rule states (delta.h), and softmax attention in every N-th
 * block, followed by mixtures of experts (moe.h) or SwiGLU. Weight files of Hugging Face's
 * Qwen3NextForCausalLM load in both directions.
 *
 * Softmax attention normalizes each head's queries and keys, has rotary positions in part of a
 * head, and scales its output by the sigmoid of a gate. Norm gains are 1 plus their parameter,
 * except in states. */
#include "delta.h"
#include "moe.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    DECODER_FFN,
    {"softmax-every", SL_OPTION_INT, "4", "`N`: every N-th block has softmax attention and the "
     "rest linear attention; 0: none", 0, 1000},
    DELTA_OPTIONS,
    {"experts", SL_OPTION_INT, "8", "experts per block; 0: none", 0, 1 << 16},
    MOE_ROUTING_OPTIONS("1"),
    {"experts-every", SL_OPTION_INT, "1", "`N`: every N-th block has experts and the rest "
     "SwiGLU", 1, 1 << 16},
    MOE_DENSE_OPTIONS,
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

/* Chooses the halves of each block. */
static void choose(sl_graph *g, const sl_args *args, decoder *d, const moe *m) {
  int softmax = (int)sl_arg_int(args, "softmax-every"),
      experts = (int)sl_arg_int(args, "experts-every");
  const char *dense = moe_dense_of(g, args, d);
  for (int i = 0; i < d->layers; i++) {
    bool has_experts = m->experts && (i + 1) % experts == 0 && !moe_is_listed(dense, i);
    d->each[i].mixer = softmax && (i + 1) % softmax == 0 ? decoder_gated_attention : delta_rule;
    d->each[i].feed = has_experts ? moe_half : decoder_mlp;
  }
  d->states = softmax != 1;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  decoder d = decoder_of(g, args, "qwen3-next");
  moe m = moe_of(g, args, &d, moe_qwen);
  delta n = delta_read(g, args, &d);
  choose(g, args, &d, &m);
  d.ffn = decoder_ffn(args, &d);
  d.own = &m;
  d.delta = &n;
  d.plus_one = true;
  d.qk_norm = DECODER_QK_HEADS;
  if (sl_graph_status(g)) return sl_graph_status(g);
  return decoder_build(g, args, &d);
}

SL_MODEL_NAMED(qwen3_next, "qwen3-next", "Qwen3-Next: gated delta rule, softmax attention, experts",
               options, build);
