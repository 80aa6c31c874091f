# SPDX-License-Identifier: Apache-2.0
"""Errors of the library as exceptions, one class per status, and suggestions for mistyped names."""
from __future__ import annotations

import difflib
from typing import Any, Iterable, List, NamedTuple, Optional


class Error(Exception):
    """An error of the library, with its text. `status` is its code, such as SL_E_SHAPE."""
    status: str = ""


class Fit(NamedTuple):
    """Options of Run that were tried instead of those that need too much memory, and the bytes that the largest device
    needs with them."""
    options: "dict[str, Any]"
    bytes: int


class Budget(Error):
    """A plan that does not fit in memory. `needed` and `budget` are bytes of the largest device. `fits` lists changes
    of options that would fit, the one with least memory first. `least` is the best option tried if none fits."""
    needed: Optional[int] = None
    budget: Optional[int] = None
    fits: List[Fit] = []
    least: Optional[Fit] = None


def near(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about a mistyped name: "; did you mean schedule?", or "" if no name is similar."""
    found = difflib.get_close_matches(name, sorted(set(known)), 3, 0.5)
    return "; did you mean %s?" % " or ".join(found) if found else ""


def unknown(what: str, names: Iterable[str], known: Iterable[str]) -> TypeError:
    """Returns the exception for unknown keywords."""
    known, names = list(known), sorted(names)
    return TypeError("%s has no %s%s" % (what, " or ".join(map(repr, names)), near(names[0], known)))
