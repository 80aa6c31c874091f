# SPDX-License-Identifier: Apache-2.0
"""Views for notebooks and terminals: tables, loss curves, and progress."""
from __future__ import annotations

import html
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence

from .budget import size

if TYPE_CHECKING:
    from .run import Step

BAR = 24  # characters
LAST = 5  # steps in the table of a run


def _side(value: Any) -> str:
    """Aligns numbers and sizes right, words left."""
    right = isinstance(value, (int, float)) or re.match(r"[0-9.]+( \S+)?$", str(value))
    return "text-align:" + ("right" if right else "left")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join("%s=%s" % item for item in value.items())
    return "%.4g" % value if isinstance(value, float) else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> str:
    """An HTML table."""
    rows = [list(row) for row in rows]
    sides = [_side(v) for v in rows[0]] if rows else ["text-align:left"] * len(head)
    out = ["<table>", '<caption style="text-align:left;caption-side:top"><b>%s</b></caption>' % html.escape(title) if title else "",
           "<thead><tr>%s</tr></thead><tbody>" % "".join('<th style="%s">%s</th>' % (side, html.escape(h))
                                                         for side, h in zip(sides, head))]
    for row in rows:
        cells = ['<td style="%s">%s</td>' % (side, html.escape(_text(v))) for side, v in zip(sides, row)]
        out.append("<tr>%s</tr>" % "".join(cells))
    return "".join(out) + "</tbody></table>"


def memory_table(memory: Sequence[Dict[str, Any]]) -> str:
    """Returns a table of each device's memory by purpose."""
    if not memory:
        return ""
    head = list(memory[0])
    return table(head, ([row[h] if isinstance(row[h], str) else size(row[h]) for h in head] for row in memory),
                 "memory of each device")


def stages_table(stages: Sequence[Dict[str, Any]]) -> str:
    return table(["stage", "device", "blocks"], ([s["stage"], s["device"], ", ".join(s["blocks"])] for s in stages),
                 "blocks of each stage")


def curve(points: Sequence["tuple[float, float]"], width: int = 480, height: int = 120) -> str:
    """Returns a curve of losses over steps as SVG."""
    points = [p for p in points if p[1] == p[1] and abs(p[1]) != float("inf")]
    if len(points) < 2:
        return ""
    every = max(1, len(points) // width)
    points = list(points[::every]) + ([points[-1]] if (len(points) - 1) % every else [])
    (x0, x1), ys = (points[0][0], points[-1][0]), [y for _, y in points]
    low, high = min(ys), max(ys)
    at = " ".join("%.1f,%.1f" % (50 + (width - 60) * (x - x0) / ((x1 - x0) or 1),
                                 10 + (height - 30) * (high - y) / ((high - low) or 1)) for x, y in points)
    text = '<text x="%d" y="%d" font-size="10" font-family="sans-serif" fill="currentColor" text-anchor="%s">%s</text>'
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" role="img" aria-label="losses">'
            '<polyline fill="none" stroke="#4477aa" stroke-width="1.5" points="%s"/>' % (width, height, at)
            + text % (width // 2, 10, "middle", "loss of each step")
            + text % (46, 14, "end", "%.4g" % high) + text % (46, height - 18, "end", "%.4g" % low)
            + text % (50, height - 4, "start", "step %d" % x0) + text % (width - 10, height - 4, "end", "%d" % x1) + "</svg>")


def _display() -> Any:
    """Returns IPython's display in the kernel of a notebook, otherwise None."""
    shell = sys.modules.get("IPython")
    if shell is None or "ipykernel" not in sys.modules:
        return None
    from IPython.display import HTML, display  # type: ignore[import-not-found,unused-ignore]
    return lambda text, handle: (display(HTML(text), display_id=True) if handle is None  # type: ignore[no-untyped-call,unused-ignore]
                                 else handle.update(HTML(text)))  # type: ignore[no-untyped-call,unused-ignore]


class Progress:
    """Progress of train(): a line on a terminal's stderr, or a live loss curve in a notebook. With `shown` None it
    appears only where someone can see it, after one second. `steps` is 0 if the number of steps is unknown."""

    def __init__(self, steps: int, shown: Optional[bool] = None) -> None:
        self.steps, self.start, self.handle, self.told = steps, time.monotonic(), None, 0.0
        self.display = _display() if shown or shown is None else None
        self.line = self.display is None and (sys.stderr.isatty() if shown is None else shown)
        self.patience = 0.0 if shown else 1.0
        self.drawn, self.width = False, 0

    def tick(self, history: Sequence["Step"]) -> None:
        """Shows the steps done, at most four times a second."""
        now = time.monotonic()
        if now - self.start >= self.patience and now - self.told >= 0.25 and (self.line or self.display):
            self.told = now
            self._show(history)

    def end(self, history: Sequence["Step"]) -> None:
        if (self.drawn or self.patience == 0) and (self.line or self.display):
            self._show(history)
            if self.line:
                sys.stderr.write("\n")

    def _show(self, history: Sequence["Step"]) -> None:
        self.drawn = True
        try:
            if self.display:
                self.handle = self.display(self.html(history), self.handle) or self.handle
            else:
                text = self.text(history)
                sys.stderr.write("\r" + text.ljust(self.width))
                sys.stderr.flush()
                self.width = len(text)
        except OSError:  # the output was closed
            self.line, self.display = False, None

    def text(self, history: Sequence["Step"]) -> str:
        done, seconds = len(history), time.monotonic() - self.start
        rate = done / seconds if seconds > 0 else 0.0
        loss = ", loss %.4g" % history[-1].loss if history else ""
        if not self.steps:
            return "| %d [%s, %.3g steps/s%s]" % (done, _clock(seconds), rate, loss)
        full = BAR * done // max(self.steps, 1)
        left = _clock((self.steps - done) / rate) if rate else "?"
        return "%3d%% |%s| %d/%d [%s<%s, %.3g steps/s%s]" % (
            100 * done // max(self.steps, 1), "#" * full + " " * (BAR - full), done, self.steps, _clock(seconds), left, rate, loss)

    def html(self, history: Sequence["Step"]) -> str:
        return "<div><progress value='%d' max='%d'></progress> <code>%s</code><br>%s</div>" % (
            len(history), self.steps or len(history) or 1, html.escape(self.text(history).split("| ", 1)[1]),
            curve([(s.step, s.loss) for s in history]))


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return "%d:%02d:%02d" % (minutes // 60, minutes % 60, seconds) if minutes >= 60 else "%02d:%02d" % (minutes, seconds)


def run_html(run: Any) -> str:
    """Returns a summary of a run as HTML: its losses, stages and memory."""
    parts: List[str] = ["<div><code>%s</code></div>" % html.escape(repr(run)), curve([(s.step, s.loss) for s in run.history])]
    if run.history:
        parts.append(table(["step", "loss", "gradient norm", "rate"], run.history[-LAST:]))
    if not run.closed:
        parts += [stages_table(run.plan.stages), memory_table(run.plan.memory)]
    return "".join(parts)
