"""`memfold up` and `memfold down`: their promises, and the faults that they survive."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import sqlalchemy
from click.testing import CliRunner

from memfold import Memfold
from memfold.client import errors
from memfold.tools import cli
from memfold.tools.admin import cluster, host, server
from memfold.tools.admin.server import ServerError
from tests.support import servers
from tests.support.waiting import until

ROOT = os.geteuid() == 0
root_only = pytest.mark.skipif(not ROOT, reason="only root runs a server as another account")

UP = (
    "import sys, pathlib; from memfold.tools.admin import server; print(server.up(pathlib.Path(sys.argv[1])))"
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that root's server account can enter too, unlike pytest's own."""
    directory = servers.directory("memfold-test-")
    directory.chmod(0o755)
    yield directory
    for lock in directory.rglob(host.LOCK):
        with contextlib.suppress(ServerError):
            server.down(lock.parent, crash=True)
    shutil.rmtree(directory)


@pytest.fixture
def home(place: Path) -> Path:
    return place / "pg"


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def ask(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()  # type: ignore[arg-type]
        assert row is not None
        return row[0]


def pid_of(home: Path) -> int:
    pid = server.status(home).pid
    assert pid is not None
    return pid


def gone(pid: int) -> None:
    """Wait until a killed process is gone."""
    for _ in range(500):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} does not end")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    gone(pid)


def start_up(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", UP, str(home)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def as_account(name: str, work: Callable[[], object]) -> str:
    """Run `work` as another account, in a fork: that account may have no access to the interpreter."""
    account = pwd.getpwnam(name)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            answer = str(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        answer = file.read()
    os.waitpid(child, 0)
    return answer


def test_start_status_and_stop(home: Path) -> None:
    assert server.status(home) == server.Status(home, running=False)
    assert server.down(home) is False
    assert not home.exists()

    dsn = server.up(home)
    first = pid_of(home)
    assert server.up(home) == dsn
    assert pid_of(home) == first
    assert server.status(home).dsn == dsn.replace("postgres@", "memfold_local@")
    assert str(ask(dsn, "show server_version")).startswith("18.")
    assert ask(dsn, "select current_database() || current_user || current_setting('data_checksums')") == (
        "memfoldpostgreson"
    )
    assert ask(dsn, "select extname from pg_extension where extname = 'vector'") == "vector"
    locale = (
        "select concat_ws(' ', pg_encoding_to_char(encoding), datlocprovider, datlocale) from pg_database"
    )
    assert ask(dsn, f"{locale} where datname = 'memfold'") == "UTF8 b C.UTF-8"

    with psycopg.connect(dsn) as connection:
        connection.execute("create table kept as select 7 as seven")
    assert server.down(home) is True
    gone(first)
    assert server.down(home) is False
    assert server.status(home).running is False
    assert ask(server.up(home), "select seven from kept") == 7


def test_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    if ROOT:
        assert server.default_data_dir() == Path("/var/lib/memfold/pg18")
    else:
        monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
        assert server.default_data_dir() == Path("/somewhere/memfold/pg18")


def test_dsn_serves_every_client(home: Path) -> None:
    dsn = server.up(home)
    psql = subprocess.run(
        [server.bindir() / "psql", dsn, "-XAtc", "select 1"], capture_output=True, text=True, check=True
    )
    assert psql.stdout == "1\n"
    engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("select 1")) == 1
    engine.dispose()


def test_only_the_caller_gets_in(home: Path) -> None:
    dsn = server.up(home)
    for name in ("data", "run"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o700
    assert home.stat().st_uid == os.geteuid()
    assert stat.S_IMODE(home.stat().st_mode) & 0o066 == 0
    assert ask(dsn, "show listen_addresses") == ""
    others = [c for c in psutil.Process(pid_of(home)).net_connections() if c.family != socket.AF_UNIX]
    assert others == []


def test_awkward_path(place: Path) -> None:
    home = place / "a b'c$d\"e,f %41"
    dsn = server.up(home)
    assert ask(dsn, "select 1") == 1
    assert server.down(home) is True


def test_long_path(place: Path) -> None:
    home = place / ("long" * 40)
    dsn = server.up(home)
    assert ask(dsn, "select 1") == 1
    where = Path(str(ask(dsn, "show unix_socket_directories")))
    assert not where.is_relative_to(place)
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    assert where.stat().st_uid == (home / "data").stat().st_uid
    kill(pid_of(home))
    assert server.up(home) == dsn
    server.down(home)
    assert not where.exists()


def test_a_socket_directory_of_someone_else_is_refused(place: Path) -> None:
    account = host.Account.choose()
    if ROOT:
        trap = place / "trap"
        trap.mkdir()
        os.chown(trap, 12345, 12345)
    else:
        trap = Path("/usr")
    before = trap.stat()
    with pytest.raises(PermissionError):
        host.private_dir(trap, account)
    assert (trap.stat().st_uid, trap.stat().st_mode) == (before.st_uid, before.st_mode)
    link = place / "link"
    link.symlink_to(place)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        host.private_dir(link, account)


def test_postmaster_killed(home: Path) -> None:
    dsn = server.up(home)
    with psycopg.connect(dsn) as connection:
        connection.execute("create table kept as select 7 as seven")
    kill(pid_of(home))
    assert server.status(home).running is False
    assert server.up(home) == dsn
    assert ask(dsn, "select seven from kept") == 7


def test_postmaster_killed_while_a_backend_works_on(home: Path) -> None:
    dsn = server.up(home)
    backends: list[int] = []

    def work() -> None:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(dsn) as connection:
            backends.append(connection.info.backend_pid)
            connection.execute("select count(*) from generate_series(1, 100000000000) a")

    thread = threading.Thread(target=work)
    thread.start()
    active = "select state = 'active' from pg_stat_activity where pid = "
    until(lambda: backends and ask(dsn, f"{active} {backends[0]}"), "the other one works")
    kill(pid_of(home))
    assert psutil.pid_exists(backends[0])
    assert server.up(home) == dsn
    thread.join(10)
    assert not thread.is_alive()
    assert ask(dsn, "select 1") == 1


def test_backend_killed(home: Path) -> None:
    dsn = server.up(home)
    first = pid_of(home)
    for _ in range(5):
        with psycopg.connect(dsn, autocommit=True) as witness, psycopg.connect(dsn) as victim:
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            with contextlib.suppress(psycopg.OperationalError):
                until(lambda: not witness.execute("select 1").rowcount, "the others are ended", pause=0)
            assert server.up(home) == dsn
        assert ask(dsn, "select 1") == 1
    assert pid_of(home) == first


def test_up_killed_at_any_moment(place: Path) -> None:
    began = time.monotonic()
    assert start_up(place / "whole").wait() == 0
    whole = time.monotonic() - began
    for part in range(1, 9):
        home = place / f"part{part}"
        process = start_up(home)
        time.sleep(whole * part / 8)
        process.kill()
        process.communicate()
        assert ask(server.up(home), "select 1") == 1, f"after {part}/8"
        server.down(home, crash=True)
        server.up(home)
        assert list(home.glob("data.init-*")) == []
        server.down(home, crash=True)


def test_a_half_made_cluster_is_made_again(home: Path) -> None:
    process = start_up(home)
    until(
        lambda: process.poll() is not None or list(home.glob("data.init-*/base")),
        "initdb is at it",
        pause=0.001,
    )
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert not (home / "data").exists()
    assert ask(server.up(home), "select 1") == 1


def test_process_ids_reused_by_others(home: Path) -> None:
    """After a crash and a reboot the ids in the lock files may belong to anyone, even of the same account."""
    dsn = server.up(home)
    kill(pid_of(home))
    owner = (home / "data").stat()
    switch = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if ROOT else {}
    with subprocess.Popen(["sleep", "300"], **switch) as sleeper:  # type: ignore[call-overload]
        for path in (home / "data/postmaster.pid", home / "run/.s.PGSQL.5432.lock"):
            lines = path.read_text().splitlines()
            path.write_text("\n".join([str(sleeper.pid), *lines[1:], ""]))
        assert server.status(home).running is False
        assert server.down(home) is False
        assert server.up(home) == dsn
        assert ask(dsn, "select 1") == 1
        assert server.down(home) is True
        assert sleeper.poll() is None
        sleeper.kill()


def test_two_at_once(home: Path) -> None:
    both = [start_up(home) for _ in range(4)]
    answers = [process.communicate() for process in both]
    assert [error for _, error in answers] == [""] * 4
    assert {dsn for dsn, _ in answers} == {server.up(home) + "\n"}


def test_up_and_down_at_once(home: Path) -> None:
    server.up(home)
    for _ in range(3):
        process = start_up(home)
        server.down(home)
        assert process.communicate()[1] == ""
    assert ask(server.up(home), "select 1") == 1


def test_a_table_of_the_caller_is_not_in_memfolds_schema(home: Path) -> None:
    """A program that uses the DSN of `memfold up` and names no schema creates its tables in public, as anywhere."""
    result = CliRunner().invoke(cli.main, ["up", "--data", str(home)])
    assert result.exit_code == 0, result.output
    dsn = result.stdout.strip()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table facts (id integer)")
        assert connection.execute("select 'facts'::regclass = 'public.facts'::regclass").fetchone() == (True,)
        call = "select action from ingest_memory('Alice has a cat.', 'acme')"
        assert connection.execute(call).fetchone() == ("inserted",)


def test_tcp_with_a_password(home: Path, port: int) -> None:
    dsn = server.up(home, port=port)
    assert f"@127.0.0.1:{port}/" in dsn
    assert ask(dsn, "select 1") == 1
    assert server.up(home, port=port) == dsn
    assert ask(dsn, "show listen_addresses") == "127.0.0.1"
    assert stat.S_IMODE((home / "password").stat().st_mode) == 0o600
    for wrong in (
        f"postgresql://postgres:wrong@127.0.0.1:{port}/memfold",
        f"postgresql://postgres@127.0.0.1:{port}/memfold",
    ):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(wrong)

    local = server.up(home)
    assert "127.0.0.1" not in local
    assert ask(local, "select 1") == 1

    chosen = server.up(home, port=port, password="p@ss wörd/%")
    assert ask(chosen, "select 1") == 1
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(dsn)
    for log in (home / "data/log").iterdir():
        assert "wörd" not in log.read_text()


def test_the_login_that_up_prints_is_not_a_superuser(home: Path, port: int) -> None:
    """It administers memfold; row-level security applies to it, and it reaches nothing beyond the database."""
    up = ["up", "--data", str(home), "--port", str(port)]
    dsn = CliRunner().invoke(cli.main, up, catch_exceptions=False).stdout.strip()
    assert dsn.startswith("postgresql://memfold_local:")
    with psycopg.connect(dsn, autocommit=True) as login:
        assert login.execute("select rolsuper from pg_roles where rolname = current_user").fetchone() == (
            False,
        )
        login.execute(
            "select memfold.register_embedding_model('toy', 3, 0.92, 0.85), memfold.set_predicate('likes', 'acme')"
        )
        login.execute("select memfold.ingest_memory('A fact', 'acme')")
        # for the rest of a transaction only
        assert login.execute("select count(*) from memfold.memories").fetchone() == (0,)
        login.execute("set memfold.tenant_id = 'globex'")
        assert login.execute("select count(*) from memfold.memories").fetchone() == (0,)
        login.execute("set memfold.tenant_id = 'acme'")
        assert login.execute("select count(*) from memfold.memories").fetchone() == (1,)
        for call in (
            "copy (select 1) to program 'id'",
            "select pg_read_file('/etc/passwd')",
            "create extension adminpack",
            "set role postgres",
            "alter system set work_mem = '1GB'",
        ):
            with pytest.raises(psycopg.Error) as refused:
                login.execute(call.encode())
            assert refused.value.sqlstate in ("42501", "0A000"), call
        login.execute("create table notes (id bigint generated always as identity primary key, body text)")
        login.execute("insert into notes (body) values ('a fact'), ('A fact'), ('another')")
    adopt = ["adopt", "run", "--table", "public.notes", "--content", "body", "--confirm", "--dsn", dsn]
    assert CliRunner().invoke(cli.main, adopt, catch_exceptions=False).exit_code == 0
    assert ask(dsn, "select count(*) from notes") == 2
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(dsn.replace("memfold_local", "postgres"))
    # and the reverse
    admin = CliRunner().invoke(cli.main, [*up, "--superuser"], catch_exceptions=False).stdout.strip()
    assert ask(admin, "select current_user::text") == "postgres"
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(dsn)


def test_a_password_sent_to_another_program_is_useless(home: Path, port: int) -> None:
    """While the server is down, clients send the password to any program that listens on its port."""
    stolen = server.up(home, port=port)
    assert ask(stolen, "select 1") == 1
    server.down(home)
    renewed = server.up(home, port=port)
    assert ask(renewed, "select 1") == 1
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(stolen)


def test_up_changes_nothing_if_nothing_has_changed(home: Path) -> None:
    """It executes no file, and does not wait for readers."""
    up = ["up", "--superuser", "--data", str(home)]
    dsn = CliRunner().invoke(cli.main, up, catch_exceptions=False).stdout.strip()
    state = (
        "select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_sys_tables"
        " where relname in ('pg_proc', 'pg_description', 'pg_depend')"
    )
    with psycopg.connect(dsn) as reader:
        reader.execute("select count(*) from memfold.memory_totals")
        before = ask(dsn, state)
        again = CliRunner().invoke(cli.main, up, catch_exceptions=False)
        assert (again.exit_code, again.stdout.strip()) == (0, dsn)
        assert "installing" not in again.stderr
        assert ask(dsn, state) == before
    ask(dsn, "select 1; comment on table memfold_internal.alembic_version is 'installed from other files'")
    assert "installing" in CliRunner().invoke(cli.main, up, catch_exceptions=False).stderr


def test_up_prints_the_dsn_if_only_the_upgrade_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    up = ["up", "--superuser", "--data", str(home)]
    dsn = CliRunner().invoke(cli.main, up, catch_exceptions=False).stdout.strip()
    monkeypatch.setenv("MEMFOLD_LOCK_PATIENCE", "0.1")
    with psycopg.connect(dsn, application_name="a report") as reader:
        reader.execute("comment on table memfold_internal.alembic_version is 'installed from other files'")
        reader.commit()
        reader.execute("select count(*) from memfold.memory_totals")
        again = CliRunner().invoke(cli.main, up, catch_exceptions=False)
    assert (again.exit_code, again.stdout.strip()) == (0, dsn)
    assert "memfold stays as it was" in again.stderr
    assert "a report" in again.stderr


def test_a_login_cannot_hold_up_the_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a limited time the error names the login that holds the installation lock; the start itself needs no lock."""
    up = ["up", "--superuser", "--data", str(home)]
    dsn = CliRunner().invoke(cli.main, up, catch_exceptions=False).stdout.strip()
    ask(
        dsn,
        "select 1; create role plain login; comment on table memfold_internal.alembic_version is 'other files'",
    )
    monkeypatch.setenv("MEMFOLD_LOCK_PATIENCE", "0.1")
    held = "select pg_advisory_lock(hashtext('memfold up')), pg_advisory_lock(hashtextextended('memfold install', 0))"
    mine = dsn.replace("postgres@", "plain@")
    with psycopg.connect(mine) as one, psycopg.connect(mine.replace("/memfold?", "/postgres?")) as other:
        one.execute(held)
        other.execute(held)
        again = CliRunner().invoke(cli.main, up, catch_exceptions=False)
        assert (again.exit_code, again.stdout.strip()) == (0, dsn)
        assert f"process {one.info.backend_pid} (plain)" in again.stderr


def test_a_full_queue_of_notifications_refuses_no_statement(home: Path) -> None:
    """Any login can fill it: a call that asks a judge must not fail at COMMIT because of that."""
    up = ["up", "--superuser", "--data", str(home)]
    dsn = CliRunner().invoke(cli.main, up, catch_exceptions=False).stdout.strip()
    with psycopg.connect(dsn, autocommit=True) as owner:
        # 0.5 MB; 8 GB unless somebody sets it
        owner.execute("alter system set max_notify_queue_pages = 64")
        owner.execute("select register_embedding_model('m', 2, 0.92, 0.85)")
        owner.execute("select set_policy('acme', notify => true)")
        owner.execute("create role plain login")
    server.down(home)
    server.up(home)
    mine = dsn.replace("postgres@", "plain@")
    told = "select action from ingest_memory(%s, 'acme', embedding => %s, embedding_model => 'm')"
    with psycopg.connect(mine) as listener, psycopg.connect(mine, autocommit=True) as flood:
        listener.execute("listen junk")
        listener.commit()
        listener.execute("select 1")
        with pytest.raises(psycopg.OperationalError, match="too many notifications"):
            flood.execute(
                "do $$ begin loop perform pg_notify('junk', random() || repeat('x', 7000)); commit; end loop; end $$"
            )
        with psycopg.connect(dsn, autocommit=True) as owner:
            owner.execute(told.encode(), ["Alice has a big cat", "[1,0]"])
            row = owner.execute(told.encode(), ["Alice owns a small dog", "[1,0.5]"]).fetchone()
            assert row == ("escalated",)


def test_a_wrong_password_is_said_to_be_one(home: Path, port: int) -> None:
    """In the words of a real server: libpq passes on no SQLSTATE of a connection that was refused."""
    dsn = server.up(home, port=port, password="the right one")
    wrong = dsn.replace("the%20right%20one", "an-other-secret")
    unnamed = re.sub(":[^:@]*@", "@", dsn)
    nobody = dsn.replace(f"//{server.ROLE}:", "//nobody_at_all:")
    assert len({dsn, wrong, unnamed, nobody}) == 4
    for refused in (wrong, unnamed, nobody):
        with pytest.raises(errors.AuthenticationError) as caught:
            Memfold(refused, "t").known("Alice has a cat.")
        assert "user and password" in str(caught.value.hint)
        told = CliRunner().invoke(cli.main, ["stats", "--dsn", refused])
        assert told.exit_code == 1
        assert "user and password" in told.stderr
        assert "secret" not in told.output
    with pytest.raises(errors.ConnectionLostError, match="does not exist"):
        Memfold(dsn.replace(f"/{server.DATABASE}", "/no_such"), "t").known("Alice has a cat.")
    server.down(home)
    with pytest.raises(errors.ConnectionLostError):
        Memfold(dsn, "t").known("Alice has a cat.")


def test_tcp_only_when_asked(home: Path, port: int) -> None:
    server.up(home)
    with pytest.raises(ServerError, match="is already running without TCP") as caught:
        server.up(home, port=port)
    assert "memfold down --data" in caught.value.hint
    server.down(home)
    server.up(home, port=port)
    with pytest.raises(ServerError, match=f"is already running on port {port}"):
        server.up(home, port=port + 1)
    server.down(home)
    assert ask(server.up(home), "show listen_addresses") == ""


def test_port_in_use(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(ServerError, match="did not start") as caught:
            server.up(home, port=listener.getsockname()[1])
        assert "Address already in use" in caught.value.hint
    assert ask(server.up(home), "select 1") == 1


def test_directories_that_are_not_memfolds(place: Path) -> None:
    (place / "full").mkdir()
    (place / "full" / "thesis.txt").write_text("mine")
    (place / "file").write_text("")
    mode = (place / "full").stat().st_mode
    for path, text in {
        place / "full": "contains files that memfold did not create",
        place / "file": "is not a directory",
        place / "file" / "below": "cannot create",
        place / "new\nline": "control character",
        Path("/proc/memfold"): "cannot create",
    }.items():
        with pytest.raises(ServerError, match=text) as caught:
            server.up(path)
        assert caught.value.hint
    assert (place / "full").stat().st_mode == mode
    assert [entry.name for entry in (place / "full").iterdir()] == ["thesis.txt"]


def test_clusters_of_another_version(home: Path) -> None:
    server.up(home)
    server.down(home)
    (home / "data/PG_VERSION").write_text("17\n")
    with pytest.raises(
        ServerError, match="created by PostgreSQL 17; this memfold includes PostgreSQL 18"
    ) as caught:
        server.up(home)
    assert "--data" in caught.value.hint
    (home / "data/PG_VERSION").unlink()
    with pytest.raises(ServerError, match="PG_VERSION is missing"):
        server.up(home)


def test_bad_arguments(home: Path) -> None:
    for text, call in {
        "is not a TCP port": lambda: server.up(home, port=70000),
        "needs a port": lambda: server.up(home, password="x"),
        "cannot be empty": lambda: server.up(home, port=5499, password=""),
    }.items():
        with pytest.raises(ServerError, match=text):
            call()
    assert not home.exists()


def test_a_server_that_does_not_answer(home: Path) -> None:
    dsn = server.up(home)
    for path in (home / "run").glob(".s.PGSQL.5432"):
        path.unlink()
    with pytest.raises(ServerError, match="does not answer") as caught:
        server.up(home)
    assert "memfold down" in caught.value.hint
    assert server.down(home) is True
    assert server.up(home) == dsn


def test_moved_while_it_runs(home: Path) -> None:
    """Its process is recognised by its working directory, not by the path it was started with."""
    server.up(home)
    moved = home.rename(home.with_name("moved"))
    assert server.status(moved).running is True
    assert server.down(moved) is True
    assert ask(server.up(moved), "select 1") == 1


def test_ordinary_user(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not ROOT:
        assert ask(server.up(place / "own"), "select 1") == 1
        assert (place / "own/data").stat().st_uid == os.geteuid()
        return
    own = place / "own"
    own.mkdir()
    entry = pwd.getpwnam("nobody")
    os.chown(own, entry.pw_uid, entry.pw_gid)
    # Only root may have access to the wheel, and thus to all that Python would import later.
    server.up(place / "first")
    server.down(place / "first")
    monkeypatch.setattr(host, "SYSTEM_DIR", place / "system")
    programs = host.readable_copy(server.bindir())
    monkeypatch.setattr(cluster, "bindir", lambda: programs)
    dsn = as_account("nobody", lambda: server.up(own / "pg"))
    assert dsn.startswith("postgresql://postgres@/memfold?host=")
    assert as_account("nobody", lambda: ask(dsn, "select 1")) == "1"
    assert (own / "pg/data").stat().st_uid == entry.pw_uid
    assert stat.S_IMODE((own / "pg").stat().st_mode) == 0o700
    with pytest.raises(ServerError, match="belongs to nobody"):
        server.up(own / "pg")
    assert as_account("nobody", lambda: server.down(own / "pg", crash=True)) == "True"
    # And the reverse: root's server is closed to that account.
    dsn = server.up(place / "roots")
    assert "ermission denied" in as_account("nobody", lambda: ask(dsn, "select 1"))
    assert "belongs to root" in as_account("nobody", lambda: server.up(place / "roots"))


@root_only
def test_root_opens_no_directory(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(ServerError, match="cannot enter") as caught:
        server.up(closed / "pg")
    assert "/var/lib/memfold/pg18" in caught.value.hint
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert not list((closed / "pg").glob("data*"))


@root_only
def test_root_with_a_wheel_that_only_root_can_read(
    place: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = server.bindir().parents[1]
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    for name in (f"{package.name}/pginstall", f"{package.name}.libs"):
        shutil.copytree(package.parent / name, closed / name)
    monkeypatch.setattr(cluster, "bindir", lambda: closed / package.name / "pginstall/bin")
    monkeypatch.setattr(host, "SYSTEM_DIR", place / "system")

    assert ask(server.up(home), "select 1") == 1
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    (copy,) = (place / "system").glob("server-*")
    made = copy.stat().st_ino
    server.down(home)
    server.up(home)
    assert copy.stat().st_ino == made
    server.down(home)
    (copy / package.name / "pginstall/bin/postgres").unlink()
    assert ask(server.up(home), "select 1") == 1
    server.down(home)

    (place / "system").chmod(0o777)
    with pytest.raises(ServerError, match="accounts other than root can write to"):
        server.up(home)


@root_only
def test_root_keeps_the_account_of_the_cluster(place: Path, home: Path) -> None:
    """The account that owns the files runs the server, whatever account a new cluster would get."""
    server.up(home)
    server.down(home)
    for path in (home / "data", home / "run", *(home / "data").rglob("*")):
        os.chown(path, 23456, 23456)
    assert ask(server.up(home), "select 1") == 1
    assert psutil.Process(pid_of(home)).uids().real == 23456
