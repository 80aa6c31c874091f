/* SPDX-License-Identifier: Apache-2.0 */
/* Mamba-2: identical blocks of a norm and mamba.h; no attention, positions or feed-forward half.
 * Parameters keep the names and layouts of Hugging Face's Mamba2ForCausalLM. */
#include "mamba.h"

/* clang-format off */
static const sl_option options[] = {
    {"data", SL_OPTION_LIST, "", "`FILE` with training data: text (its bytes are the tokens), "
     "chats (.jsonl), .npy, or flat tokens (.u16, .u32, .bin, FILE:TYPE); or a folder of these; "
     "may be repeated", 0, 0},
    {"document-end", SL_OPTION_INT, "-1", "`TOKEN` that ends a document; documents do not see "
     "each other; -1: a row is one document", -1, 1 << 24},
    {"layers", SL_OPTION_INT, "6", "blocks", 1, 1000},
    {"width", SL_OPTION_INT, "384", "model width: numbers per token", 1, 1 << 20},
    {"head-dim", SL_OPTION_INT, "64", "numbers per head", 1, 256},
    {"heads", SL_OPTION_INT, "0", "heads; 0: 2 x width / --head-dim", 0, 1 << 16},
    {"groups", SL_OPTION_INT, "1", "groups of heads with the same B and C; must divide the heads", 1, 1 << 16},
    {"state", SL_OPTION_INT, "64", "numbers of B and of C: rows of a head's state", 1, 256},
    {"conv", SL_OPTION_INT, "4", "width of the convolution in positions", 1, 16},
    {"no-conv-bias", SL_OPTION_FLAG, "0", "the convolution has no bias", 0, 0},
    {"eps", SL_OPTION_FLOAT, "1e-5", "epsilon of the norms, added to the mean square", 0, 1},
    {"tied", SL_OPTION_FLAG, "0", "the classifier shares the embedding's weight", 0, 0},
    {"context", SL_OPTION_INT, "256", "tokens per row", 1, 1 << 28},
    {"vocab", SL_OPTION_INT, "256", "vocabulary size", 2, 1 << 24},
    {"batch", SL_OPTION_INT, "8", "rows per step", 1, 1 << 20},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

static const char names[] =
    "model.layers=backbone.layers,model.embed_tokens=backbone.embeddings,model.norm=backbone.norm_f,"
    "input_layernorm=norm,mamba=mixer";

static mamba read_mamba(sl_graph *g, const sl_args *args) {
  int64_t width = sl_arg_int(args, "width");
  mamba m = {.heads = (int)sl_arg_int(args, "heads"),
             .groups = (int)sl_arg_int(args, "groups"),
             .head_dim = sl_arg_int(args, "head-dim"),
             .state = sl_arg_int(args, "state"),
             .conv = sl_arg_int(args, "conv"),
             .conv_bias = !sl_arg_flag(args, "no-conv-bias")};
  if (!m.heads && 2 * width % m.head_dim)
    sl_graph_fail(
        g, SL_E_USAGE,
        "mamba2: twice --width %lld is not a multiple of --head-dim %lld (or give --heads)",
        (long long)width, (long long)m.head_dim);
  if (!m.heads) m.heads = (int)(2 * width / m.head_dim);
  if (m.heads % m.groups)
    sl_graph_fail(g, SL_E_USAGE, "mamba2: --groups %d does not divide the %d heads", m.groups,
                  m.heads);
  return m;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  mamba m = read_mamba(g, args);
  decoder d = {.model = "mamba2",
               .names = names,
               .layers = (int)sl_arg_int(args, "layers"),
               .rows = sl_microbatch_rows(g, sl_arg_int(args, "batch")),
               .context = sl_arg_int(args, "context"),
               .width = sl_arg_int(args, "width"),
               .vocab = sl_arg_int(args, "vocab"),
               .eps = (float)sl_arg_float(args, "eps"),
               .mamba = &m,
               .states = true};
  decoder_check_data(g, args, &d);
  decoder_halves(&d, mamba_mixer, NULL);
  if (sl_graph_status(g)) return sl_graph_status(g);
  return decoder_build(g, args, &d);
}

SL_MODEL(mamba2, "Mamba-2: state-space layers with short convolutions", options, build);
