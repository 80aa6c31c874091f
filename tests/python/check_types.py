# SPDX-License-Identifier: Apache-2.0
"""Tests type hints: mypy --strict accepts the examples and finds the errors of a program; hints cover all ops."""
import glob
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

import sluice as sl

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.abspath(sl.__file__))
WRONG = """import sluice as sl


def model(g: sl.Graph) -> None:
    x, y = g.data(8, x=[[1.0]], y=[[1.0]])
    g.gelo(x)
    g.relu(x).reshap(3)
    g.softmax(x, axs=1)
    loss: sl.Tensor = g.mse(x ** 2 @ x, 1 / y)
    g.train(loss, learnin_rate=1)
    x.nosuch()
    (x + y).nosuch()
    g.data(8, z=3.0)
    only: sl.Tensor = g.data(8, z=[[1.0]])


run = sl.Run(model, schedul="1f1b")
run.train("3")
sl.BudgetError().nothing
"""


def has_mypy():
    """Returns whether mypy exists and supports keywords by name (Unpack)."""
    if importlib.util.find_spec("mypy") is None:
        return False
    from importlib.metadata import version
    return tuple(map(int, version("mypy").split(".")[:2])) >= (1, 7)


class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cache.cleanup)

    def mypy(self, *words):
        env = dict(os.environ, MYPYPATH=os.path.dirname(PACKAGE))
        return subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", self.cache.name, *words], env=env, text=True,
                              capture_output=True)

    def test_hints_know_all_ops(self):
        with open(os.path.join(PACKAGE, "_ops.pyi"), encoding="utf-8") as file:
            known = set(re.findall(r"def (\w+)\(", file.read()))
        for op in sl.ops():
            self.assertTrue(op in known or op in vars(sl.Graph) or re.search("_[bw]$|^op[123]$", op), op)
        self.assertTrue(os.path.exists(os.path.join(PACKAGE, "py.typed")))

    @unittest.skipUnless(has_mypy(), "mypy 1.7 or later is not installed")
    def test_mypy_strict(self):
        examples = glob.glob(os.path.join(HERE, "..", "..", "examples", "python", "*.py"))
        if importlib.util.find_spec("torch") is None:
            examples = [path for path in examples if "pytorch" not in path]
        found = self.mypy("--strict", "--follow-imports=silent", *examples)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "wrong.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(WRONG)
            lines = [int(n) for n in re.findall(r":(\d+): error", self.mypy("--strict", "--follow-imports=silent", path).stdout)]
        self.assertEqual(sorted(set(lines)), [6, 7, 8, 10, 11, 12, 13, 17, 18, 19])

    @unittest.skipUnless(has_mypy(), "mypy 1.7 or later is not installed")
    def test_the_package_itself(self):
        found = self.mypy("--ignore-missing-imports", "-p", "sluice")
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)


if __name__ == "__main__":
    unittest.main()
