#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes models/ahead_TYPE.json: a small random model with a block that predicts a token further ahead.

    pip install torch transformers safetensors numpy
    python3 make_ahead.py [TYPE...]

transformers has no such block, so it is put together here from the model's own layers and norms:
fc([norm(embedding of the next token), norm(hidden state)]), a layer, a norm, the model's classifier (DeepSeek-V3,
arXiv 2412.19437). Hidden states come out of the model's last norm. The loss is the model's cross entropy plus 0.3 times
that of the block. A file holds what those of make_models.py hold.
"""
import copy
import json
import os
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file, save_file

import finetune
import make_models
from model_folder import values

PREFIX = {"qwen3_5_text": "mtp.layers.0.", "glm4_moe": "model.layers.4."}
JOINT = {"qwen3_5_text": {"fc": "mtp.fc", "embedding": "mtp.pre_fc_norm_embedding", "hidden": "mtp.pre_fc_norm_hidden", "last": "mtp.norm"},
         "glm4_moe": {"fc": "model.layers.4.eh_proj", "embedding": "model.layers.4.enorm", "hidden": "model.layers.4.hnorm",
                      "last": "model.layers.4.shared_head.norm"}}


class Ahead(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        core, width = model.model, model.config.hidden_size
        self.model = model
        self.fc = torch.nn.Linear(2 * width, width, bias=False)
        self.embedding, self.hidden, self.last = (copy.deepcopy(core.norm) for _ in range(3))
        self.layer = copy.deepcopy(core.layers[-1])

    def forward(self, tokens):
        """Returns the logits of the next token, and those of the token after it for all rows but the last."""
        core = self.model.model
        hidden = core(input_ids=tokens[:, :-1]).last_hidden_state
        both = [self.embedding(core.embed_tokens(tokens[:, 1:-1])), self.hidden(hidden[:, :-1])]
        x = self.fc(torch.cat(both, -1))
        places = torch.arange(x.shape[1])[None]
        x = self.layer(x, attention_mask=None, position_ids=places, position_embeddings=core.rotary_emb(x, places))
        return self.model.lm_head(hidden), self.model.lm_head(self.last(x))


def loss_of(model, stream, context, first, count):
    rows = torch.tensor(np.stack([stream[i * context:(i + 1) * context + 1] for i in range(first, first + count)]))
    one, two = model(rows)
    return F.cross_entropy(one.flatten(0, 1), rows[:, 1:].flatten()) + 0.3 * F.cross_entropy(two.flatten(0, 1), rows[:, 2:].flatten())


def files_of(kind, model):
    """Returns {tensor of a file: values of the module} for the block; experts are apart in files."""
    out = {}
    for part, name in JOINT[kind].items():
        out[name + ".weight"] = getattr(model, part).weight
    for name, value in model.layer.named_parameters():
        name = PREFIX[kind] + name
        if ".experts." not in name:
            out[name] = value
        for e in range(len(value) if ".experts." in name else 0):
            parts = value[e].chunk(2) if "gate_up" in name else [value[e]]
            for part, of in zip(("gate", "up") if len(parts) == 2 else ("down",), parts):
                out[f"{name.rsplit('.', 1)[0]}.{e}.{part}_proj.weight"] = of
    for name, value in model.layer.named_buffers():
        out[PREFIX[kind] + name] = value
    return out


def make(kind, folder):
    made = make_models.make(kind, folder)
    path = os.path.join(folder, "model.safetensors")
    model = Ahead(finetune.load(folder))
    tensors = load_file(path)
    for name, value in files_of(kind, model).items():
        shape, wide = list(value.shape), value.ndim > 1
        entry = [shape, 0 if wide else float(round(value.detach().double().mean().item())), round(1.2 / np.sqrt(shape[-1]) if wide else 0.3, 4)]
        made["tensors"][name] = entry
        tensors[name] = np.frombuffer(values(name, *entry), np.float32).reshape(shape)
        with torch.no_grad():
            value.copy_(torch.tensor(tensors[name]))
    save_file(tensors, path, {"format": "pt"})
    stream = finetune.tokens_of(folder, os.path.join(make_models.HERE, "text.txt"))
    finetune.loss_of = loss_of
    args = make_models.argparse.Namespace(context=32, batch=4, steps=5, lr=1e-3)
    made["steps"] = [[loss, norm] for _, _, loss, norm in finetune.train(model.eval(), stream, None, args)]
    return made


def main():
    for kind in sys.argv[1:] or PREFIX:
        loss = finetune.loss_of
        with tempfile.TemporaryDirectory() as folder:
            made = make(kind, folder)
        finetune.loss_of = loss
        with open(os.path.join(make_models.HERE, "models", f"ahead_{kind}.json"), "w") as file:
            json.dump(made, file)
            file.write("\n")
        print(made["steps"])


if __name__ == "__main__":
    main()
