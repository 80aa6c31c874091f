#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The script for machines with several GPUs runs its parts on emulated ones and writes its file.
# labels: outside
# needs: zeromq
set -euo pipefail
# shellcheck source=tests/support/emulated.sh
source "$SLUICE_SOURCE/tests/support/emulated.sh"
need python3
several() { python3 "$SLUICE_SOURCE/tests/gpu/several" "$SLUICE_BUILD" --actorrun "$actorrun" --size test "$@"; }

SLUICE_EMULATED_GPUS=2 ends 0 several --gpus 2 --seconds 300 --out two.json stages grids processes kills serving
python3 - <<'PY' || fail "$(<two.json)"
import json
rows = json.load(open("two.json"))["parts"]
assert [r["part"] for r in rows] == ["stages", "grids", "processes", "kills", "serving"]
assert all(r["result"] == "passed" for r in rows), rows
assert rows[-1]["figures"]["as_on_cpu"] and rows[3]["figures"]["status"]
PY
ends 0 several --gpus 1 --out one.json stages
grep -q '"why": "it needs 2 GPUs, and there is 1"' one.json || fail "$(<one.json)"
ends 2 several --gpus 1 --out one.json nothing
says "there is no part nothing" err
