#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rollouts of prompts with frames on the virtual clock, by the measured tables of an A100: the seconds are those of a real
encoder, a transformer of 2 layers. Q devices share the F frames of a prompt, also if F is less than Q: each encodes
its own in the time that one device takes for so many, and none begins to read the prompt before all are encoded. With
apart=1 encoders run once for each answer and for each model that reads them (MR-SP: LongVILA-R1, arXiv 2507.07966).
labels: outside
"""
from frames import encoder_times, write_frames
from tool import BUILD, Runs, ends

GROUP = 8
OPTIONS = ("--clock virtual --machine a100-sxm-80gb --dtype bf16 --steps 2 --trace trace --prompts prompts.jsonl "
           "--reward exact --max-tokens 2")
MODEL = "{source}/examples/which_digit.c --vision-width 512 --vision-layers 2 --width 64 --layers 1 --batch 8 "


def measure(frames, devices, apart=0):
    """Returns the seconds of each device's encoders, those until the prompt is read, and those of the step."""
    run = Runs(MODEL + write_frames(".", frames, 256, 48, 16), OPTIONS)
    report = run(f"--devices timed:{devices} --data-parallel {devices} --rl grpo:group={GROUP},kl=0.01,apart={apart}")
    spent, wait = encoder_times(ends(0, f"{BUILD}/bin/actortrace", "rows trace").stdout, devices, 1)
    return [1e-9 * s for s in spent], wait, report.whole["predicted"]["step_seconds"]


alone, step = {}, {}
for frames in (1, 2, 3, 6, 12):
    (alone[frames],), _, step[frames] = measure(frames, 1)
assert 1.5 * alone[1] < alone[12] < 6 * alone[1], alone  # products of few rows are slow in the tables

for devices in (2, 8):
    for frames in (1, 3, 6, 12):
        spent, wait, _ = measure(frames, devices)
        own = [frames // devices + (r < frames % devices) for r in range(devices)]
        # one device's pass also puts the rows in their place, in 5 us
        assert all(abs(s - alone[n] + 5e-6) < 1e-7 if n else s == 0 for s, n in zip(spent, own)), (spent, own, alone)
        assert wait > 0, (frames, devices, wait)

for frames in (1, 12):
    (spent,), _, longer = measure(frames, 1, apart=1)
    assert abs(spent / (3 * GROUP * alone[frames]) - 1) < 1e-6, (spent, alone)
    assert abs((longer - step[frames]) / ((3 * GROUP - 1) * alone[frames]) - 1) < 1e-3, (longer, step, alone)
