#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tables of embeddings on disk: a model with a table in each block answers with the same bits as with its tables in
# memory, alone and together, in f32 and bf16. Of each token the pages of its rows are read, and nothing else. Each table
# has an actor, and each block that wants one is a pass, so that blocks compute while later tables are read. If a read
# takes less time than a block, its rows are there before the block could begin. Tables that something else reads are
# refused.
# labels: outside
# needs: libevent
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"

actorserve=$bin/actorserve
mkdir -p disk
export TMPDIR=$PWD/disk
# Rows of 160 bytes, and of 4,400 bytes, which lie in two pages, or across three.
cat >tables.c <<'C'
#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_LIST, "", "`FILE` to learn", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, 2), T = 32, C = 40, E = 1100;
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, 256, &next);
  sl_tensor *x = sl_embedding(g, ids, sl_param(g, SL_TYPE(SL_F32, 256, C), SL_NORMAL(0.3f), "table"));
  for (int i = 0; i < 3; i++) {
    sl_block(g, "h.%d", i);
    sl_tensor *qkv = sl_param(g, SL_TYPE(SL_F32, 3 * C, C), SL_NORMAL(0.2f), "h.%d.qkv", i);
    x = sl_add(g, x, sl_attention_packed(g, sl_linear(g, x, qkv, NULL), 4, 4));
    sl_tensor *own = sl_embedding(g, ids, sl_param(g, SL_TYPE(SL_F32, 256, E), SL_NORMAL(0.3f), "h.%d.own", i));
    x = sl_add(g, x, sl_linear(g, own, sl_param(g, SL_TYPE(SL_F32, C, E), SL_NORMAL(0.1f), "h.%d.down", i), NULL));
  }
  sl_block(g, "head");
  sl_tensor *logits = sl_linear(g, x, sl_param(g, SL_TYPE(SL_F32, 256, C), SL_NORMAL(0.3f), "head"), NULL);
  sl_output(g, "logits", logits);
  sl_train(g, sl_cross_entropy(g, logits, next), NULL);
  return sl_graph_status(g);
}
SL_MODEL(tables, "a table in each block", options, build);
C
ends 0 "$actorrun" --quiet --steps 1 --save tables.safetensors tables.c --data "$reference/text.txt"

cat >serve.py <<'PY'
import json, re, subprocess, sys, threading, urllib.request
to, *words = sys.argv[1:]
server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
url = server.stdout.readline().split()[-1]
def ask(prompt):
    body = {"prompt": prompt, "max_tokens": 9, "temperature": 0, "logprobs": 1}
    with urllib.request.urlopen(url + "/completions", json.dumps(body).encode()) as answer:
        choice = json.load(answer)["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]
prompts = ["And the king", "x", "In the beginning was"]
together = [None] * len(prompts)
def store(i): together[i] = ask(prompts[i])
threads = [threading.Thread(target=store, args=(i,)) for i in range(len(prompts))]
for t in threads: t.start()
for t in threads: t.join()
assert [ask(p) for p in prompts] == together, "other bits alone"
with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics") as answer:
    counts = {k: int(n) for k, n in re.findall(r"^sluice_(rows|table_\w+)_total (\d+)", answer.read().decode(), re.M)}
server.terminate()
assert server.wait() == 0
json.dump([together, counts], open(to, "w"))
PY
try() { python3 serve.py "$1" "$actorserve" --port 0 --quota kv=16 --prefix-caching off "${@:2}" --init tables.safetensors tables.c || fail "$*"; }
# same WANT TABLES PAGES: the same answers; each row has a row of so many tables, in so many pages of 4 KiB at most.
same() {
  python3 - "$@" <<'PY' || fail "$*: $(cat out.json)"
import json, sys
(want, _), (got, n), tables, pages = json.load(open(sys.argv[1])), json.load(open("out.json")), int(sys.argv[2]), int(sys.argv[3])
assert want == got, "other bits than in memory"
assert n["table_rows_read"] == tables * n["rows"] > 0, n
assert n["table_bytes_read"] % 4096 == 0 and n["table_rows_read"] <= n["table_bytes_read"] / 4096 <= pages * n["table_rows_read"], n
PY
}
try memory.json
try out.json --weights tables
same memory.json 4 3
if [[ -x $SLUICE_BUILD/tests/emulated_actorserve ]]; then
  actorserve=$SLUICE_BUILD/tests/emulated_actorserve try gpu.json --devices cuda
  SLUICE_EMULATED_GUARD=1 actorserve=$SLUICE_BUILD/tests/emulated_actorserve try out.json --devices cuda --weights tables
  same gpu.json 4 3
fi
try out.json --weights tables --home tables@h.1=device --rows 5 --stages 2 --devices cpu:2x1
same memory.json 3 3
SLUICE_DISK=plain SLUICE_CHECK=slots try out.json --weights tables
same memory.json 4 3
try memory.json --dtype bf16
try out.json --dtype bf16 --weights tables
same memory.json 4 2

# The trace has an actor for each table, and a pass for each block that wants one.
try out.json --weights tables --trace trace.json
"$bin/actortrace" rows trace.json >rows.tsv
python3 - <<'PY' || fail "other actors"
rows = [line.rstrip("\n").split("\t") for line in open("rows.tsv")]
at = {name: i for i, name in enumerate(rows[0])}
actors = {row[at["actor"]] for row in rows[1:]}
loads, passes = ([a for a in actors if a.startswith(kind)] for kind in ("tables", "F0"))
assert len(loads) == 4 and len(passes) >= 5, (loads, passes)
PY

# Blocks of some 0.2 ms, and tables whose rows take 0.03 ms or 12 ms: only with the slow disk does each tick wait for rows
# of its later blocks.
sed 's/T = 32, C = 40/T = 64, C = 512/; s|^    sl_tensor \*own|    sl_tensor *mix = sl_param(g, SL_TYPE(SL_F32, C, C), SL_NORMAL(0.01f), "h.%d.mix", i);\n    for (int n = 0; n < 24; n++) x = sl_add(g, x, sl_linear(g, x, mix, NULL));\n&|' tables.c >mixed.c
grep -q mix mixed.c || fail "no blocks that compute"
ends 0 "$actorrun" --quiet --steps 0 --save mixed.safetensors mixed.c --data "$reference/text.txt"
for rate in 400e6 1e6; do
  SLUICE_DISK=rate=$rate python3 serve.py out.json "$actorserve" --port 0 --prefix-caching off --weights tables \
    --trace "trace.$rate.json" --init mixed.safetensors mixed.c || fail "blocks that compute"
  "$bin/actortrace" reasons "trace.$rate.json" >"reasons.$rate.tsv"
done
python3 - <<'PY' || fail "waits for rows"
import collections
free = {}
for rate in ("400e6", "1e6"):
    rows = [line.rstrip("\n").split("\t") for line in open(f"reasons.{rate}.tsv")]
    at, waits = {name: i for i, name in enumerate(rows[0])}, collections.Counter()
    for row in rows[1:]:
        later = row[at["producer"]].startswith("tables") and row[at["producer"]] != "tables0.0"
        waits[row[at["step"]]] += later * int(row[at["ns"]])
    free[rate] = sum(not ns for ns in waits.values()) / len(waits)
print("ticks that wait for no rows of later blocks:", free)
assert free["1e6"] < 0.1 and free["400e6"] > 2 * free["1e6"] + 0.05, free
PY

# A token beyond a table fails its request and no other, as it does in memory.
few=(decoder --layers 2 --width 12 --heads 1 --context 64 --vocab 256 --block-inputs 5 --block-inputs-vocab 99)
ends 0 "$actorrun" --quiet --steps 0 --save few.safetensors "${few[@]}" --data "$reference/text.txt"
for weights in memory tables; do
  python3 - "$actorserve" --port 0 --weights $weights --init few.safetensors "${few[@]}" <<'PY' || fail "a token beyond a table"
import json, subprocess, sys, urllib.error, urllib.request
server = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
url = server.stdout.readline().split()[-1]
def status(tokens):
    body = json.dumps({"prompt": tokens, "max_tokens": 1, "temperature": 0}).encode()
    try:
        with urllib.request.urlopen(url + "/completions", body) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
got = [status(tokens) for tokens in ([1, 98], [1, 250], [1, 97])]
server.terminate()
assert got == [200, 500, 200], got
PY
done

gpt=(gpt --layers 2 --width 24 --heads 3 --context 32)
ends 0 "$actorrun" --quiet --steps 0 --save tied.safetensors "${gpt[@]}" --data "$reference/text.txt"
ends 2 "$actorserve" --port 0 --weights tables --init tied.safetensors "${gpt[@]}"
says "cannot be read by rows" err
ends 2 "$actorserve" --port 0 --home table=disk --init tied.safetensors "${gpt[@]}"
says "--home table" err
