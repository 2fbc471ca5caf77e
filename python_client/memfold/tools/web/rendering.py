"""From rows to HTML: everything is escaped, and control characters are shown as escapes, as on a terminal."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from memfold.client._text import escape
from memfold.client.types import Row
from memfold.tools.review.display import Span, count_of, differences, times

Bar: TypeAlias = tuple[int, float, float]
"""The place of its column, y, and height."""

HERE = Path(__file__).parent

STATUSES = {
    "active": ("current", "It is remembered now and shown to agents."),
    "superseded": ("former", "Another value has taken its place. It is kept as history."),
    "rejected": ("forgotten", "Somebody has rejected it. It is not shown, and refused if it is said again."),
    "withdrawn": (
        "withdrawn",
        "No statement supports it any more. It is current again if it is said again.",
    ),
    "merged": ("alias", "Another wording of a memory, into which it was merged."),
}
"""The status of a memory: a word, and what it means."""
TERMS = {
    "aliases": "Other wordings of the same fact. They were merged into this memory and count for it.",
    "confidence": "How sure memfold is, from 0 to 1. It grows with independent statements, and may decay without use.",
    "cosine": "How near two texts are in meaning, by the embedding model. 1 is the same.",
    "escalated": "Left to a judge or a person, because the texts were similar and the difference unclear.",
    "feedback": "How often agents were shown this memory, and how often they reported that it helped or harmed.",
    "guard": "Differences that the guard sees in the words, such as a negation or another number. Such a pair"
    " is never merged without asking.",
    "ledger": "Everything that was said and decided about this memory, newest first. An undo adds a row and deletes none.",
    "merged away": "Share of statements that did not become memories of their own, because they were known already.",
    "observed": "Statements that agents have submitted.",
    "score": "What the results are ranked by: how well they fit the query, with some confidence and feedback.",
    "similarity": "How near the two texts are in meaning, by the embedding model. 1 is the same.",
    "sources": "The conversations and turns in which this was said.",
    "superseded": "A newer value has taken the place of an older one, which is kept as history.",
    "tier 1": "Decided because the text, or one of its aliases, was known already.",
    "tier 2": "Decided by similarity, names or values, without a model's answer.",
    "tier 3": "Decided by a judge's model or by a person.",
    "timeline": "Which value was current at what time. Dots are statements.",
    "write": "Found when an agent said the newer one.",
    "synthesis": "Found when an agent said the newer one; the policy asks for one text for both.",
    "consolidation": "Found by a maintenance run, among memories that were stored before.",
    "review": "Left to a person by the policy, or by a judge that was unsure.",
    "forgotten": "Found when an agent said something similar to what somebody has forgotten.",
    "identity": "Whether two names mean the same person or thing.",
    "cardinality": "Whether a subject can have several values of this predicate at the same time.",
    "without vector": "Texts that wait for a vector. Until then they are compared and found by their words alone.",
    "words": "Share of the query's words that the memory has. Rare words count more.",
}
"""A sentence of help for each term of the pages."""


def _finalize(value: object) -> object:
    """The value of ``{{ }}``: control characters, including bidirectional ones, become escapes; autoescape does the
    rest."""
    if value is None:
        return ""
    return escape(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _time(value: datetime | None) -> str:
    return "" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _day(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _exact(value: str) -> Markup:
    """A text that a form sends back: its characters must be those of the memory, even the invisible ones."""
    return Markup(html.escape(value))  # noqa: S704 (escaped)


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


def bars(rows: Sequence[Row], columns: Sequence[str]) -> tuple[list[float], list[list[Bar]]]:
    """Stacked bars, 1 a row wide and 100 high: the sum of each row, and its bars."""
    sums = [sum(row[column] for column in columns) for row in rows]
    most = max(sums)
    drawn = []
    for row in rows:
        stack: list[Bar] = []
        top = 100.0
        for place, column in enumerate(columns):
            if row[column]:
                # one of thousands stays visible
                size = max(100 * row[column] / most, 2)
                top -= size
                stack.append((place, round(top, 1), round(size, 1)))
        drawn.append(stack)
    return sums, drawn


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
    made.filters.update(exact=_exact, time=_time, day=_day, times=times, number=_number, runs=runs_of)
    made.globals.update(marked=marked, bars=bars, count_of=count_of, outline=outline, tallest=tallest)
    made.globals.update(statuses=STATUSES, terms=TERMS)
    return made
