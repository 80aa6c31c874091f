# SPDX-License-Identifier: Apache-2.0
"""Compares an exported program in Sluice with PyTorch: the loss and all gradients of one batch, whole, in microbatches
and with its rows permuted."""
from __future__ import annotations

import copy
import os
import tempfile
import time
import traceback
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy

import torch

from . import errors, exported, run

RATE = 1e4  # learning rate of the one step whose changes are the gradients
STEP = {"optimizer": "sgd:lr=%g,momentum=0,clip=0,decay=0" % RATE, "lr_schedule": "constant:warmup=0"}
LOSS, GRADIENT, VALUE = 2e-4, 5e-3, 5e-5  # relative differences that rounding in f32 explains
HERE, TORCH = os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.abspath(torch.__file__))
Figures = Tuple[float, Dict[str, Any]]


class DisagreementError(errors.Error):
    """A program whose loss or gradients in Sluice are not PyTorch's. The text names the first call that differs."""


class Case(NamedTuple):
    """A way to compute a batch: its name, the order of its rows, and the number of microbatches."""
    name: str
    order: Optional[Any]
    microbatches: int


def measure(path: exported.Path, arrays: Mapping[str, Any], rows: int, microbatches: int = 1) -> Figures:
    """Returns Sluice's loss of one step on `arrays`, which have `rows` rows, and {parameter: gradient}."""
    options: Dict[str, Any] = {"batch": rows} if rows else {}
    made = run.Run(exported.Program(path, arrays, **options), microbatches=microbatches, **STEP)  # type: ignore[arg-type]
    try:
        before = dict(made.params)
        loss = made.train(1, progress=False)[0].loss
        after = dict(made.params)
    finally:
        made.close()
    return loss, {name: (before[name].astype(numpy.float64) - after[name]) / RATE for name in before}


# ---- PyTorch's figures ----------------------------------------------------------------------------------------------


@contextmanager
def kept(module: torch.nn.Module) -> Iterator[None]:
    """Restores buffers and random numbers, which a forward pass may change."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        yield
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])


def figures(module: torch.nn.Module, batches: Sequence[Tuple[Tuple[Any, ...], Dict[str, Any]]]) -> Figures:
    """Returns PyTorch's mean loss of the batches, and {parameter: gradient}. The module is left as it was."""
    params = {name: p for name, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    total, sums = 0.0, {name: numpy.zeros(p.shape) for name, p in params.items()}
    with kept(module):
        torch.manual_seed(1)
        for args, kwargs in batches:
            loss = _first(module(*_copied(args), **_copied(kwargs)))
            found = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
            total += float(loss.detach()) / len(batches)
            for name, gradient in zip(params, found):
                if gradient is not None:
                    sums[name] += gradient.detach().double().cpu().numpy() / len(batches)
    shared: Dict[Any, List[str]] = {}
    for name, p in params.items():
        shared.setdefault((p.data_ptr(), p.shape, p.stride()), []).append(name)
    for names in shared.values():  # an exported module has tied parameters as several with the same numbers
        own = {id(params[name]): sums[name] for name in names}
        for name in names:
            sums[name] = sum(own.values())
    return total, sums


def _first(out: Any) -> torch.Tensor:
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
    return next(leaf for leaf in leaves if not leaf.dim() and leaf.is_floating_point())


def _copied(value: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, value)


def draws(module: torch.nn.Module, batch: Tuple[Tuple[Any, ...], Dict[str, Any]]) -> bool:
    """Returns whether the loss depends on random numbers."""
    with kept(module), torch.no_grad():
        losses = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            losses.append(float(_first(module(*_copied(batch[0]), **_copied(batch[1])))))
    return losses[0] != losses[1] and losses[0] == losses[0]


@contextmanager
def without_dropout(module: torch.nn.Module) -> Iterator[None]:
    """Sets the rates of dropout to zero."""
    changed: List[Tuple[torch.nn.Module, str, float]] = []
    for part in module.modules():
        names = ["p"] if isinstance(part, torch.nn.modules.dropout._DropoutNd) else [n for n in vars(part) if "dropout" in n]
        changed += [(part, n, getattr(part, n)) for n in names if isinstance(getattr(part, n), float)]
    for part, name, _ in changed:
        setattr(part, name, 0.0)
    try:
        yield
    finally:
        for part, name, value in changed:
            setattr(part, name, value)


# ---- comparison -----------------------------------------------------------------------------------------------------


def difference(got: Figures, want: Figures, exact: Optional[Figures] = None) -> Optional[str]:
    """Returns what differs, or None. `exact` has PyTorch's figures in f64: where its own f32 is far from them, Sluice's
    may be too."""
    slack = abs(want[0] - exact[0]) * 20 if exact else 0.0
    if not (abs(got[0] - want[0]) <= LOSS * max(abs(want[0]), 1e-2) + slack or numpy.isnan(want[0]) and numpy.isnan(got[0])):
        return "the loss is %.7g, PyTorch's %.7g" % (got[0], want[0])
    largest = max([float(numpy.abs(g).max()) for g in want[1].values() if g.size] + [0.0])
    for name, gradient in want[1].items():
        if name not in got[1] or not gradient.size:
            continue
        own = numpy.abs(got[1][name] - gradient)
        allowed = GRADIENT * float(numpy.abs(gradient).max()) + 1e-5 * largest + 1e-8
        if exact:
            allowed = allowed + 20 * numpy.abs(gradient - exact[1][name])
        wrong = ~((own <= allowed) | (numpy.isnan(gradient) & numpy.isnan(got[1][name])))
        if wrong.any():
            at = tuple(int(i) for i in numpy.argwhere(wrong)[0])
            return "the gradient of %s%s is %.7g, PyTorch's %.7g" % (name, list(at) if at else "", got[1][name][at], gradient[at])
    return None


def _doubled(double: Callable[[], torch.nn.Module], batches: Any) -> Optional[Figures]:
    """Returns PyTorch's figures in f64, if the module can be computed so."""
    try:
        wide = torch.utils._pytree.tree_map(lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v, batches)
        return figures(double(), wide)
    except Exception:
        return None


class Comparison:
    """A program, saved at `path`, and the module that it was exported from.

    `names` are the program's inputs, `with_rows` whether each has rows, `leaves` makes (args, kwargs) of tensors in the
    order of the inputs, and `double` makes a copy of the module in f64."""

    def __init__(self, path: exported.Path, module: torch.nn.Module, tensors: Sequence[torch.Tensor],
                 leaves: Callable[[Sequence[torch.Tensor]], Tuple[Tuple[Any, ...], Dict[str, Any]]],
                 double: Optional[Callable[[], torch.nn.Module]] = None) -> None:
        self.path, self.module, self.tensors, self.leaves = path, module, list(tensors), leaves
        self.double = double or (lambda: copy.deepcopy(module).double())
        opened = exported.Program(path)
        self.names, self.with_rows, self.rows = [c.name for c in opened.columns], [c.rows for c in opened.columns], opened.exported

    def cases(self, microbatches: int) -> List[Case]:
        found = [Case("whole", None, 1)]
        parts = microbatches if microbatches > 1 else 2
        if self.rows >= 2:
            found.append(Case("with rows permuted", torch.arange(self.rows).roll(1).flip(0), 1))
            if self.rows % parts == 0:
                found.append(Case("in %d microbatches" % parts, None, parts))
        return found

    def batches(self, case: Case) -> List[List[torch.Tensor]]:
        """Returns the tensors of each microbatch."""
        whole = [t[case.order] if rows and case.order is not None else t for t, rows in zip(self.tensors, self.with_rows)]
        return [[t.chunk(case.microbatches)[i] if rows else t for t, rows in zip(whole, self.with_rows)] for i in range(case.microbatches)]

    def wrong(self, case: Case) -> Optional[str]:
        """Returns what differs in a case, or None."""
        batches = self.batches(case)
        given = [self.leaves(batch) for batch in batches]
        want = figures(self.module, given)
        whole = [torch.cat([b[i] for b in batches]) if rows else batches[0][i] for i, rows in enumerate(self.with_rows)]
        rows = next((len(t) for t, has in zip(whole, self.with_rows) if has), 0)
        got = measure(self.path, {n: _array(t) for n, t in zip(self.names, whole)}, rows, case.microbatches)
        said = difference(got, want)
        return said and difference(got, want, _doubled(self.double, given))


class FileComparison(Comparison):
    """A program without its module. PyTorch computes it only for the exported number of rows, so a batch in microbatches
    repeats the example, with its rows in another order in each."""

    def batches(self, case: Case) -> List[List[torch.Tensor]]:
        whole = super().batches(Case(case.name, case.order, 1))[0]
        return [[t.roll(i, 0) if rows else t for t, rows in zip(whole, self.with_rows)] for i in range(case.microbatches)]


def _array(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy()


def check(comparison: Comparison, program: Any, microbatches: int, asked: bool) -> str:
    """Compares all cases, and returns what was compared. Raises DisagreementError with the first call that differs."""
    began, done = time.monotonic(), []
    for case in comparison.cases(microbatches):
        try:
            said = comparison.wrong(case)
        except errors.Error as error:
            if case.microbatches == 1 or asked:
                raise
            done.append("not %s (%s)" % (case.name, str(error).split(": ", 1)[-1]))
            continue
        if said:
            where = first_call(program, comparison) if case.microbatches == 1 else None
            raise DisagreementError("Sluice computes another function than the module, %s: %s%s; please report it; check=False leaves "
                                    "the comparison out" % (case.name, said, "; " + where if where else ""))
        done.append(case.name)
    return "agrees with PyTorch: %s (%.1f s)" % (", ".join(done), time.monotonic() - began)


# ---- the first call that differs ------------------------------------------------------------------------------------


def first_call(program: Any, of: "Comparison") -> str:
    """Returns what the first call is whose values differ, and both values."""
    try:
        return Search(program, of).first()
    except Exception as error:
        said = traceback.format_exception_only(type(error), error)[-1].strip()
        return "the search for the call failed (%s)" % said.split("\n")[0][:200]


def line_of(node: Any) -> str:
    """Returns the user's line of a call: the innermost one outside PyTorch."""
    frames = [part.split("\n") for part in (node.meta.get("stack_trace") or "").split('File "')[1:]]
    own = [f for f in frames if not f[0].startswith((TORCH + os.sep, HERE + os.sep))] or frames
    if not own:
        return ""
    name, _, rest = own[-1][0].partition('", line ')
    return " at %s:%s (%s)" % (name, rest.split(",")[0], own[-1][1].strip() if len(own[-1]) > 1 else "")


class Search:
    """Finds the first call of a program whose values differ. A parameter multiplies the values of a call, and the sum is
    the loss: its gradients are the values."""
    MOST = 40

    def __init__(self, program: Any, of: Comparison) -> None:
        self.module, self.of, self.known, self.names = program.module(), of, {}, 0
        self.args, self.kwargs = of.leaves(of.tensors)
        self.values = self._record()
        self.nodes = [n for n in self.module.graph.nodes if n.op == "call_function" and n.name in self.values and self.values[n.name].size]

    def first(self) -> str:
        at = self._bisect(len(self.nodes) - 1)
        while at is not None:
            before = [self.nodes.index(n) for n in self.nodes[at].all_input_nodes if n in self.nodes]
            wrong = next((i for i in before if self._differs(i)), None)
            if wrong is None:
                node = self.nodes[at]
                return "the first call that differs is %s%s: %s" % (node.target, line_of(node), self.known[at])
            at = self._bisect(wrong)
        return "the values of all calls agree, and the gradients do not"

    def _bisect(self, last: int) -> Optional[int]:
        if last < 0 or not self._differs(last):
            return None
        low, high = -1, last
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._differs(middle) else (middle, high)
        return high

    def _record(self) -> Dict[str, Any]:
        """Returns PyTorch's values of all calls, as they were when they were made."""
        values: Dict[str, Any] = {}

        class Recorder(torch.fx.Interpreter):
            def run_node(self, node: Any) -> Any:
                out = super().run_node(node)
                if isinstance(out, torch.Tensor):
                    values[node.name] = out.detach().double().cpu().numpy().copy()
                return out
        inputs = torch.utils._pytree.tree_leaves((_copied(self.args), _copied(self.kwargs)))
        with kept(self.module):
            Recorder(self.module).run(*inputs, enable_io_processing=False)
        return values

    def _differs(self, index: int) -> bool:
        if index in self.known:
            return bool(self.known[index])
        self.known[index] = ""
        if len(self.known) > self.MOST:
            return False
        try:
            got, want = self._values(self.nodes[index]), self.values[self.nodes[index].name]
        except errors.Error:
            return False
        wrong = ~((numpy.abs(got - want) <= VALUE * float(numpy.abs(want[numpy.isfinite(want)]).max(initial=0)) + 1e-6) | (got == want) | (numpy.isnan(got) & numpy.isnan(want)))
        if wrong.any():
            at = tuple(int(i) for i in numpy.argwhere(wrong)[0])
            self.known[index] = "element %s is %.7g, PyTorch's %.7g" % (list(at), got[at], want[at])
        return bool(wrong.any())

    def _values(self, node: Any) -> Any:
        """Returns Sluice's values of a call."""
        made = copy.deepcopy(self.module)
        at = next(n for n in made.graph.nodes if n.name == node.name)
        made.register_parameter("sluice_probe", torch.nn.Parameter(torch.ones(self.values[node.name].shape)))
        with made.graph.inserting_after(at):
            probe = made.graph.get_attr("sluice_probe")
        with made.graph.inserting_after(probe):
            product = made.graph.call_function(torch.mul, (at, probe))
        with made.graph.inserting_after(product):
            total = made.graph.call_function(torch.sum, (product,))
        output = next(n for n in made.graph.nodes if n.op == "output")
        output.args = (torch.utils._pytree.tree_map(lambda _: total, output.args[0]),)
        made.recompile()
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            path = os.path.join(folder, "probe.pt2")
            torch.export.save(torch.export.export(made, _copied(self.args), _copied(self.kwargs) or None, strict=False), path)
            arrays = {n: _array(t) for n, t in zip(self.of.names, self.of.tensors)}
            return measure(path, arrays, self.of.rows)[1]["sluice_probe"]
