# SPDX-License-Identifier: Apache-2.0
"""Sluice from Python: models built from the same calls as in C, with NumPy arrays in and out.

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

See docs/library.md for details. Errors of the library are subclasses of sl.Error. Their text names the line of your
program that caused them."""
from __future__ import annotations

from typing import Dict

from . import _library
from ._library import tool
from ._statuses import *  # an exception for each status
from ._statuses import __all__ as _statuses
from .calls import function, ops
from .errors import Error, Fit
from .exported import Program
from .graph import Graph
from .objectives import Distill, Objective, Preferences
from .rollouts import Answer, Rollout, Rollouts
from .models import Model, Tokenizer, load, models
from .planned import Candidate, Plan, plan, search
from .run import Evaluation, Parameters, Run, Step
from .server import Server, serve
from .tensor import Init, Tensor, constant, normal, uniform
from .text import Session
from .trace import Trace
from .tune import Point, Tuning, measure, predict, tune

__version__: str = _library.text(_library.lib.sl_version())

__all__ = ["Answer", "Candidate", "Distill", "Error", "Evaluation", "Fit", "Graph", "Init", "Model", "Objective", "Parameters", "Plan", "Point", "Preferences", "Program", "Rollout", "Rollouts", "Run", "Server", "Session", "Step", "Tensor", "Tokenizer", "Trace",
           "Tuning", "constant", "function", "load", "measure", "models", "normal", "ops", "plan", "predict", "schedules", "search", "serve", "tool", "tune",
           "uniform", "__version__"]
__all__ += _statuses


def schedules() -> Dict[str, str]:
    """Returns {name: description} of all schedules."""
    names, lib = _library.lib.sl_schedule_names(), _library.lib
    out: Dict[str, str] = {}
    while names[len(out)]:
        name = names[len(out)]
        out[_library.text(name)] = _library.text(lib.sl_schedule_summary(name))
    return out
