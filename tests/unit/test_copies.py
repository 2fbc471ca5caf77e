"""Copies of rules in fast paths: each is what the home of its rule makes of it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "copy_rules.py"
HOME = """
    -- rule count
    update counters as k
    set n = k.n + c.more
    where k.id = root_id
        and k.root_id = c.root_id;
    -- end of rule
"""
COPY = """
        -- copy of count
        --     root_id => v_id
        --     c.more => 1
        --     c. =>
        -- end of copy
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = util.spec_from_file_location("copy_rules", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_copies_are_as_their_homes_say() -> None:
    done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_home_that_changes_leaves_no_copy_behind(tool: ModuleType) -> None:
    texts = {path: path.read_text() for path in tool.FUNCTIONS.rglob("*.sql")}
    homes = tool.rules(texts)
    copies = {name for text in texts.values() for name in re.findall(r"-- copy of (\w+)", text)}
    assert copies == set(homes)
    for name in homes:
        changed = {**homes, name: homes[name] + "    select 1;\n"}
        assert any(tool.copied(text, changed) != text for text in texts.values()), name


def test_a_copy_replaces_whole_words_and_qualifiers(tool: ModuleType) -> None:
    made = tool.copied(COPY, tool.rules({Path("a.sql"): HOME}))
    assert [line for line in made.splitlines() if "--" not in line and line] == [
        "        update counters as k",
        "        set n = k.n + 1",
        "        where k.id = v_id",
        "            and k.root_id = root_id;",
    ]
    assert tool.copied(made, tool.rules({Path("a.sql"): HOME})) == made


@pytest.mark.parametrize(
    ("home", "copy", "message"),
    [
        ("", COPY, "there is no rule count"),
        (HOME, COPY.replace("c.more", "c.less"), "the rule count has no c.less"),
        (HOME + HOME, COPY, "the rule count has another home"),
    ],
)
def test_a_copy_without_a_home_is_an_error(tool: ModuleType, home: str, copy: str, message: str) -> None:
    with pytest.raises(tool.CopyError, match=message):
        tool.copied(copy, tool.rules({Path("a.sql"): home}))
