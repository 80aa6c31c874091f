# SPDX-License-Identifier: Apache-2.0
"""Rate of a mixture whose experts are on disk, by the experts that each layer holds, beside a
prediction, and loads by rows beside loads by number.

    tests/bench/experts_disk.py [--bin build/release/bin] [--rate BYTES] [--streams N] [--planes A..B]
                                [--model FOLDER|FILE.gguf] [--width N] [--inner N] [--tokens N] [--disk DIR]
                                [--prefetch N,N...] [--half]

Trains a small Mixtral on the documents of this repository, or takes the one that an earlier run left in
--model, serves it with its experts in memory and then on a disk limited to --rate bytes per second
(SLUICE_DISK=rate=N; 0: as it is). Each row's runs take turns with runs of servers that hold all experts, in memory
and as a disk's server does, so that what else the machine does slows both. The prediction is the time of the same
ticks with all experts held, and a time for each part that is read, of which the first row is the measurement. Planes
are read in the order HEBF and expert by expert. --disk is a folder of the disk that holds the experts. One as fast as an SSD on PCIe 4.0, for
machines whose own is slower, is a file system in memory, limited to --rate 3.5e9:

    truncate -s 5G /dev/shm/disk && mkfs.ext4 -q /dev/shm/disk && mount -o loop /dev/shm/disk DIR

--half gives the server half the memory that the model's file takes."""
import argparse
import atexit
import itertools
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time
import urllib.request

class Server:
    def __init__(self, options, words, rate):
        env = dict(os.environ, TMPDIR=options.disk)
        if rate:
            env["SLUICE_DISK"] = f"rate={rate}"
        command = [options.bin / "actorserve", "--port", "0", *words, options.model]
        self.tokens = options.tokens
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        atexit.register(self.process.kill)
        self.url = self.process.stdout.readline().split()[-1]

    def ask(self, prompt):
        body = {"prompt": list(prompt.encode()), "max_tokens": self.tokens, "temperature": 0}
        with urllib.request.urlopen(self.url + "/completions", json.dumps(body).encode()) as answer:
            return json.load(answer)["choices"][0]["text"]

    def counts(self):
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics") as answer:
            found = re.findall(r"^sluice_(\w+) (\d+)$", answer.read().decode(), re.M)
        return {name.removesuffix("_total"): int(value) for name, value in found}

    def run(self, prompts):
        """Answers all prompts at once; returns seconds and counts of that."""
        before, begun = self.counts(), time.monotonic()
        answers = [None] * len(prompts)

        def one(i):
            answers[i] = self.ask(prompts[i])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, after = time.monotonic() - begun, self.counts()
        return answers, seconds, {name: after[name] - before[name] for name in after}

    def stop(self):
        self.process.terminate()
        self.process.wait()


def measure(servers, prompts):
    """The fastest of three runs of each server, in turns, after one that fills the caches."""
    for server in servers:
        server.run(prompts)
    turns = [[server.run(prompts) for server in servers] for _ in range(3)]
    return [min(runs, key=lambda run: run[1]) for runs in zip(*turns)]


def make_model(options, folder):
    text = pathlib.Path(folder) / "text.txt"
    text.write_text("".join(path.read_text() for path in sorted(pathlib.Path("docs").glob("*.md"))))
    shape = ["--context", "192", "--layers", "4", "--width", str(options.width), "--heads", "4",
             "--experts", "16", "--top-k", "2", "--expert-ffn", str(options.inner)]
    subprocess.run([options.bin / "actorrun", "--quiet", "--steps", str(options.steps), "--save", options.model + "/",
                    "mixtral", *shape, "--data", text, "--batch", "4", "--lr", "2e-3"], check=True)


class Prediction:
    """Seconds of a run: those of its ticks with all experts held, and those of the parts that it read."""

    def __init__(self, options):
        self.options, self.part = options, None

    def show(self, name, run, memory, held):
        (_, seconds, n), (_, base, whole) = run, held
        base, reads = base * n["ticks"] / whole["ticks"], n["experts_read"]
        first = self.part is None
        if first:
            self.part = (seconds - base) / reads
        predicted, tokens = base + reads * self.part, self.options.streams * self.options.tokens
        error = f"{self.part * 1e3:.2f} ms a part" if first else f"{100 * (seconds / predicted - 1):+.1f} %"
        wanted, bytes_read = n["experts_wanted"] / 100, n["expert_bytes_read"] + n["expert_bytes_guessed"]
        print(f"{name}\t{n['experts_held'] / wanted:.1f} %\t{n['experts_guessed_right'] / wanted:.1f} %\t"
              f"{bytes_read / 1e6:.1f}\t{n['expert_bytes_wasted'] / 1e6:.1f}\t"
              f"{tokens / seconds:.1f}\t{memory[1] / seconds:.2f}\t{tokens / predicted:.1f}\t{error}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--rate", type=float, default=50e6)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--held", default="2,4,6,8,12,14,16")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--inner", type=int, default=512)
    parser.add_argument("--disk")
    parser.add_argument("--planes")
    parser.add_argument("--model")
    parser.add_argument("--prefetch", default="0")
    parser.add_argument("--half", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        options.disk = options.disk or folder
        options.model = options.model or os.path.join(folder, "model")
        if not os.path.exists(options.model):
            make_model(options, folder)
        prompts = [f"The {word} of " for word in
                   "plan device layer tick page tensor weight disk queue actor register quota slot key map span".split()]
        prompts = prompts[:options.streams]
        orders = ["", ",ascending"] if options.planes else [""]
        planes = ["--experts", f"planes:{options.planes}"] if options.planes else []
        most = ["--weights", "experts", *planes, "--quota", "experts=1000000"]
        whole = [Server(options, most if planes else [], 0), Server(options, most, 0)]
        memory, held = measure(whole, prompts)
        answers, tokens = memory[0], options.streams * options.tokens
        print(f"in memory: {tokens / memory[1]:.1f} tokens/s; all held: {tokens / held[1]:.1f}")
        print("held\twanted and held\tguessed\tMB read\twasted\ttokens/s\tof memory\tpredicted\terror")

        def row(name, prediction, words, rate):
            server = Server(options, ["--weights", "experts", *words], rate)
            run, memory, held = measure([server, *whole], prompts)
            server.stop()
            assert run[0] == answers, "answers differ"
            prediction.show(name, run, memory, held)

        limited = Prediction(options)
        for slots in map(int, options.held.split(",") if options.held else []):
            for order, ahead in itertools.product(orders, options.prefetch.split(",")):
                how = ["--experts", f"planes:{options.planes}{order}"] if planes else []
                row(f"{slots}{order}" + (f", {ahead} ahead" if ahead != "0" else ""), limited,
                    [*how, "--prefetch", ahead, "--quota", f"experts={slots}"], options.rate)
        if options.half:
            file = pathlib.Path(options.model)
            budget = sum(part.stat().st_size for part in ([file] if file.is_file() else file.glob("*.safetensors"))) // 2
            row(f"{budget / 1e6:.1f} MB of {2 * budget / 1e6:.1f}", Prediction(options),
                [*planes, "--quota", "kv=16", "--memory", str(budget)], 0)
        for server in whole:
            server.stop()

main()
