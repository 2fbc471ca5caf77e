"""`make install` puts files only into the extension directory; `make uninstall` removes them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import servers

SCRIPTS = {f"memfold--{servers.PRESENT}.sql"} | {
    f"memfold--{release}--{servers.PRESENT}.sql"
    for release in servers.releases()
    if release != servers.PRESENT
}


def pgxs() -> Path | None:
    """A pg_config whose server has PGXS."""
    found = [shutil.which("pg_config"), *Path("/usr/lib/postgresql").glob("*/bin/pg_config")]
    for path in filter(None, found):
        said = subprocess.run([path, "--pgxs"], capture_output=True, text=True, check=False).stdout.strip()
        if said and Path(said).is_file():
            return Path(path)
    return None


def without_pgxs(place: Path) -> Path:
    """A pg_config as that of a server without development files."""
    path = place / "pg_config"
    path.write_text("#!/bin/sh\ncase $1 in --sharedir) echo /opt/pg/share;; *) exit 1;; esac\n")
    path.chmod(0o755)
    return path


def make(goal: str, pg_config: Path, to: Path) -> None:
    # without the variables of a make that calls the tests
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    subprocess.run(
        ["make", goal, f"PG_CONFIG={pg_config}", f"DESTDIR={to}"],
        cwd=servers.ROOT, env=environment, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("way", ["PGXS", "without PGXS"])
def test_installs_the_extension_and_removes_it(tmp_path: Path, way: str) -> None:
    pg_config = pgxs() if way == "PGXS" else without_pgxs(tmp_path)
    if pg_config is None:
        pytest.skip("no server here brings PGXS")
    share = subprocess.run(
        [pg_config, "--sharedir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    to = tmp_path / "to"
    own = f"{share.lstrip('/')}/extension"
    make("install", pg_config, to)
    assert files(to) == {f"{own}/{name}" for name in {"memfold.control", *SCRIPTS}}
    assert (to / own / f"memfold--{servers.PRESENT}.sql").stat().st_mode & 0o777 == 0o644

    others = {f"{own}/memfold_py.control", f"{own}/memfold--9.9.sql", "usr/bin/memfold"}
    for name in others:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).touch()
    make("uninstall", pg_config, to)
    assert files(to) == others


def test_installs_into_a_directory(tmp_path: Path) -> None:
    servers.make("install-to", f"DIR={tmp_path}")
    assert files(tmp_path) == {f"extension/{name}" for name in {"memfold.control", *SCRIPTS}}


def test_builds_the_upgrade_from_every_release(tmp_path: Path) -> None:
    """Straight to the version of the tree: by the schema files of later releases, then all functions."""
    tree = tmp_path / "tree"
    servers.make_later(tree)
    servers.make("install-to", f"DIR={tmp_path / 'to'}", tree=tree)
    later = servers.LATER
    upgrades = {release: f"extension/memfold--{release}--{later}.sql" for release in servers.releases()}
    assert files(tmp_path / "to") == {
        "extension/memfold.control", f"extension/memfold--{later}.sql", *upgrades.values()
    }  # fmt: skip
    new = (tmp_path / "to" / f"extension/memfold--{later}.sql").read_text()
    present = (tmp_path / "to" / upgrades[servers.PRESENT]).read_text()
    assert "create table memfold.memories (" in new
    assert "create table memfold.memories (" not in present
    assert new.count("create table memfold.pins (") == present.count("create table memfold.pins (") == 1
