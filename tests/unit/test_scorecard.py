"""docs/scorecard.md: every item of its lists, each with a state, and with a test that exists."""

from __future__ import annotations

import re

import pytest

from tests.support.servers import ROOT

PAGE = (ROOT / "docs" / "scorecard.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| (LLM|ASI|V)?\d", line)
]
ITEMS = [
    *(f"LLM{n:02}" for n in range(1, 11)),
    *(f"ASI{n:02}" for n in range(1, 11)),
    *(f"V{n}" for n in range(1, 18)),
    *(str(n) for n in range(1, 9)),
]


def test_every_item_is_there_once() -> None:
    assert [row[0].split()[0] for row in ROWS] == ITEMS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_an_item_has_a_state_a_reason_and_what_keeps_it(row: list[str]) -> None:
    _, state, why, kept = row
    assert state in ("met", "in part", "open", "declined")
    assert why.endswith(".")
    # what is met is kept so
    assert kept or state != "met"
    if kept:
        file, _, name = kept.strip("`").partition("::")
        text = (ROOT / file).read_text()
        assert re.search(rf"\b(def|class) {name}\b" if name else r"\bdef test_", text), kept
