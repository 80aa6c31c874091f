# SPDX-License-Identifier: Apache-2.0
"""Python refuses arguments that C would misread, and shows current figures and quotas."""
import gc
import threading
import unittest
import weakref

import numpy as np
import sluice as sl

X = np.random.default_rng(1).normal(size=(32, 3)).astype(np.float32)
Y = np.random.default_rng(2).normal(size=(32, 2)).astype(np.float32)
LABEL = np.arange(32) % 2
ADAM = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "clip": 1e9}


def linear(g):
    x, y = g.data(16, x=X, y=Y)
    out = g.linear(x, g.param("w", (2, 3), sl.normal(0.5)), g.param("b", (2,), sl.uniform(0.5)))
    g.output("out", out)
    g.train(g.mse(out, y), **ADAM)


def deep(g):
    x, label = g.data(16, x=X, label=LABEL)
    for i in range(4):
        g.block("h%d" % i)
        x = g.tanh(g.linear(x, g.param("w%d" % i, (8, x.shape[-1]), sl.normal(0.5))))
    g.block("head")
    logits = g.linear(x, g.param("head", (2, 8)))
    g.output("logits", logits)
    g.train(g.cross_entropy(logits, label), lr=0.05)


def pairs(rows_x, rows_y, **more):
    def model(g):
        x, y = g.data(16, x=X[:rows_x], y=Y[:rows_y], **more)
        g.train(g.mse(g.linear(x, g.param("w", (2, 3))), y), **ADAM)
    return model


class Arguments(unittest.TestCase):
    def refused(self, says, call, kinds=(ValueError, TypeError, OverflowError, sl.Error)):
        with self.assertRaises(kinds) as caught:
            call()
        self.assertIn(says, str(caught.exception))

    def test_arrays_have_as_many_rows_as_each_other(self):
        self.refused("the same number of rows", lambda: sl.Run(pairs(32, 30)))
        self.refused("the same number of rows", lambda: sl.Run(pairs(16, 32)))
        held = {"x": X[:16], "y": Y[:8]}
        self.refused("the same number of rows", lambda: sl.Run(pairs(32, 32, held_out=held), eval_every=1))
        with sl.Run(linear) as run:
            self.refused("the same number of rows", lambda: run.evaluate(x=X, y=Y[:16]))

    def test_rows_are_of_the_shape_and_type_they_were_made_for(self):
        def made(function):
            def model(g):
                x = g.data(16, x=function)
                g.train(g.mean(g.linear(x, g.param("w", (2, 3)))), lr=0.1)
            return model
        asked = []

        def later(other):
            def rows(row, n, step):
                asked.append(row)
                return X[:1] if len(asked) == 1 else other(n)
            return rows
        for other in (lambda n: X[:1], lambda n: X[:n].T, lambda n: X[:n, :1], lambda n: X[:n - 1],
                      lambda n: np.zeros((n, 3), int)):
            asked.clear()
            with sl.Run(made(later(other))) as run:
                self.refused("x: rows must be float32[16, 3]", lambda: run.train(1))
        held = {"x": X[:, :2], "y": Y}
        self.refused("x: rows must be", lambda: sl.Run(pairs(32, 32, held_out=held), eval_every=1))
        self.refused("does not fit in float32", lambda: sl.Run(made(X.astype(np.float64) * 1e300)))
        self.refused("expected numbers", lambda: sl.Run(made(X.astype(complex))))
        self.refused("has no rows", lambda: sl.Run(made(X[:0])))
        self.refused("has no rows", lambda: sl.Run(made(np.float32(3))))

    def test_what_inference_is_given_is_what_the_model_reads(self):
        with sl.Run(deep) as run:
            self.refused("no data called z", lambda: run.infer(x=X, z=X))
            self.refused("label must have integers", lambda: run.evaluate(x=X, label=LABEL + 0.5))
            self.refused("as an array", lambda: run.infer(x=lambda *_: X))
            self.refused("has no rows", lambda: run.infer(x=X[:0]))
            np.testing.assert_array_equal(run.infer(x=np.ones((4, 3), int))["logits"],
                                          run.infer(x=np.ones((4, 3)))["logits"])
            wide = np.zeros((64, 6), np.float32)
            wide[::2, ::2] = X
            np.testing.assert_array_equal(run.infer(x=wide[::2, ::2])["logits"], run.infer(x=X)["logits"])

    def test_axes_are_there_and_once(self):
        def reduced(axes):
            return lambda g: g.mean(g.data(16, x=X), axes=axes)
        for axes in ([2], [-3], [5]):
            self.refused("axis", lambda: sl.Run(reduced(axes)))
        self.refused("is given twice", lambda: sl.Run(reduced([1, -1])))
        self.refused("", lambda: sl.Run(lambda g: g.param("w", (2.7, 3))))

    def test_steps_are_whole_and_not_fewer_than_none(self):
        with sl.Run(linear) as run:
            self.refused("steps must be at least 0", lambda: run.train(-1))
            self.refused("integer", lambda: run.train(1.5))
            self.refused("integer", lambda: run.train("3"))
            self.refused("integer", lambda: run.train(float("nan")))
            self.refused("must be from 0 to", lambda: run.train(2 ** 62))
            self.assertEqual(run.train(0), [])
            self.assertEqual(len(run.train(np.int64(2))), 2)

    def test_parameters_are_numbers_of_their_shape(self):
        with sl.Run(linear) as run:
            for wrong in (np.zeros((3, 2)), np.zeros(6), 1.0):
                self.refused("w is [2, 3]", lambda: run.params.__setitem__("w", wrong))
            self.refused("expected numbers", lambda: run.params.__setitem__("w", [["a"] * 3] * 2))
            self.refused("expected numbers", lambda: run.params.__setitem__("w", np.ones((2, 3), complex)))
            turned = np.arange(6, dtype=np.float32).reshape(3, 2).T
            run.params["w"] = turned
            np.testing.assert_array_equal(run.params["w"], turned)

    def test_a_closed_run_says_so(self):
        run = sl.Run(linear)
        params = run.params
        run.close()
        run.close()
        for call in (lambda: run.train(1), lambda: run.params["w"], lambda: params.__setitem__("b", [0, 0]),
                     lambda: run.infer(x=X), lambda: run.statistics(), lambda: run.trace(), lambda: run.quotas(),
                     lambda: run.set_quota("act", 1), lambda: run.steps, lambda: run.first_step,
                     lambda: run.schedule, lambda: run.describe(), lambda: run.save("x"), lambda: run.load("x"),
                     lambda: run.checkpoint()):
            self.refused("the run is closed", call)

    def test_a_run_is_one_at_a_time(self):
        with sl.Run(linear) as run:
            found = []

            def step(_):
                for call in (lambda: run.train(1), run.close):
                    try:
                        call()
                    except RuntimeError as error:
                        found.append(str(error))
            run.train(1, on_step=step)
            self.assertIn("in progress", found[0])
            self.assertIn("cannot close its run", found[1])
            self.assertEqual(len(run.train(1)), 1)

    def test_what_trains_on_another_thread_is_ended_by_close(self):
        run, begun = sl.Run(linear), threading.Event()

        def train():
            try:
                run.train(10 ** 9, on_step=lambda _: begun.set())
            except sl.Error:
                pass
        thread = threading.Thread(target=train)
        thread.start()
        begun.wait(30)
        run.close()
        thread.join(30)
        self.assertFalse(thread.is_alive())


class Figures(unittest.TestCase):
    def test_quotas_are_those_in_force(self):
        with sl.Run(deep, stages=2, microbatches=4, quotas={"act": 3}) as run:
            before = run.quotas()
            name = next(n for n in before if n.startswith("act") and n.endswith("@0"))
            run.set_quota(name, before[name] - 1)
            after = run.quotas()
            self.assertEqual(after[name], before[name] - 1)
            run.train(2)
            self.assertEqual(run.quotas(), after)

    def test_most_activations_are_those_of_the_last_train(self):
        def most(run):
            return max(d["peak_activations"] for d in run.statistics()["devices"])
        with sl.Run(deep, stages=2, microbatches=8, schedule="gpipe") as run:
            for _ in range(100):  # rows may come late and leave only one activation waiting: retry
                run.train(2)
                if most(run) > 2:
                    break
            self.assertGreater(most(run), 2)
            run.set_quota("act", 2)
            run.train(2)
            self.assertLessEqual(most(run), 2)

    def test_a_run_goes_with_its_last_reference(self):
        gc.collect()
        gc.disable()
        try:
            for model in (linear, deep):
                run = sl.Run(model, microbatches=2)
                run.train(2, on_step=lambda step: None)
                run.evaluate(x=X, **({"y": Y} if model is linear else {"label": LABEL}))
                there = weakref.ref(run), weakref.ref(run.plan), weakref.ref(run.plan.graph)
                del run
                self.assertEqual([t() for t in there], [None] * 3)
        finally:
            gc.enable()


if __name__ == "__main__":
    unittest.main()
