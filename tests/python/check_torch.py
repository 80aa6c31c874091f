# SPDX-License-Identifier: Apache-2.0
"""Compares PyTorch modules in Sluice with the module itself: losses and state; tests data, interrupts and failures."""
import copy
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from xml.etree import ElementTree

import numpy as np
import sluice as sl

HERE = os.path.dirname(os.path.abspath(__file__))
REFERENCE = os.path.join(HERE, "..", "reference")
if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

import sluice.torch  # noqa: E402

ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0, "clip": 0}
PLANS = ({}, {"stages": 2, "microbatches": 2, "schedule": "zb-h1"}, {"stages": 2, "microbatches": 4, "schedule": "1f1b"},
         {"data_parallel": 2}, {"stages": 2, "microbatches": 4, "schedule": "gpipe", "recompute": "full"})


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(width), torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Words(torch.nn.Module):
    """Predicts the next word: tied weights, a buffer that is read, and a buffer and a parameter that are unused."""

    def __init__(self, width=16, words=32):
        super().__init__()
        self.table = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList([Block(width) for _ in range(4)])
        self.head = torch.nn.Linear(width, words, bias=False)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("version", torch.tensor(3))
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.unread = torch.nn.Parameter(torch.ones(3))

    def logits(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x) * self.scale

    def forward(self, ids, labels=None):
        logits = self.logits(ids)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def words(seed=0, rows=8):
    torch.manual_seed(seed)
    module = Words()
    with torch.no_grad():
        module.table.weight.mul_(0.3)
    ids = torch.randint(32, (rows, 6))
    return module, ids, torch.roll(ids, 1, 1)


def trained(module, batches, **settings):
    """Returns the losses of training with PyTorch's AdamW."""
    module = copy.deepcopy(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = module(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses(history):
    return [s.loss for s in history]


class Agreement(unittest.TestCase):
    def test_a_module_is_compared_before_it_trains(self):
        module, ids, labels = words()
        before = [p.detach().clone() for p in module.parameters()]
        with sluice.torch.Run(module, (ids, labels), microbatches=4, **ADAMW) as run:
            self.assertRegex(run.checked, r"agrees with PyTorch: whole, with rows permuted, in 4 microbatches \(\d+\.\d s\)")
        self.assertTrue(all(p.grad is None and torch.equal(p, b) for p, b in zip(module.parameters(), before)))
        with sluice.torch.Run(module, (ids, labels), check=False, **ADAMW) as run:
            self.assertIn("check=False", run.checked)

    def test_dropout_is_left_out_of_the_comparison(self):
        module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))
        with sluice.torch.Run(module, (torch.randn(4, 4), torch.randn(4, 3)), loss=F.mse_loss, **ADAMW) as run:
            self.assertIn("agrees with PyTorch: whole", run.checked)
        self.assertEqual(module[1].p, 0.5)

    def test_the_first_call_that_differs_is_named(self):
        from sluice import agreement
        module, ids, labels = words()
        measure = agreement.measure

        def skewed(path, arrays, rows, microbatches=1):
            loss, gradients = measure(path, arrays, rows, microbatches)
            found = gradients.get("sluice_probe")
            if found is not None and found.shape[-1:] in ((), (32,)):
                gradients["sluice_probe"] = found * 1.5
            return loss * 1.5, gradients
        agreement.measure = skewed
        try:
            with self.assertRaisesRegex(sluice.torch.DisagreementError, r"whole: the loss is .*; the first call that differs is aten\.linear\.default "
                                        r"at .*check_torch\.py:\d+ \(.*\): element \[.*\] is .*, PyTorch's .*; please report it; check=False"):
                sluice.torch.Run(module, (ids, labels), **ADAMW)
        finally:
            agreement.measure = measure

    def test_a_file_is_compared_on_its_example(self):
        module, ids, labels = words()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "words.pt2")
            sluice.torch.export(module, (ids, labels), path)
            self.assertIn("agrees with PyTorch: whole, with rows permuted, in 2 microbatches", sluice.torch.check_file(path))
            np.savez(os.path.join(folder, "batch.npz"), ids=labels.numpy(), labels=ids.numpy())
            self.assertEqual(sluice.torch.main(["check", path, "--like", os.path.join(folder, "batch.npz")]), 0)
            self.assertEqual(sluice.torch.main(["check", os.path.join(folder, "none.pt2")]), 2)


class Numbers(unittest.TestCase):
    def test_losses_are_those_of_pytorch(self):
        module, ids, labels = words()
        expected = trained(module, [(ids, labels)] * 5)
        for plan in PLANS:
            with self.subTest(**plan), sluice.torch.Run(module, (ids, labels), **ADAMW, **plan) as run:
                np.testing.assert_allclose(losses(run.train([(ids, labels)] * 5)), expected, rtol=1e-5)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_transformers(self):
        sys.path.insert(0, REFERENCE)
        self.addCleanup(sys.path.remove, REFERENCE)
        import pytorch_export
        for name in ("gpt2", "llama"):
            wrapped, inputs = pytorch_export.build(name)
            batch = {"input_ids": inputs["ids"], "labels": inputs["labels"]}
            expected = pytorch_export.train(copy.deepcopy(wrapped), [inputs])[:4]
            for plan in PLANS[:4]:
                with self.subTest(name, **plan), sluice.torch.Run(wrapped.model, batch, **ADAMW, **plan) as run:
                    np.testing.assert_allclose(losses(run.train([batch] * 3)), expected[:3], rtol=1e-5)
                    other = copy.deepcopy(wrapped.model)
                    other.load_state_dict(run.state_dict(), strict=True)
                    with torch.no_grad():
                        loss = other(**batch).loss.item()
                    self.assertAlmostEqual(loss, expected[3], 5)
                    self.assertAlmostEqual(run.train([batch])[0].loss, loss, 5)

    def test_a_function_makes_the_loss(self):
        torch.manual_seed(1)
        module, x, y = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)), torch.randn(6, 5), torch.arange(6) % 3
        loss = F.cross_entropy(module(x), y).item()
        with sluice.torch.Run(module, (x, y), loss=F.cross_entropy, lr=1e-2) as run:
            self.assertAlmostEqual(run.evaluate((x, y))["loss"], loss, 5)
            self.assertLess(run.train((x, y), steps=20)[-1].loss, loss)
            self.assertEqual(list(run.state_dict()), list(module.state_dict()))
        with sluice.torch.Run(module, {"input": x, "target": y}, loss=torch.nn.CrossEntropyLoss(), lr=1e-2) as run:
            self.assertAlmostEqual(run.train([{"target": y, "input": x}])[0].loss, loss, 5)

    def test_dropout_is_left_out_of_evaluations(self):
        module, ids, labels = words()
        module.blocks.insert(2, torch.nn.Dropout(0.5))
        with sluice.torch.Run(module.train(), (ids, labels), lr=1e-9) as run:
            with torch.no_grad():
                loss = module.eval()(ids, labels).item()
            self.assertAlmostEqual(run.evaluate((ids, labels))["loss"], loss, 5)
            self.assertNotAlmostEqual(run.train([(ids, labels)])[0].loss, loss, 5)


class State(unittest.TestCase):
    def test_state_goes_back_into_the_module(self):
        module, ids, labels = words()
        before = {name: t.clone() for name, t in module.state_dict().items()}
        with sluice.torch.Run(module, (ids, labels), stages=2, microbatches=2, **ADAMW) as run:
            run.train([(ids, labels)] * 3)
            for name, t in module.state_dict().items():  # the run does not change the module
                self.assertTrue(torch.equal(t, before[name]), name)
            state = run.state_dict()
            self.assertEqual(list(state), list(before))
            self.assertTrue(torch.equal(state["head.weight"], state["table.weight"]))
            self.assertEqual((state["version"].item(), state["version"].dtype), (3, torch.int64))
            module.load_state_dict(state, strict=True)
            self.assertAlmostEqual(run.train([(ids, labels)])[0].loss, module(ids, labels).item(), 5)
            state = run.state_dict()
        with sluice.torch.Run(words(7)[0], (ids, labels), **ADAMW) as run:
            run.load_state_dict(state)
            module.load_state_dict(state)
            self.assertAlmostEqual(run.evaluate((ids, labels))["loss"], module(ids, labels).item(), 5)
            with self.assertRaisesRegex(TypeError, "Run has no 'head.wight'; did you mean head.weight"):
                run.load_state_dict(dict(state, **{"head.wight": state["head.weight"]}))
            with self.assertRaisesRegex(KeyError, "the state lacks version"):
                run.load_state_dict({name: t for name, t in state.items() if name != "version"})
            run.load_state_dict({"version": torch.tensor(4)}, strict=False)
            self.assertEqual(run.state_dict()["version"].item(), 4)
            with self.assertRaisesRegex(ValueError, "buffer scale is a constant of the exported program"):
                run.load_state_dict(dict(state, scale=torch.tensor(2.0)))

    def test_files(self):
        module, ids, labels = words()
        with tempfile.TemporaryDirectory() as folder, sluice.torch.Run(module, (ids, labels), **ADAMW) as run:
            path = os.path.join(folder, "w.safetensors")
            run.train([(ids, labels)] * 2)
            run.save(path)
            read = sluice.torch._read(path)
            for name, value in run.params.items():
                np.testing.assert_array_equal(read[name].numpy(), value)
            sluice.torch.export(module, (ids, labels), os.path.join(folder, "words.pt2"))
            with sl.Run(os.path.join(folder, "words.pt2"), inputs={"ids": ids, "labels": labels}, weights=path) as other:
                self.assertAlmostEqual(other.evaluate(ids=ids, labels=labels)["loss"], run.evaluate(ids=ids, labels=labels)["loss"], 6)

    def test_adapters_are_merged(self):
        module, ids, labels = words()
        with sluice.torch.Run(module, (ids, labels), lora={"blocks.*.up": 2}, **ADAMW) as run:
            run.train([(ids, labels)] * 3)
            self.assertTrue(any("lora_A" in name for name in run.params))
            module.load_state_dict(run.state_dict(), strict=True)
            self.assertAlmostEqual(run.evaluate((ids, labels))["loss"], module(ids, labels).item(), 5)

    def test_frozen_and_bfloat16_parameters(self):
        module, ids, labels = words()
        module.blocks[0].requires_grad_(False)
        module = module.bfloat16()
        with sluice.torch.Run(module, (ids, labels), **ADAMW) as run:
            self.assertIn("agrees with PyTorch", run.checked)
            before = run.state_dict()
            run.train([(ids, labels)] * 2)
            after = run.state_dict()
            self.assertTrue(torch.equal(before["blocks.0.up.weight"], after["blocks.0.up.weight"]))
            self.assertFalse(torch.equal(before["blocks.1.up.weight"], after["blocks.1.up.weight"]))
            self.assertEqual(after["head.weight"].dtype, torch.float32)
            module.load_state_dict(after)
            self.assertEqual(module.head.weight.dtype, torch.bfloat16)


class Rows(IterableDataset):
    def __init__(self, ids, labels):
        self.ids, self.labels = ids, labels

    def __iter__(self):
        return iter(zip(self.ids, self.labels))


class Data(unittest.TestCase):
    def setUp(self):
        self.module, self.ids, self.labels = words(rows=24)
        self.batches = [(self.ids[i:i + 8], self.labels[i:i + 8]) for i in (0, 8, 16)]
        self.expected = trained(self.module, self.batches * 2)

    def run_of(self, **options):
        return sluice.torch.Run(self.module, self.batches[0], check=False, **ADAMW, **options)

    def test_loaders_datasets_and_arrays(self):
        dicts = [{"labels": y, "ids": x, "other": "text"} for x, y in self.batches]
        data = TensorDataset(self.ids, self.labels)
        everything = {"loader": DataLoader(data, 8), "workers": DataLoader(data, 8, num_workers=2), "dataset": data, "dicts": dicts,
                      "arrays": (self.ids, self.labels), "NumPy": {"ids": self.ids.numpy(), "labels": self.labels.numpy()},
                      "no length": DataLoader(Rows(self.ids, self.labels), 8),
                      "a mapped dataset": [{"ids": x, "labels": y} for x, y in zip(self.ids, self.labels)]}
        everything["a mapped dataset"] = DataLoader(everything["a mapped dataset"], 8)
        for name, given in everything.items():
            with self.subTest(name), self.run_of(stages=2, microbatches=2) as run:
                np.testing.assert_allclose(losses(run.train(given, epochs=2)), self.expected, rtol=1e-5)
                self.assertEqual(len(run.train(given, steps=1)), 1)
        with self.run_of() as run:
            np.testing.assert_allclose(losses(run.train(iter(self.batches))), self.expected[:3], rtol=1e-5)
            np.testing.assert_allclose(losses(run.train(batch for batch in self.batches)), self.expected[3:], rtol=1e-5)
            self.assertEqual(len(run.train(iter(self.batches), steps=2)), 2)
            self.assertEqual(len(run.train(self.batches, steps=7)), 7)
        with self.run_of() as run:  # arrays continue, loaders restart
            np.testing.assert_allclose(losses(run.train((self.ids, self.labels), steps=2) + run.train(2)), self.expected[:4], rtol=1e-5)

    def test_batches_of_other_rows(self):
        loader = DataLoader(TensorDataset(self.ids, self.labels), 12)
        expected = trained(self.module, list(loader) * 2)
        with self.run_of(stages=2, microbatches=4) as run:
            run.params["blocks.0.up.bias"] = run.params["blocks.0.up.bias"] + 0  # values set here persist
            np.testing.assert_allclose(losses(run.train(loader, epochs=2)), expected, rtol=1e-5)
            with self.assertRaisesRegex(ValueError, "batches have 8 rows, but the plan is for 12: give Run batch=8"):
                run.train(self.batches)
        with self.run_of(batch=12) as run:
            np.testing.assert_allclose(losses(run.train(TensorDataset(self.ids, self.labels), epochs=2)), expected, rtol=1e-5)
        with self.run_of(microbatches=4) as run:
            with self.assertRaisesRegex(sl.Error, "a batch of 6 rows cannot be cut into 4 equal microbatches"):
                run.train(DataLoader(TensorDataset(self.ids, self.labels), 6))

    def test_a_smaller_last_batch_is_left_out(self):
        loader = DataLoader(TensorDataset(self.ids[:19], self.labels[:19]), 8)
        with self.run_of() as run, self.assertWarnsRegex(UserWarning, "last batch has 3 rows.*drop_last=True"):
            np.testing.assert_allclose(losses(run.train(loader, epochs=2)), trained(self.module, self.batches[:2] * 2), rtol=1e-5)
        with self.run_of() as run, self.assertRaisesRegex(ValueError, "batch 1 has 3 rows, and those before it 8"):
            run.train([self.batches[0], (self.ids[:3], self.labels[:3]), self.batches[1]])

    def test_evaluation(self):
        loader = DataLoader(TensorDataset(self.ids[:19], self.labels[:19]), 8)
        with torch.no_grad():
            loss = self.module(self.ids[:19], self.labels[:19]).item()
        with self.run_of(microbatches=2) as run:
            for data in (loader, TensorDataset(self.ids[:19], self.labels[:19]), (self.ids[:19], self.labels[:19])):
                self.assertAlmostEqual(run.evaluate(data)["loss"], loss, 5)
            self.assertAlmostEqual(run.evaluate(ids=self.ids[:19], labels=self.labels[:19])["loss"], loss, 5)
        held_out = {"ids": self.ids[:5], "labels": self.labels[:5]}
        with self.run_of(held_out=held_out, eval_every=2) as run:
            run.train(self.batches, epochs=2)
            self.assertEqual([e.steps for e in run.evaluations], [2, 4, 6])
            self.assertAlmostEqual(run.evaluate(held_out)["loss"], run.evaluations[-1].loss, 5)

    def test_what_is_wrong_with_data_is_named(self):
        ids, labels = self.batches[0]
        with self.run_of() as run:
            for kind, says, data in (
                    (TypeError, "a batch lacks labels, which Words.forward.. takes; it has ids, label; did you mean label", [{"ids": ids, "label": labels}]),
                    (TypeError, "a batch has 1 parts, and the example of Words.forward.. has 2: ids, labels", [ids]),
                    (ValueError, r"input ids is rows of \[6\], not \[5\]", [(ids[:, :5], labels)]),
                    (TypeError, "input ids must have integers, not float32", [(ids.float(), labels)]),
                    (ValueError, "the same number of rows", [(ids[:4], labels)]),
                    (ValueError, "has no batch", []), (TypeError, "not 3.5", 3.5),
                    (ValueError, "4 rows are fewer than the 8 of a batch", (ids[:4], labels[:4]))):
                with self.subTest(says), self.assertRaisesRegex(kind, says):
                    run.train(data)
            with self.assertRaisesRegex(TypeError, r"train\(7\): on which data\? train\(loader\)"):
                run.train(7)
            self.assertEqual(len(run.train(self.batches)), 3)  # no step was lost

    def test_what_a_loader_raises_ends_the_run_after_a_whole_step(self):
        for length in (True, False):
            class Broken(list if length else object):
                def __iter__(that):
                    for i in range(40):
                        if i == 20:
                            raise ZeroDivisionError("of batch 20")
                        yield self.batches[i % 3]

                def __len__(that):
                    if not length:
                        raise TypeError()
                    return 40
            with self.subTest(length=length), self.run_of(stages=2, microbatches=2) as run:
                with self.assertRaisesRegex(ZeroDivisionError, "of batch 20"):
                    run.train(Broken())
                self.assertGreater(run.steps, 10)
                self.assertLessEqual(run.steps, 20)
                self.assertEqual(run.steps, len(run.history))
                begun = run.steps
                after = (self.batches * 20)[begun:begun + 4]
                expected = trained(self.module, (self.batches * 20)[:begun + 4])
                np.testing.assert_allclose(losses(run.train(after)), expected[begun:], rtol=1e-4)

    def test_ctrl_c_ends_the_run_after_a_step(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with self.run_of(stages=2, microbatches=2) as run:
            seen = threading.Event()

            def interrupt():
                seen.wait()
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            with self.assertRaises(KeyboardInterrupt):
                run.train(self.batches, epochs=10 ** 6, on_step=lambda step: seen.set())
            steps = run.steps
            self.assertEqual(len(run.history), steps)
            self.assertEqual([s.step for s in run.train(self.batches[:2])], [steps, steps + 1])
            self.module.load_state_dict(run.state_dict())


class Failures(unittest.TestCase):
    def refused(self, says, forward, example=None, kind=sluice.torch.ExportError):
        module = torch.nn.Linear(4, 4)
        module.forward = forward.__get__(module)
        with self.assertRaisesRegex(kind, says) as caught:
            sluice.torch.Run(module, example or (torch.randn(3, 4),))
        return str(caught.exception)

    def test_a_module_that_cannot_be_exported(self):
        def branches(self, x):
            if x.sum() > 0:
                x = -x
            return (x @ self.weight).mean()

        def leaves(self, x):
            return torch.tensor((x @ self.weight).detach().numpy().mean())

        def fails(self, x):
            raise RuntimeError("of its own")
        said = self.refused(r"Linear cannot be exported at .*check_torch.py:\d+ \(if x.sum\(\) > 0:\): .*torch.where", branches)
        self.assertNotIn("/torch/", said.split(" (if")[0].replace("check_torch", ""))
        self.refused(r"check_torch.py:\d+ \(return torch.tensor.*without .numpy\(\)", leaves)
        self.refused("RuntimeError: of its own", fails)

    def test_a_module_without_a_loss(self):
        self.refused(r"Linear.forward\(\) returns a tensor of \[3, 4\], and no loss: .*loss=function", lambda self, x: x @ self.weight, kind=TypeError)
        self.refused(r"returns NoneType, and no loss", lambda self, x: None, kind=TypeError)
        self.refused(r"the example does not fit Linear.forward\(\)\(x, y\): missing a required argument: 'y'", lambda self, x, y: x.mean(), kind=TypeError)
        self.refused(r"got an unexpected keyword argument 'z'", lambda self, x=0: x.mean(), {"z": torch.ones(3, 4)}, kind=TypeError)
        for out in (lambda loss: (loss, 3), lambda loss: {"logits": loss * 2, "loss": loss}, lambda loss: [loss[None]]):
            module, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
            module.forward = (lambda self, x: out(F.linear(x, self.weight).square().mean())).__get__(module)
            with sluice.torch.Run(module, (x,)) as run:
                self.assertAlmostEqual(run.train([x])[0].loss, F.linear(x, module.weight).square().mean().item(), 5)

    def test_words(self):
        module, ids, labels = words()
        with self.assertRaisesRegex(TypeError, "Run has no 'learnin_rate'; did you mean learning_rate"):
            sluice.torch.Run(module, (ids, labels), learnin_rate=1)
        with self.assertRaisesRegex(TypeError, "inputs are for .pt2 files"):
            sluice.torch.Run(module, (ids, labels), inputs={})
        with self.assertRaisesRegex(TypeError, "expected a torch.nn.Module"):
            sluice.torch.Run(module.forward, (ids, labels))
        with self.assertRaisesRegex(sl.Error, "^Words: .*float64"):
            sluice.torch.Run(module.double(), (ids, labels))
        with self.assertRaisesRegex(sl.UsageError, "did you mean zb-h1"):
            sluice.torch.Run(words()[0], (ids, labels), schedule="zb_h1")

    def test_a_notebook_shows_plan_memory_and_losses(self):
        module, ids, labels = words()
        with sluice.torch.Run(module, (ids, labels), stages=2, microbatches=2, **ADAMW) as run:
            run.train([(ids, labels)] * 7)
            self.assertRegex(repr(run), "<Run of Words: step 7, loss .*; 2 stages, 2 microbatches, 1f1b>")
            page = ElementTree.fromstring("<div>%s</div>" % run._repr_html_())
            cells = [cell.text for cell in page.iter("td")]
            self.assertIn("%.4g" % run.history[-1].loss, cells)
            self.assertTrue(any("blocks.3" in cell for cell in cells), cells)
            self.assertIn("optimizer", [cell.text for cell in page.iter("th")])


class Programs(unittest.TestCase):
    def test_the_example(self):
        path = os.path.join(HERE, "..", "..", "examples", "python", "pytorch_module.py")
        said = subprocess.run([sys.executable, path, "150"], capture_output=True, text=True, timeout=100)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, r"right: (9\d|100)\.\d %, loss (\S+) \(the run's: \2\)")
        self.assertIn("Where the time went", said.stdout)

    def test_torchrun_starts_it(self):
        program = ("import torch, sluice.torch\nfrom check_torch import ADAMW, losses, shuffled, words\n"
                   "module, ids, labels = words()\n"
                   "with sluice.torch.Run(module, (ids[:4], labels[:4]), stages=2, microbatches=2, **ADAMW) as run:\n"
                   "    history = run.train(shuffled(ids, labels), epochs=2)\n"
                   "    state = run.state_dict()\n"
                   "    if state:\n"
                   "        module.load_state_dict(state)\n"
                   "        print(losses(history), module(ids, labels).item())\n")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            env = dict(os.environ, SLUICE_KEY="0123456789" * 4, HOME=folder, OMP_NUM_THREADS="1",
                       PYTHONPATH=os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))
            said = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port), path],
                                  env=env, cwd=folder, capture_output=True, text=True, timeout=100)
            self.assertEqual(os.listdir(folder), ["program.py"])
        self.assertEqual(said.returncode, 0, said.stderr)
        module, ids, labels = words()
        batches = []
        for epoch in range(2):  # the job draws its order from seed 1
            torch.manual_seed(1 + epoch)
            batches += list(shuffled(ids, labels))
        with sluice.torch.Run(module, batches[0], microbatches=2, **ADAMW) as run:
            expected = losses(run.train(batches))
            module.load_state_dict(run.state_dict())
        self.assertEqual(said.stdout.strip(), "%s %s" % (expected, module(ids, labels).item()))


def shuffled(ids, labels):
    return DataLoader(TensorDataset(ids, labels), 4, shuffle=True)


if __name__ == "__main__":
    warnings.simplefilter("error")
    unittest.main()
