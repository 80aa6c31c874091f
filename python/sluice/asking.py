# SPDX-License-Identifier: Apache-2.0
"""Waiting for data: when a data function raises, its step waits until train() is called again."""
from __future__ import annotations

import threading
from typing import Any, Callable, Optional


class Asking:
    """Gate for the data functions of a run. A function that raises closes the gate; data functions of that step and
    later ones then wait, and so do reports. When the gate opens again, each of them is called again. After close(),
    nothing waits and no function is called."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.changed = threading.Event()  # wakes train()
        self.error: Optional[BaseException] = None  # raised since the gate opened
        self.step: Optional[int] = None  # first step whose data is missing
        self.reports = 0  # reports in progress
        self.closed = False

    def ask(self, step: int, fill: Callable[[], None]) -> None:
        """Calls fill() until it returns or the run is closed."""
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
        """Wraps a callback so that it waits while the gate is closed: no step is reported outside of train()."""
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
        """Returns the exception and forgets it, so that its frames are not kept alive."""
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
