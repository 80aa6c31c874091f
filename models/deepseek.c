/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3 (DeepSeek-AI, arXiv 2412.19437) and models of the same shape, such as Kimi K2: latent
 * attention, and moe.h with sigmoid routing after a few leading blocks without experts. Weight
 * files of Hugging Face's DeepseekV3ForCausalLM load in both directions.
 *
 * Keys and values of a position come from its latent of L numbers, plus R rotary numbers that all
 * heads share. Per head, queries and keys have n more numbers without positions, and values have
 * v. */
#include "moe.h"

/* clang-format off */
static const sl_option options[] = {
    DECODER_OPTIONS,
    DECODER_FFN,
    {"query-rank", SL_OPTION_INT, "0", "rank of the queries' projection; 0: queries come from "
     "the whole input", 0, 1 << 20},
    {"latent", SL_OPTION_INT, "64", "rank of the latent from which a position's keys and values "
     "come", 1, 1 << 20},
    {"nope-dim", SL_OPTION_INT, "32", "numbers of a head's key without rotary positions", 1, 256},
    {"rope-dim", SL_OPTION_INT, "16", "numbers of a key with rotary positions, shared by all "
     "heads", 2, 256},
    {"value-dim", SL_OPTION_INT, "32", "numbers of a head's value", 1, 256},
    {"rope-halves", SL_OPTION_FLAG, "0", "rotate a key's halves together instead of adjacent "
     "numbers", 0, 0},
    DECODER_QUERY_SCALAR,
    {"experts", SL_OPTION_INT, "8", "experts per block", 1, 1 << 16},
    MOE_ROUTING_OPTIONS("1"),
    {"dense-layers", SL_OPTION_INT, "1", "number of leading blocks without experts", 0, 1000},
    MOE_SIGMOID_OPTIONS,
    DECODER_AHEAD_OPTIONS,
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

typedef struct deepseek {
  moe moe; /* must be first: moe.h reads decoder.own as a moe */
  int64_t query_rank, latent, nope, rope, values;
  bool halves;
  int dense;
} deepseek;

static const deepseek *deepseek_of(const decoder *d) { return d->own; }

/* ---- attention ------------------------------------------------------------------------------- */

/* Applies rmsnorm to a latent; its eps is fixed at 1e-6. */
static sl_tensor *latent_norm(sl_graph *g, const decoder *d, sl_tensor *x, int64_t width, int layer,
                              const char *name) {
  decoder own = *d;
  own.eps = 1e-6f;
  return decoder_norm(g, &own, x, width, layer, name);
}

/* Applies rotary positions to x [B, T, heads R]. Interleaved pairs are first rearranged into
 * halves. */
static sl_tensor *turned(sl_graph *g, const decoder *d, sl_tensor *x, int heads) {
  int64_t R = deepseek_of(d)->rope;
  if (!deepseek_of(d)->halves) x = decoder_halved(g, d, x, heads, R);
  if (decoder_is_dual(d))
    sl_graph_fail(g, SL_E_UNSUPPORTED,
                  "%s: --rope dual-chunk: not supported with this model's attention", d->model);
  return sl_rotary_stretched(g, x, heads, d->theta, &d->rope);
}

/* Builds queries [B, T, H (n + R)]; the last R numbers of a head carry positions. */
static sl_tensor *queries(sl_graph *g, decoder *d, sl_tensor *x, int layer) {
  const deepseek *s = deepseek_of(d);
  const int64_t C = d->width, each = s->nope + s->rope, widths[] = {s->nope, s->rope};
  sl_tensor *part[2];
  if (s->query_rank) {
    x = decoder_biased(g, d, d->o_bias, x, C, s->query_rank, 0.02f, layer, "self_attn.q_a_proj");
    x = latent_norm(g, d, x, s->query_rank, layer, "self_attn.q_a_layernorm");
  }
  x = decoder_linear(g, d, x, s->query_rank ? s->query_rank : C, d->heads * each, 0.02f, layer,
                     s->query_rank ? "self_attn.q_b_proj" : "self_attn.q_proj");
  sl_split(g, sl_reshape(g, x, d->rows, -1, d->heads, each), 3, 2, widths, part);
  part[1] = turned(g, d, sl_reshape(g, part[1], d->rows, -1, d->heads * s->rope), d->heads);
  part[1] = sl_reshape(g, part[1], d->rows, -1, d->heads, s->rope);
  return sl_reshape(g, sl_concat(g, 3, 2, part), d->rows, -1, d->heads * each);
}

static sl_tensor *latent_attention(sl_graph *g, decoder *d, sl_tensor *x, float residual,
                                   int layer) {
  const deepseek *s = deepseek_of(d);
  const int64_t L = s->latent, rows = d->heads * (s->nope + s->values), widths[] = {L, s->rope};
  sl_tensor *of[2]; /* latent and shared key */
  sl_tensor *q = queries(g, d, x, layer);
  x = decoder_biased(g, d, d->o_bias, x, d->width, L + s->rope, 0.02f, layer,
                     "self_attn.kv_a_proj_with_mqa");
  sl_split(g, x, 2, 2, widths, of);
  of[0] = latent_norm(g, d, of[0], L, layer, "self_attn.kv_a_layernorm");
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, rows, L), SL_NORMAL(0.02f),
                          "model.layers.%d.self_attn.kv_b_proj.weight", layer);
  sl_tensor *o = sl_attend_latent(g, q, of[0], turned(g, d, of[1], 1), w, d->documents,
                                  &d->attention); /* [B, T, H v] */
  return decoder_biased(g, d, d->o_bias, o, d->heads * s->values, d->width, residual, layer,
                        "self_attn.o_proj");
}

/* ---- options --------------------------------------------------------------------------------- */

static void check(sl_graph *g, const sl_args *args, const decoder *d, const deepseek *s) {
  moe_check_groups(g, d, &s->moe);
  if (s->rope % 2)
    sl_graph_fail(g, SL_E_USAGE, "deepseek: --rope-dim %lld: must be even", (long long)s->rope);
  if (s->values > s->nope + s->rope)
    sl_graph_fail(g, SL_E_USAGE,
                  "deepseek: --value-dim %lld: must not exceed the size of a key, %lld",
                  (long long)s->values, (long long)(s->nope + s->rope));
  if (sl_arg_float(args, "attend-blocks") > 0)
    sl_graph_fail(
        g, SL_E_USAGE,
        "deepseek: --attend-blocks: not supported; this model attends to all earlier tokens");
}

static deepseek deepseek_read(const sl_args *args) {
  return (deepseek){.query_rank = sl_arg_int(args, "query-rank"),
                    .latent = sl_arg_int(args, "latent"),
                    .nope = sl_arg_int(args, "nope-dim"),
                    .rope = sl_arg_int(args, "rope-dim"),
                    .values = sl_arg_int(args, "value-dim"),
                    .halves = sl_arg_flag(args, "rope-halves"),
                    .dense = (int)sl_arg_int(args, "dense-layers")};
}

static sl_status build(sl_graph *g, const sl_args *args) {
  moe_names names = moe_qwen;
  names.shared = "mlp.shared_experts";
  names.plain = true;
  decoder d = decoder_of(g, args, "deepseek");
  deepseek s = deepseek_read(args);
  s.moe = moe_of(g, args, &d, names);
  s.moe.sigmoid = moe_sigmoid_read(args);
  check(g, args, &d, &s);
  if (sl_graph_status(g)) return sl_graph_status(g);
  d.own = &s;
  d.ffn = decoder_ffn(args, &d);
  decoder_query_scalar(args, &d);
  decoder_halves(&d, latent_attention, moe_half);
  for (int i = 0; i < d.layers && i < s.dense; i++) d.each[i].feed = decoder_mlp;
  decoder_ahead(g, args, &d, d.layers - 1);
  return decoder_build(g, args, &d);
}

SL_MODEL(deepseek, "DeepSeek-V3: latent attention, experts chosen by sigmoid gates", options,
         build);
