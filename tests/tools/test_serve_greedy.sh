#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# actorserve continues prompts as generate() of transformers does with the same Hugging Face folders
# (tests/reference/greedy.json): mixtures of experts, whose rows come from several requests, and
# delta-rule states. This also holds when requests give up pages, on two stages, and with tensor
# parallelism.
# labels: outside
# needs: libevent zeromq
set -euo pipefail
# shellcheck source=tests/support/tool.sh
source "$SLUICE_SOURCE/tests/support/tool.sh"
need python3

# asked FOLDER OPTION...: tests a server of the folder that is short of pages.
asked() {
  local folder=$1
  shift
  background "$bin/actorserve" --port 0 --rows 20 --sequences 6 --quota kv=3 --report served.json "$@" "$reference/$folder"
  until [[ -s out ]]; do kill -0 "$pid" || fail "$folder: the server has ended"; sleep 0.01; done
  python3 "$SLUICE_SOURCE/tests/support/serve_greedy.py" "$(sed -E 's,.*:([0-9]+)/.*,\1,' out)" "$reference/greedy.json" \
    "$folder" || fail "$folder $*"
  kill -INT "$pid"
  wait "$pid" || fail "$folder: the server ends with status $?"
}
# parameters: prints the parameter bytes of the first device.
parameters() { python3 -c 'import json; print(json.load(open("served.json"))["devices"][0]["peak_bytes"]["parameters"])'; }
for folder in hf_mixtral hf_qwen2_moe hf_qwen3_moe hf_qwen3_next hf_qwen3_next_dense; do
  asked "$folder" --dtype fp32
  whole=$(parameters)
  asked "$folder"
  [[ $folder == hf_qwen3_next* ]] || (($(parameters) < whole * 6 / 10)) || fail "$folder: bf16 weights of experts do not stay bf16"
  asked "$folder" --stages 2
done
asked hf_qwen3_next --tensor 2
asked hf_qwen3_moe --dtype fp32
whole=$(parameters)
asked hf_qwen3_moe --dtype fp32 --tensor 2
(($(parameters) < whole * 7 / 10)) || fail "two devices do not share the weights of experts"
