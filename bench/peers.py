"""How fast are other memory stores with the same vectors, and how many duplicates do they keep?"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import dataset
import harness
import load
import numpy as np

from memfold import Embedder, Memfold
from memfold.client.judging import Answer, Question
from memfold.client.judging.worker import Worker

if TYPE_CHECKING:
    from peer_stores import Fact, Known

PACKAGES = ("mem0", "langchain_postgres", "langchain_classic", "langmem", "langgraph.store.postgres")
NEEDS = "pip install mem0ai langchain-postgres langchain-classic langmem langgraph-checkpoint-postgres"

OFF = "synchronous_commit=off"
SETTINGS = ("durable", OFF)
SLOW = 5  # a peer that takes this many times longer gets this many times fewer facts per round
WARM = 20
REPLAYS = 668
WRITERS, SHARED = 16, 50
PAIRS = 100
APART = 0.8  # unique facts are further apart than this
JUDGE_SECONDS = 0.2
MIX = {"known text": 0.5, "new fact": 0.25, "paraphrase": 0.15, "unclear": 0.1}
STREAM = 400


class MissingError(Exception):
    """The peers are not installed; the message says which."""


def missing() -> list[str]:
    """Missing packages that this question needs."""

    def there(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    return [name for name in PACKAGES if not there(name)]


# What is said -----------------------------------------------------------------------------------------------


@dataclass
class Workloads:
    """Facts of real texts and vectors; restated ones have vectors near these."""

    warm: list[Fact]
    unique: list[Fact]
    paraphrased: list[Fact]  # facts, then texts that say the same: above the merge threshold, then below
    contradicted: list[Fact]  # facts, then texts that differ in a number or by a negation, above it

    @property
    def facts(self) -> dict[str, Fact]:
        return {fact.text: fact for fact in (*self.warm, *self.unique, *self.paraphrased, *self.contradicted)}


def workloads(data: dataset.Dataset, count: int) -> Workloads:
    """Texts chosen so that no two are near one another, and variants of the first ones."""
    from peer_stores import Fact

    vectors = np.array(data.real_vectors[: 6 * (count + WARM)])
    chosen: list[int] = []
    for i, vector in enumerate(vectors):
        if len(chosen) < count + WARM and (not chosen or (vectors[chosen] @ vector).max() < APART):
            chosen.append(i)
    texts = [data.real_texts[i] for i in chosen]

    def made(text: str, vector: Any, same: str, place: int = 0) -> Fact:
        return Fact(text, vector.tolist(), same, f"Topic {place % (count // load.SCOPE)}")

    every = [made(t, vectors[i], t, n) for n, (t, i) in enumerate(zip(texts, chosen, strict=True))]
    centre = vectors[chosen[:PAIRS]]
    half = PAIRS // 2
    near = np.concatenate(
        [
            load.around(centre[n : n + 1], cosine, seed=n)
            for n, cosine in enumerate([*np.linspace(0.955, 0.99, half), *np.linspace(0.865, 0.905, half)])
        ]
    )
    opposite = np.concatenate(
        [
            load.around(centre[n : n + 1], c, seed=n + PAIRS)
            for n, c in enumerate(np.linspace(0.96, 0.99, PAIRS))
        ]
    )
    first = texts[:PAIRS]
    paraphrased = [made(t, v, t) for t, v in zip(first, centre, strict=True)]
    paraphrased += [made(f"{t}, as we know", v, t) for t, v in zip(first, near, strict=True)]
    number = [(f"Installed on 3 hosts: {t}", f"Installed on 5 hosts: {t}") for t in first[:half]]
    negation = [(f"The user runs this: {t}", f"The user does not run this: {t}") for t in first[half:]]
    contradicted = [
        made(pair[side], vector, pair[side])
        for side, given in enumerate((centre, opposite))
        for pair, vector in zip([*number, *negation], given, strict=True)
    ]
    return Workloads(every[count:], every[:count], paraphrased, contradicted)


# Who is asked -----------------------------------------------------------------------------------------------


class Ours:
    """memfold's client with its defaults and the embedder of the peers, which it asks if tier 1 does not know the text."""

    name = "memfold"
    texts = "select content from memfold.memories where status in ('active', 'superseded')"
    subjects = False

    def __init__(self, dsn: str, known: Known) -> None:
        embedder = Embedder(known.embed_documents, model=harness.MODEL, dimensions=dataset.DIMENSIONS)
        self.client = Memfold(dsn, harness.TENANT, embedder)

    def _fields(self, fact: Fact) -> dict[str, Any]:
        return {"subject": fact.subject} if self.subjects else {}

    def add(self, fact: Fact) -> None:
        self.client.ingest(fact.text, **self._fields(fact))

    def add_many(self, facts: Sequence[Fact]) -> None:
        for item in self.client.ingest_many({"content": f.text, **self._fields(f)} for f in facts):
            assert item.error is None

    def close(self) -> None:
        self.client.close()


class OursBySubject(Ours):
    """The same with the subjects of the facts, of which each has 20."""

    subjects = True


@dataclass
class Measured:
    """Facts per second, CPU time per fact in microseconds (client, server), rows left."""

    rate: float
    client: float
    server: float
    left: int


@dataclass
class Way:
    """One way to pass facts to a store."""

    name: str
    store: Any
    many: bool = False
    least: int = 1  # it gets one fact in this many
    instead_of: Any = None  # the framework's own store, for a way through its interface
    measured: dict[str, list[Measured]] = field(default_factory=dict)
    left: str = ""

    def __call__(self, store: Any, facts: Sequence[Fact]) -> None:
        if self.many:
            store.add_many(facts)
        else:
            for fact in facts:
                store.add(fact)


def ways() -> list[Way]:
    """memfold's first way of each kind, with which the others are compared."""
    import peer_adapters as a
    import peer_stores as p

    return [
        Way("memfold, ingest", Ours),
        Way("memfold, ingest with subject", OursBySubject),
        Way(f"{p.Mem0.name}, add(infer=False)", p.Mem0),
        Way(f"{p.Mem0.name}, add()", p.Mem0Infer),
        Way(f"{p.LangchainVector.name}, PGVector", p.LangchainVector),
        Way(f"{p.LangchainVector.name}, PGVectorStore", p.LangchainStore),
        Way(f"{p.LangchainVector.name}, index()", p.LangchainIndex),
        Way(f"{p.Langmem.name}, store manager", p.Langmem, least=SLOW),
        Way(f"{p.Langgraph.name}, put()", p.Langgraph),
        Way("memfold in LangChain", a.InLangchain, instead_of=p.LangchainStore),
        Way("memfold in LangGraph, put()", a.InLanggraph, instead_of=p.Langgraph),
        Way("memfold, ingest_many", Ours, many=True),
        Way("memfold, ingest_many with subject", OursBySubject, many=True),
        Way(f"{p.LangchainVector.name}, PGVector, all at once", p.LangchainVector, many=True),
        Way(f"{p.LangchainVector.name}, PGVectorStore, all at once", p.LangchainStore, many=True),
        Way(f"{p.LangchainVector.name}, index(), all at once", p.LangchainIndex, many=True),
        Way("memfold in LangChain, all at once", a.InLangchain, many=True, instead_of=p.LangchainStore),
    ]


@dataclass
class Bench:
    """One server, the facts, and an empty database for the next one."""

    server: harness.Server
    work: Workloads
    known: Known
    database: str = "peers"

    def dsn(self, way: Way) -> str:
        ours = issubclass(way.store, Ours)
        return self.server.dsn(self.database, harness.APPLICATION if ours else "postgres")

    def fresh(self, way: Way, setting: str = "durable") -> Any:
        """A store in a separate database, warm."""
        ours = issubclass(way.store, Ours)
        self.server.create(self.database, harness.INSTALLED if ours else "template1")
        with self.server.connect(self.database) as connection:
            connection.execute("create extension if not exists vector")
            commit = "on" if setting == "durable" else "off"
            connection.execute(f"alter database {self.database} set synchronous_commit = {commit}".encode())
        store = way.store(self.dsn(way), self.known)
        way(store, self.work.warm)
        return store

    def server_cpu(self) -> float:
        """CPU time of all backends of the database so far, in microseconds."""
        with self.server.connect() as connection:
            rows = connection.execute(
                "select pid from pg_stat_activity where datname = %s", [self.database]
            ).fetchall()
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for (pid,) in rows) / 1000

    def left(self, way: Way) -> Counter[str]:
        """The texts that a search could show, or that are kept as history."""
        warm = {fact.text for fact in self.work.warm}
        with self.server.connect(self.database) as connection:
            rows = connection.execute(way.store.texts).fetchall()
        return Counter(text for (text,) in rows if text not in warm)

    def timed(self, way: Way, facts: Sequence[Fact], setting: str = "durable") -> Measured:
        """One client, these facts."""
        store = self.fresh(way, setting)
        try:
            server, client, begun = self.server_cpu(), time.process_time(), time.perf_counter()
            way(store, facts)
            taken, count = time.perf_counter() - begun, len(facts)
            client = (time.process_time() - client) * 1e6 / count
            server = (self.server_cpu() - server) / count
            return Measured(count / taken, client, server, self.left(way).total())
        finally:
            store.close()

    def speed(self, all_ways: Sequence[Way], facts: Sequence[Fact], rounds: int) -> None:
        """Measure all ways, in turns."""
        for turn in range(rounds):
            for setting in SETTINGS:
                for place in range(len(all_ways)):
                    way = all_ways[
                        (place + turn) % len(all_ways)
                    ]  # so that no way always runs after the same one
                    given = facts[:: way.least]
                    found = self.timed(way, given, setting)
                    way.measured.setdefault(setting, []).append(found)
                    way.left = f"{found.left:,} of {len(given):,}"

    def together(self, way: Way, facts: Sequence[Fact]) -> tuple[int, int]:
        """Rows left after 16 clients state the same at the same time, and their errors."""
        store = self.fresh(way)
        store.close()
        start = threading.Barrier(WRITERS)
        errors: list[str] = []

        def write() -> None:
            mine = way.store(self.dsn(way), self.known)
            for fact in facts:
                start.wait()
                try:
                    mine.add(fact)
                except Exception as error:
                    errors.append(str(error))
            mine.close()

        threads = [threading.Thread(target=write) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.left(way).total(), len(errors)

    def pairs(self, way: Way, facts: Sequence[Fact], judge: Any = None) -> Counter[str]:
        """Rows left of facts and variants, after memfold's worker if there is a judge."""
        store = self.fresh(way)
        try:
            way(store, facts)
            if judge is not None:
                worker = Worker(self.dsn(way), judge, tenant_id=harness.TENANT)
                asyncio.run(worker.run(until_idle=True))
            return self.left(way)
        finally:
            store.close()


class Faultless:
    """A judge that knows what says the same, as the model's double of the peers does."""

    def __init__(self, known: Known, seconds: float = 0) -> None:
        self.known = known
        self.seconds = seconds

    async def judge(self, question: Question) -> Answer:
        await asyncio.sleep(self.seconds)
        a, b = (self.known.facts[side.content].same for side in (question.memory, question.other))
        return Answer("duplicate" if a == b else "contradiction", 1.0)


# The sources' own figures -----------------------------------------------------------------------------------


def latencies(bench: Bench) -> dict[str, list[float]]:
    """Milliseconds of each call of one client, scopes of 20; one in ten asks a judge and waits."""
    from peer_stores import Fact

    rng = np.random.default_rng(1)
    base = bench.work.unique
    kinds = rng.permutation([kind for kind, share in MIX.items() for _ in range(round(share * STREAM))])
    stored, new = base[: len(base) // 2], base[len(base) // 2 :]
    facts: list[Fact] = []
    for n, kind in enumerate(kinds):
        fact = stored[int(rng.integers(len(stored)))] if kind == "known text" else stored[n % len(stored)]
        if kind == "new fact":
            fact = new[n % len(new)]
            fact = Fact(f"{fact.text} ({n})", fact.vector, f"{fact.same} ({n})", fact.subject)
            if n >= len(new):
                continue
        elif kind != "known text":
            cosine = 0.97 if kind == "paraphrase" else 0.885
            near = load.around(np.array([fact.vector]), cosine, seed=n)[0]
            fact = Fact(f"{fact.text}, as we know", near.tolist(), fact.same, fact.subject)
        facts.append(fact)
    known = type(bench.known)(bench.work.facts | {fact.text: fact for fact in facts})
    bench.server.install(bench.database)
    dsn = bench.server.dsn(bench.database, harness.APPLICATION)
    taken: dict[str, list[float]] = {}
    with Memfold(dsn, tenant_id=harness.TENANT, judge=Faultless(known, JUDGE_SECONDS)) as client:
        fields: dict[str, Any] = {"predicate": "note", "embedding_model": harness.MODEL}
        for fact in stored:
            client.ingest(fact.text, subject=fact.subject, embedding=fact.vector, **fields)
        for fact in facts:
            begun = time.perf_counter()
            result = client.ingest(
                fact.text, subject=fact.subject, embedding=fact.vector, wait=True, **fields
            )
            spent = (time.perf_counter() - begun) * 1000
            tier = "3" if result.action == "escalated" else "1" if result.tier == 1 else "2"
            taken.setdefault(f"tier {tier}", []).append(spent)
            taken.setdefault("all", []).append(spent)
    return taken


def run(server: harness.Server, data: dataset.Dataset, *, rounds: int, facts: int) -> harness.Report:
    """Measure, and compare with the target."""
    if lacking := missing():
        raise MissingError(f"not installed: {', '.join(lacking)} ({NEEDS})")
    from peer_stores import Known

    report = harness.Report("peers", "Other stores of memories, on the same server with the same vectors")
    work = workloads(data, facts)
    bench = Bench(server, work, Known(work.facts))
    all_ways = ways()
    result: dict[str, Any] = {}

    bench.speed(all_ways, work.unique, rounds)
    report.table(
        f"{facts:,} unique facts of one user, {len(work.unique[0].vector)} dimensions, one client: facts a second"
        " (medians), and memfold's like way over it. No vector and no answer of a model is waited for.",
        ["", *(head for setting in SETTINGS for head in (setting, "memfold's / its")), "rows left"],
        [
            [
                way.name,
                *(cell for setting in SETTINGS for cell in _compared(way, all_ways, setting)),
                way.left,
            ]
            for way in all_ways
        ],
    )
    report.table(
        f"CPU time of a fact in us ({OFF}, medians), which other work on the machine does not lengthen so much:",
        ["", "client", "server", "both", "its / memfold's"],
        [[way.name, *_cpu(way, all_ways)] for way in all_ways],
    )
    report.table(
        "memfold behind a framework's interface, over what the framework has of its own (unique facts a second, as above):",
        ["", "over", *SETTINGS],
        [[ours.name, own.name, *_over(ours, own)] for ours, own in _framed(all_ways)],
    )
    result["unique"] = {
        way.name: {setting: [vars(one) for one in found] for setting, found in way.measured.items()}
        for way in all_ways
    }

    singles = [way for way in all_ways if not way.many and way.store is not OursBySubject]
    rows = []
    for way in singles:
        replayed = bench.timed(way, [work.unique[0]] * REPLAYS, OFF)
        shared, errors = bench.together(way, work.unique[:SHARED])
        plain = bench.pairs(way, work.paraphrased).total()
        against = bench.pairs(way, work.contradicted)
        rows.append([way.name, f"{replayed.rate:,.0f}", replayed.left, f"{shared}{f' ({errors} errors)' * bool(errors)}",
                     plain, against.total(), sum(n == 1 for n in against.values())])  # fmt: skip
        result[way.name] = rows[-1][1:]
        print(rows[-1], flush=True)
    ours = singles[0]
    judge = Faultless(bench.known)
    judged = bench.pairs(ours, work.paraphrased, judge).total()
    against = bench.pairs(ours, work.contradicted, judge)
    rows.insert(1, [f"{ours.name}, and its worker", "", "", "", judged, against.total(),
                    sum(n == 1 for n in against.values())])  # fmt: skip
    result["with a judge"] = rows[1][1:]
    rows.append(["ideal", "", 1, SHARED, PAIRS, 2 * PAIRS, 2 * PAIRS])
    report.table(
        f"Rows left. Replays: one fact {REPLAYS} times. Writers: {WRITERS} clients, each with the same {SHARED} facts"
        f" at the same time. Paraphrases: {PAIRS} facts and as many paraphrases, half at cosines of 0.955 to 0.99,"
        f" half of 0.865 to 0.905. Contradictions: {PAIRS} facts and as many that differ in a number or by a"
        " negation, cosines of 0.96 to 0.99; of these, how many of both texts are left.",
        ["", "replays/s", "replays", "writers", "paraphrases", "contradictions", "texts of both"],
        rows,
    )

    taken = latencies(bench)
    result["latency, ms"] = taken
    at = {share: quantiles(taken["all"], n=100)[share - 1] for share in (50, 99)}
    report.table(
        f"Latency in ms of {len(taken['all'])} calls from Python, one client, 20 facts a scope, "
        + ", ".join(f"{len(v)} in {k}" for k, v in sorted(taken.items()) if k != "all")
        + f" (a judge that takes {JUDGE_SECONDS * 1000:.0f} ms, waited for); next to it what the sources claim:",
        ["", "ours", "the sources'"],
        [
            ["tier 1, median", f"{median(taken['tier 1']):.2f}", "under 1"],
            ["tier 2, median", f"{median(taken['tier 2']):.2f}", "5 to 15"],
            ["tier 3, median", f"{median(taken['tier 3']):.0f}", "200"],
            ["all, p50", f"{at[50]:.2f}", "10"],
            ["all, p99", f"{at[99]:.0f}", "220"],
        ],
    )
    report.note(
        "memfold calls as an application (row level security, ledger, sources), the others as the superuser who owns"
        " the tables. mem0 and langmem ask a model: its double answers at once and without fault, and gives"
        " nothing where the library shows it a memory that says the same. mem0 runs without spaCy, its history in"
        " memory; index() with its record manager in the same database. langmem gets a fifth of the unique facts."
        " memfold's worker has a judge that answers as well as that double. Contradictions: a superseded memory"
        " counts as left, because its text is kept and undo restores it."
    )
    report.data = result
    return report


def _like(way: Way, all_ways: Sequence[Way]) -> Way:
    """The way of memfold with which a peer's is compared."""
    return next(ours for ours in all_ways if ours.many == way.many)


def _framed(all_ways: Sequence[Way]) -> list[tuple[Way, Way]]:
    """memfold's ways through a framework, each with the framework's own."""
    return [
        (ours, own)
        for ours in all_ways
        for own in all_ways
        if own.store is ours.instead_of and own.many == ours.many
    ]


def _over(ours: Way, own: Way) -> list[str]:
    return [
        f"{harness.ratio(*([one.rate for one in way.measured[setting]] for way in (ours, own))):.2f}"
        for setting in SETTINGS
    ]


def _compared(way: Way, all_ways: Sequence[Way], setting: str) -> tuple[str, str]:
    rates = [one.rate for one in way.measured[setting]]
    if issubclass(way.store, Ours):
        return f"{median(rates):,.0f}", ""
    ours = [one.rate for one in _like(way, all_ways).measured[setting]]
    return f"{median(rates):,.0f}", harness.verdict(harness.ratio(ours, rates), 1)


def _cpu(way: Way, all_ways: Sequence[Way]) -> tuple[str, str, str, str]:
    def both(some: Way) -> list[float]:
        return [one.client + one.server for one in some.measured[OFF]]

    found = way.measured[OFF]
    ratio = harness.ratio(both(way), both(_like(way, all_ways)))
    return (
        f"{median(one.client for one in found):,.0f}",
        f"{median(one.server for one in found):,.0f}",
        f"{median(both(way)):,.0f}",
        "" if issubclass(way.store, Ours) else f"{ratio:.2f}",
    )
