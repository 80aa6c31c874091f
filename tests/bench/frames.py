#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rollouts of prompts with frames, which are encoded once and shared by devices (MR-SP: LongVILA-R1, arXiv 2507.07966).

    SLUICE_BUILD=build/release tests/bench/frames.py                 # at size, by the tables of an A100
    SLUICE_BUILD=build/release tests/bench/frames.py --here FILE     # this machine beside FILE of `actortune machine`

At size a vision transformer of 27 layers of width 1,152 turns each frame of 1,024 patches into 256 rows of a text model
of 28 layers of width 3,584, which gives 8 answers to a prompt. Here a smaller one runs on one core and on two, with
fewer frames than devices too. The seconds of the encoders are the longest of the devices', of the fastest step.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../support")
from frames import encoder_times, write_frames  # noqa: E402

MODEL = HERE + "/../../examples/which_digit.c"
BIG = (1024, 588, 4), "--vision-width 1152 --vision-layers 27 --heads 16 --width 3584 --layers 28"
SMALL = (64, 192, 4), "--vision-width 256 --vision-layers 4 --heads 4 --width 64 --layers 1"
GROUP = 8


def run(folder, size, frames, devices, apart, options, steps=2):
    """Returns the seconds of the encoders in a step, and those of a step."""
    (patches, pixels, merged), model = size
    made = write_frames(folder, frames, patches, pixels, merged)
    tools, trace, report = os.environ["SLUICE_BUILD"] + "/bin/", folder + "/trace", folder + "/report.json"
    subprocess.run([tools + "actorrun", "--quiet", "--steps", str(steps), "--trace", trace, "--report", report,
                    "--data-parallel", str(devices), "--rl", f"grpo:group={GROUP},kl=0.01,apart={apart}", "--prompts",
                    folder + "/prompts.jsonl", "--reward", "exact", "--max-tokens", "2", *options.split(), MODEL,
                    *made.split(), *model.split(), "--batch", str(GROUP)], check=True)
    rows = subprocess.run([tools + "actortrace", "rows", trace], check=True, capture_output=True, text=True).stdout
    with open(report) as file:
        step = json.load(file)["step_seconds"]
    return 1e-9 * min(max(encoder_times(rows, devices, i)[0]) for i in range(1, steps)), step


def at_size(folder):
    print("| frames | devices | encoders once | step | encoders apart | step | ratio |\n"
          "| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for frames in (4, 64, 512):
        for devices in (1, 8):
            clock = f"--devices timed:{devices} --clock virtual --machine a100-sxm-80gb --dtype bf16 --memory 100T"
            once, step = run(folder, BIG, frames, devices, 0, clock)
            apart, longer = run(folder, BIG, frames, devices, 1, clock)
            print(f"| {frames} | {devices} | {once:.3f} s | {step:.2f} s | {apart:.3f} s | {longer:.2f} s | "
                  f"{longer / step:.2f} |", flush=True)


def here(folder, machine):
    print("| frames | devices | encoders, clock | real | off |\n| --- | --- | --- | --- | --- |", flush=True)
    for frames, devices in ((1, 1), (2, 1), (8, 1), (32, 1), (1, 2), (3, 2), (8, 2), (32, 2)):
        clock, _ = run(folder, SMALL, frames, devices, 0, f"--devices timed:{devices} --clock virtual --machine {machine}")
        real, _ = run(folder, SMALL, frames, devices, 0, f"--devices cpu:{devices}x1", 40)
        print(f"| {frames} | {devices} | {1e3 * clock:.2f} ms | {1e3 * real:.2f} ms | {100 * (clock / real - 1):+.1f} % |",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here(folder, args.here) if args.here else at_size(folder)


main()
