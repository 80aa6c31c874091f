# SPDX-License-Identifier: Apache-2.0
"""Waiting for data: after a function that gives data has raised, a step keeps its place until train() goes on."""
from __future__ import annotations

import threading
from typing import Any, Callable, Optional


class Asking:
    """Gate of a run's data functions. One that raises shuts it; functions of that step and later ones then wait, and so
    do reports. Opened again, it asks each of them anew. Once closed, nothing waits, and nothing is asked."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.changed = threading.Event()  # train() has something to look at
        self.error: Optional[BaseException] = None  # raised since the gate was opened
        self.step: Optional[int] = None  # first step whose data is missing
        self.reports = 0  # calls in progress
        self.closed = False

    def ask(self, step: int, fill: Callable[[], None]) -> None:
        """Calls fill() until it returns, or the run is closed."""
        while self._may_ask(step):
            try:
                fill()
                return
            except BaseException as error:
                self._shut(step, error)

    def _may_ask(self, step: int) -> bool:
        with self.condition:
            self.condition.wait_for(lambda: self.closed or self.step is None or step < self.step)
            return not self.closed

    def _shut(self, step: int, error: BaseException) -> None:
        with self.condition:
            self.error = self.error or error
            self.step = step if self.step is None else min(step, self.step)
            self.changed.set()

    def reporting(self, report: Callable[..., None]) -> Callable[..., None]:
        """The callback, which waits while the gate is shut: no step is reported outside of train()."""
        def call(*args: Any) -> None:
            with self.condition:
                self.condition.wait_for(lambda: self.closed or self.step is None)
                if self.closed:
                    return
                self.reports += 1
            try:
                report(*args)
            finally:
                with self.condition:
                    self.reports -= 1
                    self.changed.set()
        return call

    @property
    def shut(self) -> bool:
        """True once a function has raised and no report is in progress."""
        with self.condition:
            return self.step is not None and not self.reports

    def taken(self) -> Optional[BaseException]:
        """Hands over what was raised, so that its frames are not kept."""
        with self.condition:
            error, self.error = self.error, None
            return error

    def open(self) -> None:
        with self.condition:
            self.error = self.step = None
            self.condition.notify_all()

    def close(self) -> None:
        with self.condition:
            self.closed = True
            self.error = None
            self.condition.notify_all()
