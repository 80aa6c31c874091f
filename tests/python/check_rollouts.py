# SPDX-License-Identifier: Apache-2.0
"""Tests objectives and rollouts in Python: a reward function and its errors, preferences, a teacher, and chats."""
import json
import math
import os
import tempfile
import unittest

import sluice as sl

SMALL = {"layers": 1, "width": 16, "heads": 2, "vocab": 256, "context": 12, "batch": 8, "lr": 1e-2, "warmup": 0}
PROMPTS = ["ab", "cd", [101, 102, 103]]


class Rollouts(unittest.TestCase):
    def train(self, reward, steps=3, rollouts=None, **options):
        of = sl.Rollouts(PROMPTS, reward, group=4, max_tokens=4, kl=0.01, **(rollouts or {}))
        with sl.Run(sl.models.gpt(**SMALL), rollouts=of, **options) as run:
            return of, run.train(steps)

    def test_a_function_rewards_answers(self):
        seen = []

        def reward(answer):
            seen.append(answer)
            return len(set(answer.tokens)) / 4
        of, history = self.train(reward)
        self.assertEqual((len(seen), len(of.reports), len(history)), (24, 3, 3))
        self.assertEqual([r.step for r in of.reports], [0, 1, 2])
        mean = sum(len(set(a.tokens)) / 4 for a in seen if a.step == 0) / 8
        self.assertAlmostEqual(of.reports[0].reward, mean, places=12)
        for a in seen:
            self.assertEqual(a.prompt, PROMPTS[a.number])
            self.assertTrue(1 <= len(a.tokens) <= 4 and len(a.logprobs) == len(a.tokens) and max(a.logprobs) <= 0)
        same = sorted((a.step, a.number, a.member, tuple(a.tokens)) for a in seen)
        seen.clear()
        self.train(reward, exact=True, data_parallel=2)
        self.assertEqual(sorted((a.step, a.number, a.member) for a in seen), [k[:3] for k in same])

    def test_answers_are_dropped_and_old(self):
        of, _ = self.train(lambda a: None if a.member == 1 else a.member, rollouts={"updates": 3})
        self.assertEqual([r.dropped for r in of.reports], [2, 2, 2])
        self.assertEqual([r.rows > 0 for r in of.reports], [True, False, False])
        of, _ = self.train(lambda a: a.member, rollouts={"ahead": 1})
        self.assertEqual(len(of.reports), 3)

    def test_a_reward_that_fails_is_raised(self):
        def reward(answer):
            raise KeyError("no reward of %d" % answer.number)
        with self.assertRaisesRegex(KeyError, "no reward of"):
            self.train(reward)

    def test_rewards_that_are_no_numbers_are_told(self):
        for reward, says in ((lambda a: None, "returned None for the last"), (lambda a: float("nan"), "returned nan for an answer")):
            with self.assertRaisesRegex(ValueError, says):
                self.train(reward)

    def test_wrong_rollouts_are_named(self):
        for options, says in (({"group": 3}, "must be a multiple of group, 3"), ({"kl": -1.0}, "kl is -1"),
                              ({"stop": ["ab"]}, "'ab' is 2 tokens")):
            with self.assertRaisesRegex((sl.Error, ValueError), says):
                sl.Run(sl.models.gpt(**SMALL), rollouts=sl.Rollouts(PROMPTS, len, **options))
        with self.assertRaisesRegex(TypeError, "a shipped model"):
            sl.Run(lambda g: None, rollouts=sl.Rollouts(PROMPTS, len))
        with self.assertRaisesRegex(TypeError, "reward must be a function"):
            sl.Rollouts(PROMPTS, 3)


class Objectives(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = folder.name

    def lines(self, name, lines):
        path = os.path.join(self.at, name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        return path

    def test_preferences(self):
        pairs = self.lines("pairs.jsonl", [{"prompt": "a" * i, "chosen": "yes", "rejected": "no"} for i in range(1, 5)])
        with sl.Run(sl.models.gpt(**SMALL), objective=sl.Preferences(pairs, beta=0.5)) as run:
            losses = [s.loss for s in run.train(8)]
        self.assertAlmostEqual(losses[0], math.log(2), places=5)
        self.assertLess(losses[-1], losses[0])

    def test_a_teacher(self):
        data = os.path.join(self.at, "text.txt")
        with open(data, "w", encoding="utf-8") as file:
            file.write("A stage is a row of blocks. " * 20)
        folder = os.path.join(self.at, "teacher", "")
        with sl.Run(sl.models.llama(data=[data], **SMALL)) as run:
            run.train(2)
            run.save(folder)
        teacher = sl.load(folder, data=[data], context=SMALL["context"], batch=SMALL["batch"])
        with sl.Run(sl.models.llama(data=[data], **SMALL), objective=sl.Distill(teacher, top=8), seed=5) as run:
            losses = [s.loss for s in run.train(10)]
        self.assertLess(losses[-1], losses[0])
        self.assertGreater(losses[-1], 0)

    def test_a_teacher_reads_the_answers(self):
        data = os.path.join(self.at, "text.txt")
        with open(data, "w", encoding="utf-8") as file:
            file.write("abababcdcd" * 40)
        folder = os.path.join(self.at, "teacher", "")
        with sl.Run(sl.models.gpt(data=[data], **SMALL)) as run:
            run.train(20)
            run.save(folder)
        teacher = sl.load(folder, context=SMALL["context"], batch=SMALL["batch"])
        for reward in (None, lambda answer: len(answer.tokens)):
            of = sl.Rollouts(PROMPTS, reward, distill=sl.Distill(teacher, top=16), max_tokens=4)
            with sl.Run(sl.models.gpt(**SMALL), rollouts=of, seed=5) as run:
                losses = [s.loss for s in run.train(15)]
            self.assertLess(losses[-1], losses[0])
            self.assertEqual([r.reward for r in of.reports], [4 if reward else 0] * 15)
        with self.assertRaisesRegex(sl.Error, "only the model's own answers"):
            sl.Run(sl.models.gpt(**SMALL), rollouts=sl.Rollouts(PROMPTS, distill=sl.Distill(teacher, data=0.5)))

    def test_one_thing_is_learned(self):
        pairs = self.lines("pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
        with self.assertRaisesRegex(TypeError, "not both"):
            sl.Run(sl.models.gpt(**SMALL), objective=sl.Preferences(pairs), rollouts=sl.Rollouts(PROMPTS, len))


if __name__ == "__main__":
    unittest.main()
