# SPDX-License-Identifier: Apache-2.0
"""Rate of a mixture whose experts are on disk, by the experts that each layer holds, beside a
prediction, and loads by rows beside loads by number.

    tests/bench/experts_disk.py [--bin build/release/bin] [--rate BYTES] [--streams N] [--planes A..B]

Trains a small Mixtral on the source of this repository, serves it with its experts in memory and then
on a disk limited to --rate bytes per second (SLUICE_DISK=rate=N). The prediction of a tick is that of
the same tick in memory, plus the time in which the disk reads what the tick wanted and did not hold,
less what overlaps with it: the products of the experts that were held."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time
import urllib.request

SHAPE = ["--context", "192", "--layers", "4", "--width", "128", "--heads", "4", "--experts", "16",
         "--top-k", "2", "--expert-ffn", "512"]
EXPERT = 3 * 128 * 512 * 4
LAYERS, EXPERTS, TOKENS = 4, 16, 96


class Server:
    def __init__(self, options, words, rate):
        env = dict(os.environ)
        if rate:
            env["SLUICE_DISK"] = f"rate={rate}"
        command = [options.bin / "actorserve", "--port", "0", *words, "--init", options.model, "mixtral", *SHAPE]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        self.url = self.process.stdout.readline().split()[-1]

    def ask(self, prompt):
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
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


def measure(options, words, rate, prompts):
    """The faster of two runs, after one that fills the caches."""
    server = Server(options, words, rate)
    server.run(prompts)
    runs = [server.run(prompts) for _ in range(2)]
    server.stop()
    return min(runs, key=lambda run: run[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--rate", type=float, default=50e6)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--held", default="2,4,6,8,12,14,16")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--planes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        options.model = os.path.join(folder, "model.safetensors")
        os.environ["TMPDIR"] = folder
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("".join(path.read_text() for path in sorted(pathlib.Path("docs").glob("*.md"))))
        subprocess.run([options.bin / "actorrun", "--quiet", "--steps", str(options.steps), "--save", options.model,
                        "mixtral", *SHAPE, "--data", text, "--batch", "4", "--lr", "2e-3"], check=True)
        prompts = [f"The {word} of " for word in
                   "plan device layer tick page tensor weight disk queue actor register quota slot key map span".split()]
        prompts = prompts[:options.streams]
        planes = ["--experts", f"planes:{options.planes}"] if options.planes else []
        most = ["--weights", "experts", *planes, "--quota", "experts=1000000"]
        answers, memory, whole = measure(options, most if planes else [], 0, prompts)
        print(f"in memory: {options.streams * TOKENS / memory:.1f} tokens/s")
        print("held\twanted and held\tMB read\ttokens/s\tof memory\tpredicted\terror")
        for held in map(int, options.held.split(",")):
            words = ["--weights", "experts", *planes, "--quota", f"experts={held}"]
            got, seconds, n = measure(options, words, options.rate, prompts)
            assert got == answers, "answers differ"
            reading = n["expert_bytes_read"] / options.rate
            predicted = memory * n["ticks"] / whole["ticks"] + reading
            tokens = options.streams * TOKENS
            print(f"{held}\t{100 * n['experts_held'] / n['experts_wanted']:.1f} %\t{n['expert_bytes_read'] / 1e6:.1f}\t"
                  f"{tokens / seconds:.1f}\t{memory / seconds:.2f}\t{tokens / predicted:.1f}\t"
                  f"{100 * (seconds / predicted - 1):+.1f} %", flush=True)


main()
