# SPDX-License-Identifier: Apache-2.0
"""Commands of actorrun say what their options say, and later options override them.

labels: unthreaded
"""
import re

from tool import ACTORRUN, ends

MODEL = "gpt --layers 2 --width 32 --heads 2 --context 16 --data {reference}/tokens.u16"
SHORT = {
    "plan --stages 2": "--dry-run --stages 2",
    "plan --tensor 2 --microbatches 4": "--dry-run --tensor 2 --microbatches 4",
    "sbp --tensor 2": "--show-sbp --tensor 2",
    "place --stages 2": "--show-placement --stages 2",
    "place": "--show-placement",
    "generate --generate 9": "--steps 0 --generate 9",
}

for command, options in SHORT.items():
    one, other = (re.sub("proved in .*", "", ends(0, ACTORRUN, f"{words} {MODEL}").stdout) for words in (command, options))
    assert one and one == other, (command, one, other)

trained = ends(0, ACTORRUN, f"train --steps 2 {MODEL}").stdout
assert "loss" in trained, trained
assert "--show-data: needs chats: --data FILE.jsonl" in ends(2, ACTORRUN, f"data {MODEL}").stderr
assert "no MODEL was given" in ends(2, ACTORRUN, "plan").stderr
assert "unknown model plans" in ends(2, ACTORRUN, f"plans {MODEL}").stderr
assert "actorrun plan|sbp|place" in ends(0, ACTORRUN, "--help").stdout
