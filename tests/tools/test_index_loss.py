# SPDX-License-Identifier: Apache-2.0
"""The loss of indexers and its gradients are those of PyTorch (tests/reference/make_index_loss.py), with chosen tokens and in
the warm-up, whole, on stages and grids, and on emulated GPUs, where models with indexers also give the CPU's texts. A
model's memory grows by the context, not by its square.

labels: outside
"""
import json
import os
import subprocess
import sys

from tool import ACTORRUN, EMULATED, Report, SOURCE, ends, near, read, words

MODELS = ("deepseek_v32", "glm_moe_dsa")
OTHERS = " ".join(f"--freeze {p}" for p in ("embed_tokens", "lm_head", "model.norm", "'*_layernorm'", "mlp", "'self_attn.[!i]*'"))
DATA = "--data {reference}/text.txt --context 32 --batch 4"
TRAIN = DATA + " --lr 1e-3 --min-lr 1e-3 --warmup 0 --aux-loss 0 --index-loss 1"
made = json.loads(read(SOURCE + "/tests/reference/index_loss.json"))


def folder_of(name, tokens=None):
    path = name + (" warm-up" if tokens else "")
    if not os.path.exists(path):
        subprocess.run([sys.executable, SOURCE + "/tests/reference/model_folder.py", f"{SOURCE}/tests/reference/models/{name}.json",
                        path], check=True)
        config = json.loads(read(path + "/config.json"))
        config["index_topk"] = tokens or config["index_topk"]
        with open(path + "/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
    return path


def run(name, warm, how="", program=ACTORRUN, **environment):
    call = f"--quiet --init '{folder_of(name, 32 if warm else None)}' --steps 3 {OTHERS if warm else ''} {how} --report report.json"
    ends(0, program, f"{call} decoder {TRAIN}", **environment)
    return Report.read("report.json", call)


def check(name, warm, got):
    steps = list(zip(got.whole["steps"], made[name + " warm-up" * warm]))
    loss = max(abs(s["loss"] / total - 1) for s, (total, _, _) in steps)
    norm = max(abs(s["grad_norm"] / norm - 1) for s, (_, _, norm) in steps)
    print(f"{got.call}: losses {loss:.2g}, norms {norm:.2g}")
    assert len(steps) == 3 and loss < 1e-6 and norm < 1e-5, (got.call, got.losses)


plain = {(name, warm): run(name, warm) for name in MODELS for warm in (False, True)}
for (name, warm), report in plain.items():
    check(name, warm, report)
check("glm_moe_dsa", False, run("glm_moe_dsa", False, "--stages 2 --tensor 2 --microbatches 2"))
check("deepseek_v32", True, run("deepseek_v32", True, "--data-parallel 2 --tensor 2"))


# Without the loss, indexers stay as they are.
ends(0, ACTORRUN, f"--quiet --init {folder_of('deepseek_v32')} --steps 1 --report fixed.json decoder {TRAIN} --index-loss 0")
assert abs(Report.read("fixed.json").losses[0] / made["deepseek_v32"][0][1] - 1) < 1e-6


def memory(context):
    """Returns the bytes of a run on one device."""
    ends(0, ACTORRUN, "--quiet --clock virtual --steps 1 --report dry.json decoder --data {reference}/text.txt --mixers indexed --layers 2 "
         f"--width 64 --heads 4 --batch 1 --index-tokens 64 --index-loss 1 --context {context}")
    return sum(json.loads(read("dry.json"))["devices"][0]["peak_bytes"].values())


# Twice the context takes at most twice the memory besides that of the parameters.
assert memory(1024) - memory(512) < 2.1 * (memory(512) - memory(256)), (memory(256), memory(512), memory(1024))


def text_of(program, name, how="", **environment):
    prompt = json.loads(read(f"{SOURCE}/tests/reference/models/{name}.json"))["prompt"]
    got = ends(0, program, f"--quiet --init {folder_of(name)} --steps 0 --generate 12 --temperature 0 --prompt "
               f"'{bytes(prompt).decode()}' {how} decoder", **environment)
    return got.stdout


if os.access(EMULATED, os.X_OK):
    one = {"SLUICE_EMULATED_GPUS": "1"}
    for name, warm in (("deepseek_v32", False), ("glm_moe_dsa", True)):
        near(plain[name, warm], run(name, warm, "--devices cuda", EMULATED, **one), 1e-6)
    for name in MODELS:
        want, got = text_of(ACTORRUN, name), text_of(EMULATED, name, "--devices cuda", **one)
        assert want and want == got, (name, want, got)
