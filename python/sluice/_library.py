# SPDX-License-Identifier: Apache-2.0
"""Low-level access to libsluice: the loaded library, its errors as exceptions, and its records as dicts."""
from __future__ import annotations

import itertools
import operator
import os
import re
import sys
import weakref
from typing import Any

import numpy

from . import _statuses, errors
from ._abi import ffi
from ._words import WORDS

ffi.sizeof("sl_update")  # contains sl_optimizer, which points back to it: cffi 1.17 cannot begin with that one

HERE = os.path.dirname(os.path.abspath(__file__))


def _prefix():
    """Returns where the library and its tools are installed: in the wheel, or at SLUICE_PREFIX."""
    return os.environ.get("SLUICE_PREFIX") or os.path.join(HERE, "installed")


def _find(stem):
    for folder, _, files in os.walk(_prefix()):
        for name in sorted(files):
            if name.startswith(stem + ".so."):
                return os.path.join(folder, name)
    raise ImportError("there is no %s in %s; SLUICE_PREFIX says where it is" % (stem, _prefix()))


def load(stem: str) -> Any:
    """Loads an installed library by its name without suffix. Models in C can use its functions."""
    return ffi.dlopen(_find(stem), ffi.RTLD_NOW | ffi.RTLD_GLOBAL)


lib: Any = load("libsluice")


def tool(name: str) -> str:
    """Returns the path of an installed tool: actorrun, actortrace, actortune, actorserve."""
    return os.path.join(_prefix(), "bin", name)


# ---- errors ---------------------------------------------------------------------------------


def text(chars):
    return ffi.string(chars).decode("utf-8", "replace") if chars else ""


ERRORS = {number: getattr(_statuses, name[5:].capitalize() + "Error")
          for number, name in ffi.typeof("sl_status").elements.items() if name.startswith("SL_E_")}


def lower_fields():
    """Returns {field: (keyword, whether Python's value is that of the field)} of the options of lowering."""
    fields, rows = {}, lib.sl_lower_fields()
    while rows.field:
        fields[text(rows.field)] = (text(rows.option.name).replace("-", "_"), bool(rows.option.help))
        rows += 1
    return fields


LOWER = lower_fields()
_FIELD = re.compile(r"(?<![\w./])(%s)(?!\w|\.\w)" % "|".join(map(re.escape, sorted(LOWER, key=len, reverse=True))))


def named(said):
    """Returns a message of the library, with keywords in place of field names."""
    return _FIELD.sub(lambda match: LOWER[match[1]][0], said)


def check(status, detail=None):
    if status:
        raise ERRORS[int(status)](named(detail or text(lib.sl_detail())))


def here(keep):
    """Returns the source location of the caller outside of this package, as an sl_here."""
    frame = sys._getframe(1)
    while frame.f_back and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == HERE:
        frame = frame.f_back
    at = ffi.new("sl_here *", {"file": chars(frame.f_code.co_filename, keep),
                               "line": frame.f_lineno})
    return at[0]


# ---- values -----------------------------------------------------------------------------------

DTYPES = {"SL_F32": numpy.float32, "SL_F64": numpy.float64, "SL_I32": numpy.int32,
          "SL_BF16": numpy.uint16}
_DTYPES_BY_NUMBER = {ffi.typeof("sl_dtype").relements[k]: numpy.dtype(v) for k, v in DTYPES.items()}


def chars(value, keep):
    made = ffi.new("char[]", os.fspath(value).encode())
    keep.append(made)
    return made


def type_of(shape, dtype=numpy.float32):
    """Makes an sl_type."""
    for number, known in _DTYPES_BY_NUMBER.items():
        if known == numpy.dtype(dtype):
            return lib.sl_type_make(number, len(shape), [operator.index(d) for d in shape])
    raise TypeError("%s is none of the library's types: %s" % (
        numpy.dtype(dtype), ", ".join(str(d) for d in _DTYPES_BY_NUMBER.values())))


def shape_of(sl_type):
    return tuple(sl_type.dim[i] for i in range(sl_type.ndim))


def dtype_of(sl_type):
    return _DTYPES_BY_NUMBER[sl_type.dtype]


def array(sl_type, data):
    """Copies data into an array."""
    size = lib.sl_type_bytes(ffi.addressof(sl_type))
    return numpy.frombuffer(bytes(ffi.buffer(ffi.cast("char *", data), size)),
                            dtype_of(sl_type)).reshape(shape_of(sl_type))


def constant(ctype, word):
    """Returns the number of an enumerator: "SL_CUT_BALANCED", or "balanced" for short."""
    known = ctype.relements
    for name, number in known.items():
        if word == name or name.lower().endswith("_" + word.lower().replace("-", "_")):
            return number
    short = [re.sub("^SL_(RATE_|CUT_|LINKS_|ADMIT_)?", "", n).lower() for n in known]
    raise ValueError("%r is none of %s%s" % (word, ", ".join(short), errors.near(word.lower(), short)))


def weakly(method):
    """Returns a function that calls the method as long as its object lives, without keeping the object alive."""
    there = weakref.WeakMethod(method)

    def call(*args):
        found = there()
        return found(*args) if found else None
    return call


def value(ctype, given, keep):
    """Converts a value to the form that cffi takes for a field or a parameter of this type."""
    if ctype.kind == "enum" and isinstance(given, str):
        return constant(ctype, given)
    if ctype.kind == "struct" and isinstance(given, dict):
        return fields(ctype, given, keep)
    if ctype.kind == "pointer" and given is not None:
        return _pointer(ctype.item, given, keep)
    if ctype.kind == "function" and callable(given):  # it must catch its exceptions
        keep.append(ffi.callback(ctype, given))
        return keep[-1]
    return ffi.NULL if ctype.kind in ("pointer", "function") and given is None else given


def _pointer(item, given, keep):
    if isinstance(given, (str, os.PathLike)):
        if item.cname == "char":
            return chars(given, keep)
        if item.cname == "struct sl_op":
            return _op(os.fspath(given))
    if item.kind == "struct" and isinstance(given, dict):
        given = ffi.new(ffi.getctype(item, "*"), fields(item, given, keep))
        keep.append(given)
    elif isinstance(given, (list, tuple)):
        given = ffi.new(ffi.getctype(item, "[]"), [value(item, v, keep) for v in given])
        keep.append(given)
    return given


def _op(name):
    row, names = lib.sl_op_find(name.encode()), []
    while not row and lib.sl_ops[len(names)]:
        names.append(text(lib.sl_ops[len(names)].name))
    if not row:
        raise ValueError("there is no op %s%s" % (name, errors.near(name, names)))
    return row


def fields(ctype, given, keep, what=None):
    known = dict(ctype.fields)
    wrong = [name for name in given if name not in known]
    if wrong:
        raise errors.unknown(what or ctype.cname.replace("struct ", ""), wrong, known)
    return {name: _number(name, known[name].type, value(known[name].type, v, keep)) for name, v in given.items()}


def _number(name, ctype, given):
    """Checks a number of a field, whose name cffi does not tell."""
    if ctype.kind == "primitive":
        try:
            ffi.new(ffi.getctype(ctype, "*"), given)
        except (TypeError, OverflowError) as error:
            what = "true or false" if ctype.cname in ("_Bool", "bool") else "a number"
            raise type(error)("%s=%r: must be %s (%s)" % (name, given, what, error)) from None
    return given


def record(name, given, keep, what=None):
    """Makes a struct of the library from a dict of fields; omitted fields are 0. `what` names the record in
    messages."""
    made = ffi.new(name + " *", fields(ffi.typeof(name), given, keep, what))
    keep.append(made)
    return made


def _listed(array):
    """The items of an array of C up to a NULL, or up to a row without a name."""
    for i in itertools.count():
        item = array[i]
        if not (item.name if ffi.typeof(item).kind == "struct" else item):
            return
        yield item


def attributes(row, given, keep):
    """Makes the attributes of a call of an op. `given` has fields of the op's kinds and of the groups, by name."""
    made, kinds = {}, [k for k in row.attrs if k] + list(_listed(lib.sl_attrs_groups))
    known = {text(f.name): text(k.name) for k in reversed(kinds) for f in _listed(k.fields)}
    wrong = [name for name in given if name not in known and name != "user"]
    if wrong:
        raise errors.unknown(text(row.name), wrong, known)
    for name, what in given.items():
        (made if name == "user" else made.setdefault(known[name], {}))[name] = what
    return record("sl_attrs", made, keep, text(row.name))


def written(write):
    """Returns the text that write(FILE *) writes."""
    memory, size = ffi.new("char **"), ffi.new("size_t *")
    file = _libc.open_memstream(memory, size)
    write(file)
    _libc.fclose(file)
    out = ffi.string(memory[0]).decode("utf-8", "replace")
    _libc.free(memory[0])
    return out


_libc = ffi.dlopen(None)


def free(pointer: Any) -> None:
    """Frees memory that C has allocated for its caller."""
    _libc.free(pointer)


def allocated(data: bytes) -> Any:
    """Copies a text into memory that C frees."""
    return ffi.cast("char *", _libc.strdup(data))


def owned(pointer, destroy):
    """Returns the pointer, which is destroyed once nothing refers to it."""
    weakref.finalize(pointer, destroy, ffi.cast("void *", pointer))
    return pointer


def words(function):
    """Returns (parameters as declared in C, comment in the header)."""
    return WORDS.get(function, ([], ""))
