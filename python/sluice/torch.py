# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules, exported unchanged and trained on any plan.

    import sluice.torch

    run = sluice.torch.Run(module, (ids, labels), stages=4, microbatches=8, schedule="zb-h1", optimizer="adamw", lr=3e-4)
    run.train(loader)
    module.load_state_dict(run.state_dict())

forward() returns the loss, a tuple that begins with it, or a dict or an object with `loss`. Otherwise `loss=function`
computes it from what forward() returns and from a target, the last of the example inputs."""
from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import json
import logging
import os
import sys
import tempfile
import traceback
import types
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from . import _library as c
from . import agreement, errors, exported, notebook, run as base
from ._library import lib
from .feed import Feed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._ops import ModuleOptions

Path = Union[str, "os.PathLike[str]"]
Loss = Callable[[Any, Any], torch.Tensor]
HERE, TORCH = os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.abspath(torch.__file__))


DisagreementError = agreement.DisagreementError


class ExportError(errors.Error):
    """A module that torch.export could not trace. The text says where, and what to change."""


# ---- arguments ------------------------------------------------------------------------------------------------------


class Arguments:
    """Maps a batch to the arguments of forward(), and these to the program's inputs."""

    def __init__(self, module: torch.nn.Module, example: Any, loss: Optional[Loss]) -> None:
        example = pytree.tree_map(_tensor, dict(example) if isinstance(example, Mapping) else example)
        device = next((t.device for t in module.parameters()), torch.device("cpu"))
        example = pytree.tree_map(lambda v: v.to(device) if isinstance(v, torch.Tensor) else v, example)
        self.forward = "%s.forward()" % type(module).__name__
        self.signature = inspect.signature(module.forward)
        taken = [p for p in self.signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if isinstance(example, (tuple, list)):
            if loss:
                taken = taken[:len(example) - 1] + [inspect.Parameter("target", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
            self.args, self.kwargs = tuple(example), {}  # type: Tuple[Any, ...], Dict[str, Any]
        elif isinstance(example, dict):
            self.args, self.kwargs = (), example
        else:
            self.args, self.kwargs = (example,), {}
        if loss:
            self.signature = self.signature.replace(parameters=taken if self.args else _with_target(self.signature))
        self.names = [p.name for p in taken][:len(self.args)] or list(self.kwargs)
        self.columns: List[str] = []
        self._check()

    def _check(self) -> None:
        try:
            self.signature.bind(*self.args, **self.kwargs)
        except TypeError as error:
            raise TypeError("the example does not fit %s%s: %s" % (self.forward, self.signature, error)) from None

    def exported(self, args: Tuple[Any, ...], kwargs: Dict[str, Any], columns: Sequence[str]) -> None:
        """Stores the arguments in the order of torch.export, and the program's inputs."""
        self.args, self.kwargs, self.columns = args, kwargs, list(columns)
        leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.tensors = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        if sum(self.tensors) != len(self.columns):
            raise ExportError("%s takes %d tensors, and the program has the inputs %s" % (
                self.forward, sum(self.tensors), ", ".join(self.columns)))

    def arrays(self, batch: Any) -> Dict[str, Any]:
        """Returns the arrays of a batch by the names of the program's inputs."""
        leaves, spec = pytree.tree_flatten(self._placed(batch))
        if spec != self.spec:
            raise TypeError("a batch has a different structure than the example of %s: %s, not %s" % (self.forward, spec, self.spec))
        tensors = [leaf for leaf, is_tensor in zip(leaves, self.tensors) if is_tensor]
        return dict(zip(self.columns, map(_array, tensors)))

    def _placed(self, batch: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        """Returns (args, kwargs) of a batch: a dict by the names of forward(), a tuple in the example's order, or a
        tensor."""
        if isinstance(batch, Mapping):
            missing = [name for name in self.names if name not in batch]
            if missing:
                raise TypeError("a batch lacks %s, which %s takes; it has %s%s" % (
                    " and ".join(missing), self.forward, ", ".join(map(str, batch)), errors.near(missing[0], map(str, batch))))
            also = [name for name in batch if name not in self.names and name in self.signature.parameters]
            if also:
                raise TypeError("a batch has %s, and the example of %s had only %s" % (
                    " and ".join(also), self.forward, ", ".join(self.names)))
            values = [batch[name] for name in self.names]
        else:
            values = list(batch) if isinstance(batch, (tuple, list)) else [batch]
        if len(values) != len(self.names):
            raise TypeError("a batch has %d parts, and the example of %s has %d: %s" % (
                len(values), self.forward, len(self.names), ", ".join(self.names)))
        if self.args:
            return tuple(values), {}
        given = dict(zip(self.names, values))
        return (), {name: given[name] for name in self.kwargs}


def _with_target(signature: inspect.Signature) -> List[inspect.Parameter]:
    """Returns the parameters of forward(), and a parameter for the target."""
    own = list(signature.parameters.values())
    at = next((i for i, p in enumerate(own) if p.kind == p.VAR_KEYWORD), len(own))
    return own[:at] + [inspect.Parameter("target", inspect.Parameter.KEYWORD_ONLY)] + own[at:]


def _tensor(value: Any) -> Any:
    return torch.as_tensor(value) if isinstance(value, numpy.ndarray) else value


def _array(value: Any) -> Any:
    """Converts a tensor, or an array-like, to a NumPy array."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()
    return numpy.asarray(value)


# ---- export ---------------------------------------------------------------------------------------------------------


def _loss_of(out: Any, forward: str) -> torch.Tensor:
    """Finds the loss in what forward() returns."""
    found = out
    if isinstance(out, Mapping):
        found = out.get("loss")
    elif hasattr(out, "loss"):
        found = out.loss
    elif isinstance(out, (tuple, list)) and out:
        found = out[0]
    if isinstance(found, torch.Tensor) and found.numel() == 1 and found.is_floating_point():
        return found.reshape(())
    what = "a tensor of %s" % list(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
    raise TypeError("%s returns %s, and no loss: let it return the loss, or give Run(..., loss=function), which makes it of "
                    "what forward() returns and of the last example input%s" % (
                        forward, what, "; models of transformers return one when they are given labels" if hasattr(out, "loss") else ""))


def _losing(module: torch.nn.Module, arguments: Arguments, loss: Optional[Loss]) -> torch.nn.Module:
    """Returns the module with a forward() that returns only the loss. Its submodules are those of the original."""
    other = module.__class__.__new__(module.__class__)
    other.__dict__.update(module.__dict__)
    forward = module.forward
    if getattr(forward, "__self__", None) is module:
        forward = types.MethodType(getattr(forward, "__func__"), other)

    @functools.wraps(forward)
    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not loss:
            return _loss_of(forward(*args, **kwargs), arguments.forward)
        target = kwargs.pop("target") if "target" in kwargs else args[-1]
        return _loss_of(loss(forward(*args[:-1], **kwargs), target), "loss()")
    call.__signature__ = arguments.signature  # type: ignore[attr-defined]
    other.__dict__["forward"] = call
    return other


def _symbolic_rows(arguments: Arguments) -> Any:
    """Returns dynamic_shapes of torch.export: dim 0 of every input with the rows of the first one is a symbol. None: a
    batch of one row cannot be one."""
    leaves = pytree.tree_leaves((arguments.args, arguments.kwargs))
    rows = next((len(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()), 0)
    if rows < 2:
        return None
    symbol = torch.export.Dim("rows")

    def dims(leaf: Any) -> Any:
        return {0: symbol} if isinstance(leaf, torch.Tensor) and leaf.dim() and len(leaf) == rows else None
    return pytree.tree_map(dims, arguments.kwargs or arguments.args)


def _exported(module: torch.nn.Module, arguments: Arguments, rows: Any) -> Any:
    with torch.enable_grad():
        return torch.export.export(module, arguments.args, arguments.kwargs or None, dynamic_shapes=rows, strict=False)


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keeps PyTorch from logging an error that is not the user's."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _export(module: torch.nn.Module, arguments: Arguments, loss: Optional[Loss]) -> Any:
    """Exports with a symbol for the rows, or, if forward() is written for one number of rows, with that number."""
    rows = _symbolic_rows(arguments)
    if rows is not None:
        with contextlib.suppress(Exception), _unlogged():
            return _exported(_losing(module, arguments, loss), arguments, rows)
    try:
        return _exported(_losing(module, arguments, loss), arguments, None)
    except Exception as error:
        if isinstance(error, TypeError) and traceback.extract_tb(error.__traceback__)[-1].name == "_loss_of":
            raise TypeError(str(error)) from None
        raise ExportError(_advice(module, error)) from error


# Parts of the messages of torch.export, and the advice for each.
ADVICE = (
    (("data-dependent", "GuardOnDataDependent", "Could not extract specialized integer", "Could not guard", "_local_scalar_dense"),
     "a branch or a size depends on the values of a tensor: compute both and choose with torch.where, and leave out .item(), "
     "nonzero() and masks as indices"),
    (("numpy", "doesn't have storage", "data pointer", "data_ptr"),
     "numbers leave PyTorch: keep to tensors, without .numpy() and .data_ptr()"),
    (("ttribute", "register_buffer"), "forward() assigns tensors to the module: register them as buffers, or leave it out in training"),
    (("same device", "two devices", "device type"), "parts of the module, or inputs, lie on several devices: module.cpu() before Run"),
    (("autograd.Function", "HigherOrderOperator"), "an autograd.Function of your own: write it with PyTorch's functions"),
)


def _advice(module: torch.nn.Module, error: BaseException) -> str:
    said = "%s: %s" % (type(error).__name__, error)
    todo = next((text for words, text in ADVICE if any(word in said for word in words)),
                "forward() must be what torch.export.export(module, example, strict=False) can trace")
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not os.path.abspath(frame.filename).startswith((HERE + os.sep, TORCH + os.sep)) and frame.name != "call":
            where = " at %s:%s (%s)" % (frame.filename, frame.lineno, (frame.line or "").strip())
    first = str(error).strip().split("\n")[0]
    return "%s cannot be exported%s: %s (%s: %s)" % (
        type(module).__name__, where, todo, type(error).__name__, first)


def export(module: torch.nn.Module, example: Any, path: Path, *, loss: Optional[Loss] = None) -> None:
    """Writes the module, with its loss, for `actorrun FILE.pt2` and sluice.Run("FILE.pt2")."""
    torch.export.save(_export(module, Arguments(module, example, loss), loss), os.fspath(path))


def _check(module: torch.nn.Module, example: Any, loss: Optional[Loss], microbatches: int) -> str:
    """Compares the module in Sluice with PyTorch, without dropout, and returns what was compared."""
    if base.processes() > 1:
        return "not compared with PyTorch: this is a job of several processes"
    arguments, name = Arguments(module, example, loss), type(module).__name__
    with agreement.without_dropout(module), tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        path = os.path.join(folder, name + ".pt2")
        program = _export(module, arguments, loss)
        torch.export.save(program, path)
        given = program.example_inputs
        if agreement.draws(_losing(module, arguments, loss), given):
            return "not compared with PyTorch: the module draws random numbers"
        leaves, spec = pytree.tree_flatten(given)
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def filled(tensors: Sequence[torch.Tensor]) -> Any:
            whole = list(leaves)
            for i, tensor in zip(at, tensors):
                whole[i] = tensor
            return pytree.tree_unflatten(whole, spec)
        try:
            compared = agreement.Comparison(path, _losing(module, arguments, loss), [leaves[i] for i in at], filled,
                                            lambda: _losing(copy.deepcopy(module).double(), arguments, loss))
            return agreement.check(compared, program, microbatches, microbatches > 1)
        except errors.Error as error:
            error.args = (str(error).replace(folder + os.sep, "").replace(name + ".pt2", name),)
            raise


class Program(exported.Program):
    """A module as a program."""

    def __init__(self, module: torch.nn.Module, example: Any, loss: Optional[Loss], options: Mapping[str, Any],
                 check: bool = False, microbatches: int = 1) -> None:
        self.name, self.arguments = type(module).__name__, Arguments(module, example, loss)
        program = _export(module, self.arguments, loss)
        held_out = options.get("held_out")
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            path = os.path.join(folder, self.name + ".pt2")
            self.folder = folder + os.sep
            torch.export.save(program, path)
            with self.without_folder():
                super().__init__(path, **{k: v for k, v in options.items() if k != "held_out"})
        self.__name__ = self.name
        self.checked = _check(module, example, loss, microbatches) if check else "not compared with PyTorch: check=False"
        args, kwargs = program.example_inputs
        self.arguments.exported(args, kwargs, [column.name for column in self.columns])
        self.held_out = None if held_out is None else exported.Table(self.columns, self.arguments.arrays(held_out))
        used = {node.name for node in program.graph.nodes if node.users}
        mutated = set(program.graph_signature.buffers_to_mutate.values())
        self.constants = {name for node, name in program.graph_signature.inputs_to_buffers.items() if node in used and name not in mutated}

    @contextmanager
    def without_folder(self) -> Iterator[None]:
        """Makes messages name the module, not the temporary file it was exported to."""
        try:
            yield
        except errors.Error as error:
            error.args = (str(error).replace(self.folder, "").replace(self.name + ".pt2", self.name),)
            raise

    def __call__(self, g: Any) -> None:
        with self.without_folder():
            super().__call__(g)

    def rows_in(self, batch: Any) -> "Tuple[List[Any], int]":
        """Returns a batch's arrays in order, and its number of rows."""
        arrays = exported.by_name(self.columns, self.arguments.arrays(batch))
        return arrays, exported.rows_of(self.columns, arrays)


# ---- data -----------------------------------------------------------------------------------------------------------


def _is_arrays(data: Any) -> bool:
    """Returns whether data is arrays of all rows: a tensor, or a tuple or a dict of tensors. Anything else yields
    batches."""
    return isinstance(data, (tuple, Mapping, torch.Tensor, numpy.ndarray))


class Batches:
    """The batches of a loader, epoch after epoch, as lists of arrays."""

    def __init__(self, data: Any, program: Program, seed: Optional[int]) -> None:
        if isinstance(getattr(data, "sampler", None), DistributedSampler):
            raise TypeError("the loader has a DistributedSampler: every process reads whole batches, which Run splits itself")
        self.data, self.program, self.seed = data, program, seed
        self.rows: Optional[int] = None  # rows of the first batch
        self.once = iter(data) is data if not isinstance(data, DataLoader) else False

    def __len__(self) -> int:
        """Returns the number of whole batches in an epoch. Raises TypeError if it is unknown."""
        data: Any = self.data
        partial = isinstance(data, DataLoader) and data.batch_size and not data.drop_last and len(data.sampler) % data.batch_size  # type: ignore[arg-type]
        return len(data) - bool(partial and len(data) > 1)

    def _iterate(self, epoch: int) -> Iterator[Any]:
        """Iterates over an epoch. In a job of several processes, all of them draw the same order."""
        if self.seed is None:
            yield from self.data
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + epoch)
            batches = iter(self.data)
            first = next(batches, None)
        if first is not None:
            yield first
            yield from batches

    def arrays(self, epochs: Optional[int]) -> Iterator[List[Any]]:
        epoch = 0
        while epochs is None or epoch < epochs:
            number, batches = 0, self._iterate(epoch)
            batch = next(batches, None)
            while batch is not None:
                after = next(batches, None)
                arrays = self._checked(batch, number, after is None)
                if arrays is None:
                    break
                yield arrays
                number, batch = number + 1, after
            if self.once or not number:
                return
            epoch += 1

    def _checked(self, batch: Any, number: int, last: bool) -> Optional[List[Any]]:
        arrays, rows = self.program.rows_in(batch)
        self.rows = rows if self.rows is None else self.rows
        if rows == self.rows:
            return arrays
        if not last or rows > self.rows:
            raise ValueError("batch %d has %d rows, and those before it %d: a plan is made for batches of one size" % (number, rows, self.rows))
        warnings.warn("the last batch has %d rows, and the others %d: it is left out (drop_last=True)" % (rows, self.rows))
        return None


def _loader(data: Any, rows: int) -> Any:
    """Returns a source of batches: a loader unchanged, or a loader for a dataset."""
    if hasattr(data, "with_format") and hasattr(data, "column_names"):  # a Hugging Face dataset
        data = data if (getattr(data, "format", None) or {}).get("type") else data.with_format("torch")
        return DataLoader(data, batch_size=rows)
    if isinstance(data, Dataset) and not isinstance(data, DataLoader):
        return DataLoader(data, batch_size=rows)
    if not hasattr(data, "__iter__") and not hasattr(data, "__next__"):
        raise TypeError("data must be a DataLoader, a dataset, an iterable of batches, or arrays of all rows; not %r" % (data,))
    return data


# ---- runs -----------------------------------------------------------------------------------------------------------


class Run(base.Run):
    """A PyTorch module being trained.

        run = sluice.torch.Run(module, (ids, labels), stages=4, microbatches=8, schedule="zb-h1", lr=3e-4)

    `example` has inputs of forward(): a tuple, or a dict by name. forward() returns the loss, or something that
    contains it. Otherwise `loss` computes it from what forward() returns and from the last example input (a dict's
    "target").

    A step takes `batch` rows, by default as many as the example has. `block` is the pattern of modules that must not be
    split between stages ("h.*"). `held_out` has rows to evaluate, with eval_every. The optimizer's settings are lr,
    betas, eps, weight_decay, clip, ... All options of sluice.Run are accepted too.

    Before that, the loss and the gradients of the example are computed in PyTorch and in Sluice: whole, in microbatches,
    and with the rows permuted, without dropout. If they differ, sluice.torch.DisagreementError names the first call
    that differs, with its line and both values. `run.checked` says what was compared and the seconds that it took;
    check=False leaves it out.

    The module is read once. Trained values stay in the run; `module.load_state_dict(run.state_dict())` copies them
    back."""

    model: Program

    def __init__(self, module: torch.nn.Module, example: Any, *, loss: Optional[Loss] = None, check: bool = True,
                 **options: "Unpack[ModuleOptions]") -> None:
        self.closed = True
        if not isinstance(module, torch.nn.Module):
            raise TypeError("expected a torch.nn.Module, not %r" % (module,))
        given: Dict[str, Any] = dict(options)
        own = exported.split(given)
        if "inputs" in own:
            raise TypeError("inputs are for .pt2 files; a module's data goes to train()")
        self._check_names(given, exported.KEYWORDS)
        program = Program(getattr(module, "_orig_mod", module), example, loss, own, check, given.get("microbatches", 1))
        #: What was compared with PyTorch, and the seconds that it took.
        self.checked = program.checked
        state = module.state_dict(keep_vars=True)
        super().__init__(program, **given)
        self._made_with = given
        self._remember(state)

    def _remember(self, state: Mapping[str, Any]) -> None:
        """Maps the module's names to parameters, and keeps state that is not a parameter."""
        own: Dict[int, str] = {}
        for name, tensor in state.items():
            if _plain(name) in self.params:
                own.setdefault(id(tensor), _plain(name))
        self._source: Dict[str, Optional[str]] = {name: own.get(id(tensor)) for name, tensor in state.items()}
        self._dtypes = {name: tensor.dtype for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
        self._rest = {name: tensor.detach().clone().cpu() if isinstance(tensor, torch.Tensor) else tensor
                      for name, tensor in state.items() if not self._source[name]}

    # ---- training -------------------------------------------------------------------------------

    def train(self, data: Any = None, steps: Optional[int] = None, *, epochs: int = 1,  # type: ignore[override]
              on_step: Optional[Callable[[base.Step], Any]] = None, progress: Optional[bool] = None) -> List[base.Step]:
        """Trains on batches, one per step, and returns the Steps. `data` is a DataLoader, a dataset, an iterable of
        batches, or arrays of all rows: a tensor, a tuple or a dict. A batch has the form of the example: a tuple, a
        dict by the names of forward(), or a tensor. Without `steps`, training goes through the data `epochs` times.
        Arrays continue where the previous step ended; loaders start over.

        A plan is made for batches of one size, which the first batch of the first train() determines. A smaller last
        batch is left out. For on_step, progress and Ctrl-C see sluice.Run.train."""
        if data is None or isinstance(data, int) and steps is None:
            return self._train_on(data if data is not None else steps, on_step, progress)
        if isinstance(data, TensorDataset):
            data = data.tensors
        if _is_arrays(data):
            table = exported.Table(self.model.columns, self.model.arguments.arrays(data))
            steps = self._steps_of(table.length, epochs) if steps is None else steps
            self.model.store = table
            return self._train_on(steps, on_step, progress)
        return self._train_batches(_loader(data, self.model.batch), steps, epochs, on_step, progress)

    def _train_on(self, steps: Any, on_step: Any, progress: Optional[bool]) -> List[base.Step]:
        if not isinstance(self.model.store, exported.Table):
            raise TypeError("train(%s): on which data? train(loader), or train((ids, labels), steps=%s)" % (
                "" if steps is None else steps, steps or 100))
        if steps is None:
            raise TypeError("train(): steps=N is required")
        return super().train(steps, on_step, progress)

    def _steps_of(self, rows: int, epochs: int) -> int:
        if not rows:
            raise ValueError("no input has rows: give steps=N")
        if rows < self.model.batch:
            raise ValueError("%d rows are fewer than the %d of a batch" % (rows, self.model.batch))
        return epochs * rows // self.model.batch

    def _train_batches(self, data: Any, steps: Optional[int], epochs: int, on_step: Any, progress: Optional[bool]) -> List[base.Step]:
        several = lib.sl_job_processes(self.job) > 1
        batches = Batches(data, self.model, self.seed if several else None)
        try:
            known = None if batches.once else len(batches)
        except TypeError:
            known = None
        if steps is None and known is not None:
            steps = known * epochs
        first = self.steps
        feed = Feed(self.model.columns, batches.arrays(epochs if steps is None else None), first, None if steps is None else first + steps)
        feed.begin()
        if batches.rows is None:
            raise ValueError("the data has no batches")
        self._fit(batches.rows)
        feed.kept.update(getattr(self.model.store, "kept", {}))  # for steps in progress that wait for data
        self.model.store = feed
        bar = notebook.Progress(steps or 0, progress)
        portions: Iterable[int] = feed.portions()
        if known and steps is not None:
            feed.failed, portions = self.plan.halt, [steps]
        try:
            return self._train(portions, on_step, bar)
        finally:
            if not self.plan.call:
                self.model.store = exported.Nothing()

    def _fit(self, rows: int) -> None:
        """Rebuilds the plan for batches of another size, as long as no step was trained."""
        if rows in (self.model.batch, 0):
            return
        if self.steps != self.first_step or lib.sl_job_processes(self.job) > 1:
            raise ValueError("batches have %d rows, but the plan is for %d: give Run batch=%d" % (rows, self.model.batch, rows))
        before, self.model.batch = self.model.batch, rows
        values = dict(self.params)
        self.close()
        try:
            base.Run.__init__(self, self.model, **self._made_with)
        except BaseException:
            self.model.batch = before
            raise
        if not self.first_step:
            for name, value in values.items():
                self.params[name] = value

    def evaluate(self, data: Any = None, **arrays: Any) -> Dict[str, Any]:
        """Returns {"loss": mean over the rows of a loader, a dataset or arrays}, without dropout, and with running
        statistics in layers that have them. Batches may have any number of rows."""
        if data is None:
            return super().evaluate(**{name: _array(a) for name, a in arrays.items()})
        if isinstance(data, TensorDataset):
            data = data.tensors
        if _is_arrays(data):
            data = [data]
        total = count = 0.0
        for part in self._parts(_loader(data, self.model.batch)):
            rows = exported.rows_of(self.model.columns, list(part.values())) or 1
            total, count = total + rows * super().evaluate(**part)["loss"], count + rows
        if not count:
            raise ValueError("the data has no batches")
        return {"loss": total / count}

    def _parts(self, data: Any) -> Iterator[Dict[str, Any]]:
        """Joins rows of several batches, in whole microbatches except for the last."""
        names, each = [column.name for column in self.model.columns], max(self.model.rows, 1)
        apart = not all(column.rows for column in self.model.columns)
        held: List[List[Any]] = []
        for batch in data:
            held.append(self.model.rows_in(batch)[0])
            rows = sum(len(arrays[0]) for arrays in held) if not apart else 0
            if apart:
                yield dict(zip(names, held.pop()))
            elif rows >= TOGETHER * each:
                whole = [numpy.concatenate(column) for column in zip(*held)]
                yield {name: a[:rows - rows % each] for name, a in zip(names, whole)}
                held = [[a[rows - rows % each:] for a in whole]] if rows % each else []
        if held:
            whole = [numpy.concatenate(column) for column in zip(*held)]
            at = len(whole[0]) - len(whole[0]) % each
            for part in ([a[:at] for a in whole], [a[at:] for a in whole]):
                if len(part[0]):
                    yield dict(zip(names, part))

    # ---- state ----------------------------------------------------------------------------------

    def state_dict(self, folder: Path = ".") -> Dict[str, Any]:
        """Returns a state for module.load_state_dict(): tensors under the module's names, including tied ones and
        buffers. Floats are float32, as in the run, and adapters are merged. In a job of several processes all of them
        call it, and process 0 gets the state through a file in `folder`, which all processes must see; the others get
        {}."""
        values = self._values(os.fspath(folder))
        if not values:
            return {}
        out: Dict[str, Any] = {}
        for name, source in self._source.items():
            if not source:
                rest = self._rest[name]
                out[name] = rest.clone() if isinstance(rest, torch.Tensor) else rest
            elif self._dtypes[name].is_floating_point:
                out[name] = values[source]
            else:
                out[name] = values[source].round().to(self._dtypes[name])
        return out

    def _values(self, folder: str) -> Dict[str, torch.Tensor]:
        """Returns the parameters of all processes, with adapters merged."""
        if lib.sl_job_processes(self.job) == 1:
            if not any("lora_" in name for name in self.params):
                return {name: torch.from_numpy(value) for name, value in self.params.items()}
            with tempfile.TemporaryDirectory() as own:
                path = os.path.join(own, "state.safetensors")
                self.save(path)
                return _read(path)
        job = "-".join(os.environ.get(name, "") for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "MASTER_PORT"))
        path = os.path.join(folder, ".sluice-state-%s-%d.safetensors" % (job, self.steps))
        self.save(path)
        if lib.sl_job_process(self.job):
            return {}
        values = _read(path)
        os.unlink(path)
        return values

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Sets parameters and buffers by the module's names. The optimizer state is kept."""
        missing, unknown = [n for n in self._source if n not in state], [n for n in state if n not in self._source]
        if strict and unknown:
            raise errors.unknown(type(self).__name__, map(str, unknown), self._source)
        if strict and missing:
            raise KeyError("the state lacks %s" % " and ".join(missing[:8]))
        for name, source in self._source.items():
            if name in state and source:
                self.params[source] = _array(state[name])
            elif name in state and name in self.model.constants and not torch.equal(self._rest[name], state[name].cpu()):
                raise ValueError("buffer %s is a constant of the exported program: make a new Run" % name)
            elif name in state:
                self._rest[name] = state[name].detach().clone().cpu() if isinstance(state[name], torch.Tensor) else state[name]


TOGETHER = 64  # microbatches evaluated by one plan


def _plain(name: str) -> str:
    """Returns the original name of a compiled module's parameter."""
    return name.replace("_orig_mod.", "")


def _read(path: Path) -> Dict[str, torch.Tensor]:
    """Reads the float32 tensors of a safetensors file."""
    with open(path, "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    out = {}
    for name, entry in head.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(entry["shape"])
    return out


# ---- python -m sluice.torch check -----------------------------------------------------------------------------------


def check_file(path: Path, like: Optional[Path] = None, microbatches: int = 1) -> str:
    """Compares FILE.pt2 in Sluice with PyTorch, on its example inputs or on those in `like` (.npz), and returns what was
    compared. The number of rows is the exported one: in M microbatches a batch has M times as many."""
    program = torch.export.load(os.fspath(path))
    args, kwargs = program.example_inputs if program.example_inputs else ((), {})
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if like:
        with numpy.load(os.fspath(like)) as file:
            names = [column.name for column in exported.Program(path).columns]
            tensors = [torch.from_numpy(file[name]) for name in names]
    if not tensors:
        raise errors.Error("%s has no example inputs: --like BATCH.npz, with an array for each input" % path)

    def filled(given: Sequence[torch.Tensor]) -> Any:
        rest = iter(given)
        return pytree.tree_unflatten([next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec)
    module = program.module()
    if agreement.draws(module, filled(tensors)):
        return "not compared with PyTorch: the module draws random numbers"
    return agreement.check(agreement.FileComparison(path, module, tensors, filled), program, microbatches, microbatches > 1)


def main(words: Optional[Sequence[str]] = None) -> int:
    import argparse
    parser = argparse.ArgumentParser(prog="python -m sluice.torch", description="Compares an exported program in Sluice with PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("check", help="compare the loss and the gradients of one batch")
    one.add_argument("file", metavar="FILE.pt2")
    one.add_argument("--like", metavar="BATCH.npz", help="the batch; by default the example inputs of the file")
    one.add_argument("--microbatches", type=int, default=1, metavar="M")
    given = parser.parse_args(words)
    try:
        print("%s %s" % (given.file, check_file(given.file, given.like, given.microbatches)))
        return 0
    except (errors.Error, OSError, KeyError) as error:
        print("sluice.torch: %s" % error, file=sys.stderr)
        return 1 if isinstance(error, DisagreementError) else 2


if __name__ == "__main__":
    sys.exit(main())
