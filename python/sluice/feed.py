# SPDX-License-Identifier: Apache-2.0
"""Batches of a loader as the data of a program's steps."""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from .exported import Column

AHEAD = 4     # batches taken before their steps, so that a loader's exception arrives before its step begins
BEHIND = 8    # steps that another device may still request
PORTION = 16  # batches taken before steps, from a loader of unknown length


class Feed:
    """Batches, one per step, from step `first` up to but not including `until`. A batch is a list of arrays, one per
    column."""

    def __init__(self, columns: Sequence[Column], batches: Iterator[List[Any]], first: int, until: Optional[int]) -> None:
        self.columns, self.batches, self.until = columns, batches, until
        self.first = self.next = first
        self.kept: Dict[int, List[Any]] = {}
        self.lock = threading.Lock()
        self.ended = self.told = False
        self.error: Optional[BaseException] = None  # raised by the loader
        self.failed: Callable[[BaseException], None] = lambda error: None

    def begin(self) -> None:
        """Takes the first batches. Raises any exception of the loader."""
        self._take(self.first + AHEAD)
        if self.error:
            raise self.error

    def part(self, step: int, batch: int, first: int, rows: int) -> List[Any]:
        with self.lock:
            self._take(step + AHEAD)
            if self.error and not self.told:
                self.told = True
                self.failed(self.error)
            for old in [s for s in self.kept if s < step - BEHIND]:
                del self.kept[old]
            if step not in self.kept:
                raise self.error or ValueError("the data ends after %d batches" % (self.next - self.first))
            return [a[first:first + rows] if column.rows else a for column, a in zip(self.columns, self.kept[step])]

    def portions(self) -> Iterator[int]:
        """Yields the number of steps for which batches are available, until the loader ends."""
        done = self.first
        while True:
            with self.lock:
                self._take(done + PORTION - 1)
                steps = self.next - done
            if not steps and self.error:
                raise self.error
            if not steps:
                return
            done += steps
            yield steps

    def _take(self, last: int) -> None:
        """Takes the batches up to the one for step `last`."""
        last = last if self.until is None else min(last, self.until - 1)
        try:
            while self.next <= last and not self.ended and not self.error:
                batch = next(self.batches, None)
                self.ended = batch is None
                if batch is not None:
                    self.kept[self.next] = batch
                    self.next += 1
        except BaseException as error:
            self.error = error
