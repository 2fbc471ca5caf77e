"""Servers that are killed, clients that write down what they sent, and the questions to ask afterwards.

``Server`` is a separate cluster, each of whose processes can be killed. ``World`` is a set of clients (writers, judges,
maintenance) that stop where the server goes and go on where it comes back; each keeps its account outside of the database.
``Audit`` compares the accounts with what the database holds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from memfold import errors

if TYPE_CHECKING:
    from tests import servers

DB = psycopg.Connection[Any]
PORT = 5432
PATIENCE = 240.0
"""Seconds after which something counts as stuck; nothing is asserted to be faster."""
LEASE = 2.0
MOST = 100
"""How often a call may get 40001 or 40P01 before it counts as failed."""
MODEL = "m"
TURN = "turn-"
NEVER = UUID(int=0)

# As shipped where it matters (fsync, full_page_writes, synchronous_commit); checkpoints and vacuum come often, so that
# they are killed as well.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "checkpoint_timeout": "30s",
    "max_wal_size": "64MB",
    "autovacuum_naptime": "1s",
    "log_line_prefix": "%e %p ",
    "wal_keep_size": "256MB",
}


# --- servers ---------------------------------------------------------------------------------------------------------


def pause_until(true: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Look until it is so."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, f"waited {patience:.0f} s: {what}"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The processes that one has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    """Whether it is there, and more than an entry that nobody has read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Server:
    """A cluster whose postmaster is a child of ours, so that its end is known, not guessed."""

    def __init__(self, cluster: servers.Cluster, data: Path) -> None:
        self.cluster = cluster
        self.data = data
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"host={self.data.parent} port={PORT} user=postgres dbname=postgres connect_timeout=10"

    def start(self) -> None:
        """Start it, and do not wait."""
        account = self.cluster.account
        # a postmaster that was killed before it had written it: PostgreSQL leaves this one to its DBA
        lock = self.data / "postmaster.pid"
        if lock.exists() and not lock.stat().st_size:
            lock.unlink()
        other = account.uid != os.geteuid()
        with (self.data.parent / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.cluster.bindir / "postgres", "-D", self.data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=account.uid if other else None,
                group=account.gid if other else None,
                extra_groups=[] if other else None,
                start_new_session=True,
                umask=0o077,
            )

    def ready(self) -> float:
        """Wait until it accepts connections; returns the seconds."""
        began = time.monotonic()
        while True:
            assert self.process is not None
            assert self.process.poll() is None, f"the server ended: {self.said()[-2000:]}"
            assert time.monotonic() - began < PATIENCE, f"no server: {self.said()[-2000:]}"
            with contextlib.suppress(psycopg.OperationalError), self.connect():
                return time.monotonic() - began
            time.sleep(0.01)

    def connect(self, **options: Any) -> DB:
        return psycopg.connect(self.dsn, autocommit=True, **options)

    def processes(self) -> list[int]:
        assert self.process is not None
        return [self.process.pid, *children(self.process.pid)]

    def kill(self) -> int:
        """SIGKILL for the postmaster and all its children; returns their number."""
        assert self.process is not None
        postmaster = self.process.pid
        # nothing is started any more while the others are looked for
        os.kill(postmaster, signal.SIGSTOP)
        pids = [*children(postmaster), postmaster]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        pause_until(lambda: not any(is_running(pid) for pid in pids), f"{pids} are killed")
        return len(pids)

    def kill_a_backend(self, choice: random.Random) -> bool:
        """SIGKILL for one server process of a client: the postmaster ends all others and recovers by itself."""
        with contextlib.suppress(psycopg.Error), self.connect() as db:
            pids = [
                row[0]
                for row in db.execute(
                    "select pid from pg_stat_activity where backend_type = 'client backend'"
                    " and pid <> pg_backend_pid()"
                )
            ]
            if pids:
                os.kill(choice.choice(pids), signal.SIGKILL)
                return True
        return False

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(PATIENCE)

    def said(self) -> str:
        log = self.data.parent / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def complaints(self) -> list[str]:
        """Log lines that no intact server writes: panics, broken pages, internal errors."""
        # (a LOG says that a segment of shared memory is gone already: that is what a crash leaves)
        serious = re.compile(r"(XX|58)\w{3} \d+ (WARNING|ERROR|FATAL)|\w{5} \d+ PANIC")
        return [line for line in self.said().splitlines() if serious.match(line)]


@contextlib.contextmanager
def server(bindir: Path, *, on_disk: bool = True, **settings: str) -> Iterator[Server]:
    """A server with memfold, on a separate directory on disk, where written data last."""
    # what a client that is killed has no use for: it starts in half the time
    from memfold.admin import migrate
    from tests import servers

    where = {"base": Path(tempfile.mkdtemp(prefix="mf-faults-"))} if on_disk else {}
    cluster = servers.Cluster("faults", bindir, **where)
    made = Server(cluster, cluster.base / "data")
    try:
        cluster.start(extension=False)
        with (made.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{key} = '{value}'\n" for key, value in {**SETTINGS, **settings}.items())
        cluster.run(cluster.bindir / "pg_ctl", "-D", made.data, "-m", "fast", "-w", "stop")
        made.start()
        made.ready()
        migrate.install(made.dsn)
        with made.connect() as db:
            db.execute("create extension if not exists amcheck")
        yield made
    finally:
        made.stop()
        shutil.rmtree(cluster.base, ignore_errors=True)


@contextlib.contextmanager
def standby_of(primary: Server, name: str) -> Iterator[Server]:
    """A streaming standby, as an administrator sets one up, started and caught up."""
    cluster = primary.cluster
    base = cluster.base / name
    base.mkdir()
    if os.geteuid() == 0:
        os.chown(base, cluster.account.uid, cluster.account.gid)
    made = Server(cluster, base / "data")
    try:
        cluster.run(
            cluster.bindir / "pg_basebackup", "-h", primary.data.parent, "-p", str(PORT), "-U", "postgres",
            "-D", made.data, "-R", "-X", "stream", "-c", "fast",
        )  # fmt: skip
        made.data.chmod(0o700)
        with (made.data / "postgresql.auto.conf").open("a") as conf:
            conf.write(f"unix_socket_directories = '{base}'\nsynchronous_standby_names = ''\n")
        made.start()
        made.ready()
        with primary.connect() as db:
            pause_until(
                lambda: (
                    db.execute(
                        "select count(*) from pg_stat_replication where state = 'streaming'"
                    ).fetchone()
                    == (1,)
                ),
                "the standby streams",
            )
        yield made
    finally:
        made.stop()
        shutil.rmtree(base, ignore_errors=True)


def promote(standby: Server) -> float:
    """Make it the primary; returns the seconds."""
    began = time.monotonic()
    with standby.connect() as db:
        row = db.execute(f"select pg_promote(true, {PATIENCE:.0f})").fetchone()
        assert row == (True,)
        pause_until(
            lambda: db.execute("select pg_is_in_recovery()").fetchone() == (False,), "the standby is promoted"
        )
    return time.monotonic() - began


# --- what is said ----------------------------------------------------------------------------------------------------

VERBS = ["likes", "loves", "enjoys", "prefers", "wants", "favours", "picks", "chooses"]
FORMS = ["The user {} a dark screen", "A dark screen is what the user {}"]
PARAPHRASES = [form.format(verb) for verb in VERBS for form in FORMS]
HOT = 6
PLACES = ["Stripe", "Lidl", "Siemens"]
SIDE = math.sqrt(1 - 0.88**2)
PAIRS = {
    "holds": [1.0, 0.0, 0.0, 0.0],
    "holds there": [0.88, SIDE, 0.0, 0.0],
    "is held": [0.88, -SIDE, 0.0, 0.0],
}
ADVERBS = ["often", "mostly", "surely", "simply", "mainly", "really", "just", "still"]
BUCKETS = ["hot", "para", "slots", "ask", "fold", "mess", "own"]


def turned(angle: float) -> dict[str, str]:
    """A vector at an angle (radians), as arguments of ingest: the cosine of two is that of the difference."""
    return {"embedding": json.dumps([math.cos(angle), math.sin(angle), 0, 0]), "embedding_model": MODEL}


def prepare(db: DB, tenant: str) -> None:
    """The rules of a tenant's buckets; safe to repeat."""
    db.execute("select memfold.register_embedding_model(%s, 4)", [MODEL])
    db.execute("select memfold.set_predicate('works_at', %s)", [tenant])
    for bucket in ("fold", "mess"):
        keeping(db, tenant, bucket)
    # of paraphrases vectors decide alone: which words keep two apart is not what is shown here
    db.execute("select memfold.set_policy(%s, 'para', guard => 'off')", [tenant])


def keeping(db: DB, tenant: str, bucket: str) -> None:
    """Store everything, so that there is something to merge."""
    db.execute(
        "select memfold.set_policy(%s, %s, merge_threshold => 1, judge_threshold => 1, on_ambiguous => 'insert')",
        [tenant, bucket],
    )


def candidate(choice: random.Random, tenant: str, number: int) -> dict[str, Any]:
    """A candidate for one of the buckets, each of which has its own rules."""
    bucket = choice.choices(BUCKETS, [10, 4, 3, 2, 1, 1, 4])[0]
    said: dict[str, Any] = {"tenant_id": tenant, "bucket_id": bucket}
    match bucket:
        case "hot":
            spelling = choice.choice(
                ["Hot fact number {}", "  hot FACT number {}.", "hot fact   number {} !"]
            )
            said["content"] = spelling.format(choice.randrange(HOT))
        case "para":
            which = choice.randrange(len(PARAPHRASES))
            said |= {"content": PARAPHRASES[which], "subject": f"user {number // 400}"}
            if choice.random() < 0.85:
                said |= turned(0.02 * which)
        case "slots":
            place = choice.choice(PLACES)
            said |= {"content": f"Ann works at {place}", "subject": f"Ann {choice.randrange(4)}"}
            said |= {"predicate": "works_at", "object": place}
        case "ask":
            word, numbers = choice.choice(list(PAIRS.items()))
            said |= {"content": f"The box {word}", "subject": f"box {number // 60}"}
            said |= {"embedding": json.dumps(numbers), "embedding_model": MODEL}
        case "fold" | "mess":
            group = number // 300
            said["content"] = (
                f"the build of this project is {choice.choice(ADVERBS)} slow when it runs at night"
            )
            said |= {"subject": f"project {group}", "session_id": f"session {group}"}
            said |= turned(choice.uniform(0, 0.3))
        case _:
            said["content"] = f"Fact number {number} by itself"
            said["subject"] = f"thing {number % 50}"
    return said


# --- accounts --------------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """One transaction of a writer: its calls, and what the writer knows about its outcome."""

    kind: str
    tenant: str
    items: list[dict[str, Any]]
    keyed: bool
    marks: list[str]
    sent: float = 0.0
    acked: float = 0.0
    state: str = "new"
    """new, doubt (sent, no answer), acked, or what the audit found of one in doubt without a key: found, never."""
    events: list[UUID] = field(default_factory=list)
    doubts: int = 0
    agains: int = 0

    @property
    def is_acked(self) -> bool:
        return self.state == "acked"


@dataclass
class Deed:
    """One call of a judge or of maintenance: the call, whether it was acknowledged, and how to find it."""

    kind: str
    tenant: str
    subject: Any
    state: str = "new"
    answer: Any = None
    agains: int = 0


def lost(error: psycopg.Error) -> bool:
    """Whether the connection went with it: then nobody knows."""
    return errors.is_connection_lost(error)


# refusals that a call may meet because somebody else was faster: nothing was written
REFUSED = {"MF019", "MF026", "MF027", "MF032", "MF033", "MF039", "55P03"}
AGAIN = {"40001", "40P01"}


def ingest_one(db: DB, item: dict[str, Any]) -> UUID:
    names = ", ".join(f"{name} => %({name})s" for name in item)
    row = db.execute(f"select event_id from memfold.ingest_memory({names})".encode(), item).fetchone()
    assert row is not None
    event_id: UUID = row[0]
    return event_id


def batch_events(rows: list[Any]) -> list[UUID]:
    refused = [row for row in rows if row[2] is not None]
    assert refused == [], f"a batch was refused: {refused[:3]}"
    return [row[1] for row in rows]


def execute(db: DB, call: Call) -> list[UUID]:
    """Execute a call, in one transaction; returns the ledger rows that it reports."""
    tenant = call.tenant
    match call.kind:
        case "single":
            return [ingest_one(db, call.items[0])]
        case "together":
            with db.transaction():
                return [ingest_one(db, item) for item in call.items]
        case "batch":
            plain = [{k: v for k, v in item.items() if k != "tenant_id"} for item in call.items]
            return batch_events(
                db.execute(
                    "select ordinal, event_id, sqlstate, error from memfold.ingest_memories(%s, %s) order by 1",
                    [json.dumps(plain), tenant],
                ).fetchall()
            )
        case "vectors apart":
            plain = [
                {k: v for k, v in item.items() if k not in ("tenant_id", "embedding")} for item in call.items
            ]
            return batch_events(
                db.execute(
                    "select ordinal, event_id, sqlstate, error"
                    " from memfold.ingest_memories(%s, %s, embeddings => %s::vector[]) order by 1",
                    [json.dumps(plain), tenant, [item.get("embedding") for item in call.items]],
                ).fetchall()
            )
    raise AssertionError(call.kind)


# --- clients ---------------------------------------------------------------------------------------------------------


class World:
    """The clients, the server that they talk to at present, and what they noticed."""

    def __init__(self, dsn: str, seed: int, tenants: list[str]) -> None:
        self.dsn = dsn
        self.seed = seed
        self.tenants = tenants
        self.numbers = iter(range(1, 1 << 60))
        self.lock = threading.Lock()
        self.gate = threading.Condition()
        self.open = False
        self.stopping = False
        self.finishing = False
        self.parked: set[Client] = set()
        self.clients: list[Client] = []
        self.faults: list[str] = []
        self.seen: Counter[str] = Counter()

    def add(self, *clients: Client) -> None:
        self.clients += clients

    def start(self) -> None:
        for client in self.clients:
            client.start()

    def number(self) -> int:
        with self.lock:
            return next(self.numbers)

    def go(self) -> None:
        with self.gate:
            self.open = True
            self.parked.clear()
            self.gate.notify_all()

    def halt(self) -> None:
        """Let each finish what it does, or lose it, and wait for that."""
        with self.gate:
            self.open = False
            done = self.gate.wait_for(lambda: len(self.parked) == self.alive(), PATIENCE)
            frames = sys._current_frames()
            stuck = [
                f"{client.name}: {''.join(traceback.format_stack(frames.get(client.ident or 0))[-4:])}"
                for client in self.clients
                if client not in self.parked and client.is_alive()
            ]
        assert done, f"stuck: {stuck}"

    def finish(self) -> None:
        """Send again what is in doubt, until all is acknowledged, and nothing new; then halt."""
        writers = [client for client in self.clients if isinstance(client, Writer)]
        self.finishing = True
        end = time.monotonic() + PATIENCE
        while True:
            # what was under way may have been lost since: only those who stand still can tell
            self.halt()
            if self.faults or all(w.pending is None or not w.is_alive() for w in writers):
                return
            assert time.monotonic() < end, "not all is acknowledged"
            self.go()
            time.sleep(0.1)

    def alive(self) -> int:
        return sum(client.is_alive() for client in self.clients)

    def park(self, client: Client) -> None:
        with self.gate:
            while not self.open and not self.stopping:
                self.parked.add(client)
                self.gate.notify_all()
                self.gate.wait(1)

    def end(self) -> None:
        with self.gate:
            self.stopping = True
            self.open = True
            self.gate.notify_all()
        for client in self.clients:
            if client.is_alive():
                client.join(PATIENCE)


class Client(threading.Thread):
    """Works while the gate is open; a lost connection leaves the outcome of the running call unknown."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.world = world
        self.choice = random.Random(f"{world.seed} {name}")
        self.db: DB | None = None

    def connected(self) -> DB | None:
        if self.db is None or self.db.closed:
            try:
                self.db = psycopg.connect(
                    self.world.dsn, autocommit=True, application_name=self.name, prepare_threshold=None
                )
                self.db.execute(f"set statement_timeout = '{PATIENCE:.0f}s'")
            except psycopg.OperationalError:
                self.drop()
                time.sleep(0.02)
                return None
        return self.db

    def drop(self) -> None:
        if self.db is not None:
            with contextlib.suppress(psycopg.Error):
                self.db.close()
        self.db = None

    def run(self) -> None:
        try:
            while not self.world.stopping:
                self.world.park(self)
                if self.world.stopping:
                    break
                if (db := self.connected()) is not None:
                    self.work(db)
        except BaseException as error:
            self.world.faults.append(f"{self.name}: {type(error).__name__}: {error}")
        finally:
            self.drop()
            with self.world.gate:
                self.world.gate.notify_all()

    def work(self, db: DB) -> None:
        raise NotImplementedError

    def tried(self, deed: Call | Deed, work: Callable[[], Any]) -> str:
        """acked, doubt, refused (nothing was written, and never will be by this), or again (the same)."""
        try:
            answer = work()
        except psycopg.Error as error:
            if lost(error):
                self.drop()
                deed.state = "doubt"
                self.world.seen[f"in doubt: {deed.kind}"] += 1
                return "doubt"
            if error.sqlstate in AGAIN:
                self.world.seen[f"again: {error.sqlstate}"] += 1
                deed.agains += 1
                if deed.agains >= MOST:
                    self.world.faults.append(
                        f"{self.name}: in vain, {MOST} times: {deed} {error.sqlstate} {error}: {error.diag.context}"
                    )
                    deed.state = "refused"
                    return "refused"
                time.sleep(self.choice.uniform(0, min(0.001 * 2**deed.agains, 0.1)))
                return "again"
            deed.state = "refused"
            if error.sqlstate not in REFUSED:
                self.world.faults.append(f"{self.name} {deed.kind}: {error.sqlstate} {error}")
            self.world.seen[f"refused: {error.sqlstate}"] += 1
            return "refused"
        if isinstance(deed, Call):
            deed.events = answer
        else:
            deed.answer = answer
        deed.state = "acked"
        self.world.seen[f"acked: {deed.kind}"] += 1
        return "acked"


class Writer(Client):
    """Single calls with and without keys, batches with and without vectors, several calls per transaction, late vectors."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.calls: list[Call] = []
        """Since the last audit, which takes them."""
        self.pending: Call | None = None
        self.deeds: list[Deed] = []
        self.vectorless: list[tuple[str, UUID, int]] = []

    def make(self) -> Call:
        choice = self.choice
        tenant = choice.choice(self.world.tenants)
        kind = choice.choices(["single", "batch", "vectors apart", "together"], [84, 5, 3, 8])[0]
        keyed = choice.random() < 0.6
        size = {"single": 1, "together": 3}.get(kind) or choice.randint(2, 10)
        items, marks = [], []
        for _ in range(size):
            number = self.world.number()
            mark = f"{TURN}{number}"
            item = {**candidate(choice, tenant, number), "source_turn_ids": [mark]}
            if keyed:
                item["idempotency_key"] = f"key-{number}"
            items.append(item)
            marks.append(mark)
        return Call(kind, tenant, items, keyed, marks)

    def work(self, db: DB) -> None:
        if self.pending is None and self.world.finishing:
            time.sleep(0.01)
            return
        if self.pending is None and self.choice.random() < 0.08:
            self.attach(db)
            return
        call = self.pending or self.make()
        if self.pending is None:
            call.sent = time.monotonic()
            self.calls.append(call)
        match self.tried(call, lambda: execute(db, call)):
            case "acked":
                call.acked = time.monotonic()
                self.pending = None
            case "doubt":
                call.doubts += 1
                # the same again, when there is a server: only with keys, else it would be counted twice
                self.pending = call if call.keyed else None
            case "again":
                self.pending = call
            case _:
                self.pending = None

    def attach(self, db: DB) -> None:
        """A vector that comes late, for one of the paraphrases without one."""
        tenant = self.choice.choice(self.world.tenants)
        deed = Deed("attach", tenant, None)

        def work() -> Any:
            row = db.execute(
                "select memory_id, content from memfold.memories where tenant_id = %s and bucket_id = 'para'"
                " and embedding_pending order by random() limit 1",
                [tenant],
            ).fetchone()
            if row is None:
                return None
            deed.subject = row[0]
            vector = turned(0.02 * PARAPHRASES.index(row[1]))["embedding"]
            return db.execute(
                "select event_id from memfold.attach_embedding(%s, %s, %s, %s)",
                [deed.subject, vector, MODEL, tenant],
            ).fetchone()

        self.tried(deed, work)
        if deed.subject is not None:
            self.deeds.append(deed)


class Judge(Client):
    """Claims, then answers, fails or forgets."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.deeds: list[Deed] = []
        self.serial = 0

    def work(self, db: DB) -> None:
        deed = Deed("claim", "", None)
        self.tried(
            deed,
            lambda: db.execute(
                "select tenant_id, judgement_id from memfold.claim_judgements(%s, max_results => 4, lease => %s)",
                [self.name, f"{LEASE} seconds"],
            ).fetchall(),
        )
        if not deed.answer:
            time.sleep(0.02)
            return
        for tenant, judgement_id in deed.answer:
            dice = self.choice.random()
            if dice < 0.08 or self.db is None:
                continue
            if dice < 0.2:
                self.tried(
                    failed := Deed("fail", tenant, judgement_id),
                    lambda failed=failed: db.execute(
                        "select memfold.fail_judgement(%s, 'no answer', worker => %s, retry_after => '0.1 s',"
                        " tenant_id => %s)",
                        [failed.subject, self.name, failed.tenant],
                    ).fetchone(),
                )
                continue
            self.serial += 1
            verdict = self.choice.choice(["duplicate", "distinct", "contradiction", "refinement"])
            answer = Deed("resolve", tenant, (judgement_id, f"{self.name} {self.serial}"))
            self.deeds.append(answer)
            while (
                self.tried(
                    answer,
                    lambda answer=answer, verdict=verdict: db.execute(
                        "select status, event_id from memfold.resolve_judgement("
                        "%s, %s, confidence => 0.9, model => %s, tenant_id => %s)",
                        [answer.subject[0], verdict, answer.subject[1], answer.tenant],
                    ).fetchone(),
                )
                == "again"
            ):
                pass


class Maintenance(Client):
    """Consolidates, approves, sweeps, ends sessions, prunes; undoes events and whole runs."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.deeds: list[Deed] = []

    def one(self, kind: str, tenant: str, subject: Any, query: str, *arguments: Any) -> Deed:
        deed = Deed(kind, tenant, subject)
        self.deeds.append(deed)

        def work() -> Any:
            assert self.db is not None
            return self.db.execute(query.encode(), arguments).fetchall()

        while self.tried(deed, work) == "again":
            pass
        return deed

    def work(self, db: DB) -> None:
        tenant = self.choice.choice(self.world.tenants)
        kinds = ["consolidate", "sweep", "session", "prune", "undo", "undo", "undo_run", "maintenance"]
        match self.choice.choice(kinds):
            case "consolidate":
                deed = self.one(
                    "consolidate", tenant, None,
                    "select distinct run_id from memfold.consolidate(%s, 'fold', approval => 'person',"
                    " max_operations => 30, dry_run => false)", tenant,
                )  # fmt: skip
                if deed.answer:
                    run_id = deed.answer[0][0]
                    self.one(
                        "approve", tenant, run_id,
                        "select memfold.approve_run(%s, %s, 'duplicate', 20)", run_id, tenant,
                    )  # fmt: skip
            case "sweep":
                self.one(
                    "policy", tenant, None,
                    "select memfold.set_policy(%s, 'mess', merge_threshold => 0.97, judge_threshold => 0.96)", tenant,
                )  # fmt: skip
                if self.db is not None:
                    self.one(
                        "sweep", tenant, None,
                        "select distinct run_id from memfold.sweep_duplicates(%s, 'mess', dry_run => false,"
                        " max_operations => 20)", tenant,
                    )  # fmt: skip
                if self.db is not None:
                    self.one(
                        "policy", tenant, None,
                        "select memfold.set_policy(%s, 'mess', merge_threshold => 1, judge_threshold => 1,"
                        " on_ambiguous => 'insert')", tenant,
                    )  # fmt: skip
            case "session":
                session = f"session {self.world.number() // 300}"
                self.one(
                    "session", tenant, session,
                    "select run_id from memfold.end_session(%s, %s, 'fold')", session, tenant,
                )  # fmt: skip
            case "prune":
                self.one(
                    "prune", tenant, None,
                    "select distinct run_id from memfold.prune_memories(%s, 'mess', 1, '0 seconds', 3, false)", tenant,
                )  # fmt: skip
            case "undo":
                self.take_back(
                    "undo", tenant,
                    "select event_id from memfold.memory_events where tenant_id = %s and bucket_id in ('fold', 'mess')"
                    " and action = 'merged' order by event_id desc offset %s limit 1",
                    "select event_id from memfold.undo(%s, %s, 'for a try')",
                )  # fmt: skip
            case "undo_run":
                self.take_back(
                    "undo_run", tenant,
                    "select run_id from memfold.runs where tenant_id = %s and kind <> 'maintenance' and status <> 'undone'"
                    " order by run_id desc offset %s limit 1",
                    "select event_id from memfold.undo_run(%s, %s, 'for a try')",
                )  # fmt: skip
            case _:
                self.one("maintenance", tenant, None, "select memfold.run_maintenance(%s)", tenant)

    def take_back(self, kind: str, tenant: str, look: str, query: str) -> None:
        looked = Deed("look", tenant, None)
        self.tried(
            looked,
            lambda: (
                self.db.execute(look.encode(), [tenant, self.choice.randrange(20)]).fetchone()
                if self.db
                else None
            ),
        )
        if looked.answer and self.db is not None:
            self.one(kind, tenant, looked.answer[0], query, looked.answer[0], tenant)


# --- the audit -------------------------------------------------------------------------------------------------------

# each must return no row; whatever it returns is a broken promise
PROMISES = {
    "one row per text": """
        select tenant_id, bucket_id, encode(content_hash, 'hex'), count(*) from memfold.memories
        where tenant_id = any(%(tenants)s) and content_hash is not null group by 1, 2, 3 having count(*) > 1""",
    "one active memory a canonical text and scope": """
        select tenant_id, bucket_id, scope_key, memfold.canonicalize(content, 'prose/1'), count(*)
        from memfold.memories where tenant_id = any(%(tenants)s) and status = 'active'
        group by 1, 2, 3, 4 having count(*) > 1""",
    "one active memory of all paraphrases": """
        select v.tenant_id, v.scope_key, count(distinct coalesce(m.root_id, m.memory_id))
        from memfold.memory_vectors as v join memfold.memories as m using (tenant_id, memory_id)
        where v.tenant_id = any(%(tenants)s) and v.bucket_id = 'para' and v.is_active group by 1, 2
        having count(distinct coalesce(m.root_id, m.memory_id)) > 1""",
    "one value a slot": """
        select tenant_id, scope_key, count(*) from memfold.memories
        where tenant_id = any(%(tenants)s) and bucket_id = 'slots' and status = 'active' group by 1, 2
        having count(*) <> 1""",
    "a slot's intervals meet": """
        select * from (
            select tenant_id, scope_key, valid_to,
                lead(valid_from) over (partition by tenant_id, bucket_id, scope_key order by valid_from, from_event) as next
            from memfold.memory_intervals where tenant_id = any(%(tenants)s) and bucket_id = 'slots'
        ) as i where valid_to is distinct from next""",
    "counters are the observations of the tree": """
        select k.tenant_id, k.memory_id, k.observations, o.observations
        from memfold.memory_totals as k
        join memfold.memories as m on m.tenant_id = k.tenant_id and m.memory_id = k.memory_id and m.root_id is null
        cross join lateral (
            select count(*) as observations from memfold.memories as t
            join memfold.memory_events as e on e.tenant_id = t.tenant_id and e.memory_id = t.memory_id and e.observation
            where t.tenant_id = m.tenant_id and (t.memory_id = m.memory_id or t.root_id = m.memory_id)
                and not (e.tier = 1 and exists (
                    select from memfold.memory_events as u where u.tenant_id = e.tenant_id and u.undoes = e.event_id))
        ) as o
        where k.tenant_id = any(%(tenants)s) and k.observations <> o.observations""",
    "an accepted call is one ledger row": """
        select tenant_id, t.turn, count(*) from memfold.memory_events, unnest(source_turn_ids) as t (turn)
        where tenant_id = any(%(tenants)s) group by 1, 2 having count(*) > 1""",
    "no pair is asked twice": """
        select tenant_id, least(memory_id, other_id), greatest(memory_id, other_id), count(*),
            array_agg(kind || ' ' || status)
        from memfold.judgements where tenant_id = any(%(tenants)s) and status <> 'obsolete' and kind <> 'review'
        group by 1, 2, 3 having count(*) > 1""",
    "no pair waits twice": """
        select tenant_id, least(memory_id, other_id), greatest(memory_id, other_id), count(*)
        from memfold.judgements where tenant_id = any(%(tenants)s) and status in ('open', 'leased')
        group by 1, 2, 3 having count(*) > 1""",
    # (an undo writes down that the pair is distinct: its ledger row is the undo's)
    "a verdict is one ledger row": """
        select j.tenant_id, j.judgement_id, j.status, count(e.event_id) from memfold.judgements as j
        left join memfold.memory_events as e on e.tenant_id = j.tenant_id and e.judgement_id = j.judgement_id and e.tier = 3
        -- (of a cluster each of its memories has one)
        where j.tenant_id = any(%(tenants)s) and j.kind <> 'synthesis' and j.member_ids is null and j.status <> 'part'
            and j.cluster_id is null and not (j.kind = 'review' and j.verdict = 'distinct' and j.reason ~ '^undone')
        group by 1, 2, 3 having count(e.event_id) <> (j.status = 'done')::integer""",
    "a lease has an end": f"""
        select tenant_id, judgement_id, leased_until from memfold.judgements
        where status = 'leased' and coalesce(leased_until > clock_timestamp() + interval '{LEASE} s'
            or next_attempt_at > leased_until, true)""",
    "an undo is one row": """
        select tenant_id, undoes, count(*) from memfold.memory_events where tenant_id = any(%(tenants)s)
        and undoes is not null group by 1, 2 having count(*) > 1""",
    "an undone run has nothing in force": """
        select r.tenant_id, r.run_id, e.event_id from memfold.runs as r
        join memfold.memory_events as e on e.tenant_id = r.tenant_id and e.run_id = r.run_id
        where r.tenant_id = any(%(tenants)s) and r.status = 'undone' and e.action in ('merged', 'replaced', 'pruned')
        and not exists (select from memfold.memory_events as u where u.tenant_id = e.tenant_id and u.undoes = e.event_id)""",
    "sides, edges and turns exist": """
        select j.tenant_id, j.judgement_id, null::uuid from memfold.judgements as j
        where j.tenant_id = any(%(tenants)s) and (select count(*) from memfold.memories as m
            where m.tenant_id = j.tenant_id and m.memory_id in (j.memory_id, j.other_id)) <> 2
        union all
        select m.tenant_id, m.memory_id, r.memory_id from memfold.memories as m
        left join memfold.memories as r on r.tenant_id = m.tenant_id and r.memory_id = m.root_id
        where m.tenant_id = any(%(tenants)s) and m.status = 'merged' and (r.memory_id is null or r.root_id is not null)""",
}

HELD = {
    "no advisory lock": "select pid, mode, objid from pg_locks where locktype = 'advisory'",
    "nobody idles in a transaction": """
        select pid, state, application_name, query from pg_stat_activity
        where state like 'idle in transaction%%' and pid <> pg_backend_pid()""",
    "no prepared transaction": "select gid from pg_prepared_xacts",
    "nothing waits for a lock": "select pid, locktype, mode from pg_locks where not granted",
}


def held(db: DB) -> list[str]:
    """Locks and transactions that somebody who is gone has left."""
    return [
        f"{name}: {rows[:3]}"
        for name, query in HELD.items()
        if (rows := db.execute(query.encode()).fetchall())
    ]


def broken(db: DB, tenants: list[str]) -> list[str]:
    """The promises that do not hold, of some tenants."""
    found = []
    for name, query in PROMISES.items():
        if rows := db.execute(query.encode(), {"tenants": tenants}).fetchall():
            found.append(f"{name}: {len(rows)}, such as {rows[:2]}")
    for tenant in tenants:
        if rows := db.execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall():
            found.append(f"check_invariants({tenant}): {len(rows)}, such as {rows[:3]}")
    return found


def corrupt(db: DB) -> list[str]:
    """amcheck's findings for every index and table of memfold."""
    found = []
    relations = db.execute(
        "select c.oid, c.oid::regclass::text, a.amname from pg_class as c left join pg_am as a on a.oid = c.relam"
        " where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'i') and c.relpersistence = 'p'"
    ).fetchall()
    for oid, name, method in relations:
        try:
            if method == "btree":
                db.execute("select bt_index_check(%s::oid::regclass, true)", [oid])
            elif method == "heap":
                found += [
                    f"{name}: {row}"
                    for row in db.execute("select * from verify_heapam(%s::oid::regclass)", [oid]).fetchall()
                ]
        except psycopg.Error as error:
            found.append(f"{name}: {error}")
    return found


@dataclass
class Audit:
    """Compare the accounts with the database, since the beginning."""

    world: World
    found: dict[str, list[UUID]] = field(default_factory=dict)
    """Each mark's ledger rows."""
    known: dict[str, Call] = field(default_factory=dict)
    checked_to: UUID = NEVER
    counts: Counter[str] = field(default_factory=Counter)
    open_calls: list[Call] = field(default_factory=list)
    hot: Counter[tuple[str, int]] = field(default_factory=Counter)

    def collect(self) -> list[Call]:
        """The calls that the last audit left open and those since."""
        calls = self.open_calls
        for client in self.world.clients:
            if isinstance(client, Writer):
                calls += client.calls
                client.calls = []
        self.open_calls = []
        for call in calls:
            for mark in call.marks:
                self.known[mark] = call
        return calls

    def read(self, db: DB) -> list[str]:
        """The ledger since the last audit: ids of rows are in order of time."""
        wrong = []
        upto = db.execute("select memfold_internal._new_id()").fetchone()
        assert upto is not None
        for tenant, event_id, mark, content in db.execute(
            "select tenant_id, event_id, t.turn, case when bucket_id = 'hot' then content end"
            " from memfold.memory_events, unnest(source_turn_ids) as t (turn) where event_id > %s",
            [self.checked_to],
        ):
            self.found.setdefault(mark, []).append(event_id)
            if content is not None:
                number = re.search(r"\d+", content)
                assert number is not None
                self.hot[tenant, int(number[0])] += 1
            if mark not in self.known:
                wrong.append(f"nobody has sent {mark}")
            elif self.known[mark].tenant != tenant:
                wrong.append(f"{mark} was sent for {self.known[mark].tenant}, it is of {tenant}")
        self.checked_to = upto[0]
        return wrong

    def compare(self, db: DB) -> list[str]:
        """Every acknowledged call is there once, one in doubt once or not at all, and whole."""
        calls = self.collect()
        wrong = self.read(db)
        for call in calls:
            rows = [self.found.get(mark, []) for mark in call.marks]
            numbers = {len(row) for row in rows}
            told = f"{call.kind} {call.marks[0]} ({call.state}, keyed: {call.keyed})"
            if max(numbers) > 1:
                wrong.append(f"counted twice: {told}")
            if len(numbers) > 1:
                wrong.append(f"half of it is there: {told} {sorted(numbers)}")
            there = 1 in numbers
            match call.state:
                case "acked":
                    self.counts["acknowledged"] += 1
                    if not there:
                        wrong.append(f"acknowledged, and not there: {told}")
                    elif [row[0] for row in rows] != call.events:
                        wrong.append(f"another ledger row than was said: {told}")
                case "doubt" | "new":
                    if call.state == "doubt":
                        self.counts["in doubt"] += 1
                        self.counts["in doubt, found"] += there
                    elif there:
                        wrong.append(f"never sent, and there: {told}")
                    if call.keyed or call.state == "new":
                        self.open_calls.append(call)  # it will be sent again
                    else:
                        call.state = "found" if there else "never"
                case _:
                    if there:
                        wrong.append(f"refused, and there: {told}")
        wrong += self.keys(db, calls)
        wrong += self.deeds(db)
        self.world.seen["observations"] = len(self.found)
        return wrong

    def keys(self, db: DB, calls: list[Call]) -> list[str]:
        """A key leads to its call's ledger row, and is there if and only if that is."""
        wrong = []
        expected: dict[tuple[str, str], UUID | None] = {}
        for call in calls:
            for item, mark in zip(call.items, call.marks, strict=True):
                if call.keyed:
                    rows = self.found.get(mark, [])
                    expected[call.tenant, item["idempotency_key"]] = rows[0] if rows else None
        rows = db.execute(
            "select tenant_id, idempotency_key, event_id from memfold.idempotency_keys"
            " where tenant_id = any(%s) and bucket_id = any(%s) and idempotency_key = any(%s)",
            [list({tenant for tenant, _ in expected}), BUCKETS, [key for _, key in expected]],
        ).fetchall()
        there = {(tenant, key): event_id for tenant, key, event_id in rows}
        for where, event_id in expected.items():
            if there.get(where) != event_id:
                wrong.append(f"key {where}: {there.get(where)}, and the ledger row is {event_id}")
        return wrong

    def deeds(self, db: DB) -> list[str]:
        """Calls that were acknowledged to judges and maintenance are stored."""
        wrong = []
        deeds: list[Deed] = []
        for client in self.world.clients:
            if isinstance(client, Writer | Judge | Maintenance):
                deeds += client.deeds
                client.deeds = []

        def one(query: str, *arguments: Any) -> Any:
            return db.execute(query.encode(), arguments).fetchone()

        for deed in deeds:
            self.counts[f"{deed.state}: judge, maintenance, attach"] += 1
            if deed.state != "acked":
                continue
            right = True
            match deed.kind:
                case "attach" if deed.answer is not None:
                    right = one(
                        "select 1 from memfold.memory_vectors where tenant_id = %s and memory_id = %s",
                        deed.tenant, deed.subject,
                    ) is not None  # fmt: skip
                case "resolve":
                    state, event_id = deed.answer
                    row = one(
                        "select j.status, j.model, exists (select from memfold.memory_events as e"
                        "  where e.tenant_id = j.tenant_id and e.event_id = %s and e.judgement_id = j.judgement_id)"
                        " from memfold.judgements as j where j.tenant_id = %s and j.judgement_id = %s",
                        event_id, deed.tenant, deed.subject[0],
                    )  # fmt: skip
                    right = row == (
                        "done" if state == "done" else "obsolete",
                        deed.subject[1],
                        state == "done",
                    )
                case "undo":
                    right = one(
                        "select 1 from memfold.memory_events where tenant_id = %s and undoes = %s",
                        deed.tenant, deed.subject,
                    ) is not None  # fmt: skip
                case "undo_run":
                    right = one(
                        "select status from memfold.runs where tenant_id = %s and run_id = %s",
                        deed.tenant, deed.subject,
                    ) == ("undone",)  # fmt: skip
                case "consolidate" | "sweep" | "session" | "prune":
                    runs = [row[0] for row in deed.answer if row[0] is not None]
                    right = one(
                        "select count(*) from memfold.runs where tenant_id = %s and run_id = any(%s)",
                        deed.tenant, runs,
                    ) == (len(runs),)  # fmt: skip
            if not right:
                wrong.append(f"acknowledged, and not so: {deed}")
        return wrong

    def hot_counters(self, db: DB) -> list[str]:
        """For texts that are neither merged nor undone, the counter is the number of calls."""
        shown = {
            (tenant, int(text.rpartition(" ")[2])): observations
            for tenant, text, observations in db.execute(
                "select m.tenant_id, memfold.canonicalize(m.content, 'prose/1'), k.observations from memfold.memories as m"
                " join memfold.memory_totals as k using (tenant_id, memory_id) where m.bucket_id = 'hot'"
            )
        }
        return [
            f"hot fact {where}: {shown.get(where)} observations, {self.hot[where]} calls"
            for where in {*shown, *self.hot}
            if shown.get(where) != self.hot[where]
        ]

    def all(self, db: DB, tenants: list[str]) -> list[str]:
        """Everything that must hold while nobody writes."""
        wrong = [*self.world.faults, *self.compare(db), *self.hot_counters(db), *broken(db, tenants)]
        self.world.faults.clear()
        return wrong


def drain(world: World, db: DB) -> int:
    """Answer what waits, as leases end; gives how many. None is stuck: a lease ends by time, a dead one is revived."""
    answered = 0
    end = time.monotonic() + PATIENCE
    db.execute("select memfold.retry_judgements(%s)", [None])
    while True:
        claimed = db.execute(
            "select tenant_id, judgement_id from memfold.claim_judgements('the last', max_results => 100,"
            " lease => '1 minute')"
        ).fetchall()
        for tenant, judgement_id in claimed:
            with contextlib.suppress(psycopg.errors.SerializationFailure):
                db.execute(
                    "select memfold.resolve_judgement("
                    "%s, 'distinct', confidence => 0.9, model => 'the last', tenant_id => %s)",
                    [judgement_id, tenant],
                )
                answered += 1
        row = db.execute(
            "select count(*) from memfold.judgements where status in ('open', 'leased') and kind <> 'review'"
        ).fetchone()
        if row == (0,):
            return answered
        assert time.monotonic() < end, f"{row} judgements are stuck"
        if not claimed:
            time.sleep(0.05)


# --- a wire that is cut ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """The point at which a connection is cut: after this many bytes to the server or the client; and how."""

    kind: str
    """close: both ends see the end. reset: the client sees a reset. stall: silence, then close. orphan: the client sees
    the end at once, the server only later: until then its transaction stays open."""
    to_server: bool
    after: int
    seconds: float = 0.0
    word: bytes = b""
    """Not after so many bytes, but where this passes to the server for the ``after``-th time: it gets all of that, and
    its answer is dropped."""


class Proxy:
    """Forwards TCP connections on 127.0.0.1 to a server's socket, and cuts them as ``plan`` says."""

    def __init__(self, socket_dir: Path, plan: Callable[[], Cut | None]) -> None:
        self.upstream = f"{socket_dir}/.s.PGSQL.{PORT}"
        self.plan = plan
        self.cuts: Counter[str] = Counter()
        self.connections = 0
        self.closing = False
        self.threads: list[threading.Thread] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.acceptor = threading.Thread(target=self._accept, daemon=True)
        self.acceptor.start()

    def dsn(self, dbname: str = "postgres", user: str = "postgres") -> str:
        return (
            f"host=127.0.0.1 port={self.port} user={user} dbname={dbname} sslmode=disable gssencmode=disable"
            " connect_timeout=10"
        )

    def close(self) -> None:
        self.closing = True
        self.acceptor.join(PATIENCE)
        self.listener.close()
        for thread in self.threads:
            thread.join(PATIENCE)

    def _accept(self) -> None:
        while not self.closing:
            if select.select([self.listener], [], [], 0.1)[0]:
                client, _ = self.listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._carry, args=[client, self.plan()], daemon=True)
                self.threads = [t for t in self.threads if t.is_alive()] + [thread]
                thread.start()

    def _carry(self, client: socket.socket, cut: Cut | None) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as upstream:
            try:
                upstream.connect(self.upstream)
                self._forward(client, upstream, cut)
            except OSError:
                return

    def _forward(self, client: socket.socket, upstream: socket.socket, cut: Cut | None) -> None:
        passed = {True: 0, False: 0}
        words = 0
        while not self.closing:
            for source in select.select([client, upstream], [], [], 0.1)[0]:
                to_server = source is client
                data = source.recv(65536)
                if not data:
                    return
                if cut is not None and cut.word:
                    words += to_server and cut.word in data
                    if words == cut.after:
                        upstream.sendall(data)
                        select.select([upstream], [], [], 0.2)
                        self._cut(client, upstream, cut)
                        return
                elif (
                    cut is not None
                    and cut.to_server == to_server
                    and passed[to_server] + len(data) >= cut.after
                ):
                    data = data[: cut.after - passed[to_server]]
                    (upstream if to_server else client).sendall(data)
                    self._cut(client, upstream, cut)
                    return
                (upstream if to_server else client).sendall(data)
                passed[to_server] += len(data)

    def _cut(self, client: socket.socket, upstream: socket.socket, cut: Cut) -> None:
        where = "to the server" if cut.to_server else "to the client"
        self.cuts[f"{cut.kind}, {'answer dropped' if cut.word else where}"] += 1
        if cut.kind == "stall":
            time.sleep(cut.seconds)
        elif cut.kind == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif cut.kind == "orphan":
            client.close()
            # what the server still says is read, so that it does not wait for its reader
            end = time.monotonic() + cut.seconds
            while (left := end - time.monotonic()) > 0 and not self.closing:
                if select.select([upstream], [], [], left)[0] and not upstream.recv(65536):
                    return
