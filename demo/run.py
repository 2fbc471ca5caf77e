"""``make demo``: merges and finds real memories, on the embedded server.

It starts the server (or finds it running), sets its rules, ingests ``memories.jsonl`` through the command
line, and shows from the ledger what was decided. It touches only the tenant ``demo``, and leaves the server running.
Run again, it shows that nothing happens twice.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from memfold import Memfold
from memfold.tools.admin import server
from memfold.tools.cli._npz import read_vectors

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TENANT = "demo"
MODEL = "all-MiniLM-L6-v2"
PARAMETERS = {"tenant": TENANT}
REASONS = {"recalled": "recalled: the agent was shown it from memory, so it is not evidence"}

# The CLI's path as one would type it here.
MEMFOLD = Path(sys.executable).with_name("memfold")
TYPED = os.path.relpath(MEMFOLD) if MEMFOLD.exists() else "memfold"

SET_UP = (
    f"select set_predicate('works_at', '{TENANT}')",
    f"select set_predicate('lives_in', '{TENANT}')",
    f"select register_embedding_model('{MODEL}', 384)",
)

# One row per kind of decision, with an example: for a merge one whose two texts differ, else the shortest.
TIERS = """
select distinct on (e.tier, e.method, e.action)
    e.action, e.tier, e.method, count(*) over (partition by e.tier, e.method, e.action) as times,
    e.content, e.similarity, e.reason, coalesce(t.content, m.content) as other
from memfold.memory_events as e
left join memfold.memories as m using (tenant_id, memory_id)
left join memfold.memories as t on t.tenant_id = e.tenant_id and t.memory_id = e.target_id
where e.tenant_id = %(tenant)s and e.content is not null
order by e.tier, e.method, e.action, e.content = coalesce(t.content, m.content),
    octet_length(e.content) > length(e.content), length(e.content), e.event_id
"""

ESCALATED = """
select j.similarity, j.guard, a.content as newer, b.content as older
from memfold.judgements as j
join memfold.memories as a on a.tenant_id = j.tenant_id and a.memory_id = j.memory_id
join memfold.memories as b on b.tenant_id = j.tenant_id and b.memory_id = j.other_id
where j.tenant_id = %(tenant)s and j.status = 'open'
order by j.judgement_id
"""

# The memory with the most kinds of events.
LIVELIEST = """
select coalesce(m.root_id, m.memory_id) as memory_id
from memfold.memory_events as e
join memfold.memories as m on m.tenant_id = e.tenant_id and m.memory_id in (e.memory_id, e.target_id)
where e.tenant_id = %(tenant)s
group by 1
order by count(distinct (e.action, e.tier, e.method)) desc, count(*) desc, 1
limit 1
"""

COUNT = "select count(*)::integer from memfold.memory_events where tenant_id = %(tenant)s"

TO_TRY = (
    (
        "Sam moves: the old city becomes history",
        f"""select action, memory_id, superseded_id
    from ingest_memory('Sam lives in Paris.', '{TENANT}', 'sam',
    subject => 'Sam', predicate => 'lives_in', object => 'Paris');""",
    ),
    (
        "what was true when: Maria left a job and came back to it",
        f"""select m.content, i.valid_from::date, i.valid_to::date
    from memory_intervals as i join memories as m using (tenant_id, memory_id)
    where tenant_id = '{TENANT}' and m.predicate = 'works_at' order by 2;""",
    ),
    (
        "the health of each bucket",
        f"""select bucket_id, observations, active, tier_1_merges, tier_2_merges, escalated, merge_rate
    from dedup_stats where tenant_id = '{TENANT}';""",
    ),
)


def heading(text: str) -> None:
    """Print the heading of a part."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def memfold(*arguments: str | Path) -> str:
    """Run the command line as a user would; returns its output. stderr passes through."""
    words = [str(argument) for argument in arguments]
    print(f"$ {shlex.join([TYPED, *words])}", flush=True)
    # Without --dsn and MEMFOLD_DSN it uses the embedded server, whatever else this user works with.
    environment = {name: value for name, value in os.environ.items() if name != "MEMFOLD_DSN"}
    done = subprocess.run(
        [sys.executable, "-m", "memfold", *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    if done.returncode != 0:
        print(done.stdout, end="")
        raise SystemExit(f"the demo stops here: memfold {words[0]} failed with exit code {done.returncode}")
    return done.stdout.rstrip("\n")


def quoted(text: str | None) -> str:
    """A memory's text for display."""
    return f'"{text}"'


def count(database: psycopg.Connection[Any]) -> int:
    """The number of ledger rows."""
    row = database.execute(COUNT, PARAMETERS).fetchone()
    return 0 if row is None else int(row[0])


def ingest(database: psycopg.Connection[Any]) -> None:
    """Ingest the file, and report how much of it was new."""
    file, vectors = HERE / "memories.jsonl", HERE / "vectors.npz"
    lines = len(file.read_text(encoding="utf-8").splitlines())
    before = count(database)
    memfold(
        "ingest", os.path.relpath(file), "--vectors", os.path.relpath(vectors), "--embedding-model", MODEL
    )
    written = count(database) - before
    if written == 0:
        print(f"All {lines} candidates were known: this file was ingested before, so this run is a replay.")
        print("Each call got its first answer again, and nothing was written. Below: what was decided then.")
        return
    print(f"{lines} candidates, {written} decisions in the ledger.")
    if written < lines:
        print(f"{lines - written} replayed: a call that came again with its idempotency key (a retry). It")
        print("got its first answer again, and nothing was written.")


def show_tiers(database: psycopg.Connection[Any]) -> None:
    """Print what each tier decided, from the ledger."""
    words = {"merged": "into", "superseded": "retires", "historical": "was before", "escalated": "or"}
    print(f"{'tier':<5} {'method':<9} {'action':<11} {'times':>5}  example")
    for action, tier, method, times, content, similarity, reason, other in database.execute(
        TIERS, PARAMETERS
    ):
        print(f"{tier or '-'!s:<5} {method or '-':<9} {action:<11} {times:>5}  {quoted(content)}")
        notes = []
        if action in words and other is not None:
            notes.append(f"{words[action]} {quoted(other)}")
        if similarity is not None:
            notes.append(f"cosine {similarity:.3f}")
        if reason is not None:
            notes.append(REASONS.get(reason, reason))
        if notes:
            print(f"{'':35}{', '.join(notes)}")


def show_escalated(database: psycopg.Connection[Any]) -> None:
    """Print the pairs that are too close to be clearly two facts and too different to be clearly one."""
    for similarity, guard, newer, older in database.execute(ESCALATED, PARAMETERS):
        print(f"{similarity:.3f}  {quoted(newer)}")
        print(f"       {quoted(older)}")
        print(f"       {', '.join(guard or []) or 'between the thresholds'}")


def show_search(dsn: str) -> None:
    """Ask as an agent would. The queries' vectors ship with the demo, so that it needs no model."""
    vectors = read_vectors(HERE / "queries.npz")
    with Memfold(dsn, TENANT) as client:
        for line in (HERE / "queries.jsonl").read_text(encoding="utf-8").splitlines():
            query, bucket = (json.loads(line)[name] for name in ("content", "bucket_id"))
            found = client.search(
                embedding=vectors[query], embedding_model=MODEL, bucket_id=bucket, max_results=2, touch=False
            )
            print(query)
            for memory in found:
                times = memory.repetition_count + 1
                said = f", said {times} times" if times > 1 else ""
                print(f"    {memory.score:.3f}  {quoted(memory.content)}{said}")


def psql() -> str:
    """A working psql: the one on the PATH, else that of the embedded server."""
    found = shutil.which("psql")
    if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
        return "psql"
    return shlex.quote(str(server.bindir() / "psql"))


def main() -> None:
    """Run the demo."""
    began = time.monotonic()
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]

    heading("1. A server: PostgreSQL 18 with pgvector, and memfold in it")
    dsn = memfold("up")
    print(dsn)
    with psycopg.connect(dsn, autocommit=True) as database:
        heading("2. Rules: two predicates hold one value at a time, and one embedding model is known")
        for statement in SET_UP:
            print(f"{statement};")
            database.execute(statement.encode())

        heading("3. Candidates: three people, eleven sessions, six languages")
        ingest(database)

        heading("4. What each tier did")
        show_tiers(database)

        heading("5. Too close for two facts, too different for one: both are kept, the question is queued")
        show_escalated(database)

        heading("6. One memory explained")
        row = database.execute(LIVELIEST, PARAMETERS).fetchone()
        if row is not None:
            print(memfold("explain", row[0], "--tenant", TENANT))

    heading("7. Search: each fact once, only what is current, best first")
    show_search(dsn)

    heading("8. Try next")
    print(f"{psql()} {shlex.quote(dsn)}\n")
    for purpose, statement in TO_TRY:
        print(f"-- {purpose}\n{statement}\n")
    print(f"The server keeps running, and its data stays. To stop it: {TYPED} down")
    print(f"({time.monotonic() - began:.1f} s)")


if __name__ == "__main__":
    main()
