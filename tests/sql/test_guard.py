"""The guard: near-identical texts that differ in a fact are raised, paraphrases are not."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.draws import settings
from tests.support.judging import guard

DATA = Path(__file__).parents[1] / "data"
PAIRS: list[dict[str, str]] = [
    json.loads(line) for line in (DATA / "guard_pairs.jsonl").read_text(encoding="utf-8").splitlines()
]

# What a swap of names is called depends on whether anything else changed too.
SIGNALS = {
    "name_order": {"name", "order"},
    "place": {"place", "relation"},
    "order": {"order", "relation"},
    "time": {"time", "relation"},
}

# Letters, digits and punctuation of many scripts, without what PostgreSQL cannot store (NUL, surrogates).
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=2000)
PARTS = (
    "User Alice Bob not n't never 3 three 3.5 1,000 -5 50% $5 € kg May 12 2024-05-01 3pm v2 AB-12 a@b.c "
    "x/y.z l'été ne pas no nunca не 不喜欢 星期三 三只猫 ない アリス ไม่ 않다 ٣ , . : - / ' _ ... twenty "
    "one hundred and"
)
WORDS = st.lists(st.sampled_from(PARTS.split()), max_size=40).map(" ".join)


def test_the_pairs_cover_every_kind() -> None:
    raised = [pair for pair in PAIRS if pair["expect"] == "raise"]
    clean = [pair for pair in PAIRS if pair["expect"] == "clean"]
    assert len(raised) >= 80
    assert len(clean) >= 80
    assert len({pair["language"] for pair in raised}) >= 6
    assert len({(pair["a"], pair["b"]) for pair in PAIRS}) == len(PAIRS)
    kinds = "negation numeral date version currency unit identifier name name_order antonym prefix"
    assert {pair["kind"] for pair in raised} >= set(kinds.split())


@pytest.mark.parametrize("expect", ["raise", "clean"])
def test_pairs(db: psycopg.Connection[Any], expect: str) -> None:
    wrong: list[str] = []
    for pair in PAIRS:
        if pair["expect"] != expect:
            continue
        for a, b in ((pair["a"], pair["b"]), (pair["b"], pair["a"])):
            signals = guard(db, a, b)
            kinds = {signal.split(":")[0] for signal in signals}
            if expect == "clean" and signals:
                wrong.append(f"{pair['id']}: {a} | {b}: {signals}")
            if expect == "raise" and not kinds & SIGNALS.get(pair["kind"], {pair["kind"]}):
                wrong.append(f"{pair['id']}: {a} | {b}: no {pair['kind']} in {signals}")
    assert wrong == []


@pytest.mark.parametrize(
    ("a", "b", "signals"),
    [
        ("User eats fish.", "User never eats fish.", ["negation: never"]),
        ("User has 3 bikes.", "User has 4 bikes.", ["numeral: 3 <> 4"]),
        ("Due on 2025-02-01.", "Due on 1 March 2025.", ["date: 2025-02-01 <> 2025-03-01"]),
        ("The app needs Python 3.11.", "The app needs Python 3.12.", ["version: 3.11 <> 3.12"]),
        ("It costs $30.", "It costs €30.", ["currency: $ <> €"]),
        ("It weighs 9 kg.", "It weighs 9 lb.", ["unit: kg <> lb"]),
        ("See ticket AB-12.", "See ticket AB-13.", ["identifier: ab-12 <> ab-13"]),
        ("Nora gave Ivan cake.", "Ivan baked Nora cake.", ["name: nora, ivan <> ivan, nora"]),
        ("the ant saw the bee", "the bee saw the ant", ["order: ant saw bee <> bee saw ant"]),
        ("User likes rain.", "User hates rain.", ["antonym: likes <> hates"]),
        ("User is happy.", "User is unhappy.", ["prefix: happy <> unhappy"]),
        ("User has 3 cats.", "User has three cats.", []),
        ("Ida is the former mayor.", "Ida is the mayor.", ["tense: former"]),
        ("Ida was the mayor.", "Ida is the mayor.", ["tense: was <> is"]),
        ("Ida might leave.", "Ida will leave.", ["mode: might <> will"]),
        ("Most cats sleep.", "All cats sleep.", ["antonym: most <> all", "quantity: most <> all"]),
        ("He sees her.", "She sees him.", ["pronoun: he <> she", "pronoun: her <> him"]),
        ("No cat sleeps and no dog barks.", "The cat sleeps and the dog barks.", ["negation: no"]),
    ],
)  # fmt: skip
def test_signals_can_be_read(db: psycopg.Connection[Any], a: str, b: str, signals: list[str]) -> None:
    assert guard(db, a, b) == signals


def test_signals_are_sorted_and_distinct(db: psycopg.Connection[Any]) -> None:
    signals = guard(db, "User likes 3 cats in Rome.", "User hates 4 cats in Milan.")
    assert [signal.split(":")[0] for signal in signals] == ["antonym", "name", "numeral"]
    assert signals == sorted(set(signals))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # even counts of negations cancel, however many there are
        ("Agents may not reply without review.", "Never reply without review."),
        # these words only contain the letters of a negation
        ("The notary knows the nonprofit in Nottingham.", "The notary knows that nonprofit in Nottingham."),
        ("彼は必ず朝に走る。", "彼は朝に必ず走る。"),
        ("用户特别喜欢爬山。", "用户非常喜欢爬山。"),
    ],
)
def test_negations_are_counted(db: psycopg.Connection[Any], a: str, b: str) -> None:
    assert [signal for signal in guard(db, a, b) if signal.startswith("negation")] == []


def test_case_makes_no_difference(db: psycopg.Connection[Any]) -> None:
    wrong: list[str] = []
    for text in {text for pair in PAIRS for text in (pair["a"], pair["b"])}:
        for other in (text.lower(), text.upper(), text.title(), text.swapcase()):
            row = db.execute(
                "select memfold.canonicalize(%s, 'prose/1') = memfold.canonicalize(%s, 'prose/1')",
                (text, other),
            ).fetchone()
            assert row is not None
            if row[0] and guard(db, text, other):
                wrong.append(f"{text} | {other}")
    assert wrong == []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # these words say nothing of time, quantity or person here
        ("The tool is used to cut tiles.", "The tool cuts tiles."),
        ("User is used to the noise.", "User knows the noise."),
        ("User likes tea most.", "User likes tea best."),
        ("The bus stopped near the school.", "The bus halts near the school."),
        ("Her dog sleeps.", "The dog of hers sleeps."),
    ],
)
def test_words_are_read_in_context(db: psycopg.Connection[Any], a: str, b: str) -> None:
    assert guard(db, a, b) == guard(db, b, a) == []


def test_a_tenant_extends_the_antonyms(db: psycopg.Connection[Any]) -> None:
    a, b = "Deploys use the quick ring.", "Deploys use the fast ring."
    assert guard(db, a, b) == []
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    db.execute("insert into memfold.antonyms (tenant_id, word, antonym) values ('acme', 'quick', 'fast')")
    assert guard(db, a, b) == ["antonym: quick <> fast"]
    assert guard(db, b, a) == ["antonym: fast <> quick"]
    assert guard(db, a, b, tenant_id="other") == []


def test_shipped_antonyms_are_canonical(db: psycopg.Connection[Any]) -> None:
    odd = db.execute(
        "select word, antonym from memfold.antonyms"
        " where word <> memfold.canonicalize(word, 'prose/1')"
        " or antonym <> memfold.canonicalize(antonym, 'prose/1')"
    ).fetchall()
    assert odd == []
    languages = db.execute(
        "select count(*), count(distinct language) from memfold.antonyms where tenant_id = '*'"
    ).fetchone()
    assert languages is not None
    assert languages[0] >= 150
    assert languages[1] >= 9


def test_no_regexp_depends_on_the_locale(db: psycopg.Connection[Any]) -> None:
    """Character classes that depend on the collation would give another answer on another server."""
    guilty = db.execute(
        r"""
        select proname from pg_proc
        where pronamespace = any('{memfold,memfold_internal}'::regnamespace[]) and proname ~ '^_guard'
            and (prosrc ~ '\[\[:|\\[wWdDsSmMyY]|~\*|ilike|\m(lower|upper|initcap)\M')
        """
    ).fetchall()
    assert guilty == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=TEXT | WORDS)
def test_a_text_does_not_differ_from_itself(db: psycopg.Connection[Any], a: str) -> None:
    assert guard(db, a, a) == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=TEXT | WORDS, b=TEXT | WORDS)
def test_any_text_is_compared(db: psycopg.Connection[Any], a: str, b: str) -> None:
    signals = guard(db, a, b)
    assert all(": " in signal for signal in signals)
    assert bool(signals) == bool(guard(db, b, a))


def test_the_lexicon_has_each_word_once(db: psycopg.Connection[Any]) -> None:
    """A word is listed once per language and class, in the form in which texts are read."""
    rows = db.execute(
        "select word, language, class, memfold_internal._prose_1(word) from memfold_internal._lexicon()"
    ).fetchall()
    twice = [row for row, n in Counter((r[0], r[1], r[2]) for r in rows).items() if n > 1]
    assert twice == []
    assert [row for row in rows if row[0] not in (row[3], ".")] == []
    assert len(rows) > 1300
