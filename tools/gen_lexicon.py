#!/usr/bin/env python3
"""Write the lexicon of the guard's rule of substitutions, or check it.

    python tools/gen_lexicon.py --wordnet /usr/share/wordnet --counts frequency_dictionary_en_82_765.txt
    python tools/gen_lexicon.py --check     # exit status 1 if the data were changed by hand

It reads WordNet 3.0 (Debian's package `wordnet-base`: data.*, index.*, *.exc, cntlist.rev) and keeps the commonest
words that are written as one: by WordNet's own tag counts and those of `symspellpy` (MIT; made of Google Books Ngram,
CC BY 3.0, and SCOWL), from which only the order of words is taken. WordNet's licence: LICENSE-WordNet, whose text is
in the SQL.

The output has one entry per word, `word:senses:near:opposites`. A sense is the number of a WordNet synset; near are
the synsets that its senses have as direct hypernyms, as derivations, or, of an adjective, as the one that it is
similar to. Two words say about the same if they share a sense, or a sense of one is near the other. A number that
does not connect two words is left out. An irregular form has the numbers of its words.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SQL = ROOT / "sql" / "schema" / "01.00.00_22_lexicon.sql"
FILES = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
COMMONEST = 30_000
WIDTH = 6000  # bytes of a line: few lines, none too long for an editor

Synset = tuple[str, str]  # part of speech, offset

# Words that WordNet treats as synonyms or as near, but that differ in memories: units, rates, modal verbs, frequencies.
# Those joined by a slash say the same; none has anything to do with any other word. (Quantities and former states pass
# here, because _guard_says tells them apart.)
APART = """
    millisecond/ms second/sec minute/min hour/hr/hourly day/daily week/wk/weekly fortnight/fortnightly/biweekly
    month/monthly bimonthly quarter/quarterly year/yr/yearly/annual/annually decade century millennium moment/instant
    inch foot yard mile metre/meter kilometre/kilometer/km centimetre/centimeter/cm millimetre/millimeter/mm
    gram/gramme kilogram/kilogramme/kilo/kg milligram/mg tonne ton pound/lb ounce/oz litre/liter millilitre/milliliter/ml
    gallon pint quart cup tablespoon/tbsp teaspoon/tsp bit byte kilobyte/kb megabyte/mb gigabyte/gb terabyte/tb petabyte/pb
    watt kilowatt volt ampere hertz/hz megahertz/mhz gigahertz/ghz degree percent/percentage celsius/centigrade fahrenheit
    acre hectare dozen hundred thousand million billion trillion half
    morning noon/midday afternoon evening night/nightly midnight monday tuesday wednesday thursday friday saturday sunday
    may might must shall should will would can could need/require want/desire wish/hope plan/intend consider
    try/attempt expect allow/permit/let forbid/prohibit/ban recommend/suggest/advise
    possible/potential probable/likely certain/definite
    optional/voluntary mandatory/compulsory/obligatory maybe/perhaps/possibly probably/presumably definitely/certainly/surely
    always/constantly usually/normally/generally/typically/mostly/mainly/especially/particularly
    often/frequently sometimes/occasionally rarely/seldom never
    almost/nearly barely/hardly/scarcely already still yet now/currently/presently
    then soon later/afterwards today tomorrow yesterday tonight
    some/few/several/many/numerous/more/most/all/every/each/any/both/least/minimum/maximum/max/up former/ex/previous/past
    staging vegan vegetarian start/begin/commence stop/cease finish/complete continue/proceed pause resume
""".split()  # noqa: SIM905

# What WordNet lacks: words of everyday talk and of software.
ADDED = """
    mom/mum/mother/mommy tv/television phone/telephone/smartphone/cellphone app/application repo/repository
    config/configuration docs/documentation env/environment db/database auth/authentication dev/development prod/production
    own/keep boss/manager like/love/enjoy/adore/fancy/relish keen/fond work/optimal/best most/best twice/times thrice/times
    wood/wooden wool/woolen/woollen gold/golden silk/silken param/parameter login/signin spec/specification
    admin/administrator async/asynchronous sync/synchronize veggie/vegetable
""".split()  # noqa: SIM905

# Function words, which WordNet does not list: they show that a text is English.
GRAMMAR = """
    the and of to that with from for by is are was were be been has had have does did do his her its their our your my
    this these those which who whom whose what when where while if than then because although though but or nor not
    he she it they we you him them us me i into onto upon about under over between during through against without within
    would should could must shall will can may might there here also only very just such as at on in an a so no yes
    user users prefers likes uses
""".split()  # noqa: SIM905

# Function words of other languages that WordNet happens to list ("la": a note): they show that a text is not English.
FOREIGN = """
    al ama ancora bebe con da das de den der des di dos du el en est et la las le les los lo mag ma mi mis mit ne non nos o
    os pas per por que se si su sur te tu un una und van von como che sera dans dem ist zu zum
""".split()  # noqa: SIM905

# As in memfold_internal._guard_lemmas: ending, replacement. (Words that the rules find need no row of their own.)
ENDINGS = (
    ("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("ed", ""), ("ed", "e"), ("ied", "y"),
    ("ing", ""), ("ing", "e"), ("er", ""), ("er", "e"), ("ier", "y"), ("est", ""), ("est", "e"), ("iest", "y"),
)  # fmt: skip


def lemmas(word: str) -> set[str]:
    """The possible base forms of a regular form."""
    found = {word}
    for ending, instead in ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2:
            found.add(stem + instead)
            if ending in ("ed", "ing", "er", "est") and not instead and stem[-1] == stem[-2]:
                found.add(stem[:-1])
    return found


@dataclass
class Entry:
    """The senses of a word: numbers, or synsets that do not have one yet."""

    senses: set[Synset] = field(default_factory=set)
    near: set[Synset] = field(default_factory=set)
    opposites: set[Synset] = field(default_factory=set)

    def add(self, other: Entry) -> None:
        self.senses |= other.senses
        self.near |= other.near
        self.opposites |= other.opposites


@dataclass
class WordNet:
    senses: dict[str, list[Synset]]
    words: dict[Synset, list[str]]
    pointers: dict[Synset, list[tuple[str, Synset, int]]]
    irregular: dict[str, set[tuple[str, str]]]
    tags: Counter[str]

    @classmethod
    def read(cls, folder: Path) -> WordNet:
        found = cls(defaultdict(list), {}, {}, defaultdict(set), Counter())
        for name, kind in FILES.items():
            for line in lines(folder / f"data.{name}"):
                fields = line.partition(" | ")[0].split()
                count = int(fields[3], 16)
                synset = (kind, fields[0])
                found.words[synset] = [
                    re.sub(r"\(\w+\)$", "", fields[4 + 2 * place]).lower() for place in range(count)
                ]
                at = 5 + 2 * count
                # of each pointer: its kind, its target, and the word of the synset that it is for (0: all of them)
                found.pointers[synset] = [
                    (fields[p], (fields[p + 2].replace("s", "a"), fields[p + 1]), int(fields[p + 3][:2], 16))
                    for p in range(at, at + 4 * int(fields[at - 1]), 4)
                ]
            for line in lines(folder / f"index.{name}"):
                fields = line.split()
                found.senses[fields[0]] += [(kind, offset) for offset in fields[-int(fields[2]) :]]
            for line in lines(folder / f"{name}.exc"):
                form, *of = line.split()
                found.irregular[form] |= {(kind, word) for word in of}
        for line in lines(folder / "cntlist.rev"):
            key, _, count_of = line.split()
            found.tags[key.partition("%")[0]] += int(count_of)
        return found

    def entry(self, word: str, kind: str | None = None) -> Entry:
        entry = Entry()
        for synset in self.senses.get(word, ()):
            if kind not in (None, synset[0]):
                continue
            entry.senses.add(synset)
            place = self.words[synset].index(word) + 1 if word in self.words[synset] else 0
            for pointer, target, of in self.pointers[synset]:
                if pointer in ("@", "@i", "&") or (pointer in ("+", "\\") and of in (0, place)):
                    entry.near.add(target)
                elif pointer == "!" and of in (0, place):
                    entry.opposites.add(target)
        return entry


def lines(file: Path) -> Iterable[str]:
    return (line for line in file.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != " ")


def entries(wordnet: WordNet, counts: Counter[str], commonest: int) -> dict[str, Entry]:
    """The commonest words, their irregular forms, and the additions of this file."""
    plain = sorted(word for word in wordnet.senses if re.fullmatch("[a-z]+", word))
    plain.sort(key=lambda word: -(counts[word] + wordnet.tags[word]))
    found = {word: wordnet.entry(word) for word in plain[:commonest]}
    apart = {
        word: Entry(senses={("apart", str(place))})
        for place, group in enumerate(APART)
        for word in group.split("/")
    }
    for form, of in wordnet.irregular.items():
        irregular = {(kind, word) for kind, word in of if word in found and word not in lemmas(form)}
        if irregular and re.fullmatch("[a-z]+", form):
            entry = found.setdefault(form, Entry())
            for kind, word in irregular:
                entry.add(apart.get(word) or wordnet.entry(word, kind))
    found |= apart
    for place, group in enumerate(ADDED):
        said = group.split("/")
        shared = ("added", str(place))
        for word in said:
            found.setdefault(word, Entry()).senses.add(shared)
    for word in GRAMMAR:
        found.setdefault(word, Entry())
    for word in FOREIGN:
        found.pop(word, None)
    return found


def numbered(found: dict[str, Entry]) -> list[str]:
    """The entries as text. Numbers that connect no two words are left out; the most used ones are shortest."""
    said: Counter[Synset] = Counter()
    beside: Counter[Synset] = Counter()
    against: Counter[Synset] = Counter()
    for entry in found.values():
        said.update(entry.senses)
        beside.update(entry.near - entry.senses)
        against.update(entry.opposites)
    used: Counter[Synset] = Counter()
    kept: dict[str, tuple[set[Synset], ...]] = {}
    for word, entry in found.items():
        kept[word] = (
            {sense for sense in entry.senses if said[sense] > 1 or beside[sense] or against[sense]},
            {sense for sense in entry.near - entry.senses if said[sense]},
            {sense for sense in entry.opposites if said[sense]},
        )
        for senses in kept[word]:
            used.update(senses)
    order = sorted(used, key=lambda sense: (-used[sense], sense))
    numbers = {sense: place for place, sense in enumerate(order, 1)}
    if len(numbers) > 32_767:
        raise SystemExit(f"{len(numbers)} senses are more than a smallint can number: take fewer words")
    written = []
    for word in sorted(kept):
        parts = (",".join(map(str, sorted(numbers[sense] for sense in senses))) for senses in kept[word])
        written.append(":".join((word, *parts)).rstrip(":"))
    return written


def wrapped(written: Iterable[str]) -> str:
    """Entries between single spaces, in lines of about WIDTH bytes."""
    rows: list[str] = []
    row: list[str] = []
    width = 0
    for entry in written:
        if width + len(entry) > WIDTH:
            rows.append(" ".join(row))
            row, width = [], 0
        row.append(entry)
        width += len(entry) + 1
    return "\n".join([*rows, " ".join(row)])


def checksum(data: str) -> str:
    return hashlib.sha256(data.encode()).hexdigest()


def replaced(sql: str, data: str) -> str:
    sql, count = re.subn(
        r"(?<=\$lexicon\$\n).*?(?=\n\$lexicon\$)", lambda _: data, sql, count=1, flags=re.DOTALL
    )
    sql, also = re.subn(r"(?m)^-- SHA-256 .*$", f"-- SHA-256 {checksum(data)}", sql, count=1)
    if (count, also) != (1, 1):
        raise SystemExit(f"{SQL}: no data between $lexicon$, or no line of their SHA-256")
    return sql


def faults(sql: str) -> list[str]:
    """Errors in the data of the file, no matter who made them."""
    found = re.search(r"^-- SHA-256 (\w+)$.*?\$lexicon\$\n(.*?)\n\$lexicon\$", sql, re.DOTALL | re.MULTILINE)
    if found is None:
        return ["no data between $lexicon$, or no line of their SHA-256"]
    written = found[2].split()
    words = [entry.partition(":")[0] for entry in written]
    wrong = []
    if checksum(found[2]) != found[1]:
        wrong.append("the data were changed after they were written: their SHA-256 differs")
    if words != sorted(set(words)):
        wrong.append("words are not sorted, or not distinct")
    wrong += [
        f"no entry: {entry}"
        for entry in written
        if not re.fullmatch(r"[a-z]+(:[0-9,]*){0,3}", entry) or re.search(r",,|:,|,:|,$|:$", entry)
    ]
    return wrong


def read_counts(file: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in file.read_text(encoding="utf-8-sig").splitlines():
        word, count = line.split()
        found[word] = int(count)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wordnet", type=Path, help="where WordNet's files are")
    parser.add_argument("--counts", type=Path, help="how often a word is written: word and count a line")
    parser.add_argument(
        "--commonest", type=int, default=COMMONEST, help="how many words (default: %(default)s)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; with WordNet, compare as well")
    given = parser.parse_args()
    if (given.wordnet is None) != (given.counts is None) or (given.wordnet is None and not given.check):
        parser.error("--wordnet and --counts go together; without them there is --check alone")
    sql = SQL.read_text()
    wrong = faults(sql) if given.check else []
    if given.wordnet is not None:
        found = entries(WordNet.read(given.wordnet), read_counts(given.counts), given.commonest)
        made = replaced(sql, wrapped(numbered(found)))
        if not given.check:
            SQL.write_text(made)
        elif made != sql:
            wrong.append("WordNet yields other data")
    if wrong:
        sys.exit("\n".join(f"{SQL.relative_to(ROOT)}: {fault}" for fault in wrong))


if __name__ == "__main__":
    main()
