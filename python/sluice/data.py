# SPDX-License-Identifier: Apache-2.0
"""Data of a model: rows of arrays, or of functions that return rows."""
from __future__ import annotations

import math
import operator
import weakref

import numpy

from . import _library as c
from ._library import ffi, lib


class Arrays:
    """A data source whose rows come from arrays."""

    def __init__(self, g, batch, arrays, held_out=None):
        self.there, self.rows = weakref.ref(g), operator.index(batch) // g.microbatches
        if not g.infer:
            self.rows = g.rows(batch)
        given = {name: _as(name, g.given[name], a) for name, a in arrays.items() if name in g.given}
        g.used.update(given)
        self.length = _rows_in_common(given)
        if g.infer and given:
            self.rows = _divisor(self.length, self.rows)
        self.names = list(arrays)
        self.arrays = [_rows_of(name, given.get(name, a)) for name, a in arrays.items()]
        self.lacking = [g.infer and name not in given for name in arrays]
        if not g.infer:
            _rows_in_common(dict(zip(self.names, self.arrays)))
        self.held_out = self._held_out(held_out or {})
        self._make()

    graph = property(lambda self: self.there())

    def _held_out(self, arrays):
        if arrays and set(arrays) != set(self.names):
            raise ValueError("cannot hold out %s: the inputs are %s" % (list(arrays), self.names))
        arrays = {name: _rows_of(name, a) for name, a in arrays.items()}
        _rows_in_common(arrays)
        return [arrays[name] for name in self.names if arrays]

    def _make(self):
        made = ffi.new("sl_type[]", len(self.arrays))
        for i, a in enumerate(self.arrays):
            first = a if isinstance(a, numpy.ndarray) else a(0, 1, 0)
            made[i] = c.type_of((self.rows,) + first.shape[1:], first.dtype)
        self.types = made
        for i, a in enumerate(self.held_out):
            self._check(i, a, len(a))
        record = {"nout": len(self.arrays), "types": made, "fill": self.graph.filler(self._fill)}
        if self.held_out:
            record.update(fill_held_out=self.graph.filler(self._fill_held_out),
                          held_out=len(self.held_out[0]) // self.rows,
                          held_out_rest=len(self.held_out[0]) % self.rows)
        self.record = c.record("sl_source", record, self.graph._kept)

    def _fill(self, _, tick, outs):
        self._fill_from(self.arrays, tick, outs)

    def _fill_held_out(self, _, tick, outs):
        self._fill_from(self.held_out, tick, outs)

    def _fill_from(self, arrays, tick, outs):
        for i, a in enumerate(arrays):
            if outs[i]:
                self._fill_one(i, a, tick, outs[i])

    def _check(self, i, part, rows):
        """Checks that rows have the shape and type for which the model was built."""
        shape, dtype = (rows,) + c.shape_of(self.types[i])[1:], c.dtype_of(self.types[i])
        if part.shape != shape or part.dtype != dtype:
            raise ValueError("%s: rows must be %s%s, not %s%s" % (
                self.names[i], dtype, list(shape), part.dtype, list(part.shape)))

    def _fill_one(self, i, a, tick, out):
        if self.lacking[i]:
            raise ValueError("%s is required, but was not given" % self.names[i])
        first = (tick.step * self.graph.microbatches + tick.microbatch) * self.rows
        if isinstance(a, numpy.ndarray):
            part = a[(first + numpy.arange(self.rows)) % len(a)]
        else:
            part = a(first, self.rows, tick.step)
        self._check(i, part, self.rows)
        to = numpy.frombuffer(ffi.buffer(ffi.cast("char *", out), lib.sl_type_bytes(
            ffi.addressof(self.types, i))), c.dtype_of(self.types[i]))
        to[:] = numpy.ascontiguousarray(part).reshape(-1)


def _rows_of(name, a):
    if callable(a):
        return lambda row, rows, step: narrow(a(row, rows, step))
    a = narrow(a)
    if a.ndim < 1 or not len(a):
        raise ValueError("%s has no rows" % name)
    return a


def _rows_in_common(arrays):
    """Returns the number of rows that all arrays have, or 0 without arrays. Functions do not count."""
    rows = {name: len(a) for name, a in arrays.items() if not callable(a)}
    if len(set(rows.values())) > 1:
        raise ValueError("all inputs must have the same number of rows, not %s" % rows)
    return next(iter(rows.values()), 0)


def _as(name, given, like):
    """Converts an array that replaces `like` to the same kind of numbers: integers or floats."""
    given = _rows_of(name, given)
    if callable(given):
        raise TypeError("%s: rows must be given as an array" % name)
    if callable(like):
        return given
    wanted = narrow(like).dtype
    if wanted.kind == "i" and given.dtype.kind == "f":
        raise TypeError("%s must have integers, not %s" % (name, given.dtype))
    return given.astype(wanted, copy=False)


def tokens_of(tokens):
    tokens = narrow(tokens)
    if tokens.ndim != 2 or tokens.dtype.kind != "i" or not tokens.size:
        raise ValueError("tokens must be rows of integers, not %s%s" % (tokens.dtype, list(tokens.shape)))
    return numpy.ascontiguousarray(tokens)


def narrow(a):
    a = numpy.asarray(a)
    if a.dtype.kind == "f":
        with numpy.errstate(over="raise"):
            try:
                return a.astype(numpy.float32, copy=False)
            except FloatingPointError:
                raise ValueError("%s does not fit in float32" % numpy.abs(a[numpy.isfinite(a)]).max()) from None
    if a.dtype.kind not in "biu":
        raise TypeError("expected numbers, not %s" % a.dtype)
    if a.size and (a.max() > 0x7fffffff or a.min() < -0x80000000):
        raise ValueError("%s does not fit in int32" % (a.max() if a.max() > 0x7fffffff else a.min()))
    return a.astype(numpy.int32, copy=False)


def _divisor(n, most):
    """Returns the largest divisor of n up to `most`."""
    best = max(d for i in range(1, math.isqrt(n) + 1) if n % i == 0 for d in (i, n // i)
               if d <= max(most, 1))
    return best
