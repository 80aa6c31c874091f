# SPDX-License-Identifier: Apache-2.0
"""A sum of several losses, some of whose rows are ignored, does not depend on how the model runs: on grids, in pieces,
on stages, in several processes, with recomputed activations, or on emulated GPUs. Evaluations give the same sum. Losses
that cannot be split are rejected.

labels: outside
needs: zeromq
"""
import os

from tool import EMULATED, Runs, near, write

write("losses.c", r'''
#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_TEXT, NULL, "`FILE`", 0, 0},
                                    {"bent", SL_OPTION_FLAG, "0", "not linear", 0, 0},
                                    {0}};
static sl_tensor *weight(sl_graph *g, int64_t rows, int64_t columns, const char *name) {
  return sl_param(g, SL_TYPE(SL_F32, rows, columns), SL_NORMAL(0.1f), "%s", name);
}
/* spaces do not count, letters count double */
static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, 12), T = 11, C = 18, V = 256;
  float weights[256];
  for (int c = 0; c < 256; c++) weights[c] = c >= 'a' && c <= 'z' ? 2 : 1;
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, V, &next);
  sl_tensor *table = weight(g, V, C, "table"), *x = sl_embedding(g, ids, table);
  for (int i = 0; i < 3; i++) {
    sl_block(g, "h.%d", i);
    x = sl_add(g, x, sl_tanh(g, sl_linear(g, x, sl_param(g, SL_TYPE(SL_F32, C, C), SL_NORMAL(0.1f), "h.%d", i), NULL)));
  }
  sl_block(g, "head");
  sl_tensor *logits = sl_linear(g, x, weight(g, V, C, "head"), NULL);
  sl_tensor *loss = sl_cross_entropy_with(g, logits, next, &(sl_loss){.ignore = ' ', .smoothing = 0.1f, .weights = weights});
  sl_tensor *size = sl_mean(g, sl_mul(g, x, x), 0, false);
  loss = sl_add(g, loss, sl_scale(g, size, 0.1f));
  if (sl_arg_flag(args, "bent")) loss = sl_exp(g, loss);
  sl_train(g, loss, &(sl_optimizer){.lr = 1e-2f});
  return sl_graph_status(g);
}
SL_MODEL(losses, "a loss of several", options, build);
''')
run = Runs("losses.c --data {reference}/tokens.u16", "--steps 4 --microbatches 2")
for how in ("--data-parallel 2", "--data-parallel 4", "--tensor 2", "--tensor 3 --data-parallel 2", "--pieces 2",
            "--pieces 4 --schedule seq1f1b --stages 2", "--pieces 3 --data-parallel 2", "--stages 2 --schedule zb-h1",
            "--recompute full", "--recompute selective --data-parallel 2",
            "--stages 2 --data-parallel 2 --shard parameters", "-n 2 --stages 2", "-n 2 --data-parallel 2"):
    near(run(), run(how), 2e-6)

EVAL = "--eval {reference}/tokens.u16 --eval-every 2 "
assert len(run(EVAL).evaluations) == 2
for how in ("--data-parallel 2", "--stages 2 --data-parallel 2"):
    near(run(EVAL), run(EVAL + how), 2e-6)

if os.access(EMULATED, os.X_OK):
    gpu = Runs(run.model, run.options + " --devices cuda", EMULATED)
    for how, most in (("", 2e-6), ("--data-parallel 2 --pieces 2", 2e-6), ("--tensor 2", 2e-6), ("--dtype bf16", 1e-2)):
        near(run(), gpu(how), most)

bent = Runs(run.model + " --bent", run.options)
bent()
bent.refused("op head/exp.1 (exp) reads head/add_broadcast.1, of which each of 2 data-parallel devices has a partial "
             "sum", "--data-parallel 2")
bent.refused("op head/exp.1 (exp) cannot be cut into pieces: each piece has a partial sum of its input 0, "
             "head/add_broadcast.1", "--pieces 2")
