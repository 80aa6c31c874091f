# SPDX-License-Identifier: Apache-2.0
"""Bit routers of experts in planes: actorrun trains them with the losses and mean bits of PyTorch
(tests/reference/bit_routers.py), on any grid and on emulated GPUs, and nothing else. A server's log-probabilities are
those of PyTorch, where each row reads the bits that its expert's router chooses, for any number of planes that layers
hold, with guesses of earlier layers, and with the planes in the file that actorrun saved. Without bit routers, or with
other widths, files are refused by name.

labels: outside
needs: libevent
"""
import csv
import json
import os
import sys

from tool import ACTORRUN, BUILD, EMULATED, PLACES, Server, ends, read, tensors

sys.path.insert(0, PLACES["reference"])
import bit_routers_model as model

WANT = json.loads(read(PLACES["reference"] + "/bit_routers.json"))
model.write("routed")
model.write("plain", routed=False)


def logprobs(options):
    with Server(f"--quota kv=16 --weights experts {options}") as server:
        answers = [server.ask("/completions", prompt=p, max_tokens=0, echo=True, logprobs=1) for p in model.PROMPTS]
    return [a["choices"][0]["logprobs"]["token_logprobs"][1:] for a in answers]


first = None
for how in ("experts=8", "experts=12 --prefetch 1", "experts=1000 --rows 5", "experts=9 --stages 2 --devices cpu:2x1"):
    got = logprobs(f"--experts planes:2..4,routed --quota {how} --init routed/model.safetensors {model.OPTIONS}")
    first = first or got
    assert got == first, f"--quota {how}: other bits"
    for prompt, one, other in zip(model.PROMPTS, got, WANT["logprobs"]):
        far = max(abs(x - y) for x, y in zip(one, other))
        assert len(one) == len(other) and far < 2e-4, f"{how}: {prompt}: {far} from PyTorch"

# Rows by their place read other bits, so the bit routers matter.
assert logprobs(f"--experts planes:2..4 --init plain/model.safetensors {model.OPTIONS}") != first

SERVE = "--port 0 --weights experts --experts planes:2..{} --init {}/model.safetensors " + model.OPTIONS
router = "model.layers.0.block_sparse_moe.experts.0.bits.weight"
for options, text in (("4,routed plain", f"no tensor {router}, which the model needs as f32[3, 24]"),
                      ("3,routed routed", f"tensor {router} is F32[3, 24], but the model needs f32[2, 24]"),
                      ("4 routed", f"tensor {router} would change the results, but the model has no place for it")):
    err = ends(2, BUILD + "/bin/actorserve", SERVE.format(*options.split())).stderr
    assert text in err, err

# ---- training

STEPS = model.STEPS
TRAIN = (f"--quiet --steps {STEPS['steps']} --log log.csv --save trained.safetensors {{}} --planes 2..4,routed:{{}} --init "
         f"{{}}/model.safetensors {model.OPTIONS} --aux-loss 0 --data {{reference}}/text.txt --batch {STEPS['rows']} "
         f"--lr {STEPS['lr']} --warmup 0 --weight-decay 0 --clip 0")


def train(keys, how="", init="routed", status=0, program=ACTORRUN):
    """Returns the loss and the mean bits of each step."""
    err = ends(status, program, TRAIN.format(how, keys, init, **PLACES)).stderr
    if status:
        return err
    with open("log.csv", encoding="utf-8") as file:
        return [(float(row["loss"]), float(row["bits"])) for row in csv.DictReader(file) if row["loss"]]


for run, want in zip(model.RUNS, WANT["trained"]):
    shares = run["capacity"] and ",capacity=" + "/".join(map(str, run["capacity"])) or ""
    got = train(f"alpha={run['alpha']}{shares}")
    far = max(max(abs(loss - other), abs(bits - mean)) for (loss, bits), (other, mean) in zip(got, want))
    assert len(got) == len(want) and far < 3e-6, f"{run}: {far} from PyTorch"
    if os.access(EMULATED, os.X_OK):
        on_gpu = train(f"alpha={run['alpha']}{shares}", "--devices cuda", program=EMULATED)
        far = max(abs(loss - other) for (loss, _), (other, _) in zip(on_gpu, got))
        assert far < 1e-5, f"{run}: {far} on a GPU"

# Bit routers may be new. Nothing else is trained: the planes are those of the model as it was.
new = [loss for loss, _ in train("alpha=0.2", init="plain")]
assert new[-1] < new[0]
trained = tensors("trained.safetensors")
ends(0, ACTORRUN, f"--quiet --steps 0 --planes 2..4 --init plain/model.safetensors --save planes.safetensors {model.OPTIONS}")
planes = tensors("planes.safetensors")
assert all(trained[name] == planes[name] for name in planes), "a matrix has changed"
assert sorted(set(trained) - set(planes)) == sorted(
    f"model.layers.{i}.block_sparse_moe.experts.{e}.bits.weight" for i in range(model.LAYERS) for e in range(model.EXPERTS))

# The grid does not matter.
want = train("alpha=0.2")
for how in ("--stages 2 --microbatches 2", "--data-parallel 2 --expert-parallel 2", "--tensor 2", "--pieces 2",
            "--exact --recompute full"):
    got = train("alpha=0.2", how)
    far = max(abs(loss - other) for (loss, _), (other, _) in zip(got, want))
    assert far < 1e-6, f"{how}: {far}"
served = logprobs(f"--experts planes:2..4,routed --quota experts=8 --init trained.safetensors {model.OPTIONS}")
assert served == logprobs(f"--experts planes:2..4,routed --init trained.safetensors {model.OPTIONS}") != first

for keys, text in (("alpha=x", "--planes alpha=x: must be KEY=VALUE,... with the keys alpha, capacity"),
                   ("capacity=.3/.3/.3", "with the keys alpha, capacity, each in its range")):
    assert text in train(keys, status=2), keys
for how, text in (("--lora '*=2'", "lora *: cannot be combined with bit routers"),
                  ("--steps 0", "bit routers are trained, which takes --steps"),
                  ("--teacher plain", "cannot be combined with --teacher: a run has one objective")):
    assert text in train("alpha=0", how, status=2), how
