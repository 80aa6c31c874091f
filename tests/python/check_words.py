# SPDX-License-Identifier: Apache-2.0
"""Tests mistyped names and PyTorch's names, attributes of errors, the look of objects, and what pickle keeps."""
import pickle
import unittest

import numpy as np
import sluice as sl
from check_run import X, Y, LABEL, deep, linear


class Names(unittest.TestCase):
    def refused(self, kind, says, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertRegex(str(caught.exception), says)

    def test_a_mistyped_schedule_is_answered_with_all_and_the_near_one(self):
        with self.assertRaises(sl.UsageError) as caught:
            sl.Run(deep, schedule="1fb1")
        said = str(caught.exception)
        for name in sl.schedules():
            self.assertIn(name, said)
        self.assertTrue(said.endswith("did you mean 1f1b?"), said)

    def test_unknown_keywords_are_answered_with_the_near_one(self):
        self.refused(TypeError, "Run has no 'microbatchs'; did you mean microbatches", lambda: sl.Run(deep, microbatchs=2))
        self.refused(TypeError, "Run has no 'data_paralel'; did you mean data_parallel", lambda: sl.Run(deep, data_paralel=2))
        self.refused(TypeError, "Run has no 'recomput'; did you mean recompute", lambda: sl.Run(deep, recomput="full"))
        self.refused(TypeError, "train has no 'learnin_rate'; did you mean learning_rate",
                     lambda: sl.Graph().train(None, learnin_rate=1))
        self.refused(TypeError, "lr or learning_rate, not both", lambda: sl.Graph().train(None, learning_rate=1, lr=1))
        self.refused(ValueError, "there is no op adamww; did you mean adamw", lambda: sl.Graph().train(None, "adamww"))
        self.refused(ValueError, "'cosin' is none of .*did you mean cosine", lambda: sl.Graph().train(None, schedule="cosin"))
        self.refused(AttributeError, "there is no op gelo.*did you mean gelu", lambda: sl.Graph().gelo)
        self.refused(TypeError, "a group has no 'lrr'; did you mean lr", lambda: sl.Run(deep, groups={"w0": {"lrr": 1}}))
        with sl.Run(deep) as run:
            self.refused(KeyError, "no parameter w9; did you mean w", lambda: run.params["w9"])
        g = sl.Graph()
        x = g.data(16, x=X)
        self.refused(AttributeError, "a tensor has no reshap; did you mean reshape", lambda: x.reshap)
        self.refused(TypeError, "linear needs w", lambda: g.linear(x))
        self.refused(TypeError, "softmax needs x", lambda: sl.Graph().softmax())
        self.refused(TypeError, "swiglu needs up", lambda: g.swiglu(x))
        self.refused(TypeError, "layernorm takes x, gain, bias, eps, not epsi; did you mean eps",
                     lambda: g.layernorm(x, x, x, epsi=1))

    def test_settings_have_the_names_of_pytorch_too(self):
        def trained(**settings):
            def model(g):
                x, y = g.data(16, x=X, y=Y)
                g.train(g.mse(g.linear(x, g.param("w", (2, 3), sl.normal(0.5))), y), **settings)
            with sl.Run(model) as run:
                steps = run.train(4)
                return [s.loss for s in steps], steps[-1].learning_rate
        own = trained(lr=0.02, warmup=3, beta1=0.8, beta2=0.9, clip=0.5, weight_decay=0.3)
        also = trained(learning_rate=0.02, warmup_steps=3, betas=(0.8, 0.9), max_grad_norm=0.5, weight_decay=0.3)
        self.assertEqual(own, also)
        self.assertNotEqual(own, trained(lr=0.02, warmup=3, betas=(0.8, 0.9), clip=0.5))  # has the default decay
        self.assertEqual(trained(lr=0.1, optimizer="sgd", clip=0), trained(lr=0.1, optimizer="sgd", clip=1e9))
        self.assertNotEqual(trained(lr=0.1, clip=0, optimizer="sgd"), trained(lr=0.1, optimizer="sgd", clip=1e-3))
        zero, none = trained(lr=0.1, weight_decay=0), trained(lr=0.1, weight_decay=1e-30)
        np.testing.assert_allclose(zero[0], none[0], rtol=1e-6)

    def test_a_budget_error_carries_what_would_fit(self):
        with sl.Run(deep, microbatches=2) as run:
            needed = run.plan.bytes
        with self.assertRaises(sl.BudgetError) as caught:
            sl.Run(deep, microbatches=2, memory=needed - 1)
        error = caught.exception
        self.assertEqual((error.needed, error.budget), (needed, needed - 1))
        self.assertTrue(error.fits)
        for fit in error.fits:
            self.assertIn(", ".join("%s=%r" % item for item in fit.options.items()), str(error))
            with sl.Run(deep, **{"microbatches": 2, "memory": fit.bytes, **fit.options}) as run:
                self.assertEqual(run.plan.bytes, fit.bytes)
                self.assertTrue(np.isfinite(run.train(1)[0].loss))
            with self.assertRaises(sl.BudgetError):
                sl.Run(deep, **{"microbatches": 2, "memory": fit.bytes - 1, **fit.options})
        with self.assertRaises(sl.BudgetError) as caught:
            sl.Run(deep, memory=100)
        self.assertFalse(caught.exception.fits)
        self.assertGreater(caught.exception.least.bytes, 100)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.fits, again.status), (str(error), error.fits, "SL_E_BUDGET"))


class Looks(unittest.TestCase):
    def test_objects_say_what_they_are(self):
        self.assertRegex(sl.__version__, r"^\d+\.\d+\.\d+$")
        g = sl.Graph(microbatches=2)
        x = g.data(16, x=X)
        self.assertEqual(repr(g), "<Graph of 2 microbatches>")
        self.assertRegex(repr(x), r"<Tensor .*float32\[8, 3\]>")
        self.assertEqual(repr(sl.normal(0.02)), "normal(0.02)")
        with sl.Run(deep, stages=2, microbatches=4) as run:
            self.assertEqual(repr(run), "<Run of deep: step 0; 2 stages, 4 microbatches, 1f1b>")
            run.train(2)
            self.assertRegex(repr(run), r"<Run of deep: step 2, loss 0\.\d+; 2 stages, ")
            self.assertIn("w0 [8, 3], w1 [8, 8]", repr(run.params))
            self.assertIn("firings", repr(run.trace()))
        self.assertEqual(repr(run), "<Run of deep, closed>")
        self.assertEqual(repr(run.history[0])[:12], "Step(step=0,")
        point = sl.Point("1f1b", 2, {}, {}, 0.1, 0.2, 300)
        self.assertEqual(repr(sl.Tuning([point])), "<Tuning: 1 of 1 plans on the frontier>")
        self.assertIn("schedule='1f1b'", repr(point))

    def test_results_can_be_pickled(self):
        with sl.Run(linear, eval_every=0) as run:
            run.train(2)
            kept = [run.history, run.evaluations, run.statistics(), sl.Tuning([]).points, sl.normal(0.5), run.quotas(),
                    dict(run.params)]
            trace = run.trace()
            again = pickle.loads(pickle.dumps(trace))
        np.testing.assert_equal(pickle.loads(pickle.dumps(kept))[:6:2], kept[:6:2])
        self.assertEqual(len(again.records), len(trace.records))
        self.assertEqual(again.records["actor"].tolist(), trace.records["actor"].tolist())
        self.assertIsInstance(pickle.loads(pickle.dumps(kept))[0][0], sl.Step)


class Operators(unittest.TestCase):
    """Operators give NumPy's results."""

    def found(self, make):
        def model(g):
            x, ids = g.data(8, x=X, ids=LABEL)
            for name, t in make(g, x, ids).items():
                g.output(name, t)
            y = g.linear(x, g.param("w", (2, 3)))
            g.train(g.mse(y, g.data(8, y=Y)))
        with sl.Run(model) as run:
            return run.infer(x=X[:8], ids=LABEL[:8])

    def test_arithmetic(self):
        x = X[:8]
        wanted = {}

        def make(g, t, ids):
            cases = {"minus": lambda x: 2 - x, "over": lambda x: 1 / x, "square": lambda x: x ** 2, "fifth": lambda x: x ** 5,
                     "inverse": lambda x: x ** -2, "root": lambda x: abs(x) ** 0.5, "inverse_root": lambda x: abs(x) ** -0.5,
                     "other_power": lambda x: abs(x) ** 1.7, "exponential": lambda x: 2 ** x, "one": lambda x: x ** 0,
                     "plus": lambda x: +x + 1.5 - x / 4, "array": lambda x: X[8:16] * x - x / np.arange(1, 4),
                     "sign": lambda x: -x * x, "self": lambda x: x - 2 * x}
            wanted.update((name, case(x)) for name, case in cases.items())
            return {name: case(t) for name, case in cases.items()}
        found = self.found(make)
        for name, numbers in wanted.items():
            np.testing.assert_allclose(found[name], numbers, rtol=2e-5, atol=1e-6, err_msg=name)

    def test_comparisons_make_masks(self):
        x = X[:8]
        found = self.found(lambda g, t, ids: {
            "lt": t < 0, "le": 0.5 >= t, "gt": t > t * 0.5, "ge": t >= X[:8], "eq": ids == 1, "ne": ids != 1,
            "where": g.where(t > 0, t, 0), "most": g.maximum(t, 0.25), "clamp": t.clamp(min=-0.5, max=0.5)})
        wanted = {"lt": x < 0, "le": x <= 0.5, "gt": x > x * 0.5, "ge": x >= x, "eq": LABEL[:8] == 1, "ne": LABEL[:8] != 1,
                  "where": np.maximum(x, 0), "most": np.maximum(x, 0.25), "clamp": x.clip(-0.5, 0.5)}
        for name, numbers in wanted.items():
            np.testing.assert_array_equal(found[name], numbers.astype(found[name].dtype), err_msg=name)
        g = sl.Graph()
        x = g.data(16, x=X)
        with self.assertRaisesRegex(TypeError, "g.where"):
            bool(x > 0)
        self.assertEqual(len({x, x}), 1)

    def test_products_methods_and_parts(self):
        x, w = X[:8], np.arange(6, dtype="f").reshape(3, 2) / 5

        def make(g, t, ids):
            cube = (t @ g.constant(w)).reshape(2, 2, 2, -1)
            return {"product": t @ w, "left": X[:4, :1].T @ t[:4], "mean": t.mean(axis=1), "sum": t.sum(0, keepdims=True),
                    "max": t.max([0, 1]) + t[0, 0] * 0, "T": t.T, "gelu": t.relu().tanh(), "soft": t.softmax(-1),
                    "rows": t[2:5], "row": t[-1], "column": t[:, 1], "some": t[1:, :2], "dots": cube[..., 0], "cube": cube[1, :, 1],
                    "new": t[:, None, 1:], "cell": t[3, 2] + t[3:4, 2], "taken": g.constant(w.T)[ids], "stack": sum(t)}
        found = self.found(make)
        cube = (x @ w).reshape(2, 2, 2, 2)
        soft = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        wanted = {"product": x @ w, "left": X[:4, :1].T @ x[:4], "mean": x.mean(1), "sum": x.sum(0, keepdims=True), "max": x.max()
                  , "T": x.T, "gelu": np.tanh(np.maximum(x, 0)), "soft": soft, "rows": x[2:5], "row": x[-1],
                  "column": x[:, 1], "some": x[1:, :2], "dots": cube[..., 0], "cube": cube[1, :, 1], "new": x[:, None, 1:],
                  "cell": x[3:4, 2] * 2, "taken": w.T[LABEL[:8]], "stack": x.sum(0)}
        for name, numbers in wanted.items():
            np.testing.assert_allclose(found[name], numbers, rtol=1e-5, atol=1e-6, err_msg=name)
        g = sl.Graph()
        t = g.data(8, x=X)
        self.assertEqual((len(t), t.ndim, t.size), (8, 2, 24))
        for wrong, says in ((lambda: t[9], "index 9 of dim 0"), (lambda: t[::2], "step 1"), (lambda: t[0, 0, 0], "3 indices"),
                            (lambda: t[5:5], "not be empty")):
            with self.assertRaisesRegex(IndexError, says):
                wrong()
        self.assertIn("reshape", dir(t))
        self.assertNotIn("concat", dir(t))

    def test_what_is_computed_by_operators_is_trained(self):
        """Operators train with the same losses as the calls that they abbreviate."""
        def by(loss):
            def model(g):
                x, y = g.data(16, x=X, y=Y)
                w = g.param("w", (3, 2), sl.normal(0.5))
                g.train(loss(g, x, y, w), lr=0.05)
            with sl.Run(model) as run:
                return [s.loss for s in run.train(5)]
        np.testing.assert_allclose(by(lambda g, x, y, w: ((x @ w - y) ** 2).mean()),
                                   by(lambda g, x, y, w: g.mse(g.linear(x, w, transposed=True), y)), rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
