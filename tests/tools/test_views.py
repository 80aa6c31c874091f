# SPDX-License-Identifier: Apache-2.0
"""Concatenated, split and reshaped tensors give one device's losses on grids, in pieces, on stages and with
recomputation. Layouts that do not permit an operation are reported.

labels: outside
"""
from tool import Runs, near, write

write("views.c", r'''
#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_TEXT, NULL, "`FILE`", 0, 0},
                                    {"flat", SL_OPTION_FLAG, "0", "rows in one dim", 0, 0},
                                    {0}};
static sl_tensor *weight(sl_graph *g, int64_t rows, int64_t columns, const char *name) {
  return sl_param(g, SL_TYPE(SL_F32, rows, columns), SL_NORMAL(0.1f), "%s", name);
}
static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, 12), T = 11, C = 18, H = 6, V = 256;
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, V, &next), *y, *parts[3];
  sl_tensor *table = weight(g, V, C, "table"), *x = sl_embedding(g, ids, table);
  sl_block(g, "heads");
  y = sl_reshape(g, sl_linear(g, x, weight(g, C, C, "q"), NULL), B, T, H, -1);
  y = sl_tanh(g, sl_permute(g, y, 0, 2, 1, 3)); /* [B, H, T, C/H] */
  y = sl_reshape(g, sl_transpose(g, y, 1, 2), B, T, C);
  x = sl_add(g, x, sl_linear(g, y, weight(g, C, C, "o"), NULL));
  sl_block(g, "parts");
  y = sl_linear(g, x, weight(g, 3 * C, C, "up"), NULL);
  sl_split(g, y, -1, 3, NULL, parts);
  y = sl_mul(g, parts[0], sl_tanh(g, parts[1]));
  sl_tensor *sums[] = {x, y, parts[2], x};
  x = sl_add_all(g, 4, sums);
  sl_tensor *both[] = {sl_slice(g, x, -1, 3, 5), x};
  y = sl_concat(g, 2, 2, both);
  if (sl_arg_flag(args, "flat")) y = sl_reshape(g, y, B * T, -1);
  sl_block(g, "head");
  y = sl_linear(g, sl_tanh(g, sl_linear(g, y, weight(g, C, C + 5, "down"), NULL)), table, NULL);
  if (sl_arg_flag(args, "flat")) next = sl_reshape(g, next, -1);
  sl_train(g, sl_cross_entropy(g, y, next), &(sl_optimizer){.lr = 1e-2f});
  return sl_graph_status(g);
}
SL_MODEL(views, "views", options, build);
''')
rows = Runs("views.c --data {reference}/tokens.u16", "--steps 4 --microbatches 2")
flat = Runs(rows.model + " --flat", rows.options)
near(rows(), flat(), 1e-5)
CASES = {
    rows: ("--data-parallel 2", "--data-parallel 3", "--tensor 2", "--tensor 3 --data-parallel 2", "--pieces 2",
           "--pieces 4 --schedule seq1f1b", "--pieces 2 --tensor 2", "--stages 4 --schedule gpipe", "--recompute full",
           "--recompute selective", "--stages 2 --data-parallel 2 --shard parameters"),
    flat: ("--data-parallel 2", "--data-parallel 3 --tensor 2", "--data-parallel 4")}
for run, ways in CASES.items():
    for how in ways:
        near(rows(), run(how), 1e-5)
flat.refused("op parts/reshape.1 (reshape) cannot be cut into pieces", "--pieces 2")
