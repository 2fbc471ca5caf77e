"""memfold ingest, restore and calibrate of a stream; lines that are added; names that are mistyped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import make_conninfo

from memfold import Memfold
from memfold.tools.cli import main
from tests.support.memories import ingest
from tests.support.queries import DB

Run = Callable[..., Result]
pytestmark = pytest.mark.one_server

CAT, DOG, HORSE = (
    {"content": f"Alice has a {animal}.", "subject": "Alice"} for animal in ("cat", "dog", "horse")
)


@pytest.fixture
def run(dsn: str) -> Run:
    def invoke(*arguments: object, lines: str | bytes = b"", code: int = 0) -> Result:
        given = [str(argument) for argument in arguments]
        result = CliRunner(env={"MEMFOLD_DSN": dsn}).invoke(main, given, input=lines)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def jsonl(*candidates: dict[str, Any]) -> str:
    return "".join(json.dumps(candidate) + "\n" for candidate in candidates)


def observations(db: DB) -> dict[str, int]:
    rows = db.execute(
        "select content, repetition_count + 1 from memory_audit where status = 'active' order by memory_id"
    ).fetchall()
    return dict(rows)


# a line counts once --------------------------------------------------------------------------------------------


def test_only_an_appended_line_counts(run: Run, db: DB, tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text(jsonl(CAT, DOG, CAT))
    run("ingest", file, "--tenant", "t")
    assert observations(db) == {"Alice has a cat.": 2, "Alice has a dog.": 1}
    file.write_text(jsonl(CAT, DOG, CAT, HORSE, CAT))
    again = run("ingest", file, "--tenant", "t")
    assert "3 of 5 lines are replays" in again.stdout
    assert observations(db) == {"Alice has a cat.": 3, "Alice has a dog.": 1, "Alice has a horse.": 1}


def test_only_a_corrected_line_counts(run: Run, db: DB, tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text(jsonl(CAT, {"content": ""}, DOG))
    run("ingest", file, "--tenant", "t", code=1)
    # in another order, with other line ends, and a byte order mark
    lines = [json.dumps(line) for line in (DOG, HORSE, CAT)]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert "2 of 3 lines are replays" in run("ingest", file, "--tenant", "t").stdout
    assert observations(db) == {"Alice has a cat.": 1, "Alice has a dog.": 1, "Alice has a horse.": 1}


def test_another_file_is_another_source(run: Run, db: DB, tmp_path: Path) -> None:
    """A fact in each day's file was said on each day."""
    for day in ("monday", "tuesday"):
        (tmp_path / day).mkdir()
        file = tmp_path / day / "m.jsonl"
        file.write_text(jsonl(CAT))
        run("ingest", file, "--tenant", "t")
    assert observations(db) == {"Alice has a cat.": 2}
    run("ingest", file, "--tenant", "t", "--source", "one")
    run("ingest", tmp_path / "monday" / "m.jsonl", "--tenant", "t", "--source", "one")
    assert observations(db) == {"Alice has a cat.": 3}


def test_a_resumed_run_counts_equal_lines_correctly(run: Run, db: DB, tmp_path: Path, dsn: str) -> None:
    """The lines before it are not sent again, but they are what equal ones are counted from."""
    from memfold.tools.cli._files import Ingestion

    file = tmp_path / "m.jsonl"
    file.write_text(jsonl(CAT, CAT, CAT, CAT))
    with Memfold(dsn, "t") as client:
        first = Ingestion(
            client, file, tenant="t", bucket=None, vectors=None, model=None, source=None,
            state=tmp_path / "m.jsonl.memfold-state", resume=True,
        )  # fmt: skip
        lines = iter(first)
        next(lines)
        next(lines)
        lines.close()  # type: ignore[attr-defined]
    assert observations(db) == {"Alice has a cat.": 2}
    assert "resuming after line 2" in run("ingest", file, "--tenant", "t").stderr
    assert observations(db) == {"Alice has a cat.": 4}


# stdin ---------------------------------------------------------------------------------------------------------


def test_ingest_reads_stdin(run: Run, db: DB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = jsonl(CAT, {"content": ""}, CAT)
    first = run("ingest", "-", "--tenant", "t", lines=lines, code=1)
    assert "stdin:2: MF004" in first.stderr
    assert "1 of 3 lines were refused" in first.stderr
    assert observations(db) == {"Alice has a cat.": 2}
    run("ingest", "-", "--tenant", "t", lines=lines, code=1)
    assert observations(db) == {"Alice has a cat.": 2}
    run("ingest", "-", "--tenant", "t", "--source", "another", lines=jsonl(CAT))
    assert observations(db) == {"Alice has a cat.": 3}
    assert list(tmp_path.iterdir()) == [], "no state is left behind"


def test_vectors_come_from_stdin_too(run: Run, db: DB, tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text(jsonl(CAT))
    arrays = io.BytesIO()
    np.savez(arrays, texts=np.array([CAT["content"]]), vectors=np.ones((1, 3), dtype=np.float32))
    run(
        "ingest", file, "--tenant", "t", "--vectors", "-", "--embedding-model", "toy", lines=arrays.getvalue()
    )
    assert db.execute("select count(*) from memory_vectors").fetchone() == (1,)
    refused = run("ingest", "-", "--vectors", "-", "--embedding-model", "toy", code=2)
    assert "stdin (-) can be read only once" in refused.stderr
    assert "--state needs a file" in run("ingest", "-", "--state", tmp_path / "s", code=2).stderr


def test_restore_reads_stdin(run: Run, db: DB) -> None:
    ingest(db, "Alice has a cat.", tenant_id="t")
    exported = run("export", "--tenant", "t").stdout
    run("restore", "-", "--tenant", "other", lines=exported)
    assert db.execute("select content from memories where tenant_id = 'other'").fetchall() == [
        ("Alice has a cat.",)
    ]
    cut = "".join(exported.splitlines(keepends=True)[:-1])
    assert "stdin has no end" in run("restore", "-", "--tenant", "third", lines=cut, code=1).stderr
    assert "stdin does not begin" in run("restore", "-", lines="no export\n", code=1).stderr
    assert db.execute("select count(*) from memories where tenant_id = 'third'").fetchone() == (0,)


def test_calibrate_reads_pairs_from_stdin(run: Run, db: DB) -> None:
    db.execute("select register_embedding_model('toy', 3, 0.92, 0.85)")
    pairs = "".join(
        json.dumps({"a": f"a{n}", "b": f"b{n}", "label": "distinct", "cosine": 0.5}) + "\n" for n in range(5)
    )
    told = run("calibrate", "toy", "--tenant", "t", "--pairs", "-", lines=pairs, code=1).stderr
    assert "5 pairs of stdin are stored" in told
    assert "contradictions are missing" in told
    assert (
        "stdin:1: " in run("calibrate", "toy", "--tenant", "t", "--pairs", "-", lines="{}\n", code=1).stderr
    )


# names that are mistyped ---------------------------------------------------------------------------------------


def test_a_mistyped_name_does_not_look_like_good_health(run: Run, db: DB) -> None:
    ingest(db, "Alice has a cat.", tenant_id="acme", bucket_id="notes")
    told = "tenant acmee has no memories; is its name spelled correctly?"
    assert f"warning  {told}" in run("doctor", "--tenant", "acmee").stdout
    exported = run("export", "--tenant", "acmee", "--bucket", "notes", code=1)
    assert "bucket notes of tenant acmee has no memories, nor anything else" in exported.stderr
    assert "memfold status" in exported.stderr
    assert "no memories" in run("export", "--tenant", "acme", "--bucket", "nots", code=1).stderr
    db.execute("select register_embedding_model('toy', 3, 0.92, 0.85)")
    query = ["--embedding", "[1,0,0]", "--embedding-model", "toy"]
    assert told in run("search", "--tenant", "acmee", *query).stderr
    for command in (
        ["stats"],
        ["status"],
        ["sweep", "--embedding-model", "toy"],
        ["consolidate", "--embedding-model", "toy"],
    ):
        assert told in run(*command, "--tenant", "acmee").stderr, command
    bucket = run("sweep", "--tenant", "acme", "--bucket", "nots", "--embedding-model", "toy")
    assert "bucket nots of tenant acme has no memories" in bucket.stderr
    # and what is there is not warned about
    assert "spelled" not in run("export", "--tenant", "acme", "--bucket", "notes").stderr
    assert "has no memories" not in run("doctor", "--tenant", "acme").output


def test_a_bucket_that_has_only_rules_is_exported(run: Run, db: DB) -> None:
    db.execute("select set_policy('acme', 'notes', merge_threshold => 0.95)")
    told = run("export", "--tenant", "acme", "--bucket", "notes")
    assert "has no memories; is its name spelled correctly?" in told.stderr
    assert any(json.loads(line)["table"] == "policies" for line in told.stdout.splitlines())


# status and undo -----------------------------------------------------------------------------------------------


def test_status_lists_pending_work(run: Run, db: DB) -> None:
    db.execute("select register_embedding_model('toy', 3, 0.92, 0.85)")
    vector = {"tenant_id": "acme", "embedding_model": "toy", "embedding": "[1,0,0]"}
    ingest(db, "Bob has a cat.", **vector)
    assert "nothing is waiting" in run("status").stdout
    ingest(db, "Bob has 2 cats.", **vector | {"embedding": "[0.999,0.04,0]"})
    ingest(db, "Without a vector.", tenant_id="acme", bucket_id="other")
    # the later tenant's bucket has the earlier name
    for tenant, bucket in (("off", "default"), ("off too", "a bucket")):
        db.execute("select set_policy(%s, dedup => 'off')", [tenant])
        ingest(db, "Without a hash.", tenant_id=tenant, bucket_id=bucket)
    shown = run("status").stdout
    assert "memories    of 3 tenants, 4 buckets\n" in shown
    rows = {
        tuple(line.split()[:2]): line.split()[2:]
        for line in shown.splitlines()
        if line.startswith(("acme", "off"))
    }
    assert rows[("acme", "default")] == ["1", "0", "0", "0", "0"]
    assert rows[("acme", "other")][3] == "1"
    assert "for a judge: memfold judge" in run("status").stderr
    assert "of 1 tenant, 2 buckets" in run("status", "--tenant", "acme").stdout
    assert "maintenance has never run" in shown
    run("maintenance", "--tenant", "acme")
    assert "maintenance last ended 2" in run("status").stdout


def test_status_and_doctor_warn_that_nobody_judges(run: Run, db: DB) -> None:
    db.execute("select register_embedding_model('toy', 3)")
    for tenant in ("acme", "globex"):
        vector = {"tenant_id": tenant, "embedding_model": "toy"}
        ingest(db, "Bob has a cat.", **vector, embedding="[1,0,0]")
        ingest(db, "Bob has 2 cats.", **vector, embedding="[0.999,0.04,0]")

    def said(*arguments: str) -> list[str]:
        """The warning of both commands; nothing if neither has one."""
        status = [
            line for line in run("status", *arguments).stderr.splitlines() if "none was answered" in line
        ]
        doctor = [
            line for line in run("doctor", *arguments).stdout.splitlines() if "none was answered" in line
        ]
        assert [line.removeprefix("warning: ") for line in status] == [
            line.removeprefix("warning  ") for line in doctor
        ]
        assert json.loads(run("status", "--json", *arguments).stdout)["warning"] == (
            status[0].removeprefix("warning: ") if status else None
        )
        return status

    assert said() == []
    db.execute("update judgements set created_at = now() - interval '73 hours'")
    told = "warning: 2 questions wait, the oldest for 3 days, and none was answered in that time: run memfold"
    (line,) = said()
    assert line.startswith(told)
    db.execute(
        "select resolve_judgement(judgement_id, 'distinct', model => 'x', tenant_id => tenant_id)"
        " from open_judgements where tenant_id = 'globex'"
    )
    assert said() == said("--tenant", "globex") == []
    assert "1 question has waited for 3 days" in said("--tenant", "acme")[0]


def test_status_without_memfold(run: Run, db: DB, dsn: str) -> None:
    told = run("status", "--dsn", make_conninfo(dsn, dbname="template1"), code=1)
    assert "server      PostgreSQL" in told.stdout
    assert "memfold init DSN" in told.stderr


def test_status_as_an_application(run: Run, db: DB, dsn: str) -> None:
    ingest(db, "Alice has a cat.", tenant_id="acme")
    role = f"status_{db.info.dbname}"
    db.execute(f"drop role if exists {role}; create role {role} login in role memfold_app")
    try:
        told = run("status", "--dsn", make_conninfo(dsn, user=role))
        assert f"memories    {role} sees those of one tenant: memfold status --tenant ID" in told.stdout
        assert "0 tenants" not in told.output
        assert "never run" not in told.output
        own = run("status", "--dsn", make_conninfo(dsn, user=role), "--tenant", "acme")
        assert "of 1 tenant, 1 bucket" in own.stdout
        other = run("status", "--dsn", make_conninfo(dsn, user=role), "--tenant", "amce")
        assert "tenant amce has no memories" in other.stderr
    finally:
        db.execute(f"drop owned by {role}; drop role {role}")


def test_undo_undoes_an_event(run: Run, db: DB) -> None:
    kept = ingest(db, "Alice has a cat.", tenant_id="t")
    other = ingest(db, "Alice owns a cat.", tenant_id="t")
    merged = db.execute(
        "select event_id from merge_memories(%s, %s, tenant_id => 't')", [other.memory_id, kept.memory_id]
    ).fetchone()
    assert merged is not None
    told = run("undo", merged[0], "--tenant", "t", "--reason", "two cats")
    assert told.stdout.count("active") == 2
    assert "Alice owns a cat." in told.stdout
    assert db.execute("select reason from memory_events where undoes is not null").fetchall() == [
        ("two cats",)
    ]
    assert "MF033" in run("undo", merged[0], "--tenant", "t", code=1).stderr
    everything = ["undo", "--actor", db.info.user, "--since", "2020-01-01", "--tenant", "t"]
    assert "withdrawn 2\nnothing has changed yet" in run(*everything).stdout
    assert db.execute("select distinct status from memories").fetchall() == [("active",)]
    assert "withdrawn 2\nrun " in run(*everything, "--yes").stdout
    assert db.execute("select distinct status from memories").fetchall() == [("withdrawn",)]
    row = db.execute("select run_id from runs where kind = 'undo'").fetchone()
    assert row is not None
    assert "active 2" in run("undo", "--run", row[0], "--tenant", "t").stdout
    for wrong in (
        [],
        [merged[0], "--run", merged[0]],
        ["--actor", "a"],
        ["--since", "2020-01-01"],
        ["--run", row[0], "--yes"],
    ):
        assert "give EVENT_ID, or --run RUN_ID, or --actor ROLE" in run("undo", *wrong, code=2).stderr
