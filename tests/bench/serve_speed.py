#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tokens per second of actorserve, llama.cpp and transformers on the same GGUF file: one stream, 16 concurrent
streams, and a long prompt.

    pip install --no-binary llama-cpp-python llama-cpp-python     in one venv, built for this machine
    pip install torch transformers gguf accelerate                in another
    serve_speed.py --actorserve build/release/bin/actorserve --llama VENV/bin/python --torch VENV/bin/python FILE.gguf

The engines alternate for `--rounds` rounds, each alone in memory. The best round counts, because other
load on the machine can only slow a run down. Processor time is the median of the rounds, in microseconds per
token. --torch-bf16 runs transformers in bf16 too. With --cores 1, waiting threads do not
count towards it. --avx2 limits actorserve and PyTorch to AVX2; llama.cpp then needs
libraries built for AVX2 (--llama-libraries FOLDER). Each decodes --tokens tokens greedily after a short prompt,
ignoring the end token. Then it generates one token after a prompt of --prompt tokens; the script prints
the prompt's tokens per second. --only 1, 16 or 0 (the long prompt) runs one of the three. Requests to
actorserve go over HTTP. The script also prints the memory bandwidth of all cores, and that bandwidth
divided by the bytes of the file's tensors, which bounds the speed of a single stream.
"""
import argparse
import glob
import http.client
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROMPT = "Once upon a time there was a little fox who"
READ = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
enum { MB = 256 };
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
static void *read_all(void *arg) {
  const long *p = arg;
  long sum[8] = {0};
  for (long i = 0; i < MB * 131072L; i += 8) for (int l = 0; l < 8; l++) sum[l] += p[i + l];
  return (void *)(sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7]);
}
int main(int argc, char **argv) {
  int n = atoi(argv[argc - 1]);
  pthread_t t[64];
  void *room[64];
  double best = 0;
  for (int i = 0; i < n; i++) memset(room[i] = aligned_alloc(64, MB << 20), 1, MB << 20);
  for (int r = 0; r < 10; r++) {
    double start = now();
    for (int i = 0; i < n; i++) pthread_create(&t[i], 0, read_all, room[i]);
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    double rate = n * (double)(MB << 20) / (now() - start);
    if (rate > best) best = rate;
  }
  printf("%.0f\n", best);
}
"""


def bandwidth(cores):
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "read")
        subprocess.run(["cc", "-O3", "-march=native", "-pthread", "-x", "c", "-", "-o", program], input=READ.encode(), check=True)
        return float(subprocess.run([program, str(cores)], capture_output=True, check=True).stdout)


# ---- actorserve ------------------------------------------------------------------------------------------------

def ask(port, tokens, out, prompt=PROMPT):
    link = http.client.HTTPConnection("127.0.0.1", port)
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
    link.request("POST", "/v1/completions", json.dumps(body))
    out.append(json.loads(link.getresponse().read())["usage"]["completion_tokens"])


def long_prompt(n):
    return [(i * 7919 + 13) % 40000 for i in range(n)]


def processor_seconds(pid):
    return sum(int(pathlib.Path(f).read_text().split()[0]) for f in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e9


def actorserve(options, streams):
    server = subprocess.Popen([options.actorserve, "--port", "0", "--context", "2048", "--quota", "kv=160", "--devices",
                               f"cpu:1x{options.cores}", *options.option, options.file], stdout=subprocess.PIPE, text=True, env=limited(options))
    port = int(server.stdout.readline().split(":")[2].split("/")[0])
    ask(port, 8, [])
    told, began, before = [], time.monotonic(), processor_seconds(server.pid)
    if not streams:
        ask(port, 1, told, long_prompt(options.prompt))
        told = [options.prompt]
    threads = [threading.Thread(target=ask, args=(port, options.tokens, told)) for _ in range(streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    rate, spent = sum(told) / (time.monotonic() - began), (processor_seconds(server.pid) - before) / sum(told)
    server.send_signal(signal.SIGINT)
    server.wait()
    return rate, spent


def clocks():
    return time.monotonic(), time.process_time()


def per_token(began, tokens):
    """Returns tokens per second and processor seconds per token."""
    now = clocks()
    return tokens / (now[0] - began[0]), (now[1] - began[1]) / tokens


def limited(options):
    """Returns the environment of an engine's process."""
    env = dict(os.environ)
    if options.llama_libraries:
        env["LLAMA_CPP_LIB_PATH"] = env["LD_LIBRARY_PATH"] = options.llama_libraries  # each library's own path comes after
    if options.avx2:
        env.update(SLUICE_CPU_LEVEL="1", ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2")
    return env


# ---- other engines, each in its own process --------------------------------------------------------------------

def llama(path, streams, tokens, cores, prompt):
    import ctypes
    import llama_cpp as l
    import numpy
    l.llama_backend_init()
    model = l.llama_model_load_from_file(path.encode(), l.llama_model_default_params())
    params = l.llama_context_default_params()
    params.n_ctx, params.n_seq_max, params.n_batch = 1024 * max(streams, 2), max(streams, 1), 512
    params.n_threads = params.n_threads_batch = cores
    context = l.llama_init_from_model(model, params)
    vocab = l.llama_model_get_vocab(model)
    ids = (l.llama_token * 64)()
    n = l.llama_tokenize(vocab, PROMPT.encode(), len(PROMPT), ids, 64, False, False)
    size = l.llama_vocab_n_tokens(vocab)
    batch = l.llama_batch_init(512, 0, max(streams, 1))

    def step(rows):
        batch.n_tokens = len(rows)
        for i, (token, place, stream, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, place, 1, wanted
            batch.seq_id[i][0] = stream
        assert not l.llama_decode(context, batch)
        wanted = [i for i, row in enumerate(rows) if row[3]]
        return [int(numpy.argmax(numpy.ctypeslib.as_array(l.llama_get_logits_ith(context, i), (size,)))) for i in wanted]

    if not streams:
        step([(1, 0, 0, True)])
        rows = [(t, i + 1, 0, i == prompt - 1) for i, t in enumerate(long_prompt(prompt))]
        began = clocks()
        for i in range(0, prompt, 512):
            step(rows[i:i + 512])
        return per_token(began, prompt)
    began = clocks()
    last = step([(ids[i], i, s, i == n - 1) for s in range(streams) for i in range(n)])
    for k in range(tokens - 1):
        last = step([(t, n + k, s, True) for s, t in enumerate(last)])
    return per_token(began, streams * tokens)


def transformers(path, streams, tokens, cores, prompt, dtype="float32"):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.set_num_threads(cores)
    folder, name = os.path.split(path)
    where = {"gguf_file": name} if name else {}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), **where)
    tokenizer = AutoTokenizer.from_pretrained(folder, **where)
    if streams:
        ids = tokenizer([PROMPT] * streams, return_tensors="pt").input_ids
    else:
        ids, tokens = torch.tensor([long_prompt(prompt)]), 1
    how = dict(do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(ids))
    with torch.inference_mode():
        model.generate(ids, max_new_tokens=2, **how)
        began = clocks()
        model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, **how)
        return per_token(began, streams * tokens or prompt)


def transformers_bf16(*words):
    return transformers(*words, dtype="bfloat16")


def other(python, name, options, streams):
    words = [python, os.path.abspath(__file__), "--engine", name, "--streams", str(streams), "--tokens", str(options.tokens),
             "--cores", str(options.cores), "--prompt", str(options.prompt),
             options.folder if options.folder and name != "llama" else options.file]
    got = subprocess.run(words, capture_output=True, text=True, env=limited(options))
    if got.returncode:
        sys.exit("%s: %s" % (name, got.stderr[-2000:]))
    return tuple(float(word) for word in got.stdout.split()[-2:])


def main():
    parser = argparse.ArgumentParser()
    for name in ("actorserve", "llama", "llama-libraries", "torch", "engine"):
        parser.add_argument("--" + name)
    parser.add_argument("--folder", type=lambda path: os.path.join(path, ""), help="the model for transformers, loaded faster than FILE")
    parser.add_argument("--torch-bf16", action="store_true", help="runs transformers in bf16 too")
    parser.add_argument("--avx2", action="store_true", help="limits the engines to AVX2")
    parser.add_argument("--option", action="append", default=[], help="of actorserve, as --option=--rows=32")
    for name, usual in (("rounds", 3), ("streams", 1), ("tokens", 100), ("prompt", 1000), ("only", -1), ("cores", len(os.sched_getaffinity(0)))):
        parser.add_argument("--" + name, type=int, default=usual)
    parser.add_argument("file")
    options = parser.parse_args()
    if options.engine:
        run = {"llama": llama, "transformers": transformers, "transformers bf16": transformers_bf16}[options.engine]
        print(*run(options.file, options.streams, options.tokens, options.cores, options.prompt))
        return
    rate, size = bandwidth(options.cores), os.path.getsize(options.file)
    print("memory %.1f GB/s: %.0f times the file of %.1f MB a second" % (rate / 1e9, rate / size, size / 1e6))
    engines = {"actorserve": lambda n: actorserve(options, n)} if options.actorserve else {}
    if options.llama:
        engines["llama.cpp"] = lambda n: other(options.llama, "llama", options, n)
    if options.torch:
        engines["transformers"] = lambda n: other(options.torch, "transformers", options, n)
    if options.torch and options.torch_bf16:
        engines["transformers bf16"] = lambda n: other(options.torch, "transformers bf16", options, n)
    for streams in (1, 16, 0) if options.only < 0 else (options.only,):
        rounds = {name: [] for name in engines}
        for _ in range(options.rounds):
            for name, run in engines.items():
                rounds[name].append(run(streams))
        rates = {name: max(rate for rate, _ in got) for name, got in rounds.items()}
        spent = {name: statistics.median(seconds for _, seconds in got) for name, got in rounds.items()}
        ours, *others = engines
        print("%d streams" % streams if streams else "a prompt of %d tokens" % options.prompt, end="")
        print(": %s %.1f tokens/s, %.0f us" % (ours, rates[ours], 1e6 * spent[ours]), end="")
        for name in others:
            print("; %s %.1f, %.0f us, ratios %.2f, %.2f" % (name, rates[name], 1e6 * spent[name], rates[ours] / rates[name],
                                                             spent[name] / spent[ours]), end="")
        print(flush=True)


if __name__ == "__main__":
    main()
