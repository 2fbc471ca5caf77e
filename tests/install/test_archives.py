"""The products of `make deb` and `make tle`: the files of `make install`, and a script that needs no superuser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.support import servers

pytestmark = pytest.mark.one_server

SHARE = "usr/share/postgresql/17/extension"
DOC = "usr/share/doc/postgresql-17-memfold"
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="only Debian has dpkg")


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The work tree and one of the next release, by version."""
    later = tmp_path_factory.mktemp("later")
    servers.make_later(later)
    for name in ("LICENSE", "LICENSE-WordNet"):
        shutil.copy(servers.ROOT / name, later)
    return {servers.PRESENT: servers.ROOT, servers.LATER: later}


def make_deb(tree: Path, to: Path) -> Path:
    pg_config = to / "pg_config"
    pg_config.write_text(
        "#!/bin/sh\ncase $1 in --version) echo PostgreSQL 17.2;; --sharedir) echo /usr/share/postgresql/17;; esac\n"
    )
    pg_config.chmod(0o755)
    servers.make("deb", f"PG_CONFIG={pg_config}", f"DIST={to}", tree=tree)
    (made,) = to.glob("*.deb")
    return made


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_deb(servers.ROOT, tmp_path_factory.mktemp("deb"))


def run(*args: str | Path) -> str:
    return subprocess.run(args, check=True, capture_output=True, text=True).stdout


def installed(root: Path) -> set[str]:
    found = (path for path in (root / "usr").rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in found}


def files(*scripts: str) -> set[str]:
    extension = {f"{SHARE}/{name}" for name in ("memfold.control", *scripts)}
    return extension | {f"{DOC}/{name}" for name in ("copyright", "LICENSE-WordNet")}


@needs_dpkg
def test_the_package_of_debian_has_the_files_of_make_install(deb: Path, tmp_path: Path) -> None:
    assert deb.name == f"postgresql-17-memfold_{servers.PRESENT}-1_all.deb"
    listed = [line.split(maxsplit=5) for line in run("dpkg-deb", "-c", deb).splitlines()]
    servers.make("install-to", f"DIR={tmp_path / 'to'}")
    scripts = {path.name for path in (tmp_path / "to/extension").glob("*.sql")}
    assert {name.removeprefix("./") for *_, name in listed if not name.endswith("/")} == files(*scripts)
    assert {(mode, owner) for mode, owner, *_ in listed} == {
        ("drwxr-xr-x", "root/root"),
        ("-rw-r--r--", "root/root"),
    }
    fields = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", deb).splitlines() if line[0] != " ")
    control = (servers.ROOT / "memfold.control").read_text()
    assert "requires = 'vector'" in control
    assert (fields["Version"], fields["Depends"]) == (f"{servers.PRESENT}-1", "postgresql-17")
    assert fields["Recommends"] == "postgresql-17-pgvector (>= 0.8.0)"
    # no address, in particular not this machine's
    assert re.fullmatch(r"The memfold developers <\w+@memfold\.invalid>", fields["Maintainer"])


@needs_dpkg
@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg gives files to root")
def test_it_is_installed_upgraded_and_removed(deb: Path, trees: dict[str, Path], tmp_path: Path) -> None:
    """In a root of its own, without what it depends on. The old version's scripts go: the new one upgrades from it."""
    root = tmp_path / "root"
    (root / "var/lib/dpkg/updates").mkdir(parents=True)
    (root / "var/lib/dpkg/info").mkdir()
    (root / "var/lib/dpkg/status").touch()
    dpkg = ("dpkg", f"--root={root}", "--force-depends", "--force-unsafe-io", "--log=/dev/null")
    for version, package in (
        (servers.PRESENT, deb),
        (servers.LATER, make_deb(trees[servers.LATER], tmp_path)),
    ):
        run(*dpkg, "-i", package)
        updates = (f"memfold--{one}--{version}.sql" for one in servers.releases() if one != version)
        assert installed(root) == files(f"memfold--{version}.sql", *updates)
        assert f"default_version = '{version}'" in (root / SHARE / "memfold.control").read_text()
    run(*dpkg, "-r", "postgresql-17-memfold")
    assert installed(root) == set()


def test_the_script_for_pg_tle_carries_the_scripts(trees: dict[str, Path], tmp_path: Path) -> None:
    later, tree = servers.LATER, trees[servers.LATER]
    servers.make("tle", f"DIST={tmp_path}", tree=tree)
    text = (tmp_path / f"memfold--{later}.tle.sql").read_text()
    statements, carried = text.split("$tle$")[::2], text.split("$tle$")[1::2]
    updates = [f"memfold--{release}--{later}.sql" for release in servers.releases()]
    assert carried == [(tree / name).read_text() for name in (f"memfold--{later}.sql", *updates)]
    assert f"pgtle.install_extension('memfold', '{later}', " in statements[0]
    assert ", script, '{vector}', 'memfold')" in statements[0]
    for release, said in zip(servers.releases(), statements[1:], strict=False):
        assert said.endswith(f"pgtle.install_update_path('memfold', '{release}', '{later}', ")
    assert statements[-1].endswith(f"select pgtle.set_default_version('memfold', '{later}');\ncommit;\n")


def test_the_end_of_the_script_needs_no_superuser(db: psycopg.Connection) -> None:
    """pg_tle runs it by the rights of the creating role. (What marks tables for dumps runs only in such a script.)"""
    tail = (servers.ROOT / "sql/extension/tail.sql").read_text()
    rest = re.sub(r"(?m)^select pg_catalog\.pg_extension_config_dump\(.*", "", tail)
    assert "update pg_catalog.pg_init_privs" in rest
    with db.transaction(force_rollback=True):
        db.execute("create role an_owner; grant memfold_owner to an_owner; set local role an_owner")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), db.transaction():
            db.execute("update pg_catalog.pg_init_privs set initprivs = initprivs where false")
        db.execute(rest.encode())
        assert db.execute(
            "select current_user, r.rolsuper from pg_roles r where rolname = current_user"
        ).fetchone() == ("an_owner", False)
