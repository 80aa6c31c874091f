# SPDX-License-Identifier: Apache-2.0
"""Rate of a model with a table of embeddings in each block, whose tables are in memory or on a disk, and how many
ticks wait for rows of any but the first table.

    tests/bench/tables_disk.py [--bin build/release/bin] [--rates BYTES,BYTES...] [--tokens N] [--disk DIR]

Blocks of width 512 compute for some 0.2 ms a row. A row of a table has 4,400 bytes, so two or three pages are read.
--rates: bytes per second of the disk (SLUICE_DISK=rate=N; 0: as it is)."""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.request

MODEL = """#include <sluice/sluice.h>
static const sl_option options[] = {{"data", SL_OPTION_LIST, "", "`FILE` to learn", 0, 0}, {0}};
static sl_status build(sl_graph *g, const sl_args *args) {
  int64_t B = sl_microbatch_rows(g, 2), T = 64, C = 512, E = 1100;
  sl_tensor *next, *ids = sl_tokens(g, sl_arg_text(args, "data"), B, T, 256, &next);
  sl_tensor *x = sl_embedding(g, ids, sl_param(g, SL_TYPE(SL_F32, 256, C), SL_NORMAL(0.3f), "table"));
  for (int i = 0; i < 3; i++) {
    sl_block(g, "h.%d", i);
    sl_tensor *qkv = sl_param(g, SL_TYPE(SL_F32, 3 * C, C), SL_NORMAL(0.02f), "h.%d.qkv", i);
    x = sl_add(g, x, sl_attention_packed(g, sl_linear(g, x, qkv, NULL), 4, 4));
    sl_tensor *mix = sl_param(g, SL_TYPE(SL_F32, C, C), SL_NORMAL(0.01f), "h.%d.mix", i);
    for (int n = 0; n < 24; n++) x = sl_add(g, x, sl_linear(g, x, mix, NULL));
    sl_tensor *own = sl_embedding(g, ids, sl_param(g, SL_TYPE(SL_F32, 256, E), SL_NORMAL(0.3f), "h.%d.own", i));
    x = sl_add(g, x, sl_linear(g, own, sl_param(g, SL_TYPE(SL_F32, C, E), SL_NORMAL(0.1f), "h.%d.down", i), NULL));
  }
  sl_block(g, "head");
  sl_tensor *logits = sl_linear(g, x, sl_param(g, SL_TYPE(SL_F32, 256, C), SL_NORMAL(0.3f), "head"), NULL);
  sl_output(g, "logits", logits);
  sl_train(g, sl_cross_entropy(g, logits, next), NULL);
  return sl_graph_status(g);
}
SL_MODEL(tables, "a table in each block", options, build);
"""


def serve(options, folder, words, rate):
    """Returns the text of an answer and its fastest tokens per second of three."""
    env = dict(os.environ, TMPDIR=options.disk or folder)
    if rate:
        env["SLUICE_DISK"] = f"rate={rate}"
    command = [options.bin / "actorserve", "--port", "0", "--quota", "kv=16", "--prefix-caching", "off", *words,
               "--init", f"{folder}/tables.safetensors", f"{folder}/tables.c"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        url = server.stdout.readline().split()[-1]
        body = json.dumps({"prompt": "And the king", "max_tokens": options.tokens, "temperature": 0}).encode()
        times = []
        for _ in range(4):
            begun = time.monotonic()
            with urllib.request.urlopen(url + "/completions", body) as answer:
                text = json.load(answer)["choices"][0]["text"]
            times.append(time.monotonic() - begun)
    finally:
        server.terminate()
        server.wait()
    return text, options.tokens / min(times[1:])


def ticks(options, trace):
    """Returns each tick's nanoseconds without work because rows of a later table were missing."""
    out = subprocess.run([options.bin / "actortrace", "reasons", trace], stdout=subprocess.PIPE, text=True, check=True)
    rows = [line.split("\t") for line in out.stdout.splitlines()]
    at, waits = {name: i for i, name in enumerate(rows[0])}, collections.Counter()
    for row in rows[1:]:
        later = row[at["producer"]].startswith("tables") and row[at["producer"]] != "tables0.0"
        waits[row[at["step"]]] += later * int(row[at["ns"]])
    return sorted(waits.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--rates", default="0,400e6,100e6,2e6")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        pathlib.Path(folder, "tables.c").write_text(MODEL)
        subprocess.run([options.bin / "actorrun", "--quiet", "--steps", "0", "--save", f"{folder}/tables.safetensors",
                        f"{folder}/tables.c", "--data", "README.md"], check=True)
        text, memory = serve(options, folder, [], 0)
        print(f"in memory: {memory:.0f} tokens/s\nrate\ttokens/s\tof memory\tticks without a wait\tmedian wait")
        for rate in map(float, options.rates.split(",")):
            trace = f"{folder}/trace.json"
            same, speed = serve(options, folder, ["--weights", "tables", "--trace", trace], rate)
            assert same == text, "answers differ"
            waits = ticks(options, trace)
            free = sum(not ns for ns in waits) / len(waits)
            print(f"{rate / 1e6:g} MB/s\t{speed:.0f}\t{speed / memory:.2f}\t{100 * free:.0f} %\t"
                  f"{waits[len(waits) // 2] / 1e3:.0f} us", flush=True)


main()
