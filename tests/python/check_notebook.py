# SPDX-License-Identifier: Apache-2.0
"""Tests what notebooks and terminals show, and runs examples/python/first_run.ipynb like a notebook's kernel."""
import importlib.util
import io
import os
import tempfile
import unittest
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import sluice as sl
from check_run import deep
from sluice import notebook

HERE = os.path.dirname(os.path.abspath(__file__))


def has(*modules):
    return all(importlib.util.find_spec(m) for m in modules)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Shown(unittest.TestCase):
    def test_plans(self):
        plan = sl.plan(deep, stages=2, microbatches=4)
        with sl.Run(deep, stages=2, microbatches=4) as run:
            self.assertEqual(plan.bytes, run.plan.bytes)
            self.assertEqual(plan.parameters, sum(v.size for v in run.params.values()))
            self.assertEqual(run.describe()[:len(plan.describe())], plan.describe())
        self.assertEqual([s["blocks"] for s in plan.stages], [["h0", "h1"], ["h2", "h3", "head"]])
        self.assertEqual(max(m["total"] for m in plan.memory), plan.bytes)
        for m in plan.memory:
            self.assertEqual(sum(v for k, v in m.items() if k not in ("device", "total")), m["total"])
        self.assertRegex(repr(plan), "<Plan: 2 stages, 4 microbatches, 1f1b; 232 parameters, .* KiB on the largest device>")
        with self.assertRaises(sl.BudgetError):
            sl.plan(deep, memory=100)
        with self.assertRaisesRegex(TypeError, "did you mean schedule"):
            sl.plan(deep, schedul="1f1b")

    def test_html_is_well_formed(self):
        with sl.Run(deep, stages=2, microbatches=4) as run:
            run.train(30)
            shown = [run, run.params, sl.plan(deep), sl.Tuning([sl.Point("1f1b", 2, {"act.b": 3}, {}, 0.1, 0.2, 3000)])]
            for thing in shown:
                ElementTree.fromstring("<div>%s</div>" % thing._repr_html_())
            page = ElementTree.fromstring("<div>%s</div>" % run._repr_html_())
        line = page.find(".//{http://www.w3.org/2000/svg}polyline")
        points = [tuple(map(float, p.split(","))) for p in line.get("points").split()]
        heights, losses = np.array([y for _, y in points]), np.array([s.loss for s in run.history])
        self.assertEqual(len(points), 30)
        np.testing.assert_allclose((heights.max() - heights) / np.ptp(heights), (losses - losses.min()) / np.ptp(losses), atol=0.01)
        sides = {c.text: c.get("style") for c in page.iter("td")}
        self.assertEqual((sides["cpu:0"], sides["1"]), ("text-align:left", "text-align:right"))
        self.assertEqual([c.find("b").text for c in page.iter("caption")], ["blocks of each stage", "memory of each device"])
        self.assertIn("act.b=3", shown[-1]._repr_html_())
        cells = [c.text for c in page.iter("td")]
        self.assertIn("h2, h3, head", cells)
        self.assertEqual(notebook.curve([(0, 1.0), (1, float("nan"))]), "")

    def test_a_bar_is_for_terminals(self):
        with sl.Run(deep) as run:
            for stream, options, said in ((io.StringIO(), {}, False), (Terminal(), {"progress": True}, True),
                                          (Terminal(), {"progress": False}, False), (Terminal(), {}, False)):
                with mock.patch("sys.stderr", stream):
                    run.train(3, **options)  # too short for a progress bar by default
                self.assertEqual("3/3" in stream.getvalue(), said, options)
                self.assertEqual(stream.getvalue().endswith("\n"), said)
            self.assertRegex(notebook.Progress(8, False).text(run.history[:2]), r"^ 25% \|######  .*\| 2/8 \[00:00<.*loss 0\.")

    @unittest.skipUnless(has("nbclient", "nbformat", "ipykernel"), "nbclient or ipykernel is not installed")
    def test_the_notebook_runs(self):
        import nbclient
        import nbformat
        book = nbformat.read(os.path.join(HERE, "..", "..", "examples", "python", "first_run.ipynb"), 4)
        with tempfile.TemporaryDirectory() as folder:
            nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": folder}}).execute()
        outputs = [o for cell in book.cells for o in cell.get("outputs", [])]
        html = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
        self.assertGreaterEqual(len(html), 3)
        self.assertTrue(any("<progress value='2000'" in h and "<polyline" in h for h in html), html)
        self.assertTrue(any("head" in h and "optimizer" in h for h in html), html)
        text = " ".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in outputs)
        self.assertRegex(text, r"right: (9[5-9]|100)\.")
        self.assertIn("becomes an actor, and pas", text)
        self.assertRegex(text, r"\d+ 40000 \[\{'")


if __name__ == "__main__":
    unittest.main()
