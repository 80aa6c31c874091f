# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs, as written by torch.export.save(), on your own data. PyTorch itself is not needed.

    run = sl.Run("model.pt2", inputs={"ids": ids, "labels": labels}, lr=3e-4, stages=2, microbatches=4)
    run.train(100)"""
from __future__ import annotations

import operator
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from . import _library as c
from . import data, errors
from ._library import ffi, lib
from .graph import OPTIMIZER_ALSO, Graph, optimizer_fields

Path = Union[str, "os.PathLike[str]"]


# Options of Run that belong to a program.
OWN = ("inputs", "batch", "block", "held_out", "rows_in_constants")


def settings() -> List[str]:
    """Returns the names of optimizer settings among the options of a run. `schedule` and `optimizer` have another
    meaning there."""
    known = [name for name, _ in ffi.typeof("sl_optimizer").fields] + list(OPTIMIZER_ALSO) + ["betas"]
    return [name for name in known if name not in ("rule", "schedule", "rate", "user", "optimizer", "lr_schedule")]


KEYWORDS = OWN + tuple(settings())


def split(options: Dict[str, Any]) -> Dict[str, Any]:
    """Removes the options of a program from the options of a run, and returns them."""
    return {name: options.pop(name) for name in list(options) if name in KEYWORDS}


class Column(NamedTuple):
    """An argument of forward(): its name, the shape of a row (or of the whole array), its type, and whether it has
    rows."""
    name: str
    shape: Tuple[int, ...]
    dtype: Any
    rows: bool

    def check(self, a: Any) -> Any:
        """Returns the array in the form that the program reads."""
        a = data.narrow(a)
        if self.dtype.kind == "i" and a.dtype.kind == "f":
            raise TypeError("input %s must have integers, not %s" % (self.name, a.dtype))
        if a.shape[self.rows:] != self.shape or a.ndim < self.rows:
            what = "rows of " if self.rows else ""
            raise ValueError("input %s is %s%s, not %s" % (self.name, what, list(self.shape), list(a.shape[self.rows:] if what else a.shape)))
        return a.astype(self.dtype, copy=False)


class Table:
    """Rows of arrays. Steps take them in order, and start over after the last."""

    def __init__(self, columns: Sequence[Column], arrays: Mapping[str, Any]) -> None:
        self.columns, self.arrays = columns, by_name(columns, arrays)
        self.length = rows_of(columns, self.arrays)

    def part(self, step: int, batch: int, first: int, rows: int) -> List[Any]:
        """Returns `rows` rows of a step's batch, starting at row `first`."""
        at = (step * batch + first + numpy.arange(rows)) % max(self.length, 1)
        return [a[at] if column.rows else a for column, a in zip(self.columns, self.arrays)]


def by_name(columns: Sequence[Column], arrays: Mapping[str, Any]) -> List[Any]:
    """Returns the arrays in the order of the program's inputs, checked."""
    known = [column.name for column in columns]
    wrong = [name for name in arrays if name not in known]
    if wrong:
        raise errors.unknown("the program", map(str, wrong), known)
    missing = [name for name in known if name not in arrays]
    if missing:
        raise TypeError("no data for input %s; the inputs are %s" % (" and ".join(missing), ", ".join(known)))
    return [column.check(arrays[column.name]) for column in columns]


def rows_of(columns: Sequence[Column], arrays: Sequence[Any]) -> int:
    """Returns the number of rows, which must be the same for all arrays with rows, or 0 if none has rows."""
    rows = {column.name: len(a) for column, a in zip(columns, arrays) if column.rows}
    if len(set(rows.values())) > 1:
        raise ValueError("all inputs must have the same number of rows, not %s" % rows)
    count = next(iter(rows.values()), 0)
    if rows and not count:
        raise ValueError("%s has no rows" % next(iter(rows)))
    return count


class Source:
    """A graph's source of a program's data: either `given`, or the program's data at the time of the call."""

    def __init__(self, g: Graph, program: "Program", given: Optional[Table], rows: int) -> None:
        self.program, self.given, self.rows = program, given, rows
        self.columns = columns = program.columns
        self.length = given.length if given else 0
        held_out = program.held_out if given is None else None
        self.types = ffi.new("sl_type[]", len(columns))
        for i, column in enumerate(columns):
            self.types[i] = c.type_of((rows,) * column.rows + column.shape, column.dtype)
        record: Dict[str, Any] = {"nout": len(columns), "types": self.types, "fill": g.filler(self._fill)}
        if held_out:
            record.update(fill_held_out=g.filler(self._fill_held_out), held_out=held_out.length // max(rows, 1),
                          held_out_rest=held_out.length % max(rows, 1))
        self.record = c.record("sl_source", record, g._kept)

    def _fill(self, g, tick, outs):
        self._fill_from(g, self.given or self.program.store, tick, outs)

    def _fill_held_out(self, g, tick, outs):
        self._fill_from(g, self.program.held_out, tick, outs)

    def _fill_from(self, g, store, tick, outs):
        microbatches = g.microbatches
        parts = store.part(tick.step, self.rows * microbatches, tick.microbatch * self.rows, self.rows)
        for i, part in enumerate(parts):
            if outs[i]:
                size = lib.sl_type_bytes(ffi.addressof(self.types, i))
                to = numpy.frombuffer(ffi.buffer(ffi.cast("char *", outs[i]), size), self.columns[i].dtype)
                to[:] = numpy.ascontiguousarray(part).reshape(-1)


class Nothing:
    """Placeholder for the data of a program that has none yet."""

    def part(self, *_: int) -> List[Any]:
        raise ValueError("the program has no data: inputs={name: array}")


class Program:
    """An exported program, its data and the optimizer's settings. Like a model in Python, it is called with a graph.

    `inputs` has an array for each argument of forward(), with rows for consecutive steps. `held_out` has the same
    arrays with rows for evaluation (eval_every). A step takes `batch` rows, by default as many as were exported.
    `block` is the pattern of modules that stay together ("h.*"). `rows_in_constants` says whether numbers beside sums
    over rows are the number of rows, which is asked if they may be. All other settings are the optimizer's."""
    keywords = KEYWORDS

    def __init__(self, path: Path, inputs: Optional[Mapping[str, Any]] = None, *, batch: Optional[int] = None,
                 block: Optional[str] = None, held_out: Optional[Mapping[str, Any]] = None, rows_in_constants: Optional[bool] = None,
                 **settings: Any) -> None:
        self.path, self.keep = os.fspath(path), []  # type: str, List[Any]
        self.__name__ = os.path.basename(self.path)
        out = ffi.new("sl_exported **")
        c.check(lib.sl_exported_open(c.chars(self.path, self.keep), out))
        self.pointer: Any = c.owned(out[0], lib.sl_exported_close)
        self.columns = self._columns()
        #: Rows of the exported batch, or 0 if no input has rows.
        self.exported = int(lib.sl_exported_rows(self.pointer))
        self.batch = self.exported if batch is None else operator.index(batch)
        self.rows = 0  # rows of a microbatch, once there is a plan
        self.block, self.settings = block, optimizer_fields(settings)
        self.rows_in_constants = 0 if rows_in_constants is None else 2 if rows_in_constants else 1  # sl_rows_in_constants
        self.store: Any = Table(self.columns, inputs) if inputs else Nothing()
        self.held_out = Table(self.columns, held_out) if held_out else None

    def _columns(self) -> List[Column]:
        inputs = ffi.new("const sl_exported_input **")
        found = []
        for i in range(lib.sl_exported_inputs(self.pointer, inputs)):
            of = inputs[0][i]
            shape = c.shape_of(of.type)
            found.append(Column(c.text(of.name), shape[1:] if of.rows else shape, c.dtype_of(of.type), bool(of.rows)))
        return found

    @property
    def inputs(self) -> Dict[str, Tuple[Optional[int], ...]]:
        """{argument of forward(): its shape}, with None for the rows of a batch."""
        return {column.name: (None,) * column.rows + column.shape for column in self.columns}

    def __call__(self, g: Graph) -> None:
        g._kept.append(self)
        given, rows = None, 0
        if g.infer:
            given = Table(self.columns, g.given)
            g.used.update(g.given)
            rows = data._divisor(given.length, self.rows or self.batch) if given.length else 0
        elif self.exported:
            rows = self.rows = g.rows(self.batch)
        source = Source(g, self, given, rows)
        g.sources.append(source)
        outs = ffi.new("sl_tensor *[]", len(self.columns))
        lib.sl_data_at(c.here(g._kept), g.pointer, source.record, outs)
        g.check()
        record = c.record("sl_optimizer", self.settings, g._kept, "train") if self.settings else ffi.NULL
        options = {"inputs": outs, "block": self.block, "optimizer": record, "rows_in_constants": self.rows_in_constants}
        c.check(lib.sl_exported_build(self.pointer, g.pointer, c.record("sl_exported_options", options, g._kept)))

    def __repr__(self) -> str:
        shapes = ("%s %s" % (name, ["rows" if d is None else d for d in shape]) for name, shape in self.inputs.items())
        return "<Program %s: %s>" % (self.__name__, ", ".join(shapes).replace("'", ""))
