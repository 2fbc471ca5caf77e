"""contrib/docker without Docker: the logins, what each may do, the commands of the compose file, and late vectors."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from memfold import Embedder, Memfold
from memfold.tools.cli import main
from tests.conftest import Target
from tests.support import servers
from tests.support.queries import DB

pytestmark = pytest.mark.one_server

DOCKER = servers.ROOT / "contrib" / "docker"
LOGINS = ("app", "judge", "maintenance")


@pytest.fixture
def logins(db: DB, dsn: str, target: Target) -> Any:
    command = [target.cluster.bindir / "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-f", DOCKER / "logins.sql"]
    words = [word for name in LOGINS for word in ("-v", f"{name}=it's {name}")]
    try:
        for _ in range(2):
            subprocess.run([*command, *words, dsn], check=True, capture_output=True, text=True)
        yield
    finally:
        for name in LOGINS:
            db.execute(f"drop role if exists agents_{name}")


def as_login(dsn: str, name: str) -> str:
    return psycopg.conninfo.make_conninfo(dsn, user=f"agents_{name}")


def toy(texts: list[str]) -> list[list[float]]:
    return [[1.0, len(text) / 100] for text in texts]


@pytest.mark.usefixtures("logins")
def test_late_vectors_of_all_tenants(dsn: str, db: DB, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(texts: list[str]) -> list[list[float]]:
        raise TimeoutError

    monkeypatch.syspath_prepend(str(DOCKER))
    import embed_pending  # type: ignore[import-not-found]

    db.execute("select register_embedding_model('toy', 2, 0.99, 0.9)")
    for tenant in ("acme", "globex"):
        with Memfold(as_login(dsn, "app"), tenant, Embedder(down, "toy", 2)) as memfold:
            memfold.ingest("Bob plays the cello.")
    count = "select count(*) from memory_vectors"
    assert db.execute(count).fetchall() == [(0,)]
    embed_pending.run(as_login(dsn, "maintenance"), Embedder(toy, "toy", 2))
    assert db.execute(count).fetchall() == [(2,)]


@pytest.mark.usefixtures("logins")
def test_each_login_may_do_its_work(dsn: str) -> None:
    def run(login: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "memfold", *words, "--dsn", as_login(dsn, login)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    assert run("maintenance", "maintenance").returncode == 0
    with psycopg.connect(as_login(dsn, "judge")) as connection:
        assert connection.execute("select * from memfold.claim_judgements('w')").fetchall() == []
    for login in ("app", "judge"):
        assert run(login, "maintenance").returncode != 0


def test_the_compose_file_runs_what_exists() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    for name, service in services.items():
        assert {"image", "build"} & service.keys(), name
        for waits in service.get("depends_on", {}):
            assert waits in services
        command = " ".join([*service.get("entrypoint", []), service.get("command", "")])
        for words in re.findall(r"(?:^|memfold )((?:init|judge|maintenance)\b[^;]*)", command.strip()):
            first, *options = words.split()
            known = {option for parameter in main.commands[first].params for option in parameter.opts}
            assert {word for word in options if word.startswith("--")} <= known
    (script,) = (one["entrypoint"][1] for one in services.values() if "python" in one.get("entrypoint", []))
    dockerfile = (DOCKER / "Dockerfile").read_text()
    copied = re.findall(r"(?m)^COPY ([\w/.]+) (\S+)$", dockerfile)
    assert all((servers.ROOT / source).exists() for source, _ in copied)
    assert script == dict(copied)[f"contrib/docker/{Path(script).name}"] + Path(script).name
    # what is in .env, by the page
    needed = set(re.findall(r"\$\{(\w+):\?\}", text))
    page = (servers.ROOT / "docs" / "deploy.md").read_text()
    assert needed == set(re.findall(r"\b([A-Z]+_(?:PASSWORD|API_KEY))\b", page))
