# SPDX-License-Identifier: Apache-2.0
"""Files in F16, Q3_K, Q4_K, Q5_K and Q6_K are served as they are stored, in less memory: the text of the same
numbers in f32, on one device, on grids, and on emulated GPUs.

labels: outside
needs: zeromq
"""
import os
import subprocess
import sys

from tool import ACTORRUN, EMULATED, SOURCE, ends

os.environ["SLUICE_EMULATED_GPUS"] = "2"
ends(0, ACTORRUN, "--quiet --steps 120 --save model/ qwen-moe --layers 2 --width 256 --heads 4 --kv-heads 2 --experts 3 --top-k 2 "
     "--expert-ffn 256 --vocab 256 --qk-norm --data {reference}/text.txt --context 64 --batch 4 --lr 3e-3")
subprocess.run([sys.executable, SOURCE + "/tests/reference/gguf_folder.py", "model", "parts.gguf", "f16,q4_k,q6_k,q3_k,q5_k"], check=True)
ends(0, ACTORRUN, "--quiet --init parts.gguf --steps 0 --save plain/ qwen-moe")


def text(how, program=ACTORRUN):
    return ends(0, program, f"--quiet --init {how} --steps 0 --generate 60 --temperature 0 --prompt 'The ' qwen-moe").stdout


want = text("plain")
assert len(want) == 65, want
for grid in ("", "--tensor 2", "--stages 2"):
    assert text("parts.gguf " + grid) == want, grid
if os.access(EMULATED, os.X_OK):
    for grid in ("", "--tensor 2"):
        assert text(f"parts.gguf --devices cuda {grid}", EMULATED) == want, grid

small = "--memory 3M --quiet --steps 0 --generate 60 --temperature 0 --prompt 'The ' --init "
assert ends(0, ACTORRUN, small + "parts.gguf qwen-moe").stdout == want
err = ends(3, ACTORRUN, small + "plain qwen-moe").stderr
assert "needs" in err and "largest holders: param 6.5 MiB" in err, err
