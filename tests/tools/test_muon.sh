#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --optimizer muon: which parameters it updates and with which rates. The losses are the same over
# stages, grids, shards and processes, when resumed, and in bf16. Bad settings are rejected.
# labels: outside numbers
# needs: zeromq
set -u
. "$SLUICE_SOURCE/tests/support/tool.sh"

gpt=(gpt --layers 2 --width 32 --heads 4 --context 16 --batch 8 --vocab 259 --data "$reference/tokens.u16")
muon=(--optimizer muon:lr=0.02,adamw-lr=1e-3)
run() { ends 0 "$actorrun" --quiet "${patient[@]}" --microbatches 2 "$@" "${gpt[@]}"; }
# near WANTED REPORT: the losses have to be equal within 1e-6, relatively.
near() {
  paste <(grep -o '"loss":[^,]*' "$1") <(grep -o '"loss":[^,]*' "$2") |
    awk -F'[:\t]' '{ d = $2 - $4; n++; if (d > 1e-6 * $2 || -d > 1e-6 * $2) bad = 1 }
                   END { exit bad || !n }' || fail "$1 and $2 are far from each other"
}
differ() { cmp -s <(hexes "$1") <(hexes "$2") && fail "$3"; return 0; }

# ---- which parameters ---------------------------------------------------------------------------------------
run --steps 3 --checkpoint c --every 3 --report whole.json "${muon[@]}"
python3 - c/step-3/*.safetensors <<'END' || fail "what is kept of the parameters"
import json, struct, sys
names = set()
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    names |= set(json.loads(data[8:8 + n])) - {"__metadata__"}
params = {n for n in names if ":" not in n}
muon = {n[:-9] for n in names if n.endswith(":momentum")}
adamw = {n[:-2] for n in names if n.endswith(":m")}
assert adamw == {n[:-2] for n in names if n.endswith(":v")} and not muon & adamw and muon | adamw == params
inner = {f"h.{l}.{m}.weight" for l in range(2) for m in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
assert {n.replace("transformer.", "") for n in muon} == inner, muon
END
rm -rf c

# ---- rates and groups -----------------------------------------------------------------------------------------
run --steps 3 --report other.json --optimizer muon:lr=0.02,adamw-lr=2e-3
differ whole.json other.json "adamw-lr changes nothing"
run --steps 3 --report other.json --optimizer muon:lr=0.03,adamw-lr=1e-3
differ whole.json other.json "lr changes nothing"
# With all parameters in AdamW's group it equals AdamW alone.
run --steps 3 --report all.json "${muon[@]}" --group '*:optimizer=adamw'
run --steps 3 --report other.json --optimizer adamw:lr=1e-3
near all.json other.json
run --steps 3 --report other.json "${muon[@]}" --group 'mlp:optimizer=adamw'
differ whole.json other.json "a group's optimizer changes nothing"
differ all.json other.json "a group's optimizer is that of all"
run --steps 3 --report other.json "${muon[@]}" --group 'h.*.attn:lr-scale=0.5' --group wte:lr=1e-4,optimizer=muon
differ whole.json other.json "groups change nothing"

# ---- all grids --------------------------------------------------------------------------------------------------
run --steps 6 --report whole.json "${muon[@]}"
for how in "--stages 2" "--stages 2 -n 2 --schedule zb-h1" "--data-parallel 2" "--data-parallel 2 --shard optimizer" \
  "--data-parallel 2 --shard gradients" "--data-parallel 2 --shard parameters -n 2" "--tensor 2" \
  "--tensor 2 --stages 2 -n 2" "--data-parallel 2 --tensor 2 --shard parameters" "--sequence 2 --shard optimizer"; do
  # shellcheck disable=SC2086
  run --steps 6 --report other.json "${muon[@]}" $how
  near whole.json other.json
done

# --exact gives the same bits.
run --steps 4 --exact --report exact.json "${muon[@]}"
for how in "--data-parallel 2 --shard gradients" "--tensor 2 --stages 2"; do
  # shellcheck disable=SC2086
  run --steps 4 --exact --report other.json "${muon[@]}" $how
  cmp <(hexes exact.json) <(hexes other.json) || fail "exact, $how: other losses"
done

# ---- resumed ------------------------------------------------------------------------------------------------------
run --steps 3 --report a.json --checkpoint c --every 3 "${muon[@]}"
run --steps 6 --report b.json --checkpoint c --resume "${muon[@]}"
cmp <(hexes whole.json) <(hexes a.json; hexes b.json) || fail "a resumed run has other losses"
rm -rf c
run --steps 3 --report a.json --checkpoint c --every 3 "${muon[@]}" --tensor 2 --data-parallel 2 --shard optimizer
run --steps 6 --report b.json --checkpoint c --resume "${muon[@]}" --stages 2
near whole.json <(cat a.json b.json)
ends 2 "$actorrun" --steps 9 --checkpoint c --resume --microbatches 2 --optimizer adamw "${gpt[@]}"
says "--optimizer is adamw, but" err
rm -rf c

# ---- rejected settings ------------------------------------------------------------------------------------------
refused() { # WORDS OPTION...
  local words=$1
  shift
  ends 2 "$actorrun" --steps 1 "$@" "${gpt[@]}"
  says "$words" err
}
refused "muon supports Nesterov momentum only" --optimizer muon:nesterov=0
refused "group ln_1: muon updates matrices only, but " --optimizer muon --group ln_1:optimizer=muon
refused "group h: optimizer lion: this run can use muon or adamw" --optimizer muon --group h:optimizer=lion
refused "group h: optimizer muon: this run can use adamw" --group h:optimizer=muon
refused "momentum must be in [0, 1)" --optimizer muon:momentum=1
