# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained model with LoRA: finetune.py FOLDER_OR_GGUF TEXT_FILE [STEPS]."""
import sys

import sluice as sl

path, text, steps = sys.argv[1], sys.argv[2], int((sys.argv + ["50"])[3])
prompt = [{"role": "user", "content": "What is a dataflow actor?"}]

model = sl.load(path, data=[text], context=128, batch=4)
print("before:", model.generate(prompt, max_tokens=40))

run = sl.Run(model, lora={"self_attn.*_proj": (8, 16)}, optimizer="adamw:lr=1e-3",
             lr_schedule="cosine:warmup=5", total_steps=steps, threads=2)
for step in run.train(steps)[::5]:
    print("step %3d, loss %.3f" % (step.step, step.loss))

print("after:", run.generate(prompt, max_tokens=40))
run.save_adapter("adapter", base=path)  # in PEFT's format; run.save("tuned/") writes the whole model
