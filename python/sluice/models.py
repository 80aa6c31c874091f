# SPDX-License-Identifier: Apache-2.0
"""Built-in and pretrained models: everything that actorrun accepts as MODEL, with its options.

    model = sl.load("SmolLM2-135M", data=["notes.txt"], context=256, batch=8)
    print(model.generate("Once upon a time", max_tokens=40))
    run = sl.Run(model, lora={"q_proj": 8}, lr_schedule="cosine:warmup=10", total_steps=100)
    run.train(100)
    print(run.generate("Once upon a time", max_tokens=40))"""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union, overload

from . import _library as c
from . import errors
from ._library import ffi, lib
from .exported import Program
from .graph import Graph

tools: Any = c.load("libsluice_tools")

Path = Union[str, "os.PathLike[str]"]
Message = Mapping[str, str]


class Tokenizer:
    """A Hugging Face tokenizer.json, or the tokenizer of a GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        if os.path.isdir(self.path):
            self.path = os.path.join(self.path, "tokenizer.json")
        out, keep = ffi.new("sl_tokenizer **"), []  # type: Any, List[Any]
        c.check(lib.sl_tokenizer_open(c.chars(self.path, keep), out))
        self.pointer = c.owned(out[0], lib.sl_tokenizer_close)

    def encode(self, text: str, special: bool = True) -> List[int]:
        """Returns the tokens of a text. `special` adds the special tokens around a text, such as a begin token."""
        data, tokens, count = text.encode(), ffi.new("int32_t **"), ffi.new("size_t *")
        c.check(lib.sl_tokenizer_encode(self.pointer, data, len(data), special, tokens, count))
        out = list(tokens[0][0:count[0]])
        c.free(tokens[0])
        return out

    def decode(self, tokens: Iterable[int], special: bool = False) -> str:
        """Returns the text of tokens. `special` includes the text of special tokens."""
        given, size = ffi.new("int32_t[]", [int(t) for t in tokens]), ffi.new("size_t *")
        text = lib.sl_tokenizer_decode(self.pointer, given, len(given), special, size)
        out = bytes(ffi.buffer(text, size[0])).decode("utf-8", "replace")
        c.free(text)
        return out

    def __repr__(self) -> str:
        return "<Tokenizer of %s>" % self.path


class Model:
    """A built-in model, a Hugging Face folder, a GGUF file, or a model in C, with its options. Like a model in Python,
    it is called with a graph."""

    def __init__(self, word: Path, **options: Any) -> None:
        self.word, self.options = os.fspath(word), dict(options)
        self.keep: List[Any] = []
        self._session: Any = None
        given_words = words(options)
        out = ffi.new("sl_shipped **")
        given = c.value(ffi.typeof("char **"), given_words, self.keep) or ffi.NULL
        try:
            c.check(tools.sl_shipped_open(c.chars(self.word, self.keep), len(given_words), given, out))
        except errors.Error as error:
            raise type(error)(in_python(str(error))) from None
        self.pointer = c.owned(out[0], tools.sl_shipped_close)
        self.model, self.args = tools.sl_shipped_model(self.pointer), tools.sl_shipped_args(self.pointer)
        self.__name__ = c.text(self.model.name)
        #: The file or folder of its weights, or None if it starts with random weights.
        self.weights: Optional[str] = c.text(tools.sl_shipped_weights(self.pointer)) or None
        self.tokenizer_path: Optional[str] = c.text(tools.sl_shipped_tokenizer(self.pointer)) or None
        self.tokenizer: Optional[Tokenizer] = Tokenizer(self.tokenizer_path) if self.tokenizer_path else None

    def __call__(self, g: Graph) -> None:
        g._kept.append(self)
        c.check(lib.sl_model_build(self.model, g.pointer, self.args))
        c.check(lib.sl_args_status(self.args))

    def option(self, name: str) -> Union[int, float, str, bool]:
        """Returns the value of an option in force."""
        row = _option_rows(self.model).get(name)
        if row is None:
            raise errors.unknown(self.__name__, [name], _option_rows(self.model))
        kind, chars = row.kind, c.chars(name.replace("_", "-"), self.keep)
        if kind == lib.SL_OPTION_INT:
            return int(lib.sl_arg_int(self.args, chars))
        if kind == lib.SL_OPTION_FLOAT:
            return float(lib.sl_arg_float(self.args, chars))
        return bool(lib.sl_arg_flag(self.args, chars)) if kind == lib.SL_OPTION_FLAG else c.text(lib.sl_arg_text(self.args, chars))

    def with_options(self, **options: Any) -> "Model":
        """Returns the same model with other options."""
        return Model(self.word, **dict(self.options, **options))

    def words(self, **more: Any) -> List[str]:
        """Returns the model as words of a command line, including its weights if they are in another file."""
        return [self.word] + words(dict(self.options, **more))

    def for_rows(self, tokens: Any) -> "Model":
        """Returns the model with a context as long as these rows of tokens."""
        known = "context" in _option_rows(self.model) and tokens.ndim == 2
        same = not known or self.option("context") == tokens.shape[1]
        return self if same else self.with_options(context=tokens.shape[1])

    def chat(self, messages: Sequence[Message]) -> "tuple[str, Optional[str]]":
        """Formats a conversation with the model's chat template. Returns the text, and the text of the token that ends
        an answer."""
        keep: List[Any] = []
        prompt, end = ffi.new("char **"), ffi.new("char **")
        roles = c.value(ffi.typeof("char **"), [m["role"] for m in messages], keep)
        texts = c.value(ffi.typeof("char **"), [m["content"] for m in messages], keep)
        c.check(tools.sl_shipped_chat(self.pointer, len(messages), roles, texts, prompt, end))
        out = c.text(prompt[0]), c.text(end[0]) or None
        c.free(prompt[0])
        c.free(end[0])
        return out

    def generate(self, prompt: Any, **settings: Any) -> Any:
        """Continues a text with the model's weights. Run.generate does the same with trained weights."""
        from .text import Session
        if self._session is None:
            self._session = Session(self)
        return self._session.generate(prompt, **settings)

    def save(self, folder: Path, lowered: Any, runtime: Any, job: Any) -> None:
        """Writes a Hugging Face folder."""
        c.check(tools.sl_shipped_save(self.pointer, c.chars(folder, self.keep), lowered, runtime, job))

    def __repr__(self) -> str:
        options = "".join(", %s=%r" % item for item in self.options.items())
        return "<Model %s%s>" % (self.word, options)


def words(options: Mapping[str, Any]) -> List[str]:
    """Converts options to words of a command line."""
    out: List[str] = []
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is None or one is False:
                continue
            out.append("--" + name.replace("_", "-"))
            out += [] if one is True else [os.fspath(one) if isinstance(one, os.PathLike) else str(one)]
    return out


def in_python(text: str) -> str:
    """Replaces the names of options in a message with their names in Python: --kv-heads 3 becomes kv_heads 3."""
    import re
    text = re.sub(r"; sluice --help lists them", "", text)
    return re.sub(r"--([a-z][a-z0-9-]*)", lambda m: m[1].replace("-", "_"), text)


def _option_rows(model: Any) -> Dict[str, Any]:
    found, row = {}, model.options
    while row.name:
        found[c.text(row.name).replace("-", "_")] = row[0]
        row += 1
    return found


@overload
def load(path: Path, *, inputs: Mapping[str, Any], **options: Any) -> Program: ...


@overload
def load(path: Path, **options: Any) -> Model: ...


def load(path: Path, **options: Any) -> Union[Model, Program]:
    """Loads a model from a Hugging Face folder, a GGUF file, a C file, or a .pt2 file of PyTorch. Options are those of
    the model: data=["a.txt"], context=256, batch=8. A .pt2 file gets its arrays from inputs={name: array}."""
    return Program(path, **options) if "inputs" in options else Model(path, **options)


class _Shipped:
    """The built-in models: sl.models.gpt(data=["book.txt"], layers=4, width=128)."""

    def __getattr__(self, name: str) -> Callable[..., Model]:
        known = self._all()
        if name not in known:
            raise AttributeError("there is no model %s: %s are%s" % (name, ", ".join(known), errors.near(name, known)))

        def make(**options: Any) -> Model:
            return Model(c.text(known[name].name), **options)
        make.__name__ = name
        make.__doc__ = "%s\n\n%s" % (c.text(known[name].summary), "\n".join(
            "%s [%s]: %s" % (option, c.text(row.value) or "none", c.text(row.help).replace("`", ""))
            for option, row in _option_rows(known[name]).items()))
        return make

    @staticmethod
    def _all() -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        all_ = tools.sl_shipped_models()
        while all_[len(found)]:
            found[c.text(all_[len(found)].name).replace("-", "_")] = all_[len(found)]
        return found

    def __dir__(self) -> List[str]:
        return list(self._all())

    def __repr__(self) -> str:
        return "<models: %s>" % ", ".join(self._all())


models = _Shipped()
