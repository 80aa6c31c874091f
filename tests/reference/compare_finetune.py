#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a Hugging Face folder with actorrun and with PyTorch, and prints both losses.

    python3 compare_finetune.py DIR TEXT --eval TEXT --actorrun PATH [--modules q_proj,v_proj]
                                [--context T] [--batch B] [--steps N] [--eval-every N] [--lr X]

One run trains all weights, another trains adapters (LoRA, by PEFT); both evaluate during training and
save. transformers and PEFT, and actorrun, read the saved files, and the script prints the loss that each
finds. Needs the packages of finetune.py, and peft.
"""
import json
import os
import subprocess
import tempfile

import torch
from peft import LoraConfig, get_peft_model

from finetune import arguments, load, loss_of, tokens_of, train


class Comparison:
    def __init__(self, args, scratch):
        self.args, self.scratch, self.worst = args, scratch, 0.0
        self.stream, self.held_out = (tokens_of(args.dir, path, args.tokenizer) for path in (args.text, args.eval))

    def path(self, name):
        return os.path.join(self.scratch, name)

    def actorrun(self, init, *options, steps):
        a, report = self.args, self.path("report.json")
        run = [a.actorrun, "--quiet", "--init", init, "--steps", str(steps), "--report", report, *options]
        run += ["--tokenizer", a.tokenizer] * bool(a.tokenizer)
        run += ["llama", "--data", a.text, "--context", str(a.context), "--batch", str(a.batch), "--lr", str(a.lr),
                "--min-lr", str(a.lr), "--warmup", "0"]
        subprocess.run(run, check=True)
        with open(report) as file:
            found = json.load(file)
        lines = {("step", s["step"]): s["loss"] for s in found["steps"]}
        lines.update({("eval", e["steps"]): e["loss"] for e in found.get("evaluations", [])})
        return lines

    def row(self, what, theirs, ours):
        self.worst = max(self.worst, abs(theirs - ours) / abs(theirs))
        print(f"| {what} | {theirs:.7f} | {ours:.7f} |", flush=True)

    def train(self, title, *options, adapter=None):
        a = self.args
        print(f"\n{title}\n\n| | PyTorch | Sluice |\n| --- | --- | --- |", flush=True)
        model = load(a.dir, adapter=adapter)
        theirs = list(train(model, self.stream, self.held_out, a))
        del model
        ours = self.actorrun(a.dir, "--eval", a.eval, "--eval-every", str(a.eval_every), *options, steps=a.steps)
        for kind, number, loss, *_ in theirs:
            self.row("step %d" % number if kind == "step" else "evaluated after %d" % number, loss,
                     ours[kind, number])

    def read_back(self, what, folder, *options, adapter=None):
        a, model = self.args, load(folder, adapter=adapter)
        with torch.no_grad():
            theirs = loss_of(model, self.stream, a.context, 0, a.batch).item()
        del model
        self.row("read back, " + what, theirs, self.actorrun(folder, *options, steps=1)["step", 0])

    def full(self):
        self.train("All weights", "--save", self.path("tuned/"))
        self.read_back("all weights", self.path("tuned"))

    def adapters(self):
        a, first, mine, merged = self.args, self.path("first"), self.path("mine"), self.path("merged")
        torch.manual_seed(3)
        config = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=a.modules.split(","))
        get_peft_model(load(a.dir), config).save_pretrained(first)
        self.train("Adapters beside " + a.modules.replace(",", ", "), "--adapter", first, "--save-adapter", mine,
                   "--save", merged + "/", adapter=first)
        self.read_back("adapters", a.dir, "--adapter", mine, adapter=mine)
        self.read_back("adapters, merged", merged)


def main():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--actorrun", required=True)
    parser.add_argument("--modules", default="q_proj,v_proj,down_proj")
    args = parser.parse_args()
    if not args.eval:
        parser.error("--eval TEXT is needed")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        comparison = Comparison(args, scratch)
        comparison.full()
        comparison.adapters()
    print(f"\nlargest difference: {comparison.worst:.2g} of the loss")


if __name__ == "__main__":
    main()
