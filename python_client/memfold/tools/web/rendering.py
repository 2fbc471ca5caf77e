"""From rows to HTML: everything is escaped, and control characters are shown as escapes, as on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from memfold.client._text import escape
from memfold.tools.review.display import Span, count_of, differences

HERE = Path(__file__).parent


def _finalize(value: object) -> object:
    """The value of ``{{ }}``: control characters, including bidirectional ones, become escapes; autoescape does the
    rest."""
    if value is None:
        return ""
    return escape(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _time(value: datetime | None) -> str:
    return "" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def runs_of(spans: Sequence[Span]) -> list[Span]:
    """Adjacent pieces with the same mark as one."""
    return [
        ("".join(text for text, _ in run), mark)
        for mark, run in itertools.groupby(spans, key=lambda span: span[1])
    ]


def marked(one: str, other: str) -> tuple[list[Span], list[Span]]:
    """Two texts with the differences marked."""
    older, newer = differences(escape(one), escape(other))
    return runs_of(older), runs_of(newer)


def bars(values: Sequence[float], most: float, height: int = 60) -> list[tuple[int, int, int]]:
    """Bars of a chart: x, y and height of each; ``most`` is as high as the chart."""
    tall = [round(height * float(value) / float(most or 1)) for value in values]
    return [(12 * place, height - size, size) for place, size in enumerate(tall)]


def outline(counts: Sequence[int], most: float, width: int, height: int, *, is_root: bool) -> str:
    """A histogram as an SVG path. ``most``: the share that fills the height; ``is_root``: draw square roots of shares."""
    total = sum(counts) or 1
    shares = [count / total / most for count in counts]
    tall = [height * (share**0.5 if is_root else share) for share in shares]
    step = width / len(counts)
    tops = "".join(f"V{height - size:.1f}H{(place + 1) * step:.1f}" for place, size in enumerate(tall))
    return f"M0 {height}{tops}V{height}"


def tallest(by_label: Mapping[str, Sequence[int]]) -> float:
    """The largest share of a class in one bin."""
    return max((max(counts) / sum(counts) for counts in by_label.values() if sum(counts)), default=1.0)


def link(path: str, given: Mapping[str, Any]) -> str:
    """A URL of this server; values that are None or empty are left out, True is a flag."""
    pairs = [
        (name, "" if value is True else str(value))
        for name, value in given.items()
        if value not in (None, "", False)
    ]
    return path + ("?" + urlencode(pairs) if pairs else "")


def make_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(time=_time, number=_number, runs=runs_of)
    made.globals.update(marked=marked, bars=bars, count_of=count_of, outline=outline, tallest=tallest)
    return made
