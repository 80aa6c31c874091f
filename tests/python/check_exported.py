# SPDX-License-Identifier: Apache-2.0
"""Runs torch.export programs on arrays, without PyTorch, and compares their losses with PyTorch's."""
import json
import os
import tarfile
import tempfile
import unittest

import numpy as np
import sluice as sl

AT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference", "pytorch")
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0, "clip": 0}
LANGUAGE = ("gpt2", "llama")


class Exported(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.at = folder.name
        for name in LANGUAGE + ("vit",):
            with tarfile.open(os.path.join(AT, name + ".tar.gz")) as tar:
                tar.extractall(cls.at)
        try:
            sl.load(os.path.join(cls.at, "gpt2", "model.pt2"))
        except sl.UnsupportedError as error:  # built without libzip
            raise unittest.SkipTest(str(error)) from None

    def model(self, name):
        """Returns (path of the program, its inputs, PyTorch's figures)."""
        folder = os.path.join(self.at, name)
        with open(os.path.join(folder, "figures.json"), encoding="utf-8") as file:
            figures = json.load(file)
        inputs = {f[:-4]: np.load(os.path.join(folder, f)) for f in os.listdir(folder) if f.endswith(".npy")}
        return os.path.join(folder, "model.pt2"), inputs, figures

    def test_losses_are_those_of_pytorch(self):
        for name in LANGUAGE + ("vit",):
            path, inputs, figures = self.model(name)
            for options in ({}, {"stages": 2, "microbatches": 2, "schedule": "zb-h1"}, {"stages": 2, "microbatches": 4},
                            {"data_parallel": 2}, {"stages": 2, "microbatches": 2, "quotas": {"act.b@0": 2}}):
                with self.subTest(name, **options), sl.Run(path, inputs=inputs, **ADAMW, **options) as run:
                    losses = [s.loss for s in run.train(10)]
                    np.testing.assert_allclose(losses, figures["losses"], rtol=1e-5)

    def test_evaluation_is_of_the_parameters_as_they_are(self):
        path, inputs, figures = self.model("gpt2")
        with sl.Run(path, inputs=inputs, microbatches=2, **ADAMW) as run:
            self.assertAlmostEqual(run.evaluate(**inputs)["loss"], figures["losses"][0], 5)
            run.train(3)
            self.assertAlmostEqual(run.evaluate(**inputs)["loss"], figures["losses"][3], 5)
            one = [run.evaluate(**{k: a[i:i + 1] for k, a in inputs.items()})["loss"] for i in range(4)]
            self.assertAlmostEqual(np.mean(one), figures["losses"][3], 5)
            with self.assertRaisesRegex(TypeError, "no data for input labels; the inputs are ids, labels"):
                run.evaluate(ids=inputs["ids"])

    def test_batches_of_other_rows(self):
        path, inputs, figures = self.model("llama")
        twice = {k: np.concatenate([a, a]) for k, a in inputs.items()}
        with sl.Run(path, inputs=twice, batch=8, microbatches=2, **ADAMW) as run:
            np.testing.assert_allclose([s.loss for s in run.train(10)], figures["losses"], rtol=1e-5)
        halves = []
        with sl.Run(path, inputs=inputs, batch=2, lr=1e-9, weight_decay=0) as run:
            halves = [s.loss for s in run.train(2)]
        self.assertAlmostEqual(np.mean(halves), figures["losses"][0], 5)
        with self.assertRaisesRegex(sl.Error, "batch of 6 rows cannot be cut into 4"):
            sl.Run(path, inputs=inputs, batch=6, microbatches=4)

    def test_held_out_rows_are_evaluated_as_the_run_goes(self):
        path, inputs, _ = self.model("gpt2")
        held_out = {k: a[::-1][:3] for k, a in inputs.items()}
        with sl.Run(path, inputs=inputs, held_out=held_out, eval_every=2, **ADAMW) as run:
            run.train(4)
            self.assertEqual([e.steps for e in run.evaluations], [2, 4])
            self.assertAlmostEqual(run.evaluate(**held_out)["loss"], run.evaluations[-1].loss, 5)

    def test_plans_names_and_files(self):
        path, inputs, _ = self.model("gpt2")
        plan = sl.plan(path, stages=2, microbatches=2)
        self.assertEqual([s["blocks"] for s in plan.stages], [["embedding", "model.transformer.h.0"], ["model.transformer.h.1", "head"]])
        program = sl.load(path, inputs=inputs, batch=2)
        self.assertEqual(repr(program), "<Program model.pt2: ids [rows, 16], labels [rows, 16]>")
        self.assertEqual(program.inputs, {"ids": (None, 16), "labels": (None, 16)})
        with sl.Run(program) as run:
            self.assertIn("model.transformer.h.0.attn.c_attn.weight", run.params)
            kept = os.path.join(self.at, "w.safetensors")
            run.train(2)
            run.save(kept)
            loss = run.evaluate(**inputs)["loss"]
        with sl.Run(path, inputs=inputs, weights=kept) as run:
            self.assertAlmostEqual(run.evaluate(**inputs)["loss"], loss, 6)

    def test_what_is_wrong_is_named(self):
        path, inputs, _ = self.model("gpt2")
        ids, labels = inputs["ids"], inputs["labels"]
        for kind, says, options in (
                (TypeError, "no data for input labels; the inputs are ids, labels", {"inputs": {"ids": ids}}),
                (TypeError, "the program has no 'label'; did you mean labels", {"inputs": {"ids": ids, "label": labels}}),
                (ValueError, r"input ids is rows of \[16\], not \[15\]", {"inputs": {"ids": ids[:, :15], "labels": labels}}),
                (TypeError, "input ids must have integers, not float32", {"inputs": {"ids": ids * 1.0, "labels": labels}}),
                (ValueError, "all inputs must have the same number of rows, not {'ids': 4, 'labels': 3}", {"inputs": {"ids": ids, "labels": labels[:3]}}),
                (ValueError, "does not fit in int32", {"inputs": {"ids": ids + 2 ** 40, "labels": labels}}),
                (TypeError, "Run has no 'learnin_rate'; did you mean learning_rate", {"inputs": inputs, "learnin_rate": 1})):
            with self.assertRaisesRegex(kind, says):
                sl.Run(path, **options)
        with sl.Run(path) as run, self.assertRaisesRegex(ValueError, "the program has no data"):
            run.train(1)
        with self.assertRaisesRegex(TypeError, "sl.load"):
            sl.Run("model")
        with self.assertRaisesRegex(sl.Error, "nosuch.pt2"):
            sl.Run("nosuch.pt2", inputs=inputs)


if __name__ == "__main__":
    unittest.main()
