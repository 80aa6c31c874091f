# SPDX-License-Identifier: Apache-2.0
"""Objectives that replace the next-token loss of a model.

    run = sl.Run(model, objective=sl.Preferences("pairs.jsonl", model=model, beta=0.1))
    run = sl.Run(student, objective=sl.Distill(teacher, top=20))"""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence, Union

from . import _library as c
from ._library import lib
from .models import Model, tools

Path = Union[str, "os.PathLike[str]"]


class Objective:
    """Base class of the `objective` of a Run. Two runs must not use the same objective concurrently."""

    pointer: Any
    """The sl_objective."""

    def __init__(self) -> None:
        self.keep: List[Any] = []  # objects that C refers to

    def load(self, lowered: Any, runtime: Any) -> None:
        """Loads what a run needs in addition to the model."""


class Preferences(Objective):
    """Direct preference optimization (DPO) on files of JSON lines with `prompt`, `chosen` and `rejected`.

    `model` provides the tokenizer, with the chat template for prompts that are messages beside it; `chat_template` is
    another one, a name or a file. Alternatively `tokenizer` names a tokenizer.json. `end` is the text after the answer to
    a plain text. `drop` leaves out pairs longer than the context."""

    def __init__(self, paths: Union[Path, Sequence[Path]], *, model: Optional[Model] = None, tokenizer: Optional[Path] = None,
                 beta: float = 0.1, smoothing: float = 0.0, end: Optional[str] = None, drop: bool = False,
                 chat_template: Optional[str] = None) -> None:
        super().__init__()
        files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        given: Dict[str, Any] = {"paths": "\n".join([os.fspath(file) for file in files]), "tokenizer": tokenizer or (model.tokenizer_path if model else None),
                 "end": end, "drop": drop, "chat_template": chat_template}
        self.pointer = c.owned(lib.sl_dpo_create(c.record("sl_preferences", given, self.keep, "Preferences"),
                                                 c.record("sl_dpo", {"beta": beta, "smoothing": smoothing}, self.keep)),
                               lib.sl_dpo_destroy)


class Distill(Objective):
    """Distillation: minimizes the divergence of the model from `teacher`, a model whose weights stay fixed. The teacher
    must have the same data, batch and context options.

    Only the teacher's `top` most likely tokens count (0: all). `temperature` divides the logits of both models. `data`
    is the weight of the data's cross entropy in the loss."""

    def __init__(self, teacher: Model, *, top: int = 0, temperature: float = 1.0, data: float = 0.0) -> None:
        super().__init__()
        self.teacher = teacher
        self.settings = c.record("sl_distill", {"top": top, "temperature": temperature, "data": data}, self.keep)
        self.pointer = c.owned(lib.sl_distill_create(teacher.model, teacher.args, self.settings), lib.sl_distill_destroy)

    def load(self, lowered: Any, runtime: Any) -> None:
        c.check(tools.sl_shipped_teach(self.teacher.pointer, lowered, runtime))
