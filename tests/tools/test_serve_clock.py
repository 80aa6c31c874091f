# SPDX-License-Identifier: Apache-2.0
"""actorserve --arrivals plays the requests of a file, on the virtual clock and in real time. Errors name the file or the
option.

labels: outside
needs: libevent
"""
import json
import re

from tool import ACTORRUN, ACTORSERVE, ACTORTRACE, ends, fails, parse, says, write

SMALL = "gpt --layers 2 --width 16 --heads 2 --context 64 --vocab 50"
VIRTUAL, COME, TEN = "--clock virtual ", "--clock virtual --arrivals come.jsonl ", "--tick 0.01,0,0,0 "
write("come.jsonl", "".join(json.dumps({"time": 0.01 * i, "prompt": 3 + 7 * i % 29, "answer": 2 + i % 9, "id": str(i)}) + "\n"
                            for i in range(40)))


def play(options, model=SMALL):
    """Returns the report of a server, and what it wrote."""
    said = ends(0, ACTORSERVE, f"{options} --report report.json {model}").stdout
    return parse("report.json"), said


def refused(text, options, status=2):
    fails(text, ACTORSERVE, f"{options} {SMALL}", status)


# Repeated runs are identical. A tick of two stages takes 2 x 10 ms and yields one token per sequence.
STAGES = COME + TEN + "--stages 2 "
one = play(STAGES + "--trace one.trace")
assert play(STAGES) == one, "the virtual clock differs between runs"
r = one[0]
assert r["answered"] == 40 and r["refused"] == 0 and r["clock"] == "virtual", r
assert r["tokens"] == sum(2 + i % 9 for i in range(40)), r
assert 0.02 <= r["ttft_seconds"]["p50"] <= r["ttft_seconds"]["p99"] <= 0.05, r
assert 0.02 <= r["tpot_seconds"]["p50"] <= r["tpot_seconds"]["p99"] <= 0.0301, r
assert len(r["bubbles"]) == 2 and 0 < r["bubbles"][0] < 0.5 and r["pages_most"] > 0, r
ends(0, ACTORTRACE, "show one.trace")

# With the log of ticks, the trace shows the rows of prompts and answers of each tick, and the number of preceding positions.
r, _ = play(COME + TEN + "--trace told.trace --log told")
head, *lines = [line.split("\t") for line in ends(0, ACTORTRACE, "rows --log told told.trace").stdout.splitlines()]
took = [row for row in (dict(zip(head, line)) for line in lines) if row["class"] == "F" and row["rows"] != "-"]
assert len(took) == r["ticks"] and sum(int(p["rows"]) for p in took) == r["rows"], (len(took), r)
assert took[0]["behind"] == "0" and max(int(p["sequences"]) for p in took) > 1, took
assert 0 < sum(int(p["chunk_rows"]) for p in took) <= r["rows_prompt"], r
says(ends(0, ACTORTRACE, "show --log told told.trace").stdout, "answers alone", "chunks too")
ends(0, ACTORTRACE, "svg --log told told.trace")
write("nothing", "")
for text, log in (("nowhere", "nowhere"), ("nothing belongs to another run", "nothing")):
    fails(text, ACTORTRACE, f"rows --log {log} told.trace")
play(COME + "--machine h100-sxm-80gb")

# In real time, on devices that sleep, no request is faster than the devices.
r, _ = play("--devices timed:2 --arrivals come.jsonl --stages 2 " + TEN)
assert r["answered"] == 40 and r["tokens"] == one[0]["tokens"] and r["clock"] == "real", r
assert r["ttft_seconds"]["p50"] > 0.0199 and r["tpot_seconds"]["p50"] > 0.0199, r

FOUR = "must be four numbers of seconds"
for text, options in (
        ("needs --arrivals FILE", VIRTUAL), ("these devices hold no values", "--devices timed"),
        *((FOUR, COME + "--tick " + tick) for tick in ("1,2,3", "1,2,3,-4", "1,2,3,4,", "1,2,3,4,-5", "1,2,3,4,5,6")),
        ("--chunks", COME + "--chunks cut"), ("nowhere", VIRTUAL + "--arrivals nowhere")):
    refused(text, options)
for text, lines in (
        *(("bad.jsonl, line 2", ['{"time":0.5,"prompt":1,"answer":1}', line]) for line in (
            "{", "[1]", '{"prompt":1,"answer":1}', '{"time":-1,"prompt":1,"answer":1}', '{"time":1,"prompt":0,"answer":1}',
            '{"time":1,"prompt":1.5,"answer":1}', '{"time":1,"prompt":1}', '{"time":0,"prompt":1,"answer":1}')),
        ("arrival 1: the prompt has 65 tokens", ['{"time":0,"prompt":65,"answer":1}']), ("nobody comes", [])):
    write("bad.jsonl", "".join(line + "\n" for line in lines))
    refused(text, VIRTUAL + "--arrivals bad.jsonl")

# A closed loop takes its lengths from --lengths, or from --arrivals without its times.
THREE = VIRTUAL + "--concurrency 3 "
r, _ = play(THREE + TEN + "--lengths 5,10 --requests 9")
assert r["answered"] == 9 and r["tokens"] == 90 and abs(r["seconds"] - 0.3) < 1e-6, r
assert abs(r["tpot_seconds"]["mean"] - 0.01) < 1e-6, r
r, _ = play(THREE + TEN + "--lengths 5,10,0.5")
assert r["answered"] == 24 and r["tokens"] != 240, r
play(THREE + TEN + "--arrivals come.jsonl")
for text, options in (
        ("--lengths 5: must be two numbers", THREE + "--lengths 5"), ("--lengths 5,0: must be two numbers", THREE + "--lengths 5,0"),
        ("--lengths 5,9,1: must be two numbers", THREE + "--lengths 5,9,1"),
        ("--lengths 5,9: needs --concurrency", VIRTUAL + "--lengths 5,9"), ("--concurrency: needs --lengths", THREE),
        ("--requests: cannot be combined", THREE + "--arrivals come.jsonl --requests 4"),
        ("--lengths: cannot be combined", THREE + "--arrivals come.jsonl --lengths 5,9")):
    refused(text, options)

# ---- tables of a machine file ----------------------------------------------------------------------------------
# They lie beside it, one for each type, and only servers read them.
MACHINE = {"flops_per_second": {"f32": 1e12, "bf16": 1e12}, "flops_efficiency": 1, "bytes_per_second": 1e12,
           "bytes_efficiency": 1, "op_seconds": 0, "memory_bytes": 1e9, "link_seconds": 0, "link_bytes_per_second": 1e9}
CURVES = {"linear_served": {"m": [1, 64], "n": [1], "k": [1], "seconds": [0.001, 0.002]},
          "attention_served": {"sequences": [1], "positions": [1], "seconds": [1e-9]},
          "attention_packed_served": "attention_served"}


def machine(**more):
    write("own.json", json.dumps({**MACHINE, **more}))


def tables(**files):
    return {"tables": {dtype: list(names) for dtype, names in files.items()}}


OWN = VIRTUAL + "--machine own.json --concurrency 1 --lengths 1,2"
write("table.json", json.dumps({"curves": CURVES}))
machine(serving={"tick_seconds": 0.01, "joins_products": False, **tables(f32=["table.json"])})
play(OWN)
for text, serving in (
        ("nowhere.json", tables(f32=["nowhere.json"])),
        ("own.json: serving.tables.f32[0]: must be a file of this folder", tables(f32=["../table.json"])),
        ("tick_second", {"tick_second": 1}), ("attention is no curve before this one", tables(f32=["table.json"]))):
    if "no curve" in text:
        write("table.json", json.dumps({"curves": {**CURVES, "attention_packed_served": "attention"}}))
    machine(serving=serving)
    refused(text, OWN)

# Tables of training price its products, by names of a later table; a product faster than the peak is named and takes its
# arithmetic's time.
CORNERS = [1, 4096]
write("products.json", json.dumps({"curves": {"linear_served": {
    "m": CORNERS, "n": CORNERS, "k": CORNERS, "seconds": [1e-12] + [3] * 7}}}))
write("names.json", json.dumps({"curves": {name: "linear_served" for name in ("linear", "linear_b", "linear_w")}}))


def train(status, **training):
    machine(training=training)
    return ends(status, ACTORRUN, "--dry-run --clock virtual --machine own.json gpt --layers 1 --width 64 --batch 1")


got = train(0, **tables(f32=["products.json", "names.json"]))
says(got.stderr, "products.json: curves: linear_served: 1 of its products take less time than their arithmetic",
     "number 1 of seconds, 1e-12 s instead of 2e-12")
assert re.search("a step takes [0-9.]+ s ", got.stdout), "products of training do not take the table's seconds"
got = train(0, **tables(bf16=["products.json", "names.json"]))
assert re.search("a step takes [0-9.]+ .s ", got.stdout), "products in f32 take the seconds of bf16"
says(train(2, **tables(f32=["names.json"])).stderr, "linear_served is no curve before this one")
says(train(2, op_seconds=1).stderr, "training.op_seconds: unknown key")

# ---- types -----------------------------------------------------------------------------------------------------
# Weights in FP8 take a byte each, on devices that compute nothing; others refuse them.
H100, A100 = (f"{VIRTUAL} --machine {name} " for name in ("h100-sxm-80gb", "a100-sxm-80gb"))
LLAMA = "llama --layers 2 --width 4096 --heads 32 --vocab 50 --context "
bf16, fp8 = (play(f"{H100} --dtype {dtype} --concurrency 3 --lengths 5,20 --rows 8", LLAMA + "64")[0]["tpot_seconds"]["mean"]
             for dtype in ("bf16", "fp8"))
assert 0.4 * bf16 < fp8 < 0.9 * bf16, (bf16, fp8)
play(H100 + "--dtype fp8 --concurrency 3 --lengths 5,9 --rows 7",
     "mixtral --layers 1 --width 30 --heads 3 --expert-ffn 7 --experts 5 --top-k 3 --context 64 --vocab 51")
refused("--dtype fp8: only devices that compute nothing", "--dtype fp8 --init nowhere")
# Keys and values in FP8 take half the pages' bytes, and answers read them in less time.
bf16, fp8 = (play(f"{A100} --dtype bf16 --kv {kv} --concurrency 30 --lengths 900,90 --rows 1000 --quota kv=600",
                  LLAMA + "1024")[0]["tpot_seconds"]["mean"] for kv in ("bf16", "fp8"))
assert 0.5 * bf16 < fp8 < 0.9 * bf16, (bf16, fp8)
play(H100 + "--dtype fp8 --kv fp8 --concurrency 3 --lengths 5,9 --rows 7",
     "deepseek --layers 2 --width 36 --heads 3 --context 64 --vocab 51")

# A client sends its next request when it has its answer, and the engine has a prompt some time later.
machine(serving={"tick_seconds": 0.01, "answer_seconds": 0.5, "request_token_seconds": 0.1})
r, _ = play(VIRTUAL + "--machine own.json --concurrency 2 --lengths 5,3 --requests 6")
assert r["answered"] == 6 and 1.01 <= r["ttft_seconds"]["mean"] <= 1.02, r
assert 3 * 1.03 <= r["seconds"] <= 3 * 1.04, r

# Calls that the machine's tables do not cover are named once, with what was taken instead.
r, said = play(H100 + "--dtype bf16 --concurrency 2 --lengths 50,5 --rows 64", "deepseek --layers 3 --context 128 --vocab 300001")
says(said, "attention_latent_served has no table: the longer of arithmetic and traffic is taken",
     "linear_served: n 300001 is far beyond its table, which ends at 65536: extrapolated")
assert len([line for line in said.splitlines() if "has no table" in line]) == 1, said
assert "attention_latent_served" in json.dumps(r["notes"]), r
r, said = play(VIRTUAL + "--machine h200-sxm-141gb --dtype bf16 --concurrency 2 --lengths 50,5 --rows 64")
assert "table" not in said, "a machine without tables is held to them"
