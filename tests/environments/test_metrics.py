"""The view ``metrics``, and contrib/metrics: scraped by Debian's exporter, queried in a real Prometheus."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Connect, Target
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB
from tests.support.servers import ROOT, prometheus
from tests.support.waiting import until

METRICS = ROOT / "contrib" / "metrics"
SECONDS = 120  # until all is scraped, on a busy machine
# daemons that ask any server the same
with_prometheus = [
    pytest.mark.one_server,
    # said in the last lines of the run too (LEFT OUT)
    pytest.mark.skipif(
        prometheus() is None, reason="prometheus and prometheus-postgres-exporter are not installed"
    ),
]


def row(db: DB) -> dict[str, Any]:
    cursor = db.execute("select * from memfold.metrics")
    assert cursor.description is not None
    found = cursor.fetchone()
    assert found is not None
    return dict(zip([column.name for column in cursor.description], found, strict=True))


def fill(db: DB) -> None:
    """One of everything that is counted."""
    model(db)
    ingest(db, "Alice has a cat", **vector(1.0))
    assert ingest(db, "Alice has no cat", **vector(0.99)).action == "escalated"
    ingest(db, "Alice has a dog")
    for tenant in ("acme", "globex"):
        db.execute(
            "insert into memfold.memories (tenant_id, bucket_id, memory_type, content) values (%s, 'plain', 'fact', 'Row')",
            [tenant],
        )


@pytest.mark.core
def test_each_number_is_what_it_says(db: DB, connect: Connect) -> None:
    before = row(db)
    assert before["maintenance_seconds"] is None
    assert before["oldest_open_seconds"] is None
    fill(db)
    found = row(db)
    counted = (
        "open_judgements",
        "reviews",
        "overdue_leases",
        "dead_judgements",
        "pending_embeddings",
        "plain_rows",
    )
    # plain rows wait for their vectors too
    assert [found[name] for name in counted] == [1, 0, 0, 0, 3, 2]
    assert 0 <= found["oldest_open_seconds"] < 600
    assert found["bytes"] >= before["bytes"] > 1e6
    for minutes, overdue in ((0, 0), (4, 0), (6, 1)):
        db.execute(
            "update memfold.judgements set status = 'leased', leased_until = now() - make_interval(mins => %s)",
            [minutes],
        )
        assert row(db)["overdue_leases"] == overdue, minutes
    db.execute("update memfold.judgements set kind = 'review'")
    found = row(db)
    assert (found["reviews"], found["oldest_open_seconds"]) == (1, None)
    db.execute("update memfold.judgements set status = 'dead'")
    assert (row(db)["open_judgements"], row(db)["dead_judgements"]) == (0, 1)
    db.execute("select memfold.run_maintenance('acme')")
    found = row(db)
    assert found["plain_rows"] == 1
    assert 0 <= found["maintenance_seconds"] < 600
    assert found["maintenance_failed"] is False
    # what a tenant may see, and what an auditor may
    reader = connect()
    for role, plain in (("memfold_app", 0), ("memfold_auditor", 1)):
        reader.execute(f"set role {role}; set memfold.tenant_id = 'acme'".encode())
        assert row(reader)["plain_rows"] == plain
        reader.execute("reset role")


@pytest.mark.core
def test_nothing_is_scanned(db: DB) -> None:
    """Each part has an index, no matter who asks: the indexes of pending work are small."""
    fill(db)
    with db.transaction(force_rollback=True):
        # Most rows are not pending, and the statistics know it: otherwise an index of all rows costs the same.
        db.execute("set local session_replication_role = replica; set local enable_seqscan = off")
        db.execute(
            """
            insert into memfold.memories (tenant_id, content, is_ingested)
            select 'acme', 'Text ' || n, true from generate_series(1, 2000) as n;
            insert into memfold.judgements (tenant_id, bucket_id, scope_key, kind, status, memory_id, other_id)
            select tenant_id, bucket_id, scope_key, kind, 'done', memory_id, other_id
            from memfold.judgements, generate_series(1, 2000);
            analyze memfold.memories, memfold.judgements
            """
        )
        for role in ("memfold_app", "memfold_auditor"):
            db.execute(f"set local role {role}; set local memfold.tenant_id = 'acme'".encode())
            plan = "\n".join(
                line for (line,) in db.execute("explain select * from memfold.metrics").fetchall()
            )
            assert set(re.findall(r"(?:using|on) (\w+_idx)", plan)) >= {
                "judgements_dead_idx", "judgements_queue_idx", "memories_pending_idx", "memories_not_ingested_idx",
                "runs_maintenance_idx",
            }  # fmt: skip
            assert not re.search(
                r"Seq Scan on (memories|judgements|runs|memory_events|memory_counters) ", plan
            )
            db.execute("reset role")


def configured() -> dict[str, str]:
    """The metrics of the exporter's configuration, with their kinds."""
    text = (METRICS / "postgres_exporter.yml").read_text()
    return dict(re.findall(r"    - (\w+):\n        usage: (\w+)\n", text))


def queries() -> list[str]:
    """The dashboard's queries."""
    board = json.loads((METRICS / "dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_the_configuration_has_every_number(db: DB) -> None:
    assert list(configured()) == list(row(db))
    totals = {name for name, kind in configured().items() if kind == "COUNTER"}
    assert totals == {name for name in configured() if name.endswith("_total")}
    asked = "\n".join([*queries(), (METRICS / "alerts.yml").read_text()])
    assert set(re.findall(r"\bmemfold_(\w+)", asked)) == set(configured())


@pytest.mark.skipif(prometheus() is None, reason="prometheus is not installed")
def test_the_alerts_are_those_that_promtool_knows() -> None:
    """promtool checks the rules and runs their tests: with everything healthy, and with nothing healthy."""
    promtool = shutil.which("promtool")
    assert promtool is not None
    for command in ("check", "test"):
        file = "alerts.yml" if command == "check" else "alerts_test.yml"
        done = subprocess.run(
            [promtool, command, "rules", file], cwd=METRICS, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    tested = re.findall(r"alertname: (\w+)", (METRICS / "alerts_test.yml").read_text())
    rules = re.findall(r"- alert: (\w+)", (METRICS / "alerts.yml").read_text())
    assert sorted(tested) == sorted(2 * rules)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def answer(port: int, query: str) -> list[float]:
    """The values of a query; none too while Prometheus is not up, or reads its files yet (503)."""
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        asking.request("GET", f"/api/v1/query?query={urllib.parse.quote(query)}")
        reply = asking.getresponse()
        found = json.loads(reply.read()) if reply.status != http.HTTPStatus.SERVICE_UNAVAILABLE else None
    except OSError:
        return []
    finally:
        asking.close()
    if found is None:
        return []
    assert found["status"] == "success"
    return [float(series["value"][1]) for series in found["data"]["result"]]


@pytest.fixture
def scraped(db: DB, target: Target, tmp_path: Path) -> Iterator[int]:
    """The port of a Prometheus that scrapes the exporter, which asks this database each second."""
    programs = prometheus()
    assert programs is not None
    role = f"watch_{db.info.dbname}"
    db.execute(f"drop role if exists {role}; create role {role} login in role memfold_auditor".encode())
    exporter, server = free_port(), free_port()
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{METRICS / 'alerts.yml'}']\n"
        f"scrape_configs:\n  - job_name: memfold\n    static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]\n"
    )
    dsn = f"host={target.cluster.base} port={db.info.port} dbname={db.info.dbname} user={role}"
    running = [
        subprocess.Popen(
            [
                programs[1], f"--web.listen-address=127.0.0.1:{exporter}", "--disable-default-metrics",
                "--disable-settings-metrics", f"--extend.query-path={METRICS / 'postgres_exporter.yml'}",
            ],
            env={"DATA_SOURCE_NAME": dsn}, stderr=subprocess.DEVNULL,
        ),
        subprocess.Popen(
            [
                programs[0], f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{server}",
            ],
            stderr=subprocess.DEVNULL,
        ),
    ]  # fmt: skip
    try:
        yield server
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(timeout=30)
        ended = "select count(*) from pg_stat_activity where usename = %s"
        until(lambda: db.execute(ended, [role]).fetchone() == (0,))
        db.execute(f"drop role {role}".encode())


class TestPrometheus:
    pytestmark = with_prometheus

    def test_the_dashboard_finds_what_it_asks_for(self, db: DB, scraped: int) -> None:
        fill(db)
        db.execute("select memfold.run_maintenance('globex')")
        waiting = set(queries())
        deadline = time.monotonic() + SECONDS
        number = 0
        while waiting:
            assert time.monotonic() < deadline, waiting
            # rates need events, and statistics about them
            ingest(db, f"Alice has {(number := number + 1)} fish")
            db.execute("select pg_stat_force_next_flush()")
            waiting = {query for query in waiting if not answer(scraped, query)}
            time.sleep(0.2)
        assert answer(scraped, "memfold_open_judgements") == [1]
        assert answer(scraped, "memfold_maintenance_failed") == [0]
        db.execute("update memfold.judgements set status = 'dead'")
        alert = 'ALERTS{alertname="MemfoldJudgementsDead", alertstate="firing"}'
        until(lambda: answer(scraped, alert) == [1], alert, SECONDS, pause=0.2)
