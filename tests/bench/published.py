#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares predicted steps with published ones: Table 4 of Zero Bubble, the baselines of Vocabulary Parallelism,
Table 4 of Llama 3, updates of Deep Optimizer States, a context of FPDT, prompts of Qwen2.5-1M, an encoder-decoder of GPipe,
first tokens of SpikingBrain, TorchTitan, and memory of another GPU of EnergonAI. megatron.py is the same for Megatron-LM.

    SLUICE_BUILD=build/release tests/bench/published.py [zero-bubble] [vocabulary] [llama3] [optimizer-states] [fpdt]
        [prompt-blocks] [gpipe] [first-tokens] [torchtitan] [galvatron] [energonai]

Zero Bubble: samples per GPU and second, from Table 4 of Qi et al., "Zero Bubble Pipeline Parallelism"
(arXiv 2401.10241), for the models of its Table 3. ZB-2p that waits for the gradient norm is compared
with Table 7. ZB-1p and ZB-2p run as zb-h1 and zb-h2, which hold as many activations. Both run without
gradient clipping, because the published runs did not wait for its norm. The paper does not give the
vocabulary; with 32,000 tokens all four models have the parameters in their names.

Vocabulary: step times of the rows base and redis, measured by the authors of Vocabulary Parallelism
(arXiv 2411.05288), from tests/reference/vocabulary_2k.tsv. "base" has four layers on each stage
(gpt_even.c); "redis" balances the layers with the cost of the classifier.

Both papers used A100s, in 2023 and 2024, with kernels other than those of megatron.json. Three numbers
of that file are therefore fitted again for each table, to three of its rows; no number is set per row.

Llama 3: Tflop/s per GPU of the 405B model (arXiv 2407.21783, Table 4) on the machine file h100-sxm-80gb and its
measured products and exchanges, with nothing fitted. The paper does not say how many layers a chunk of the interleaved
schedule has. Here it is one: 126 layers, one less on the first and the last of 16 stages, as the paper says.

Optimizer states: seconds of the updates of 20e9 parameters on four H100s (arXiv 2410.21316), by the host, half by
the host, and half by the host with all state there. Devices compute in no time. The host's memory and its links are
those of data sheets; the rate of its cores was chosen on these three figures.

FPDT: a LLaMA of 8 billion parameters learns from 2 million tokens on four A100s (arXiv 2408.16978), in 40 GiB each and
at no less than half of their peak. Two other sizes follow. No row of this table is fitted.

Prompt blocks: prompts of a million tokens, which attend to a tenth of the pages before them, are 3 to 7 times as fast as
with attention to all (Qwen2.5-1M, arXiv 2501.15383), on modelled H100s. A row of 256 thousand tokens is printed beside.

GPipe: an encoder-decoder of 64 and 64 layers and 6 billion parameters (arXiv 1811.06965), a T5 exported from PyTorch by
tests/reference/pytorch_t5.py, on 2, 4 and 8 modelled A100s with 32 microbatches and recomputation. Published is how many
times as many examples a second 4 and 8 devices train as 2 do. Two smaller models follow. Needs torch and transformers.

First tokens: SpikingBrain-7B (arXiv 2509.05276) answers prompts of 256 thousand to 4 million tokens in a flat 1.02 to 1.07 s
on 8 to 128 GPUs. Here a stage has one block and its devices share the rows of a tick (--sequence), on modelled H100s without
the time that an engine's front end takes. Beside it stands a model with softmax attention of the shape of Qwen2.5-7B.

TorchTitan: tokens per GPU and second of its benchmarks of December 2024 (arXiv 2410.06511) and of exchanges beside products
of June 2025, on H100s of 500 W with HBM2e. Their speed is fitted twice, on one row in bf16 and one with FP8 products, since
the machine file describes boards of 700 W, and has no products of training in FP8. Rows of context parallelism are printed
with both layouts of positions, and not held.

Galvatron (arXiv 2211.13878): examples a second on eight GPUs on PCIe 3.0 in budgets of 8 to 20 GiB, by the best grid whose
devices share tensors in all blocks, or rows in all, and by the best whose blocks are laid out one by one, as a search over all
ops chooses. The first two models have the sizes of Swin-Huge-32 and BERT-Huge-32 there. No figure is held.

EnergonAI (arXiv 2209.02341) serves layers of the size of GPT-3's that do not fit one A100 of 80 GB, with the weights of some
in the memory of another GPU, "at cost of limited performance reduction". Prompts of 64 tokens go through decoders of 24 to 36
such layers on modelled A100s, beside devices of 200 GB and the same layers in the host's memory. Held: less than a tenth is lost.

Exits with 1 if one of the other rows is off by more than the table's limit: 10 per cent, and 20 for Llama 3.
"""
import csv
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIMITS = {"zero-bubble": 10, "vocabulary": 10, "llama3": 20, "optimizer-states": 5.5, "fpdt": 0,
          "prompt-blocks": 0, "gpipe": 5, "first-tokens": 0, "torchtitan": 15,
          "galvatron": 0, "energonai": 10}  # per cent


def machine(path, products, memory, **more):
    """Writes a copy of megatron.json with this matrix-product efficiency, memory bandwidth and further settings."""
    with open(HERE + "/megatron.json") as file:
        m = json.load(file)
    m["flops_efficiency"], m["bytes_per_second"] = products, memory
    for row in m["rows"].values():
        row["efficiency"] = products
    m["rows"].update(more.pop("rows", {}))
    m.update(more)
    with open(path, "w") as file:
        json.dump(m, file)
    return path


def step_seconds(folder, hardware, stages, microbatches, options, model):
    report = folder + "/report.json"
    subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actorrun", "--clock", "virtual", "--machine", hardware,
                    "--dtype", "bf16", "--memory", "100T", "--steps", "2", "--quiet", "--report", report,
                    "--stages", str(stages), "--microbatches", str(microbatches), *options, *model], check=True)
    with open(report) as file:
        return json.load(file)["predicted"]["step_seconds"]


def off_by(predicted, published, fitted):
    """Returns the error as text and as a number, which is 0 for a fitted row."""
    off = 100 * (predicted / published - 1)
    return f"{off:+.1f} %{' (fitted)' if fitted else ''}", 0 if fitted else abs(off)


# ---- Zero Bubble ---------------------------------------------------------------------------------------------

# layers, heads, width, stages, sequences per microbatch, microbatches; chunks of 1F1B-I, one layer each
MODELS = {"1.5B": (22, 24, 2304, 8, 6, (24, 32, 64), 3), "6.2B": (30, 32, 4096, 8, 3, (24, 32, 64), 4),
          "14.6B": (46, 40, 5120, 16, 1, (48, 64, 128), 3), "28.3B": (62, 48, 6144, 32, 1, (96, 128, 256), 2)}
RATES = {"1F1B": {"1.5B": (11.8, 12.5, 13.6), "6.2B": (3.50, 3.70, 4.03), "14.6B": (1.40, 1.49, 1.64),
                  "28.3B": (0.76, 0.80, 0.88)},
         "1F1B-I": {"1.5B": (13.1, 13.4, 13.9), "6.2B": (4.01, 4.08, 4.19), "14.6B": (1.54, 1.59, 1.66),
                    "28.3B": (0.82, 0.85, 0.90)},
         "ZB-1p": {"1.5B": (12.9, 13.4, 14.2), "6.2B": (3.88, 4.00, 4.20), "14.6B": (1.61, 1.67, 1.76),
                   "28.3B": (0.87, 0.90, 0.96)},
         "ZB-2p": {"1.5B": (14.5, 14.8, 14.9), "6.2B": (4.32, 4.35, 4.39), "14.6B": (1.81, 1.83, 1.85),
                   "28.3B": (0.99, 1.00, 1.00)},
         "ZB-2p, norm awaited": {"1.5B": (13.11,), "6.2B": (4.00,), "14.6B": (1.68,), "28.3B": (0.91,)}}
NO_CLIP = ["--optimizer", "adamw:clip=0"]
SCHEDULES = {"1F1B": ["1f1b"], "1F1B-I": ["interleaved", "--chunks"], "ZB-1p": ["zb-h1", *NO_CLIP],
             "ZB-2p": ["zb-h2", *NO_CLIP], "ZB-2p, norm awaited": ["zb-h2"]}
ZB_FITTED = {("1F1B", "1.5B", 64), ("1F1B", "6.2B", 64), ("1F1B", "14.6B", 128)}


def zb_rate(folder, hardware, method, name, microbatches):
    layers, heads, width, stages, rows, _, chunks = MODELS[name]
    schedule = SCHEDULES[method] + ([str(chunks)] if method == "1F1B-I" else [])
    batch = rows * microbatches
    step = step_seconds(folder, hardware, stages, microbatches, ["--schedule", *schedule],
                        ["gpt", "--layers", str(layers), "--width", str(width), "--heads", str(heads), "--context", "1024",
                         "--vocab", "32000", "--batch", str(batch)])
    return batch / stages / step


def zb_cell(folder, hardware, method, name, microbatches, published):
    rate = zb_rate(folder, hardware, method, name, microbatches)
    text, off = off_by(rate, published, (method, name, microbatches) in ZB_FITTED)
    return f"{rate:.3g} of {published:g}, {text}", off


def zero_bubble(folder):
    hardware = machine(folder + "/machine.json", .88, .97e12, link_efficiency=.5)
    print("| | GPUs | microbatches | predicted of published samples a GPU and second, off | | |\n"
          "| --- | --- | --- | --- | --- | --- |", flush=True)
    worst = 0
    for method, models in RATES.items():
        for name, published in models.items():
            counts = MODELS[name][5][:len(published)]
            cells = [zb_cell(folder, hardware, method, name, m, rate) for m, rate in zip(counts, published)]
            worst = max(worst, *(off for _, off in cells))
            print(f"| {method}, {name} | {MODELS[name][3]} | {', '.join(map(str, counts))} | "
                  + " | ".join(text for text, _ in cells) + " |" * (4 - len(cells)), flush=True)
    return worst


# ---- Vocabulary Parallelism ----------------------------------------------------------------------------------

VOCABULARY_FITTED = {("base", "256000"), ("base", "32000"), ("redis", "64000")}


def vocabulary_rows():
    with open(HERE + "/../reference/vocabulary_2k.tsv") as file:
        lines = [line for line in file if not line.startswith("#")]
    return [row for row in csv.DictReader(lines, delimiter="\t") if row["mode"] in ("base", "redis")]


def vocabulary(folder):
    attention = {row: {"efficiency": .8} for row in ("attention_packed", "attention_packed_b")}
    hardware = machine(folder + "/machine.json", .69, 1.1e12, rows=attention)
    print("| | vocabulary | measured | predicted | off |\n| --- | --- | --- | --- | --- |", flush=True)
    worst = 0
    for row in vocabulary_rows():
        model = HERE + "/gpt_even.c" if row["mode"] == "base" else "gpt"
        step = step_seconds(folder, hardware, 8, 128, ["--schedule", "1f1b"],
                            [model, "--layers", "32", "--width", "3072", "--heads", "24", "--context", "2048",
                             "--vocab", row["vocabulary"], "--batch", "128"])
        text, off = off_by(step, float(row["step_ms"]) / 1e3, (row["mode"], row["vocabulary"]) in VOCABULARY_FITTED)
        print(f"| {row['mode']} | {row['vocabulary']} | {float(row['step_ms']):.0f} ms | {1e3 * step:.0f} ms | {text} |",
              flush=True)
        worst = max(worst, off)
    return worst


# ---- Llama 3 -------------------------------------------------------------------------------------------------

# GPUs, context parallelism, data parallelism, context, sequences a group, published Tflop/s a GPU
LLAMA3 = [(8192, 1, 64, 8192, 32, 430), (16384, 1, 128, 8192, 16, 400), (16384, 16, 8, 131072, 16, 380)]


def llama3(folder):
    print("| GPUs | tensor, context, stages, data | context | published | predicted | off |\n"
          "| --- | --- | --- | --- | --- | --- |", flush=True)
    worst = 0
    for gpus, sequence, data, context, rows, published in LLAMA3:
        report = folder + "/report.json"
        subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actorrun", "--clock", "virtual", "--machine", "h100-sxm-80gb",
                        "--dtype", "bf16", "--memory", "100T", "--steps", "2", "--quiet", "--report", report, "--stages",
                        "16", "--tensor", "8", "--sequence", str(sequence), "--data-parallel", str(data), "--microbatches",
                        str(rows), "--schedule", "interleaved", "--chunks", "8", "--shard", "optimizer", "llama",
                        "--layers", "126", "--width", "16384", "--heads", "128", "--kv-heads", "8", "--ffn", "53248",
                        "--vocab", "128256", "--context", str(context), "--batch", str(rows * data)], check=True)
        with open(report) as file:
            predicted = json.load(file)["predicted"]
        rate = predicted["flops_per_step"] / predicted["step_seconds"] / gpus / 1e12
        text, off = off_by(rate, published, False)
        print(f"| {gpus} | 8, {sequence}, 16, {data} | {context} | {published} | {rate:.0f} | {text} |", flush=True)
        worst = max(worst, off)
    return worst


# ---- Deep Optimizer States -----------------------------------------------------------------------------------

# eight channels of DDR5-4800, PCIe 5.0 x16 at four fifths of its rate
HOSTS = {"name": "hosts", "flops_per_second": {"f32": 1e29}, "flops_efficiency": 1, "bytes_per_second": 1e29,
         "bytes_efficiency": 1, "op_seconds": 0, "memory_bytes": 1e18, "link_seconds": 0, "link_bytes_per_second": 0,
         "devices_per_host": 4, "host_link_seconds": 0, "host_link_bytes_per_second": 0, "copy_bytes_per_second": 51.2e9,
         "host_memory_bytes_per_second": 307.2e9, "host_updates_per_second": 8.9e9}
UPDATES = [(["host"], 2.278), (["every:2"], 1.173), (["every:2", "--home", "state=host"], 1.296)]


def optimizer_states(folder):
    hardware, worst = folder + "/machine.json", 0
    with open(hardware, "w") as file:
        json.dump(HOSTS, file)
    print("| --update | measured | predicted | off |\n| --- | --- | --- | --- |", flush=True)
    for options, published in UPDATES:
        step = step_seconds(folder, hardware, 4, 1, ["--dtype", "fp32", "--optimizer", "adamw:clip=0", "--update", *options],
                            ["gpt", "--layers", "48", "--width", "5888", "--heads", "46", "--context", "16", "--vocab",
                             "256", "--batch", "1"])
        text, off = off_by(step, published, False)
        print(f"| {' '.join(options)} | {published} s | {step:.3f} s | {text} |", flush=True)
        worst = max(worst, off)
    return worst


# ---- FPDT ----------------------------------------------------------------------------------------------------

# layers, width, heads, inner width, tokens, pieces; A100s of 40 GiB
CONTEXTS = [(32, 4096, 32, 14336, 2 << 20, 128), (32, 4096, 32, 14336, 1 << 20, 64), (28, 3072, 24, 8192, 2 << 20, 128)]
A100_PEAK, A100_BYTES, LEAST_SHARE = 312e12, 40 << 30, .5


def fpdt(folder):
    print("| parameters | tokens | pieces | memory of a device | share of the peak |\n| --- | --- | --- | --- | --- |",
          flush=True)
    missed = 0
    for layers, width, heads, inner, tokens, pieces in CONTEXTS:
        report = folder + "/report.json"
        subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actorrun", "--clock", "virtual", "--machine", "a100-sxm-80gb",
                        "--dtype", "bf16", "--memory", "100T", "--steps", "1", "--quiet", "--report", report, "--sequence",
                        "4", "--shard", "parameters", "--recompute", "full", "--pieces", str(pieces), "--piece-order",
                        "layers", "--home", "act=host", "--home", "kv=host", "--home", "state=host",
                        *(word for name in ("gather", "reduce", "fill", "spill", "kv.fill", "kv.spill")
                          for word in ("--quota", name + "=1")), "llama", "--layers", str(layers), "--width", str(width),
                        "--heads", str(heads), "--kv-heads", "8", "--ffn", str(inner), "--vocab", "128256", "--context",
                        str(tokens), "--batch", "1"], check=True)
        with open(report) as file:
            doc = json.load(file)
        used = max(device["peak_bytes"]["total"] for device in doc["devices"])
        share = doc["predicted"]["flops_per_step"] / doc["predicted"]["step_seconds"] / 4 / A100_PEAK
        print(f"| {layers} x {width} | {tokens} | {pieces} | {used / 2**30:.1f} GiB | {100 * share:.0f} % |", flush=True)
        missed = max(missed, 100 * (used / A100_BYTES - 1), 100 * (1 - share / LEAST_SHARE))
    return missed


# ---- Qwen2.5-1M ----------------------------------------------------------------------------------------------

# name, GPUs, tokens of a prompt, layers, width, heads, key heads, inner width
PROMPTS = [("7B", 1, 1000000, 28, 3584, 28, 4, 18944), ("14B", 4, 1000000, 48, 5120, 40, 8, 13824),
           ("Llama 8B", 2, 1000000, 32, 4096, 32, 8, 14336), ("7B", 1, 262144, 28, 3584, 28, 4, 18944)]
PART, CHUNK, FASTER, MILLION = .1, 32768, (3, 7), 1000000


def first_token_seconds(folder, gpus, tokens, size, options):
    report = folder + "/report.json"
    names = ("layers", "width", "heads", "kv-heads", "ffn")
    subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actorserve", "--clock", "virtual", "--devices", f"timed:{gpus}",
                    "--tensor", str(gpus), "--stages", "1", "--machine", "h100-sxm-80gb", "--dtype", "bf16", "--kv", "bf16",
                    "--concurrency", "1", "--lengths", f"{tokens},1", "--requests", "1", "--rows", str(CHUNK), "--sequences",
                    "1", "--report", report, *options, "llama",
                    *(word for name, n in zip(names, size) for word in ("--" + name, str(n))), "--vocab", "152064",
                    "--context", str(tokens + 64)], check=True, stdout=subprocess.DEVNULL)
    with open(report) as file:
        return json.load(file)["ttft_seconds"]["mean"]


def prompt_blocks(folder):
    print("| model | GPUs | tokens | all keys | a tenth of the pages | ratio |\n| --- | --- | --- | --- | --- | --- |",
          flush=True)
    missed = 0
    for name, gpus, tokens, *size in PROMPTS:
        whole = first_token_seconds(folder, gpus, tokens, size, [])
        part = first_token_seconds(folder, gpus, tokens, size, ["--prompt-blocks", f"{PART},{CHUNK}"])
        print(f"| {name} | {gpus} | {tokens} | {whole:.1f} s | {part:.1f} s | {whole / part:.2f} |", flush=True)
        if tokens == MILLION:
            missed = max(missed, 100 * (1 - whole / part / FASTER[0]), 100 * (whole / part / FASTER[1] - 1))
    return missed


# ---- GPipe ---------------------------------------------------------------------------------------------------

# layers each, width, inner width, heads, width of a head, words
ENCODER_DECODERS = [(64, 1024, 16384, 32, 64, 64128), (24, 1024, 8192, 16, 64, 32128), (48, 2048, 8192, 32, 64, 32128)]
GPIPE_TIMES = {4: 3.4 / 1.8, 8: 6.3 / 1.8}


def gpipe(folder):
    module, worst = folder + "/t5.pt2", 0
    print("| layers, width | devices | examples/s | times 2 devices | published | memory of a device |\n"
          "| --- | --- | --- | --- | --- | --- |", flush=True)
    for size in ENCODER_DECODERS:
        names = ("layers", "width", "inner", "heads", "key-width", "vocab")
        subprocess.run([sys.executable, HERE + "/../reference/pytorch_t5.py", module,
                        *(word for name, n in zip(names, size) for word in ("--" + name, str(n)))], check=True,
                       capture_output=True)
        rates = {}
        for stages in (2, 4, 8):
            hardware = ["--devices", f"timed:{stages}", "--schedule", "gpipe", "--recompute", "full"]
            rates[stages] = 256 / step_seconds(folder, "a100-sxm-80gb", stages, 32, hardware,
                                               [module, "--batch", "256", "--rows-in-constants", "no"])
            with open(folder + "/report.json") as file:
                used = max(device["peak_bytes"]["total"] for device in json.load(file)["devices"]) / 2**30
            times, published = rates[stages] / rates[2], size == ENCODER_DECODERS[0] and GPIPE_TIMES.get(stages)
            if published:
                worst = max(worst, off_by(times, published, False)[1])
            print(f"| {size[0]} + {size[0]}, {size[1]} | {stages} | {rates[stages]:.0f} | {times:.2f} | "
                  f"{f'{published:.2f}' if published else ''} | {used:.1f} GiB |", flush=True)
    return worst


# ---- SpikingBrain --------------------------------------------------------------------------------------------

SHAPE = ["--vocab", "152064", "--layers", "28", "--width", "3584", "--heads", "28", "--kv-heads", "4", "--ffn", "18944", "--bias",
         "qkv", "--theta", "1e6"]
SMALL = ["--vocab", "65536", "--layers", "24", "--width", "2048", "--heads", "16", "--kv-heads", "8", "--ffn", "8192"]
# tokens, stages, devices of a stage, rows of a tick, shape, published seconds of states and of softmax attention
FIRST = [(262144, 2, 4, 16384, SHAPE, 1.015, 7.419), (917504, 28, 1, 1024, SHAPE, 1.07, 27.929),
         (1835008, 28, 2, 2048, SHAPE, 1.07, None), (3670016, 28, 4, 4096, SHAPE, 1.073, None),
         (2097152, 24, 4, 4096, SMALL, None, None), (4194304, 24, 8, 8192, SMALL, None, None)]


def without_front(folder):
    """Writes the H100 without what an engine's front end takes for each token of a prompt and each answer."""
    machines = HERE + "/../../machines/"
    with open(machines + "h100-sxm-80gb.json") as file:
        m = json.load(file)
    del m["serving"]["answer_seconds"], m["serving"]["request_token_seconds"]
    for files in m["serving"]["tables"].values():
        for name in files:
            shutil.copy(machines + name, folder)
    with open(folder + "/machine.json", "w") as file:
        json.dump(m, file)
    return folder + "/machine.json"


def first_tokens_row(folder, hardware, row, model):
    tokens, stages, sharers, rows, shape = row[:5]
    with open(folder + "/one.jsonl", "w") as file:
        json.dump({"time": 0, "prompt": tokens, "answer": 1}, file)
    report = folder + "/report.json"
    subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actorserve", "--clock", "virtual", "--arrivals", folder + "/one.jsonl",
                    "--machine", hardware, "--dtype", "bf16", "--kv", "bf16", "--devices", f"timed:{stages * sharers}",
                    "--stages", str(stages), "--sequence", str(sharers), "--rows", str(rows), "--chunks", "rows", "--sequences",
                    "1", "--prefix-states", "-1", "--quota", f"kv={tokens // 64 + 2}", "--report", report, *model, *shape,
                    "--context", str(tokens + 64)], check=True, stdout=subprocess.DEVNULL)
    with open(report) as file:
        return json.load(file)["ttft_seconds"]["mean"]


def first_tokens(folder):
    hardware, missed = without_front(folder), 0
    print("| layers x width | GPUs | tokens | stages x sequence | states and windows | published | softmax | published | ratio |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for row in FIRST:
        tokens, stages, sharers, _, shape, published, published_softmax = row
        states = first_tokens_row(folder, hardware, row, ["hybrid", "--window", "4096"])
        softmax = first_tokens_row(folder, hardware, row, ["llama"])
        print(f"| {shape[3]} x {shape[5]} | {stages * sharers} | {tokens} | {stages} x {sharers} | {states:.3f} s | "
              f"{f'{published} s' if published else ''} | {softmax:.2f} s | "
              f"{f'{published_softmax} s' if published_softmax else ''} | {softmax / states:.1f} |", flush=True)
        if published:
            missed = max(missed, 100 * (states / published - 1))
    return missed


# ---- TorchTitan ----------------------------------------------------------------------------------------------

LLAMA_8B = ["llama", "--layers", "32", "--width", "4096", "--heads", "32", "--kv-heads", "8", "--ffn", "14336", "--vocab", "128256"]
LLAMA_70B = ["llama", "--layers", "80", "--width", "8192", "--heads", "64", "--kv-heads", "8", "--ffn", "28672", "--vocab",
             "128256"]
SELECTIVE, FULL = ["--recompute", "selective"], ["--recompute", "full"]
BESIDE = ["--microbatches", "2", "--ranges", "2"]
CONTIGUOUS = ["--sequence-attention", "ring", "--sequence-layout", "contiguous"]
# model, GPUs, data, tensor, sequence, context, rows, options, published, held; the first row of each precision is fitted
TITAN = {"bf16": [("8B", LLAMA_8B, 8, 8, 1, 1, 8192, 16, SELECTIVE, 6667, True),
                  ("8B", LLAMA_8B, 128, 128, 1, 1, 8192, 256, SELECTIVE, 6514, True),
                  ("8B", LLAMA_8B, 64, 8, 8, 1, 8192, 96, SELECTIVE, 4378, True),
                  ("8B, exchanges beside products", LLAMA_8B, 64, 8, 8, 1, 8192, 96, SELECTIVE + BESIDE, 4809, True),
                  ("70B", LLAMA_70B, 256, 32, 8, 1, 8192, 512, FULL, 597.3, True),
                  ("70B, exchanges beside products", LLAMA_70B, 256, 32, 8, 1, 8192, 512, FULL + BESIDE, 652.4, True)],
         "FP8": [("8B", LLAMA_8B, 8, 8, 1, 1, 32768, 8, FULL, 3890, True)] + [
             (f"8B, {layout}", LLAMA_8B, 8, 8 // q, 1, q, 32768 * q, 8 // q, FULL + options, published, False)
             for layout, options in (("zigzag", []), ("contiguous", CONTIGUOUS))
             for q, published in ((2, 2540), (4, 1071), (8, 548))]}


def titan_rate(folder, row):
    _, model, gpus, data, tensor, sequence, context, rows, options, _, _ = row
    step = step_seconds(folder, "h100-sxm-80gb", 1, 1, ["--data-parallel", str(data), "--tensor", str(tensor), "--sequence",
                                                      str(sequence), "--shard", "parameters", *options],
                        [*model, "--context", str(context), "--batch", str(rows)])
    return context * rows / step / gpus


def torchtitan(folder):
    print("| model | GPUs | data, tensor, context | positions | published | predicted | off |\n"
          "| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    worst = 0
    for precision, rows in TITAN.items():
        scale = rows[0][-2] / titan_rate(folder, rows[0])
        for i, row in enumerate(rows):
            name, _, gpus, data, tensor, sequence, context, _, _, published, held = row
            rate = scale * titan_rate(folder, row)
            text, off = off_by(rate, published, i == 0)
            print(f"| {name}, {precision} | {gpus} | {data}, {tensor}, {sequence} | {context} | {published} | {rate:.0f} | {text} |",
                  flush=True)
            worst = max(worst, off if held else 0)
    return worst


# ---- Galvatron -----------------------------------------------------------------------------------------------

# RTX TITANs: data sheet, PCIe 3.0 x16 at 12 GB/s
PCIE = {"name": "eight GPUs on PCIe", "flops_per_second": {"f32": 16.3e12, "bf16": 130e12}, "flops_efficiency": .6,
        "bytes_per_second": 672e9, "bytes_efficiency": .8, "op_seconds": 5e-6, "memory_bytes": 24 << 30, "link_seconds": 1e-5,
        "link_bytes_per_second": 12.5e9, "devices_per_host": 8, "host_link_seconds": 1e-5, "host_link_bytes_per_second": 12e9,
        "link_efficiency": .8}
PYRAMID = [HERE + "/pyramid.c", "--depth", "2", "--window", "64", "--context", "4096"]
LAID_OUT = {"pyramid, 320 to 2560, 2, 2, 26, 2 blocks": [*PYRAMID, "--width", "320", "--heads", "10", "--deep", "26"],
            "gpt, 32 x 1280": ["gpt", "--layers", "32", "--width", "1280", "--heads", "16", "--context", "512", "--vocab", "30522"],
            "pyramid, 512 to 4096, 2, 2, 10, 2 blocks": [*PYRAMID, "--width", "512", "--heads", "8", "--deep", "10"],
            "gpt, 24 x 1024": ["gpt", "--layers", "24", "--width", "1024", "--heads", "16", "--context", "512", "--vocab", "30522"]}
BUDGETS, BATCHES, ONE_LAYOUT = (8, 12, 16, 20), (8, 16, 32, 64, 128), ["--sbp", "add.*=-,B"]


def laid_out(folder, hardware, model, data, batch, options):
    """Returns examples a second and the memory of a device."""
    step = step_seconds(folder, hardware, 1, 1, ["--data-parallel", str(data), "--tensor", str(8 // data), *options],
                        [*model, "--data", folder + "/text", "--batch", str(batch)])
    with open(folder + "/report.json") as file:
        used = max(device["peak_bytes"]["total"] for device in json.load(file)["devices"])
    return batch / step, used / 2**30


def galvatron(folder):
    hardware = folder + "/machine.json"
    with open(hardware, "w") as file:
        json.dump(PCIE, file)
    with open(folder + "/text", "w") as file:
        file.write("x" * (1 << 20))
    print("| model | budget | one layout | data x tensor, batch | by block | data x tensor, batch | gain |\n"
          "| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name, model in LAID_OUT.items():
        found = {"one": [], "block": []}
        for data, batch, again in itertools.product((8, 4, 2, 1), BATCHES, ([], ["--recompute", "full"])):
            for how, options in (("one", ONE_LAYOUT if data < 8 else []), ("block", [])):
                rate, used = laid_out(folder, hardware, model, data, batch, options + again)
                found[how].append((rate, used, f"{data} x {8 // data}, {batch}{', recomputed' if again else ''}"))
        for budget in BUDGETS:
            best = {how: max((row for row in rows if row[1] <= budget), default=None) for how, rows in found.items()}
            if best["one"] and best["block"]:
                gain = max(best["block"], best["one"])[0] / best["one"][0]
                print(f"| {name} | {budget} GiB | {best['one'][0]:.1f} | {best['one'][2]} | {best['block'][0]:.1f} | "
                      f"{best['block'][2]} | {gain:.2f} |", flush=True)
    return 0


# ---- EnergonAI -----------------------------------------------------------------------------------------------

# layers, those of them whose weights live elsewhere, and tokens of a tick
LENT = [(24, 6, 1024), (24, 6, 512), (30, 12, 1024), (30, 12, 512), (36, 18, 1024), (36, 18, 512)]


def lent_rate(folder, layers, away, tokens, memory, home):
    """Returns the tokens per second of prompts of 64 tokens. The layers that live in `home` are spread evenly."""
    report, prompts = folder + "/report.json", tokens // 64
    homes = [word for i in range(away) for word in ("--home", f"weights@h.{(i + 1) * layers // away - 1}={home}")]
    subprocess.run([os.environ["SLUICE_BUILD"] + "/bin/actorserve", "--quiet", "--clock", "virtual", "--devices", "timed:2",
                    "--stages", "2", "--machine", "a100-sxm-80gb", "--dtype", "bf16", "--kv", "bf16", "--memory", memory,
                    "--lengths", "64,1", "--concurrency", str(2 * prompts), "--requests", str(8 * prompts), "--rows",
                    str(tokens), "--sequences", str(2 * prompts), "--report", report, *(homes if home else []),
                    HERE + "/decoder_lent.c", "--layers", str(layers), "--width", "12288", "--heads", "96", "--ffn", "32768",
                    "--context", "1024", "--vocab", "50304"], check=True, stdout=subprocess.DEVNULL)
    with open(report) as file:
        got = json.load(file)
    return got["rows"] / got["seconds"]


def energonai(folder):
    print("| layers | lent | tokens of a tick | 200 GB each | of the other GPU | of the host |\n" + "| --- " * 6 + "|", flush=True)
    most = 0
    for layers, away, tokens in LENT:
        whole = lent_rate(folder, layers, away, tokens, "200G", None)
        peer, host = (lent_rate(folder, layers, away, tokens, "80G", home) for home in ("peer:1", "host"))
        print(f"| {layers} | {away} | {tokens} | {whole:.0f} tokens/s | {peer:.0f}, {100 * (peer / whole - 1):+.1f} % | "
              f"{host:.0f}, {100 * (host / whole - 1):+.1f} % |", flush=True)
        most = max(most, 100 * (1 - peer / whole))
    return most


TABLES = {"zero-bubble": zero_bubble, "vocabulary": vocabulary, "llama3": llama3, "optimizer-states": optimizer_states,
          "fpdt": fpdt, "prompt-blocks": prompt_blocks, "gpipe": gpipe,
          "first-tokens": first_tokens, "torchtitan": torchtitan, "galvatron": galvatron, "energonai": energonai}


def main():
    names = sys.argv[1:] or list(TABLES)
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        sys.exit(f"published.py: there is no table {unknown[0]}: {', '.join(TABLES)}")
    failed = False
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found = TABLES[name](folder)
        print(f"\n{name}: held rows are at most {found:.1f} % off\n", flush=True)
        failed |= found > LIMITS[name]
    sys.exit(failed)


main()
