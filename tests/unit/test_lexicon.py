"""The lexicon's data, and how they are made of WordNet's files."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "gen_lexicon.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = util.spec_from_file_location("gen_lexicon", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


def test_the_data_are_those_that_were_written() -> None:
    done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_data_that_were_edited_are_found(tool: ModuleType) -> None:
    sql = tool.SQL.read_text()
    assert tool.faults(sql) == []
    for was, will_be in ((" apple ", " apple:7 "), (" banana:", " banana:x:"), (" zoo:", " aardvark zoo:")):
        assert sql.count(was) >= 1
        assert "differs" in tool.faults(sql.replace(was, will_be, 1))[0]
    assert len(tool.faults(sql.replace(" zoo:", " aardvark zoo:", 1))) == 2
    assert len(tool.faults(sql.replace(" banana:", " banana:x:", 1))) == 2
    assert tool.faults("") != []


# A WordNet of a few made-up synsets: three ships, sailing, big and small. Lines of the licence begin with a space.
WORDNET = {
    "data.noun": """\
  1 a licence
00000100 06 n 02 ship 0 vessel 0 000 | what floats
00000200 06 n 02 sloop 0 sailing_boat 0 002 @ 00000100 n 0000 + 00000900 v 0101 | a small one
00000300 06 n 01 barge 0 001 @ 00000100 n 0000 | a flat one
""",
    "data.verb": "00000900 30 v 02 sail 0 go_by_ship 0 001 + 00000200 n 0101 01 + 01 00 | move on water\n",
    "data.adj": """\
00000500 00 a 02 big 0 large(p) 0 002 & 00000600 a 0000 ! 00000700 a 0101 | not small
00000600 00 s 01 huge 0 001 & 00000500 a 0000 | very big
00000700 00 a 01 small 0 001 ! 00000500 a 0101 | not big
""",
    "data.adv": "",
    "index.noun": """\
ship n 1 0 1 0 00000100
vessel n 1 0 1 0 00000100
sloop n 1 2 @ + 1 0 00000200
sailing_boat n 1 1 @ 1 0 00000200
barge n 1 1 @ 1 0 00000300
""",
    "index.verb": "sail v 1 1 + 1 0 00000900\n",
    "index.adj": """\
big a 1 2 & ! 1 0 00000500
large a 1 1 & 1 0 00000500
huge a 1 1 & 1 0 00000600
small a 1 1 ! 1 0 00000700
""",
    "index.adv": "",
    "noun.exc": "sloopen sloop\nships ship\n",
    "verb.exc": "soled sail\n",
    "adj.exc": "",
    "adv.exc": "",
    "cntlist.rev": "ship%1:06:00:: 1 9\nbarge%1:06:00:: 1 4\n",
}


@pytest.fixture
def entries(tool: ModuleType, tmp_path: Path) -> dict[str, list[list[str]]]:
    for name, text in WORDNET.items():
        (tmp_path / name).write_text(text)
    made = tool.numbered(tool.entries(tool.WordNet.read(tmp_path), Counter({"small": 100}), 9))
    fields = [(entry + ":::").split(":")[:4] for entry in made]
    return {word: [part.split(",") if part else [] for part in parts] for word, *parts in fields}


def test_what_wordnet_says_becomes_numbers(entries: dict[str, list[list[str]]]) -> None:
    senses, near, opposites = range(3)
    assert entries["ship"] == entries["vessel"]  # one synset
    assert entries["sloop"][near] != entries["barge"][near]  # a barge has no verb
    assert set(entries["ship"][senses]) <= set(entries["sloop"][near]) & set(entries["barge"][near])
    assert set(entries["sail"][senses]) <= set(entries["sloop"][near])
    assert set(entries["sloop"][senses]) <= set(entries["sail"][near])
    assert entries["big"][senses] == entries["large"][senses] == entries["huge"][near]
    # the antonym of the one word, not of its synonyms
    assert entries["small"][opposites] == entries["big"][senses]
    assert entries["big"][opposites] == entries["small"][senses]
    assert entries["large"][opposites] == []
    # nothing else is a barge
    assert entries["barge"][senses] == []


def test_forms_that_no_rule_finds_have_rows(entries: dict[str, list[list[str]]]) -> None:
    assert entries["sloopen"] == entries["sloop"]
    assert entries["soled"] == entries["sail"]
    assert "ships" not in entries
    assert not {"sailing_boat", "go_by_ship"} & set(entries)


def test_units_mean_nothing_else(entries: dict[str, list[list[str]]]) -> None:
    assert entries["hour"] == entries["hr"]
    assert not set(entries["hour"][0]) & set(entries["minute"][0])
    assert entries["minute"][1:] == [[], []]
    assert entries["the"] == [[], [], []]
    assert "las" not in entries


def test_too_many_senses_are_refused(tool: ModuleType) -> None:
    entry = tool.Entry(senses={("n", str(number)) for number in range(32_768)})
    with pytest.raises(SystemExit, match="32768 senses"):
        tool.numbered({"one": entry, "other": entry})
