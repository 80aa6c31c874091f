#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A sum of several losses, some of whose rows are ignored, does not depend on how the model runs: on
# grids, in pieces, on stages, in several processes, with recomputed activations, or on emulated
# GPUs. Evaluations give the same sum. Losses that cannot be split are rejected.
# labels: outside
# needs: zeromq
set -u
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

cat >losses.c <<'END'
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
END
model=(losses.c --data "$reference/tokens.u16")
run() { ends 0 timeout 60 "$actorrun" "${patient[@]}" --quiet --steps 4 --microbatches 2 "$@"; }
losses() { grep -oE '"loss":[^,]*' "$1" | grep -oE '[0-9.]+$'; }
near() { # REPORT REPORT WITHIN [COUNT]: COUNT losses that differ by less than WITHIN, relatively
  paste <(losses "$1") <(losses "$2") |
    awk -v e="$3" '{ d = $1 / $2 - 1; if (d > e || d < -e) bad = 1 } END { exit bad || NR != '"${4:-4}"' }'
}
same() {
  run "$@" --report a.json "${model[@]}"
  near a.json one 2e-6 || fail "$*: other losses than one device's: $(losses a.json | xargs), not $(losses one | xargs)"
}
run --report one "${model[@]}"
for way in "--data-parallel 2" "--data-parallel 4" "--tensor 2" "--tensor 3 --data-parallel 2" \
           "--pieces 2" "--pieces 4 --schedule seq1f1b --stages 2" "--pieces 3 --data-parallel 2" \
           "--stages 2 --schedule zb-h1" "--recompute full" "--recompute selective --data-parallel 2" \
           "--stages 2 --data-parallel 2 --shard parameters"; do
  # shellcheck disable=SC2086
  same $way
done
same -n 2 --stages 2
same -n 2 --data-parallel 2

# ---- evaluations ------------------------------------------------------------------------------
eval=(--eval "$reference/tokens.u16" --eval-every 2)
run "${eval[@]}" --report evaluated "${model[@]}"
for way in "--data-parallel 2" "--stages 2 --data-parallel 2"; do
  # shellcheck disable=SC2086
  run $way "${eval[@]}" --report a.json "${model[@]}"
  near a.json evaluated 2e-6 6 || fail "$way: other losses of other data: $(losses a.json | xargs)"
done

# ---- on GPUs ----------------------------------------------------------------------------------
actorrun=$SLUICE_BUILD/tests/emulated_actorrun
if [[ -x $actorrun ]]; then
  same --devices cuda
  same --devices cuda --data-parallel 2 --pieces 2
  same --devices cuda --tensor 2
  run --devices cuda --dtype bf16 --report a.json "${model[@]}"
  near a.json one 1e-2 || fail "bf16: $(losses a.json | xargs), not $(losses one | xargs)"
fi

# ---- losses that cannot be split --------------------------------------------------------------
actorrun=$bin/actorrun
run --report a.json "${model[@]}" --bent
ends 2 timeout 60 "$actorrun" --quiet --steps 1 --microbatches 2 --data-parallel 2 "${model[@]}" --bent
says "op head/exp.1 (exp) reads head/add_broadcast.1, of which each of 2 data-parallel devices has a partial sum" err
ends 2 timeout 60 "$actorrun" --quiet --steps 1 --pieces 2 "${model[@]}" --bent
says "op head/exp.1 (exp) cannot be cut into pieces: each piece has a partial sum of its input 0, head/add_broadcast.1" err
exit 0
