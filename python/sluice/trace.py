# SPDX-License-Identifier: Apache-2.0
"""Traces: all firings of a run, read back."""
import os
import subprocess

import numpy

from . import _library as c
from ._library import ffi, lib

RECORD = numpy.dtype([("start", "f8"), ("end", "f8"), ("actor", "O"), ("class", "U1"),
                      ("queue", "O"), ("stage", "i4"), ("step", "i8"), ("microbatch", "i4"),
                      ("piece", "i4"), ("wait", "O"), ("register", "O")])


class Trace:
    """A trace file. `records` is an array with a row for each firing: start and end in seconds,
    actor, class (F, B, W, ...), queue, stage, step, microbatch, piece, and what its queue waited
    for before (wait, register)."""

    def __init__(self, path):
        self.path = os.fspath(path)
        keep, out = [], ffi.new("sl_trace **")
        c.check(lib.sl_trace_read(c.chars(self.path, keep), out))
        try:
            self.steps, self.dropped = out[0].steps, out[0].dropped
            self.records = _records(out[0])
        finally:
            lib.sl_trace_destroy(out[0])

    def _tool(self, *words):
        run = subprocess.run([c.tool("actortrace"), *words], capture_output=True, text=True)
        if run.returncode:
            raise c.Error(run.stderr.strip())
        return run.stdout

    def show(self):
        """A picture in text, where the time went, and which slot would help."""
        return self._tool("show", self.path)

    def page(self, path):
        """Writes a page for a browser; its path."""
        self._tool("page", self.path, "-o", os.fspath(path))
        return path

    def __repr__(self):
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
