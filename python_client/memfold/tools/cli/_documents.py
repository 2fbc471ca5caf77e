"""The records of a file: of JSON, of one JSON object per line, of CSV with a header, or of lines of text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Set
from typing import Any, TypeAlias

from memfold.tools.cli._shared import fail

Fields: TypeAlias = dict[str, Any]
Found: TypeAlias = list[tuple[str, Fields | str]]
"""Records, each with its place, or with what is wrong with it."""
_LISTS = ("results", "relations", "memories", "items", "edges", "facts", "entities")


def documents(text: str, name: str, texts: Set[str]) -> Found | None:
    """None: it has lines of text. texts: the names of columns that hold texts."""
    if re.match(r"\s*(\{|\[\s*[\[{\"\]])", text) is None:
        try:
            return _table(text, texts)
        except csv.Error as error:
            fail(f"{name} is not CSV: {error}")
    try:
        return _within(_parse(text))
    except (ValueError, RecursionError) as error:
        lines = _numbered(text)
        if isinstance(_object(lines[0][1]), str):
            fail(f"{name} is not JSON: {error}\nHINT: Name its format with --format, such as lines.")
        return [(place, _object(line)) for place, line in lines]


def _numbered(text: str) -> list[tuple[str, str]]:
    # not splitlines(), which also ends a line at characters that JSON may contain
    return [
        (f"line {number}", line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()
    ]


def _object(line: str) -> Fields | str:
    try:
        found = _parse(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return found if isinstance(found, dict) else "not a JSON object"


def _within(document: Any) -> Found:
    """The records of one JSON document: a list, or the lists of an object."""
    found: list[Any] = []
    if isinstance(document, list):
        found = [{"content": one} if isinstance(one, str) else one for one in document]
    if isinstance(document, dict):
        kinds = {"entities": "entity", "relations": "relation"} if "entities" in document else {}
        for name in _LISTS:
            for one in document[name] if isinstance(document.get(name), list) else ():
                found.append({"type": kinds[name], **one} if name in kinds and isinstance(one, dict) else one)
        nodes = {
            str(one.get("uuid")): one.get("name")
            for one in document.get("nodes") or ()
            if isinstance(one, dict)
        }
        for one in found:
            for end in ("source", "target"):
                if isinstance(one, dict) and (node := nodes.get(str(one.get(f"{end}_node_uuid")))):
                    one.setdefault(f"{end}_node_name", node)
        if not found and not any(name in document for name in _LISTS):
            found = [document]
    return [
        (f"record {number}", one if isinstance(one, dict) else "not a JSON object")
        for number, one in enumerate(found, 1)
    ]


def _table(text: str, texts: Set[str]) -> Found | None:
    """The rows of a CSV file; None: its first line is no header."""
    head = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    csv.field_size_limit(1 << 24)  # a vector is longer than the default
    rows = csv.reader(io.StringIO(text.lstrip(), newline=""), delimiter=delimiter)
    header = [cell.strip() for cell in next(rows, [])]
    if not {*texts, "payload", "value"} & set(header):
        return None
    found: Found = []
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        place = f"line {rows.line_num}"
        if len(row) > len(header):
            found.append((place, f"{len(row)} cells below a header of {len(header)}"))
        else:
            cells = {name: cell for name, cell in zip(header, row, strict=False) if name}
            found.append(
                (place, {name: cell if name in texts else as_json(cell) for name, cell in cells.items()})
            )
    return found


def lines(text: str) -> Found:
    return [(place, {"content": line}) for place, line in _numbered(text)]


def as_json(value: Any) -> Any:
    """What a cell of a table holds: JSON if it looks like it."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return _parse(value)
        except ValueError:
            return value
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parse(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant)
