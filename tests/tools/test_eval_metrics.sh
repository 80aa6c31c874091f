#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The metrics of a model (sl_metric) are averaged over held-out data like the loss. They are the
# same on any devices, in the report, the log and --best. Dropout is off during evaluation. Adapters
# and frozen parameters are evaluated as well.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

build() { cc -shared -fPIC -I"$SLUICE_SOURCE/include" -o "$1.so" "$2" -lm; }
run() { ends 0 "$actorrun" --quiet "${patient[@]}" "$@"; }
# found REPORT: prints steps, loss and metrics of each evaluation.
found() {
  python3 -c '
import json, sys
for e in json.load(open(sys.argv[1]))["evaluations"]:
    print(e["steps"], e["loss"], *e.get("metrics", {}).values())' "$1"
}
near() { # FOUND FOUND: line by line equal within 1e-5, and not empty
  paste "$1" "$2" | awk '{ for (i = 1; i <= NF / 2; i++) { d = $i - $(i + NF / 2); s += d > 1e-5 || d < -1e-5 } }
    END { exit s || !NR }'
}

build digits "$SLUICE_SOURCE/examples/digits.c"
digits=(digits.so --data "$SLUICE_SOURCE/examples/digits.u8")
run --steps 8 --microbatches 2 --report plain.json "${digits[@]}"
run --steps 8 --microbatches 2 --eval-every 4 --report r.json "${digits[@]}"
cmp -s <(hexes plain.json) <(hexes r.json) || fail "training is another with it"
found r.json >want
grep -qE '^8 [0-9.]+ 0\.[0-9]+$' want || fail "no accuracy: $(cat want)"
for way in "--stages 2 -n 2 --schedule zb-h1" "--data-parallel 2 --shard parameters" "--tensor 2 --recompute full" \
           "--stages 2 --order derive"; do
  # shellcheck disable=SC2086
  run --steps 8 --microbatches 2 --eval-every 4 --report r.json $way "${digits[@]}"
  found r.json >got
  near got want || fail "$way: $(cat got), not $(cat want)"
done

# The checkpoint with the largest accuracy is kept, and the run ends when accuracy stops rising. A
# resumed run knows the best value.
ends 0 "$actorrun" --steps 400 --eval-every 10 --every 10 --checkpoint c --best accuracy --patience 4 \
  --log l.csv --log l.jsonl --report r.json "${digits[@]}"
says "the best so far" out
says "no larger accuracy in " out
says "largest accuracy 0." out
python3 - <<'END' || fail "the best is not what the report says"
import csv, json
report, best = json.load(open("r.json"))["evaluations"], json.load(open("c/best/eval.json"))
first = max(report, key=lambda e: e["metrics"]["accuracy"])
loss = float.fromhex(first["eval_hex"]) # the decimal number of a report may be off by its last bit
assert best == {"step": first["steps"], "loss": loss, **first["metrics"]}, (best, first)
rows = [r for r in csv.DictReader(open("l.csv")) if r["eval_loss"]]
lines = [l for l in map(json.loads, open("l.jsonl")) if "eval_loss" in l]
for e, r, l in zip(report, rows, lines, strict=True):
    want = [e["steps"], e["loss"], e["metrics"]["accuracy"]]
    for got in r, l:
        assert all(abs(float(got[k]) - w) < 1e-6 for k, w in zip(("step", "eval_loss", "eval_accuracy"), want))
END
cp c/best/eval.json before.json
ends 0 "$actorrun" --quiet --steps 400 --eval-every 10 --every 10 --checkpoint c --resume --best accuracy:min \
  --patience 1 --report r.json "${digits[@]}"
python3 - <<'END' || fail "the best is not the smallest of what was the largest and what came since"
import json
before, after = (json.load(open(name))["accuracy"] for name in ("before.json", "c/best/eval.json"))
found = [e["metrics"]["accuracy"] for e in json.load(open("r.json"))["evaluations"]]
assert found and after == min([before, *found]), (before, found, after)
END

# Adapters, and frozen parameters.
text=(gpt --layers 2 --width 16 --heads 2 --context 16 --batch 8 --data "$reference/text.txt")
for kind in "--lora h.*.attn=4" "--freeze wte --freeze h.0"; do
  for way in "" "--stages 2 -n 2 --data-parallel 2 --shard parameters"; do
    # shellcheck disable=SC2086
    run --steps 8 --microbatches 4 --eval "$reference/tokens.u16" --eval-every 4 --report r.json $kind $way "${text[@]}"
    found r.json >got
    [ -n "$way" ] || cp got want
    near got want || fail "$kind $way: $(cat got), not $(cat want)"
  done
done

cat >drop.c <<'END'
#include <sluice/sluice.h>

static const sl_option options[] = {{"p", SL_OPTION_FLOAT, "0", "of dropout", 0, 1}, {0}};
static const sl_type types[] = {{SL_F32, 2, {8, 16}}, {SL_F32, 2, {8, 4}}};
static void fill(void *ctx, const sl_tick *tick, void *const *out) {
  (void)ctx;
  for (int i = 0; i < 8 * 16; i++) ((float *)out[0])[i] = (float)((i + 3 * tick->microbatch) % 7) - 3;
  for (int i = 0; i < 8 * 4; i++) ((float *)out[1])[i] = (float)(i % 3);
}
static const sl_source source = {.nout = 2, .types = types, .fill = fill, .fill_held_out = fill, .held_out = 3};

static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *data[2];
  sl_data(g, &source, data);
  sl_tensor *w = sl_param(g, SL_TYPE(SL_F32, 4, 16), SL_NORMAL(1), "w");
  sl_tensor *x = sl_dropout(g, data[0], (float)sl_arg_float(args, "p"));
  x = sl_dropout(g, sl_linear(g, x, w, NULL), (float)sl_arg_float(args, "p"));
  sl_metric(g, "distance", sl_mse(g, x, data[1]));
  sl_metric(g, "mean", x);
  sl_train(g, sl_mse(g, x, data[1]), &(sl_optimizer){.lr = 1e-30f});
  return sl_graph_status(g);
}
SL_MODEL(drop, "a linear map with dropout", options, build);
END
build drop drop.c
run --steps 4 --eval-every 4 --report a.json drop.so
run --steps 4 --eval-every 4 --report b.json --data-parallel 2 drop.so --p 0.5
cmp -s <(hexes a.json) <(hexes b.json) && fail "something is dropped in training"
near <(found a.json) <(found b.json) || fail "$(found b.json), not $(found a.json)"
found a.json | awk '{ exit $2 != $3 }' || fail "the loss as a metric: $(found a.json)"

# Tokens, some of them ignored, in pieces and on grids.
cat >next.c <<'END'
#include <sluice/sluice.h>

static const sl_option options[] = {{"data", SL_OPTION_TEXT, NULL, "`FILE` to learn", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), sl_microbatch_rows(g, 8), 16, 256, &next);
  sl_tensor *table = sl_param(g, SL_TYPE(SL_F32, 256, 16), SL_NORMAL(0.1f), "table");
  sl_tensor *head = sl_param(g, SL_TYPE(SL_F32, 256, 16), SL_NORMAL(0.1f), "head");
  sl_tensor *x = sl_embedding(g, ids, table);
  sl_block(g, "head");
  sl_tensor *logits = sl_linear(g, sl_gelu(g, x), head, NULL);
  sl_metric(g, "accuracy", sl_accuracy(g, logits, next));
  sl_metric(g, "all", sl_cross_entropy(g, logits, next));
  sl_train(g, sl_cross_entropy_with(g, logits, next, &(sl_loss){.ignore = ' '}), &(sl_optimizer){.lr = 0.05f});
  return sl_graph_status(g);
}
SL_MODEL(next, "the next byte from this one, but for spaces", options, build);
END
build next next.c
for way in "" "--pieces 2 --stages 2 --data-parallel 2 --shard parameters"; do
  # shellcheck disable=SC2086
  run --steps 8 --microbatches 2 --eval "$reference/text.txt" --eval-every 4 --report r.json $way next.so \
    --data "$reference/text.txt"
  found r.json >got
  [ -n "$way" ] || cp got want
  near got want || fail "$way: $(cat got), not $(cat want)"
done

refused() {
  local text=$1
  shift
  ends 2 "$actorrun" --quiet "$@"
  says "$text" err
}
refused "has no held-out data: --eval FILE gives it to a model that reads text" --eval-every 4 "$SLUICE_SOURCE/examples/spiral.c"
refused "has no held-out data: --eval FILE gives it to a model that reads text" --eval-every 4 "${text[@]}"
refused "--eval $reference/text.txt: the model has a source of its own, which does not read it" --eval "$reference/text.txt" "${digits[@]}"
refused "--best precision: must be one of loss, accuracy, optionally followed by :min or :max" --eval-every 4 --best precision "${digits[@]}"
refused "--best accuracy:top: must be one of" --eval-every 4 --best accuracy:top "${digits[@]}"
refused "--best: needs --eval FILE, or --eval-every N for rows that the model's data holds out" --best accuracy "${digits[@]}"
