"""The canonicalizer: golden pairs, all of Unicode 14, promises about case, scripts and locales."""

from __future__ import annotations

import re
import string
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category, decomposition, normalize

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from tests.support.draws import settings

Connection = psycopg.Connection[Any]

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = ROOT / "sql" / "functions"
# Those of version 1, plain ASCII: no client encoding can change what they say.
VERSION_1 = [
    FUNCTIONS / "11_canonical" / name for name in ("_combining_marks_1.sql", "_data_1.sql", "_forms_1.sql")
]
SQL_FILES = [
    *VERSION_1,
    FUNCTIONS / "10_platform" / "_memfold_py.sql",
    FUNCTIONS / "11_canonical" / "_lemma.sql",
    FUNCTIONS / "11_canonical" / "canonicalize.sql",
    FUNCTIONS / "11_canonical" / "_golden_pairs.sql",
    FUNCTIONS / "11_canonical" / "canonicalizer_selftest.sql",
]
BATCH = 20_000

# The fixture gives one database to all examples of a property: they only call immutable functions.
PROPERTY = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def canonical(db: Connection, profile: str, texts: Sequence[str]) -> list[str]:
    """The server's canonical forms, in order."""
    forms: list[str] = []
    for start in range(0, len(texts), BATCH):
        row = db.execute(
            "select coalesce(array_agg(memfold.canonicalize(t, %s) order by n), '{}')"
            " from unnest(%s::text[]) with ordinality as u (t, n)",
            (profile, list(texts[start : start + BATCH])),
        ).fetchone()
        assert row is not None
        forms += row[0]
    assert len(forms) == len(texts)
    return forms


# An independent computation: character by character, no regular expression, no table of ours ----------------


def simple_lower(char: str) -> str:
    """Simple lower-case mapping, and final sigma as sigma."""
    if char == "\u0130":
        return "i"
    return "\u03c3" if char == "\u03c2" else char.lower()


def fold(text: str) -> str:
    """Lower case; a combining dot above after an i makes no difference."""
    folded = ""
    for char in map(simple_lower, text):
        if char == "\u0307" and folded and folded[-1] in "i\u012f\u1e2d\u1ecb":
            continue
        folded += char
    return normalize("NFC", folded)


def number_kind(char: str) -> str:
    """'^' or '_' for superscripts and subscripts, ' ' for vulgar fractions, '' for all else."""
    tag = decomposition(char).partition(" ")[0]
    if tag == "<fraction>":
        return " "
    if tag in {"<super>", "<sub>"} and normalize("NFKC", char) in set("0123456789+=()\u2212"):
        return "^" if tag == "<super>" else "_"
    return ""


def prose(text: str) -> str:
    """Profile prose/1."""
    marked, previous = "", ""
    for char in text:
        if char in "\u200b\u2060\ufeff\u00ad":
            continue
        kind = number_kind(char)
        if kind and (kind == " " or kind != previous):
            marked += kind
        elif previous and not kind and marked[-1] != "\u215f" and normalize("NFKC", char)[0] in "0123456789":
            marked += " "
        marked += char
        previous = kind
    folded = fold(normalize("NFKC", marked))
    for plain, others in (
        ("'", "\u2018\u2019\u201a\u201b"),
        ('"', "\u201c\u201d\u201e\u201f"),
        ("-", "\u2010\u2012\u2013\u2014\u2015\u2212"),
    ):
        folded = re.sub(f"[{others}]", plain, folded)
    spaces = {*map(chr, range(9, 14)), " ", "\x85", "\u1680", "\u2028", "\u2029"}
    words = "".join(" " if char in spaces else char for char in folded).split(" ")
    trimmed = " ".join(word for word in words if word)
    return trimmed[:-1].rstrip(" ") if trimmed and trimmed[-1] in ".!?\u3002" else trimmed


def flat(text: str) -> str:
    """Profile flat/1, for text that Unicode 14 assigns."""

    def stays(char: str) -> bool:
        if unicodedata.name(char, "").startswith(("VARIATION SELECTOR", "MONGOLIAN FREE VARIATION SELECTOR")):
            return False
        return char == "." or category(char)[0] in "LMN"

    return fold(normalize("NFC", "".join(filter(stays, normalize("NFC", text)))))


def predicate(text: str) -> str:
    """Profile predicate/1."""
    small, capital = set(string.ascii_lowercase), set(string.ascii_uppercase)
    words = "".join(
        " " + char if char in capital and before in small else char
        for before, char in zip(" " + text, text, strict=False)
    )
    words = re.sub("(?<=[A-Z])(?=[A-Z][a-z]{2})", " ", words)
    return prose("".join(" " if char in "_-" else char for char in prose(words))) or prose(text)


REFERENCE = {"prose/1": prose, "flat/1": flat, "predicate/1": predicate}


def assigned_points() -> list[int]:
    """The characters assigned by Unicode 14, without private use and U+0000, whatever this Python's Unicode version
    is."""
    text = (
        SQL_FILES[-1].read_text(encoding="utf-8").partition("_canonicalizer_assigned()")[2].partition(";")[0]
    )
    points: list[int] = []
    for part in text.split("[")[1:]:
        low, high = part.partition("]")[0].split(",")
        points += range(int(low), int(high) + 1)
    return points


ASSIGNED = assigned_points()
CHARS = [chr(point) for point in ASSIGNED]
LETTERS_AND_DIGITS = [char for char in CHARS if category(char)[0] in "LN"]
CAPITALS = [char for char in CHARS if simple_lower(char) != char]

interesting = st.sampled_from(
    [char for char in CHARS if char.lower() != char or decomposition(char) or unicodedata.combining(char)]
    + list("aijAIJ .!?-\n\t5")
)
texts = st.lists(
    st.text(st.one_of(st.sampled_from(CHARS), interesting), max_size=12), min_size=1, max_size=100
)


# Golden pairs and the self-test -------------------------------------------------------------------------


def test_golden_pairs(db: Connection) -> None:
    pairs = db.execute(
        "select profile, input, canonical from memfold_internal._canonicalizer_golden()"
    ).fetchall()
    assert len(pairs) >= 170
    assert len({pair[:2] for pair in pairs}) == len(pairs)
    assert {profile for profile, _, _ in pairs} == {"prose/1", "flat/1", "code/1", "exact/1", "predicate/1"}
    for profile, text, form in pairs:
        assert canonical(db, profile, [text]) == [form], (profile, text)
        if profile in REFERENCE:
            assert REFERENCE[profile](text) == form, (profile, text)


def test_selftest_is_all_ok_and_complete(db: Connection) -> None:
    rows = db.execute(
        "select profile, input, expected, actual, ok from memfold.canonicalizer_selftest()"
    ).fetchall()
    assert [row for row in rows if not row[4]] == []
    checksums = [row for row in rows if "code points, U+" in row[1]]
    for profile in ("prose/1", "flat/1", "predicate/1"):
        assert sum(int(row[1].split()[0]) for row in checksums if row[0] == profile) == len(ASSIGNED)


def test_selftest_notices_a_difference(db: Connection) -> None:
    with db.transaction(force_rollback=True):
        db.execute(
            "create or replace function memfold_internal._fold_to_1() returns text immutable parallel safe"
            " return memfold_internal._fold_from_1()"
        )
        failed = db.execute("select input from memfold.canonicalizer_selftest() where not ok").fetchall()
    inputs = {row[0] for row in failed}
    assert "CAFÉ" in inputs
    assert any(text.endswith("U+0000 to U+0FFF") for text in inputs)


@pytest.mark.skipif(
    unicodedata.unidata_version != "14.0.0", reason="the generator needs Unicode 14 (Python 3.11)"
)
def test_generated_sections_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "gen_canonicalizer.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Agreement and difference -----------------------------------------------------------------------------------

AGREE = [
    ("prose/1", "User works at Volkswagen AG", " user WORKS at Volkswagen AG "),
    ("prose/1", "User works at Volkswagen AG", "User works at Volkswagen AG."),
    ("prose/1", "ﾃﾞｰﾀ", "データ"),
    ("prose/1", "テ\u3099ータ", "データ"),
    ("prose/1", "ＡＩ　Ａｇｅｎｔ", "AI agent"),
    ("prose/1", "caf\u00e9", "CAFE\u0301"),
    ("prose/1", "ΟΔΟΣ", "οδος"),
    ("prose/1", "STRAẞE", "straße"),
    ("prose/1", "İzmir", "I\u0307zmir"),
    ("prose/1", "İzmir", "İzmir".lower()),
    ("prose/1", "J\u030c", "\u01f0"),
    ("prose/1", "\u1112\u1161\u11ab", "한"),
    ("prose/1", "ﻗﻬﻮﺓ", "قهوة"),
    ("prose/1", "好。", "好"),
    ("prose/1", "好！", "好!"),
    ("prose/1", "a\u200bb\u00ad", "ab"),
    ("prose/1", "1½ cups", "1 ½ cups"),
    ("prose/1", "10⁵", "10^5"),
    ("prose/1", "User doesn't like “tea” – or ‘Tee’", "User doesn’t like \"tea\" — or 'Tee'"),
    ("prose/1", "−5 °C", "-5 °C"),
    ("flat/1", "User works at Volkswagen AG", " user WORKS at Volkswagen AG "),
    ("flat/1", "C++", "C"),
    ("flat/1", "e\u0301t\u00e9", "\u00c9TE\u0301"),
    ("flat/1", "I\u200b\u0307zmir", "izmir"),
    ("flat/1", "J\u2060\u030c\u11a7", "\u01f0\u11a7"),
    ("code/1", "a\r\nb", "a\rb"),
]

DIFFER = [
    ("prose/1", "C++", "C"),
    ("prose/1", "C++", "C#"),
    ("prose/1", "C#", "C"),
    ("prose/1", "-5", "5"),
    ("prose/1", "$5", "5"),
    ("prose/1", "$5", "€5"),
    ("prose/1", "3 cats", "three cats"),
    ("prose/1", "user does not like dogs", "user does like dogs"),
    ("prose/1", "user likes dogs", "user liked dogs"),
    ("prose/1", "10⁵", "105"),
    ("prose/1", "10⁵", "10₅"),
    ("prose/1", "10⁵6", "10⁵⁶"),
    ("prose/1", "10⁵6", "1056"),
    ("prose/1", "10⁻⁵", "10⁵"),
    ("prose/1", "2³", "23"),
    ("prose/1", "H₂0", "H₂₀"),
    ("prose/1", "1½", "11⁄2"),
    ("prose/1", "½5", "½⁵"),
    ("prose/1", "½5", "1⁄25"),
    ("prose/1", "3.5", "35"),
    ("prose/1", "Straße", "Strasse"),
    ("prose/1", "ılık", "ilik"),
    ("prose/1", "cafe", "café"),
    ("prose/1", "قهـوة", "قهوة"),
    ("prose/1", "می\u200cخواهم", "میخواهم"),
    ("prose/1", "👍🏽", "👍"),
    ("prose/1", "👨\u200d👩", "👨👩"),
    ("prose/1", "darkmode", "dark mode"),
    ("prose/1", "가\u11a7", "가"),
    ("flat/1", "User works at Volkswagen AG", "User works at Volkswagen AG."),
    ("flat/1", "3.5", "35"),
    ("flat/1", "10⁵", "105"),
    ("flat/1", "हिन्दी", "हन्द"),
    ("flat/1", "가\u11a7", "가"),
    ("code/1", "a  b", "a b"),
    ("code/1", "A", "a"),
    ("exact/1", "a\r\nb", "a\nb"),
]


@pytest.mark.parametrize(("profile", "one", "other"), AGREE)
def test_agree(db: Connection, profile: str, one: str, other: str) -> None:
    first, second = canonical(db, profile, [one, other])
    assert first == second


@pytest.mark.parametrize(("profile", "one", "other"), DIFFER)
def test_differ(db: Connection, profile: str, one: str, other: str) -> None:
    first, second = canonical(db, profile, [one, other])
    assert first != second


# All of Unicode 14 ----------------------------------------------------------------------------------------


@cache
def forms_of_code_points(profile: str) -> list[tuple[str, str]]:
    """All characters, alone and between letters, with their forms by the independent computation: for all servers."""
    return [(text, REFERENCE[profile](text)) for char in CHARS for text in (char, f"a{char}b")]


@pytest.mark.parametrize("profile", ["prose/1", "flat/1", "predicate/1"])
def test_every_code_point_alone_and_between_letters(db: Connection, profile: str) -> None:
    expected = forms_of_code_points(profile)
    found = canonical(db, profile, [text for text, _ in expected])
    differing = [(text, form) for (text, wanted), form in zip(expected, found, strict=True) if form != wanted]
    assert len(CHARS) == 144_761
    assert differing == []


@PROPERTY
@given(batch=texts)
def test_any_text_equals_the_independent_computation(db: Connection, batch: list[str]) -> None:
    for profile, reference in REFERENCE.items():
        assert canonical(db, profile, batch) == [reference(text) for text in batch]


@PROPERTY
@given(batch=texts)
def test_canonical_forms_are_fixed_points(db: Connection, batch: list[str]) -> None:
    for profile in ("flat/1", "code/1", "exact/1"):
        once = canonical(db, profile, batch)
        assert canonical(db, profile, once) == once
    # prose/1 takes one mark off the end, not a stack of them: "wait..." -> "wait.." -> "wait."
    for profile in ("prose/1", "predicate/1"):
        once = canonical(db, profile, batch)
        once = [form for form in once if not form.endswith((".", "!", "?", "\u3002"))]
        assert canonical(db, profile, once) == once


@PROPERTY
@given(batch=texts)
def test_canonically_equivalent_texts_agree(db: Connection, batch: list[str]) -> None:
    for profile in ("prose/1", "flat/1"):
        expected = canonical(db, profile, batch)
        for form in ("NFC", "NFD"):
            assert canonical(db, profile, [normalize(form, text) for text in batch]) == expected


@pytest.mark.parametrize("profile", ["prose/1", "flat/1", "predicate/1"])
def test_no_text_differs_by_case_alone(db: Connection, profile: str) -> None:
    graves_to_carons = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c"
    marks = ["", *graves_to_carons, *"\u0313\u0314\u0323\u0328\u0342\u0345"]
    upper: list[str] = []
    lower: list[str] = []
    for capital in CAPITALS:
        for small in {simple_lower(capital), capital.lower()}:
            for mark in marks:
                upper += [capital + mark, normalize("NFC", capital + mark), normalize("NFD", capital + mark)]
                lower += [small + mark, normalize("NFC", small + mark), normalize("NFD", small + mark)]
    assert len(CAPITALS) > 1400
    big, little = canonical(db, profile, upper), canonical(db, profile, lower)
    assert [(u, a, b) for u, a, b in zip(upper, big, little, strict=True) if a != b] == []


@pytest.mark.parametrize("profile", ["prose/1", "flat/1", "predicate/1"])
def test_no_letter_or_digit_vanishes(db: Connection, profile: str) -> None:
    assert len(LETTERS_AND_DIGITS) > 130_000
    forms = canonical(db, profile, LETTERS_AND_DIGITS)
    assert [char for char, form in zip(LETTERS_AND_DIGITS, forms, strict=True) if form == ""] == []


def test_later_letters_do_not_vanish(db: Connection) -> None:
    later = ["\U00031350", "\U00011f04", "\U0001e4d0"]  # assigned by Unicode 15
    assert canonical(db, "flat/1", later) == later


# Arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["memfold.canonicalize", "memfold_internal._canonical"])
def test_null_gives_null(db: Connection, function: str) -> None:
    for profile in ("prose/1", "flat/1", "code/1", "exact/1", "nonsense"):
        assert db.execute(f"select {function}(null, %s)", (profile,)).fetchone() == (None,)
    for text in ("User", "Über"):
        assert db.execute(f"select {function}(%s, null)", (text,)).fetchone() == (None,)


@pytest.mark.parametrize("profile", ["nonsense", "prose", "prose/2", "", "PROSE/1"])
def test_unknown_profile(db: Connection, profile: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        db.execute("select memfold.canonicalize('User', %s)", (profile,))
    assert caught.value.sqlstate == "MF011"
    assert f'"{profile}"' in (caught.value.diag.message_detail or "")
    for known in ("prose/1", "flat/1", "code/1", "exact/1"):
        assert known in (caught.value.diag.message_hint or "")


def test_canonicalize_is_immutable_strict_and_parallel_safe(db: Connection) -> None:
    row = db.execute(
        "select provolatile, proisstrict, proparallel from pg_proc"
        " where oid = 'memfold.canonicalize(text, text)'::regprocedure"
    ).fetchone()
    assert row == ("i", True, "s")


def test_both_entry_points_agree(db: Connection) -> None:
    differing = db.execute(
        "select input from memfold_internal._canonicalizer_golden()"
        " where memfold_internal._canonical(input, profile) is distinct from memfold.canonicalize(input, profile)"
    ).fetchall()
    assert differing == []


# Surroundings ---------------------------------------------------------------------------------------------

SELFTEST = (
    "select profile, input, actual, ok from memfold.canonicalizer_selftest()"
    ' order by profile, input collate "C"'
)


def install(connection: Connection) -> None:
    """The canonicalizer's parts, and nothing else of memfold."""
    connection.execute("create schema memfold; create schema memfold_internal")
    for path in SQL_FILES:
        connection.execute(path.read_text(encoding="utf-8").encode())


@contextmanager
def database(db: Connection, options: str) -> Iterator[Connection]:
    """A separate database on the same server."""
    server = make_conninfo(db.info.dsn, password=db.info.password or None, dbname="postgres")
    name = f"memfold_canonicalizer_{db.info.backend_pid}"
    with psycopg.connect(server, autocommit=True) as maintenance:
        maintenance.execute(f"create database {name} template template0 encoding 'UTF8' {options}".encode())
        try:
            with psycopg.connect(make_conninfo(server, dbname=name), autocommit=True) as connection:
                yield connection
        finally:
            maintenance.execute(f"drop database {name}".encode())


def has_icu(db: Connection) -> bool:
    """Whether the server was built with ICU."""
    row = db.execute("select exists (select from pg_collation where collname = 'tr-x-icu')").fetchone()
    return row is not None and bool(row[0])


def locales(db: Connection) -> list[str]:
    """Options of CREATE DATABASE for every kind of locale that this server has."""
    found = ["locale 'C'"]
    rows = db.execute(
        "select distinct collcollate from pg_collation where collprovider = 'c'"
        " and collcollate ~* '^(C|tr_TR|lt_LT|de_DE|en_US)[.]utf-?8$' order by 1"
    ).fetchall()
    found += [f"locale '{row[0]}'" for row in rows]
    if has_icu(db):
        found += [
            f"locale_provider icu icu_locale '{icu}' locale 'C'"
            for icu in ("tr-TR", "lt-LT", "und-u-ks-level1")
        ]
    if db.info.server_version >= 170000:
        found.append("locale_provider builtin builtin_locale 'C.UTF-8' locale 'C'")
    if db.info.server_version >= 180000:
        found.append("locale_provider builtin builtin_locale 'PG_UNICODE_FAST' locale 'C'")
    return found


def test_same_bytes_under_every_locale(db: Connection) -> None:
    expected = db.execute(SELFTEST.encode()).fetchall()
    options = locales(db)
    assert len(options) >= 2
    for option in options:
        with database(db, option) as other:
            install(other)
            assert other.execute(SELFTEST.encode()).fetchall() == expected, option


def test_same_bytes_under_every_collation_of_the_argument(db: Connection) -> None:
    collations = ["C", "POSIX", "default"]
    with db.transaction(force_rollback=True):
        if has_icu(db):
            db.execute(
                "create collation public.blind"
                " (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
            )
            collations += ["tr-x-icu", "lt-x-icu", "blind"]
        if db.info.server_version >= 180000:
            collations += ["pg_c_utf8", "pg_unicode_fast"]
        for collation in collations:
            schema = "public" if collation == "blind" else "pg_catalog"
            for function in ("memfold.canonicalize", "memfold_internal._canonical"):
                collate = f'collate {schema}."{collation}"'
                wrong = db.execute(
                    "select input from memfold_internal._canonicalizer_golden() where canonical is distinct from"
                    f' {function}(input {collate}, profile {collate}) collate "C"'.encode()
                ).fetchall()
                assert wrong == [], (collation, function)


def test_same_functions_whatever_the_client_sets(db: Connection) -> None:
    expected = db.execute(SELFTEST.encode()).fetchall()
    with database(db, "locale 'C'") as other:
        other.execute("set standard_conforming_strings = off")
        other.execute("set escape_string_warning = off")
        other.execute("set backslash_quote = off")
        install(other)
        assert other.execute(SELFTEST.encode()).fetchall() == expected
        assert all(path.read_text(encoding="utf-8").isascii() for path in VERSION_1)
