# SPDX-License-Identifier: Apache-2.0
"""Reads back what actorrun writes: read_back.py ACTORRUN REFERENCE FAMILY..."""
import importlib.util
import json
import os
import subprocess
import sys

import gguf
import torch
from transformers import AutoModelForCausalLM

actorrun, reference, *families = sys.argv[1:]
MODELS = {"gpt2": "gpt", "mixtral": "mixtral", "qwen2_moe": "qwen-moe", "qwen3_moe": "qwen-moe", "gpt_oss": "gpt-oss",
          "deepseek_v3": "deepseek", "mamba2": "mamba2", "qwen3_next": "qwen3-next", "qwen3_next_dense": "qwen3-next"}
# Options of models that are made here: the files they are saved in hold nothing of an older config.json.
MADE = {"gpt_oss": "--layers 2 --width 32 --heads 4 --kv-heads 2 --head-dim 8 --experts 4 --top-k 2 --expert-ffn 16 "
                   "--norm-topk 1 --bias attention",
        "mamba2": "--layers 2 --width 32 --heads 4 --head-dim 16 --groups 2 --state 8",
        "qwen3": "--layers 2 --width 32 --heads 4 --kv-heads 2 --head-dim 16 --qk-norm",
        "llama": "--layers 2 --width 32 --heads 4 --kv-heads 2 --head-dim 16 --bias attention"}
ids = [(i * 7919 + i * i) % 250 for i in range(17)]
open("ids.u8", "wb").write(bytes(ids))


def run(*words):
    done = subprocess.run([actorrun, "--quiet", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit("%s: %s" % (" ".join(words), done.stderr))


def own(path, model):
    """Returns the log-probabilities that actorrun reports for a file or folder."""
    run("--init", path, "--steps", "1", "--logprobs", "row.jsonl", model, "--data", "ids.u8", "--context", "16", "--batch", "1")
    return torch.tensor(json.loads(open("row.jsonl").readline())["logprobs"], dtype=torch.float64)


def theirs(*where, **how):
    model = AutoModelForCausalLM.from_pretrained(*where, dtype=torch.float32, **how).eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids[:16]])).logits[0].double()
    return torch.log_softmax(logits, -1)[range(16), ids[1:]]


def check(name, a, b):
    worst = (a - b).abs().max().item()
    if not worst < 1e-5:
        raise SystemExit("%s: log-probabilities differ by %g" % (name, worst))
    print("%s: %.2g" % (name, worst))


def check_gguf(path, family):
    file = gguf.GGUFReader(path)
    tensors = {t.name: t for t in file.tensors}
    head = file.fields.get("%s.attention.key_length" % file.fields["general.architecture"].contents())
    if head and not "%s.attention.value_length" % file.fields["general.architecture"].contents() in file.fields:
        raise SystemExit("%s: a length of keys, and none of values" % path)
    if "token_embd.weight" not in tensors:
        raise SystemExit("%s: no table of tokens" % path)
    if family in ("llama", "mistral", "qwen2", "qwen3") and importlib.util.find_spec("accelerate"):
        check(path, own(path, "llama"), theirs(".", gguf_file=path))


for family in families:
    model = MODELS.get(family, "llama")
    sources = [("read", ["--init", "%s/hf_%s" % (reference, family)])]
    if family in MADE:
        sources.append(("made", []))
    for kind, words in sources:
        folder = "%s_%s/" % (family, kind)
        more = MADE[family].split() + ["--vocab", "256"] if kind == "made" else []
        run(*words, "--steps", "0", "--save", folder, model, *more, "--data", "ids.u8", "--context", "16", "--batch", "1")
        check(folder, own(folder, model), theirs(folder))
        if model == "llama" and (family != "qwen2" or os.path.exists(folder + "config.json")):
            path = "%s_%s.gguf" % (family, kind)
            run("--init", folder, "--steps", "0", "--save", path, model, "--data", "ids.u8", "--context", "16", "--batch", "1")
            check_gguf(path, family)
