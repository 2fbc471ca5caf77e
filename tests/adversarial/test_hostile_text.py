"""Texts made to be slow: guard, score features, words and canonical forms take time in proportion to length."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.conftest import Connect
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

pytestmark = pytest.mark.one_server

# Repeated parts of a text; each of them once made a pattern or loop take time quadratic in its length.
REPEATED = (  # noqa: SIM905 (read as words)
    "1 1,234, 1. 1- 1/ 1: . - , ' a' a A Aa_ A_ a_ $ $$ $5_ €1.000,00_ 20_mg_30kg_ 5kg_ 1-2_ 1,2_ a-b_ a/b_ a- A- a-b/c_ "
    "-a_ XIV_ %s % # a@b.c_ @ v1.2.3_ not_ no_yes_ un unhappy_happy_ don't_ l'été_ A's_ Mr._ U.S._ a.b._ ... :. a:_ e.g._ "
    "Alice_Bob_Carol_Dan_Erik_ Der_Hund_und_Ida_ January_5_2024_ 2024-01-01_ 10:30_pm_ one_hundred_and_twenty_three_ "
    "hundred_ her_ only_ used_to_ quit_smoking_ Born_in_Aa_died_in_Bb_ içmiyor_ twenty_first_ every_other_ non-abcd- isnt_ "
    "may_5_ per_hour_ more_than_5_ him_she_ "
    "一 三个 二十三个 星期三 不 好不好 ないで アリス_ アリス 喜欢 않다_ ไม่ ﷺ ½ x² \u0301 \u0301\u0316 \u0344 \u0f73 \u200b "
    "\u00a0 \u0645\u0627_ не_ Иван_Ивана_ ( [()] \\ <a>_ ~ ^ \U0001f468\u200d\U0001f469 and_ of_the_ Alice_and_ "
    "reports_to_Ann_ \n a\n _ İ Ǆ ϴ"
).split(" ")


def repeated(part: str) -> Callable[[int], str]:
    part = part.replace("_", " ")
    return lambda size: (part * (size // len(part.encode()) + 1)).encode()[:size].decode(errors="ignore")


def distinct(form: str) -> Callable[[int], str]:
    def make(size: int) -> str:
        rnd = random.Random(7)
        words = (
            form.replace("?", "".join(rnd.choices("abcdefgh", k=5))).replace("0", str(rnd.randrange(10**5)))
            for _ in range(size)
        )
        text = ""
        for word in words:
            text += word + " "
            if len(text) >= size:
                break
        return text[:size]

    return make


PATTERNS = {part: repeated(part) for part in REPEATED if part} | {
    form: distinct(form) for form in ("?", "N?", "0", "20-0", "un?", "$0", "0 kg", "N? and", "?-?", "0 cats", "the ? of 0")
}  # fmt: skip


def test_the_patterns() -> None:
    assert len(PATTERNS) > 90
    for make in PATTERNS.values():
        assert 990 < len(make(1000).encode()) <= 1000


def pairs(make: Callable[[int], str], size: int) -> list[tuple[str, str]]:
    """Two texts that differ at both ends, in the middle, and by a rotation."""
    text = make(size)
    half = len(text) // 2
    return [
        (f"x {text} ende", f"y {text} Q"),
        (f"{text} 1", f"{text[:half]} not {text[half:]} 2"),
        (f"x {text} ende Q", f"{text} Q x ende"),
    ]


def within(db: DB, seconds: float, statement: str, *parameters: Any) -> Any:
    """The statement's only value, unless the server has to cancel it."""
    db.execute("select set_config('statement_timeout', %s, false)", [str(int(seconds * 1000))])
    try:
        row = db.execute(statement.encode(), parameters).fetchone()
    finally:
        db.execute("reset statement_timeout")
    assert row is not None
    return row[0]


@pytest.mark.parametrize("size", [8000, 100_000])
def test_the_guard(db: DB, size: int) -> None:
    """Before, 8 kB of these took up to 3 s, 48 kB up to 45 s; each limit is about ten times the present time."""
    slow = []
    for name, make in PATTERNS.items():
        for a, b in pairs(make, size)[: 3 if size < 10_000 else 1]:
            try:
                within(db, 1.5, "select memfold_internal._guard('t', %s, %s)", a, b)
            except psycopg.errors.QueryCanceled:
                slow.append(name)
    assert slow == []


@pytest.mark.parametrize("form", ["?", "N?", "0", "un?"])
def test_pages_of_other_words(db: DB, form: str) -> None:
    """No word of one page is in the other. Before, the antonyms of 1,300 words took 0.9 s; a page takes 0.04 s now."""
    a = distinct(form)(8000)
    b = a.translate(str.maketrans("abcdefgh0123456789", "ijklmnop1234567890"))
    within(db, 0.5, "select memfold_internal._guard('t', %s, %s)", a, b)


def test_what_else_reads_texts(db: DB) -> None:
    """Canonical forms, the score's features and the words of the lexical tier."""
    slow = []
    for name, make in PATTERNS.items():
        a, b = pairs(make, 40_000)[0]
        for what, statement, parameters in (
            ("prose", "select length(memfold.canonicalize(%s, 'prose/1'))", (a,)),
            ("flat", "select length(memfold.canonicalize(%s, 'flat/1'))", (a,)),
            ("features", "select memfold_internal._pair_features(0.9::double precision, %s, %s, '{}')", (a, b)),
            ("words", "select memfold_internal._jaccard("
             " memfold_internal._tokens(%s, 'characters'), memfold_internal._tokens(%s, 'characters'))", (a, b)),
        ):  # fmt: skip
            try:
                within(db, 2, statement, *parameters)
            except psycopg.errors.QueryCanceled:
                slow.append((what, name))
    assert slow == []


def test_too_long_to_compare(db: DB) -> None:
    """The guard raises if it cannot compare two texts; it need not compare equal ones."""

    def guard(a: str, b: str) -> Any:
        return within(db, 60, "select memfold_internal._guard('t', %s, %s)", a, b)

    assert guard("a " * 1000, "b " * 1000) == []
    words = ["length: more than 2048 words"]
    assert guard("a" * 8192, "a" * 8191 + "b") == []
    assert guard("a" * 8193, "b") == guard("b", "a" * 8193) == ["length: more than 8192 bytes"]
    assert guard("é" * 4097, "b") == ["length: more than 8192 bytes"]
    assert guard("a " * 2048, "b " * 2048) == []
    assert guard("a " * 2049, "b") == guard("b", "a " * 2049) == words
    assert guard("日" * 2049, "月" * 2049) == words
    assert guard("A" * 20000, "  " + "a" * 20000 + ".") == []


def test_a_pair_too_long_to_compare_escalates(db: DB) -> None:
    model(db)
    text = "User likes tea. " * 600
    kept = ingest(db, text, **vector(1.0))
    other = ingest(db, text + "A lot.", **vector(0.999))
    assert (other.action, other.tier, other.method) == ("escalated", 2, "vector")
    assert other.similar == [
        {"guard": ["length: more than 8192 bytes"], "similarity": 0.999, "memory_id": str(kept.memory_id)}
    ]
    assert ingest(db, text.upper()).action == "merged"
    check(db)


# Combining marks ------------------------------------------------------------------------------------------------------

RUN = "a" + "\u0301\u0316" * 15
LONG = {
    "one too many": RUN + "\u0301",
    "at the beginning": "\u0327" * 31,
    "33,000": "a" + "\u0301" * 33_000,
    "that come apart": "a" + "\u0344" * 31,
    "that have no class and come apart": "a" + "\u0f73" * 31,
    "in the middle": "User likes tea" + "\u0301" * 31 + " a lot",
    "later than Unicode 14": "a" + "\u0897" * 31,
}


def refused(db: DB, statement: str, *parameters: Any) -> None:
    with pytest.raises(psycopg.Error) as error:
        within(db, 20, statement, *parameters)
    assert error.value.sqlstate == "MF061"
    assert error.value.diag.message_detail == "More than 30 follow one another."
    assert error.value.diag.message_hint


@pytest.mark.parametrize(
    "policy",
    ["preset => 'three_tier'", "canonicalizer => 'exact'", "dedup => 'off'", "lexical_threshold => 0.5"],
)
def test_many_marks_are_refused(db: DB, policy: str) -> None:
    db.execute(f"select set_policy('acme', {policy})".encode())
    for content in LONG.values():
        for function in ("ingest_memory", "preview_memory"):
            refused(db, f"select (memfold.{function}(%s, 'acme')).action", content)
        refused(db, "select count(*) from memfold.known_memory(%s, 'acme')", content)
        refused(
            db, "insert into memfold.memories (tenant_id, content) values ('acme', %s) returning 1", content
        )
        refused(db, "select memfold.adopted_hash(%s, 'prose/1')", content)
        batch = json.dumps([{"content": content}, {"content": "User likes tea"}])
        states = within(
            db,
            20,
            "select array_agg(b.sqlstate order by b.ordinal) from memfold.ingest_memories(%s, 'acme') as b",
            batch,
        )
        assert states == ["MF061", None]
    memory = ingest(db, "User likes juice")
    refused(
        db,
        "select (memfold.update_memory(%s, %s, tenant_id => 'acme')).action",
        memory.memory_id,
        LONG["one too many"],
    )
    assert db.execute("select count(*) from memories where content ~ '\u0301'").fetchone() == (0,)
    check(db)


def test_thirty_marks_are_taken(db: DB, connect: Connect) -> None:
    for number, content in enumerate(
        (RUN, RUN * 40, "ก็" * 200, "e\u0301" * 5000, "\U0001f44d\ufe0f" * 40, "คำที่มีสระ" * 30)
    ):
        assert ingest(db, content, bucket_id=str(number)).action == "inserted"
        assert ingest(db, content, bucket_id=str(number)).action == "merged"
    check(db)


def test_canonical_forms_of_many_marks(db: DB) -> None:
    """Fast, the same when repeated on its result, and with NFKC and NFC as PostgreSQL itself computes them."""
    for profile in ("prose/1", "flat/1"):
        for content in LONG.values():
            once = within(db, 3, "select memfold.canonicalize(%s, %s)", content * 3, profile)
            assert once == within(db, 3, "select memfold.canonicalize(%s, %s)", once, profile)
        for breaks in ("\u200b", "\u2060", "\u200d", "\u034f"):
            content = "a\u11a7" + ("\u0301\u0316" * 15 + breaks) * 1000
            assert within(db, 3, "select memfold.canonicalize(%s, %s)", content, profile)
    rnd = random.Random(1)
    marks = "\u0301\u0316\u0327\u0345\u0f73\u0344\u3099\u05b0\u0e38\u11a7\u2060\u200b"
    for _ in range(300):
        text = "".join(
            rnd.choice("aeé日ก ") + "".join(rnd.choices(marks, k=rnd.randrange(25))) for _ in range(9)
        )
        row = db.execute(
            "select memfold_internal._nfkc_1(t) = case when t is nfkc normalized then t else replace(normalize("
            "replace(replace(t, E'\\u2060', ''), E'\\u11A7', E'\\u2060\\u11A7'), nfkc), E'\\u2060', '') end,"
            " memfold_internal._nfc_1(t) = case when t is nfc normalized then t else replace(normalize(replace(replace("
            "t, E'\\u2060', ''), E'\\u11A7', E'\\u2060\\u11A7'), nfc), E'\\u2060', '') end"
            " from (values (%s || E'\\u11A7')) as v (t)",
            [text],
        ).fetchone()  # fmt: skip
        assert row == (True, True), ascii(text)
