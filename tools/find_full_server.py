#!/usr/bin/env python3
"""Find a full server on this machine: PostgreSQL 15+ with plpython3u and pgvector 0.8+.

Prints the directory of its programs, or, with exit code 1, why there is none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST_POSTGRESQL = 15
OLDEST_PGVECTOR = (0, 8)


def candidates() -> list[Path]:
    """Directories that may hold a server; only the one named by MEMFOLD_FULL_SERVER if it is set; "none": none."""
    named = os.environ.get("MEMFOLD_FULL_SERVER")
    if named:
        return [] if named == "none" else [Path(named)]
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0,
        reverse=True,
    )
    found += [Path("/usr/local/pgsql/bin")]
    on_path = shutil.which("postgres")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    return [path for path in found if (path / "postgres").is_file()]


def missing(bindir: Path) -> str:
    """Why this server is not a full one; nothing when it is."""

    def ask(*command: str) -> str:
        done = subprocess.run(
            [bindir / command[0], *command[1:]], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    try:
        version = re.search(r"\d+", ask("postgres", "-V"))
        extensions = Path(ask("pg_config", "--sharedir")) / "extension"
    except OSError as error:
        return f"{error.filename} cannot be run ({error.strerror})"
    if version is None or int(version.group()) < OLDEST_POSTGRESQL:
        return f"it is older than PostgreSQL {OLDEST_POSTGRESQL}"
    if not (extensions / "plpython3u.control").is_file():
        return "it has no plpython3u"
    try:
        control = (extensions / "vector.control").read_text()
    except OSError:
        return "it has no pgvector"
    pgvector = re.search(r"default_version\s*=\s*'(\d+)\.(\d+)", control)
    if pgvector is None or (int(pgvector[1]), int(pgvector[2])) < OLDEST_PGVECTOR:
        return "its pgvector is older than 0.8"
    return ""


def find() -> tuple[Path | None, str]:
    """The programs of the newest full server, or None and the reason."""
    reasons = []
    for bindir in candidates():
        reason = missing(bindir)
        if not reason:
            return bindir, ""
        reasons.append(f"{bindir}: {reason}")
    if os.environ.get("MEMFOLD_FULL_SERVER") == "none":
        return None, "MEMFOLD_FULL_SERVER says none"
    return None, "; ".join(reasons) or "no PostgreSQL server is installed"


if __name__ == "__main__":
    server, why = find()
    print(server or why)
    sys.exit(0 if server else 1)
