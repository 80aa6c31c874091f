#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The script for machines with several GPUs runs its parts on emulated ones and writes its file.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"
need python3
several() { python3 "$SLUICE_SOURCE/tests/gpu/several" "$SLUICE_BUILD" --emulated --size test --seconds 900 "$@"; }
# all_pass GPUS PARTS...
all_pass() {
  SLUICE_EMULATED_GPUS=$1 ends 0 several --gpus "$1" --out all.json "${@:2}"
  python3 - "${@:2}" <<'PY' || fail "$(<all.json)"
import json, sys
rows = {r["part"]: r for r in json.load(open("all.json"))["parts"]}
assert sorted(rows) == sorted(sys.argv[1:])
assert all(r["result"] == "passed" for r in rows.values()), rows
assert rows["serving"]["figures"]["as_on_cpu"]
assert "kills" not in rows or all(k["status"] for k in rows["kills"]["figures"].values())
PY
}
parts=(stages processes kills serving servers grids)
[[ -z ${SLUICE_LONG-} ]] || parts+=(collectives speed)
all_pass 2 "${parts[@]}"
for gpus in ${SLUICE_LONG:+4 8}; do all_pass "$gpus" "${parts[@]}"; done
ends 0 several --gpus 1 --out one.json stages
grep -q '"why": "it needs 2 GPUs, and there is 1"' one.json || fail "$(<one.json)"
ends 2 several --gpus 1 --out one.json nothing
says "there is no part nothing" err
