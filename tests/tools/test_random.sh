#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random numbers do not depend on how a model runs: dropout, noise and a user's own random op give
# one device's losses on grids, in pieces, on stages, in several processes, with recomputation, and
# after a resume. Another seed gives other losses.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

cat >noisy.c <<'END'
#include <sluice/sluice.h>
/* y = x where a number drawn for its place is above 1/4, else 0 */
static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static void sift(const sl_call *call) {
  const float *x = call->in[0];
  float *y = call->out[0];
  uint32_t words[4];
  for (int64_t i = 0, run; i < sl_type_elements(&call->in_type[0]); i++) {
    int64_t at = sl_call_where(call, i, &run);
    sl_call_random(call, at / 4, words);
    y[i] = words[at % 4] > 1u << 30 ? x[i] : 0;
  }
}
static const sl_op op_sift = {
    .name = "sift", .min_in = 1, .max_in = 1, .nout = 1, .infer = infer, .kernels = SL_CPU_KERNEL(sift),
    .cut = &sl_cut_elements, .traits = SL_OP_LOCATED,
    .grad = {{.op = &op_sift, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};

static const sl_option options[] = {{"data", SL_OPTION_TEXT, NULL, "`FILE`", 0, 0},
                                    {"drop", SL_OPTION_FLOAT, "0.2", "how much", 0, 1},
                                    {0}};
static sl_tensor *weight(sl_graph *g, int64_t rows, int64_t columns, const char *name) {
  return sl_param(g, SL_TYPE(SL_F32, rows, columns), SL_NORMAL(0.1f), "%s", name);
}
static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, 12), T = 11, C = 18, V = 256;
  float drop = (float)sl_arg_float(args, "drop");
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, V, &next), *y, *z;
  sl_tensor *table = weight(g, V, C, "table");
  sl_tensor *x = sl_dropout(g, sl_embedding(g, ids, table), drop);
  sl_block(g, "attention");
  y = sl_attention_packed(g, sl_linear(g, x, weight(g, 3 * C, C, "qkv"), NULL), 3, 0);
  x = sl_add(g, x, sl_dropout(g, sl_linear(g, y, weight(g, C, C, "o"), NULL), drop));
  sl_block(g, "wide");
  y = sl_linear(g, x, weight(g, 2 * C, C, "up"), NULL);
  y = sl_dropout(g, sl_gelu(g, y), drop);
  z = sl_mul(g, x, sl_uniform(g, x, 0.5f, 1.5f));
  z = sl_add(g, z, sl_normal(g, x, 0, 0.1f));
  sl_apply(g, &op_sift, NULL, 1, &z, 0, &z);
  sl_tensor *both[] = {y, z};
  sl_block(g, "head");
  y = sl_linear(g, sl_concat(g, -1, 2, both), weight(g, C, 3 * C, "down"), NULL);
  y = sl_linear(g, y, table, NULL);
  sl_train(g, sl_cross_entropy(g, y, next), &(sl_optimizer){.lr = 1e-2f});
  return sl_graph_status(g);
}
SL_MODEL(noisy, "random numbers", options, build);
END
model=(noisy.c --data "$reference/tokens.u16")
run() { ends 0 timeout 60 "$actorrun" "${patient[@]}" --quiet --steps 4 "$@"; }
losses() { grep -oE '"loss":[^,]*' "$1" | grep -oE '[0-9.]+$'; }
near() { # REPORT REPORT: losses differ by less than 1e-5, relatively
  paste <(losses "$1") <(losses "$2") |
    awk '{ d = $1 / $2 - 1; if (d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || NR != 4 }'
}
same() {
  run --microbatches 2 "$@" --report a.json "${model[@]}"
  near a.json one || fail "$*: other losses than one device's: $(losses a.json | xargs), not $(losses one | xargs)"
}

run --microbatches 2 --report one "${model[@]}"
run --microbatches 2 --report none "${model[@]}" --drop 0
near none one && fail "dropout does nothing"
for way in "--data-parallel 2" "--data-parallel 3" "--tensor 2" "--tensor 3 --data-parallel 2" \
           "--pieces 2" "--pieces 4 --schedule seq1f1b" "--pieces 2 --tensor 2" "--stages 2" \
           "--stages 4 --schedule gpipe" "--recompute full" "--recompute selective" \
           "--stages 2 --data-parallel 2 --shard parameters" "--workers 1"; do
  # shellcheck disable=SC2086
  same $way
done
run -n 2 --microbatches 2 --stages 2 --report two "${model[@]}"
near two one || fail "two processes have other losses"

# The number of microbatches does not matter: rows keep their place in the batch.
run --microbatches 4 --report a.json "${model[@]}"
near a.json one || fail "four microbatches: other losses"

# ---- resuming -----------------------------------------------------------------------------
ends 0 timeout 60 "$actorrun" --quiet --steps 2 --microbatches 2 --checkpoint kept --every 2 "${model[@]}"
run --microbatches 2 --checkpoint kept --every 2 --resume --report a.json "${model[@]}"
[ "$(hexes a.json)" = "$(hexes one | tail -2)" ] || fail "a run that goes on draws other numbers"

# ---- other seeds --------------------------------------------------------------------------
run --microbatches 2 --seed 2 --report other "${model[@]}"
[ "$(hexes other)" != "$(hexes one)" ] || fail "another seed changes nothing"
ends 2 "$actorrun" --quiet --steps 1 "${model[@]}" --drop 1
says "the probability that an element is dropped, must be in [0, 1), got 1" err
exit 0
