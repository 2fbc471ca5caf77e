"""A question as text: two memories side by side, or several below one another, with the differences marked."""

from __future__ import annotations

import difflib
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from memfold.client._text import escape, escape_line
from memfold.client.judging import Names, Question, Side
from memfold.tools.review.answers import lettered

Span: TypeAlias = tuple[str, bool]
"""A piece of text, and whether the other side lacks it."""

# Scripts without spaces are compared letter by letter; 3.5, 2025-01-02 and don't are one word each.
_TOKEN: Final = re.compile(
    r"\s+|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    r"|[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
    r"(?:[.,:'’-][^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+)*|.",
    re.DOTALL,
)
_LABEL = 12
_GAP = "  "
_PLAIN = {"A": ("[-", "-]"), "B": ("{+", "+}")}
_COLOURS = {"A": "\x1b[1;4;31m", "B": "\x1b[1;4;32m"}
_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_LONG = 2_000


def differences(one: str, other: str) -> tuple[list[Span], list[Span]]:
    """Both texts, word by word, with the words marked that only one of them has."""
    sides = [_TOKEN.findall(one), _TOKEN.findall(other)]
    words = [[token for token in tokens if not token.isspace()] for tokens in sides]
    matcher = difflib.SequenceMatcher(a=words[0], b=words[1], autojunk=max(map(len, words)) > _LONG)
    common: tuple[set[int], set[int]] = (set(), set())
    for block in matcher.get_matching_blocks():
        common[0].update(range(block.a, block.a + block.size))
        common[1].update(range(block.b, block.b + block.size))
    return _marked(sides[0], common[0]), _marked(sides[1], common[1])


def _marked(tokens: Sequence[str], common: set[int]) -> list[Span]:
    place = 0
    spans: list[Span] = []
    for token in tokens:
        if token.isspace():
            # The space between two marked words is marked too, but not the space at an end.
            inside = bool(spans) and spans[-1][1] and place not in common and "\n" not in token
            spans.append((token, inside))
        else:
            spans.append((token, place not in common))
            place += 1
    if spans and spans[-1][0].isspace():
        spans[-1] = (spans[-1][0], False)
    return spans


def width_of(text: str) -> int:
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _pieces(spans: Sequence[Span], width: int) -> Iterator[Span]:
    """The same, with words cut that are wider than a line."""
    for text, mark in spans:
        piece = ""
        for char in text:
            if piece and width_of(piece + char) > width and not text.isspace():
                yield piece, mark
                piece = ""
            piece += char
        yield piece, mark


def _wrapped(spans: Sequence[Span], width: int) -> list[list[Span]]:
    lines: list[list[Span]] = [[]]
    used = 0
    for text, mark in _pieces(spans, width):
        if text.isspace() and "\n" in text:
            lines += [[] for _ in range(min(text.count("\n"), 2))]
            used = 0
            continue
        if text.isspace():
            text = " "
            if not used:
                continue
        size = width_of(text)
        if used + size > width:
            lines.append([])
            used = 0
            if text == " ":
                continue
        lines[-1].append((text, mark))
        used += size
    return lines


def _bracketed(spans: Sequence[Span], side: str) -> list[Span]:
    """Marks as text, for terminals without colours."""
    begin, end = _PLAIN[side]
    made: list[Span] = []
    for mark, run in itertools.groupby(spans, key=lambda span: span[1]):
        texts = [text for text, _ in run]
        if mark:
            texts[0] = begin + texts[0]
            texts[-1] += end
        made += [(text, False) for text in texts]
    return made


def _column(spans: Sequence[Span], side: str, width: int, colours: bool) -> list[tuple[str, int]]:
    """Lines, each with its width on the screen."""
    lines = _wrapped(spans if colours else _bracketed(spans, side), width)
    made = []
    for line in lines:
        while line and line[-1][0] == " ":
            line.pop()
        text = ""
        for mark, run in itertools.groupby(line, key=lambda span: span[1]):
            joined = "".join(piece for piece, _ in run)
            text += f"{_COLOURS[side]}{joined}{_RESET}" if mark else joined
        made.append((text, width_of("".join(piece for piece, _ in line))))
    return made


def _time(value: datetime | None) -> str:
    return "" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def count_of(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number) or f"{number} times"


def rows_of(question: Question) -> Iterator[tuple[str, list[Span], list[Span]]]:
    """Label, older side, newer side; if only one side has a value, the other is empty."""
    if question.names is not None:
        yield from _rows_of_names(question.names)
        return
    sides = (question.other, question.memory)
    yield "", *differences(*(escape(side.content) for side in sides))
    for label in ("memory_type", "subject", "predicate", "object"):
        texts = [escape_line(getattr(side, label) or "") for side in sides]
        if any(texts):
            older, newer = ([(text, bool(text) and texts[0] != texts[1])] for text in texts)
            yield label.removeprefix("memory_"), older, newer

    def sources(side: Side) -> str:
        said = f"said {times(side.observations)}"
        return f"{said}, {count_of(side.sources, 'source')}" if side.sources else said

    if not sum(side.observations for side in sides):
        return  # texts only, not memories
    told: list[tuple[str, list[str]]] = [
        ("first seen", [_time(side.first_seen) for side in sides]),
        ("last seen", [_time(side.last_seen) for side in sides]),
        ("observed", [sources(side) for side in sides]),
        ("origin", ["" if side.origin == "observed" else escape_line(side.origin or "") for side in sides]),
        ("session", [escape_line(side.session_id or "") for side in sides]),
        ("turns", [escape_line(", ".join(side.source_turn_ids)) for side in sides]),
    ]
    for label, texts in told:
        if any(texts):
            yield label, [(texts[0], False)], [(texts[1], False)]


def _rows_of_names(names: Names) -> Iterator[tuple[str, list[Span], list[Span]]]:
    """The name and its alias, with example memories of each below."""
    if names.kind == "cardinality":
        yield "", *differences(*(escape_line(" ".join(told)) for told in (names.name_told, names.told)))
        name = [(escape_line(names.name), False)]
        yield "predicate", name, name
        return
    alias = names.alias if names.alias is not None else f"(no subject) {names.name} ..."
    yield "", *differences(escape_line(names.name), escape_line(alias))
    told = itertools.zip_longest(names.name_told, names.told, fillvalue="")
    for number, (one, other) in enumerate(told):
        yield "" if number else "told", [(escape_line(one), False)], [(escape_line(other), False)]


def titles(question: Question) -> tuple[str, str]:
    """What the two sides are."""
    return ("name", "alias") if question.kind == "identity" else ("older", "newer")


def _about(question: Question) -> str:
    about = [f"tenant {escape_line(question.tenant_id)}"]
    if question.bucket_id:  # labelled pairs have none
        about.append(f"bucket {escape_line(question.bucket_id)}")
    about.append(escape_line(question.kind))
    if question.kind == "forgotten":
        about.append("one of them was forgotten: duplicate or refinement forgets the other too")
    if question.similarity is not None:
        about.append(f"similarity {question.similarity:.3f}")
    if question.guard:
        about.append("guard: " + escape_line(", ".join(question.guard)))
    if question.kind == "identity" and question.names is not None:
        about += [question.names.kind, "noticed: " + escape_line(", ".join(question.names.reasons))]
    return ", ".join(about)


def one_below_the_other(question: Question, width: int, colours: bool) -> str:
    """A cluster as text: its memories by letter, oldest to newest, each with where and when it was stated."""
    dim, bold, reset = (_DIM, _BOLD, _RESET) if colours else ("", "", "")
    lines = [dim + _about(question) + reset]
    for letter, side in lettered(question).items():
        spans = [(token, False) for token in _TOKEN.findall(escape_line(side.content))]
        for number, (text, _) in enumerate(_column(spans, "A", max(width - 3, 20), colours)):
            lines.append(f"{bold}{letter}{reset}  {text}" if number == 0 else f"   {text}")
        fields = [escape_line(value) for value in (side.subject, side.predicate, side.object) if value]
        told = [
            escape_line(side.memory_type),
            *([" / ".join(fields)] if fields else []),
            f"said {times(side.observations)}",
            f"last {_time(side.last_seen)}" if side.last_seen else "",
        ]
        lines.append(f"   {dim}{', '.join(filter(None, told))}{reset}")
    return "\n".join(lines)


def side_by_side(question: Question, width: int, colours: bool) -> str:
    """The pair as text: the older memory as A, the newer one as B, with the differences marked."""
    dim, bold, reset = (_DIM, _BOLD, _RESET) if colours else ("", "", "")
    lines = [dim + _about(question) + reset]
    rows = list(rows_of(question))
    older_title, newer_title = titles(question)
    beside = width >= 2 * 28 + _LABEL + len(_GAP)
    column = (width - _LABEL - len(_GAP)) // 2 if beside else max(width - _LABEL, 20)
    if beside:
        head = f"{'A  ' + older_title:{column}}{_GAP}B  {newer_title}"
        lines.append(" " * _LABEL + bold + head + reset)
        for label, older, newer in rows:
            left, right = _column(older, "A", column, colours), _column(newer, "B", column, colours)
            for number, (one, other) in enumerate(itertools.zip_longest(left, right, fillvalue=("", 0))):
                name = f"{label if number == 0 else '':{_LABEL}}"
                padding = " " * (column - one[1])
                lines.append(f"{dim}{name}{reset}{one[0]}{padding}{_GAP}{other[0]}".rstrip())
    else:
        for side, title in (("A", f"A  {older_title}"), ("B", f"B  {newer_title}")):
            lines.append(bold + title + reset)
            for label, older, newer in rows:
                for number, (text, _) in enumerate(
                    _column(older if side == "A" else newer, side, column, colours)
                ):
                    name = f"{label if number == 0 else '':{_LABEL}}"
                    lines.append(f"{dim}{name}{reset}{text}".rstrip())
    return "\n".join(lines)
