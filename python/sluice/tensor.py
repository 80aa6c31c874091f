# SPDX-License-Identifier: Apache-2.0
"""Tensors of a graph, with Python's operators."""
from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Iterator, Tuple, Union

import numpy

from . import _library as c
from . import errors
from ._library import ffi, lib

if TYPE_CHECKING:
    from ._ops import TensorOps as Ops
    from .graph import Graph
else:
    Ops = object

Number = Union[int, float]


class Init:
    """Initial values of a parameter."""

    def __init__(self, kind: str, scale: float) -> None:
        self.kind, self.scale = kind, float(scale)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Init) and (self.kind, self.scale) == (other.kind, other.scale)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "%s(%g)" % (self.kind, self.scale)


def normal(std: float) -> Init:
    """Numbers of a normal distribution with mean 0."""
    return Init("normal", std)


def constant(value: float) -> Init:
    """The same number everywhere."""
    return Init("constant", value)


def uniform(bound: float) -> Init:
    """Numbers uniformly distributed between -bound and bound."""
    return Init("uniform", bound)


class Tensor(Ops):
    """A tensor of a graph. Its shape is known; its values exist only during a run.

    Operators are ops of the graph with NumPy's broadcasting: + - * / @ **, comparisons (masks of 0 and 1, for g.where),
    slices and abs(). An op whose first argument is a tensor is also a method: x.gelu(), x.mean(axis=1), x.reshape(8,
    -1). A number or a NumPy array as the other operand is a constant."""

    __array_ufunc__ = None  # NumPy leaves `array * tensor` to the tensor's operator

    def __init__(self, pointer: Any, graph: "Graph") -> None:
        self.pointer, self.graph = pointer, graph

    @property
    def type(self) -> Any:
        return lib.sl_tensor_type(self.pointer)[0]

    @property
    def shape(self) -> Tuple[int, ...]:
        return c.shape_of(self.type)

    @property
    def dtype(self) -> "numpy.dtype[Any]":
        return c.dtype_of(self.type)

    @property
    def name(self) -> str:
        return c.text(lib.sl_tensor_name(self.pointer))

    @property
    def ndim(self) -> int:
        return self.type.ndim

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def T(self) -> "Tensor":
        """The tensor with its dims in reverse order."""
        return self.graph.permute(self, list(range(self.ndim))[::-1])

    # ---- arithmetic -----------------------------------------------------------------------------

    def __add__(self, other: Any) -> "Tensor":
        if _is_number(other) and self.dtype.kind == "f":
            return self.graph.add_constant(self, float(other))
        return self._two("add", other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> "Tensor":
        if _is_number(other) and self.dtype.kind == "f":
            return self.graph.scale(self, float(other))
        return self._two("mul", other)

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> "Tensor":
        return self + -other if _is_number(other) else self._two("sub", other)

    def __rsub__(self, other: Any) -> "Tensor":
        return -self + other if _is_number(other) else self._of(other)._two("sub", self)

    def __truediv__(self, other: Any) -> "Tensor":
        return self * (1 / other) if _is_number(other) else self._two("div", other)

    def __rtruediv__(self, other: Any) -> "Tensor":
        return self._of(other)._two("div", self)

    def __neg__(self) -> "Tensor":
        return self.graph.neg(self)

    def __pos__(self) -> "Tensor":
        return self

    def __abs__(self) -> "Tensor":
        return self.graph.abs(self)

    def __matmul__(self, other: Any) -> "Tensor":
        return self.graph.matmul(self, self._of(other))

    def __rmatmul__(self, other: Any) -> "Tensor":
        return self.graph.matmul(self._of(other), self)

    def __pow__(self, power: Any) -> "Tensor":
        """Computes an integer power as a product, and others as exp(power log(x)), for positive numbers."""
        if not _is_number(power):
            return self.graph.exp(self.graph.log(self) * power)
        if power < 0:
            return self.graph.rsqrt(self) if power == -0.5 else 1 / self ** -power
        if power == 0.5:
            return self.graph.sqrt(self)
        if power == int(power) and 0 < power <= 64:
            return self._product(int(power))
        return self * 0 + 1 if power == 0 else self.graph.exp(self.graph.log(self) * power)

    def __rpow__(self, base: Any) -> "Tensor":
        if not _is_number(base) or base <= 0:
            raise ValueError("%r ** tensor: the base is a number above 0" % (base,))
        return self.graph.exp(self * math.log(base))

    def _product(self, power: int) -> "Tensor":
        if power == 1:
            return self
        half = self._product(power // 2)
        return half * half * self if power % 2 else half * half

    # ---- comparisons ----------------------------------------------------------------------------

    def __lt__(self, other: Any) -> "Tensor":
        return self._two("lt", other)

    def __le__(self, other: Any) -> "Tensor":
        return self._two("le", other)

    def __gt__(self, other: Any) -> "Tensor":
        return self._two("gt", other)

    def __ge__(self, other: Any) -> "Tensor":
        return self._two("ge", other)

    def __eq__(self, other: Any) -> "Tensor":  # type: ignore[override]
        return self._two("eq", other)

    def __ne__(self, other: Any) -> "Tensor":  # type: ignore[override]
        return self._two("ne", other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("a tensor has no values while the model is being built: g.where(mask, a, b) chooses by them")

    # ---- parts ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator["Tensor"]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> "Tensor":
        """Indexes by NumPy's rules: integers, slices of step 1, ..., None. A tensor of integers takes rows."""
        if isinstance(index, Tensor):
            return self.graph.embedding(index, self)
        index = index if isinstance(index, tuple) else (index,)
        out, shape, dim = self, [], 0
        for i in _spread(index, self.ndim):
            if i is None:
                shape.append(1)
                continue
            begin, count, kept = _range(i, self.shape[dim], dim)
            if count != self.shape[dim]:
                out = self.graph.slice(out, dim, begin, count)
            shape += [count] if kept else []
            dim += 1
        return out if tuple(shape) == out.shape else self.graph.reshape(out, shape)

    # ---- methods --------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # declared in _ops.pyi
        def __getattr__(self, name: str) -> Any:
            from .calls import method
            found = None if name.startswith("_") else method(name)
            if found is None:
                from .calls import methods
                raise AttributeError("a tensor has no %s%s" % (name, errors.near(name, methods())))
            return lambda *args, **kwargs: found(self.graph, self, *args, **kwargs)

    def __dir__(self) -> "list[str]":
        from .calls import methods
        return sorted(set(object.__dir__(self)) | set(methods()))

    def _of(self, other: Any) -> "Tensor":
        """Returns the other operand as a tensor. Numbers get this tensor's type."""
        if isinstance(other, Tensor):
            return other
        if not _is_number(other):
            values = numpy.asarray(other)
            whole = self.dtype.kind == "f" and values.dtype.kind in "biu"
            return self.graph.constant(values.astype(numpy.float32) if whole else values)
        if self.dtype.kind == "i" and other == int(other):
            return self.graph.constant(numpy.array([other], numpy.int32))
        return self.graph.constant(numpy.array([other], numpy.float32))

    def _two(self, op: str, other: Any) -> "Tensor":
        return getattr(self.graph, op)(self, self._of(other))

    def __repr__(self) -> str:
        return "<Tensor %s %s%s>" % (self.name, self.dtype, list(self.shape))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, numpy.number)) and not isinstance(value, bool)


def _spread(index: "tuple[Any, ...]", ndim: int) -> "list[Any]":
    """Returns the index with a slice for each dim that ... stands for or that is omitted."""
    given = sum(i is not None and i is not Ellipsis for i in index)
    dots = sum(i is Ellipsis for i in index)
    if given > ndim or dots > 1:
        raise IndexError("%d indices for a tensor of %d dims" % (given, ndim))
    out: "list[Any]" = []
    for i in index if dots else index + (Ellipsis,):
        out += [slice(None)] * (ndim - given) if i is Ellipsis else [i]
    return out


def _range(i: Any, length: int, dim: int) -> "tuple[int, int, bool]":
    """Returns (first, count, whether the dim is kept)."""
    if not isinstance(i, slice):
        at = operator.index(i)
        if not -length <= at < length:
            raise IndexError("index %d of dim %d, of length %d" % (at, dim, length))
        return at % length, 1, False
    begin, end, step = i.indices(length)
    if step != 1 or end <= begin:
        raise IndexError("dim %d: a slice must have step 1 and must not be empty: [%d:%d:%d]" % (dim, begin, end, step))
    return begin, end - begin, True
