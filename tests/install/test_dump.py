"""pg_dump and pg_restore with data: by extension, by alembic, and from a version into a later one."""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from memfold.tools.admin import migrate
from memfold.tools.admin import queries as admin_queries
from memfold.tools.cli._doctor import _dump
from tests.conftest import Make, Target
from tests.support import servers
from tests.support.calibration import SCORE
from tests.support.installing import GRANTED, MEMBERS, adopt_docs, ask, broken, catalog, run, still_adopted

# They install memfold themselves.
pytestmark = pytest.mark.each_server

CIRCULAR = (
    r"pg_dump: warning: there are circular foreign-key constraints on this table:\n"
    r"pg_dump: detail: memories\n(pg_dump: hint: .*\n)+"
)


def move(target: Target, source: str, copy: str, place: Path) -> None:
    """Dump one database and restore it into another, as an administrator does, on a server that has the later release."""
    bindir, dump = target.cluster.bindir, str(place / f"{uuid.uuid4().hex}.dump")
    done = subprocess.run(
        [str(bindir / "pg_dump"), "-Fc", "-f", dump, "-d", source], capture_output=True, text=True
    )
    # An extension's foreign keys are there before its rows. That of memories to itself is checked at the end of the
    # one COPY that loads them.
    assert (done.returncode, re.sub(CIRCULAR, "", done.stderr)) == (0, ""), done.stderr[-2000:]
    restore = [str(bindir / "pg_restore"), "--exit-on-error"]
    if not ask(source, "select 1 from pg_extension where extname = 'memfold'"):
        done = subprocess.run([*restore, "-d", copy, dump], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
        return
    # a dump names no version: the server installs its default, here the present one
    script = Path(dump).with_suffix(".sql")
    subprocess.run([*restore, "-f", str(script), dump], check=True)
    text, found = re.subn(
        r"(?m)^(create extension if not exists memfold with schema memfold);",
        rf"\1 version '{servers.LATER}';", script.read_text(), flags=re.I,
    )  # fmt: skip
    assert found == 1
    script.write_text(text)
    psql = [str(bindir / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", copy, "-f", str(script)]
    done = subprocess.run(psql, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]


def squashed(lines: list[str]) -> list[str]:
    """A body that was printed and parsed again has other parentheses."""
    return [re.sub(r"[()\s]", "", line) for line in lines]


def edit(dsn: str) -> None:
    """Changes by an administrator to rows that memfold ships, and a judge's answers."""
    run(dsn, "select memfold.set_policy('*', merge_threshold => 0.97, weights => '{1,0,0}')")
    run(dsn, "select memfold.set_options('*', decay_floor => 0.1)")
    run(dsn, "insert into memfold.antonyms values ('*', 'tabs', 'spaces', 'en')")
    run(
        dsn,
        "update memfold.antonyms set language = 'xx' where tenant_id = '*' and word = 'like' and antonym = 'hate'",
    )
    judgement = (
        "select judgement_id from memfold.judgements where tenant_id = 'before' and status = 'open' limit 1"
    )
    run(
        dsn,
        f"select memfold.resolve_judgement(({judgement}), 'distinct', confidence => 0.9, reason => 'no cat',"
        f" tenant_id => 'before')",
    )


def opt_out(dsn: str) -> None:
    """A bucket without deduplication that has one text twice."""
    run(dsn, "select memfold.set_policy('before', 'log', dedup => 'off')")
    for _ in range(2):
        run(dsn, "select memfold.ingest_memory('The door was opened', 'before', 'log')")


def robot(dsn: str) -> None:
    """A bucket whose words are compared, and a run of maintenance."""
    run(dsn, "select memfold.set_policy('before', 'robot', preset => 'robotics')")
    for force in ("12.5N works", "12.5N is optimal", "12.5N is best"):
        run(
            dsn,
            f"select memfold.ingest_memory('grip force {force} for cups', 'before', 'robot', session_id => 's')",
        )
    run(dsn, "select memfold.end_session('s', 'before', 'robot')")


def merged(dsn: str) -> None:
    """A memory with an alias, each with counters, of two tenants."""
    for tenant in ("before", "other"):
        for text in ("We have said this often", "We have said this often", "This was said often"):
            run(dsn, f"select memfold.ingest_memory('{text}', '{tenant}', 'old')")
        run(
            dsn,
            "select memfold.merge_memories(b.memory_id, a.memory_id, a.tenant_id) from memfold.memories as a"
            f" join memfold.memories as b using (tenant_id, bucket_id) where tenant_id = '{tenant}'"
            " and a.content = 'We have said this often' and b.content = 'This was said often'",
        )


def calibrated(dsn: str) -> None:
    """Labelled pairs, and two calibrations that were applied, the second with a score."""
    for label in ("duplicate", "distinct"):
        run(dsn, f"select memfold.add_labelled_pair('Tea is hot', 'Tea is {label}', '{label}', 'before')")
    run(dsn, "select memfold.register_embedding_model('calibrated', 4, 0.92, 0.85)")
    for score in (None, SCORE):
        found = uuid.uuid4()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "insert into memfold.calibrations (calibration_id, model, merge_threshold, judge_threshold, report,"
                " fingerprint, score, score_sql, candidate_threshold)"
                " values (%s, 'calibrated', 0.9, 0.5, '{}', '', %s, %s, %s)",
                [found, score and "{}", score, score and 0.4],
            )
        run(dsn, f"select memfold.apply_calibration('{found}')")


def test_a_copy_is_equal_and_can_be_written_to(
    stranger: str, make: Make, way: str, target: Target, tmp_path: Path
) -> None:
    """With a table that was adopted, and what an administrator has granted, after an upgrade."""
    source, copy = make(way), make()
    servers.fill(source)
    edit(source)
    opt_out(source)
    robot(source)
    calibrated(source)
    merged(source)
    adopt_docs(source, stranger, "--absorb")
    run(source, "insert into app.docs_1 (text) values ('ANOTHER')")
    assert ask(source, "select repeats from memfold.adoption_repeats") == [1]
    run(source, f"grant select on memfold.memory_audit to {stranger}")
    target.cluster.upgrade(source, way)
    run(source, "insert into memfold.pins values ('before', gen_random_uuid())")
    granted = ask(source, GRANTED)
    assert {name for name, _ in granted} == {
        "schema",
        "memfold.memory_audit",
        "memfold.adopted_claim(text,text[],bytea)",
        "memfold.adopted_hash(text,text)",
        "memfold.adopted_repeat(text,jsonb)",
    }
    was = servers.contents(source)
    # two ways to write a text and texts that have opted out, a judgement and its answer, intervals, and the row
    # that memfold ships
    with psycopg.connect(source) as connection:
        profiles = connection.execute("select distinct canonicalizer from memfold.memories").fetchall()
    assert set(profiles) == {("code/1",), ("prose/1",), ("exact/1",), (None,)}
    # (claims of texts end with their transactions)
    assert [name for name in was if len(was[name]) == 1] == ["adoption_claims"]
    assert ask(source, "select count(*) from memfold.judgements where status = 'done'") == [1]

    move(target, source, copy, tmp_path)

    assert servers.contents(copy) == was
    assert squashed(catalog(copy)) == squashed(catalog(source))
    assert ask(copy, GRANTED) == granted
    still_adopted(copy, stranger, absorbs=True)
    assert broken(copy) == []
    with servers.package(target.cluster.later):
        assert migrate.drift(copy) == []
        if way == "alembic":
            assert migrate.install(copy) == migrate.install(source)
            assert migrate.drift(copy) == []
    if way == "extension":
        assert ask(copy, MEMBERS) == ask(source, MEMBERS)
    servers.fill_on(copy)
    assert broken(copy) == []
    # new ids follow in order of time
    latest = "select event_id from memfold.memory_events order by {} desc limit 1"
    assert ask(copy, latest.format("event_id")) == ask(copy, latest.format("recorded_at"))
    # of an extension, a dump holds rows and grants to others; its script makes the objects
    if way == "extension":
        schema = subprocess.run(
            [str(target.cluster.bindir / "pg_dump"), "-s", "-d", copy],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "CREATE EXTENSION IF NOT EXISTS memfold" in schema
        listed = re.findall(r"(?m)^(?:GRANT|REVOKE).* ON (?!SCHEMA).*", schema)
        assert [line for line in listed if not re.search(rf"{stranger}|_app_docs_1|\._score_", line)] == []
    # and a copy of the copy
    again = make()
    move(target, copy, again, tmp_path)
    assert servers.contents(again) == servers.contents(copy)


def test_an_index_of_words_is_restored(make: Make, target: Target, tmp_path: Path) -> None:
    """It is built as memfold_owner, to whom nothing is granted yet. (Of an extension a dump does not hold it.)"""
    source, copy = make("alembic"), make()
    run(source, "select memfold.ingest_memory('Die Straße heißt Äußere Gasse. 咖啡', 'acme')")
    run(source, "select memfold.create_text_index()")
    move(target, source, copy, tmp_path)
    assert ask(copy, "select memfold_internal._text_index('simple') is not null") == [True]
    for word in ("äUßERE", "咖"):
        found = f"select complete from memfold.search_memories(query => '{word}', tenant_id => 'acme')"
        assert ask(copy, found) == [True]


@pytest.mark.full_server
def test_restore_needs_memfold_py_before_the_rows(make: Make, target: Target, tmp_path: Path) -> None:
    """Hashes of a bucket with lemmas are computed as its rows are loaded; a dump has the extensions in the right order."""
    source, copy, without = make("extension"), make(), make()
    run(source, "create extension memfold_py cascade")
    run(source, "select memfold.set_policy('acme', 'words', canonicalizer => 'lemma')")
    for bucket in ("words", "default"):
        run(source, f"select memfold.ingest_memory('User likes dogs', 'acme', '{bucket}')")
    dump, restore = str(tmp_path / "dump"), [str(target.cluster.bindir / "pg_restore"), "--exit-on-error"]
    subprocess.run([str(target.cluster.bindir / "pg_dump"), "-Fc", "-f", dump, "-d", source], check=True)
    subprocess.run([*restore, "-d", copy, dump], check=True)
    assert servers.contents(copy) == servers.contents(source)
    known = "select action from memfold.ingest_memory('User liked dogs.', 'acme', 'words')"
    assert ask(copy, known) == ["merged"]
    listed = subprocess.run([*restore, "-l", dump], check=True, capture_output=True, text=True).stdout
    chosen = tmp_path / "list"
    chosen.write_text("".join(line for line in listed.splitlines(True) if "memfold_py" not in line))
    command = [*restore, "-L", str(chosen), "-d", without, dump]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert 'COPY failed for table "memories"' in done.stderr
    assert "the extension memfold_py is not installed in this database" in done.stderr


@pytest.mark.parametrize("release", servers.releases())
def test_a_dump_of_a_released_version(
    make: Make, way: str, target: Target, tmp_path: Path, release: str
) -> None:
    """pg_dump names no version: the extension's tables are made by the version that the server has."""
    source, copy = make(way, release=release), make()
    was = servers.contents(source)
    move(target, source, copy, tmp_path)
    if way == "alembic":
        target.cluster.upgrade(copy, way)
    assert servers.contents(copy, was) == was
    assert sorted(set(catalog(copy)) ^ set(catalog(make(way, release=servers.LATER)))) == []
    assert broken(copy) == []
    servers.fill_on(copy)
    assert broken(copy) == []


def test_who_may_dump(make: Make, way: str, target: Target, db: psycopg.Connection[Any]) -> None:
    """Row level security is forced: a dump that would miss rows fails. BYPASSRLS and pg_read_all_data are enough."""
    source = make(way)
    servers.fill(source)
    role = f"dumper_{uuid.uuid4().hex[:8]}"
    db.execute(f"create role {role} login in role memfold_owner, pg_read_all_data".encode())
    try:
        command = [str(target.cluster.bindir / "pg_dump"), "-d", f"{source} user={role}"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode != 0
        assert "row-level security" in done.stderr
        assert not said(command[-1])[0]
        db.execute(f"alter role {role} bypassrls".encode())
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Alice has a cat." in done.stdout
        assert said(command[-1]) == (True, f"pg_dump as {role} is complete")
    finally:
        db.execute(f"drop role {role}".encode())


SCHEMAS = (
    "create schema memfold; create schema memfold_internal;"
    " grant usage, create on schema memfold, memfold_internal to memfold_owner, memfold_queue"
)
LEFT_OUT = re.compile(r"EXTENSION| SCHEMA - ")


def said(dsn: str) -> tuple[bool, str]:
    """doctor's line about the dump that this login would make."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        found = connection.execute(admin_queries.SERVER).fetchone()
    assert found is not None
    return _dump(found)


def test_a_dump_by_an_owner_without_superuser(
    make: Make, target: Target, db: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """memfold_auditor's policies show it every row. Without that role row-level security would leave rows out, silently."""
    role = f"owner_{uuid.uuid4().hex[:8]}"
    db.execute(f"create role {role} login createrole".encode())
    db.execute(f"grant memfold_owner, memfold_queue to {role}".encode())
    source, copy = (make(options=f"owner {role}") for _ in range(2))
    own, new, dump = f"{source} user={role}", f"{copy} user={role}", str(tmp_path / "dump")
    program = target.cluster.bindir
    command = [str(program / "pg_dump"), "-Fc", "--enable-row-security", "-f", dump, "-d", own]
    restore = [str(program / "pg_restore"), "--exit-on-error"]
    try:
        for dsn in (source, copy):
            run(dsn, "create extension vector")
        migrate.install(own)
        servers.fill(source)
        was = servers.contents(source)
        subprocess.run(command, check=True)
        script = subprocess.run(
            [*restore, "-f", "-", dump], check=True, capture_output=True, text=True
        ).stdout
        assert re.search(r"(?m)^COPY memfold\.memory_sources .*\n\\\.$", script)
        assert said(own) == (False, f"a dump as {role} would miss rows, or fail: it needs memfold_auditor")
        db.execute(f"grant memfold_auditor to {role}".encode())
        assert said(own) == (True, f"pg_dump --enable-row-security as {role} is complete")
        subprocess.run(command, check=True)
        # pgvector is there already, and an administrator's. Rights come last in a dump, and memfold_owner needs its own at
        # once: only a superuser gives a table to a role that may not create it.
        run(new, SCHEMAS)
        listed = subprocess.run([*restore, "-l", dump], check=True, capture_output=True, text=True).stdout
        chosen = tmp_path / "list"
        chosen.write_text("".join(line for line in listed.splitlines(True) if not LEFT_OUT.search(line)))
        subprocess.run([*restore, "-L", str(chosen), "-d", new, dump], check=True)
        assert servers.contents(copy) == was
        assert len(was) > 20
        assert squashed(catalog(copy)) == squashed(catalog(source))
        assert migrate.drift(copy) == []
        assert broken(copy) == []
        servers.fill_on(copy)
    finally:
        for dsn in (source, copy):
            run(str(db.info.dsn), f"drop database {conninfo_to_dict(dsn)['dbname']} with (force)")
        db.execute(f"drop owned by {role}".encode())
        db.execute(f"drop role {role}".encode())
