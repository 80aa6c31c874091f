# SPDX-License-Identifier: Apache-2.0
"""Tests training, inference, state and traces: numbers match NumPy, and each other bit for bit."""
import gc
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
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


def losses(history):
    return [step.loss for step in history]


class Numbers(unittest.TestCase):
    def adamw(self, w, b, steps):
        """Returns losses and parameters by the formulas of optimizer.h, in float64."""
        params = [w.astype(np.float64), b.astype(np.float64)]
        m, v, found = [0, 0], [0, 0], []
        for t in range(steps):
            rows = (16 * t + np.arange(16)) % 32
            error = X[rows] @ params[0].T + params[1] - Y[rows]
            found.append((error ** 2).mean())
            d = 2 * error / error.size
            for i, grad in enumerate((d.T @ X[rows], d.sum(0))):
                m[i] = ADAM["beta1"] * m[i] + (1 - ADAM["beta1"]) * grad
                v[i] = ADAM["beta2"] * v[i] + (1 - ADAM["beta2"]) * grad ** 2
                up = m[i] / (1 - ADAM["beta1"] ** (t + 1)) / (
                    np.sqrt(v[i] / (1 - ADAM["beta2"] ** (t + 1))) + ADAM["eps"])
                decay = ADAM["weight_decay"] if grad.ndim > 1 else 0
                params[i] = params[i] - ADAM["lr"] * (up + decay * params[i])
        return found, params

    def test_training_is_what_the_formulas_say(self):
        with sl.Run(linear, microbatches=4) as run:
            w, b = run.params["w"], run.params["b"]
            history = run.train(5)
            found, (w, b) = self.adamw(w, b, 5)
            np.testing.assert_allclose(losses(history), found, rtol=1e-5)
            np.testing.assert_allclose(run.params["w"], w, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(run.params["b"], b, rtol=1e-4, atol=1e-6)
            self.assertEqual([s.step for s in run.history], list(range(5)))
            self.assertAlmostEqual(history[0].lr, 0.01, 6)

    def test_targets_count_as_they_are_told_to(self):
        target, weights = np.arange(16) % 3, np.array([1.0, 2.0, 0.5])

        def model(g):
            logits, t = g.data(16, x=X[:16], t=target)
            logits = g.mul(logits, g.param("one", (3,), sl.constant(1)))
            g.train(g.cross_entropy_with(logits, t, ignore=0, smoothing=0.25, weights=weights))
        with sl.Run(model) as run:
            found = run.train(1)[0].loss
        log_p = X[:16] - np.log(np.exp(X[:16]).sum(1, keepdims=True))
        counts = target != 0
        own = (weights[target] * log_p[np.arange(16), target])[counts]
        rest = (weights * log_p).sum(1)[counts]
        wanted = -(0.75 * own + 0.25 / 3 * rest).sum() / weights[target][counts].sum()
        self.assertAlmostEqual(found, wanted, 6)
        with self.assertRaisesRegex(ValueError, "2 weights for 3 classes"):
            g = sl.Graph()
            logits, t = g.data(16, x=X[:16], t=target)
            g.cross_entropy_with(logits, t, weights=[1, 2])

    def test_held_out_rows_are_evaluated_as_the_run_goes(self):
        held_out = {"x": X[::-1][:13] / 2, "label": LABEL[::-1][:13]}

        def model(g):
            x, label = g.data(8, x=X, label=LABEL, held_out=held_out)
            logits = g.linear(x, g.param("w", (2, 3), sl.normal(0.5)))
            g.metric("accuracy", g.accuracy(logits, label))
            g.output("logits", logits)
            g.train(g.cross_entropy(logits, label), lr=0.05)
        with sl.Run(model, eval_every=2, microbatches=2, stages=1) as run:
            run.train(4)
            first, last = run.evaluations
            self.assertEqual((first.steps, last.steps), (2, 4))
            found = run.evaluate(**held_out)
            self.assertAlmostEqual(found["loss"], last.loss, 6)
            self.assertAlmostEqual(found["accuracy"], last.metrics["accuracy"], 6)
            right = found["logits"].argmax(1) == held_out["label"]
            self.assertAlmostEqual(found["accuracy"], right.mean(), 6)
            self.assertEqual(run.infer(x=X).keys(), {"logits"})
        with self.assertRaisesRegex(ValueError, r"cannot hold out \['x'\]: the inputs are \['x', 'label'\]"):
            sl.Graph().data(8, x=X, label=LABEL, held_out={"x": X})

    def test_inference_and_evaluation(self):
        with sl.Run(linear) as run:
            run.train(2)
            x = np.random.default_rng(3).normal(size=(10, 3)).astype(np.float32)
            out = x @ run.params["w"].T + run.params["b"]
            np.testing.assert_allclose(run.infer(x=x)["out"], out, rtol=1e-5, atol=1e-6)
            found = run.evaluate(x=x, y=out + 1)
            self.assertAlmostEqual(found["loss"], 1, 5)
            with self.assertRaisesRegex(ValueError, "y is required"):
                run.evaluate(x=x)
            with self.assertRaisesRegex(TypeError, "no data called z"):
                run.infer(z=x)

    def test_stages_quotas_and_schedules_change_no_bit(self):
        seen = set()
        for options in ({}, {"stages": 2}, {"stages": 2, "schedule": "gpipe"},
                        {"stages": 2, "quotas": {"act.b@0": 3}}, {"stages": 4, "threads": 2}):
            with sl.Run(deep, microbatches=4, **options) as run:
                seen.add(tuple(losses(run.train(4))))
        self.assertEqual(len(seen), 1)


class Data(unittest.TestCase):
    def test_functions_give_rows(self):
        asked = []

        def x(row, rows, step):
            asked.append((row, rows, step))
            return X[(row + np.arange(rows)) % 32]

        def model(g):
            a, y = g.data(16, x=x, y=Y)
            g.train(g.mse(g.linear(a, g.param("w", (2, 3))), y), **ADAM)
        with sl.Run(model, microbatches=2) as run:
            run.train(2)
        self.assertEqual(sorted(set(asked))[:4], [(0, 1, 0), (0, 8, 0), (8, 8, 0), (16, 8, 1)])

    def test_what_they_raise_is_raised(self):
        def x(row, rows, step):
            if step == 1:
                raise ZeroDivisionError("in the data")
            return X[:rows]

        def model(g):
            a, y = g.data(16, x=x, y=Y)
            g.train(g.mse(g.linear(a, g.param("w", (2, 3))), y))
        with sl.Run(model) as run, self.assertRaisesRegex(ZeroDivisionError, "in the data"):
            run.train(4)

    def test_numbers_that_do_not_fit(self):
        with self.assertRaisesRegex(ValueError, "does not fit in int32"):
            sl.Run(lambda g: g.data(1, x=np.array([2 ** 40])))
        with self.assertRaisesRegex(TypeError, "expected numbers"):
            sl.Run(lambda g: g.data(1, x=np.array(["a"])))


class State(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = folder.name

    def test_parameters_and_weight_files(self):
        path = os.path.join(self.at, "w.safetensors")
        with sl.Run(deep, stages=2, microbatches=4) as run, sl.Run(deep, seed=2) as other:
            self.assertEqual(list(run.params), ["w0", "w1", "w2", "w3", "head"])
            run.params["w0"] = np.full((8, 3), 0.25)
            run.save(path)
            other.load(path)
            for name, values in run.params.items():
                np.testing.assert_array_equal(other.params[name], values)
            self.assertEqual(run.params["w0"][7, 2], 0.25)
            with self.assertRaises(ValueError):
                run.params["w0"] = np.zeros((3, 8))
        with sl.Run(deep, weights=path) as run:
            self.assertEqual(run.params["w0"][0, 0], 0.25)
        with self.assertRaisesRegex(sl.Error, "nothing.safetensors"):
            sl.Run(deep, weights=os.path.join(self.at, "nothing.safetensors"))

    def test_a_resumed_run_has_the_same_bits(self):
        kept = {"checkpoints": os.path.join(self.at, "kept"), "resume": True, "fingerprint": {"lr": 0.05}}
        with sl.Run(deep, stages=2, microbatches=4) as run:
            whole = losses(run.train(6))
        with sl.Run(deep, stages=2, microbatches=4, **kept) as run:
            first = losses(run.train(4))
            run.checkpoint()
        with sl.Run(deep, stages=1, microbatches=4, **kept) as run:
            self.assertEqual(run.first_step, 4)
            self.assertEqual(first + losses(run.train(2)), whole)
            self.assertEqual(run.steps, 6)
        kept["fingerprint"] = {"lr": 0.1}
        with self.assertRaisesRegex(sl.UsageError, "lr"):
            sl.Run(deep, microbatches=4, **kept)
        with sl.Run(deep, microbatches=4, resume_with="lr", **kept) as run:
            self.assertEqual(run.first_step, 4)

    def test_traces(self):
        with sl.Run(deep, stages=2, microbatches=4) as run:
            run.train(3)
            trace = run.trace(os.path.join(self.at, "run.trace"))
            again = run.trace()
            self.assertEqual(len(again.records), len(trace.records))
            self.assertTrue(os.path.exists(again.path))
            self.assertGreater(run.statistics()["step_seconds"], 0)
            self.assertEqual(len(run.statistics()["devices"]), 2)
        if importlib.util.find_spec("pandas"):
            frame = trace.frame()
            self.assertEqual(len(frame[frame["class"] == "B"]), 3 * 4 * 2)
            self.assertTrue((frame["seconds"] == frame["end"] - frame["start"]).all())
        passes = trace.records[trace.records["class"] == "B"]
        self.assertEqual(len(passes), 3 * 4 * 2)
        self.assertTrue((passes["end"] >= passes["start"]).all())
        self.assertEqual(set(passes["microbatch"]), {0, 1, 2, 3})
        self.assertIn("Where the time went", trace.show())
        with self.assertRaises(sl.InputError):
            sl.Trace(__file__)

    def test_runs_end(self):
        run = sl.Run(deep)
        with self.assertRaises(TypeError):
            run.train("many")
        run.close()
        run.close()
        for use in (lambda: run.train(1), lambda: run.params["w0"], lambda: run.steps,
                    lambda: run.infer(x=X), run.statistics, lambda: run.save(self.at),
                    lambda: run.trace(self.at), run.describe):
            with self.assertRaisesRegex(ValueError, "the run is closed"):
                use()
        forgotten = weakref.ref(sl.Run(deep))
        gc.collect()
        self.assertIsNone(forgotten())

    def test_ctrl_c_ends_the_run_after_a_step(self):
        kept = {"checkpoints": os.path.join(self.at, "kept"), "every": 10 ** 6, "resume": True}
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore SIGINT in background jobs
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with sl.Run(deep, **kept) as run:
            seen = threading.Event()

            def interrupt():
                seen.wait()
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            with self.assertRaises(KeyboardInterrupt):
                run.train(10 ** 9, on_step=lambda step: seen.set())
            steps = run.steps
            self.assertEqual(len(run.history), steps)
            self.assertEqual(run.infer(x=X[:4])["logits"].shape, (4, 2))
            self.assertEqual([s.step for s in run.train(2)], [steps, steps + 1])  # continues on request
            run.checkpoint()
        with sl.Run(deep, **kept) as run:
            self.assertEqual(run.train(2)[0].step, steps + 2)

    def test_a_callback_that_raises_ends_the_run_after_a_step(self):
        def tired(step):
            if step.step % 3 == 2:
                raise ZeroDivisionError("of step %d" % step.step)
        with sl.Run(deep, stages=2, microbatches=4) as run, sl.Run(deep, microbatches=4) as other:
            whole = losses(other.train(20))
            while len(run.history) < 12:
                with self.assertRaisesRegex(ZeroDivisionError, "of step"):
                    run.train(100, on_step=tired)
                self.assertEqual(run.steps, len(run.history))
            run.train(20 - run.steps)
            self.assertEqual(losses(run.history), whole)  # bit for bit

    def faulty(self, **options):
        """Returns (rows, a run whose data raises at them)."""
        faults = set()

        def x(row, rows, step):
            if row in faults:
                raise ZeroDivisionError("at row %d" % row)
            return X[np.arange(row, row + rows) % 32]

        def model(g):
            a, y = g.data(16, x=x, y=Y)
            for i in range(3):
                g.block("h%d" % i)
                a = g.tanh(g.linear(a, g.param("w%d" % i, (8, a.shape[-1]), sl.normal(0.5))))
            g.train(g.mse(g.linear(a, g.param("head", (2, 8))), y), lr=0.05)
        return faults, sl.Run(model, **options)

    PLACES = ({}, {"stages": 3, "microbatches": 4}, {"data_parallel": 2, "microbatches": 4},
              {"stages": 2, "microbatches": 2, "data_parallel": 2, "shard": "parameters"})

    def test_a_run_goes_on_after_its_data_has_raised(self):
        for options in self.PLACES:
            faults, run = self.faulty(**options)
            with run:
                whole, weights = losses(run.train(12)), dict(run.params)
            faults, run = self.faulty(**options)
            with self.subTest(**options), run:
                faults.update((16 * 3, 16 * 7))
                for row in (16 * 3, 16 * 7):
                    for _ in range(2):  # raises again while the rows are missing
                        with self.assertRaisesRegex(ZeroDivisionError, "at row %d" % row):
                            run.train(12 - run.steps)
                    self.assertEqual(run.steps, row // 16)
                    for use in (lambda: run.params["w0"], lambda: run.save(self.at), lambda: run.infer(x=X)):
                        with self.assertRaisesRegex(RuntimeError, "step %d waits for its data" % run.steps):
                            use()
                    faults.remove(row)
                run.train(12 - run.steps)
                self.assertEqual((run.steps, losses(run.history)), (12, whole))
                for name, values in run.params.items():
                    np.testing.assert_array_equal(weights[name], values)

    def test_fewer_and_more_steps_than_were_asked_for(self):
        faults, run = self.faulty()
        with run:
            whole = losses(run.train(12))
        for steps, end in ((4, 7), (1, 4), (10 ** 6, None)):
            faults, run = self.faulty()
            with run:
                faults.add(16 * 3)
                with self.assertRaises(ZeroDivisionError):
                    run.train(5)
                faults.clear()
                run.train(steps if end else 12 - run.steps)
                self.assertGreaterEqual(run.steps, end or 12)
                run.train(12 - run.steps)
                self.assertEqual(losses(run.history), whole)

    def test_a_run_whose_data_keeps_raising_is_closed(self):
        for options in self.PLACES:
            threads = threading.active_count()
            faults, run = self.faulty(**options)
            faults.add(16 * 2)
            with self.subTest(**options):
                with self.assertRaises(ZeroDivisionError):
                    run.train(10)
                run.close()
                with self.assertRaisesRegex(ValueError, "closed"):
                    run.train(1)
                self.assertEqual(threading.active_count(), threads)
                faults, run = self.faulty(**options)
                faults.add(16 * 2)
                with self.assertRaises(ZeroDivisionError):
                    run.train(10)
                forgotten = weakref.ref(run)
                del run
                gc.collect()
                self.assertIsNone(forgotten())
                self.assertEqual(threading.active_count(), threads)

    def test_no_checkpoint_has_rows_that_were_missing(self):
        kept = {"checkpoints": os.path.join(self.at, "kept"), "every": 2, "resume": True}
        faults, run = self.faulty(**kept)
        faults.add(16 * 5)
        with run, self.assertRaises(ZeroDivisionError):
            run.train(20)
        faults, run = self.faulty(**kept)
        with run:
            self.assertIn(run.first_step, (2, 4))
            after = losses(run.train(12 - run.first_step))
        faults, run = self.faulty()
        with run:
            self.assertEqual(losses(run.train(12))[-len(after):], after)

    def test_the_interpreter_ends_while_data_is_missing(self):
        program = os.path.join(self.at, "program.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write("import sluice as sl\n"
                       "def x(row, rows, step):\n"
                       "    if step == 2: raise ZeroDivisionError('here')\n"
                       "    return [[1.0]] * rows\n"
                       "def model(g):\n"
                       "    a = g.data(4, x=x)\n"
                       "    g.train(g.mse(g.linear(a, g.param('w', (1, 1))), a))\n"
                       "run = sl.Run(model)\n"
                       "run.train(9)\n")
        done = subprocess.run([sys.executable, program], stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stderr.endswith("ZeroDivisionError: here\n"), done.stderr)

    def test_ctrl_c_while_data_is_missing(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        faults, run = self.faulty(stages=2, microbatches=2)
        with run:
            whole = losses(run.train(12))
        faults, run = self.faulty(stages=2, microbatches=2)
        with run:
            faults.add(16 * 3)
            with self.assertRaises(ZeroDivisionError):
                run.train(12)
            faults.clear()

            def interrupt(step):
                if step.step == 3:
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            with self.assertRaises(KeyboardInterrupt):
                run.train(10 ** 6, on_step=interrupt)
                run.train(10 ** 6)
            if run.steps < 12:
                run.train(12 - run.steps)
            self.assertEqual(losses(run.history)[:12], whole)

    def test_several_processes_are_one_job(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        path, program = os.path.join(self.at, "w"), os.path.join(self.at, "program.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write("import sluice as sl\nfrom check_run import deep, losses\n"
                       "with sl.Run(deep, stages=2, microbatches=4) as run:\n"
                       "    print(losses(run.train(3)))\n    run.save(%r)\n" % path)
        path_of_tests = os.path.dirname(os.path.abspath(__file__))
        processes = []
        for rank in ("1", "0"):
            env = dict(os.environ, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=port, RANK=rank, LOCAL_RANK=rank, SLUICE_KEY="0123456789" * 4,
                       HOME=self.at, PYTHONPATH=os.pathsep.join(
                           [path_of_tests, os.environ.get("PYTHONPATH", "")]))
            processes.append(subprocess.Popen([sys.executable, program], env=env, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        said = [p.communicate(timeout=100) for p in processes]
        self.assertEqual([p.returncode for p in processes], [0, 0], said)
        with sl.Run(deep, microbatches=4) as run:
            self.assertEqual(said[1][0].strip(), str(losses(run.train(3))))
            trained = dict(run.params)
        with sl.Run(deep, weights=path) as run:
            for name, values in run.params.items():
                np.testing.assert_array_equal(trained[name], values)


if __name__ == "__main__":
    unittest.main()
