"""The list of small mistakes (tests/data/mutants.toml) fits the code: each can be made, and its tests exist."""

from __future__ import annotations

import ast
import tomllib

from tests.support.servers import ROOT

MUTANTS = tomllib.loads((ROOT / "tests" / "data" / "mutants.toml").read_text())["mutant"]


def test_each_mutant_can_be_made() -> None:
    """After a change of the code, update the mutant; if it cannot be made any more, remove it."""
    found = {one["id"]: (ROOT / one["file"]).read_text().count(one["old"]) for one in MUTANTS}
    assert {name: count for name, count in found.items() if count != 1} == {}
    assert len(found) == len(MUTANTS), "an id occurs twice"


def test_no_mutant_is_a_syntax_error() -> None:
    broken = []
    for one in MUTANTS:
        if one["file"].endswith(".py"):
            text = (ROOT / one["file"]).read_text().replace(one["old"], one["new"])
            try:
                ast.parse(text)
            except SyntaxError:
                broken.append(one["id"])
    assert broken == []


def test_the_tests_of_each_mutant_exist() -> None:
    gone = [
        (one["id"], test)
        for one in MUTANTS
        for test in one["tests"]
        if test.startswith(("tests", "contrib")) and not (ROOT / test.partition("::")[0]).exists()
    ]
    assert gone == []
    assert [
        one["id"]
        for one in MUTANTS
        if not any(test.startswith(("tests", "contrib")) for test in one["tests"])
    ] == []
