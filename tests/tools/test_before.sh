#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Errors that can be known before a run are reported before it: text that cannot be generated, or
# options in front of their model. Also tests which value was the first that is not finite.
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

model=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 4 --data "$reference/text.txt")
refused() { # TEXT WORDS...
  local text=$1
  shift
  ends 2 "$actorrun" "$@"
  says "$text" err
  ! grep -q "^step " out || fail "$text: it has trained before"
}

# ---- options before the model ----------------------------------------------------------------
ends 0 "$actorrun" --steps 2 "${model[@]}" --report a.json
ends 0 "$actorrun" --data "$reference/text.txt" --steps 2 --layers=2 --report b.json gpt --width 16 \
  --heads 2 --context 16 --batch 4
ends 0 "$actorrun" --steps 2 --report a.json "${model[@]}"
cmp -s <(hexes a.json) <(hexes b.json) || fail "options before the model are the model's"
refused "unknown option --stags; did you mean --stages?" --stags 2 "${model[@]}"
refused "unknown option --dat; did you mean --data?" --dat x "${model[@]}"
refused "unknown option --data" --data x

# ---- what cannot be generated ----------------------------------------------------------------
cat >classifier.c <<'END'
#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_LIST, NULL, "`FILE` to learn", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, 8);
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, 4, 256, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_NORMAL(0.02f), "table");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 256, 8), SL_NORMAL(0.02f), "head");
  sl_tensor *x = sl_embedding(g, ids, table);
  sl_output(g, "classes", sl_gelu(g, x));
  sl_train(g, sl_cross_entropy(g, sl_linear(g, x, head, NULL), next), &(sl_optimizer){.lr = 1e-3f});
  return sl_graph_status(g);
}
SL_MODEL(classifier, "classes", options, build);
END
refused '--generate: model classifier has no f32 output "logits"' --steps 3 --generate 5 classifier.c \
  --data "$reference/text.txt"
refused "--prompt: with a vocabulary of 300 it must be a list of smaller numbers" --steps 3 --generate 5 \
  --prompt words "${model[@]}" --vocab 300
refused "--prompt: byte 120 is outside the vocabulary of 100" --steps 0 --generate 5 --prompt x gpt \
  --layers 1 --width 8 --heads 1 --context 8 --vocab 100

# Without any step the file has all values, including those that no output needs.
ends 0 "$actorrun" --steps 0 --save w.safetensors classifier.c --data "$reference/text.txt"
ends 0 "$actorrun" --steps 0 --init w.safetensors --save w2.safetensors classifier.c --data "$reference/text.txt"
cmp -s w.safetensors w2.safetensors || fail "they come as they went"
grep -q '"head"' w.safetensors || fail "head is not saved"

# ---- values that are not finite --------------------------------------------------------------
wild=("${model[@]}" --lr 1e30 --clip 0)
ends 1 "$actorrun" --steps 20 --quiet "${wild[@]}"
says "the loss of step 2, microbatch 0, is" err
says "(--check-finite says where it comes from)" err
for way in "" "--pieces 2 --microbatches 2 --stages 2" "-n 2 --stages 2 --heartbeat-timeout 30" \
           "--data-parallel 2"; do
  # shellcheck disable=SC2086
  ends 1 "$actorrun" --steps 20 --quiet --check-finite $way "${wild[@]}"
  grep -qE "(linear|layernorm|adamw|gelu|attention|norm|clip)[^ ]*, run by actor [FBUW][^ ]* in step [12], microbatch [01], made element [0-9]+ of output [0-9], f" err ||
    grep -qE ", run by actor [a-zA-Z]+[0-9.#]* in step [12], microbatch [01], made element" err ||
    fail "$way: where it began"
done
refused "--check-finite: null devices hold no values" --check-finite --devices null:1 "${model[@]}"
# --check-finite changes nothing else.
ends 0 "$actorrun" --steps 4 --quiet --check-finite --pieces 2 --report a.json "${model[@]}"
ends 0 "$actorrun" --steps 4 --quiet --pieces 2 --report b.json "${model[@]}"
cmp -s <(hexes a.json) <(hexes b.json) || fail "--check-finite changes losses"

# ---- an interrupt is not a failure -----------------------------------------------------------
for way in "" "-n 2 --stages 2 --restarts 3"; do
  # shellcheck disable=SC2086
  background "$actorrun" --steps 1000000 $way "${model[@]}"
  for _ in $(seq 600); do grep -q "step 1/" out && break; sleep 0.1; done
  kill -TERM "$pid"
  status=0
  wait "$pid" || status=$?
  ((status == 1)) || fail "stopped $way: status $status, not 1"
  says "stopped after step" out
  ! grep -qE "ended with status|restarting" err || fail "stopped $way: $(cat err)"
  to_end=()
done

# A run whose op never returns cannot finish its step; the second signal ends it.
cat >hangs.c <<'END'
#include <fcntl.h>
#include <sluice/sluice.h>
#include <unistd.h>
static sl_status infer(const sl_attrs *attrs, int nin, const sl_type *in, sl_type *out) {
  (void)attrs, (void)nin;
  out[0] = in[0];
  return SL_OK;
}
static void hang(const sl_call *call) {
  (void)call;
  close(open("hangs", O_CREAT | O_WRONLY, 0600));
  for (;;) pause();
}
static const sl_op op_hang = {
    .name = "hang", .min_in = 1, .max_in = 1, .nout = 1, .infer = infer, .kernels = SL_CPU_KERNEL(hang),
    .cut = &sl_cut_elements,
    .grad = {{.op = &op_hang, .cls = SL_CLASS_B, .in = {SL_DOUT(0)}, .nwrt = 1, .wrt = {0}}}};
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx, (void)tick;
  for (int i = 0; out[0] && i < 16; i++) ((float *)out[0])[i] = 1;
}
static sl_status build(sl_graph *g, const sl_args *args) {
  (void)args;
  static sl_type type = SL_TYPE(SL_F32, 4, 4);
  static sl_source source = {.nout = 1, .types = &type, .fill = fill};
  sl_tensor *x, *y = NULL;
  sl_block(g, "all");
  sl_data(g, &source, &x);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 4, 4), SL_NORMAL(0.1f), "w"), *h = sl_linear(g, x, w, NULL);
  sl_apply(g, &op_hang, NULL, 1, &h, 0, &y);
  sl_train(g, sl_mse(g, y, x), NULL);
  return sl_graph_status(g);
}
SL_MODEL(hangs, "an op that does not return", NULL, build);
END
appears() { for _ in $(seq 600); do ! "$@" || return 0; sleep 0.1; done; fail "$way: waited for $* in vain"; }
# The exit status is that of a process killed by the signal.
while read -r first second want way; do
  rm -f hangs
  # shellcheck disable=SC2086
  background "$actorrun" --quiet --steps 3 $way hangs.c
  appears test -e hangs
  kill "-$first" "$pid"
  appears grep -q "press Ctrl-C again to quit now" err
  sleep 0.3 # two signals within a moment count as one
  kill "-$second" "$pid"
  status=0
  timeout 10 tail --pid="$pid" -s 0.05 -f /dev/null || fail "$first, $second $way: it goes on"
  wait "$pid" || status=$?
  ((status == want)) || fail "$first, $second $way: status $status, not $want"
  to_end=()
done <<'END'
INT INT 130 --workers 1
INT TERM 143 --tensor 2
TERM TERM 143 -n 2 --data-parallel 2 --heartbeat-timeout 30
END
