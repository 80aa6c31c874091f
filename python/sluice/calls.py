# SPDX-License-Identifier: Apache-2.0
"""C calls as methods: every op of the library by name, for a graph and for its tensors."""
from __future__ import annotations

import collections
import operator
import re
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import _library as c
from . import errors
from ._library import ffi, lib
from ._words import OPTIONAL
from .tensor import Tensor

# Parameter names of NumPy and PyTorch, with the names in C that they stand for.
ALSO = {"axis": ("axes", "dim"), "dim": ("axes",), "axes": ("dim",), "keepdims": ("keep",), "keepdim": ("keep",),
        "min": ("low",), "max": ("high",)}


def _rows():
    i = 0
    while lib.sl_ops[i]:
        yield c.text(lib.sl_ops[i].name)
        i += 1


def functions() -> Iterator[str]:
    """Yields the names of the functions that add a call to a model."""
    for name in dir(lib):
        if name.startswith("sl_") and name.endswith("_at"):
            args = ffi.typeof(getattr(lib, name)).args
            if [a.cname for a in args[:2]] == ["struct sl_here", "struct sl_graph *"]:
                yield name[3:-3]


def ops() -> List[str]:
    """Returns the names of all ops: methods of a graph, or names for its apply()."""
    return sorted(set(_rows()) | set(functions()))


_made: Dict[str, Callable[..., Any]] = {}


def function(name: str) -> Optional[Callable[..., Any]]:
    """Returns the op as a function of the graph, or None."""
    if name not in _made:
        if name in functions():
            _made[name] = _call("sl_%s_at" % name)
        elif lib.sl_op_find(name.encode()):
            _made[name] = _row_call(name)
        else:
            return None
    return _made[name]


def method(name: str) -> Optional[Callable[..., Any]]:
    """Returns the op as a function of the graph and a tensor, if its first argument is a tensor."""
    if name in functions():
        first = c.words("sl_%s_at" % name)[0][2:3]
        return function(name) if first and first[0].startswith("sl_tensor *") and "*const" not in first[0] else None
    return function(name)


def methods() -> List[str]:
    """Returns the names of all ops that are methods of tensors."""
    return [name for name in ops() if method(name)]


def _row_call(name):
    names, said = c.words("sl_op_" + name)

    def call(g, *inputs, **attrs):
        inputs += tuple(attrs.pop(n) for n in names[len(inputs):] if n in attrs)
        if names and len(inputs) > len(names):
            raise TypeError("%s takes %s" % (name, ", ".join(names)))
        if names and len(inputs) < len(names):
            raise TypeError("%s needs %s" % (name, " and ".join(names[len(inputs):])))
        return g.apply(name, *inputs, **attrs)[0]
    call.__name__, call.__doc__ = name, "%s(%s)\n\n%s" % (name, ", ".join(names), said)
    return call


def _is_list(params, i):
    """Returns whether parameter i is the length of the array in parameter i + 1."""
    if not params[i].startswith("int ") or i + 1 == len(params):
        return False
    behind = params[i + 1]
    return "*const *" in behind or "*" in behind and not behind.startswith(
        ("sl_tensor *", "const char", "const struct", "const sl_"))


def _call(symbol):
    target = getattr(lib, symbol)
    ctypes = ffi.typeof(target).args[2:]
    params, said = c.words(symbol)
    said = c.words("sl_op_" + symbol[3:-3])[1] or said  # text of the op, if there is one
    params = params[2:]
    names = [p.split("*")[-1].split()[-1].split("[")[0] for p in params]
    outputs = [p.startswith("sl_tensor **") for p in params]
    counts = [_is_list(params, i) for i in range(len(params))]
    asked = [n for n, out, count in zip(names, outputs, counts) if not out and not count]
    needed = [n for n, t in zip(names, ctypes) if t.cname == "struct sl_tensor *" and n not in OPTIONAL]
    fields = attributes(symbol)

    def call(g, *args, **kwargs):
        if ctypes and ctypes[-1].cname == "struct sl_type" and len(args) >= len(asked):
            args = args[:len(asked) - 1] + (_flat(args[len(asked) - 1:]),)  # lengths given as separate arguments
        if len(args) > len(asked):
            raise TypeError("%s takes %s" % (symbol[3:-3], ", ".join(asked)))
        given = dict(zip(asked, args))
        settings = {n: kwargs.pop(n) for n in fields if n in kwargs and n not in asked}
        if settings:
            given["attrs"] = {**(given.get("attrs") or {}), **settings}
        for name, value in kwargs.items():
            known = name if name in asked else next((n for n in ALSO.get(name, ()) if n in asked), name)
            if known not in asked or known in given:
                raise TypeError("%s takes %s, not %s%s" % (symbol[3:-3], ", ".join(asked + fields), name,
                                                           "" if name in given else errors.near(name, asked + fields)))
            given[known] = value
        lacking = [n for n in needed if given.get(n) is None]
        if lacking:
            raise TypeError("%s needs %s" % (symbol[3:-3], " and ".join(lacking)))
        return _called(g, target, ctypes, names, outputs, counts, given)
    call.__name__ = symbol[3:-3]
    call.__doc__ = "%s(%s)\n\n%s" % (symbol[3:-3], ", ".join(asked + fields), said)
    return call


def attributes(symbol: str) -> List[str]:
    """The keywords that a call takes for its last argument, attributes of one kind: heads, window, ..."""
    last = ffi.typeof(getattr(lib, symbol)).args[-1]
    kind = last.item.cname if last.kind == "pointer" else ""
    return [name for name, _ in last.item.fields] if re.fullmatch(r"struct sl_\w+_attrs", kind) else []


def _called(g, target, ctypes, names, outputs, counts, given):
    args, outs, last = [], [], 1
    for i, (ctype, name) in enumerate(zip(ctypes, names)):
        if outputs[i]:
            outs.append(ffi.new("sl_tensor *[]", last))
            args.append(outs[-1])
        elif counts[i]:
            behind = given.get(names[i + 1]) or ()
            last = behind if isinstance(behind, int) else len(behind)
            args.append(last)
        elif i and counts[i - 1] and isinstance(given.get(name), int):
            args.append(ffi.NULL)  # that many equal parts
        else:
            args.append(_argument(g, ctype, given.get(name), given.get(names[0])))
            if i + 1 < len(names) and outputs[i + 1] and ctype.cname == "int":
                last = int(given.get(name) or 1)  # how many come out
    result = target(c.here(g._kept), g.pointer, *args)
    g.check()
    made = [Tensor(t, g) for out in outs for t in out]
    if result is not None and ffi.typeof(result).kind == "struct":
        return _record(g, result)
    if result is not None:
        made.insert(0, Tensor(result, g))
    return made[0] if len(made) == 1 else tuple(made) or None


def _record(g, result):
    """Converts a record of tensors, such as sl_routing, to a named tuple."""
    ctype = ffi.typeof(result)
    names = [name for name, _ in ctype.fields]
    made = collections.namedtuple(ctype.cname.replace("struct ", "").replace("sl_", "").capitalize(), names)
    return made(*(Tensor(getattr(result, n), g) for n in names))


def beside(tensor, given):
    """Converts a number or an array to a tensor that can be combined with this one."""
    if isinstance(tensor, Tensor):
        return tensor._of(given)
    raise TypeError("expected a tensor, not %r" % (given,))


def _flat(args):
    return args[0] if len(args) == 1 and not isinstance(args[0], int) else args


def _axes(dims, tensor):
    """Converts dims to bits; negative dims count from the end."""
    n, bits = len(tensor.shape), 0
    for d in map(operator.index, dims):
        if not -n <= d < n:
            raise ValueError("axis %d is out of range for a tensor of %d dims" % (d, n))
        if bits & 1 << d % n:
            raise ValueError("axis %d is given twice" % (d % n))
        bits |= 1 << d % n
    return bits


def _argument(g, ctype, given, tensor=None):
    if ctype.cname == "struct sl_tensor *" and given is not None:
        return (given if isinstance(given, Tensor) else beside(tensor, given)).pointer
    if ctype.cname == "struct sl_type" and isinstance(given, (list, tuple)):
        return c.type_of(given)
    if ctype.cname == "uint32_t" and given is not None:
        return _axes(given if isinstance(given, (list, tuple)) else [given], tensor)
    if ctype.cname == "struct sl_tensor * *":
        return [t.pointer for t in given]
    if hasattr(given, "_fields") and ctype.kind == "pointer":
        given = {name: t.pointer for name, t in given._asdict().items()}
    if given is None:
        return ffi.NULL if ctype.kind == "pointer" else False if ctype.cname == "_Bool" else 0
    return c.value(ctype, given, g._kept)


