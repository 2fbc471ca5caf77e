"""The servers that the suite runs on: a throw-away cluster each, with memfold by one of its two ways in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from memfold import _host, migrate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import find_full_server  # noqa: E402

SUPERUSER = "postgres"
PORT = 5432

# Durability is what test_crash asks for; elsewhere it only costs time.
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "shared_buffers": "128MB",
    "max_connections": "120",
    "deadlock_timeout": "200ms",
    "log_min_messages": "error",
}


@dataclass
class Cluster:
    """One throw-away server: its programs, its directory, whether CREATE EXTENSION memfold works on it."""

    name: str
    bindir: Path
    base: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="mf-", dir="/tmp")))
    account: _host.Account = field(default_factory=_host.Account.choose)
    extension: bool = False
    why_no_extension: str = ""

    @property
    def major(self) -> int:
        done = subprocess.run([self.bindir / "postgres", "-V"], capture_output=True, text=True, check=True)
        return int(re.search(r"\d+", done.stdout).group())  # type: ignore[union-attr]

    def run(self, *args: str | Path) -> str:
        code, printed = self.account.run(args)
        if code != 0:
            raise RuntimeError(f"{args[0]} failed: {printed}")
        return printed

    def start(self) -> None:
        self.base.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(self.base, self.account.uid, self.account.gid)
        self.run(
            self.bindir / "initdb", "-D", self.base / "data", "-U", SUPERUSER, "-A", "trust",
            "-E", "UTF8", "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        settings = dict(SETTINGS, unix_socket_directories=str(self.base), port=str(PORT))
        settings.update(self._install_extension())
        with (self.base / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{key} = '{value}'\n" for key, value in settings.items())
        self.run(self.bindir / "pg_ctl", "-D", self.base / "data", "-l", self.base / "log", "-w", "start")

    def _install_extension(self) -> dict[str, str]:
        """`make install`, into a directory of our own where the server can look there (18+)."""
        if self.major >= 18:
            directory = self.base / "share"
            make("install-to", f"DIR={directory}")
            self.extension = True
            return {"extension_control_path": f"{directory}:$system"}
        try:
            make("install", f"PG_CONFIG={self.bindir / 'pg_config'}")
            self.extension = True
        except RuntimeError as error:
            self.why_no_extension = f"make install needs the owner of {self.bindir}: {str(error)[-200:]}"
        return {}

    def stop(self) -> None:
        self.account.run([self.bindir / "pg_ctl", "-D", self.base / "data", "-m", "immediate", "stop"])
        shutil.rmtree(self.base, ignore_errors=True)

    def dsn(self, dbname: str = "postgres", user: str = SUPERUSER) -> str:
        return f"host={self.base} port={PORT} user={user} dbname={dbname}"


def make(*args: str) -> None:
    done = subprocess.run(["make", "-s", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def available() -> tuple[list[Cluster], list[str]]:
    """Clusters that can be had here, not yet started, and what is left out with the reason."""
    account = _host.Account.choose()
    embedded = _host.bindir()
    if os.geteuid() == 0 and not account.can_enter(embedded):
        embedded = _host.readable_copy(embedded)
    clusters = [Cluster("embedded", embedded)]
    left_out = []
    full, why = find_full_server.find()
    if full is None:
        left_out.append(f"full server (PL/Python, pgvector): {why}")
    else:
        clusters.append(Cluster("full", full))
    return clusters, left_out


def load_alembic(**where: Any) -> None:
    migrate.install(_dsn(where))


def load_extension(**where: Any) -> None:
    with psycopg.connect(_dsn(where), autocommit=True) as connection:
        connection.execute("create extension memfold cascade")


def _dsn(where: dict[str, Any]) -> str:
    return f"host={where['host']} port={where['port']} user={where['user']} dbname={where['dbname']}"
