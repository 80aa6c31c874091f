# SPDX-License-Identifier: Apache-2.0
"""Models: a graph that has every op of the library as a method."""
from __future__ import annotations

import math
import os
import types
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, cast

import numpy

from . import _library as c
from . import errors
from ._library import ffi, lib
from .asking import Asking
from .calls import beside, function, ops
from .data import Arrays, narrow, tokens_of
from .tensor import Init, Tensor, normal, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from ._ops import GraphOps as Ops
    from ._ops import Optimizer

    # An array of numbers, or a function (row, rows, step) -> array.
    Rows = Union[NDArray[Any], Sequence[Any], Callable[[int, int, int], Any]]

    class Data(Tensor):
        """Result of data(): a tensor, or several that unpack to one per array."""
        def __iter__(self) -> Iterator[Tensor]: ...
else:
    Ops = object

# Names of optimizer settings in PyTorch and Transformers, with their names in sl_optimizer.
OPTIMIZER_ALSO = {"learning_rate": "lr", "warmup_steps": "warmup", "min_learning_rate": "min_lr",
                  "max_grad_norm": "clip", "epsilon": "eps", "optimizer": "rule", "lr_schedule": "schedule",
                  "adam_beta1": "beta1", "adam_beta2": "beta2"}


def optimizer_fields(settings: Mapping[str, Any]) -> Dict[str, Any]:
    """Converts optimizer settings to fields of sl_optimizer, in which an explicit 0 must not mean the default."""
    given = dict(settings)
    if "betas" in given:
        given["beta1"], given["beta2"] = given.pop("betas")
    for also, name in OPTIMIZER_ALSO.items():
        if also in given and name in given:
            raise TypeError("train takes %s or %s, not both" % (name, also))
        if also in given:
            given[name] = given.pop(also)
    known = dict(ffi.typeof("sl_optimizer").fields)
    wrong = [name for name in given if name not in known]
    if wrong:
        raise errors.unknown("train", wrong, list(known) + list(OPTIMIZER_ALSO) + ["betas"])
    for name, value in given.items():
        if known[name].type.cname == "float" and (value is None or value == 0):
            given[name] = -math.inf
    return given


class Graph(Ops):
    """Graph of one microbatch. `g.linear(x, w, b)` is sl_linear(g, x, w, b) in C. The same holds for every other call:
    each op of the library is a method. Settings of an op are keywords with their names in C, and default to 0 or
    absent: `g.attention(q, k, v, heads=4)`. Shapes, lengths and axes are lists: `g.reshape(x, [8, -1])`, `g.mean(x,
    axes=[1])`, `g.split(x, 1, [2, 4])`.

    An error raises an exception with the library's message, and the file and line of your call."""

    def __init__(self, infer: bool = False, given: Optional[Mapping[str, Any]] = None, loss: bool = False,
                 **options: Any) -> None:
        self._kept: List[Any] = []  # objects that C refers to while the graph lives
        self.failure: Optional[BaseException] = None  # raised by a callback
        self.fail: Callable[[], None] = lambda: None  # ends the run
        self.asking: Optional[Asking] = None  # gate of a run that is trained
        self.owned = False  # a plan owns the graph and destroys it
        self.infer, self.given, self.wants_loss = infer, given or {}, loss
        if infer and "tokens" in self.given:
            options["feed_tokens"] = self._feed()
        self.sources: List[Any] = []
        self.metrics: List[str] = []
        self.used: "set[str]" = set()
        record = c.record("sl_graph_options", dict(options, infer=infer), self._kept, "a graph")
        self.pointer: Any = lib.sl_graph_create(record)
        self.check()

    @classmethod
    def around(cls, pointer: Any, infer: bool) -> "Graph":
        """Wraps a graph that C has created and will destroy."""
        g = cls.__new__(cls)
        g._kept, g.failure, g.owned, g.fail, g.asking = [], None, True, lambda: None, None
        g.infer, g.given, g.wants_loss = infer, {}, False
        g.sources, g.metrics, g.used, g.pointer = [], [], set(), pointer
        return g

    def close(self) -> None:
        if getattr(self, "pointer", None):
            lib.sl_graph_destroy(self.pointer)
            self.pointer = None

    def __del__(self) -> None:
        if not getattr(self, "owned", True):
            self.close()

    def check(self) -> None:
        c.check(lib.sl_graph_status(self.pointer))

    def _feed(self) -> Any:
        tokens = tokens_of(self.given["tokens"])
        graph = weakref.ref(self)

        def feed(_, tick, out, count):
            if count == tokens.shape[1] and tick.step < len(tokens):
                numpy.frombuffer(ffi.buffer(out, 4 * count), numpy.int32)[:] = tokens[tick.step]
            else:
                graph().failed(ValueError("tokens must be in rows of %d, but the model reads rows of %d" % (
                    tokens.shape[1], count)))
        return feed

    def failed(self, error: BaseException) -> None:
        """Ends an inference with an exception raised by a callback."""
        self.failure = self.failure or error
        self.fail()

    def filler(self, fill: Callable[..., None]) -> Callable[..., None]:
        """Returns the callback of a source whose fill(graph, tick, outs) may raise. It does not keep the graph alive
        while it waits."""
        there = weakref.ref(self)

        def once(tick, outs):
            fill(there(), tick, outs)

        def call(_, tick, outs):
            asking = there().asking
            if asking:
                asking.ask(tick.step, lambda: once(tick, outs))
                return
            try:
                once(tick, outs)
            except BaseException as error:
                there().failed(error)
        return call

    # ---- other than ops ---------------------------------------------------------------------

    @property
    def microbatches(self) -> int:
        return lib.sl_graph_microbatches(self.pointer)

    def block(self, name: str) -> None:
        """Starts a new block. The ops of a block stay together when the model is cut into stages."""
        lib.sl_block(self.pointer, b"%s", c.chars(name, self._kept))
        self.check()

    def block_stage(self, stage: int) -> None:
        """Puts this block and later ones on the given stage of the pipeline."""
        lib.sl_block_stage(self.pointer, stage)
        self.check()

    def rows(self, batch: int) -> int:
        """Returns the rows of one microbatch when a step has `batch` rows; 1 for inference."""
        rows = lib.sl_microbatch_rows(self.pointer, batch)
        self.check()
        return rows

    def param(self, name: str, shape: Sequence[int], init: Optional[Init] = None) -> Tensor:
        """Adds a trained array, initialized with normal(0.02) by default."""
        init = init or normal(0.02)
        if not isinstance(init, Init):
            raise TypeError("param %s: the initial value must be normal(...), uniform(...) or constant(...), not %r" % (name, init))
        kind = c.constant(ffi.typeof("sl_init_kind"), init.kind)
        out = lib.sl_param_at(c.here(self._kept), self.pointer, c.type_of(shape),
                              {"kind": kind, "scale": init.scale}, b"%s",
                              c.chars(name, self._kept))
        return self._out(out)

    def dense(self, x: Tensor, width: int, name: str, bias: bool = True) -> Tensor:
        """Adds a linear map of x [..., n] to [..., width], with new parameters name.weight and name.bias. They are
        initialized uniformly, like those of torch.nn.Linear."""
        inputs = x.shape[-1]
        bound = uniform(inputs ** -0.5)
        weight = self.param(name + ".weight", (width, inputs), bound)
        return self.linear(x, weight, self.param(name + ".bias", (width,), bound) if bias else None)

    def data(self, batch: int, held_out: Optional[Mapping[str, Rows]] = None, **arrays: Rows) -> "Data":
        """Adds NumPy arrays as data, and returns a tensor for each array. A step takes `batch` rows, in order, and
        starts over after the last. Float arrays become float32, integers int32. An array may also be a function (row,
        rows, step) -> array that returns the rows of step `step`, starting at `row`. The function is first called for
        one row to learn its shape.

        `held_out` has arrays of the same names that are not trained on; Run(eval_every=N) evaluates them. In infer()
        and evaluate(), arrays passed there under the same names replace the data."""
        source = Arrays(self, batch, arrays, held_out)
        self.sources.append(source)
        outs = ffi.new("sl_tensor *[]", len(arrays))
        lib.sl_data_at(c.here(self._kept), self.pointer, source.record, outs)
        outs = [self._out(t) for t in outs]
        return cast("Data", outs[0] if len(outs) == 1 else tuple(outs))

    def tokens(self, paths: Union[str, os.PathLike[str], Iterable[Union[str, os.PathLike[str]]]],
               rows: Optional[int] = None, context: int = 256, vocab: int = 256) -> Tuple[Tensor, Tensor]:
        """Adds rows of `context` tokens from these files, and returns (tokens, targets), where targets are shifted by
        one token. Without `rows`, a step has 8 rows. A file is text, .npy, or flat numbers (docs/data.md). The tokens
        of text are its bytes, or come from Run(tokenizer=...)."""
        given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        rows = self.rows(8) if rows is None else rows
        targets = ffi.new("sl_tensor **")
        tokens = lib.sl_tokens_at(c.here(self._kept), self.pointer, c.chars("\n".join(str(os.fspath(p)) for p in given), self._kept),
                                  rows, context, vocab, targets)
        return self._out(tokens), self._out(targets[0])

    def constant(self, values: Any, like: Optional[Tensor] = None) -> Tensor:
        """Adds a constant array as float32 or int32, the same in every microbatch. If it depends on rows of data, pass
        `like`, a tensor of the same shape: devices and pieces then get the same parts of the constant as of that
        tensor."""
        values = numpy.ascontiguousarray(narrow(values))
        return self._out(lib.sl_constant_at(
            c.here(self._kept), self.pointer, c.type_of(values.shape, values.dtype),
            ffi.from_buffer(values), like.pointer if like is not None else ffi.NULL))

    def cross_entropy_with(self, logits: Tensor, targets: Tensor, ignore: Optional[int] = -100, smoothing: float = 0.0,
                           weights: Optional[Sequence[float]] = None) -> Tensor:
        """Adds a cross entropy with the options of torch.nn.functional.cross_entropy(ignore_index, label_smoothing,
        weight). Rows whose target is `ignore` do not count. `smoothing` of each row's weight is spread over all
        classes, and rows are weighted by weights[target]."""
        if weights is not None and len(weights) != logits.shape[-1]:
            raise ValueError("%d weights for %d classes" % (len(weights), logits.shape[-1]))
        loss = {"ignore": ignore or -1 << 31, "smoothing": smoothing,
                "weights": ffi.NULL if weights is None else ffi.new("float[]", list(map(float, weights)))}
        return self._out(lib.sl_cross_entropy_with_at(
            c.here(self._kept), self.pointer, logits.pointer, targets.pointer,
            ffi.new("sl_loss *", loss)))

    def train(self, loss: Tensor, optimizer: Optional[str] = None, **settings: "Unpack[Optimizer]") -> None:
        """Minimizes `loss`. The optimizer is "adamw" (None), "adam", "sgd", "lion" or "muon". Its settings have their
        names in sl_optimizer; those of PyTorch and Transformers work too: lr (learning_rate), warmup (warmup_steps),
        decay_steps, schedule="cosine", weight_decay, beta1, beta2 (betas), eps, clip (max_grad_norm), momentum. Omitted
        settings have their defaults, and 0 means 0: clip=0 disables clipping."""
        if self.infer:
            if self.wants_loss:
                self.output("loss", loss)
            return
        given = dict(settings, rule=optimizer) if optimizer else settings
        record = c.record("sl_optimizer", optimizer_fields(given), self._kept, "train") if given else ffi.NULL
        lib.sl_train_at(c.here(self._kept), self.pointer, loss.pointer, record)
        self.check()

    def output(self, name: str, tensor: Tensor) -> Tensor:
        """Names an output of inference. Returns the tensor."""
        lib.sl_output_at(c.here(self._kept), self.pointer, c.chars(name, self._kept), tensor.pointer)
        self.check()
        return tensor

    def metric(self, name: str, tensor: Tensor) -> None:
        """Adds a metric, the mean of `tensor`, to the results of evaluations."""
        if not self.infer:
            lib.sl_metric_at(c.here(self._kept), self.pointer, c.chars(name, self._kept),
                             tensor.pointer)
        elif self.wants_loss:
            self.output(name, tensor)
        self.metrics.append(name)
        self.check()

    def apply(self, op: str, *inputs: Any, **attrs: Any) -> Tuple[Tensor, ...]:
        """Applies any op of the table by name and returns all its outputs. Pass None for an absent input."""
        row = lib.sl_op_find(op.encode())
        if not row:
            raise AttributeError("there is no op %s%s" % (op, errors.near(op, ops())))
        return self._apply(row, inputs, attrs)

    def _apply(self, row: Any, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Tuple[Tensor, ...]:
        settings = c.attributes(row, attrs, self._kept)
        tensors = [t for t in inputs if isinstance(t, Tensor)]
        first = next((t for t in tensors if t.dtype.kind == "f"), tensors[0] if tensors else None)
        inputs = [t if t is None or isinstance(t, Tensor) else beside(first, t) for t in inputs]
        nout = row.nout
        if nout < 0:
            nout = row.outputs(settings, len(inputs)) if row.outputs else 1
        absent = sum(1 << i for i, t in enumerate(inputs) if t is None)
        outs = ffi.new("sl_tensor *[]", max(nout, 1))
        lib.sl_apply_at(c.here(self._kept), self.pointer, row, settings, len(inputs),
                        [ffi.NULL if t is None else t.pointer for t in inputs], absent, outs)
        self.check()
        return tuple(Tensor(outs[i], self) for i in range(nout))

    # ---- ops ------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # declared in _ops.pyi
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            call = function(name)
            if call is None:
                raise AttributeError("there is no op %s; sluice.ops() lists them%s" % (name, errors.near(name, ops())))
            return types.MethodType(call, self)

    def __dir__(self) -> List[str]:
        return sorted(set(object.__dir__(self)) | set(ops()))

    def _out(self, pointer: Any) -> Tensor:
        self.check()
        return Tensor(pointer, self)

    def __repr__(self) -> str:
        if not self.pointer:
            return "<Graph, closed>"
        return "<Graph%s of %d microbatches>" % (" for inference" if self.infer else "", self.microbatches)
