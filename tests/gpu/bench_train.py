#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the training speed of GPT-2 on one GPU in bf16, and that of PyTorch (torch_gpt.py:
torch.compile, bf16 autocast, its fused attention and AdamW) in the same run.

    bench_train.py [--size 124M|774M|tiny]... [--rows N] [--microbatches N] [-- ACTORRUN OPTIONS]

The two alternate on the same tokens (random ones, the k-th with a frequency of about 1/k). A turn's
speed is that of its median step after the warm-up, in which PyTorch compiles and Sluice chooses
the programs to run as CUDA graphs; figures are medians of the turns. The first turn starts both
from the same weights and compares their losses. PyTorch first runs once with its default attention
and once with cuDNN's, and continues with the faster. 124M is compiled as a whole, 774M block by
block, which takes a minute less. A separate row shows PyTorch with the vocabulary of 124M padded to
a multiple of 128.

Model flops per token are 6 N + 12 L C T: two for each parameter forward and four backward, and the
two products of attention, forward and backward, over the whole square, for L layers of width C at
context T (Chowdhery et al., "PaLM", arXiv 2204.02311, appendix B). N counts the tied table once,
because it multiplies as the classifier, and not the positions. Utilisation is the rate of model
flops relative to a plain product of 8192 x 8192 x 8192 on this GPU, measured in this run, and
relative to NVIDIA's data sheet.

Prints `case<TAB>value<TAB>unit[<TAB>target]`. If PyTorch is not installed or fails, the output has
Sluice's figures, and the reason in place of the comparison. Exits with 1 if a run failed or the
losses differ too much.
"""
import argparse
import contextlib
import getpass
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))

SIZES = {
    "tiny": dict(layers=2, width=64, heads=2, context=64, vocab=300, rows=2, microbatches=2,
                 warm_up=2, steps=3, compile="all", padded=384),
    "124M": dict(layers=12, width=768, heads=12, context=1024, vocab=50257, rows=16,
                 microbatches=4, warm_up=15, steps=15, compile="all", padded=50304),
    "774M": dict(layers=36, width=1280, heads=20, context=1024, vocab=50257, rows=8,
                 microbatches=4, warm_up=8, steps=8, compile="parts", padded=None),
}

# Dense bf16 TFLOP/s from the data sheets.
NOMINAL = {"H100 80GB HBM3": 989, "H200": 989, "GH200": 989, "H100 NVL": 835, "H100 PCIe": 756,
           "A100": 312}

ATTENTION = ("default", "cudnn")  # of PyTorch

LOSS_LIMIT = 0.01  # relative, in any step of the first turn


def options():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", choices=SIZES, action="append", help="default: 124M and 774M")
    p.add_argument("--rows", type=int, help="sequences of a microbatch; default: 16 (124M), 8")
    p.add_argument("--microbatches", type=int, help="of a step; default: 4")
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--warm-up", type=int, help="steps of a turn before the timed ones; "
                   "default: 15 (124M), 8 (774M)")
    p.add_argument("--steps", type=int, help="timed steps of a turn; default: as many")
    p.add_argument("--seconds", type=float, default=os.environ.get("SLUICE_SECONDS", "inf"),
                   help="to be done in; drops pairs, and ends a PyTorch that takes too long")
    p.add_argument("--fill-cache", action="store_true",
                   help="only have PyTorch compile what it would, for later runs")
    p.add_argument("--build", default="build/cuda", help="folder of the build")
    p.add_argument("--actorrun", help="default: bin/actorrun of the build")
    p.add_argument("--devices", default="cuda:0", help="of actorrun")
    p.add_argument("--torch-device", default="cuda", help="of PyTorch")
    p.add_argument("--compile", choices=["all", "parts", "off"],
                   help="torch.compile; default: all (124M), parts (774M)")
    p.add_argument("more", nargs="*", metavar="ACTORRUN OPTIONS")
    o = p.parse_args()
    o.actorrun = o.actorrun or os.path.join(o.build, "bin/actorrun")
    o.end = time.monotonic() + o.seconds - 10  # leaves time to print the results
    return o


def show(case, value, unit, target=None):
    number = f"{value:.4g}" if value < 1e4 else f"{value:.0f}"
    print(f"{case}\t{number}\t{unit}" + (f"\t{target}" if target else ""), flush=True)


# ---- the job -------------------------------------------------------------------------

def shape_of(o, size):
    shape = dict(SIZES[size])
    for name in ("rows", "microbatches", "warm_up", "steps", "compile"):
        given = getattr(o, name)
        shape[name] = shape[name] if given is None else given
    shape["batch"] = shape["rows"] * shape["microbatches"]
    shape["tokens"] = shape["batch"] * shape["context"]
    return shape


def model_options(shape, data):
    words = ["--lr", "6e-4", "--data", data]
    for name in ("layers", "width", "heads", "context", "vocab", "batch"):
        words += [f"--{name}", str(shape[name])]
    return words


def write_tokens(path, count, vocab):
    draw = random.Random(1)
    ids = draw.choices(range(vocab), [1 / (k + 1) for k in range(vocab)], k=count)
    with open(path, "wb") as f:
        f.write(b"".join(i.to_bytes(2, "little") for i in ids))


def flops_per_token(shape):
    layers, width = shape["layers"], shape["width"]
    parameters = layers * (12 * width * width + 13 * width) + 2 * width + shape["vocab"] * width
    return 6 * parameters + 12 * layers * width * shape["context"]


# ---- runners ----------------------------------------------------------------------------

class Job:
    """The job of both, with its files in the folder `work`."""

    def __init__(self, o, size, work):
        self.o, self.size, self.work, self.shape = o, size, work, shape_of(o, size)
        self.data = os.path.join(work, "tokens.u16")
        self.init = os.path.join(work, "init.safetensors")
        self.steps = self.shape["warm_up"] + self.shape["steps"]
        write_tokens(self.data, self.shape["tokens"] * self.steps + 1, self.shape["vocab"])

    def options(self, **changed):
        return model_options(dict(self.shape, **changed), self.data)

    def speed(self, seconds):
        """Returns the tokens per second of a turn, from the seconds of all its steps."""
        return self.shape["tokens"] / statistics.median(seconds[self.shape["warm_up"]:])


class Sluice:
    def __init__(self, job):
        self.job = job
        self.call("--steps", "0", "--save", job.init)

    def call(self, *words):
        done = subprocess.run([self.job.o.actorrun, "--quiet", *words, "gpt", *self.job.options()],
                              check=False)
        if done.returncode:
            raise RuntimeError(f"actorrun failed ({done.returncode})")

    def turn(self):
        """Its losses and its speed."""
        job, report = self.job, os.path.join(self.job.work, "report")
        self.call("--devices", job.o.devices, "--dtype", "bf16", "--init", job.init,
                  "--microbatches", str(job.shape["microbatches"]), "--steps", str(job.steps),
                  "--report", report, *job.o.more)
        with open(report, encoding="utf-8") as f:
            steps = json.load(f)["steps"]
        return [s["loss"] for s in steps], job.speed([s["seconds"] for s in steps])


class Torch:
    """PyTorch in a separate process; its errors become a RuntimeError here."""

    def __init__(self, job, attention, init=True, **changed):
        self.job, self.attention = job, attention
        self.errors = tempfile.TemporaryFile("w+", dir=job.work)
        words = ["--microbatches", str(job.shape["microbatches"]), "--device", job.o.torch_device,
                 "--compile", job.shape["compile"], "--attention", attention]
        if init:
            words += ["--init", job.init]
        # The compiler's cache does not distinguish the kinds of attention.
        cache = os.path.join(tempfile.gettempdir(),
                             f"torchinductor_{getpass.getuser()}_{attention}")
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "torch_gpt.py"), *job.options(**changed), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_FX_GRAPH_CACHE="1"))

    def ask(self, steps):
        try:
            print(steps, file=self.process.stdin, flush=True)
        except OSError:
            pass  # it has ended with a message

    def answer(self):
        """Returns the losses and seconds of the requested steps."""
        losses, seconds = [], []
        left = min(max(self.job.o.end - time.monotonic(), 0), 1e6)
        timer = threading.Timer(left, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line == "end\n":
                    return losses, seconds
                _, loss, second = line.split()
                losses.append(float(loss))
                seconds.append(float(second))
        finally:
            timer.cancel()
        raise RuntimeError(self.failure())

    def turn(self):
        """Its losses and its speed."""
        self.ask(self.job.steps)
        losses, seconds = self.answer()
        return losses, self.job.speed(seconds)

    def failure(self):
        status = self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip()
        print(said, file=sys.stderr, flush=True)
        if status == -9:
            return "PyTorch took too long (or too much memory)"
        return "PyTorch: " + (said.splitlines()[-1] if said else f"ended with {status}")

    def close(self):
        self.process.kill()
        self.process.wait()


# ---- turns ------------------------------------------------------------------------------

def faster_torch(job, stack):
    """Returns the faster kind of PyTorch, and its first turn."""
    kinds, best, failure = [Torch(job, kind) for kind in ATTENTION], None, None
    for torch in kinds:
        stack.callback(torch.close)
    for torch in kinds:
        case = f"{job.size}.torch_{torch.attention}.tokens"
        try:
            turn = torch.turn()
        except RuntimeError as error:
            failure = error
            print(f"{case}\tfailed\t\t{error}", flush=True)
            continue
        show(case, turn[1], "tokens/s")
        slower = torch
        if not best or turn[1] > best[1][1]:
            slower, best = best and best[0], (torch, turn)
        if slower:
            slower.close()
    if not best:
        raise failure
    return best


def show_padded(job, stack, attention):
    padded = job.shape["padded"]
    case = f"{job.size}.torch_vocab_{padded}.tokens"
    torch = Torch(job, attention, vocab=padded)
    stack.callback(torch.close)
    try:
        show(case, torch.turn()[1], "tokens/s", "not the same model")
    except RuntimeError as error:
        print(f"{case}\tfailed\t\t{error}", flush=True)


def run_turns(job, turns, with_torch):
    """Appends the result of each turn to turns["sluice"] and turns["torch"]."""
    with contextlib.ExitStack() as stack:
        ours, begin = Sluice(job), time.monotonic()
        turns["sluice"].append(ours.turn())
        took = 2 * (time.monotonic() - begin)
        if with_torch:
            theirs, first = faster_torch(job, stack)
            turns["torch"].append(first)
            turns["attention"] = theirs.attention
        for _ in range(1, job.o.pairs):
            begin = time.monotonic()
            if begin + took > job.o.end:
                print(f"{job.size}: no time for {job.o.pairs} pairs")
                break
            turns["sluice"].append(ours.turn())
            if with_torch:
                turns["torch"].append(theirs.turn())
            took = time.monotonic() - begin
        if with_torch and job.shape["padded"] and time.monotonic() + 2 * took < job.o.end:
            show_padded(job, stack, theirs.attention)


def fill_cache(o, sizes):
    """Runs a step of each PyTorch configuration, those of one size concurrently."""
    for size in sizes:
        with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
            job = Job(o, size, work)
            started = [Torch(job, kind, init=False) for kind in ATTENTION]
            if job.shape["padded"]:
                started.append(Torch(job, ATTENTION[-1], init=False, vocab=job.shape["padded"]))
            for torch in started:
                stack.callback(torch.close)
                torch.ask(1)
            for torch in started:
                try:
                    torch.answer()
                except RuntimeError as error:
                    print(f"{size}: {error}", flush=True)


# ---- figures ----------------------------------------------------------------------

def show_speed(case, speed, shape, peaks, note=None):
    show(f"{case}.tokens", speed, "tokens/s", note)
    rate = speed * flops_per_token(shape) * 1e-12
    show(f"{case}.model", rate, "TFLOP/s")
    for of, peak in peaks.items():
        show(f"{case}.of_{of}_peak", 100 * rate / peak, "%")


def show_comparison(size, ours, theirs):
    """Prints the comparison; returns whether the losses agree."""
    show(f"{size}.ratio", statistics.median(a[1] / b[1] for a, b in zip(ours, theirs)), "times",
         "at least 1, goal 1.2")
    apart = max(abs(a - b) / b for a, b in zip(ours[0][0], theirs[0][0]))
    show(f"{size}.loss_difference", apart, "relative", f"at most {LOSS_LIMIT:g}")
    return apart <= LOSS_LIMIT


def bench(o, size, with_torch, peaks):
    """Runs the bench for one size; returns whether nothing failed."""
    turns, failure = {"sluice": [], "torch": []}, None
    with tempfile.TemporaryDirectory() as work:
        job = Job(o, size, work)
        try:
            run_turns(job, turns, with_torch)
        except RuntimeError as error:
            failure = str(error)
    for who in ("sluice", "torch"):
        if turns[who]:
            note = f"attention: {turns['attention']}" if who == "torch" else None
            show_speed(f"{size}.{who}", statistics.median(speed for _, speed in turns[who]),
                       job.shape, peaks, note)
    agree = not turns["torch"] or show_comparison(size, turns["sluice"], turns["torch"])
    if failure or not with_torch:
        reason = failure or "PyTorch is not installed for this python3"
        print(f"{size}.comparison\tfailed\t\t{reason}", flush=True)
    return agree and not failure


def find_peaks(o):
    """Returns TFLOP/s by name: of the plain product of bench_kernels, and from the data sheet."""
    program, peaks = os.path.join(o.build, "tests/gpu_bench_kernels"), {}
    if not os.path.exists(program):
        return peaks
    out = subprocess.run([program, "linear_8192"], check=False, capture_output=True, text=True)
    for line in out.stdout.splitlines():
        if line.startswith("linear_8192\t"):
            peaks["measured"] = float(line.split("\t")[1])
        elif "\t" not in line:
            rates = [rate for part, rate in NOMINAL.items() if part in line]
            peaks.update({"nominal": rates[0]} if rates else {})
    return peaks


def has_gpu(o):
    """Returns whether actorrun finds a GPU, and prints why not. Any other error ends the program."""
    there = subprocess.run([o.actorrun, "--devices", o.devices, "--show-placement"],
                           capture_output=True, text=True, check=False)
    if not there.returncode:
        return True
    said = (there.stderr or there.stdout).strip()
    if not any(why in said for why in ("no NVIDIA driver", "no usable GPU", "no GPU")):
        sys.exit(said)
    print(f"skipped: {said}")
    return False


def main():
    o = options()
    with_torch, sizes = importlib.util.find_spec("torch") is not None, o.size or ["124M", "774M"]
    if o.fill_cache:
        if with_torch:
            fill_cache(o, sizes)
        return 0
    if not has_gpu(o):
        return 77
    peaks = find_peaks(o)
    for name, rate in peaks.items():
        show(f"peak.{name}", rate, "TFLOP/s")
    return int(not all([bench(o, size, with_torch, peaks) for size in sizes]))


if __name__ == "__main__":
    sys.exit(main())
