# SPDX-License-Identifier: Apache-2.0
"""Learning from rollouts: a model answers prompts, a function of your program rewards its answers, and the model learns
from them.

    def reward(answer):
        return sum(c.isdigit() for c in answer.text) / max(len(answer.text), 1)

    rollouts = sl.Rollouts(["Tell me a number.", "How far is the moon?"], reward, group=8, max_tokens=32, kl=0.01)
    with sl.Run(model, rollouts=rollouts) as run:
        run.train(20)
        print([report.reward for report in rollouts.reports])

Without rewards, the model learns a teacher's probabilities at the tokens of its own answers:

    rollouts = sl.Rollouts(prompts, distill=sl.Distill(teacher, top=64), max_tokens=32)"""
from __future__ import annotations

import math
import queue
import threading
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _library as c
from ._library import ffi, lib
from .models import Message, Model, Tokenizer
from .objectives import Distill

# A text, tokens, or a conversation.
Prompt = Union[str, Sequence[int], Sequence[Message]]


class Answer(NamedTuple):
    """An answer: the prompt as given and its index, the step (from 0), the index in the group, the text without the
    token that ended it, the tokens and their log probabilities, and whether it was cut off before its end."""
    prompt: Prompt
    number: int
    step: int
    member: int
    text: str
    tokens: List[int]
    logprobs: List[float]
    truncated: bool


class Rollout(NamedTuple):
    """Figures of a step's answers. `dropped` and `truncated` count answers; `flat` is the fraction of groups whose
    rewards are all equal."""
    step: int
    answers: int
    dropped: int
    truncated: int
    reward: float
    reward_std: float
    length: float
    entropy: float
    flat: float
    rows: int
    answer_seconds: float
    reward_seconds: float


class Rollouts:
    """The `rollouts` of a Run of a built-in or pretrained model: prompts, and `reward(answer)`, which returns a number
    for an Answer, or None to drop it. A number that is not finite, or None for as many answers in a row as a step has,
    ends the run. Alternatively `distill` is a teacher that reads the answers; its `data` must be 0, and `reward` may be
    omitted.

    A step of the model's `batch` rows takes batch / group prompts and answers each `group` times (default 8; 1 with a
    teacher). `kl` weighs the divergence from the initial model, and `clip` (low, high) bounds the probability ratios.
    `updates` steps learn from one rollout. With `ahead`, answers come from parameters that are that many updates old
    (docs/rollouts.md). `stop` lists texts of tokens that end an answer, in addition to those of the chat template.
    reward() is called on a separate thread."""

    def __init__(self, prompts: Sequence[Prompt], reward: Optional[Callable[[Answer], Optional[float]]] = None, *,
                 distill: Optional[Distill] = None, group: Optional[int] = None, max_tokens: int = 256,
                 temperature: float = 1.0, top_p: float = 0.0, kl: float = 0.0,
                 clip: Union[float, Tuple[float, float]] = 0.2, dual_clip: float = 3.0, updates: int = 1, ahead: int = 0,
                 ticks: int = 0, shuffle: int = 0, stop: Sequence[str] = ()) -> None:
        if not callable(reward) and (reward is not None or distill is None):
            raise TypeError("reward must be a function of an Answer, not %r" % (reward,))
        if group is None:
            group = 1 if distill else 8
        low, high = clip if isinstance(clip, tuple) else (clip, clip)
        self.prompts, self.reward, self.stop, self.distill = list(prompts), reward, list(stop), distill
        self.settings: Dict[str, Any] = {
            "group": group, "max_tokens": max_tokens, "temperature": temperature, "top_p": top_p, "kl": kl, "clip_low": low,
            "clip_high": high, "dual_clip": dual_clip, "updates": updates, "ahead": ahead, "ticks": ticks, "shuffle": shuffle}
        #: Figures of each step.
        self.reports: List[Rollout] = []
        self.keep: List[Any] = []
        self.pointer: Any = None
        self.queue: "queue.Queue[Optional[Tuple[int, Answer]]]" = queue.Queue()
        self.thread: Optional[threading.Thread] = None

    # ---- creation -------------------------------------------------------------------------------

    def _encode(self, model: Model, prompt: Prompt, ends: List[int]) -> List[int]:
        """Returns the tokens of a prompt. For messages, adds the token that ends an answer to `ends`."""
        if isinstance(prompt, str):
            return self._tokens(model.tokenizer, prompt, True)
        if prompt and isinstance(prompt[0], Mapping):
            text, end = model.chat(prompt)  # type: ignore[arg-type]
            if end:
                ends += self._tokens(model.tokenizer, end, False)[:1]
            return self._tokens(model.tokenizer, text, False)
        return [int(t) for t in prompt]  # type: ignore[call-overload, arg-type]

    @staticmethod
    def _tokens(tokenizer: Optional[Tokenizer], text: str, special: bool) -> List[int]:
        return tokenizer.encode(text, special) if tokenizer else list(text.encode())

    def _stops(self, model: Model) -> List[int]:
        out: List[int] = []
        for text in self.stop:
            tokens = self._tokens(model.tokenizer, text, False)
            if len(tokens) != 1:
                raise ValueError("stop: %r is %d tokens; it must be a single token" % (text, len(tokens)))
            out += tokens
        return out

    def _make(self, model: Any, training: Any, microbatches: int, seed: int, parallel: Mapping[str, int],
              exact: bool) -> None:
        """Creates the rollouts of a run."""
        if not isinstance(model, Model):
            raise TypeError("rollouts are of a shipped model, which has a session, not of %r" % (model,))
        if self.pointer is not None:
            raise ValueError("the rollouts belong to another run")
        stop, rows = self._stops(model), []
        for prompt in self.prompts:
            tokens = self._encode(model, prompt, stop)
            rows.append({"tokens": c.value(ffi.typeof("int32_t *"), tokens, self.keep), "count": len(tokens)})
        self.batch, self.dropped, self.tokenizer, self.ends = int(model.option("batch")), 0, model.tokenizer, set(stop)
        devices = parallel.get("data", 1) * parallel.get("tensor", 1) * parallel.get("sequence", 1)
        given = dict(self.settings, model=model.model, args=model.args, training=training, batch=self.batch,
                     microbatches=microbatches, stages=parallel.get("stages", 1), devices=min(devices, self.batch), seed=seed,
                     sequence=parallel.get("sequence", 1), exact=exact,
                     prompts=rows, nprompts=len(rows), stop=sorted(self.ends) or None, nstop=len(self.ends),
                     rewarded=c.weakly(self._rewarded))
        if self.reward is not None:
            given["answered"] = c.weakly(self._answered)
        if self.distill is not None:
            given.update(distill=self.distill.settings, teacher=self.distill.teacher.model,
                         teacher_args=self.distill.teacher.args)
        out = ffi.new("sl_rollouts **")
        c.check(lib.sl_rollouts_create(c.record("sl_rollouts_options", given, self.keep, "Rollouts"), out))
        self.pointer = out[0]

    def _attach(self, plan: Any) -> None:
        """Starts rewarding the answers of a plan."""
        self.graph = plan.graph
        lib.sl_rollouts_attach(self.pointer, plan.runtime)
        if self.reward is None:
            return
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def load(self, lowered: Any, runtime: Any) -> None:
        """Loads what a run needs in addition to the model."""
        if self.distill is not None:
            self.distill.load(lowered, runtime)

    def _close(self) -> None:
        """Frees the rollouts, after the plan is destroyed."""
        if self.thread:
            self.queue.put(None)
            self.thread.join()
        if self.pointer is not None:
            lib.sl_rollouts_destroy(self.pointer)
        self.pointer = self.thread = None

    # ---- answers --------------------------------------------------------------------------------

    def _answered(self, _: Any, answer: Any) -> None:
        tokens = list(answer.tokens[0:answer.count]) if answer.count else []
        number = int(answer.prompt)
        text = tokens[:-1] if tokens and tokens[-1] in self.ends else tokens
        said = self.tokenizer.decode(text) if self.tokenizer else bytes(t & 255 for t in text).decode("utf-8", "replace")
        self.queue.put((int(answer.id), Answer(
            self.prompts[number], number, int(answer.step), int(answer.member), said, tokens,
            list(answer.logprobs[0:answer.count]) if answer.count else [], bool(answer.truncated))))

    def _work(self) -> None:
        """Rewards answers until the run is closed."""
        assert self.reward is not None
        while True:
            found = self.queue.get()
            if found is None:
                return
            try:
                value = self._reward(found[1])
            except BaseException as error:
                self.graph.failure = self.graph.failure or error
                lib.sl_rollouts_fail(self.pointer, lib.SL_E_INPUT, b"the function that rewards answers has failed")
                return
            lib.sl_rollouts_reward(self.pointer, found[0], value)

    def _reward(self, answer: Answer) -> float:
        """Returns the reward of an answer, or NaN to drop it."""
        assert self.reward is not None
        reward = self.reward(answer)
        if reward is None:
            self.dropped += 1
            if self.dropped >= self.batch:
                raise ValueError("reward returned None for the last %d answers, a whole step: it must return a number"
                                 % self.dropped)
            return math.nan
        self.dropped = 0
        if not math.isfinite(float(reward)):
            raise ValueError("reward returned %r for an answer of step %d: it must return a finite number, or None to drop "
                             "the answer" % (reward, answer.step))
        return float(reward)

    def _rewarded(self, _: Any, report: Any, *rest: Any) -> None:
        self.reports.append(Rollout(*(getattr(report, name) for name in Rollout._fields)))

    def __repr__(self) -> str:
        return "<Rollouts of %d prompts, groups of %d>" % (len(self.prompts), self.settings["group"])
