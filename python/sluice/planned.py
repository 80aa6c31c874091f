# SPDX-License-Identifier: Apache-2.0
"""Plans without a run: what would lie where, and what memory it would take, before anything is allocated."""
from __future__ import annotations

from typing import Any, Callable, Dict, List

from . import _library as c
from . import notebook
from ._library import lib
from .run import Run, _Plan, lower_record, training_of


class Plan:
    """What Run with these options would do. `stages` has a dict for each stage (stage, device, blocks), `memory` one for
    each device, in bytes by purpose, `bytes` those of the largest device."""

    def __init__(self, model: Callable[..., Any], *, stages: int = 1, microbatches: int = 1, **options: Any) -> None:
        Run._check_names(options)
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
        """Actors, registers and queues as text."""
        return self.text

    def __repr__(self) -> str:
        from .budget import size
        return "<Plan: %d stages, %d microbatches, %s; %s parameters, %s on the largest device>" % (
            len(self.stages), self.microbatches, self.schedule, format(self.parameters, ","), size(self.bytes))

    def _repr_html_(self) -> str:
        import html
        return "<div><code>%s</code></div>%s%s" % (html.escape(repr(self)), notebook.stages_table(self.stages),
                                                   notebook.memory_table(self.memory))


def plan(model: Callable[..., Any], **options: Any) -> Plan:
    """The plan that Run would make with these options, of which nothing is allocated or run. SL_E_BUDGET and
    SL_E_STUCK are raised as by Run."""
    return Plan(model, **options)
