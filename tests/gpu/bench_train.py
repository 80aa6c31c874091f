#!/usr/bin/env python3
"""Training speed of GPT-2 on one GPU in bf16, beside PyTorch (torch_gpt.py: torch.compile,
bf16 autocast, its flash attention, fused AdamW) in the same run.

    bench_train.py [--size 124M|774M|tiny]... [--rows N] [--microbatches N] [-- ACTORRUN OPTIONS]

The two take turns, pair by pair, on the same tokens (random ones, the k-th with a share of
about 1/k of the text). Every turn has one step that is not timed; figures are medians
of the pairs. The first turn starts both from the same weights, and their losses are compared.

Model flops a token are 6 N + 12 L C T: two for each parameter forward and four backward,
and the two products of attention, forward and backward, over the whole square, for L layers of
width C at context T (Chowdhery et al., "PaLM", arXiv 2204.02311, appendix B). N counts the tied
table once, for it multiplies as the classifier, and not the positions. Utilisation is their
rate over that of a plain product of 8192 x 8192 x 8192 on this GPU, measured in this run, and
over what NVIDIA's data sheet says of it.

Prints `case<TAB>value<TAB>unit[<TAB>target]`. Without PyTorch only Sluice runs. Ends with 1 if
a run failed or the losses are too far from each other.
"""
import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

SIZES = {
    "tiny": dict(layers=2, width=64, heads=2, context=64, vocab=300, rows=2, microbatches=2),
    "124M": dict(layers=12, width=768, heads=12, context=1024, vocab=50257, rows=16,
                 microbatches=4),
    "774M": dict(layers=36, width=1280, heads=20, context=1024, vocab=50257, rows=8,
                 microbatches=4),
}

# Dense bf16, TFLOP/s, by the data sheets.
NOMINAL = {"H100 80GB HBM3": 989, "H200": 989, "GH200": 989, "H100 NVL": 835, "H100 PCIe": 756,
           "A100": 312}

LOSS_LIMIT = 0.01  # relative, in any step of the first turn


def options():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", choices=SIZES, action="append", help="default: 124M and 774M")
    p.add_argument("--rows", type=int, help="sequences of a microbatch; default: 16 (124M), 8")
    p.add_argument("--microbatches", type=int, help="of a step; default: 4")
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--steps", type=int, default=5, help="timed steps of a turn")
    p.add_argument("--build", default="build/cuda", help="folder of the build")
    p.add_argument("--actorrun", help="default: bin/actorrun of the build")
    p.add_argument("--devices", default="cuda:0", help="of actorrun")
    p.add_argument("--torch-device", default="cuda", help="of PyTorch")
    p.add_argument("--compile", choices=["on", "off"], default="on", help="torch.compile")
    p.add_argument("more", nargs="*", metavar="ACTORRUN OPTIONS")
    o = p.parse_args()
    o.actorrun = o.actorrun or os.path.join(o.build, "bin/actorrun")
    return o


def show(case, value, unit, target=None):
    print(f"{case}\t{value:.4g}\t{unit}" + (f"\t{target}" if target else ""), flush=True)


# ---- the job -------------------------------------------------------------------------

def shape_of(o, size):
    shape = dict(SIZES[size])
    for name in ("rows", "microbatches"):
        shape[name] = getattr(o, name) or shape[name]
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


# ---- who runs it ------------------------------------------------------------------------

class Sluice:
    def __init__(self, o, shape, data, work):
        self.o, self.work, self.shape = o, work, shape
        self.model = ["gpt", *model_options(shape, data)]
        self.init = os.path.join(work, "init.safetensors")
        self.call("--steps", "0", "--save", self.init)

    def call(self, *words):
        subprocess.run([self.o.actorrun, "--quiet", *words, *self.model], check=True)

    def turn(self):
        """Losses, and tokens per second of the steps after the first."""
        report = os.path.join(self.work, "report")
        self.call("--devices", self.o.devices, "--dtype", "bf16", "--init", self.init,
                  "--microbatches", str(self.shape["microbatches"]), "--steps",
                  str(self.o.steps + 1), "--report", report, *self.o.more)
        with open(report, encoding="utf-8") as f:
            steps = json.load(f)["steps"]
        seconds = sum(s["seconds"] for s in steps[1:])
        return [s["loss"] for s in steps], self.o.steps * self.shape["tokens"] / seconds


class Torch:
    def __init__(self, o, shape, data, init):
        self.o, self.shape = o, shape
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "torch_gpt.py"), *model_options(shape, data),
             "--microbatches", str(shape["microbatches"]), "--device", o.torch_device,
             "--compile", o.compile, "--init", init],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self):
        print(self.o.steps, file=self.process.stdin, flush=True)
        losses = []
        for line in self.process.stdout:
            what, value = line.split()
            if what == "seconds":
                return losses, self.o.steps * self.shape["tokens"] / float(value)
            losses.append(float(value))
        raise RuntimeError("PyTorch's process ended")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- figures ----------------------------------------------------------------------

def run_pairs(o, shape, with_torch, work):
    """For each of the two, by name: the losses of the first turn, the speed of each."""
    data = os.path.join(work, "tokens.u16")
    write_tokens(data, shape["tokens"] * (o.steps + 1) + 1, shape["vocab"])
    ours, theirs = Sluice(o, shape, data, work), None
    losses, speeds = {}, {"sluice": [], "torch": []}
    try:
        if with_torch:
            theirs = Torch(o, shape, data, ours.init)
            losses["torch"], _ = theirs.turn()  # compiles
        for pair in range(o.pairs):
            curve, speed = ours.turn()
            speeds["sluice"].append(speed)
            if pair == 0:
                losses["sluice"] = curve
            if theirs:
                speeds["torch"].append(theirs.turn()[1])
    finally:
        if theirs:
            theirs.close()
    return losses, speeds


def show_speed(case, speed, shape, measured, nominal):
    show(f"{case}.tokens", speed, "tokens/s")
    rate = speed * flops_per_token(shape) * 1e-12
    show(f"{case}.model", rate, "TFLOP/s")
    for of, peak in (("measured", measured), ("nominal", nominal)):
        if peak:
            show(f"{case}.of_{of}_peak", 100 * rate / peak, "%")


def bench(o, size, with_torch, measured, nominal):
    """Whether the losses agree."""
    shape = shape_of(o, size)
    with tempfile.TemporaryDirectory() as work:
        losses, speeds = run_pairs(o, shape, with_torch, work)
    for who, values in speeds.items():
        if values:
            show_speed(f"{size}.{who}", statistics.median(values), shape, measured, nominal)
    if not with_torch:
        return True
    ratio = statistics.median(a / b for a, b in zip(speeds["sluice"], speeds["torch"]))
    show(f"{size}.ratio", ratio, "times", "at least 1, goal 1.2")
    apart = max(abs(a - b) / b for a, b in zip(losses["sluice"], losses["torch"]))
    show(f"{size}.loss_difference", apart, "relative", f"at most {LOSS_LIMIT:g}")
    return apart <= LOSS_LIMIT


def measured_peak(o):
    """TFLOP/s of the plain product, by bench_kernels, and the GPU's name; 0 and "" without it."""
    program = os.path.join(o.build, "tests/gpu_bench_kernels")
    if not os.path.exists(program):
        return 0, ""
    out = subprocess.run([program, "linear_8192"], check=True, capture_output=True, text=True)
    name, *lines = out.stdout.splitlines()
    return float(next(l.split("\t")[1] for l in lines if l.startswith("linear_8192"))), name


def main():
    o = options()
    there = subprocess.run([o.actorrun, "--devices", o.devices, "--show-placement"],
                           capture_output=True, text=True, check=False)
    if there.returncode:
        print(f"skipped: {(there.stderr or there.stdout).strip()}")
        return 0
    with_torch = importlib.util.find_spec("torch") is not None
    if not with_torch:
        print("PyTorch is not installed for this python3: Sluice runs alone")
    peak, name = measured_peak(o)
    nominal = next((rate for part, rate in NOMINAL.items() if part in name), 0)
    if peak:
        show("peak.measured", peak, "TFLOP/s")
    if nominal:
        show("peak.nominal", nominal, "TFLOP/s")
    failed = False
    for size in o.size or ["124M", "774M"]:
        try:
            failed |= not bench(o, size, with_torch, peak, nominal)
        except (subprocess.CalledProcessError, RuntimeError, BrokenPipeError) as error:
            print(f"{size}: {error}", flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
