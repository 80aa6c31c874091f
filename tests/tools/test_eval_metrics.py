# SPDX-License-Identifier: Apache-2.0
"""The metrics of a model (sl_metric) are averaged over held-out data like the loss. They are the same on any devices, in the
report, the log and --best. Dropout is off during evaluation. Adapters and frozen parameters are evaluated as well.

labels: outside
needs: zeromq
"""
import csv
import json

from tool import ACTORRUN, PLACES, Report, Runs, actorrun, differ, ends, fails, parse, read, same_bits, says, write


def build(name, source):
    ends(0, "cc", f"-shared -fPIC -I{{source}}/include -o {name}.so {source} -lm")


def found(report):
    """Returns steps, loss and metrics of each evaluation."""
    return [(e["steps"], e["loss"], *e.get("metrics", {}).values()) for e in report.whole["evaluations"]]


def alike(one, other):
    pairs = list(zip(found(one), found(other)))
    assert pairs and all(len(a) == len(b) and all(abs(x - y) < 1e-5 for x, y in zip(a, b)) for a, b in pairs), (
        one.call, other.call, pairs)


build("digits", "{source}/examples/digits.c")
DIGITS, DATA = "digits.so --data {source}/examples/digits.u8", "--data {reference}/text.txt"
digits = Runs(DIGITS, "--steps 8 --microbatches 2")
want = digits("--eval-every 4")
same_bits(digits(), want)
assert len(found(want)[-1]) == 3 and 0 < found(want)[-1][2] < 1, found(want)
for way in ("--stages 2 -n 2 --schedule zb-h1", "--data-parallel 2 --shard parameters", "--tensor 2 --recompute full",
            "--stages 2 --order derive"):
    alike(want, digits("--eval-every 4 " + way))

# The checkpoint with the largest accuracy is kept, and the run ends when accuracy stops rising. A resumed run knows the best
# value.
LONG = "--steps 400 --eval-every 10 --every 10 --checkpoint c --report r.json "
said = actorrun(f"{LONG} --best accuracy --patience 4 --log l.csv --log l.jsonl {DIGITS}").stdout
says(said, "the best so far", "no larger accuracy in ", "largest accuracy 0.")
report, best = parse("r.json")["evaluations"], parse("c/best/eval.json")
first = max(report, key=lambda e: e["metrics"]["accuracy"])
loss = float.fromhex(first["eval_hex"])  # the decimal number of a report may be off by its last bit
assert best == {"step": first["steps"], "loss": loss, **first["metrics"]}, (best, first)
rows = [row for row in csv.DictReader(read("l.csv").decode().splitlines()) if row["eval_loss"]]
lines = [line for line in map(json.loads, read("l.jsonl").decode().splitlines()) if "eval_loss" in line]
for e, *logged in zip(report, rows, lines, strict=True):
    for got in logged:
        for key, value in (("step", e["steps"]), ("eval_loss", e["loss"]), ("eval_accuracy", e["metrics"]["accuracy"])):
            assert abs(float(got[key]) - value) < 1e-6, (key, value, got)
actorrun(f"--quiet {LONG} --resume --best accuracy:min --patience 1 {DIGITS}")
smallest = min([best["accuracy"], *(e["metrics"]["accuracy"] for e in Report.read("r.json").whole["evaluations"])])
assert parse("r.json")["evaluations"] and parse("c/best/eval.json")["accuracy"] == smallest

# Adapters, and frozen parameters.
GPT = f"gpt --layers 2 --width 16 --heads 2 --context 16 --batch 8 {DATA}"
gpt = Runs(GPT, "--steps 8 --microbatches 4 --eval {reference}/tokens.u16 --eval-every 4")
for kind in ("--lora h.*.attn=4", "--freeze wte --freeze h.0"):
    alike(gpt(kind), gpt(kind + " --stages 2 -n 2 --data-parallel 2 --shard parameters"))

write("drop.c", r"""#include <sluice/sluice.h>

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
""")
build("drop", "drop.c")
without, dropped = Runs("drop.so")("--steps 4 --eval-every 4"), Runs("drop.so --p 0.5")("--steps 4 --eval-every 4 --data-parallel 2")
differ(without, dropped)
alike(without, dropped)
assert all(e[1] == e[2] for e in found(without)), "the loss as a metric"

# Tokens, some of them ignored, in pieces and on grids.
write("next.c", r"""#include <sluice/sluice.h>

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
""")
build("next", "next.c")
tokens = Runs("next.so " + DATA, "--steps 8 --microbatches 2 --eval {reference}/text.txt --eval-every 4")
alike(tokens(), tokens("--pieces 2 --stages 2 --data-parallel 2 --shard parameters"))

HELD = "has no held-out data: --eval FILE gives it to a model that reads text"
for text, options in (
        (HELD, "--eval-every 4 {source}/examples/spiral.c"), (HELD, "--eval-every 4 " + GPT),
        (f"--eval {PLACES['reference']}/text.txt: the model has a source of its own, which does not read it",
         "--eval {reference}/text.txt " + DIGITS),
        ("--best precision: must be one of loss, accuracy, optionally followed by :min or :max",
         "--eval-every 4 --best precision " + DIGITS),
        ("--best accuracy:top: must be one of", "--eval-every 4 --best accuracy:top " + DIGITS),
        ("--best: needs --eval FILE, or --eval-every N for rows that the model's data holds out", "--best accuracy " + DIGITS)):
    fails(text, ACTORRUN, "--quiet " + options)
