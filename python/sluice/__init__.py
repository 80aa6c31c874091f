# SPDX-License-Identifier: Apache-2.0
"""Sluice from Python: models of the same calls as in C, NumPy arrays in and out.

    import numpy as np, sluice as sl

    def model(g):
        x, y = g.data(64, x=points, y=labels)
        g.block("hidden")
        h = g.tanh(g.linear(x, g.param("w", (32, 2), sl.uniform(0.7))))
        g.block("head")
        logits = g.linear(h, g.param("head", (2, 32)))
        g.output("logits", logits)
        g.train(g.cross_entropy(logits, y), lr=1e-2)

    run = sl.Run(model, stages=2, microbatches=4)
    run.train(100)
    run.infer(x=points)["logits"]

docs/library.md tells more. An error of the library is a subclass of sl.Error with its text and
the line of your program that it is about.
"""
from . import _library
from ._library import ERRORS, Error, tool
from .graph import Graph, Tensor, constant, function, normal, ops, uniform
from .run import Parameters, Run, Step
from .trace import Trace
from .tune import Point, Tuning, measure, predict, tune

__version__ = _library.text(_library.lib.sl_version())

globals().update({e.__name__: e for e in ERRORS.values()})
__all__ = ["Error", "Graph", "Parameters", "Point", "Run", "Step", "Tensor", "Trace", "Tuning",
           "constant", "function", "measure", "normal", "ops", "predict", "schedules", "tool", "tune",
           "uniform"] + [e.__name__ for e in ERRORS.values()]


def schedules():
    """{name: what it is} of all schedules."""
    names, lib, out = _library.lib.sl_schedule_names(), _library.lib, {}
    while names[len(out)]:
        name = names[len(out)]
        out[_library.text(name)] = _library.text(lib.sl_schedule_summary(name))
    return out
