# SPDX-License-Identifier: Apache-2.0
"""Bit routers of experts in planes: a server's log-probabilities are those of PyTorch, where each row reads the bits that
its expert's router chooses (tests/reference/bit_routers.py), for any number of planes that layers hold, with guesses of
earlier layers, and with the planes in a file. Without bit routers, or with other widths, files are refused by name.

labels: outside
needs: libevent
"""
import json
import sys

from tool import BUILD, PLACES, Server, ends, read

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
