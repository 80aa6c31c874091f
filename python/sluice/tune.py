# SPDX-License-Identifier: Apache-2.0
"""Tuning: finds the schedule, microbatches and quotas with the shortest step for each amount of memory.

Plans are lowered for devices that only take time, with durations of ops measured in a short run. The virtual clock
predicts the time of a step. actortune does the same, with the same functions."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import _library as c
from . import notebook
from ._library import ffi, lib
from .budget import size
from .run import Run, _Plan, statistics_of, lower_record, quotas_in_force


class Point(NamedTuple):
    """A plan: the options of Run that reproduce it (options()), the quotas that were changed and all quotas in force,
    the predicted seconds and bubble of a step, and the bytes of its largest device."""
    schedule: str
    microbatches: int
    changes: Dict[str, int]
    quotas: Dict[str, int]
    seconds: float
    bubble: float
    memory: int

    def options(self) -> Dict[str, Any]:
        return {"schedule": self.schedule, "microbatches": self.microbatches, "quotas": self.changes}


class Tuning:
    """Result of a search. `points` are all plans that were tried. `frontier` lists, by memory, the plans that no other
    plan beats in both memory and time."""

    def __init__(self, points: List[Point]) -> None:
        self.points, self.frontier = points, []  # type: List[Point], List[Point]
        for p in sorted(points, key=lambda p: (p.memory, p.seconds)):
            if not self.frontier or p.seconds < self.frontier[-1].seconds:
                self.frontier.append(p)

    def best(self, memory: Optional[float] = None) -> Point:
        """Returns the fastest plan that fits in `memory` bytes per device."""
        fit = [p for p in self.frontier if memory is None or p.memory <= memory]
        if memory is not None and not fit:
            least = min(self.points, key=lambda p: p.memory)
            raise ValueError("no plan fits in %d bytes; %s takes %d" % (
                memory, least.schedule, least.memory))
        return fit[-1]

    def __repr__(self) -> str:
        return "<Tuning: %d of %d plans on the frontier>" % (len(self.frontier), len(self.points))

    def _repr_html_(self) -> str:
        return notebook.table(["schedule", "microbatches", "memory", "ms a step", "bubble", "quotas"], (
            [p.schedule, p.microbatches, size(p.memory), 1e3 * p.seconds, "%.1f %%" % (100 * p.bubble), p.changes or ""]
            for p in self.frontier))

    def __str__(self) -> str:
        lines = ["%-12s %5s %12s %9s %7s  %s" % ("schedule", "micro", "bytes", "ms/step",
                                                 "bubble", "quotas")]
        for p in self.frontier:
            lines.append("%-12s %5d %12d %9.3f %6.1f%%  %s" % (
                p.schedule, p.microbatches, p.memory, 1e3 * p.seconds, 100 * p.bubble,
                " ".join("%s=%d" % q for q in p.changes.items()) or "its own"))
        return "\n".join(lines)


def measure(model: Callable[..., Any], steps: int = 5, **options: Any) -> Dict[str, float]:
    """Returns the seconds of one call of each op, by its name in the graph."""
    seconds = {}
    with Run(model, **options) as run:
        run.train(steps)
        plan = run.plan.plan
        for a in range(plan.nactors):
            program = plan.actors[a].program
            for i in range(program.ncalls if program else 0):
                call = program.calls[i]
                if call.time and call.time.calls > 1:
                    seconds[c.text(call.name)] = call.time.ns * 1e-9 / (call.time.calls - 1)
    return seconds


def predict(model: Callable[..., Any], seconds: Mapping[str, float], *, stages: int = 1, microbatches: int = 1,
            quotas: Optional[Mapping[str, int]] = None, **options: Any) -> Point:
    """Returns the Point of one plan, with seconds of ops from measure()."""
    keep: List[Any] = []

    def op_seconds(_, name):
        return seconds.get(c.text(name), -1.0)
    lower = lower_record(keep, op_seconds=op_seconds, devices="timed", stages=stages, quotas=quotas,
                         **options)
    plan = _Plan(model, {"microbatches": microbatches, "stages": stages, "no_data": True}, lower)
    try:
        stats = ffi.new("sl_statistics *")
        c.check(lib.sl_plan_predict(plan.plan, ffi.NULL, stats))
        found = statistics_of(stats[0], plan.plan)
        memory = plan.bytes
        return Point(c.text(lib.sl_lowered_schedule(plan.lowered)), microbatches,
                     dict(quotas or {}), quotas_in_force(plan.lowered), found["step_seconds"],
                     found["bubble_fraction"], memory)
    finally:
        plan.close()


def tune(model: Callable[..., Any], *, stages: int, microbatches: Union[int, Iterable[int]] = (4,),
         schedules: Iterable[str] = ("1f1b", "gpipe", "zb-h1"), effort: int = 100, steps: int = 5,
         **options: Any) -> Tuning:
    """Searches for good quotas. Starts with each schedule's quotas, then changes those of activations by one slot at a
    time where that helps, until `effort` plans have been tried. `steps` of training with each number of microbatches
    measure the ops. Other options are those of Run.

        tuning = sl.tune(model, stages=2, microbatches=[4, 8])
        run = sl.Run(model, stages=2, **tuning.best(memory=2**20).options())"""
    points: Dict[Any, Optional[Point]] = {}
    open_: List[Point] = []
    failure: Optional[BaseException] = None
    counts = [microbatches] if isinstance(microbatches, int) else microbatches
    seconds = {m: measure(model, steps, stages=stages, microbatches=m, **options) for m in counts}

    def attempt(schedule, m, quotas):
        nonlocal failure
        key = (schedule, m, tuple(sorted(quotas.items())))
        if key in points:
            return
        points[key] = None
        try:
            points[key] = predict(model, seconds[m], stages=stages, microbatches=m,
                                  schedule=schedule, quotas=quotas, **options)
            open_.append(points[key])
        except c.Error as error:
            failure = failure or error

    for m in counts:
        for schedule in schedules:
            attempt(schedule, m, {})
    while open_ and len(points) < effort:
        best = Tuning([p for p in points.values() if p]).frontier
        point = next((p for p in open_ if p in best), open_[0])
        open_.remove(point)
        for name, slots in point.quotas.items():
            for other in (slots - 1, slots + 1):
                if name.startswith("act") and 0 < other <= point.microbatches:
                    attempt(point.schedule, point.microbatches, dict(point.changes, **{name: other}))
    found = [p for p in points.values() if p]
    if not found:
        raise failure or ValueError("no plan was tried")
    return Tuning(found)
