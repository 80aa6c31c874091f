/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the model `decoder`: one table, which decoder.c reads and of which presets.c shows
 * parts. */
#ifndef SLUICE_MODELS_OPTIONS_H
#define SLUICE_MODELS_OPTIONS_H

#include "decoder.h"

/* clang-format off */
const sl_option sli_decoder_options[] = {
    {"data", SL_OPTION_LIST, "", "`FILE` with training data: text (its bytes are the tokens), "
     "chats (.jsonl), .npy, or flat tokens (.u16, .u32, .bin, FILE:TYPE); or a folder of these; "
     "may be repeated", 0, 0},
    {"layers", SL_OPTION_INT, "6", "transformer blocks", 1, 1000},
    {"width", SL_OPTION_INT, "384", "model width: numbers per token", 1, 1 << 20},
    {"heads", SL_OPTION_INT, "6", "query heads; must divide the width", 1, 1 << 16},
    {"kv-heads", SL_OPTION_INT, "0", "key and value heads; must divide the heads; 0: same as "
     "--heads", 0, 1 << 16},
    {"head-dim", SL_OPTION_INT, "0", "numbers per head; 0: width / heads", 0, 512},
    {"theta", SL_OPTION_FLOAT, "10000", "base of the rotary frequencies", 1, 1e30},
    {"rope", SL_OPTION_TEXT, "none", "`HOW` to scale the rotary frequencies: none, "
     "linear:factor=F, "
     "llama3:factor=F,low_freq_factor=L,high_freq_factor=H,original_max_position_embeddings=N, or "
     "yarn:factor=F,original_max_position_embeddings=N (yarn-untruncated: does not round its blend "
     "to whole pairs), "
     "longrope:factor=F,original_max_position_embeddings=N,short_factor=A/B/...,long_factor=A/B/... "
     "(a number per pair; the long ones if the context is more than N), "
     "proportional:partial_rotary_factor=P, or positions in chunks: "
     "dual-chunk:chunk_size=S,local_size=W[,original_max_position_embeddings=N]", 0, 0},
    {"bias", SL_OPTION_TEXT, "none", "`WHERE` attention has biases: none, qkv (Qwen2), or "
     "attention (also on its output)", 0, 0},
    {"window", SL_OPTION_INT, "0", "attention window: the last positions a token sees, including "
     "its own; 0: all earlier ones", 0, 1 << 28},
    {"attend-blocks", SL_OPTION_FLOAT, "0", "`SHARE` of the earlier blocks of 64 tokens that a "
     "token attends to, chosen per head; 0: attend to all blocks", 0, 1},
    {"document-end", SL_OPTION_INT, "-1", "`TOKEN` that ends a document; documents do not see each "
     "other; -1: a row is one document", -1, 1 << 24},
    {"eps", SL_OPTION_FLOAT, "1e-5", "epsilon of the norms, added to the mean square", 0, 1},
    {"tied", SL_OPTION_FLAG, "0", "the classifier shares the embedding's weight", 0, 0},
    {"context", SL_OPTION_INT, "256", "tokens per row", 1, 1 << 28},
    {"positions", SL_OPTION_INT, "0", "maximum context the model supports; 0: same as --context",
     0, 1 << 28},
    {"vocab", SL_OPTION_INT, "256", "vocabulary size", 2, 1 << 24},
    {"batch", SL_OPTION_INT, "8", "rows per step", 1, 1 << 20},
    {"ffn", SL_OPTION_INT, "0", "inner width of feed-forward halves without experts; 0: 8/3 of the "
     "width, rounded up to a multiple of 64", 0, 1 << 24},
    {"qk-norm", SL_OPTION_FLAG, "0", "rmsnorm on each head's queries and keys (Qwen3)", 0, 0},
    {"query-scalar", SL_OPTION_FLOAT, "0", "attention scores are divided by its square root; 0: "
     "the numbers of a key", 0, 1e9},
    {"qk-norm-whole", SL_OPTION_FLAG, "0", "rmsnorm over all heads' queries together, and over all "
     "keys (OLMo 2)", 0, 0},
    {"plus-one", SL_OPTION_FLAG, "0", "norms multiply by 1 plus their parameter (Gemma)", 0, 0},
    {"scaled-embedding", SL_OPTION_FLAG, "0", "multiply embeddings by the square root of the width "
     "(Gemma)", 0, 0},
    {"local-theta", SL_OPTION_FLOAT, "0", "base of the rotary frequencies, unscaled, in blocks "
     "with a window; 0: same as in the other blocks", 0, 1e30},
    {"logit-cap", SL_OPTION_FLOAT, "0", "`C`: soft cap on the logits, C tanh(x / C); 0: none "
     "(Gemma)", 0, 1e9},
    {"mixers", SL_OPTION_TEXT, "full", "`LIST` of what mixes the positions of each block, repeated "
     "over the blocks: full (attention), window, both also followed by -unplaced (without rotary "
     "positions), -keyed (keys are values) or -shared (keys and values are those of the last such "
     "block before), delta (gated delta rule), kda (with a gate per channel), latent (attention) "
     "and latent-unplaced, indexed (latent attention to tokens that an indexer chooses), reused "
     "(to those of the last indexer), mamba, conv (gated convolution), linear (gated linear "
     "attention), beside (linear beside softmax attention), none", 0, 0},
    {"feeds", SL_OPTION_TEXT, "mlp", "`LIST` of the feed-forward half of each block, repeated over "
     "the blocks: mlp, experts, both, none; -wide: twice --ffn", 0, 0},
    {"block-head-dims", SL_OPTION_TEXT, "0", "`LIST` of --head-dim by block, repeated over the "
     "blocks; 0: --head-dim", 0, 0},
    {"block-kv-heads", SL_OPTION_TEXT, "0", "`LIST` of --kv-heads by block, likewise", 0, 0},
    {"block-inputs", SL_OPTION_INT, "0", "numbers of an embedding that enters each block; 0: none",
     0, 1 << 20},
    {"block-inputs-vocab", SL_OPTION_INT, "0", "tokens that have such embeddings; 0: as many as "
     "--vocab", 0, 1 << 24},
    {"block-factors", SL_OPTION_FLAG, "0", "a number that files hold and training keeps scales the "
     "output of each block", 0, 0},
    {"names", SL_OPTION_TEXT, "", "`LIST` of OLD=NEW: parts of parameters' names to replace", 0, 0},
    {"norms", SL_OPTION_TEXT, "before", "`WHERE` the halves of a block have norms: before, after, "
     "both, or parallel (one norm, and both halves read its output)", 0, 0},
    {"norm", SL_OPTION_TEXT, "rms", "`KIND` of norms: rms, layer (with a bias), layer-gain "
     "(without), or layer-plain (without parameters)", 0, 0},
    {"qk-norm-late", SL_OPTION_FLAG, "0", "norms of queries and keys come after rotary positions",
     0, 0},
    {"value-norm", SL_OPTION_FLAG, "0", "rmsnorm on each head's values, without a parameter", 0, 0},
    {"gated-heads", SL_OPTION_FLAG, "0", "the output of attention is scaled by the sigmoid of "
     "gates that come with the queries", 0, 0},
    {"rope-pairs", SL_OPTION_FLAG, "0", "rotate adjacent numbers together instead of the halves of "
     "a head", 0, 0},
    {"packed-qkv", SL_OPTION_FLAG, "0", "one product computes q, k and v", 0, 0},
    {"attention-factor", SL_OPTION_FLOAT, "0", "attention scores are multiplied by it; 0: as "
     "--query-scalar says", 0, 1e9},
    {"score-cap", SL_OPTION_FLOAT, "0", "`C`: soft cap on attention scores, C tanh(x / C); 0: none",
     0, 1e9},
    {"sinks", SL_OPTION_FLAG, "0", "each head's softmax sum includes a learned logit", 0, 0},
    {"function", SL_OPTION_TEXT, "silu", "`NAME` of the function of feed-forward halves: silu, "
     "gelu (in its tanh form), gelu-erf, relu2 (the square of relu), or clamped (gpt-oss: (up + 1) "
     "gate sigmoid(1.702 gate))", 0, 0},
    {"swiglu-limit", SL_OPTION_FLOAT, "7", "limit on the gate, and on the magnitude of what it "
     "multiplies, of clamped functions", 0, 1e30},
    {"ungated", SL_OPTION_FLAG, "0", "feed-forward halves and experts have no gates", 0, 0},
    {"packed-gates", SL_OPTION_FLAG, "0", "one product computes gate and up of feed-forward halves",
     0, 0},
    {"mlp-bias", SL_OPTION_FLAG, "0", "products of feed-forward halves have biases", 0, 0},
    {"embedding-factor", SL_OPTION_FLOAT, "1", "factor of the embeddings", 1e-9, 1e9},
    {"residual-factor", SL_OPTION_FLOAT, "1", "factor of what each half of a block adds", 1e-9, 1e9},
    {"logit-factor", SL_OPTION_FLOAT, "1", "factor of the logits", 1e-9, 1e9},
    {"logit-divisor", SL_OPTION_FLOAT, "1", "divisor of the logits", 1e-9, 1e9},
    {"experts", SL_OPTION_INT, "0", "experts per block that has them", 0, 1 << 16},
    {"top-k", SL_OPTION_INT, "2", "experts per token", 0, 1 << 16},
    {"expert-ffn", SL_OPTION_INT, "0", "inner width of an expert; 0: 8/3 of the width, rounded up "
     "to a multiple of 64", 0, 1 << 24},
    {"shared-ffn", SL_OPTION_INT, "0", "inner width of the shared expert, which all tokens visit; "
     "0: no shared expert", 0, 1 << 24},
    {"norm-topk", SL_OPTION_INT, "1", "1: divide the probabilities of a token's experts by their "
     "sum", 0, 1},
    {"aux-loss", SL_OPTION_FLOAT, "0.01", "weight of the load-balancing loss, which is 1 per block "
     "with an even load", 0, 1e30},
    {"z-loss", SL_OPTION_FLOAT, "0", "weight of the z-loss, which keeps the router's logits small",
     0, 1e30},
    {"expert-capacity", SL_OPTION_FLOAT, "0", "capacity of an expert: multiple of an even share of "
     "a device's microbatch, most probable tokens first; 0: no limit", 0, 1e9},
    {"router", SL_OPTION_TEXT, "softmax", "`HOW` experts are chosen: softmax, sigmoid, corrected "
     "(sigmoid, with a correction per expert), or softmax-corrected", 0, 0},
    {"expert-groups", SL_OPTION_INT, "1", "groups of experts; the router chooses among groups "
     "first", 1, 1 << 16},
    {"top-groups", SL_OPTION_INT, "1", "groups from which a token's experts are chosen",
     1, 1 << 16},
    {"routed-scale", SL_OPTION_FLOAT, "1", "factor on the weights of a token's experts", 1e-9, 1e9},
    {"correction-rate", SL_OPTION_FLOAT, "0", "step of the router's bias towards an even load; 0: "
     "the bias stays fixed", 0, 1},
    {"weight-eps", SL_OPTION_FLOAT, "1e-20", "added to the sum that the weights of a token's "
     "experts are divided by, if sigmoids choose them", 0, 1},
    {"packed-experts", SL_OPTION_FLAG, "0", "one product computes gate and up of an expert", 0, 0},
    {"paired-experts", SL_OPTION_FLAG, "0", "likewise, with the numbers of gate and up in turns; "
     "files hold the weights transposed (gpt-oss)", 0, 0},
    {"expert-bias", SL_OPTION_FLAG, "0", "the router and the experts have biases", 0, 0},
    {"shared-gate", SL_OPTION_FLAG, "0", "the shared expert is scaled by the sigmoid of a gate",
     0, 0},
    {"expert-latent", SL_OPTION_INT, "0", "experts read and write so many numbers, between two "
     "products; 0: the width", 0, 1 << 20},
    {"key-heads", SL_OPTION_INT, "0", "key heads of linear attention; 0: half of --value-heads",
     0, 1 << 16},
    {"value-heads", SL_OPTION_INT, "0", "value heads of linear attention; 0: as many as make twice "
     "the width", 0, 1 << 16},
    {"key-dim", SL_OPTION_INT, "64", "numbers per key of linear attention", 1, 256},
    {"value-dim", SL_OPTION_INT, "64", "numbers per value of linear attention", 1, 256},
    {"conv", SL_OPTION_INT, "4", "width of the convolutions in positions", 1, 16},
    {"packed-delta", SL_OPTION_FLAG, "0", "two products compute all that states of delta read, by "
     "key heads", 0, 0},
    {"query-rank", SL_OPTION_INT, "0", "rank of the queries' projection in latent attention; 0: "
     "queries come from the whole input", 0, 1 << 20},
    {"latent", SL_OPTION_INT, "64", "rank of the latent from which a position's keys and values "
     "come", 1, 1 << 20},
    {"nope-dim", SL_OPTION_INT, "32", "numbers of a head's key without rotary positions in latent "
     "attention", 1, 256},
    {"rope-dim", SL_OPTION_INT, "16", "numbers of a key with rotary positions in latent attention, "
     "shared by all heads", 2, 256},
    {"latent-value-dim", SL_OPTION_INT, "32", "numbers of a head's value in latent attention",
     1, 256},
    {"rope-halves", SL_OPTION_FLAG, "0", "rotate a key's halves together instead of adjacent "
     "numbers in latent attention", 0, 0},
    {"index-heads", SL_OPTION_INT, "4", "heads of the indexer", 1, 1 << 16},
    {"index-dim", SL_OPTION_INT, "32", "numbers of a query and a key of the indexer; the first "
     "--rope-dim have rotary positions", 1, 256},
    {"index-tokens", SL_OPTION_INT, "2048", "tokens that each token sees in blocks with an indexer",
     1, 1 << 28},
    {"index-loss", SL_OPTION_FLOAT, "0", "weight of the loss that trains indexers, the divergence "
     "of their scores from the attention's; 0: they are fixed", 0, 1e9},
    {"index-halves", SL_OPTION_FLAG, "0", "the indexer rotates halves together", 0, 0},
    {"state-heads", SL_OPTION_INT, "0", "heads of Mamba-2; 0: 2 x width / --state-head-dim",
     0, 1 << 16},
    {"state-head-dim", SL_OPTION_INT, "64", "numbers per head of Mamba-2", 1, 256},
    {"state-groups", SL_OPTION_INT, "1", "groups of heads of Mamba-2 with the same B and C",
     1, 1 << 16},
    {"state", SL_OPTION_INT, "64", "numbers of B and of C of Mamba-2", 1, 256},
    {"conv-bias", SL_OPTION_FLAG, "0", "the convolutions of Mamba-2 have biases", 0, 0},
    {"state-bias", SL_OPTION_FLAG, "0", "the products of Mamba-2, or of gated convolutions and the "
     "convolutions, have biases", 0, 0},
    {"gates", SL_OPTION_TEXT, "own", "`WHENCE` the gates of linear attention come: own (their own "
     "projection), or keys (1 - k, with q and k through a sigmoid: SpikingBrain-76B)", 0, 0},
    {"gate-rank", SL_OPTION_INT, "16", "rank of the projection that makes the gates of linear "
     "attention", 1, 1 << 16},
    {"spikes", SL_OPTION_FLOAT, "0", "`K`: spiking linear layers in the blocks: a row becomes "
     "multiples of its mean size / K, weights int8; 0: plain linear layers (SpikingBrain: 3)",
     0, 1e4},
    {"sink-tokens", SL_OPTION_INT, "0", "`N` learned tokens in front of each sequence, visible to "
     "all positions whatever the window (SpikingBrain-76B: 128)", 0, 1 << 16},
    {"ahead", SL_OPTION_INT, "0", "`N` more blocks, each of which predicts a token further ahead "
     "from the block before it and the token in between; 0: none", 0, 16},
    {"ahead-weight", SL_OPTION_FLOAT, "0.3", "weight of the mean of their losses", 0, 1e9},
    {"ahead-alone", SL_OPTION_FLAG, "0", "only the first of them, which reads the hidden states of "
     "the whole model: drafts of a server (actorserve --speculate ahead)", 0, 0},
    {"ahead-names", SL_OPTION_TEXT, "layers", "`STYLE` of their parameters' names: layers (they "
     "follow the model's layers), or mtp (mtp.layers.N)", 0, 0},
    SL_OPTIMIZER_OPTIONS,
    {0}};
/* clang-format on */

#endif
