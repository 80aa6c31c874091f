# SPDX-License-Identifier: Apache-2.0
"""Plans without a run: placement and memory are known before anything is allocated."""
from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Union

from . import _library as c
from . import errors, notebook
from ._library import lib
from .models import Model, in_python, words
from .run import Path, Run, _Plan, _program_of, lower_record, training_of


class Plan:
    """The plan of a Run with these options. `stages` has a dict for each stage (stage, device, blocks). `memory` has a
    dict for each device, with bytes by purpose. `bytes` is the memory of the largest device."""

    def __init__(self, model: Union[Callable[..., Any], Path], *, stages: int = 1, microbatches: int = 1, **options: Any) -> None:
        model = _program_of(model, options)
        Run._check_names(options, getattr(model, "keywords", ()))
        keep: List[Any] = []
        training = c.record("sl_training", training_of(**{k: options.pop(k) for k in Run.TRAINING if k in options}), keep)
        graph = {k: options.pop(k) for k in Run.GRAPH[1:] if k in options}
        given = dict(graph, microbatches=microbatches, stages=stages, training=training, no_data=True)
        plan = _Plan(model, given, lower_record(keep, stages=stages, **options))
        try:
            self.stages: List[Dict[str, Any]] = plan.stages
            self.memory: List[Dict[str, Any]] = plan.memory
            self.bytes: int = plan.bytes
            self.schedule: str = c.text(lib.sl_lowered_schedule(plan.lowered))
            self.microbatches = microbatches
            self.text: str = c.written(lambda f: lib.sl_plan_print(plan.plan, f))
            self.parameters: int = plan.parameters
        finally:
            plan.close()

    def describe(self) -> str:
        """Returns actors, registers and queues as text."""
        return self.text

    def __repr__(self) -> str:
        from .budget import size
        return "<Plan: %d stages, %d microbatches, %s; %s parameters, %s on the largest device>" % (
            len(self.stages), self.microbatches, self.schedule, format(self.parameters, ","), size(self.bytes))

    def _repr_html_(self) -> str:
        import html
        return "<div><code>%s</code></div>%s%s" % (html.escape(repr(self)), notebook.stages_table(self.stages),
                                                   notebook.memory_table(self.memory))


def plan(model: Union[Callable[..., Any], Path], **options: Any) -> Plan:
    """Returns the plan that Run would make with these options, without allocating or running anything. Raises the same
    exceptions as Run for SL_E_BUDGET and SL_E_STUCK."""
    return Plan(model, **options)


class Candidate(NamedTuple):
    """A plan found by search(): options for Run, the predicted seconds of a step, the bytes of the largest device, and
    the command line that runs it."""
    options: Dict[str, Any]
    seconds: float
    memory: int
    command: List[str]


def search(model: Model, devices: Union[int, str] = 1, *, machine: str = "", memory: Union[float, str] = 0,
           points: int = 5, effort: str = "", **options: Any) -> List[Candidate]:
    """Runs the search of `actortune plan`: finds the fastest plans of a built-in or pretrained model that fit in the
    devices' memory, best first. devices: a number of modelled devices, or "cpu:4". machine: "h100-sxm-80gb", a file, or
    "here". memory: bytes or "76G" per device. Other options are those of `actortune plan --help all`, with _ instead of
    -."""
    if not isinstance(model, Model):
        raise TypeError("search: the model must come from sl.load or sl.models; use sl.tune for models in Python")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plans.json")
        size = memory if isinstance(memory, str) else int(memory) or None
        asked = dict(options, devices="timed:%d" % devices if isinstance(devices, int) else devices, machine=machine or None,
                     memory=size, points=points, effort=effort or None, json=path)
        run = subprocess.run([c.tool("actortune"), "plan", *words(asked), *model.words()], capture_output=True, text=True)
        if run.returncode:
            raise errors.Error(in_python(re.sub("^actortune[^:]*: ", "", run.stderr.strip())))
        with open(path, encoding="utf-8") as file:
            found = json.load(file)["plans"]
    return [Candidate(_run_options(p["words"]), p["step_seconds"], p["memory_bytes"], ["actorrun"] + p["words"]) for p in found]


def _run_options(given: List[str]) -> Dict[str, Any]:
    """Converts the words of a command line before its model to options of Run. Devices are skipped, because they were
    modelled."""
    out: Dict[str, Any] = {}
    for name, value in zip(given[::2], given[1::2]):
        if not name.startswith("--"):
            break
        name = name[2:].replace("-", "_")
        if name in ("quota", "home"):
            key, _, what = value.partition("=")
            out.setdefault({"quota": "quotas", "home": "homes"}[name], {})[key] = int(what) if name == "quota" else what
        elif name not in ("devices", "machine", "memory"):
            out[name] = int(value) if re.fullmatch(r"\d+", value) else value
    return out
