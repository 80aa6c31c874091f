# SPDX-License-Identifier: Apache-2.0
"""Models: a graph, its tensors, and every op of the library as a method of the graph."""
import math
import operator
import types
import weakref

import numpy

from . import _library as c
from ._library import ffi, lib


class Init:
    """How a parameter starts."""

    def __init__(self, kind, scale):
        self.kind, self.scale = kind, float(scale)


def normal(std):
    """Numbers of a normal distribution around 0."""
    return Init("normal", std)


def constant(value):
    return Init("constant", value)


def uniform(bound):
    """Numbers from -bound to bound, all as likely."""
    return Init("uniform", bound)


class Tensor:
    """A tensor of a graph: its shape is known, its values exist while a run goes on."""

    def __init__(self, pointer, graph):
        self.pointer, self.graph = pointer, graph

    @property
    def type(self):
        return lib.sl_tensor_type(self.pointer)[0]

    shape = property(lambda self: c.shape_of(self.type))
    dtype = property(lambda self: c.dtype_of(self.type))
    name = property(lambda self: c.text(lib.sl_tensor_name(self.pointer)))

    def __add__(self, other):
        return self._with(other, "add", "add_constant")

    def __sub__(self, other):
        return self.graph.sub(self, other) if isinstance(other, Tensor) else self + -other

    def __mul__(self, other):
        return self._with(other, "mul", "scale")

    def __truediv__(self, other):
        return self.graph.div(self, other) if isinstance(other, Tensor) else self * (1 / other)

    def __neg__(self):
        return self.graph.neg(self)

    __radd__, __rmul__ = __add__, __mul__

    def _with(self, other, op, by_number):
        return getattr(self.graph, op if isinstance(other, Tensor) else by_number)(self, other)

    def __repr__(self):
        return "<Tensor %s %s%s>" % (self.name, self.dtype, list(self.shape))


class Graph:
    """What one microbatch goes through. `g.linear(x, w, b)` is sl_linear(g, x, w, b) of C, and so
    are all calls: an op that the library has is a method here. Settings of an op go by their
    names in C, those left out are 0 or absent: `g.attention(q, k, v, heads=4)`. Shapes, lengths and
    axes are lists: `g.reshape(x, [8, -1])`, `g.mean(x, axes=[1])`, `g.split(x, 1, [2, 4])`.

    An error raises what the library says, with the file and line of your call."""

    def __init__(self, infer=False, given=None, loss=False, **options):
        self._kept = []  # what C looks at as long as the graph lives
        self.failure = None  # of a callback
        self.owned = False  # by a plan, which destroys it
        self.infer, self.given, self.wants_loss = infer, given or {}, loss
        if infer and "tokens" in self.given:
            options["feed_tokens"] = self._feed()
        self.sources, self.metrics, self.used = [], [], set()
        options = c.record("sl_graph_options", dict(options, infer=infer), self._kept)
        self.pointer = lib.sl_graph_create(options)
        self.check()

    def close(self):
        if getattr(self, "pointer", None):
            lib.sl_graph_destroy(self.pointer)
            self.pointer = None

    def __del__(self):
        if not getattr(self, "owned", True):
            self.close()

    def check(self):
        c.check(lib.sl_graph_status(self.pointer))

    def _feed(self):
        tokens = _tokens_of(self.given["tokens"])
        graph = weakref.ref(self)

        def feed(_, tick, out, count):
            if count == tokens.shape[1] and tick.step < len(tokens):
                numpy.frombuffer(ffi.buffer(out, 4 * count), numpy.int32)[:] = tokens[tick.step]
            else:
                graph().failed(ValueError("tokens are rows of %d, and the model reads rows of %d" % (
                    tokens.shape[1], count)))
        return feed

    def failed(self, error):
        """Ends the run with what a callback has raised."""
        self.failure = self.failure or error
        self.fail()

    # ---- what is not an op ------------------------------------------------------------------

    @property
    def microbatches(self):
        return lib.sl_graph_microbatches(self.pointer)

    def block(self, name):
        """Starts a new block: ops that stay together when the model is cut in stages."""
        lib.sl_block(self.pointer, b"%s", c.chars(name, self._kept))
        self.check()

    def block_stage(self, stage):
        """Puts this block and those after it on that stage of the pipeline."""
        lib.sl_block_stage(self.pointer, stage)
        self.check()

    def rows(self, batch):
        """Rows of one microbatch when a step has `batch` of them; 1 for inference."""
        rows = lib.sl_microbatch_rows(self.pointer, batch)
        self.check()
        return rows

    def param(self, name, shape, init=None):
        """A trained array, normal(0.02) to begin with."""
        init = init or normal(0.02)
        kind = c.constant(ffi.typeof("sl_init_kind"), init.kind)
        out = lib.sl_param_at(c.here(self._kept), self.pointer, c.type_of(shape),
                              {"kind": kind, "scale": init.scale}, b"%s",
                              c.chars(name, self._kept))
        return self._out(out)

    def dense(self, x, width, name, bias=True):
        """A linear map of x [..., n] to [..., width] with parameters of its own, name.weight and
        name.bias, uniform to begin with as torch.nn.Linear's are."""
        inputs = x.shape[-1]
        bound = uniform(inputs ** -0.5)
        weight = self.param(name + ".weight", (width, inputs), bound)
        return self.linear(x, weight, self.param(name + ".bias", (width,), bound) if bias else None)

    def data(self, batch, held_out=None, **arrays):
        """Rows of NumPy arrays, `batch` a step, in order and from the start again: a tensor for
        each array. float arrays become float32, integers int32. An array may also be a function
        (row, rows, step) -> array that gives the rows from `row` of step `step`; the first is
        asked for one row to see its shape.

        `held_out` has arrays of the same names that are not trained on: Run(eval_every=N) evaluates
        those. In inference and evaluate(), arrays given there by the same name take their place."""
        source = _Arrays(self, batch, arrays, held_out)
        self.sources.append(source)
        outs = ffi.new("sl_tensor *[]", len(arrays))
        lib.sl_data_at(c.here(self._kept), self.pointer, source.record, outs)
        outs = [self._out(t) for t in outs]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def constant(self, values, like=None):
        """An array that the model knows, as float32 or int32, the same in every microbatch. With
        `like`, a tensor of the same shape, devices and pieces have the parts of it that they have
        of that: what depends on rows of data needs one."""
        values = numpy.ascontiguousarray(_narrow(values))
        return self._out(lib.sl_constant_at(
            c.here(self._kept), self.pointer, c.type_of(values.shape, values.dtype),
            ffi.from_buffer(values), like.pointer if like else ffi.NULL))

    def cross_entropy_with(self, logits, targets, ignore=-100, smoothing=0.0, weights=None):
        """Cross entropy where rows whose target is `ignore` do not count, `smoothing` of each row is
        shared out among all classes, and rows count by weights[target]: as
        torch.nn.functional.cross_entropy(ignore_index, label_smoothing, weight)."""
        if weights is not None and len(weights) != logits.shape[-1]:
            raise ValueError("%d weights for %d classes" % (len(weights), logits.shape[-1]))
        loss = {"ignore": ignore or -1 << 31, "smoothing": smoothing,
                "weights": ffi.NULL if weights is None else ffi.new("float[]", list(map(float, weights)))}
        return self._out(lib.sl_cross_entropy_with_at(
            c.here(self._kept), self.pointer, logits.pointer, targets.pointer,
            ffi.new("sl_loss *", loss)))

    def train(self, loss, **optimizer):
        """Minimise `loss`; settings by their names in sl_optimizer: lr=1e-3, weight_decay=0.1."""
        if self.infer:
            if self.wants_loss:
                self.output("loss", loss)
            return
        settings = c.record("sl_optimizer", optimizer, self._kept) if optimizer else ffi.NULL
        lib.sl_train_at(c.here(self._kept), self.pointer, loss.pointer, settings)
        self.check()

    def output(self, name, tensor):
        """Names what inference gives; the tensor."""
        lib.sl_output_at(c.here(self._kept), self.pointer, c.chars(name, self._kept), tensor.pointer)
        self.check()
        return tensor

    def metric(self, name, tensor):
        """Names what evaluations find besides the loss: the mean of `tensor`."""
        if not self.infer:
            lib.sl_metric_at(c.here(self._kept), self.pointer, c.chars(name, self._kept),
                             tensor.pointer)
        elif self.wants_loss:
            self.output(name, tensor)
        self.metrics.append(name)
        self.check()

    def apply(self, op, *inputs, **attrs):
        """Any op of the table by its name, with all that it gives; None for an absent input."""
        row = lib.sl_op_find(op.encode())
        if not row:
            raise AttributeError("there is no op %s" % op)
        return self._apply(row, inputs, attrs)

    def _apply(self, row, inputs, attrs):
        settings = c.record("sl_attrs", attrs, self._kept)
        nout = row.nout
        if nout < 0:
            nout = row.outputs(settings, len(inputs)) if row.outputs else 1
        absent = sum(1 << i for i, t in enumerate(inputs) if t is None)
        outs = ffi.new("sl_tensor *[]", max(nout, 1))
        lib.sl_apply_at(c.here(self._kept), self.pointer, row, settings, len(inputs),
                        [t.pointer if t else ffi.NULL for t in inputs], absent, outs)
        self.check()
        return tuple(Tensor(outs[i], self) for i in range(nout))

    # ---- ops ------------------------------------------------------------------------------------

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        call = function(name)
        if call is None:
            raise AttributeError("there is no op %s; sluice.ops() lists them" % name)
        return types.MethodType(call, self)

    def __dir__(self):
        return sorted(set(object.__dir__(self)) | set(ops()))

    def _out(self, pointer):
        self.check()
        return Tensor(pointer, self)


# ---- calls of C as methods ----------------------------------------------------------------------


def _rows():
    i = 0
    while lib.sl_ops[i]:
        yield c.text(lib.sl_ops[i].name)
        i += 1


def _functions():
    for name in dir(lib):
        if name.startswith("sl_") and name.endswith("_at"):
            args = ffi.typeof(getattr(lib, name)).args
            if [a.cname for a in args[:2]] == ["struct sl_here", "struct sl_graph *"]:
                yield name[3:-3]


def ops():
    """The names of all ops: methods of a graph, or names for its apply()."""
    return sorted(set(_rows()) | set(_functions()))


_made = {}


RENAMED = {"tally": "counter"}  # old names work for one version


def function(name):
    """The op as a function of the graph, or None."""
    name = RENAMED.get(name, name)
    if name not in _made:
        if name in _functions():
            _made[name] = _call("sl_%s_at" % name)
        elif lib.sl_op_find(name.encode()):
            _made[name] = _row_call(name)
        else:
            return None
    return _made[name]


def _row_call(name):
    def call(g, *inputs, **attrs):
        return g.apply(name, *inputs, **attrs)[0]
    call.__name__, call.__doc__ = name, c.words("sl_op_" + name)[1]
    return call


def _is_list(params, i):
    """Is parameter i how many the array in parameter i + 1 has?"""
    if not params[i].startswith("int ") or i + 1 == len(params):
        return False
    behind = params[i + 1]
    return "*const *" in behind or "*" in behind and not behind.startswith(
        ("sl_tensor *", "const char", "const struct", "const sl_"))


def _call(symbol):
    target = getattr(lib, symbol)
    ctypes = ffi.typeof(target).args[2:]
    params, said = c.words(symbol)
    said = c.words("sl_op_" + symbol[3:-3])[1] or said  # of the op itself, if there is one
    params = params[2:]
    names = [p.split("*")[-1].split()[-1].split("[")[0] for p in params]
    outputs = [p.startswith("sl_tensor **") for p in params]
    counts = [_is_list(params, i) for i in range(len(params))]
    asked = [n for n, out, count in zip(names, outputs, counts) if not out and not count]

    def call(g, *args, **kwargs):
        if ctypes and ctypes[-1].cname == "struct sl_type" and len(args) >= len(asked):
            args = args[:len(asked) - 1] + (_flat(args[len(asked) - 1:]),)  # lengths, one by one
        if len(args) > len(asked):
            raise TypeError("%s takes %s" % (symbol[3:-3], ", ".join(asked)))
        given = dict(zip(asked, args))
        for name in kwargs:
            if name not in asked or name in given:
                raise TypeError("%s takes %s, not %s" % (symbol[3:-3], ", ".join(asked), name))
        given.update(kwargs)
        return _called(g, target, ctypes, names, outputs, counts, given)
    call.__name__ = symbol[3:-3]
    call.__doc__ = "%s(%s)\n\n%s" % (symbol[3:-3], ", ".join(asked), said)
    return call


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
            args.append(ffi.NULL)  # so many, alike
        else:
            args.append(_argument(g, ctype, given.get(name), given.get(names[0])))
            if i + 1 < len(names) and outputs[i + 1] and ctype.cname == "int":
                last = int(given.get(name) or 1)  # how many come out
    result = target(c.here(g._kept), g.pointer, *args)
    g.check()
    made = [Tensor(t, g) for out in outs for t in out]
    if result is not None:
        made.insert(0, Tensor(result, g))
    return made[0] if len(made) == 1 else tuple(made) or None


def _flat(args):
    return args[0] if len(args) == 1 and not isinstance(args[0], int) else args


def _axes(dims, tensor):
    """Dims as bits, negative ones from the end."""
    n, bits = len(tensor.shape), 0
    for d in map(operator.index, dims):
        if not -n <= d < n:
            raise ValueError("axis %d of a tensor of %d" % (d, n))
        if bits & 1 << d % n:
            raise ValueError("axis %d is there twice" % (d % n))
        bits |= 1 << d % n
    return bits


def _argument(g, ctype, given, tensor=None):
    if isinstance(given, Tensor):
        return given.pointer
    if ctype.cname == "struct sl_type" and isinstance(given, (list, tuple)):
        return c.type_of(given)
    if ctype.cname == "uint32_t" and isinstance(given, (list, tuple)):
        return _axes(given, tensor)
    if ctype.cname == "struct sl_tensor * *":
        return [t.pointer for t in given]
    if given is None:
        return ffi.NULL if ctype.kind == "pointer" else False if ctype.cname == "_Bool" else 0
    return c.value(ctype, given, g._kept)


# ---- data ---------------------------------------------------------------------------------------


class _Arrays:
    """A source of data that takes its rows from arrays."""

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
            raise ValueError("%s are held out, of %s" % (list(arrays), self.names))
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
        record = {"nout": len(self.arrays), "types": made, "fill": self._fill}
        if self.held_out:
            record.update(fill_held_out=self._fill_held_out,
                          held_out=len(self.held_out[0]) // self.rows,
                          held_out_rest=len(self.held_out[0]) % self.rows)
        self.record = c.record("sl_source", record, self.graph._kept)

    def _fill(self, _, tick, outs):
        self._fill_from(self.arrays, tick, outs)

    def _fill_held_out(self, _, tick, outs):
        self._fill_from(self.held_out, tick, outs)

    def _fill_from(self, arrays, tick, outs):
        try:
            for i, a in enumerate(arrays):
                if outs[i]:
                    self._fill_one(i, a, tick, outs[i])
        except BaseException as error:  # the run ends with it
            self.graph.failed(error)

    def _check(self, i, part, rows):
        """Rows are of the shape and type that the model was made for."""
        shape, dtype = (rows,) + c.shape_of(self.types[i])[1:], c.dtype_of(self.types[i])
        if part.shape != shape or part.dtype != dtype:
            raise ValueError("%s: rows are wanted as %s%s, not %s%s" % (
                self.names[i], dtype, list(shape), part.dtype, list(part.shape)))

    def _fill_one(self, i, a, tick, out):
        if self.lacking[i]:
            raise ValueError("%s is needed, and was not given" % self.names[i])
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
        return lambda row, rows, step: _narrow(a(row, rows, step))
    a = _narrow(a)
    if a.ndim < 1 or not len(a):
        raise ValueError("%s has no rows" % name)
    return a


def _rows_in_common(arrays):
    """How many rows all of them have, but for functions; 0 without any."""
    rows = {name: len(a) for name, a in arrays.items() if not callable(a)}
    if len(set(rows.values())) > 1:
        raise ValueError("as many rows of each are needed, not %s" % rows)
    return next(iter(rows.values()), 0)


def _as(name, given, like):
    """What is given in the place of `like`: whole numbers where it has those, others where it has those."""
    given = _rows_of(name, given)
    if callable(given):
        raise TypeError("%s: rows are to be given as an array" % name)
    if callable(like):
        return given
    wanted = _narrow(like).dtype
    if wanted.kind == "i" and given.dtype.kind == "f":
        raise TypeError("%s has whole numbers, not %s" % (name, given.dtype))
    return given.astype(wanted, copy=False)


def _tokens_of(tokens):
    tokens = _narrow(tokens)
    if tokens.ndim != 2 or tokens.dtype.kind != "i" or not tokens.size:
        raise ValueError("tokens are rows of whole numbers, not %s%s" % (tokens.dtype, list(tokens.shape)))
    return numpy.ascontiguousarray(tokens)


def _narrow(a):
    a = numpy.asarray(a)
    if a.dtype.kind == "f":
        with numpy.errstate(over="raise"):
            try:
                return a.astype(numpy.float32, copy=False)
            except FloatingPointError:
                raise ValueError("%s does not fit in float32" % numpy.abs(a[numpy.isfinite(a)]).max()) from None
    if a.dtype.kind not in "biu":
        raise TypeError("numbers are needed, not %s" % a.dtype)
    if a.size and (a.max() > 0x7fffffff or a.min() < -0x80000000):
        raise ValueError("%s does not fit in int32" % (a.max() if a.max() > 0x7fffffff else a.min()))
    return a.astype(numpy.int32, copy=False)


def _divisor(n, most):
    """The largest divisor of n up to `most`."""
    best = max(d for i in range(1, math.isqrt(n) + 1) if n % i == 0 for d in (i, n // i)
               if d <= max(most, 1))
    return best
