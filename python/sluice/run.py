# SPDX-License-Identifier: Apache-2.0
"""Training and inference: a model lowered to a plan, and the runtime that executes it."""
from __future__ import annotations

import atexit
import collections
import operator
import os
import signal
import tempfile
import threading
import weakref
from types import TracebackType
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, MutableMapping, NamedTuple,
                    Optional, Sequence, Type, Union)

import numpy

from . import _library as c
from . import budget, errors, notebook
from ._library import ffi, lib
from ._statuses import StoppedError
from .asking import Asking
from .graph import Graph
from .objectives import Objective
from .rollouts import Rollouts
from .trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from ._ops import RunOptions

Path = Union[str, "os.PathLike[str]"]


class Step(NamedTuple):
    """Report of a step: its number (from 0), mean loss, gradient norm, learning rate."""
    step: int
    loss: float
    grad_norm: float
    lr: float

    @property
    def learning_rate(self) -> float:
        return self.lr


class Evaluation(NamedTuple):
    """Result of an evaluation after `steps` steps: mean loss, and {metric: mean}."""
    steps: int
    loss: float
    metrics: Dict[str, float]


class _Interrupts:
    """Makes Ctrl-C call `stop` inside a block. At the end of the block, raises what the previous handler raised.

    A handler that raised inside the block could do so between any two instructions, and leave the run in progress."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop, self.raised, self.before = stop, None, None

    def __enter__(self):
        before = signal.getsignal(signal.SIGINT)
        if callable(before) and threading.current_thread() is threading.main_thread():
            self.before = before
            signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, *args):
        try:
            self.before(*args)
        except BaseException as error:
            self.raised = error
            self.stop()

    def __exit__(self, *_):
        if self.before:
            signal.signal(signal.SIGINT, self.before)
        if self.raised:
            raise self.raised


class _Call:
    """A call into C on a separate thread. Of the run's Python objects, the thread holds only `going`."""

    def __init__(self, going, asking, goal, function, args):
        self.going, self.asking, self.goal = going, asking, goal
        self.function, self.args = function, args
        self.result, self.raised = (), None

    def start(self):
        try:
            threading.Thread(target=self._work, daemon=True).start()  # see _end_all for the interpreter's exit
        except BaseException as error:
            self.raised, self.result = error, (0, None)
            self.going.release()

    def proceed(self):
        self.asking.open()

    def _work(self):
        result = (0, None)
        try:
            status = self.function(*self.args)
            result = status, c.text(lib.sl_detail()) if status else None
        except BaseException as error:
            self.raised = error
        finally:
            self.going.release()
            self.result = result
            self.asking.changed.set()

    def over(self, seconds):
        """Waits at most `seconds`. Returns True if the call has ended or waits for data."""
        if self.result:
            return True
        if self.asking.changed.wait(seconds):
            self.asking.changed.clear()
        return bool(self.result) or self.asking.shut

    def failure(self):
        return self.raised if self.result else self.asking.taken()


class _Plan:
    """A graph and its plan, and a runtime once it is created. Keeps alive everything that C refers to."""

    def __init__(self, model, graph_options, lower_options, asking=None):
        self._lowered = self._runtime = None
        self.asking = asking  # gate of a run that is trained
        self.call = None  # a _Call that waits for data; train() continues it
        self.stopping = False  # the call in progress ends before its goal
        self.closing = self.abandoned = False
        self.going, self.caller = threading.Lock(), threading.local()
        self.graph = Graph(**graph_options)
        self.graph.asking = asking
        self.graph.fail = c.weakly(self.fail)
        model(self.graph)
        self.graph.check()
        out = ffi.new("sl_lowered **")
        c.check(lib.sl_lower(self.graph.pointer, lower_options, out))
        self._lowered, self.graph.owned = out[0], True
        self.plan = lib.sl_lowered_plan(self.lowered)

    @property
    def bytes(self):
        """Device memory of the largest device."""
        return max(self.plan.devices[d].room[lib.SL_SPACE_DEVICE].arena_bytes for d in range(self.plan.ndevices))

    @property
    def memory(self):
        """[{"device": name, purpose: bytes, ..., "total": bytes}] of each device's memory."""
        kinds = [k for k, n in sorted(ffi.typeof("sl_memory").elements.items()) if not n.endswith("_COUNT")]
        out = []
        for d in range(self.plan.ndevices):
            of = {c.text(lib.sl_memory_name(k)): int(lib.sl_plan_memory(self.plan, d, k)) for k in kinds}
            out.append(dict({"device": c.text(self.plan.devices[d].name)}, **of, total=sum(of.values())))
        return out

    @property
    def stages(self):
        """[{"stage": number, "device": name, "blocks": [name]}], in model order."""
        found = {}
        for a in (self.plan.actors[i] for i in range(self.plan.nactors)):
            if lib.sl_class_letter(a.cls) == b"F" and a.program and a.stage >= 0:
                device = c.text(self.plan.devices[self.plan.queues[a.queue].device].name)
                of = found.setdefault(a.stage, {"stage": a.stage, "device": device, "blocks": []})
                for i in range(a.program.ncalls):
                    block = c.text(a.program.calls[i].name).split("/")[0]
                    if block not in of["blocks"]:
                        of["blocks"].append(block)
        return [found[stage] for stage in sorted(found)]

    @property
    def parameters(self):
        """Total number of elements in all parameters."""
        infos = ffi.new("const sl_param_info **")
        count = lib.sl_lowered_params(self.lowered, infos)
        return sum(int(numpy.prod(c.shape_of(infos[0][i].type), dtype=numpy.int64)) for i in range(count))

    lowered = property(lambda self: _open(self._lowered))
    running = property(lambda self: _open(self._runtime))

    @property
    def runtime(self):
        """The runtime between runs, when its values belong to whole steps."""
        runtime = self.running
        if self.call:
            raise RuntimeError("step %d waits for its data: train() continues it, close() ends it" % self.asking.step)
        return runtime

    def start(self, options, keep):
        c.check(lib.sl_plan_prove(self.plan))
        out = ffi.new("sl_runtime **")
        c.check(lib.sl_runtime_create(self.plan, c.record("sl_runtime_options", options, keep), out))
        self._runtime = out[0]
        _started.add(self)
        lib.sl_lowered_attach(self.lowered, self.runtime)

    def fingerprint(self):
        """Returns the values that results depend on and that the plan's hash does not cover."""
        out = ffi.new("const sl_fingerprint_item **")
        count = lib.sl_lowered_fingerprint(self.lowered, out)
        return [{"name": c.text(t.name), "value": c.text(t.value)} for t in out[0][0:count]]

    def fail(self):
        """Ends an inference whose data is incomplete."""
        lib.sl_runtime_fail(self.running, c.constant(ffi.typeof("sl_status"), "SL_E_INPUT"),
                            b"a function of the program has failed")

    def halt(self, error):
        """Ends the run after the step in progress, whose values remain valid, and raises the error then."""
        self.graph.failure = self.graph.failure or error
        self.end_early()

    def end_early(self):
        self.stopping = True
        lib.sl_runtime_stop(self.running)

    def run(self, function, *args, goal=0, tick=None):
        """Calls into C on a separate thread, so that Ctrl-C is handled here meanwhile. Calls tick() a few times a
        second.

        That thread releases `going`: whatever a signal handler raises here, the runtime is in use until then."""
        self.runtime
        if not self.going.acquire(blocking=False):
            raise RuntimeError("the run is in progress, on another thread or around this callback")
        self.stopping = False
        self._follow(_Call(self.going, self.asking or Asking(), goal, function, args), _Call.start, tick)

    def go_on(self, tick=None):
        """Requests the data again that a call of run() waits for, and follows that call to its end."""
        with self.asking.condition:
            call, self.call = self.call, None
        if not call:
            raise RuntimeError("the run is in progress, on another thread")
        self._follow(call, _Call.proceed, tick)

    def _follow(self, call, begin, tick):
        with _Interrupts(self.end_early):
            begin(call)
            try:
                while not call.over(0.2):  # a signal delivered to another thread does not wake this one
                    if tick:
                        tick()
            except BaseException:
                self.end_early()
                while not call.over(None):
                    pass
                raise
            finally:
                if not call.result:
                    self.call = call
                    if self.closing:
                        self._abandon()
            failure, self.graph.failure = self.graph.failure, None
            failure = failure or call.failure()
        if failure:
            raise failure
        c.check(*call.result)

    def stop(self):
        """Destroys the runtime and keeps the rest of the plan."""
        if self._runtime:
            lib.sl_runtime_destroy(self._runtime)
        self._runtime = None

    def end(self):
        """Ends what another thread is running, or what waits for data, and waits for that end."""
        if self._runtime and not self.going.acquire(blocking=False):
            if getattr(self.caller, "inside", False):
                raise RuntimeError("a callback cannot close its run; raise an exception to end it")
            self.closing = True
            if self.call:
                self._abandon()
            else:
                self.end_early()
            self.going.acquire()
        if self._runtime:
            self.going.release()

    def _abandon(self):
        """Aborts a step that waits for its data."""
        self.abandoned = True
        lib.sl_runtime_abort(self._runtime, c.constant(ffi.typeof("sl_status"), "SL_E_STOPPED"),
                             b"the run was closed while a step waited for its data")
        self.asking.close()

    def close(self):
        self.stop()
        if self._lowered:
            lib.sl_lowered_destroy(self._lowered)
            self.graph.close()
        self._lowered = None


_started: "weakref.WeakSet[_Plan]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Ends the runs in progress before the interpreter exits, because their threads call into Python."""
    for plan in list(_started):
        plan.end()


def processes() -> int:
    """Returns the number of processes of the job that this program is in."""
    out = ffi.new("sl_job **")
    c.check(lib.sl_job_open(ffi.NULL, out))
    count: int = lib.sl_job_processes(out[0])
    lib.sl_job_close(out[0])
    return count


def _open(pointer):
    if not pointer:
        raise ValueError("the run is closed")
    return pointer


class Parameters(MutableMapping[str, "NDArray[numpy.float32]"]):
    """The parameters by name, as NumPy arrays. An array is a copy; assign it to change the parameter."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        infos = ffi.new("const sl_param_info **")
        count = lib.sl_lowered_params(plan.lowered, infos)
        self.infos = {c.text(infos[0][i].name): (i, c.shape_of(infos[0][i].type)) for i in range(count)}

    def __getitem__(self, name: str) -> "NDArray[numpy.float32]":
        index, shape = self._find(name)
        out = numpy.zeros(shape, numpy.float32)
        whole = ffi.new("bool *")
        c.check(lib.sl_param_get(self.plan.lowered, self.plan.runtime, index,
                                 ffi.cast("float *", out.ctypes.data), whole))
        if not whole[0]:
            raise KeyError("%s is in another process, at least in part" % name)
        return out

    def __setitem__(self, name: str, values: Any) -> None:
        index, shape = self._find(name)
        values = numpy.asarray(values)
        if values.dtype.kind not in "fbiu":
            raise TypeError("%s: expected numbers, not %s" % (name, values.dtype))
        values = values.astype(numpy.float32, order="C", copy=False)
        if values.shape != shape:
            raise ValueError("%s is %s, not %s" % (name, list(shape), list(values.shape)))
        c.check(lib.sl_param_set(self.plan.lowered, self.plan.runtime, index,
                                 ffi.cast("float *", values.ctypes.data)))
        c.check(lib.sl_params_copy_versions(self.plan.lowered, self.plan.runtime))

    def __delitem__(self, name: str) -> None:
        raise TypeError("parameters cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)

    def __contains__(self, name: object) -> bool:
        return name in self.infos

    def _find(self, name: str) -> Any:
        if name not in self.infos:
            raise KeyError("no parameter %s%s" % (name, errors.near(name, self.infos)))
        return self.infos[name]

    def shape(self, name: str) -> "tuple[int, ...]":
        return self._find(name)[1]

    def _repr_html_(self) -> str:
        return notebook.table(["parameter", "shape"], ([name, list(shape)] for name, (_, shape) in self.infos.items()))

    def __repr__(self) -> str:
        some = ["%s %s" % (name, list(shape)) for name, (_, shape) in list(self.infos.items())[:8]]
        return "<%d parameters: %s%s>" % (len(self), ", ".join(some), ", ..." if len(self) > 8 else "")


def quotas_of(quotas: Optional[Mapping[str, int]]) -> List[Dict[str, Any]]:
    """Converts {"act.b": 4, "act.b@2": 3} to the library's format."""
    out = []
    for name, slots in (quotas or {}).items():
        name, _, stage = name.partition("@")
        out.append({"name": name, "stage": int(stage) if stage else -1, "slots": slots})
    return out


def homes_of(homes: Mapping[str, Any]) -> Dict[str, Any]:
    """Converts {"act": "disk", "state@h.3": "peer:1"} to the library's format. Records in C's format are kept."""
    if "homes" in homes or "update" in homes:
        return dict(homes)
    rows = []
    for name, space in homes.items():
        name, _, block = name.partition("@")
        space, _, further = space.partition(":")
        rows.append({"name": name, "block": block or None, "space": space, "peer": int(further or 0)})
    return {"count": len(rows), "homes": rows}


def _lower_names() -> Dict[str, str]:
    """Returns {keyword: field}: the names of options, and for other fields of sl_lower_options the name of the
    field."""
    names: Dict[str, str] = {keyword: field for field, (keyword, plain) in c.LOWER.items() if plain}
    taken = set(names.values())
    for group, kind in ffi.typeof("sl_lower_options").fields:
        for field, _ in kind.type.fields:
            path = "%s.%s" % (group, field)
            if path not in taken:
                names.setdefault(field, path)
    return names


LOWER_NAMES = _lower_names()


def lower_record(keep: List[Any], quotas: Optional[Mapping[str, int]] = None, devices: str = "cpu", threads: int = 1,
                 memory: float = 0, homes: Optional[Mapping[str, Any]] = None, **options: Any) -> Any:
    """Makes sl_lower_options from options of Run."""
    made = quotas_of(quotas)
    groups: Dict[str, Any] = {"devices": {"kind": devices, "threads": threads, "budget_bytes": int(memory)}}
    if homes:
        groups["memory"] = {"homes": homes_of(homes)}
    for name, given in dict(options, nquotas=len(made), quotas=made or None).items():
        if name not in LOWER_NAMES:
            raise errors.unknown("Run", [name], LOWER_NAMES)
        *path, field = LOWER_NAMES[name].split(".")
        at = groups
        for group in path:
            at = at.setdefault(group, {})
        at[field] = given
    return c.record("sl_lower_options", groups, keep)


def training_of(optimizer: Optional[str] = None, lr_schedule: Optional[str] = None,
                groups: Union[Mapping[str, Any], Iterable[str]] = (), freeze: Union[str, Iterable[str]] = (),
                lora: Any = (), total_steps: int = 0) -> Dict[str, Any]:
    """Makes sl_training from options of Run, with the texts of the command line."""
    groups = [_group(g, s) for g, s in groups.items()] if isinstance(groups, Mapping) else list(groups)
    lora = [lora] if isinstance(lora, str) else [_adapter(m, lora[m]) if isinstance(lora, Mapping) else m for m in lora]
    freeze = [freeze] if isinstance(freeze, str) else list(freeze)
    return {"optimizer": optimizer, "schedule": lr_schedule, "steps": total_steps, "ngroups": len(groups),
            "groups": groups or None, "nfrozen": len(freeze), "frozen": freeze or None, "nlora": len(lora),
            "lora": lora or None}


def _adapter_modules(folder: Path) -> List[str]:
    """Returns the lora texts for a folder in PEFT's format."""
    keep: List[Any] = []
    count, out = ffi.new("int *"), ffi.new("char ***")
    c.check(lib.sl_adapter_modules(c.chars(folder, keep), count, out))
    texts = [c.text(t) for t in out[0][0:count[0]]]
    c.free(out[0])
    return texts


def _group(pattern: str, settings: Mapping[str, Any]) -> str:
    names = {"lr": "lr", "learning_rate": "lr", "weight_decay": "decay", "decay": "decay", "lr_scale": "lr-scale",
             "optimizer": "optimizer"}
    wrong = [s for s in settings if s not in names]
    if wrong:
        raise errors.unknown("a group", wrong, names)
    return "%s:%s" % (pattern, ",".join("%s=%s" % (names[s], v if s == "optimizer" else repr(float(v))) for s, v in settings.items()))


def _adapter(pattern: str, size: Any) -> str:
    """Formats one item of {"h.*.attn": 8}, or (8, 16) with alpha."""
    rank, alpha = size if isinstance(size, (tuple, list)) else (size, None)
    return "%s=%d%s" % (pattern, rank, "" if alpha is None else ",alpha=%g" % alpha)


def _program_of(model: Any, options: Dict[str, Any]) -> Any:
    """Returns the model. For a .pt2 file, returns its program, and takes its options out of the run's."""
    if not isinstance(model, (str, os.PathLike)):
        return model
    if not os.fspath(model).endswith(".pt2"):
        raise TypeError("Run(%r): a model is called with a graph; sl.load(%r) opens a folder or a file" % (model, model))
    from . import exported
    return exported.Program(model, **exported.split(options))


class Run:
    """A model being trained. `model(g)` builds the graph. Alternatively the model is a .pt2 file of PyTorch, with
    inputs={name: array}.

        run = sl.Run(model, stages=2, microbatches=4, schedule="1f1b", quotas={"act.b": 3})
        history = run.train(100)

    microbatches, pieces, cut, shuffle and tokenizer are options of the graph. So are eval_every=N, which evaluates the
    held out data after every N-th step (`run.evaluations`), all of it or the first eval_rows=N rows, and eval=FILE for
    a model that reads tokens. stages, schedule, quotas ({"act.b@1": 2}), data_parallel, tensor, shard, recompute, homes
    ({"act": "disk"}), ... are the options of actorrun, with _ instead of -. devices, threads and memory (bytes)
    describe what each stage runs on. optimizer="lion", lr_schedule="cosine:warmup=100", groups={"bias":
    {"weight_decay": 0}}, freeze=["wte"], lora={"h.*.attn": 8} override the model's settings (docs/training.md).
    total_steps is the end of a schedule that does not state its own.

    `weights` is a safetensors or GGUF file or a Hugging Face folder with initial weights, and `adapter` a folder of
    LoRA adapters in PEFT's format. `checkpoints` is a directory, written every `every` steps. With resume=True the run
    resumes from the newest checkpoint. `fingerprint` has settings that a resumed run must not change, and
    resume_with="lr,data" names settings that may change.

    `objective` replaces the next-token loss (sl.Preferences, sl.Distill). With `rollouts` (sl.Rollouts) a built-in or
    pretrained model learns from its own answers. chat_template, learn ("answers" or "all") and long_chats ("cut",
    "drop" or "refuse") control how a model reads files of chats (docs/data.md).

    A program started several times by torchrun or srun is one job: all processes make the same calls, and each runs its
    share."""

    GRAPH = ("microbatches", "pieces", "cut", "shuffle", "eval", "eval_every", "eval_rows", "tokenizer",
             "chat_template", "learn", "long_chats")
    TRAINING = ("optimizer", "lr_schedule", "groups", "freeze", "lora", "total_steps")
    OWN = ("stages", "seed", "weights", "checkpoints", "every", "kept", "resume", "resume_with", "fingerprint",
           "trace_records", "objective", "rollouts", "adapter", "devices", "threads", "memory", "quotas", "homes")
    ALSO = {"learning_rate_schedule": "lr_schedule", "lr_scheduler": "lr_schedule", "frozen": "freeze",
            "save_every": "every", "gradient_accumulation": "microbatches"}

    def __init__(self, model: Union[Callable[[Graph], Any], Path], *, stages: int = 1, microbatches: int = 1, seed: int = 1,
                 weights: Optional[Path] = None, checkpoints: Optional[Path] = None, every: int = 100, kept: int = 2,
                 resume: bool = False, resume_with: Optional[str] = None, fingerprint: Optional[Mapping[str, Any]] = None,
                 trace_records: int = 0, objective: Optional[Objective] = None, rollouts: Optional[Rollouts] = None,
                 **options: "Unpack[RunOptions]") -> None:
        self.closed = True  # until something must be closed
        given: Dict[str, Any] = dict(options)
        self.model: Callable[[Graph], Any] = _program_of(model, given)
        for also in [name for name in self.ALSO if name in given]:
            given[self.ALSO[also]] = given.pop(also)
        microbatches = given.pop("microbatches", microbatches)
        self._check_names(given, getattr(self.model, "keywords", ()))
        self.keep: List[Any] = []
        self.objective, self.rollouts = objective, rollouts
        self.params: Parameters
        self.history: List[Step] = []
        self.evaluations: List[Evaluation] = []
        self.found: Dict[str, float] = {}
        self.on_step: Optional[Callable[[Step], Any]] = None
        self.seed, self.closed, self.halted = seed, False, False
        self.job = self.checkpoints = ffi.NULL
        self.plan: Any = None
        adapter = given.pop("adapter", None)
        graph = {k: given.pop(k) for k in self.GRAPH[1:] if k in given}
        if getattr(self.model, "tokenizer_path", None):
            graph.setdefault("tokenizer", self.model.tokenizer_path)  # type: ignore[attr-defined]
        weights = weights or getattr(self.model, "weights", None)
        if adapter:
            given["lora"] = _adapter_modules(adapter)
        training = training_of(**{k: given.pop(k) for k in self.TRAINING if k in given})
        self.training = c.record("sl_training", training, self.keep)
        self.graph_options = dict(graph, microbatches=microbatches, stages=stages, training=self.training)
        self.lower_options = dict(given, stages=stages, seed=seed)
        try:
            files = {"dir": checkpoints, "keep": kept, "every": every, "resume": resume, "resume_with": resume_with}
            self._opening = files, dict(fingerprint or {}, seed=seed), trace_records, weights, adapter
            self._open(*self._opening)
        except BaseException:
            self.close()
            raise

    @classmethod
    def _check_names(cls, given: Mapping[str, Any], also: Sequence[str] = ()) -> None:
        """Refuses unknown options before anything is created. The model takes the options in `also`."""
        known = {name for name in LOWER_NAMES if not name.startswith("on_")}
        known.update(cls.GRAPH, cls.TRAINING, cls.OWN, cls.ALSO)
        wrong = [name for name in given if name not in known]
        if wrong:
            raise errors.unknown("Run", wrong, known.union(also))

    # ---- opening -------------------------------------------------------------------------------

    def _open(self, keep, fingerprint, trace_records, weights, adapter):
        out = ffi.new("sl_job **")
        c.check(lib.sl_job_open(ffi.NULL, out))
        self.job = out[0]
        items = [{"name": str(k), "value": str(v)} for k, v in fingerprint.items()]
        if keep["dir"]:
            self._open_checkpoints(keep, items)
        self._lower()
        items = items + self.plan.fingerprint()
        made = c.value(ffi.typeof("sl_fingerprint_item *"), items, self.keep)
        c.check(lib.sl_job_join(self.job, self.plan.plan, len(items), made))
        self.plan.start({"peers": lib.sl_job_peers(self.job),
                         "process": lib.sl_job_process(self.job), "trace_records": trace_records,
                         "first_step": self.first_step}, self.keep)
        if self.rollouts is not None:
            self.rollouts._attach(self.plan)
        self._fill(weights)
        if adapter and not self.first_step:
            c.check(lib.sl_adapter_load(c.chars(adapter, self.keep), self.plan.lowered, self.plan.runtime))
        c.check(lib.sl_job_attach(self.job, self.plan.runtime, self.first_step))
        self.params = Parameters(self.plan)

    def _open_checkpoints(self, keep, items):
        options = c.record("sl_checkpoint_options", dict(keep, nfingerprint=len(items), fingerprint=items),
                           self.keep)
        out = ffi.new("sl_checkpoints **")
        c.check(lib.sl_checkpoints_open(options, self.job, out))
        self.checkpoints = out[0]

    def _lower(self):
        asking = Asking()
        options = lower_record(self.keep, on_step=asking.reporting(c.weakly(self._step)), on_metric=c.weakly(self._metric),
                               on_eval=c.weakly(self._evaluation),
                               processes=lib.sl_job_processes(self.job), **self.lower_options)
        lib.sl_checkpoints_lower(self.checkpoints, options)
        self._set_objective(options)
        try:
            self.plan = _Plan(self.model, self.graph_options, options, asking)
        except errors.Budget as error:
            if lib.sl_job_processes(self.job) == 1 and self.rollouts is None:
                budget.advise(error, self._bytes_with, dict(self.graph_options, **self.lower_options))
            raise
        c.check(lib.sl_checkpoints_describe(self.checkpoints, self.plan.graph.pointer,
                                            self.plan.lowered))

    def _set_objective(self, options):
        """Sets what the model learns from: rollouts, an objective, or its own data."""
        if self.rollouts is not None and self.objective is not None:
            raise TypeError("Run takes rollouts or an objective, not both")
        if self.objective is not None:
            self.graph_options["objective"] = self.objective.pointer
        if self.rollouts is None:
            return
        given = self.lower_options
        parallel = {name: int(given.get(keyword) or 1) for name, keyword in
                    (("data", "data_parallel"), ("tensor", "tensor"), ("sequence", "sequence"), ("stages", "stages"))}
        self.rollouts._make(self.model, self.training, self.graph_options["microbatches"], self.seed, parallel,
                            bool(given.get("exact")))
        self.graph_options["objective"] = lib.sl_rollouts_objective(self.rollouts.pointer)
        options.rollouts = lib.sl_rollouts_lower(self.rollouts.pointer)[0]

    def _bytes_with(self, changes: Mapping[str, Any]) -> int:
        """Returns the bytes that the largest device would need with other options."""
        graph = dict(self.graph_options, **{k: v for k, v in changes.items() if k in self.GRAPH})
        lower = dict(self.lower_options, **{k: v for k, v in changes.items() if k not in self.GRAPH}, memory=0)
        keep: List[Any] = []
        plan = _Plan(self.model, graph, lower_record(keep, **lower))
        try:
            return plan.bytes
        finally:
            plan.close()

    def _fill(self, weights):
        lowered, rt = self.plan.lowered, self.plan.runtime
        if self.first_step:
            c.check(lib.sl_checkpoints_load(self.checkpoints, lowered, rt))
            return
        c.check(lib.sl_params_init(lowered, rt, self.seed))
        if weights:
            c.check(lib.sl_weights_load(c.chars(weights, self.keep), lowered, rt))
        for learned in (self.objective, self.rollouts):
            if learned is not None:
                learned.load(lowered, rt)
        c.check(lib.sl_params_copy_versions(lowered, rt))

    def _step(self, _, report):
        step = Step(report.step, report.loss, report.grad_norm, report.lr)
        self.history.append(step)
        if self.on_step:
            self.plan.caller.inside = True
            try:
                self.on_step(step)
            except BaseException as error:
                self.plan.halt(error)
            finally:
                self.plan.caller.inside = False

    def _metric(self, _, step, name, value):
        self.found[c.text(name)] = value

    def _evaluation(self, _, step, loss):
        self.evaluations.append(Evaluation(step + 1, loss, self.found))
        self.found = {}

    # ---- use -----------------------------------------------------------------------------------

    @property
    def first_step(self) -> int:
        """The first step of the run: 0, or the step of the checkpoint that it resumes from."""
        if self.closed:
            raise ValueError("the run is closed")
        return lib.sl_checkpoints_start(self.checkpoints)

    @property
    def steps(self) -> int:
        """Number of completed steps, including those before a resumed run. While a step waits for its data, the steps
        before it count."""
        runtime = self.plan.running
        return self.plan.asking.step if self.plan.call else lib.sl_runtime_steps(runtime)

    def train(self, steps: int, on_step: Optional[Callable[[Step], Any]] = None,
              progress: Optional[bool] = None) -> List[Step]:
        """Trains `steps` more steps, and returns their Steps, which `history` has as well. on_step(step) is called
        after each, on another thread. Progress appears on a terminal (stderr), or as a live loss curve in a notebook.
        progress=False hides it, True always shows it.

        Ctrl-C, or an exception raised by on_step, ends training after the step in progress; another train() continues.

        If a data function raises, train() raises the exception at once, and the step waits. Another train() calls the
        function again for the same rows and continues with that step. It also returns Steps before it that had not
        finished."""
        steps = operator.index(steps)
        if steps < 0:
            raise ValueError("train(%d): steps must be at least 0" % steps)
        return self._train([steps], on_step, notebook.Progress(steps, progress))

    def _train(self, portions: Iterable[int], on_step: Optional[Callable[[Step], Any]], bar: notebook.Progress) -> List[Step]:
        """Trains portions of steps, one after another."""
        if not self.plan.call and not self.plan.going.acquire(blocking=False):
            raise RuntimeError("the run is in progress, on another thread or around this callback")
        if not self.plan.call:
            self.plan.going.release()
        self.plan.running  # raises if the run is closed
        before, self.on_step = len(self.history), on_step
        try:
            for steps in portions:
                self._portion(steps, lambda: bar.tick(self.history[before:]))
        finally:
            self.on_step = None
            bar.end(self.history[before:])
        return self.history[before:]

    def _portion(self, steps: int, tick: Callable[[], None]) -> None:
        goal = self.steps + steps
        try:
            if self.plan.call and steps:
                self._end_waiting(goal, tick)
            if self.plan.call or steps and self.steps >= goal:
                return
            if self.halted:
                c.check(lib.sl_job_resume(self.job))
            self.halted = False
            self.plan.run(lib.sl_job_run, self.job, goal - self.steps, goal=goal, tick=tick)
        except BaseException:
            self.halted = not self.plan.call
            raise

    def _end_waiting(self, goal: int, tick: Callable[[], None]) -> None:
        """Continues a step that waits for its data, to the end of the train() it belongs to, or to `goal` if that is
        earlier."""
        if goal < self.plan.call.goal and not self.plan.stopping:
            if lib.sl_job_processes(self.job) > 1:
                raise ValueError("a job of several processes goes on to step %d, where the train() that was interrupted "
                                 "ends: train(%d)" % (self.plan.call.goal, self.plan.call.goal - self.steps))
            self.plan.stopping = True
            lib.sl_runtime_end_at(self.plan.running, goal)
        try:
            self.plan.go_on(tick)
        except StoppedError:  # stopped as requested
            if not self.plan.stopping or self.closed:
                raise
            self.halted = True

    def infer(self, **arrays: Any) -> Dict[str, "NDArray[Any]"]:
        """Returns {output: array}: the model's outputs for these rows, which replace the data of the same name. A model
        that reads tokens takes `tokens`, rows of one context each."""
        return self._infer(arrays, loss=False)

    def evaluate(self, **arrays: Any) -> Dict[str, Any]:
        """Returns {"loss": mean over these rows}, the means of the model's metrics, and its outputs as arrays. A
        built-in or pretrained model takes `tokens`, rows with one more token than it reads; it predicts all but the
        first."""
        if hasattr(self.model, "args") and set(arrays) == {"tokens"}:
            return self._evaluate_tokens(numpy.asarray(arrays["tokens"]))
        found, metrics = self._infer(arrays, loss=True, names=True)
        return {name: float(a.mean()) if name in metrics else a for name, a in found.items()}

    def _evaluate_tokens(self, tokens):
        if tokens.ndim != 2 or tokens.shape[1] < 2:
            raise ValueError("tokens must be rows of at least two, not %s" % list(tokens.shape))
        logits = self.infer(tokens=tokens[:, :-1])["logits"]
        most = logits.max(-1, keepdims=True)
        sums = numpy.log(numpy.exp((logits - most).astype(numpy.float64)).sum(-1)) + most[..., 0]
        right = numpy.take_along_axis(logits, tokens[:, 1:, None].astype(numpy.int64), -1)[..., 0]
        return {"loss": float((sums - right).mean()), "logits": logits}

    def _infer(self, arrays, loss, names=False):
        if not arrays:
            raise TypeError("no data was given: infer(x=array)")
        self.plan.runtime  # the source of the values
        got, keep = collections.defaultdict(list), []

        def take(_, name, sl_type, data):
            got[c.text(name)].append(c.array(sl_type[0], data))
        model = self.model
        if hasattr(model, "for_rows") and "tokens" in arrays:
            model = model.for_rows(numpy.asarray(arrays["tokens"]))
        plan = _Plan(model, {"infer": True, "given": arrays, "loss": loss, "training": self.training},
                     lower_record(keep, on_output=take, stages=1))
        try:
            unused = sorted(set(arrays) - plan.graph.used - ({"tokens"} if "tokens" in arrays else set()))
            if unused:
                raise TypeError("the model has no data called %s" % " or ".join(unused))
            plan.start({}, keep)
            c.check(lib.sl_weights_copy(self.plan.lowered, self.plan.runtime, plan.lowered,
                                        plan.runtime))
            steps = self._inference_steps(plan, arrays)
            plan.run(lib.sl_runtime_run, plan.runtime, steps)
        finally:
            plan.close()
        found = {name: numpy.stack(parts) if not parts[0].ndim else numpy.concatenate(parts)
                 for name, parts in got.items()}
        return (found, ["loss"] + plan.graph.metrics) if names else found

    @staticmethod
    def _inference_steps(plan, arrays):
        for source in plan.graph.sources:
            if source.length:
                return source.length // source.rows
        if "tokens" in arrays:
            return len(arrays["tokens"])
        raise TypeError("the model has no data called %s" % " or ".join(arrays))

    def generate(self, prompt: Any, **settings: Any) -> Any:
        """Continues a text, tokens, a conversation, or several of these concurrently, with the current parameters,
        including adapters: generate("Once", max_tokens=100, temperature=0.8, top_k=0, top_p=0, seed=1,
        on_text=print)."""
        from .text import Session
        with Session(self.model, self) as session:
            return session.generate(prompt, **settings)

    def save_adapter(self, folder: Path, base: Optional[str] = None) -> None:
        """Writes only the adapters, in PEFT's format. `base` names the model that they belong to."""
        c.check(lib.sl_adapter_save(c.chars(folder, self.keep), c.chars(base, self.keep) if base else ffi.NULL,
                                    self.plan.lowered, self.plan.runtime, self.job))

    def save(self, path: Path) -> None:
        """Writes the parameters, adapters merged, to a safetensors file. For a built-in or pretrained model, a path
        that is a folder or ends with a slash is written as a Hugging Face folder."""
        if hasattr(self.model, "tokenizer_path") and (os.path.isdir(path) or os.fspath(path).endswith("/")):
            self.model.save(path, self.plan.lowered, self.plan.runtime, self.job)  # type: ignore[attr-defined]
            return
        c.check(lib.sl_weights_save(c.chars(path, self.keep), self.plan.lowered, self.plan.runtime,
                                    self.job))

    def load(self, path: Path) -> None:
        """Reads parameters from a safetensors file, by name."""
        lowered, rt = self.plan.lowered, self.plan.runtime
        c.check(lib.sl_weights_load(c.chars(path, self.keep), lowered, rt))
        c.check(lib.sl_params_copy_versions(lowered, rt))

    def checkpoint(self) -> None:
        """Writes a checkpoint of the current state."""
        self.plan.lowered  # raises if the run is closed
        if not self.checkpoints:
            raise ValueError("the run keeps no checkpoints: Run(..., checkpoints=directory)")
        c.check(lib.sl_checkpoints_finish(self.checkpoints, self.plan.lowered, self.plan.runtime,
                                          self.job))

    # ---- inspection -----------------------------------------------------------------------------

    def statistics(self) -> Dict[str, Any]:
        """Returns {"step_seconds", "bubble_fraction", "devices": [{"busy_seconds", ...}]} of the last train()."""
        return statistics_of(lib.sl_runtime_statistics(self.plan.runtime), self.plan.plan)

    def trace(self, path: Optional[Path] = None) -> Trace:
        """Writes every firing of the last train() to a file, and returns the Trace. Without a path, the file is in a
        temporary folder that exists as long as the Trace."""
        if path is None:
            folder = tempfile.TemporaryDirectory()
            trace = self.trace(os.path.join(folder.name, "run.trace"))
            trace.folder = folder
            return trace
        clock, runtime = c.constant(ffi.typeof("sl_clock"), "real"), self.plan.runtime
        c.check(lib.sl_job_gather(self.job, 0))
        c.check(lib.sl_trace_write(c.chars(path, self.keep), self.plan.plan, runtime, clock))
        return Trace(path)

    def quotas(self) -> Dict[str, int]:
        """Returns the quotas in force: {"act.b@1": 2}."""
        return quotas_in_force(self.plan.lowered)

    def set_quota(self, name: str, slots: int) -> None:
        """Changes a quota, "act.b" or "act.b@1". May be called while another thread trains."""
        quota = c.record("sl_quota", quotas_of({name: slots})[0], self.keep)
        c.check(lib.sl_lowered_set_quota(self.plan.lowered, self.plan.running, quota))

    @property
    def schedule(self) -> str:
        return c.text(lib.sl_lowered_schedule(self.plan.lowered))

    def describe(self) -> str:
        """Returns the plan as text: actors, registers, queues, and the memory table."""
        self.plan.lowered  # raises if the run is closed
        return (c.written(lambda f: lib.sl_plan_print(self.plan.plan, f))
                + c.written(lambda f: lib.sl_plan_print_memory(self.plan.plan, f)))

    # ---- closing --------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the run and frees its memory. With several processes, all of them must call it."""
        if self.closed:
            return
        if self.plan:
            self.plan.end()
        self.closed = True
        if self.job:
            lib.sl_job_end(self.job, lib.sl_runtime_run(self.plan.running, 0) if self.plan and self.plan.abandoned else 0)  # repeats its failure
            lib.sl_job_close(self.job)
        if self.plan:
            self.plan.stop()
        checkpoints, self.checkpoints, self.job = self.checkpoints, ffi.NULL, ffi.NULL
        lib.sl_checkpoints_close(checkpoints)
        if self.plan:
            self.plan.close()
        if self.rollouts is not None:
            self.rollouts._close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.close()

    def _repr_html_(self) -> str:
        return notebook.run_html(self)

    def __repr__(self) -> str:
        name = getattr(self.model, "__name__", type(self.model).__name__)
        if self.closed:
            return "<Run of %s, closed>" % name
        last = ", loss %.4g" % self.history[-1].loss if self.history else ""
        return "<Run of %s: step %d%s; %d stages, %d microbatches, %s>" % (
            name, self.steps, last, lib.sl_lowered_stages(self.plan.lowered), self.plan.graph.microbatches, self.schedule)


def statistics_of(stats: Any, plan: Any) -> Dict[str, Any]:
    devices = []
    if stats.devices:
        for i in range(plan.ndevices):
            devices.append({f: getattr(stats.devices[i], f)
                            for f, _ in ffi.typeof("sl_device_statistics").fields})
        c._libc.free(stats.devices)
    return {"step_seconds": stats.step_seconds, "bubble_fraction": stats.bubble_fraction, "devices": devices}


def quotas_in_force(lowered: Any) -> Dict[str, int]:
    found: Dict[str, int] = {}

    def take(_, name, stage, slots):
        key = c.text(name) + ("@%d" % stage if stage >= 0 else "")
        found[key] = max(slots, found.get(key, 0))  # quotas of an evaluation may be smaller
    callback = ffi.callback("void(void *, const char *, int, int)", take)
    lib.sl_lowered_quotas(lowered, callback, ffi.NULL)
    return found
