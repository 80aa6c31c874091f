# SPDX-License-Identifier: Apache-2.0
"""Generation: a session of a model, which continues many texts concurrently."""
from __future__ import annotations

import collections
import os
import select
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union

from . import _library as c
from ._library import ffi, lib
from .graph import Graph


class Session:
    """A model that continues texts. Without a run it has the model's weights, in the format in which they are
    stored."""

    def __init__(self, model: Any, run: Any = None, threads: Optional[int] = None, **options: Any) -> None:
        self.model, self.run, self.keep = model, run, []  # type: Any, Any, List[Any]
        self.failure: Optional[BaseException] = None
        self.pointer: Any = None
        record, args = self._model()
        threads = threads or len(os.sched_getaffinity(0))
        options.setdefault("sequences", 8)
        given = dict(options, model=record, args=args, load=self._load,
                     lower={"parallel": {"stages": 1}, "devices": {"kind": "cpu", "count": 1, "threads": threads}})
        if run is None:
            given["stored"] = model.weights
        else:
            given["training"] = run.training
        out = ffi.new("sl_session **")
        status = lib.sl_session_create(c.record("sl_session_options", given, self.keep, "a session"), out)
        if self.failure:
            raise self.failure
        c.check(status)
        self.pointer = out[0]
        about = lib.sl_session_about(self.pointer)
        self.context, self.vocabulary = int(about.context), int(about.vocabulary)
        self.tokenizer: Any = getattr(model, "tokenizer", None)
        given_tokenizer = run.graph_options.get("tokenizer") if run is not None else None
        if self.tokenizer is None and given_tokenizer:
            from .models import Tokenizer
            self.tokenizer = Tokenizer(given_tokenizer)

    def _model(self) -> Any:
        """Returns (sl_model, sl_args) of a built-in or pretrained model, or of a model in Python."""
        if hasattr(self.model, "args"):
            return self.model.model, self.model.args
        none = ffi.new("sl_option[]", 1)
        args = ffi.new("sl_args **")
        c.check(lib.sl_args_create(none, args))
        self.keep += [none, c.owned(args[0], lib.sl_args_destroy)]
        name = getattr(self.model, "__name__", "model")
        return c.record("sl_model", {"abi": lib.SL_MODEL_ABI, "name": name, "summary": "", "options": none,
                                     "build": self._build}, self.keep), args[0]

    def _build(self, pointer: Any, _: Any) -> int:
        graph = Graph.around(pointer, infer=True)
        self.keep.append(graph)
        try:
            self.model(graph)
        except BaseException as error:
            self.failure = self.failure or error
        return int(lib.sl_graph_status(pointer))

    def _load(self, _: Any, lowered: Any, runtime: Any) -> int:
        """Loads the weights of the run, or of the model's files."""
        if self.run is not None:
            plan = self.run.plan
            return int(lib.sl_weights_copy(plan.lowered, plan.runtime, lowered, runtime))
        if not self.model.weights:
            return int(lib.sl_params_init(lowered, runtime, 1))
        return int(lib.sl_weights_load(c.chars(self.model.weights, self.keep), lowered, runtime))

    # ---- texts ----------------------------------------------------------------------------------

    def generate(self, prompt: Any, max_tokens: int = 100, temperature: float = 0.0, top_k: int = 0, top_p: float = 0.0,
                 seed: int = 1, stop: Sequence[int] = (), on_text: Optional[Callable[[str], Any]] = None) -> Any:
        """Continues a text, a list of tokens, a conversation ([{"role": "user", "content": ...}], formatted by the chat
        template), or a list of these, all concurrently, and returns the continuation of each. A prompt of tokens is
        answered with tokens. temperature 0 takes the most likely token. on_text(piece) gets the text of the first
        prompt as it is generated."""
        several = isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], (str, list, tuple))
        prompts = [self._tokens(p) for p in (prompt if several else [prompt])]
        asked = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "logprobs": -1}
        ids = [self._submit(tokens, dict(asked, seed=seed + i), list(stop) + ends) for i, (tokens, ends, _) in enumerate(prompts)]
        answers = self._answers(ids, prompts, on_text)
        out = [answers[i] if raw else self._text(tokens, answers[i]) for i, (tokens, _, raw) in zip(ids, prompts)]
        return out if several else out[0]

    def _tokens(self, prompt: Any) -> "tuple[List[int], List[int], bool]":
        """Returns (tokens, tokens that end the answer, whether the answer is tokens too)."""
        if isinstance(prompt, str):
            return self._encode(prompt), [], False
        prompt = list(prompt)
        if prompt and isinstance(prompt[0], dict):
            text, end = self.model.chat(prompt)
            marks = self.tokenizer.encode(end, special=False) if end else []
            return self.tokenizer.encode(text, special=False), marks if len(marks) == 1 else [], False
        return [int(t) for t in prompt], [], True

    def _encode(self, text: str) -> List[int]:
        if self.tokenizer is not None:
            return self.tokenizer.encode(text) or self.tokenizer.encode("\n")
        if self.vocabulary > 256:
            raise TypeError("the model has no tokenizer: a prompt is a list of tokens below %d" % self.vocabulary)
        return list(text.encode()) or [10]

    def _text(self, before: List[int], tokens: List[int]) -> str:
        """Returns the text that the tokens add to the tokens before them."""
        if self.tokenizer is None:
            return bytes(tokens).decode("utf-8", "replace")
        whole, start = self.tokenizer.decode(before + tokens), self.tokenizer.decode(before)
        return whole[len(start):] if whole.startswith(start) else self.tokenizer.decode(tokens)

    # ---- requests -------------------------------------------------------------------------------

    def _submit(self, tokens: List[int], asked: Dict[str, Any], stop: List[int]) -> int:
        if len(tokens) >= self.context:
            raise ValueError("a prompt of %d tokens leaves no room for an answer in a context of %d" % (len(tokens), self.context))
        keep: List[Any] = []
        prompt, ends = ffi.new("int32_t[]", tokens), ffi.new("int32_t[]", stop)
        request = c.record("sl_request", dict(asked, prompt=prompt, nprompt=len(tokens), stop=ends, nstop=len(stop)), keep)
        out = ffi.new("uint64_t *")
        c.check(lib.sl_session_submit(self.pointer, request, out))
        return int(out[0])

    def _answers(self, ids: List[int], prompts: Any, on_text: Optional[Callable[[str], Any]]) -> Dict[int, List[int]]:
        answers: Dict[int, List[int]] = {i: [] for i in ids}
        ends = {i: set(stop) for i, (_, stop, _) in zip(ids, prompts)}
        going, shown = set(ids), ""
        events, poll = ffi.new("sl_session_event[64]"), select.poll()
        poll.register(lib.sl_session_fd(self.pointer), select.POLLIN)
        try:
            while going:
                poll.poll(200)
                for e in events[0:lib.sl_session_poll(self.pointer, events, 64)]:
                    if e.kind == lib.SL_EVENT_TOKEN and e.id in answers and e.token not in ends[e.id]:
                        answers[e.id].append(e.token)
                    elif e.kind == lib.SL_EVENT_END:
                        going.discard(e.id)
                        self._check_end(e)
                if on_text:
                    shown = self._show(prompts[0][0], answers[ids[0]], shown, on_text)
                c.check(lib.sl_session_status(self.pointer))
        except BaseException:
            for i in going:
                lib.sl_session_cancel(self.pointer, i)
            raise
        return answers

    def _show(self, before: List[int], tokens: List[int], shown: str, on_text: Callable[[str], Any]) -> str:
        text = self._text(before, tokens).rstrip("\ufffd")
        if len(text) > len(shown):
            on_text(text[len(shown):])
        return text if len(text) > len(shown) else shown

    def _check_end(self, event: Any) -> None:
        if event.end == lib.SL_END_FAILED:
            c.check(lib.sl_session_status(self.pointer))
            raise c.ERRORS[lib.SL_E_NUMERIC]("the model's logits are not finite")

    def close(self) -> None:
        pointer, self.pointer = self.pointer, None
        if pointer:
            c.check(lib.sl_session_destroy(pointer))

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            lib.sl_session_destroy(self.pointer)
            self.pointer = None

    def __repr__(self) -> str:
        return "<Session of %r: context %d, vocabulary %d>" % (self.model, self.context, self.vocabulary)
