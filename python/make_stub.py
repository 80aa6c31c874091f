# SPDX-License-Identifier: Apache-2.0
"""Makes PACKAGE/_ops.pyi of the package and the library: type hints and texts of all ops, as methods of a graph and of
its tensors, and of the options of Run and Graph.train. Type checkers and editors read it.

    SLUICE_PREFIX=INSTALLED make_stub.py PACKAGE
"""
import inspect
import os
import sys

PACKAGE = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.dirname(PACKAGE))

from sluice import _library as c  # noqa: E402
from sluice import calls  # noqa: E402
from sluice._library import ffi, lib  # noqa: E402
from sluice._words import OPTIONAL  # noqa: E402
from sluice.exported import settings  # noqa: E402
from sluice.graph import OPTIMIZER_ALSO, Graph  # noqa: E402
from sluice.run import LOWER_NAMES, Run  # noqa: E402
from sluice.tensor import Tensor  # noqa: E402

HEAD = '''# Made by make_stub.py.
from typing import Any, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from .objectives import Objective
from .rollouts import Rollouts
from .run import Path
from .tensor import Tensor

Operand = Union[Tensor, float, Sequence[Any], Any]
'''
# Parameters with a default, in addition to optional tensors, flags and records.
DEFAULTS = ("axes", "dim", "kv_heads", "a_transposed", "b_transposed")
ALIASES = {"axes": ("axis", "dim"), "dim": ("axis",), "keep": ("keepdims", "keepdim"), "low": ("min",), "high": ("max",)}


def hint(name, ctype, param):
    """(type, whether it may be left out)."""
    if ctype.cname == "struct sl_tensor *":
        return ("Optional[Tensor]", True) if name in OPTIONAL else ("Operand", False)
    if ctype.cname == "struct sl_tensor * *":
        return "Sequence[Tensor]", False
    if ctype.cname == "struct sl_type":
        return "Sequence[int]", False
    if name == "axes":
        return "Union[int, Sequence[int], None]", True
    if ctype.kind == "enum":
        return "Union[str, int]", False
    if ctype.cname == "_Bool":
        return "bool", True
    if ctype.kind == "primitive":
        return ("float" if ctype.cname in ("float", "double") else "int"), name in DEFAULTS
    if ctype.cname.startswith("char"):
        return "str", False
    if ctype.kind == "pointer" and ctype.item.kind == "primitive":
        return "Union[int, Sequence[int]]", False
    return "Optional[Mapping[str, Any]]" if "routing" not in name else "Any", "routing" not in name


def of_function(name):
    """(parameters, result) of a call of C."""
    target = getattr(lib, "sl_%s_at" % name)
    ctypes, params = ffi.typeof(target).args[2:], c.words("sl_%s_at" % name)[0][2:]
    names = [p.split("*")[-1].split()[-1].split("[")[0] for p in params]
    parts, outs, several, default = [], 0, False, False
    for i, (n, t, p) in enumerate(zip(names, ctypes, params)):
        if p.startswith("sl_tensor **"):
            outs, several = outs + 1, several or i > 0 and "lengths" in names
        elif calls._is_list(params, i):
            continue
        elif t.cname == "struct sl_type" and i + 1 == len(params) and not default:
            parts.append("*%s: Union[int, Sequence[int]]" % n)
        else:
            what, may = hint(n, t, p)
            default = default or may
            parts.append("%s: %s%s" % (n, what, " = ..." if default else ""))
            parts += ["%s: %s = ..." % (a, what) for a in ALIASES.get(n, ()) if default and a not in names]
    fields = ffi.typeof(target).args[-1]
    parts += ["%s: %s = ..." % (n, hint(n, dict(fields.item.fields)[n].type, "")[0]) for n in calls.attributes("sl_%s_at" % name)]
    seen = set()
    parts = [p for p in parts if p.split(":")[0] not in seen and not seen.add(p.split(":")[0])]
    result = ffi.typeof(target).result
    if result.kind == "struct":
        return parts, "Any"
    if result.kind == "void":
        return parts, "Tuple[Tensor, ...]" if several or outs > 1 else "Tensor" if outs else "None"
    return parts, "Tuple[%s]" % ", ".join(["Tensor"] * (1 + outs)) if outs else "Tensor"


def of_row(name):
    names = c.words("sl_op_" + name)[0]
    if names:
        return ["%s: Operand" % n for n in names], "Tensor"
    return ["*inputs: Operand", "**attrs: Any"], "Tensor"


def method(name, parts, result, own):
    said = (calls.function(name).__doc__ or "").split("\n", 1)[-1].strip().replace("\\", "").replace('"""', "''")
    lines = ['        """' + said.replace("\n", "\n        ") + '"""', ""] if said else ["        ...", ""]
    return ["    def %s(%s) -> %s:" % (name, ", ".join(["self"] + parts), result)] + lines


def classes():
    graph, tensor = ["", "", "class GraphOps:"], ["", "", "class TensorOps:"]
    functions = set(calls.functions())
    for name in calls.ops():
        if name.endswith(("_b", "_w")) or name in ("op1", "op2", "op3"):
            continue
        parts, result = of_function(name) if name in functions else of_row(name)
        if name not in vars(Graph):
            graph += method(name, parts, result, Graph)
        if name not in vars(Tensor) and calls.method(name) and parts:
            rest = parts if parts[0].startswith("*") else parts[1:]
            tensor += method(name, rest, result, Tensor)
    return graph + tensor


def of_field(ctype):
    if ctype.kind == "enum":
        return "Union[str, int]"
    if ctype.cname == "_Bool":
        return "bool"
    if ctype.kind == "primitive":
        return "float" if ctype.cname in ("float", "double") else "int"
    return "Optional[str]" if ctype.cname.startswith("char") else "Any"


def record(name, fields):
    return ["", "", "class %s(TypedDict, total=False):" % name] + ["    %s: %s" % item for item in sorted(fields.items())]


def optimizer():
    known = {n: of_field(f.type) for n, f in ffi.typeof("sl_optimizer").fields}
    known.update({also: known[n] for also, n in OPTIMIZER_ALSO.items()}, betas="Tuple[float, float]", clip="Optional[float]")
    return {n: "str" if n in ("rule", "optimizer") else t for n, t in known.items() if n != "optimizer"}


def run_options():
    """Returns the options of Run by keyword, including those of an exported program and its optimizer, which a .pt2
    file takes."""
    known = optimizer()
    fields = dict({name: known[name] for name in settings()}, inputs="Mapping[str, Any]", held_out="Any", batch="int", block="str", rows_in_constants="bool")
    for name, path in LOWER_NAMES.items():
        ctype = ffi.typeof("sl_lower_options")
        for part in path.split("."):
            ctype = dict(ctype.fields)[part].type
        if ctype.kind not in ("function",) and not name.startswith(("on_", "n", "print")):
            fields[name] = of_field(ctype)
    graph = {n: of_field(f.type) for n, f in ffi.typeof("sl_graph_options").fields}
    fields.update({n: graph[n] for n in Run.GRAPH})
    fields.update({n: "Any" for n in Run.TRAINING + Run.OWN + tuple(Run.ALSO)})
    fields.update(optimizer="str", lr_schedule="str", total_steps="int", devices="str", threads="int", memory="float",
                  quotas="Mapping[str, int]", homes="Mapping[str, Any]")
    return fields


def main():
    own = {p.name: p.annotation for p in inspect.signature(Run.__init__).parameters.values() if p.kind == p.KEYWORD_ONLY}
    options = run_options()
    module = {name: t for name, t in dict(options, **own).items() if name != "inputs"}
    lines = [HEAD] + classes() + record("Optimizer", optimizer())
    lines += record("RunOptions", {name: t for name, t in options.items() if name not in own}) + record("ModuleOptions", module)
    with open(os.path.join(PACKAGE, "_ops.pyi"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


main()
