# SPDX-License-Identifier: Apache-2.0
"""Compares a GPT-2 written in Python with PyTorch's results; tests/reference/README.md has the settings."""
import json
import os
import unittest

import numpy as np
import sluice as sl

AT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference")
CONTEXT, VOCAB = 32, 256
OPTIMIZER = {"lr": 3e-3, "min_lr": 3e-4, "warmup": 4, "decay_steps": 16, "beta1": 0.9,
             "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0}


def sequences():
    tokens = np.fromfile(os.path.join(AT, "tokens.u16"), "<u2")
    n = (len(tokens) - 1) // CONTEXT
    return (tokens[:n * CONTEXT].reshape(n, CONTEXT), tokens[1:n * CONTEXT + 1].reshape(n, CONTEXT))


def dense(g, x, inputs, outputs, name):
    w = g.param(name + ".weight", (inputs, outputs))
    return g.linear(x, w, g.param(name + ".bias", (outputs,)), transposed=True)


def norm(g, x, name):
    gain = g.param(name + ".weight", x.shape[-1:], sl.constant(1))
    return g.layernorm(x, gain, g.param(name + ".bias", x.shape[-1:], sl.constant(0)), 1e-5)


def gpt(g, tokens, targets, layers=4, width=64, heads=4):
    wte = g.param("transformer.wte.weight", (VOCAB, width))
    x = g.position(g.embedding(tokens, wte), g.param("transformer.wpe.weight", (CONTEXT, width)))
    for i in range(layers):
        h = "transformer.h.%d." % i
        g.block("h.%d" % i)
        a = dense(g, norm(g, x, h + "ln_1"), width, 3 * width, h + "attn.c_attn")
        a = g.attention_packed(a, heads=heads)
        x = x + dense(g, a, width, width, h + "attn.c_proj")
        m = dense(g, norm(g, x, h + "ln_2"), width, 4 * width, h + "mlp.c_fc")
        x = x + dense(g, g.gelu(m), 4 * width, width, h + "mlp.c_proj")
    g.block("head")
    logits = g.linear(norm(g, x, "transformer.ln_f"), wte)
    g.output("logits", logits)
    g.train(g.cross_entropy(logits, targets), **OPTIMIZER)


def from_arrays(g):
    tokens, targets = sequences()
    g.block("embedding")
    gpt(g, *g.data(8, tokens=tokens, targets=targets))


def from_file(g):
    g.block("embedding")
    gpt(g, *g.tokens(os.path.join(AT, "tokens.u16"), g.rows(8), CONTEXT, VOCAB))


class Reference(unittest.TestCase):
    def expected(self):
        with open(os.path.join(AT, "gpt_losses.txt"), encoding="utf-8") as file:
            lines = [line.split() for line in file if line[0].isdigit()]
        return np.array([[float(word) for word in line] for line in lines])

    def train(self, model, **options):
        with sl.Run(model, microbatches=4, weights=os.path.join(AT, "gpt_init.safetensors"),
                    **options) as run:
            return np.array([s.loss for s in run.train(20)])

    def test_losses_are_those_of_pytorch(self):
        expected = self.expected()
        losses = self.train(from_arrays)
        np.testing.assert_allclose(losses, expected[:, 1], rtol=1e-6)
        np.testing.assert_array_equal(losses, self.train(from_file, stages=2, schedule="zb-h1"))

    def test_tokens_go_in_and_logits_come_out(self):
        tokens, targets = sequences()
        weights = os.path.join(AT, "gpt_init.safetensors")
        with sl.Run(from_arrays, weights=weights) as run, sl.Run(from_file, weights=weights) as file:
            logits = run.infer(tokens=tokens[:8])["logits"]
            one = file.infer(tokens=tokens[:8])["logits"]
            loss = run.evaluate(tokens=tokens[:8], targets=targets[:8])["loss"]
        self.assertEqual(logits.shape, (8, CONTEXT, VOCAB))
        # The model of the file reads one sequence at a time, for which libraries sum products in another order.
        np.testing.assert_allclose(one, logits, rtol=0, atol=1e-5)
        self.assertAlmostEqual(loss, self.expected()[0, 1], 4)

    def test_a_hugging_face_folder_gives_its_logits(self):
        expected = safetensors(os.path.join(AT, "hf_gpt2", "expected.safetensors"))
        tokens, targets = expected["tokens"], expected["targets"]

        def model(g):
            gpt(g, *g.data(len(tokens), tokens=tokens, targets=targets), layers=2, width=32, heads=2)
        with sl.Run(model, weights=os.path.join(AT, "hf_gpt2")) as run:
            found = run.evaluate(tokens=tokens, targets=targets)
        np.testing.assert_allclose(found["logits"], expected["logits"], rtol=1e-5, atol=2e-6)
        self.assertAlmostEqual(found["loss"], expected["loss_f64"][0], 6)


def safetensors(path):
    """Returns {name: array} of a file."""
    data = np.fromfile(path, "u1")
    begin = 8 + int(data[:8].view("<u8")[0])
    kinds = {"F32": "<f4", "F64": "<f8", "I32": "<i4"}
    return {name: data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]].copy().view(
                kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(bytes(data[8:begin])).items() if name != "__metadata__"}


if __name__ == "__main__":
    unittest.main()
