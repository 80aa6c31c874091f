/* SPDX-License-Identifier: Apache-2.0 */
/* Abstract pipeline: one equal chunk per stage, with durations and activation sizes but no real
 * model. Used to study schedules:
 *
 *     actorrun --devices timed:4 --clock virtual --cost F=1,B=1,W=1 \
 *              --stages 4 --microbatches 8 --schedule zb-h1 pipeline
 *
 * Each chunk is two products by 1 x 1 weights. Every chunk, including the first, thus has an input
 * gradient and a weight gradient, and the step has an update barrier as in a real model. On CPU
 * devices the model does compute: it fits y = x. */
#include <sluice/sluice.h>

/* clang-format off */
static const sl_option options[] = {
    {"activation", SL_OPTION_INT, "1024", "numbers a chunk keeps for its backward pass, times 2; "
     "also the number of positions that can be cut into pieces", 1, 1 << 28},
    {0}};
/* clang-format on */

/* Fills [1, T, 1] with 0, 1/T, 2/T, ..., or the tick's piece of these rows. */
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  int64_t length = sl_type_elements(ctx), rows = tick->rows ? tick->rows : length;
  for (int64_t i = 0; i < rows; i++) ((float *)out[0])[i] = (float)(tick->row + i) / (float)length;
}

static sl_status build(sl_graph *g, const sl_args *args) {
  sl_type *type = sl_graph_alloc(g, sizeof *type);
  *type = SL_TYPE(SL_F32, 1, sl_arg_int(args, "activation"), 1); /* [1, T, 1] */
  sl_source *source = sl_graph_alloc(g, sizeof *source);
  *source = (sl_source){.nout = 1, .types = type, .fill = fill, .ctx = type, .cut = 2};
  int chunks = sl_graph_stages(g);
  sl_tensor *x, *y = NULL;
  for (int c = 0; c < chunks; c++) {
    sl_block(g, "chunk.%d", c);
    if (!c) sl_data(g, source, &x), y = x;
    for (int i = 0; i < 2; i++) {
      sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 1, 1), SL_CONSTANT(0.9f), "w.%d.%d", c, i);
      y = sl_linear(g, y, w, NULL);
    }
  }
  sl_output(g, "y", y);
  sl_train(g, sl_mse(g, y, x), &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}

SL_MODEL(pipeline, "abstract model: equal chunks, only durations and sizes", options, build);
