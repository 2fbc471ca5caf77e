#!/usr/bin/env python3
"""Write the generated sections of the canonicalizer's SQL files, or check them.

    python tools/gen_canonicalizer.py           # rewrites the text between the markers
    python tools/gen_canonicalizer.py --check   # exit status 1 if a file would change

The data come from Python's unicodedata, which must be Unicode 14.0.0 (Python 3.11): the profiles of version 1 are
frozen at it. After the release only --check is useful; a profile of version 2 gets its own generator. The checksums
of the self-test are computed here, in Python, from `prose_1`, `flat_1` and `predicate_1`, so that they check the SQL
independently.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from unicodedata import category, normalize

UNICODE = "14.0.0"
ROOT = Path(__file__).resolve().parent.parent
DATA_FILE = ROOT / "sql" / "functions" / "11_canonical" / "_data_1.sql"
SELFTEST_FILE = ROOT / "sql" / "functions" / "11_canonical" / "canonicalizer_selftest.sql"

BLOCK = 4096  # code points to a row of the self-test
GROUP = 64  # code points to one text of the self-test

Ranges = list[tuple[int, int]]


def ranges(code_points: Iterable[int]) -> Ranges:
    """Ascending code points as closed ranges."""
    found: Ranges = []
    for point in code_points:
        if found and found[-1][1] == point - 1:
            found[-1] = (found[-1][0], point)
        else:
            found.append((point, point))
    return found


def scalars() -> Iterator[int]:
    """Every code point that a PostgreSQL text can contain."""
    yield from (point for point in range(1, 0x110000) if not 0xD800 <= point <= 0xDFFF)


# Data of version 1 -----------------------------------------------------------------------------------


def fold_pairs() -> list[tuple[str, str]]:
    """Non-ASCII characters and their simple lower case, final sigma included."""
    pairs = {chr(point): chr(point).lower() for point in scalars() if point > 0x7F}
    pairs["\u0130"] = "i"  # the only one whose full mapping (i + dot above) differs from its simple one
    pairs["\u03c2"] = "\u03c3"
    folded = [(capital, small) for capital, small in pairs.items() if capital != small]
    if any(len(small) != 1 for _, small in folded):
        raise ValueError("a lower case of several characters")
    # translate() searches its table from the front: the letters of everyday text first.
    return sorted(folded, key=lambda pair: not re.match("[\u00c0-\u00de\u0391-\u03ab\u0410-\u042f]", pair[0]))


def compatible(tag: str, point: int) -> str | None:
    """The NFKC form of a code point whose decomposition has this tag."""
    return normalize("NFKC", chr(point)) if unicodedata.decomposition(chr(point)).startswith(tag) else None


SIGNS = set("0123456789+=()\u2212")
SUPERSCRIPTS = [point for point in scalars() if compatible("<super>", point) in SIGNS]
SUBSCRIPTS = [point for point in scalars() if compatible("<sub>", point) in SIGNS]
FRACTIONS = [point for point in scalars() if compatible("<fraction>", point) and point != 0x215F]
DIGITS = [
    point
    for point in scalars()
    if normalize("NFKC", chr(point))[0] in "0123456789"
    and point not in {*SUPERSCRIPTS, *SUBSCRIPTS, *FRACTIONS, 0x215F}
]
VARIATION_SELECTORS = {*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
DROPPED = [
    point
    for point in scalars()
    if (
        category(chr(point))[0] in "PSZ"
        or category(chr(point)) in {"Cc", "Cf", "Co"}
        or point in VARIATION_SELECTORS
    )
    and chr(point) != "."
]
ASSIGNED = [point for point in scalars() if category(chr(point)) not in {"Cn", "Co"}]
PAIRS = fold_pairs()


# The profiles, a second time --------------------------------------------------------------------------

FOLD = {ord(capital): small for capital, small in PAIRS} | {point: chr(point + 32) for point in range(65, 91)}
WHITE_SPACE = "\t\n\v\f\r \x85\u1680\u2028\u2029"


def character_class(code_points: list[int]) -> str:
    """The inside of a Python bracket expression."""
    return "".join(f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in ranges(code_points))


RUN_OF_SUPERSCRIPTS = re.compile(f"([{character_class(SUPERSCRIPTS)}]+)")
RUN_OF_SUBSCRIPTS = re.compile(f"([{character_class(SUBSCRIPTS)}]+)")
FRACTION = re.compile(f"([{character_class(FRACTIONS)}\u215f])")
BEFORE_DIGIT = re.compile(
    f"([{character_class(SUPERSCRIPTS)}{character_class(SUBSCRIPTS)}{character_class(FRACTIONS)}])"
    f"(?=[{character_class(DIGITS)}])"
)
DROPPED_RUN = re.compile(f"[{character_class(DROPPED)}]+")


def fold_1(text: str) -> str:
    """Lower case of a text in NFC or NFKC, in the same form."""
    return normalize("NFC", re.sub("([i\u012f\u1e2d\u1ecb])\u0307+", r"\1", text.translate(FOLD)))


# Typographic quotes and dashes.
PLAIN = str.maketrans(
    "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2010\u2012\u2013\u2014\u2015\u2212",
    "''''\"\"\"\"------",
)


def prose_1(text: str) -> str:
    """Profile prose/1."""
    text = re.sub("[\u00ad\u200b\u2060\ufeff]", "", text)
    text = RUN_OF_SUPERSCRIPTS.sub(r"^\1", text)
    text = RUN_OF_SUBSCRIPTS.sub(r"_\1", text)
    text = FRACTION.sub(r" \1", text)
    text = BEFORE_DIGIT.sub(r"\1 ", text)
    text = fold_1(normalize("NFKC", text)).translate(PLAIN)
    text = re.sub(f"[{WHITE_SPACE}]+", " ", text).strip(" ")
    return text[:-1].rstrip(" ") if text.endswith((".", "!", "?", "\u3002")) else text


def flat_1(text: str) -> str:
    """Profile flat/1."""
    return fold_1(normalize("NFC", DROPPED_RUN.sub("", normalize("NFC", text))))


def predicate_1(text: str) -> str:
    """Profile predicate/1."""
    parted = re.sub("([A-Z])([A-Z][a-z][a-z])", r"\1 \2", re.sub("([a-z])([A-Z])", r"\1 \2", text))
    return prose_1(re.sub("[_-]", " ", prose_1(parted))) or prose_1(text)


# SQL --------------------------------------------------------------------------------------------------


def escaped(point: int) -> str:
    """A code point inside E'...'; ASCII as an escape of the regexp, where some of it has a meaning."""
    if point < 0x80:
        return f"\\\\u{point:04X}"
    return f"\\u{point:04X}" if point < 0x10000 else f"\\U{point:08X}"


def literal(parts: Iterable[str], indent: str = "    ") -> str:
    """An E'...' literal, continued over lines of at most 120 characters, that never breaks a part."""
    lines: list[str] = []
    line = ""
    for part in parts:
        if len(indent) + len(line) + len(part) > 116:
            lines.append(line)
            line = ""
        line += part
    lines.append(line)
    return "E'" + f"'\n{indent} '".join(lines) + "'"


def class_parts(code_points: list[int]) -> Iterator[str]:
    """The inside of a PostgreSQL bracket expression."""
    for low, high in ranges(code_points):
        yield escaped(low) if low == high else f"{escaped(low)}-{escaped(high)}"


def data_function(name: str, parts: Iterable[str], comment: str) -> str:
    """A function that returns one constant, which callers inline."""
    return (
        f"-- {comment}\n"
        f"create or replace function memfold_internal.{name}() returns text\n"
        f"immutable parallel safe\n"
        f"return\n    {literal(parts)};\n"
    )


def data_section() -> str:
    """The data functions of version 1."""
    return "\n".join(
        [
            f"-- Data of Unicode {UNICODE}. Classes are written as the inside of a bracket expression.\n",
            data_function(
                "_superscripts_1", class_parts(SUPERSCRIPTS), "Superscript digits and their signs."
            ),
            data_function("_subscripts_1", class_parts(SUBSCRIPTS), "Subscript digits and their signs."),
            data_function("_fractions_1", class_parts(FRACTIONS), "Vulgar fractions."),
            data_function(
                "_digits_1",
                class_parts(DIGITS),
                "All other characters whose NFKC form begins with a digit 0 to 9.",
            ),
            data_function(
                "_capitals_1",
                class_parts(sorted(ord(capital) for capital, _ in PAIRS)),
                f"The {len(PAIRS)} characters of the fold table.",
            ),
            data_function(
                "_fold_from_1",
                (escaped(ord(capital)) for capital, _ in PAIRS),
                "The fold table, capitals: all characters outside ASCII with a simple lower case, and final sigma.",
            ),
            data_function(
                "_fold_to_1",
                (small if small.isascii() else escaped(ord(small)) for _, small in PAIRS),
                "The fold table, small letters: the lower case of each, at the same position.",
            ),
            data_function("_dropped_1", class_parts(DROPPED), "The characters that flat/1 removes."),
        ]
    )


def block_checksum(profile: str, points: list[int]) -> str:
    """SHA-256 over the canonical forms of the block's texts."""
    canonical = {"prose/1": prose_1, "flat/1": flat_1, "predicate/1": predicate_1}[profile]
    texts = []
    for group in sorted({point // GROUP for point in points}):
        members = [chr(point) for point in points if point // GROUP == group]
        texts.append(canonical(" ".join(f"{member} a{member}b" for member in members)))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def assigned_function() -> str:
    """The code points that the self-test may rely on."""
    items = [f"[{low},{high}]" for low, high in ranges(ASSIGNED)]
    parts = [item + "," for item in items[:-1]] + [items[-1]]
    return (
        f"-- The {len(ASSIGNED)} code points that Unicode {UNICODE} assigns, without private use and U+0000.\n"
        "create or replace function memfold_internal._canonicalizer_assigned() returns int4multirange\n"
        "immutable parallel safe\n"
        f"return\n    {literal(['{', *parts, '}'])}::int4multirange;\n"
    )


def checksum_function() -> str:
    """The expected checksums."""
    blocks: dict[int, list[int]] = {}
    for point in ASSIGNED:
        blocks.setdefault(point // BLOCK, []).append(point)
    rows = [
        f"    ('{profile}', {block * BLOCK}, '{block_checksum(profile, points)}')"
        for profile in ("prose/1", "flat/1", "predicate/1")
        for block, points in blocks.items()
    ]
    return (
        f"-- SHA-256 over the canonical forms of each block of {BLOCK} code points.\n"
        "create or replace function memfold_internal._canonicalizer_checksums()\n"
        "returns table (profile text, first_code_point integer, checksum text)\n"
        "language sql immutable parallel safe\n"
        "set search_path = pg_catalog, pg_temp\n"
        "as $$\nvalues\n" + ",\n".join(rows) + "\n$$;\n"
    )


def selftest_section() -> str:
    """The frozen data of the self-test."""
    return assigned_function() + "\n" + checksum_function()


BEGIN, END = "-- begin generated by tools/gen_canonicalizer.py\n", "-- end generated\n"


def with_section(text: str, section: str) -> str:
    """The file's text with its generated section replaced."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return head + BEGIN + section + END + tail


def main() -> int:
    """Write or check; the exit status."""
    parser = argparse.ArgumentParser(
        description="Write the generated sections of the canonicalizer's SQL files."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    check = parser.parse_args().check
    if unicodedata.unidata_version != UNICODE:
        print(f"needs Unicode {UNICODE}, this Python has {unicodedata.unidata_version}", file=sys.stderr)
        return 2
    stale = False
    for path, section in ((DATA_FILE, data_section()), (SELFTEST_FILE, selftest_section())):
        old = path.read_text(encoding="utf-8")
        new = with_section(old, section)
        if old == new:
            continue
        stale = True
        print(f"{path.relative_to(ROOT)}: {'differs' if check else 'written'}", file=sys.stderr)
        if not check:
            path.write_text(new, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
