#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Errors name the mistakes of users: an op row without a kernel, or with a signature or gradient
# rule for an input that does not exist; an op that would never run; an undeclared option; and a
# fault in a model's function or in a kernel, on any thread.
# labels: outside
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

cat >own.c <<'END'
#include <sluice/sluice.h>
#ifndef ROW
#define ROW .kernels = SL_CPU_KERNEL(same)
#endif
#ifndef BUILD
#define BUILD
#endif
#ifndef KERNEL
#define KERNEL
#endif
static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static int bad(const sl_attrs *attrs, int nin, const sl_type *in, sl_signature *out) {
  (void)attrs, (void)nin, (void)in;
  out[0].in[0] = (sl_sbp){SL_SPLIT, 5};
  return 1;
}
static volatile int zero;
static void chunk(void *arg, int i) {
  const sl_call *call = arg;
  if (!i) { KERNEL }
  (void)call;
}
static void same(const sl_call *call) {
  const float *x = call->in[0];
  float *y = call->out[0];
  sl_team_for(call->team, 2, chunk, (void *)call);
  for (int64_t i = 0; i < sl_type_elements(&call->in_type[0]); i++) y[i] = x[i];
}
static const sl_op op_own = {
    .name = "own", .min_in = 1, .max_in = 1, .nout = 1, .infer = infer, ROW,
    .grad = {{.op = &op_own, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};
static void take(void *ctx, const sl_tick *tick, int n, const void *const *values) {
  (void)ctx, (void)tick, (void)n, (void)values;
}
static const sl_sink sink = {take, NULL};
static const sl_option options[] = {{"size", SL_OPTION_INT, "4", "`N`", 1, 9}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  (void)bad, (void)same, (void)sink;
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, sl_arg_int(args, "size")), SL_CONSTANT(1), "w"), *y = w;
  sl_block(g, "block");
  BUILD
  sl_apply(g, &op_own, NULL, 1, &w, 0, &y);
  sl_train(g, sl_mse(g, y, sl_uniform(g, y, 0, 1)), NULL);
  return sl_graph_status(g);
}
SL_MODEL(own, "one's own", options, build);
END
# try STATUS TEXT DEFINITION [ARGUMENTS...]: the model, compiled with DEFINITION, has to end with
# STATUS and TEXT.
try() {
  local status=$1 text=$2 definition=$3
  shift 3
  { echo "#define $definition"; cat own.c; } >bad.c
  ends "$status" timeout 60 "$actorrun" --quiet --steps 2 "$@" bad.c
  says "$text" err
}

try 2 "op block/own.1 (own) has no CPU kernel: add one to sl_op.kernels" "ROW .traits = SL_OP_CHEAP"
try 2 "signature 0 of its row (sl_op_shard.signatures) splits input 0 along dim 5, which does not exist" \
  "ROW .kernels = SL_CPU_KERNEL(same), .shard = &(const sl_op_shard){.signatures = bad}"
try 2 "op block/report.1 (report): has no output" \
  "BUILD sl_apply(g, &sl_op_report, (&(sl_attrs){.user = &sink}), 1, &w, 0, &y);"
try 2 "the model reads option --width, which its table of options does not declare" \
  'BUILD sl_arg_int(args, "width");'
try 2 "option --size, which its table of options declares with a different type" \
  'BUILD sl_arg_flag(args, "size");'

[[ ${ASAN_OPTIONS:-}${TSAN_OPTIONS:-} ]] && exit 0
try 2 "segmentation fault while the graph of model own was made" "BUILD *(volatile int *)8 = 1;"
try 1 "segmentation fault in op block/own.1 (own), actor F0, step 0, microbatch 0" \
  "KERNEL *(volatile int *)8 = 1;"
try 1 "in op block/own.1 (own), actor F0, step 1, microbatch 2" \
  "KERNEL if (call->tick.step == 1 && call->tick.microbatch == 2) *(volatile int *)8 = 1;" \
  --microbatches 3 --devices cpu:1x2
[[ $(cc -dumpmachine) != x86* ]] || # ARM64 divides by 0 without a fault
  try 1 "arithmetic fault (a division by 0?) in op block/own.1 (own), actor F0" "KERNEL zero = 7 / zero;"
exit 0
