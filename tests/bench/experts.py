#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a mixture of 8 experts with a dense model of the same active size, at equal processor time.

    python3 experts.py ACTORRUN TEXT OUT.svg [SECONDS]

Both have 3 blocks of width 64 and train on one core. The dense model has an inner width of 192; the
mixture has 8 experts of that width and routes each token to one. Each model trains for as many steps
as fit into SECONDS (60) of processor time, estimated from its first steps; the learning rate decays
over all of them. The last 42,000 bytes of TEXT are held out; the curves in OUT.svg are the cross
entropy on them.
"""
import json
import os
import subprocess
import sys
import tempfile

COMMON = ["--layers", "3", "--width", "64", "--heads", "4", "--context", "64", "--batch", "16", "--lr", "3e-3",
          "--min-lr", "3e-4", "--warmup", "50"]
MODELS = {
    "dense": ["llama", "--ffn", "192"],
    "8 experts": ["mixtral", "--experts", "8", "--top-k", "1", "--norm-topk", "0", "--expert-ffn", "192",
                  "--aux-loss", "0.01"],
}
COLOURS = ["#888888", "#1f6fb2"]


def curve(report):
    """Returns pairs of processor seconds and held-out cross entropy, one per evaluation."""
    seconds, total = [], 0
    for step in report["steps"]:
        total += step["cpu_seconds"]
        seconds.append(total)
    return [(seconds[int(e["steps"]) - 1], e.get("metrics", {}).get("cross-entropy", e["loss"]))
            for e in report["evaluations"]]


def train(actorrun, folder, steps, model):
    """Trains the model and returns the report."""
    path = os.path.join(folder, "report.json")
    subprocess.run([actorrun, "--quiet", "--devices", "cpu:1x1", "--shuffle", "1", "--report", path,
                    "--eval", os.path.join(folder, "held.txt"), "--eval-every", "50", "--steps", str(steps),
                    *model, "--data", os.path.join(folder, "train.txt"), *COMMON,
                    "--decay-steps", str(steps)], check=True)
    with open(path) as file:
        return json.load(file)


def steps_in(actorrun, folder, seconds, model):
    """Returns the number of steps that fit into `seconds`, a multiple of the evaluation interval."""
    times = sorted(s["cpu_seconds"] for s in train(actorrun, folder, 100, model)["steps"][20:])
    return max(round(seconds / times[len(times) // 2] / 50), 2) * 50


def draw(curves):
    width, height, left, bottom = 640, 360, 56, 44
    most = max(x for c in curves.values() for x, _ in c)
    low, high = min(y for c in curves.values() for _, y in c) - 0.03, 2.3
    def at(x, y):
        return (left + (width - left - 16) * x / most, 12 + (height - bottom - 12) * (high - min(y, high)) / (high - low))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>']
    ticks = [y / 10 for y in range(10, 24) if low <= y / 10 <= high]
    for y in ticks:
        _, v = at(0, y)
        out.append(f'<line x1="{left}" x2="{width - 16}" y1="{v:.1f}" y2="{v:.1f}" stroke="#e4e4e4"/>'
                   f'<text x="{left - 8}" y="{v + 4:.1f}" text-anchor="end">{y:.1f}</text>')
    for x in range(0, int(most) + 1, 20):
        h, _ = at(x, high)
        out.append(f'<text x="{h:.1f}" y="{height - bottom + 18}" text-anchor="middle">{x}</text>')
    out.append(f'<text x="{(left + width) / 2}" y="{height - 8}" text-anchor="middle">seconds of one core</text>')
    for i, (name, points) in enumerate(curves.items()):
        line = " ".join(f"{h:.1f},{v:.1f}" for h, v in (at(x, y) for x, y in points))
        out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[i]}" stroke-width="2"/>'
                   f'<text x="{width - 24}" y="{34 + 18 * i}" text-anchor="end" fill="{COLOURS[i]}">{name}: '
                   f'{points[-1][1]:.3f} after {points[-1][0]:.0f} s</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    actorrun, text, picture = sys.argv[1:4]
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 60
    with tempfile.TemporaryDirectory() as folder:
        with open(text, "rb") as file:
            data = file.read()
        for name, part in ("train.txt", data[:-190000]), ("held.txt", data[-190000:][:42000]):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(part)
        curves = {name: curve(train(actorrun, folder, steps_in(actorrun, folder, seconds, model), model))
                  for name, model in MODELS.items()}
    with open(picture, "w") as file:
        file.write(draw(curves))


if __name__ == "__main__":
    main()
