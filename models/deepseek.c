/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3 (DeepSeek-AI, arXiv 2412.19437) and models of the same shape, such as Kimi K2: latent
 * attention, and moe.h with sigmoid routing after a few leading blocks without experts. Weight
 * files of Hugging Face's DeepseekV3ForCausalLM load in both directions. */
#include "latent.h"
#include "moe.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    DECODER_FFN,
    LATENT_OPTIONS("value-dim"),
    DECODER_QUERY_SCALAR,
    {"experts", SL_OPTION_INT, "8", "experts per block", 1, 1 << 16},
    MOE_ROUTING_OPTIONS("1"),
    {"dense-layers", SL_OPTION_INT, "1", "number of leading blocks without experts", 0, 1000},
    MOE_SIGMOID_OPTIONS,
    DECODER_AHEAD_OPTIONS,
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

static sl_status build(sl_graph *g, const sl_args *args) {
  moe_names names = moe_qwen;
  names.shared = "mlp.shared_experts";
  names.plain = true;
  decoder d = decoder_of(g, args, "deepseek");
  latent s = latent_read(g, args, &d, "value-dim");
  moe m = moe_of(g, args, &d, names);
  m.sigmoid = moe_sigmoid_read(args);
  moe_check_groups(g, &d, &m);
  if (sl_graph_status(g)) return sl_graph_status(g);
  d.own = &m;
  d.latent = &s;
  d.ffn = decoder_ffn(args, &d);
  decoder_query_scalar(args, &d);
  decoder_halves(&d, latent_attention, moe_half);
  for (int i = 0; i < d.layers && i < sl_arg_int(args, "dense-layers"); i++)
    d.each[i].feed = decoder_mlp;
  decoder_ahead(g, args, &d, d.layers - 1);
  return decoder_build(g, args, &d);
}

SL_MODEL(deepseek, "DeepSeek-V3: latent attention, experts chosen by sigmoid gates", options,
         build);
