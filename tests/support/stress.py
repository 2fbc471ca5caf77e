"""Many concurrent writers that call everything: deadlocks, lost calls, broken invariants.

python -m tests.support.stress --calls 20000 --writers 10          # a server of its own, started and stopped
python -m tests.support.stress --folds 60 --dsn ...                # replays concurrent with merges and undos, for 60 seconds
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import threading
import time
import uuid
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.support.queries import DB

TENANT = "stress"
# the last one's memories are erased as well
BUCKETS = ("b0", "b1", "erased")
# Then three others: random contradictions join a bucket's memories into one timeline, which each statement derives again.
CALLS_PER_PHASE = 2000
# as autovacuum does: the tests' servers have none
CALLS_PER_ANALYZE = 1000
NAMES = ("Alice", "Bob", "Carol", "Dan")
CITIES = ("Berlin", "Lyon", "Rome", "Oslo", "Kyiv")
RETRIED = ("40001", "40P01", "55P03")
# a transaction of several calls, which locks in an order of its own
SEVERAL = "several ingest"
# seconds: longer than the tests' deadlock_timeout, and than it takes to hear of a deadlock
RECENT = 0.5

WEIGHTS = {
    "ingest": 40, "batch": 10, "judge": 8, "undo": 5, "merge_memories": 2, "supersede_memory": 2, "update_memory": 2,
    "attach_embedding": 2, "reject_memory": 1, "consolidate": 1, "approve_run": 1, "undo_run": 1, "sweep_duplicates": 1,
    "clean_exact_duplicates": 1, "end_session": 1, "record_feedback": 1, "maintenance": 1, "rehash_bucket": 1,
    "search_memories": 1, "export_bucket": 1, "prune_memories": 1, "plain": 1, "set_policy": 1,
    "set_predicate": 1, "erase_memory": 1, "erase_source": 1,
}  # fmt: skip
APART = ("rehash_bucket", "judge", "attach_embedding")
MODES = ["alone"] * 6 + ["held"] * 2 + ["several", "savepoint", "rolled back"]
ARGUMENTS = (
    "subject", "predicate", "object", "embedding", "embedding_model", "source_turn_ids", "source_confidence", "session_id",
    "metadata", "observed_at", "idempotency_key",
)  # fmt: skip


@dataclass
class Outcome:
    """The result of a stress run."""

    calls: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    """SQLSTATEs of calls that failed."""
    deadlocks: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Deadlocks, by the calls that waited for one another."""
    surprises: list[str] = field(default_factory=list)
    """Errors that are neither memfold's own nor a reason to retry."""
    acknowledged: set[str] = field(default_factory=set)
    """Turns of calls that were committed, in buckets where nothing is erased."""
    refused: set[str] = field(default_factory=set)
    """Turns of calls that failed or were rolled back."""
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.calls.total()} calls in {self.seconds:.0f} s; failed: {dict(self.states.most_common())}",
            f"deadlocks: {self.deadlocks.total()}",
            *(f"  {number} {' | '.join(kind)}" for kind, number in self.deadlocks.most_common()),
            *(f"SURPRISE {one}" for one in sorted(set(self.surprises))[:20]),
        ]
        return "\n".join(lines)


class _Calls:
    """Random calls of one kind each, on one connection."""

    def __init__(self, db: DB, seed: int) -> None:
        self.db = db
        self.random = random.Random(seed)

    def one(self, query: str, *arguments: Any) -> Any:
        row = self.db.execute(query.encode(), arguments).fetchone()
        return None if row is None else row[0]

    def vector(self, name: str, topic: int) -> str:
        angle = topic * 0.1047 + NAMES.index(name)
        away = self.random.choice([0, 0, 0.01, 0.05, 0.12, 0.3])
        return json.dumps([math.cos(angle), math.sin(angle), away, 0.2])

    def candidate(self) -> tuple[str, dict[str, Any]]:
        r = self.random
        turn, name = f"T{uuid.uuid4().hex}", r.choice(NAMES)
        if r.random() < 0.2:
            city = r.choice(CITIES)
            c: dict[str, Any] = {
                "content": f"{name} lives in {city}",
                "subject": name,
                "predicate": "lives in",
                "object": city,
            }
            if r.random() < 0.6:
                c["observed_at"] = f"2025-{r.randrange(1, 13):02}-{r.randrange(1, 28):02}T00:00:00Z"
        else:
            topic = r.randrange(60)
            form = r.choice(
                ["{} likes topic {}", "{}  LIKES topic {}.", "{} enjoys topic {}", "{} really likes topic {}"]
            )
            c = {"content": form.format(name, topic), "subject": name}
            if r.random() < 0.6:
                c |= {"embedding": self.vector(name, topic), "embedding_model": "m4"}
        c["source_turn_ids"] = [turn] + ([f"shared{r.randrange(5)}"] if r.random() < 0.3 else [])
        c["source_confidence"] = round(r.random(), 3)
        if r.random() < 0.5:
            c["metadata"] = {f"k{r.randrange(3)}": r.randrange(9)}
        if r.random() < 0.5:
            c["idempotency_key"] = f"K{uuid.uuid4().hex}"
        if r.random() < 0.3:
            c["session_id"] = f"s{r.randrange(6)}"
        return turn, c

    def ingest(self, bucket: str, c: dict[str, Any]) -> None:
        given = {key: c[key] for key in ARGUMENTS if key in c}
        if "metadata" in given:
            given["metadata"] = json.dumps(given["metadata"])
        names = "".join(f", {key} => %s" for key in given)
        self.db.execute(
            f"select memfold.ingest_memory(%s, %s, %s{names})".encode(),
            [c["content"], TENANT, bucket, *given.values()],
        )

    def batch(self, bucket: str, candidates: list[dict[str, Any]]) -> None:
        self.db.execute(
            "select memfold.ingest_memories(%s, %s, 'abort')",
            [json.dumps([{**c, "bucket_id": bucket} for c in candidates]), TENANT],
        )

    def memory(self, bucket: str) -> Any:
        return self.one(
            "select memory_id from memfold.memories where tenant_id = %s and bucket_id = %s"
            " order by md5(memory_id::text || %s) limit 1", TENANT, bucket, str(self.random.random()),
        )  # fmt: skip

    def run_of(self) -> Any:
        return self.one(
            "select run_id from memfold.runs where tenant_id = %s order by random() limit 1", TENANT
        )

    def other(self, name: str, bucket: str, erased: str) -> None:
        r, one = self.random, self.one
        match name:
            case "undo":
                event = one(
                    "select event_id from memfold.memory_events where tenant_id = %s and bucket_id = %s and action in"
                    " ('merged', 'replaced', 'superseded', 'historical', 'rejected', 'pruned')"
                    " order by md5(event_id::text || %s) limit 1", TENANT, bucket, str(r.random()),
                )  # fmt: skip
                event and one("select count(*) from memfold.undo(%s, %s, 'test')", event, TENANT)
            case "reject_memory":
                memory = self.memory(bucket)
                memory and one("select memfold.reject_memory(%s, %s, 'test')", memory, TENANT)
            case "merge_memories" | "supersede_memory":
                pair = self.memory(bucket), self.memory(bucket)
                all(pair) and one(f"select memfold.{name}(%s, %s, %s, 'test')", *pair, TENANT)
            case "update_memory":
                memory = self.memory(bucket)
                text = f"updated text {r.randrange(400)}"
                memory and one("select memfold.update_memory(%s, %s, tenant_id => %s)", memory, text, TENANT)
            case "judge":
                claimed = self.db.execute(
                    "select judgement_id from memfold.claim_judgements('w', max_results => %s,"
                    " lease => '3 seconds', review => %s, tenant_id => %s)",
                    [r.choice([1, 5, 20]), r.random() < 0.3, TENANT],
                ).fetchall()
                for (judgement,) in claimed:
                    if r.random() < 0.15:
                        one(
                            "select memfold.fail_judgement(%s, 'no answer', tenant_id => %s)",
                            judgement,
                            TENANT,
                        )
                    elif r.random() < 0.9:
                        one(
                            "select memfold.resolve_judgement(%s, %s, confidence => %s, "
                            "reason => 'because', merged_text => %s, tenant_id => %s)", judgement,
                            r.choice(["duplicate", "refinement", "contradiction", "distinct"]), r.choice([0.5, 0.9, 1]),
                            r.choice([None, f"merged {r.randrange(50)}"]), TENANT,
                        )  # fmt: skip
            case "consolidate":
                one(
                    "select count(*) from memfold.consolidate(%s, %s, 'm4', %s, %s, dry_run => %s)", TENANT, bucket,
                    r.choice([0.75, 0.9]), r.choice(["judge", "person"]), r.random() < 0.3,
                )  # fmt: skip
            case "approve_run":
                run = self.run_of()
                verdict = r.choice(["duplicate", "distinct"])
                run and one(
                    "select memfold.approve_run(%s, verdict => %s, max_operations => 20, tenant_id => %s)",
                    run,
                    verdict,
                    TENANT,
                )
            case "undo_run":
                run = self.run_of()
                run and one("select count(*) from memfold.undo_run(%s, %s, 'test')", run, TENANT)
            case "sweep_duplicates":
                one(
                    "select count(*) from memfold.sweep_duplicates(%s, %s, 'm4', %s, %s)", TENANT, bucket,
                    r.random() < 0.3, r.choice([5, 50, 200]),
                )  # fmt: skip
            case "clean_exact_duplicates":
                one("select count(*) from memfold.clean_exact_duplicates(%s, %s, false)", TENANT, bucket)
            case "end_session":
                one("select memfold.end_session(%s, %s, %s)", f"s{r.randrange(6)}", TENANT, bucket)
            case "prune_memories":
                one(
                    "select count(*) from memfold.prune_memories(%s, %s, 0.45, '1 second', 5, false)",
                    TENANT,
                    bucket,
                )
            case "record_feedback":
                memory = self.memory(bucket)
                memory and one("select memfold.record_feedback(%s, %s, %s)", memory, r.random() < 0.5, TENANT)
            case "attach_embedding":
                pending = self.db.execute(
                    "select memory_id from memfold.pending_embeddings(%s, %s, 5)", [TENANT, bucket]
                ).fetchall()
                for (memory,) in pending:
                    vector = self.vector(r.choice(NAMES), r.randrange(60))
                    one("select memfold.attach_embedding(%s, %s, 'm4', %s)", memory, vector, TENANT)
            case "maintenance":
                one(
                    "select memfold.run_maintenance(%s, %s)", TENANT,
                    ["plain", "decay", "syntheses", "keys", "runs", "clean", "sweep"],
                )  # fmt: skip
            case "rehash_bucket":
                profile, size = r.choice(["prose/1", "flat/1", "exact/1"]), r.choice([5, 50, 1000])
                self.db.execute(
                    "call memfold.rehash_bucket(%s, %s, %s, batch_size => %s)",
                    [TENANT, bucket, profile, size],
                )
            case "search_memories":
                one(
                    "select count(*) from memfold.search_memories("
                    "tenant_id => %s, bucket_id => %s, query_embedding => %s, embedding_model => 'm4')",
                    TENANT,
                    bucket,
                    self.vector("Bob", 3),
                )
            case "export_bucket":
                one("select count(*) from memfold.export_bucket(%s, %s)", TENANT, bucket)
            case "plain":
                self.db.execute(
                    "insert into memfold.memories (tenant_id, bucket_id, content, subject) values (%s, %s, %s, 'Bob')"
                    " on conflict do nothing", [TENANT, bucket, f"plain {r.randrange(10**6)}"],
                )  # fmt: skip
            case "set_policy":
                one(
                    "select memfold.set_policy(%s, %s, on_merge => %s)",
                    TENANT,
                    bucket,
                    r.choice(["strengthen", "replace"]),
                )
            case "set_predicate":
                one(
                    "select memfold.set_predicate('lives in', %s, 'one', %s)", TENANT,
                    r.choice([None, "newest_wins", "keep_existing", "keep_both", "review"]),
                )  # fmt: skip
            case "erase_memory":
                memory = self.memory(erased)
                memory and one("select memfold.erase_memory(%s, %s, 'test')", memory, TENANT)
            case "erase_source":
                turn = one(
                    "select source_turn_ids[1] from memfold.memory_events where tenant_id = %s and bucket_id = %s"
                    " and observation and source_turn_ids[1] like 'T%%' order by md5(event_id::text || %s) limit 1",
                    TENANT, erased, str(r.random()),
                )  # fmt: skip
                turn and one(
                    "select memfold.erase_source(tenant_id => %s, source_turn_id => %s, reason => 'test')",
                    TENANT,
                    turn,
                )
            case _:
                raise ValueError(name)


class Stress:
    """This many calls by this many writers. The database has memfold and no rows of the tenant."""

    def __init__(self, dsn: str, writers: int = 8, seed: int = 1, weights: dict[str, int] = WEIGHTS) -> None:
        self.dsn, self.writers, self.seed, self.weights = dsn, writers, seed, weights
        self.outcome = Outcome()
        self._lock = threading.Lock()
        self._begun: dict[int, deque[tuple[float, str]]] = defaultdict(lambda: deque(maxlen=16))

    def connect(self) -> DB:
        return psycopg.connect(
            self.dsn, autocommit=True, options=f"-c memfold.tenant_id={TENANT}", prepare_threshold=None
        )

    def prepare(self, calls: int) -> None:
        with self.connect() as db:
            db.execute("select memfold.register_embedding_model('m4', 4, 0.92, 0.85)")
            db.execute("select memfold.set_predicate('lives in', %s, 'one')", [TENANT])
            for phase in range(0, calls, CALLS_PER_PHASE):
                bucket = f"{BUCKETS[1]} {phase // CALLS_PER_PHASE}"
                db.execute("select memfold.set_policy(%s, %s, lexical_threshold => 0.9)", [TENANT, bucket])

    def run(self, calls: int) -> Outcome:
        numbers = itertools.count()
        began = time.monotonic()
        threads = [
            threading.Thread(target=self._write, args=(i, numbers, calls), daemon=True)
            for i in range(self.writers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _write(self, place: int, numbers: itertools.count[int], calls: int) -> None:
        db = self.connect()
        run = _Calls(db, self.seed * 1000 + place)
        names, weights = list(self.weights), list(self.weights.values())
        with db:
            while (number := next(numbers)) < calls:
                if number and number % CALLS_PER_ANALYZE == 0:
                    db.execute("analyze")
                name = run.random.choices(names, weights)[0]
                self._call(db, run, name, number // CALLS_PER_PHASE)

    def _call(self, db: DB, run: _Calls, name: str, phase: int) -> None:
        r = run.random
        place = r.choice(BUCKETS)
        bucket = f"{place} {phase}"
        # a judge's claim and its answers are transactions of their own, and so is each vector
        mode = "alone" if name in APART else r.choice(MODES)
        number = {
            "ingest": r.randrange(2, 5) if mode == "several" else 1,
            "batch": r.choice([2, 5, 20, 60]),
        }.get(name, 0)
        made = [run.candidate() for _ in range(number)]
        turns = {turn for turn, _ in made}
        kept = mode != "rolled back"
        label = SEVERAL if mode == "several" and name == "ingest" else name
        self._begun[db.info.backend_pid].append((time.monotonic(), label))

        def work() -> None:
            if name == "ingest":
                for _, c in made:
                    run.ingest(bucket, c)
            elif name == "batch":
                run.batch(bucket, [c for _, c in made])
            else:
                run.other(name, bucket, f"{BUCKETS[-1]} {phase}")

        try:
            if mode == "alone":
                work()
            else:
                db.execute("begin")
                if mode == "savepoint":
                    db.execute("savepoint s")
                    work()
                    db.execute("rollback to s")
                work()
                if r.random() < 0.15:
                    time.sleep(0.03)
                db.execute("commit" if kept else "rollback")
        except psycopg.Error as error:
            kept, failed = False, time.monotonic()
            if db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                db.execute("rollback")
            self._note(db, label, error, failed)
        with self._lock:
            self.outcome.calls[label] += 1
            if kept and place != BUCKETS[-1]:
                self.outcome.acknowledged |= turns
            elif not kept:
                self.outcome.refused |= turns

    def _note(self, db: DB, label: str, error: psycopg.Error, failed: float) -> None:
        state = str(error.sqlstate)
        with self._lock:
            self.outcome.states[state] += 1
            if state == "40P01":
                pids = {
                    int(pid) for pid in re.findall(r"Process (\d+) waits", error.diag.message_detail or "")
                }
                others = [self._at(pid, failed) for pid in pids - {db.info.backend_pid}]
                self.outcome.deadlocks[tuple(sorted([label, *others]))] += 1
            elif not state.startswith("MF") and state not in RETRIED:
                context = (error.diag.context or "").splitlines()
                self.outcome.surprises.append(
                    f"{label}: {state} {error.diag.message_primary} [{' < '.join(context[:4])}]"
                )

    def _at(self, pid: int, failed: float) -> str:
        """What a backend was doing when a deadlock with it was found; it may have continued since."""
        calls = list(self._begun[pid])
        before = [name for at, name in calls if at < failed - RECENT][-1:]
        since = [name for at, name in calls if failed - RECENT <= at < failed]
        names = before + since or ["?"]
        return SEVERAL if SEVERAL in names else names[0]

    def verify(self) -> list[str]:
        """Broken promises."""
        found = [f"surprise: {one}" for one in self.outcome.surprises]
        with self.connect() as db:
            turns = {
                row[0]
                for row in db.execute(
                    "select unnest(source_turn_ids) from memfold.memory_events where tenant_id = %s", [TENANT]
                )
            }
            if lost := self.outcome.acknowledged - turns:
                found.append(f"{len(lost)} acknowledged calls are lost")
            if kept := self.outcome.refused & turns:
                found.append(f"{len(kept)} calls that failed have left something")
            for _ in range(1000):
                row = db.execute("select ingested from memfold.ingest_plain_rows(%s)", [TENANT]).fetchone()
                if row == (0,):
                    break
            found += [
                str(row)
                for row in db.execute("select * from memfold.check_invariants(%s)", [TENANT]).fetchmany(20)
            ]
        return found


@dataclass
class Folds:
    """The result of replays of a few texts with concurrent merges and undos."""

    replays: int = 0
    retries: int = 0
    folds: int = 0
    deadlocks: int = 0
    seconds: float = 0.0
    broken: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.replays} replays in {self.seconds:.0f} s ({self.replays / self.seconds:.0f}/s), {self.retries} retried;"
            f" {self.folds} merges undone; {self.deadlocks} deadlocks; broken: {self.broken}"
        )


def replays_beside_folds(
    dsn: str, seconds: float, writers: int = 24, texts: int = 3, batches: int = 0
) -> Folds:
    """Writers of a few texts (some in batches), and one session that merges two of them and undoes it, on and on."""
    outcome, lock, stop = Folds(), threading.Lock(), threading.Event()
    tenant = f"folds {uuid.uuid4().hex[:8]}"

    def connect() -> DB:
        db = psycopg.connect(dsn, autocommit=True)
        db.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        return db

    def retried(db: DB, query: str, *arguments: Any) -> Any:
        while True:
            try:
                return db.execute(query.encode(), arguments).fetchone()
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
                with lock:
                    outcome.retries += 1
                    outcome.deadlocks += error.sqlstate == "40P01"

    def write(place: int) -> None:
        r = random.Random(place)
        done = 0
        with connect() as db:
            while not stop.is_set():
                said = [f"User likes item {n}" for n in r.sample(range(texts), texts)]
                turn = f"turn {r.randrange(40000)}"
                if place < batches:
                    candidates = json.dumps([{"content": text, "source_turn_ids": [turn]} for text in said])
                    retried(db, "select count(*) from memfold.ingest_memories(%s, %s)", candidates, tenant)
                    done += texts
                else:
                    retried(
                        db,
                        "select memfold.ingest_memory(%s, %s, source_turn_ids => %s)",
                        said[0],
                        tenant,
                        [turn],
                    )
                    done += 1
        with lock:
            outcome.replays += done

    with connect() as db:
        ids = [
            db.execute(
                "select (memfold.ingest_memory(%s, %s)).memory_id", [f"User likes item {n}", tenant]
            ).fetchone()[0]  # type: ignore[index]
            for n in range(texts)
        ]
        threads = [threading.Thread(target=write, args=(i,), daemon=True) for i in range(writers)]
        for thread in threads:
            thread.start()
        began = time.monotonic()
        r = random.Random(0)
        while time.monotonic() < began + seconds:
            a, b = r.sample(ids, 2)
            merged = retried(
                db, "select (memfold.merge_memories(%s, %s, tenant_id => %s)).event_id", a, b, tenant
            )
            # for a while writers find an alias
            time.sleep(0.03)
            retried(db, "select count(*) from memfold.undo(%s, tenant_id => %s)", merged[0], tenant)
            outcome.folds += 1
        stop.set()
        for thread in threads:
            thread.join()
        outcome.seconds = time.monotonic() - began
        outcome.broken = db.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
        counted = db.execute(
            "select sum(observations), (select count(*) from memfold.memory_events as e where e.tenant_id = %s"
            " and e.observation) from memfold.memory_totals as k where k.tenant_id = %s", [tenant, tenant],
        ).fetchone()  # fmt: skip
        assert counted is not None
        if counted[0] != counted[1] or counted[1] != outcome.replays + texts:
            outcome.broken.append(("observations", *counted, outcome.replays + texts))
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folds", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--batches", type=int, default=0, help="writers that send batches, with --folds")
    parser.add_argument("--dsn", help="a database with memfold; default: a server of its own")
    given = parser.parse_args()
    cluster = None
    if given.dsn is None:
        from memfold.tools.admin import migrate
        from tests.support import servers

        cluster = servers.Cluster("stress", servers.available()[0][0].bindir)
        cluster.start(extension=False)
        migrate.install(cluster.dsn())
    dsn = given.dsn or cluster.dsn()  # type: ignore[union-attr]
    try:
        if given.folds:
            print(replays_beside_folds(dsn, given.folds, given.writers, batches=given.batches))
        else:
            stress = Stress(dsn, given.writers, given.seed)
            stress.prepare(given.calls)
            print(stress.run(given.calls), flush=True)
            print("\n".join(stress.verify()) or "nothing is lost, nothing is broken")
    finally:
        if cluster is not None:
            cluster.stop()


if __name__ == "__main__":
    main()
