"""Substituted words: what the guard's lexicon knows, which pairs it applies to, and its effect on the others.

Pairs of each class are in tests/data/guard_pairs.jsonl (kind ``substitution``).
"""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path

import pytest

from tests.support.judging import guard
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB

TOOL = Path(__file__).parents[2] / "tools" / "gen_lexicon.py"
FORMS = (
    "plans planned planning planner goes boxes parties carried tried dries happier happiest largest larger wolves "
    "knives leaves sees bees ed sing red bus as running stopped butted egged dyed a ring us"
)


def test_the_signal_names_the_words(db: DB) -> None:
    a, b = "The cabin is built of oak logs.", "The cabin is built of pine logs."
    assert guard(db, a, b) == ["substitution: oak <> pine"]
    assert guard(db, b, a) == ["substitution: pine <> oak"]
    # of two substitutions the unknown one
    a, b = "The physician bought a rug for the hall.", "The doctor bought a stove for the hall."
    assert guard(db, a, b) == ["substitution: rug <> stove"]
    # with more words on one side, the word without a partner
    a, b = "The boat is moored at the jetty.", "The boat is moored at the coal terminal."
    assert guard(db, a, b) == ["substitution: jetty <> coal"]


def test_each_word_needs_a_partner_of_its_own(db: DB) -> None:
    """A doctor is a physician, but a doctor and a vet are not one physician."""
    assert guard(db, "The doctor is in.", "The physician is in.") == []
    a, b = "The doctor and the mason are here today.", "The physician and the painter are here today."
    assert guard(db, a, b) == ["substitution: mason <> painter"]
    a, b = "The car and the auto are both here today.", "The automobile and the cart are both here today."
    assert guard(db, a, b) != []
    assert guard(db, b, a) != []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # fewer than three of five words are the same
        ("The oak logs burn.", "A pine cabin burns."),
        # four words exchanged
        (
            "The red fox and the hare saw a brown bear at the pond in June.",
            "The grey wolf and the hare heard a black boar at the pond in June.",
        ),
        # a word more is more detail, no exchange
        ("The cabin is built of logs.", "The cabin is built of oak logs."),
        # another preposition
        ("The cabin stands by the lake.", "The cabin stands near the lake."),
    ],
)
def test_what_is_not_a_substitution(db: DB, a: str, b: str) -> None:
    assert [signal for signal in guard(db, a, b) if signal.startswith("substitution")] == []


def calls(db: DB) -> int:
    db.execute("select pg_stat_force_next_flush()")
    row = db.execute(
        "select coalesce(sum(calls), 0)::integer from pg_stat_user_functions where funcname = '_guard_substitution'"
    ).fetchone()
    assert row is not None
    count: int = row[0]
    return count


def test_other_pairs_do_not_pay_for_it(db: DB) -> None:
    """The lexicon is not used if texts differ by more, if there is another signal, or if a word is only added."""
    db.execute("set track_functions = 'all'")
    before = calls(db)
    guard(db, "The cabin is built of oak logs.", "Deploys of the billing service run on Mondays.")
    guard(db, "The oak logs burn.", "A pine cabin burns.")
    guard(db, "The cabin has 3 oak doors.", "The cabin has 4 pine doors.")
    guard(db, "The cabin is built of logs.", "The cabin is built of oak logs.")
    guard(db, "The cabin is built of logs.", "the cabin is built of logs")
    assert calls(db) == before
    guard(db, "The cabin is built of oak logs.", "The cabin is built of pine logs.")
    assert calls(db) == before + 1


def test_it_escalates_and_is_part_of_the_guard(db: DB) -> None:
    model(db)
    ingest(db, "The cabin is built of oak logs.", **vector(1.0))
    result = ingest(db, "The cabin is built of pine logs.", **vector(0.99))
    assert result.action == "escalated"
    assert db.execute("select guard from judgements").fetchall() == [(["substitution: pine <> oak"],)]
    told = db.execute(
        "select string_agg(e::text, ' ') from explain_memory(%s) as e", [result.memory_id]
    ).fetchone()
    assert told is not None
    assert "substitution: pine <> oak" in told[0]
    db.execute("select set_policy('acme', guard => 'off')")
    assert ingest(db, "The cabin is built of ash logs.", **vector(0.995)).action == "merged"


def test_fitted_scores_do_not_see_it(db: DB) -> None:
    """Scores were fitted to the other signals: the score of a pair must not change."""
    query = "select memfold_internal._pair_features(0.9, 'an oak', 'a pine', %s::text[])"
    with_it, without, other = (
        db.execute(query, [signals]).fetchone()
        for signals in (["name: x <> y", "substitution: oak <> pine"], ["name: x <> y"], [])
    )
    assert with_it == without != other


def test_regular_forms_are_those_of_the_generator(db: DB) -> None:
    """The function must find the forms that the table leaves out."""
    spec = util.spec_from_file_location("gen_lexicon_rules", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = util.module_from_spec(spec)
    sys.modules[spec.name] = tool
    spec.loader.exec_module(tool)
    words = FORMS.split()
    found = db.execute(
        "select word, memfold_internal._guard_lemmas(word) from unnest(%s::text[]) as w (word)", [words]
    ).fetchall()
    assert {word: set(lemmas) for word, lemmas in found} == {word: tool.lemmas(word) for word in words}
    assert dict(found)["planned"] == ["planned", "plann", "plan", "planne"]


def test_the_table_is_the_same_for_all(db: DB) -> None:
    odd = db.execute(
        "select word from memfold.lexicon where word <> memfold.canonicalize(word, 'prose/1') or word !~ '^[a-z]+$'"
        " or array_position(senses, null) is not null"
    ).fetchall()
    assert odd == []
    found = db.execute(
        "select count(*), pg_total_relation_size('memfold.lexicon') from memfold.lexicon"
    ).fetchone()
    assert found is not None
    assert 20_000 <= found[0] <= 40_000
    assert found[1] < 6_000_000
