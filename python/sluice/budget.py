# SPDX-License-Identifier: Apache-2.0
"""Options that would fit when a plan does not. The plan is made again with other options, first one and then several at
a time, without a budget. Memory is known before anything is allocated, so nothing is estimated."""
from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, Mapping

from . import errors

SECONDS = 5
RECOMPUTE, SHARD = ("none", "selective", "full"), ("nothing", "optimizer", "gradients", "parameters")

Bytes = Callable[[Mapping[str, Any]], int]


def advise(error: errors.Budget, bytes_with: Bytes, options: Mapping[str, Any]) -> None:
    """Fills in the error's fields, and adds them to its text."""
    until = time.monotonic() + SECONDS
    error.budget, error.fits, tried = int(options.get("memory") or 0) or None, [], []
    error.needed = _try(bytes_with, {})
    for several in (False, True):
        if error.fits:
            break
        for changes in _together(options) if several else _single(options):
            needed = _try(bytes_with, changes) if time.monotonic() < until else None
            if needed:
                tried.append(errors.Fit(changes, needed))
        error.fits = sorted((f for f in tried if f.bytes <= (error.budget or 0)), key=lambda f: f.bytes)
    smaller = [f for f in tried if not error.needed or f.bytes < error.needed]
    error.least = min(smaller, key=lambda f: f.bytes, default=None)
    text = ", ".join(written(f) for f in error.fits)
    if text:
        error.args = ("%s; these would fit: %s" % (error, text),)
    elif error.least:
        error.args = ("%s; the smallest plan tried is %s" % (error, written(error.least)),)


def written(fit: errors.Fit) -> str:
    return "%s (%s)" % (", ".join("%s=%r" % item for item in fit.options.items()), size(fit.bytes))


def size(count: float) -> str:
    """Formats a size: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return "%.3g %s" % (count, unit)


def _try(bytes_with: Bytes, changes: Mapping[str, Any]) -> Any:
    try:
        return bytes_with(changes)
    except (errors.Error, ValueError, TypeError):  # these options yield no plan
        return None


def _more(words: "tuple[str, ...]", given: Any) -> "tuple[str, ...]":
    """Returns the words that save more than the given one."""
    return words[words.index(given) + 1 if given in words else 1:]


def _away(options: Mapping[str, Any], *names: str) -> Dict[str, str]:
    space = "host" if options.get("devices") == "cuda" else "disk"
    return dict(options.get("homes") or {}, **{name: space for name in names})


def _rows(options: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    """Yields room for twice an even share of the experts' rows, if there is room for all."""
    if (options.get("expert_parallel") or 1) > 1 and not options.get("expert_rows"):
        yield {"expert_rows": 2.0}


def _single(options: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    m = options.get("microbatches") or 1
    for word in _more(RECOMPUTE, options.get("recompute")):
        yield {"recompute": word}
    yield {"homes": _away(options, "act")}
    yield {"homes": _away(options, "state")}
    yield {"microbatches": 2 * m}
    yield {"microbatches": 4 * m}
    yield from _rows(options)
    if (options.get("data_parallel") or 1) * (options.get("sequence") or 1) > 1:
        for word in _more(SHARD, options.get("shard")):
            yield {"shard": word}


def _together(options: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    m = options.get("microbatches") or 1
    full = {"recompute": "full"} if _more(RECOMPUTE, options.get("recompute")) else {}
    shards = (options.get("data_parallel") or 1) * (options.get("sequence") or 1) > 1
    shard = {"shard": "parameters"} if shards and _more(SHARD, options.get("shard")) else {}
    both = {**full, **shard}
    for rows in _rows(options):
        yield {**both, **rows}
        yield {**both, **rows, "microbatches": 4 * m}
    yield {**both, "homes": _away(options, "act")}
    yield {**both, "microbatches": 2 * m}
    yield {**both, "microbatches": 4 * m}
    yield {**both, "homes": _away(options, "act", "state")}
    yield {**both, "microbatches": 4 * m, "homes": _away(options, "act", "state")}
