# SPDX-License-Identifier: Apache-2.0
"""actorserve continues prompts as generate() of transformers does with the same Hugging Face folders
(tests/reference/greedy.json): mixtures of experts, whose rows come from several requests, and delta-rule states. This also
holds when requests give up pages, on two stages, and with tensor parallelism.

labels: outside
needs: libevent zeromq
"""
from tool import PLACES, Server, parse, script


def asked(folder, options=""):
    """Asks a server that is short of pages. Returns the bytes of the first device's parameters."""
    with Server(f"--rows 20 --sequences 6 --quota kv=3 --report served.json {options} {{reference}}/{folder}") as server:
        script("serve_greedy", server.port, PLACES["reference"] + "/greedy.json", folder)
    return parse("served.json")["devices"][0]["peak_bytes"]["parameters"]


for name in ("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_next_dense"):
    whole, halves = asked("hf_" + name, "--dtype fp32"), asked("hf_" + name)
    assert name.startswith("qwen3_next") or halves < whole * .6, f"{name}: bf16 weights of experts do not stay bf16"
    asked("hf_" + name, "--stages 2")
    if name == "qwen3_moe":
        assert asked("hf_qwen3_moe", "--dtype fp32 --tensor 2") < whole * .7, "two devices do not share the weights of experts"
asked("hf_qwen3_next", "--tensor 2")
