#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# /v1/embeddings returns the embeddings of transformers (tests/reference/embeddings.json), by mean
# and by last token, also with chunked prompts and over stages and devices. /rerank and /score use
# them.
# labels: outside
# needs: libevent zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3

# asked POOLING FOLDER OPTION...: compares a server's embeddings with the reference.
asked() {
  background "$bin/actorserve" --port 0 --pooling "$1" "${@:3}" "$reference/$2"
  until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended: $(<err)"; sleep 0.05; done
  port=$(sed -E 's,.*:([0-9]+)/.*,\1,' out)
  python3 "$SLUICE_SOURCE/tests/support/serve_embeddings.py" "$port" "$reference/embeddings.json" "$2" "$1" 2>said ||
    fail "$*: $(<said)"
}
drained() {
  local got=0
  kill -INT "$pid"
  wait "$pid" || got=$?
  ((got == 0)) || fail "it ends with status $got: $(<err)"
}
asked mean hf_llama
drained
asked last hf_llama --rows 5
drained
asked mean hf_qwen3 --rows 4 --stages 2 --groups 3
drained
asked last hf_qwen3 --tensor 2
drained
asked none hf_llama
drained

# With a byte model, texts that share letters are similar.
ends 0 "$actorrun" --quiet --steps 5 --save small/ gpt --layers 1 --width 16 --heads 2 --context 64 --data "$reference/text.txt"
background "$bin/actorserve" --port 0 --pooling mean small/
until [[ -s out ]]; do kill -0 "$pid" || fail "the server has ended: $(<err)"; sleep 0.05; done
port=$(sed -E 's,.*:([0-9]+)/.*,\1,' out)
PYTHONPATH=$SLUICE_SOURCE/tests/support python3 - "$port" 2>said <<'PY' || fail "$(<said)"
import sys
from serve_client import Client, check

client = Client(int(sys.argv[1]))
texts = ["zzzz", "the cat", "the hat"]
status, ranks, _ = client.ask("POST", "/v1/rerank", dict(query="the cat", documents=texts, return_documents=True))
check(status == 200, "rerank is answered with", status, ranks)
found = ranks["results"]
scores = [each["relevance_score"] for each in found]
check(scores == sorted(scores, reverse=True) and abs(scores[0] - 1) < 1e-6 and found[0]["index"] == 1, "ranks", found)
check([each["document"]["text"] for each in found] == [texts[each["index"]] for each in found], "documents", found)
status, top, _ = client.ask("POST", "/rerank", dict(query="the cat", documents=texts, top_n=1))
check(status == 200 and [each["index"] for each in top["results"]] == [1] and "document" not in top["results"][0], top)
status, said, _ = client.ask("POST", "/v1/score", dict(text_1="the cat", text_2=texts))
check(status == 200, "score is answered with", status, said)
by_index = {each["index"]: each["relevance_score"] for each in found}
check(all(each["score"] == by_index[each["index"]] for each in said["data"]), "scores", said, by_index)
status, said, _ = client.ask("POST", "/score", dict(text_1=texts, text_2=texts))
check(status == 200 and all(abs(each["score"] - 1) < 1e-6 for each in said["data"]), "a text and itself", said)
for path, fields in (("/v1/score", dict(text_1=["a", "b"], text_2=["c"])), ("/v1/rerank", dict(query="a")),
                     ("/v1/rerank", dict(query="a", documents=[])), ("/v1/rerank", dict(query="a", documents=[3]))):
    status, said, _ = client.ask("POST", path, fields)
    check(status == 400 and said["error"]["param"], path, fields, "is answered with", status, said)
PY
drained
