# SPDX-License-Identifier: Apache-2.0
"""Traces: all firings of a run, read from a file."""
from __future__ import annotations

import os
import subprocess
from typing import Any, List, Union

import numpy

from . import _library as c
from . import errors
from ._library import ffi, lib

RECORD = numpy.dtype([("start", "f8"), ("end", "f8"), ("actor", "O"), ("class", "U1"),
                      ("queue", "O"), ("stage", "i4"), ("step", "i8"), ("microbatch", "i4"),
                      ("piece", "i4"), ("wait", "O"), ("register", "O")])


class Trace:
    """A trace file. `records` is an array with a row for each firing: start and end in seconds, actor, class (F, B, W,
    ...), queue, stage, step, microbatch, piece, and what its queue waited for before (wait, register)."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.fspath(path)
        self.folder: Any = None  # temporary folder of the file, if it has one
        keep: List[Any] = []
        out = ffi.new("sl_trace **")
        c.check(lib.sl_trace_read(c.chars(self.path, keep), out))
        try:
            self.steps, self.dropped = out[0].steps, out[0].dropped
            self.records: numpy.ndarray[Any, Any] = _records(out[0])
        finally:
            lib.sl_trace_destroy(out[0])

    def _tool(self, *words: str) -> str:
        run = subprocess.run([c.tool("actortrace"), *words], capture_output=True, text=True)
        if run.returncode:
            raise errors.Error(run.stderr.strip())
        return run.stdout

    def show(self) -> str:
        """Returns a picture as text, with the causes of idle time, and the slots that would help."""
        return self._tool("show", self.path)

    def page(self, path: Union[str, "os.PathLike[str]"]) -> Union[str, "os.PathLike[str]"]:
        """Writes a page for a browser. Returns its path."""
        self._tool("page", self.path, "-o", os.fspath(path))
        return path

    def frame(self) -> Any:
        """Returns the records as a pandas DataFrame, with the duration of each firing in `seconds`."""
        import pandas
        frame = pandas.DataFrame(self.records)
        frame.insert(2, "seconds", frame["end"] - frame["start"])
        return frame

    def __getstate__(self) -> "dict[str, Any]":
        """Returns the state for pickle: the records, without the folder of the file."""
        return {name: value for name, value in self.__dict__.items() if name != "folder"}

    def __setstate__(self, state: "dict[str, Any]") -> None:
        self.__dict__.update(state, folder=None)

    def __repr__(self) -> str:
        return "<Trace of %d firings in %s>" % (len(self.records), self.path)


def _records(trace):
    plan = trace.plan
    actors = [(c.text(a.name), lib.sl_class_letter(a.cls).decode(),
               c.text(plan.queues[a.queue].name), a.stage)
              for a in (plan.actors[i] for i in range(plan.nactors))]
    registers = [c.text(plan.regs[i].name) for i in range(plan.nregs)]
    waits = [c.text(lib.sl_wait_name(w)) for w in range(lib.SL_WAIT_COUNT)]
    out = numpy.zeros(trace.nfirings, RECORD)
    for i in range(trace.nfirings):
        f = trace.firings[i]
        r, tick = f.record, f.tick
        name, letter, queue, stage = actors[r.actor]
        named = waits[r.wait] in ("input", "credit") and r.reg < len(registers)
        out[i] = (r.start_ns * 1e-9, r.end_ns * 1e-9, name, letter, queue, stage, tick.step,
                  tick.microbatch, tick.piece, waits[r.wait], registers[r.reg] if named else "")
    return out
