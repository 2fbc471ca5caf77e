"""memfold sweep, consolidate, approve, undo: their output and their effects."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner, Result

from memfold.tools.cli import main
from tests.support.maintenance import angle, policy, store, storing
from tests.support.memories import check, model
from tests.support.queries import DB, rows

pytestmark = pytest.mark.one_server


@pytest.fixture
def dsn(db: DB, monkeypatch: pytest.MonkeyPatch) -> str:
    info = db.info
    monkeypatch.delenv("MEMFOLD_DSN", raising=False)
    model(db)
    storing(db)
    for n in range(3):
        for k in range(4):
            store(db, f"Fact {'abc'[n]} {'wxyz'[k]}", subject=f"s{n}", **angle(k))
    store(db, "Fact a v", subject="s0", **angle(28))
    return f"host={info.host} port={info.port} user={info.user} dbname={info.dbname}"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_sweep(db: DB, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfold.tools.cli._maintenance._AT_ONCE", 4)
    policy(db, preset="three_tier", guard="off")
    planned = run("sweep", "--dsn", dsn, "--tenant", "acme", "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert "ask 1, merge 9\n" in planned.output
    assert "pairs at or above 0.98: 18\n" in planned.output
    assert rows(db, "select * from runs") == []
    done = run("sweep", "--dsn", dsn, "--tenant", "acme")
    assert done.exit_code == 0, done.output
    assert re.search(r"run [0-9a-f-]{36}: open: merged 9, waiting 1\n$", done.output)
    assert len(rows(db, "select * from runs")) == 1
    assert "nothing to do\n" in run("sweep", "--dsn", dsn, "--tenant", "acme").output
    check(db)
    [found] = rows(db, "select run_id from runs")
    undone = run("undo", "--run", found["run_id"], "--dsn", dsn, "--tenant", "acme", "--reason", "too soon")
    assert undone.output.startswith("active 12\n")
    assert "undone: obsolete 1, undone 9" in undone.output
    again = run("undo", "--run", found["run_id"], "--dsn", dsn, "--tenant", "acme")
    assert again.exit_code == 1
    assert "HINT" in again.output
    check(db)


def test_a_sweep_in_parts_does_not_cut_a_question(db: DB, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfold.tools.cli._maintenance._AT_ONCE", 2)
    policy(db, preset="three_tier", guard="off", merge_threshold=1)
    done = run("sweep", "--dsn", dsn, "--tenant", "acme")
    assert done.exit_code == 0, done.output
    assert re.search(r"run [0-9a-f-]{36}: open: waiting 3\n$", done.output)
    asked = rows(db, "select cardinality(member_ids) as n from judgements where status = 'open' order by 1")
    assert [a["n"] for a in asked] == [4, 4, 5]
    check(db)


def test_consolidate(db: DB, dsn: str) -> None:
    planned = run("consolidate", "--dsn", dsn, "--tenant", "acme", "--dry-run")
    assert planned.output.endswith("ask 10\n"), planned.output
    asked = run("consolidate", "--dsn", dsn, "--tenant", "acme", "--approval", "person", "--max", 2)
    found = re.search(r"^run (\S+): open: waiting 2\n", asked.output)
    assert found is not None, asked.output
    db.execute("select memfold.approve_run(%s, 'acme', verdict => 'duplicate')", [found[1]])
    assert "nothing to do" not in run("consolidate", "--dsn", dsn, "--tenant", "acme").output
    assert (
        "nothing to do\n" in run("consolidate", "--dsn", dsn, "--tenant", "acme", "--bucket", "none").output
    )
    assert run("consolidate", "DSN", "--tenant", "acme").exit_code == 2
    check(db)
