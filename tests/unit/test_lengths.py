"""How long SQL may be: a file 400 lines, the body of a function 150, or it says why. (Python: test_rooms.py.)"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.servers import ROOT

SQL = ROOT / "sql"
LONGEST_FILE, LONGEST_BODY = 400, 150
# Each has its reason above it, in the line that begins so.
REASON = "-- Longer than 150 lines: "
LONGER = {
    "_canonicalizer_golden", "_check_times", "_erase", "_guard", "_guard_facts", "_lexicon",
    "_pair_features", "check_invariants", "explain_memory", "_search", "sweep_duplicates",
}  # fmt: skip
# The comments above, the name, and the body between its dollars or of its statements.
FUNCTION = re.compile(
    r"((?:^--.*\n)*)^create (?:or replace )?(?:function|procedure) \w+\.(\w+)(?:(?!^create ).*\n)*?"
    r"(?:.*\bas (\$\w*\$)\n((?:.*\n)*?)\3|begin atomic\n((?:.*\n)*?)end;)",
    re.M,
)


def bodies(sql: str) -> Iterator[tuple[str, int, bool]]:
    """For each function: its name, the number of lines of its body, and whether a reason is given above it."""
    for comments, name, _, dollars, atomic in FUNCTION.findall(sql):
        reasons = [
            line for line in comments.splitlines() if len(line) > len(REASON) and line.startswith(REASON)
        ]
        yield name, (dollars or atomic).count("\n"), bool(reasons)


def wrong(sql: str, longer: set[str]) -> list[str]:
    found = []
    for name, lines, reason in bodies(sql):
        if lines > LONGEST_BODY and name not in longer:
            found.append(f"{name}: {lines} lines")
        if (lines > LONGEST_BODY) != reason:
            found.append(
                f"{name}: {lines} lines, {'a' if reason else 'no'} reason for more than {LONGEST_BODY}"
            )
    return found


def test_files_are_short_and_bodies_say_why_they_are_not() -> None:
    found = []
    for path in sorted(SQL.rglob("*.sql")):
        text = path.read_text()
        if text.count("\n") > LONGEST_FILE:
            found.append(f"{path.name}: more than {LONGEST_FILE} lines")
        found += wrong(text, LONGER)
        # none is overlooked
        if len(list(bodies(text))) != len(re.findall(r"(?m)(?:\bas \$\w*\$|^begin atomic)$", text)):
            found.append(f"{path.name}: a body that FUNCTION does not find")
    assert found == []


def test_every_listed_body_is_long() -> None:
    files = [path.read_text() for path in SQL.rglob("*.sql")]
    assert {name for text in files for name, lines, _ in bodies(text) if lines > LONGEST_BODY} == LONGER


def function(lines: int, above: str = "", body: str = "as $$\n{}$$;") -> str:
    return f"{above}create function memfold.f() returns text\nlanguage sql\n" + body.format(
        "select 1;\n" * lines
    )


@pytest.mark.parametrize(
    "body", ["as $$\n{}$$;\n", "as $function$\n{}$function$;\n", "begin atomic\n{}end;\n"]
)
def test_a_long_body_is_found(body: str) -> None:
    assert wrong(function(150, body=body), set()) == []
    assert wrong(function(151, body=body), set()) == [
        "f: 151 lines", "f: 151 lines, no reason for more than 150"
    ]  # fmt: skip
    assert wrong(function(151, REASON + "data.\n", body), {"f"}) == []
    assert wrong(function(151, REASON + "data.\n", body), set()) == ["f: 151 lines"]
    assert wrong(function(151, REASON + "\n", body), {"f"}) == ["f: 151 lines, no reason for more than 150"]
    assert wrong(function(150, REASON + "data.\n", body), set()) == [
        "f: 150 lines, a reason for more than 150"
    ]
