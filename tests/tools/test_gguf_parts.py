# SPDX-License-Identifier: Apache-2.0
"""Files in F16, Q3_K, Q4_K, Q5_K and Q6_K are served as they are stored, in less memory: the text of the same
numbers in f32, on one device, on grids, and on emulated GPUs. So are, on GPUs, MXFP4, Q2_K, Q5_1, IQ4_NL and IQ4_XS,
and experts of a folder in MXFP4.

labels: outside
needs: zeromq
"""
import os
import shutil
import subprocess
import sys

from tool import ACTORRUN, EMULATED, SOURCE, ends

os.environ["SLUICE_EMULATED_GPUS"] = "2"
ends(0, ACTORRUN, "--quiet --steps 120 --save model/ qwen-moe --layers 2 --width 256 --heads 4 --kv-heads 2 --experts 3 --top-k 2 "
     "--expert-ffn 256 --vocab 256 --qk-norm --data {reference}/text.txt --context 64 --batch 4 --lr 3e-3")
for name, kinds in (("parts", "f16,q4_k,q6_k,q3_k,q5_k"), ("others", "mxfp4,q2_k,iq4_nl,q5_1,iq4_xs")):
    subprocess.run([sys.executable, SOURCE + "/tests/reference/gguf_folder.py", "model", name + ".gguf", kinds], check=True)
ends(0, ACTORRUN, "--quiet --init parts.gguf --steps 0 --save plain/ qwen-moe")


def text(how, program=ACTORRUN):
    return ends(0, program, f"--quiet --init {how} --steps 0 --generate 60 --temperature 0 --prompt 'The ' qwen-moe").stdout


want = text("plain")
assert len(want) == 65, want
for grid in ("", "--tensor 2", "--stages 2"):
    assert text("parts.gguf " + grid) == want, grid
small = "--memory 3M --quiet --steps 0 --generate 60 --temperature 0 --prompt 'The ' --init "
if os.access(EMULATED, os.X_OK):
    for grid in ("", "--tensor 2"):
        assert text(f"parts.gguf --devices cuda {grid}", EMULATED) == want, grid
    others = text("others.gguf")
    for grid in ("", "--tensor 2"):
        assert text(f"others.gguf --devices cuda {grid}", EMULATED) == others, grid
    assert ends(0, EMULATED, small + "others.gguf --devices cuda qwen-moe").stdout == others
    assert "needs" in ends(3, ACTORRUN, small + "others.gguf qwen-moe").stderr
    os.mkdir("oss")
    for name, to in (("config.json", "config.json"), ("blocks.safetensors", "model.safetensors")):
        shutil.copy(f"{SOURCE}/tests/reference/hf_gpt_oss/{name}", "oss/" + to)
    packed = "--memory 600K --quiet --steps 0 --generate 30 --temperature 0 --prompt 'The ' --init oss {} gpt-oss"
    want_packed = ends(0, ACTORRUN, packed.replace("600K", "2M").format("")).stdout
    assert ends(0, EMULATED, packed.format("--devices cuda")).stdout == want_packed
    assert "needs" in ends(3, ACTORRUN, packed.format("")).stderr

assert ends(0, ACTORRUN, small + "parts.gguf qwen-moe").stdout == want
err = ends(3, ACTORRUN, small + "plain qwen-moe").stderr
assert "needs" in err and "largest holders: param 6.5 MiB" in err, err
