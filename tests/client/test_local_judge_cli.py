"""`memfold judge --local` and `--review-merges`, on a real server, with a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import make_conninfo

from memfold.client.judging import Answer, Question, local_judge
from memfold.tools.cli import main
from tests.support import nli_onnx
from tests.support.memories import Result as Ingested
from tests.support.memories import check, ingest, model, status, vector
from tests.support.queries import DB, one
from tests.support.servers import ROOT

pytestmark = pytest.mark.one_server


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and labelled pairs on which it is right."""
    pairs = [
        ("Tea", "Tea indeed", "duplicate"),
        ("Tea", "More tea", "refinement"),
        ("Tea", "Not tea", "contradiction"),
    ]
    rows = [{"a": a, "b": b, "label": label, "language": "en", "cosine": 0.9} for a, b, label in pairs * 20]
    (tmp_path / "anchors.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(local_judge, "ANCHORS", tmp_path / "anchors.jsonl")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return nli_onnx.make(tmp_path / "tiny")


def run(dsn: str, *arguments: str | Path, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["judge", "--dsn", dsn, *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def stated(db: DB, *texts: str, cosine: float, tenant: str = "acme", **more: Any) -> list[Ingested]:
    """Each text ingested, with that cosine to the first."""
    return [
        ingest(db, text, subject=texts[0], tenant_id=tenant, **(vector(cosine if n else 1.0) | more))
        for n, text in enumerate(texts)
    ]


def test_a_waiting_question_is_answered(dsn: str, db: DB, tiny: Path) -> None:
    model(db)
    db.execute("select memfold.set_policy('acme', guard => 'off')")
    older, newer = stated(db, "Tea at noon", "Tea at noon and more", cosine=0.9)
    apart = stated(db, "Water", "Not water", cosine=0.9, tenant="globex")
    assert (newer.action, apart[1].action) == ("escalated", "escalated")
    done = run(dsn, "--local", tiny, "--once", "--tenant", "acme", "--maintain", "600")
    assert "INFO judge model=tiny is new: measuring it on 60 labelled pairs" in done.stderr
    assert "INFO judge model=tiny measured right=60 wrong=0 unsure=0" in done.stderr
    assert "judged 1 (1 refinement)" in done.stderr
    assert (status(db, older), status(db, newer)) == ("merged", "active")
    assert one(db, "select model from memfold.judgements where status = 'done'") == "tiny"
    # measured once; now for all tenants
    done = run(dsn, "--local", tiny, "--once")
    assert "is new" not in done.stderr
    assert "judged 1 (1 contradiction)" in done.stderr
    assert (status(db, apart[0]), status(db, apart[1])) == ("superseded", "active")
    check(db)


def test_as_a_process_with_the_pairs_that_come_with_memfold(dsn: str, db: DB, tmp_path: Path) -> None:
    """Nothing is patched: the answers of a model that knows nothing are below the floor, so nothing changes."""
    model(db)
    older, newer = stated(db, "Tea at noon", "Tea at midday", cosine=0.9)
    done = subprocess.run(
        [sys.executable, "-m", "memfold", "judge", "--dsn", dsn, "--once", "--local", nli_onnx.make(tmp_path / "m")],
        cwd=ROOT / "python_client", env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "measuring it on 200 labelled pairs" in done.stderr
    assert (status(db, older), status(db, newer)) == ("active", "active")
    assert one(db, "select verdict from memfold.judgements") == "unsure"


def test_a_missing_model_is_reported(dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "cannot judge\nDETAIL: It has no config.json" in run(dsn, "--local", tmp_path, exit_code=1).stderr
    asked: list[str] = []

    def stand_in(name: str) -> None:
        asked.append(name)
        raise SystemExit(7)

    monkeypatch.setattr("memfold.tools.cli._judge.LocalJudge", stand_in)
    run(dsn, "--local", "--once", exit_code=7)
    assert asked == ["cross-encoder/nli-deberta-v3-xsmall"]


# a second look -----------------------------------------------------------------------------------------------


@pytest.fixture
def merged(dsn: str, db: DB) -> dict[str, Ingested]:
    """Automatic merges, of which one is wrong; the guard would have seen it."""
    model(db)
    for tenant in ("acme", "globex"):
        db.execute("select memfold.set_policy(%s, guard => 'off')", [tenant])
    made = {
        "right": stated(db, "Tea", "Tea indeed", cosine=0.97)[1],
        "wrong": stated(db, "Water", "Not water", cosine=0.97)[1],
        "old": stated(db, "Salt", "Not salt", cosine=0.97)[1],
        "confirmed": stated(db, "Milk", "Not milk", cosine=0.97)[1],
        "labelled": stated(db, "Rice", "Not rice", cosine=0.97)[1],
        "another's": stated(db, "Wine", "Not wine", cosine=0.97, tenant="globex")[1],
    }
    assert {(one.action, one.tier) for one in made.values()} == {("merged", 2)}
    with db.transaction():
        db.execute("set local session_replication_role = replica")
        db.execute(
            "update memfold.memory_events set recorded_at = recorded_at - interval '2 days' where event_id = %s",
            [made["old"].event_id],
        )
    # a person undid it and restored it; a person labelled it
    (undo,) = db.execute(
        "select distinct event_id from memfold.undo(%s, 'acme')", [made["confirmed"].event_id]
    ).fetchone() or (None,)
    db.execute("select memfold.undo(%s, 'acme')", [undo])
    db.execute("select memfold.add_labelled_pair('Rice', 'Not rice', 'duplicate', 'acme')")
    return made


def in_force(db: DB, merged: dict[str, Ingested]) -> set[str]:
    return {
        name
        for name, made in merged.items()
        if not one(db, "select undone from memfold.ledger where event_id = %s", made.event_id)
    }


def test_a_review_undoes_wrong_merges(dsn: str, db: DB, tiny: Path, merged: dict[str, Ingested]) -> None:
    look = ("--local", tiny, "--review-merges", "--tenant", "acme")
    done = run(dsn, *look, "--dry-run", "--json")
    seen = json.loads(done.stdout)
    assert (seen["looked_at"], seen["dry_run"], seen["counts"]) == (2, True, {"left": 1, "to undo": 1})
    assert [(each["outcome"], each["verdict"], each["newer"], each["older"]) for each in seen["merges"]] == [
        ("left", "duplicate", "Tea indeed", "Tea"),
        ("to undo", "contradiction", "Not water", "Water"),
    ]
    assert in_force(db, merged) == set(merged)

    done = run(dsn, *look)
    assert done.stdout.splitlines()[0].split() == [
        "outcome",
        "verdict",
        "confidence",
        "event",
        "newer",
        "older",
    ]
    assert done.stdout.splitlines()[-1] == "left 1, undone 1"
    assert in_force(db, merged) == {*merged} - {"wrong"}
    assert status(db, merged["wrong"].memory_id) == "active"
    reason = one(db, "select reason from memfold.ledger where undoes = %s", merged["wrong"].event_id)
    assert reason == "a second look by tiny: contradiction"

    assert run(dsn, *look).stdout.splitlines()[-1] == "left 1"
    long_ago = run(dsn, *look, "--since", "2020-01-01T00:00Z", "--dry-run")
    assert long_ago.stdout.splitlines()[-1] == "left 1, to undo 1"
    check(db)


def test_below_the_floor_nothing_is_undone(dsn: str, db: DB, tiny: Path, merged: dict[str, Ingested]) -> None:
    db.execute("select memfold.set_policy('acme', 'default', confidence_floor => 1)")
    done = run(dsn, "--local", tiny, "--review-merges", "--tenant", "acme")
    assert done.stdout.splitlines()[-1] == "left 2"
    assert in_force(db, merged) == set(merged)


class Doubter:
    """Any judge can look: this one fails for one pair."""

    async def judge(self, question: Question) -> Answer:
        assert (question.other.content, question.guard) in (("Tea", ()), ("Water", ()))
        if question.other.content == "Water":
            raise ValueError
        return Answer("distinct", 0.9)


def test_by_a_plugged_in_judge_that_fails_once(
    dsn: str, db: DB, merged: dict[str, Ingested], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    look = ("--judge", "tests.client.test_local_judge_cli:Doubter", "--review-merges", "--tenant", "acme")
    done = run(dsn, *look, exit_code=1)
    assert "failed 1, undone 1" in done.stdout
    assert "1 merges were not judged or not undone" in done.stderr
    assert "not undone; the last: ValueError" in done.stderr
    assert in_force(db, merged) == {*merged} - {"right"}


@pytest.mark.usefixtures("merged")
def test_who_may_review_merges(dsn: str, db: DB, tiny: Path) -> None:
    look = ("--local", tiny, "--review-merges")
    assert "needs --tenant" in run(dsn, *look, exit_code=2).stderr
    name = db.info.dbname
    try:
        for role, group in ((f"app_{name}", "memfold_app"), (f"judge_{name}", "memfold_judge")):
            db.execute(f"create role {role} login in role {group}".encode())
        as_app = make_conninfo(dsn, user=f"app_{name}")
        assert "left 1, undone 1" in run(as_app, *look, "--tenant", "acme").stdout
        refused = run(make_conninfo(dsn, user=f"judge_{name}"), *look, "--tenant", "acme", exit_code=1)
        assert "42501" in refused.stderr
    finally:
        for role in (f"app_{name}", f"judge_{name}"):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f"drop owned by {role}; drop role {role}".encode())
