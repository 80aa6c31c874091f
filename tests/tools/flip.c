/* SPDX-License-Identifier: Apache-2.0 */
/* A test model that embeds bytes and predicts them. In step SLUICE_FLIP, if that is set, the device
 * that holds the last sequence flips one bit of one gradient of the embedding. */
#include <stdlib.h>
#include <string.h>

#include <sluice/sluice.h>

static const sl_option options[] = {
    {"data", SL_OPTION_LIST, NULL, "text `FILE` to learn", 0, 0}, SL_OPTIMIZER_OPTIONS, {0}};

enum { BATCH = 8, LENGTH = 16, WIDTH = 32, CLASSES = 256 };

static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}

static void pass_on(const sl_call *call) {
  memcpy(call->out[0], call->in[0], sl_type_bytes(&call->in_type[0]));
}

static void pass_back(const sl_call *call) {
  const char *step = getenv("SLUICE_FLIP");
  int64_t last = sl_type_elements(&call->in_type[0]) - 1, run;
  pass_on(call);
  if (!step || call->tick.step + 1 != atoi(step)) return;
  bool here =
      sl_call_where(call, last, &run) % (BATCH * LENGTH * WIDTH) == BATCH * LENGTH * WIDTH - 1;
  if (here) ((uint32_t *)call->out[0])[last] ^= 1u << 20;
}

static const sl_op faulty_b = {.name = "faulty_b",
                               .min_in = 1,
                               .max_in = 1,
                               .nout = 1,
                               .cut = &sl_cut_rows,
                               .traits = SL_OP_LOCATED,
                               .infer = infer,
                               .kernels = SL_CPU_KERNEL(pass_back)};

static const sl_op faulty = {
    .name = "faulty",
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .cut = &sl_cut_rows,
    .traits = SL_OP_LOCATED,
    .infer = infer,
    .kernels = SL_CPU_KERNEL(pass_on),
    .grad = {{.op = &faulty_b, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}},
};

static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, BATCH);
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, LENGTH, CLASSES, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, CLASSES, WIDTH), SL_NORMAL(0.1f), "embedding");
  sl_tensor *x = sl_embedding(g, ids, table), *y;
  sl_apply(g, &faulty, NULL, 1, &x, 0, &y);
  sl_block(g, "head");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, CLASSES, WIDTH), SL_NORMAL(0.1f), "head");
  sl_optimizer optimizer = sl_arg_optimizer(args);
  sl_train(g, sl_cross_entropy(g, sl_linear(g, y, head, NULL), next), &optimizer);
  return sl_graph_status(g);
}

SL_MODEL(flip, "an embedding whose gradient may be wrong", options, build);
