# SPDX-License-Identifier: Apache-2.0
"""Tests models written in Python, their errors, and tuning."""
import inspect
import unittest

import numpy as np
import sluice as sl
from check_run import X, Y, deep


def line():
    return inspect.currentframe().f_back.f_lineno


class Graphs(unittest.TestCase):
    def test_every_op_is_a_method(self):
        g = sl.Graph()
        for op in sl.ops():
            self.assertTrue(callable(getattr(g, op)), op)
        self.assertIn("layernorm", sl.ops())
        self.assertIn("embedding", dir(g))
        self.assertIn("layernorm(x, gain, bias, eps)", g.layernorm.__doc__)
        self.assertIn("arXiv 1607.06450", g.layernorm.__doc__)
        self.assertIn("arXiv 1606.08415", sl.function("gelu").__doc__)
        with self.assertRaisesRegex(AttributeError, "there is no op gelo"):
            g.gelo(None)

    def test_calls_are_those_of_c(self):
        g = sl.Graph()
        x, _ = g.data(8, x=X, y=Y)
        self.assertEqual(x.shape, (8, 3))
        self.assertEqual(g.linear(x, g.param("a", (3, 5)), transposed=True).shape, (8, 5))
        self.assertEqual(g.concat(1, [x, x, x]).shape, (8, 9))
        self.assertEqual(g.output("made", g.dense(x, 4, "made")).shape, (8, 4))
        one = g.param("one", (3,), sl.constant(1))
        outs = g.apply("layernorm", x, one, one, eps=1e-6)
        self.assertEqual([t.shape for t in outs], [(8, 3), (8,), (8,)])
        self.assertEqual(g.layernorm(x, one, one, eps=1e-6).name[-11:], "layernorm.2")
        self.assertEqual((x + x * x).shape, (8, 3))
        self.assertEqual(g.softcap(x, cap=30).shape, (8, 3))
        with self.assertRaisesRegex(sl.ShapeError, "the cap must be finite and above 0, got -2"):
            wrong = sl.Graph()
            wrong.softcap(wrong.param("a", (3, 5)), -2)
        with self.assertRaisesRegex(TypeError, "takes x, w, b, transposed, not weight"):
            g.linear(x, weight=one)
        with self.assertRaisesRegex(TypeError, "did you mean eps"):
            g.apply("layernorm", x, one, one, epps=1)

    def test_attention_stays_within_documents(self):
        x = np.random.default_rng(3).standard_normal((2, 6, 4)).astype("f")
        tokens = np.array([[1, 9, 2, 3, 9, 4], [9, 5, 6, 7, 8, 1]])

        def model(g):
            q, t = g.data(2, x=x, tokens=tokens)
            ids, places = g.documents(t, 9)
            g.output("places", places)
            g.output("o", g.attend_within(q, q, q, ids, {"heads": 1, "full": True, "window": 3}))
            y = g.linear(g.attend_within(q, q, q, None, {"heads": 1}), g.param("w", (1, 4)))
            g.train(g.mse(y, g.data(2, y=x[:, :, :1])))
        with sl.Run(model) as run:
            found = run.infer(x=x, tokens=tokens)
        ids = np.array([[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1]])
        near = abs(np.arange(6)[:, None] - np.arange(6)) < 3
        scores = np.where(near & (ids[:, :, None] == ids[:, None]), x @ x.transpose(0, 2, 1) / 2, -np.inf)
        weights = np.exp(scores)
        np.testing.assert_allclose(found["o"], weights / weights.sum(2, keepdims=True) @ x, atol=1e-5)
        self.assertEqual(found["places"].tolist(), [[0, 1, 0, 1, 2, 0], [0, 0, 1, 2, 3, 4]])

    def test_shapes_lengths_and_axes_are_lists(self):
        def model(g):
            x, _ = g.data(8, x=X, y=Y)
            a, b = g.split(g.reshape(g.permute(x, 1, 0), [3, 4, -1]), 1, 2)
            self.assertEqual([t.shape for t in g.split(x, 1, [2, 1])], [(8, 2), (8, 1)])
            g.output("out", g.sum(a - b * 2.0, axes=[0, -1]) + 1)
            g.output("same", g.reshape(x, 24))
        with self.assertRaisesRegex(sl.Error, "sl_train"):
            sl.Run(model)
        plan = sl.Graph(infer=True, given={"x": X[:8]})
        model(plan)

        def trained(g):
            model(g)
            g.train(g.mse(g.linear(g.data(8, z=X), g.param("w", (2, 3))), g.data(8, y=Y)))
        with sl.Run(trained) as run:
            found = run.infer(x=X[:8])
        a, b = np.split(X[:8].T.reshape(3, 4, 2), 2, 1)
        np.testing.assert_allclose(found["out"], (a - 2 * b).sum((0, 2)) + 1, rtol=1e-5)
        np.testing.assert_array_equal(found["same"], X[:8].reshape(24))

    def test_indexed_ops_and_constants(self):
        table = np.arange(24, dtype="f").reshape(8, 3) / 10

        def model(g):
            x, y = g.data(8, x=X, y=Y)
            values, places = g.top_k(x, 1, 2)
            rows = g.param("rows", (3, 2))
            g.output("values", values)
            g.output("places", places)
            g.output("taken", g.gather(x, 1, g.constant([[2, 0]])))
            g.output("sums", g.scatter_sum(x, 1, g.constant([[1, 0, 1]]), 2))
            g.output("running", g.cumsum(x, -1, exclusive=True))
            g.output("hot", g.one_hot(places, 3))
            g.output("wide", g.expand(g.sum(x, axes=[1], keep=True), [-1, 4]))
            g.output("known", x + g.constant(table, like=x))
            g.output("filled", x * g.filled([3], 2.5) + g.cast(g.arange(x, 0), "f32"))
            g.train(g.mse(g.embedding_bag(places, rows, bag={"mean": True}), y))
        with sl.Run(model) as run:
            found = run.infer(x=X[:8])
        x, order = X[:8], np.argsort(-X[:8], 1)[:, :2]
        wanted = {"values": np.take_along_axis(x, order, 1), "places": order, "taken": x[:, [2, 0]],
                  "sums": np.stack([x[:, 1], x[:, 0] + x[:, 2]], 1),
                  "running": x.cumsum(1) - x, "hot": np.eye(3)[order],
                  "wide": np.repeat(x.sum(1, keepdims=True), 4, 1), "known": x + table,
                  "filled": x * 2.5 + np.arange(8)[:, None]}
        for name, numbers in wanted.items():
            np.testing.assert_allclose(found[name], numbers, rtol=1e-5, atol=1e-6, err_msg=name)
        self.assertIn("index", sl.function("gather").__doc__)
        self.assertIn("k largest", sl.function("top_k").__doc__)

    def test_errors_have_the_text_and_the_line(self):
        g = sl.Graph()
        x, _ = g.data(8, x=X, y=Y)
        w = g.param("w", (2, 4))
        with self.assertRaises(sl.ShapeError) as caught:
            at = line() + 1
            g.linear(x, w)
        said = str(caught.exception)
        self.assertIn("check_graph.py:%d" % at, said)
        self.assertIn("linear", said)
        self.assertEqual(caught.exception.status, "SL_E_SHAPE")
        self.assertIsInstance(caught.exception, sl.Error)

    def test_what_a_run_is_told(self):
        with self.assertRaisesRegex(TypeError, "did you mean schedule"):
            sl.Run(deep, schedul="gpipe")
        with self.assertRaisesRegex(sl.Error, "nosuch"):
            sl.Run(deep, quotas={"nosuch": 2})
        with self.assertRaises(sl.BudgetError):
            sl.Run(deep, memory=100)
        self.assertIn("1f1b", sl.schedules())
        with sl.Run(deep, stages=2, microbatches=4, schedule="gpipe") as run:
            self.assertEqual(run.schedule, "gpipe")
            self.assertEqual(run.quotas()["act.b@0"], 4)
            self.assertIn("actor", run.describe())


class Tunings(unittest.TestCase):
    def test_what_it_finds_runs_as_planned(self):
        tuning = sl.tune(deep, stages=2, microbatches=[2, 4], effort=25, steps=3)
        self.assertGreater(len(tuning.points), 5)
        seconds = [p.seconds for p in tuning.frontier]
        self.assertEqual(seconds, sorted(seconds, reverse=True))
        best = tuning.best()
        self.assertEqual(best.seconds, min(p.seconds for p in tuning.points))
        least = tuning.best(memory=tuning.frontier[0].memory)
        self.assertEqual(least, tuning.frontier[0])
        with self.assertRaisesRegex(ValueError, "no plan fits in 10 bytes"):
            tuning.best(memory=10)
        for point in (best, least):
            with sl.Run(deep, stages=2, **point.options()) as run:
                self.assertEqual(run.quotas(), point.quotas)
                self.assertTrue(np.isfinite(run.train(2)[-1].loss))
        self.assertIn(best.schedule, str(tuning))


if __name__ == "__main__":
    unittest.main()
