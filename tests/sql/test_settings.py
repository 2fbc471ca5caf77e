"""Settings of the caller's session: none of them changes a decision, in a new session or a warm one."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from tests.conftest import Connect, Make
from tests.support import servers
from tests.support.memories import check, model
from tests.support.queries import DB

TENANT = "sets"

# What a caller may set; "public" alone in search_path, for the calls name their schema.
SETTINGS: dict[str, dict[str, str]] = {
    "strings": {"standard_conforming_strings": "off"},
    "strings, silent": {"standard_conforming_strings": "off", "escape_string_warning": "off", "backslash_quote": "off"},
    "no path": {"search_path": ""},
    "odd path": {"search_path": "pg_temp, public, memfold, pg_catalog"},
    "dates": {"datestyle": "SQL, DMY", "intervalstyle": "sql_standard", "timezone": "Asia/Kathmandu"},
    "German dates": {"datestyle": "German", "intervalstyle": "iso_8601", "timezone": "-15:59",
    "timezone_abbreviations": "Australia"},
    "bytes": {"bytea_output": "escape", "xmloption": "document", "xmlbinary": "hex"},
    "few digits": {"extra_float_digits": "-15"},
    "many digits": {"extra_float_digits": "3"},
    "locale": {"lc_numeric": "C", "lc_monetary": "C", "lc_time": "C", "lc_messages": "C"},
    "nulls": {"transform_null_equals": "on", "array_nulls": "off"},
    "quotes": {"quote_all_identifiers": "on"},
    "text search": {"default_text_search_config": "simple", "gin_fuzzy_search_limit": "1"},
    "no scans": {
        "enable_seqscan": "off", "enable_indexscan": "off", "enable_bitmapscan": "off", "enable_indexonlyscan": "off",
    },
    "no joins": {
        "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_nestloop": "off", "enable_memoize": "off",
        "enable_sort": "off",
        "enable_incremental_sort": "off", "enable_hashagg": "off", "enable_material": "off",
    },
    "join order": {
        "join_collapse_limit": "1", "from_collapse_limit": "1", "geqo_threshold": "2", "geqo_seed": "0.5",
        "constraint_exclusion": "on",
        "enable_partition_pruning": "off", "cursor_tuple_fraction": "1",
    },
    "generic plans": {"plan_cache_mode": "force_generic_plan"},
    "custom plans": {"plan_cache_mode": "force_custom_plan"},
    "jit, parallel": {
        "jit": "on", "jit_above_cost": "100", "parallel_setup_cost": "0", "parallel_tuple_cost": "0",
        "min_parallel_table_scan_size": "0", "max_parallel_workers_per_gather": "4",
    },
    "little memory": {"work_mem": "64kB", "hash_mem_multiplier": "1"},
    "vector index": {"hnsw.ef_search": "1", "hnsw.max_scan_tuples": "1", "ivfflat.probes": "1"},
    "encoding": {"client_encoding": "GB18030"},
    "rows": {"row_security": "off"},
    "replica": {"session_replication_role": "replica"},
    "time-outs": {
        "statement_timeout": "60s", "lock_timeout": "30s", "idle_in_transaction_session_timeout": "60s",
        "default_transaction_deferrable": "on", "synchronous_commit": "off",
    },
    "plpgsql": {
        "plpgsql.extra_errors": "all", "plpgsql.print_strict_params": "on", "plpgsql.check_asserts": "off",
        "plpgsql.variable_conflict": "use_column", "check_function_bodies": "off", "default_toast_compression": "pglz",
    },
}  # fmt: skip

PAIRS = [
    ("user is Alice, a@b.com", "user is Anna, a@b.com"),
    ("Dr Alice met Bob at 10:30", "Dr Anna met Bob at 10:30"),
    ("the boss is Carol Alice v2.5.1", "the boss is Carol Anna v2.5.1"),
    ("manager of Bob is Alice 20.5", "manager of Bob is Anna 20.5"),
    ("Server Alpha runs 10.5", "Server Aleph runs 10.5"),
    ("the boss Alice pays 20 mg", "the boss Anna pays 20 mg"),
    ("It runs v2.5.1 here", "It runs v2.5.2 here"),
    ("It costs $5", "It costs €5"),
    ("It weighs 30kg", "It weighs 30lb"),
    ("Moved in the U.S. army", "Moved in the U.K. army"),
    ("l'été est chaud", "l'hiver est chaud"),
    ("1,000,000 rows", "1.000.001 rows"),
    ("不是不好", "不是好"),
    ("特别喜欢茶", "不喜欢茶"),
    ("三只猫", "四只猫"),
    ("アリスが好き", "ボブが好き"),
    ("住在成都", "住在重庆"),
    ("좋아", "싫어"),
    ("ชอบ", "ไม่ชอบ"),
    ("a well-known anti-war/peace song", "a well known anti war song"),
    ("read C:\\temp\\new", "read C:\\temp\\old"),
    (r"the regexp \d+", r"the regexp \w+"),
]
CANONICAL = [
    "  Ünïted\tKingdom…  ", "10⁵ H₂O 1½", "İstanbul", "C:\\x41\\u0041", "a\\'b", "\\", "ΑΣ Σας", "ﷺ", "e\u0301\u0316",
    "\u1112\u1161\u11ab", "x\u200by", "Straße!", "１２３", "a\r\nb", "no. ", "\u0130\u0307", "\ud55c\uae00",
    "\u30ab\u3099", "A\u030a",
]  # fmt: skip


def candidate(content: str, number: int, **more: Any) -> dict[str, Any]:
    return {
        "content": content,
        "subject": f"s{number}",
        "embedding": "[0.9,0.1,0.4,0.1]",
        "embedding_model": "m",
        **more,
    }


def outcome(db: DB, statement: str, parameters: list[Any]) -> Any:
    """The caller's result, without ids and times; an error by its SQLSTATE."""
    try:
        with db.transaction():
            return [
                re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "id", str(row[0]))
                for row in db.execute(statement.encode(), parameters).fetchall()
            ]
    except psycopg.Error as error:
        return error.sqlstate


def decisions(db: DB) -> dict[str, Any]:
    """Everything that is decided for a fixed list of candidates, in a transaction that is rolled back."""
    found: dict[str, Any] = {}
    picked = (
        "select (jsonb_build_array(r.action, r.tier, r.method, round(r.similarity::numeric, 6),"
        " r.similar -> 0 -> 'guard'))::text"
        " from memfold.{} as r"
    )
    with db.transaction(force_rollback=True):
        db.execute("select pg_catalog.set_config('memfold.tenant_id', %s, true)", [TENANT])
        for a, b in PAIRS:
            found[f"pair {a}"] = outcome(
                db, "select pg_catalog.concat_ws(' ', memfold_internal._guard(%s, a, b)::text,"
                " memfold_internal._guard(%s, b, a)::text, memfold_internal._tokens(a, 'characters')::text,"
                " (select pg_catalog.string_agg(f.value::numeric::text, ' ') from pg_catalog.unnest("
                "memfold_internal._pair_features(0.9::double precision, a, b, '{}')) as f (value)))"
                " from (values (%s, %s)) as v (a, b)", [TENANT, TENANT, a, b])  # fmt: skip
        for text in CANONICAL:
            found[f"canonical {text}"] = outcome(
                db, "select pg_catalog.encode(pg_catalog.convert_to(memfold.canonicalize(%s, p), 'UTF8'), 'hex')"
                " from pg_catalog.unnest(array['prose/1', 'flat/1', 'code/1', 'exact/1']) as p", [text])  # fmt: skip
        single = picked.format(
            "ingest_memory(%s, %s, subject => %s, embedding => %s::public.vector, embedding_model => %s,"
            " metadata => %s, observed_at => %s)"
        )
        for number, pair in enumerate(PAIRS[:6]):
            for text in pair:
                for function in ("preview", "ingest"):
                    one = candidate(text, number)
                    found[f"{function} {text}"] = outcome(
                        db, single.replace("ingest_", f"{function}_"),
                        [text, TENANT, *(one[k] for k in ("subject", "embedding", "embedding_model")), '{"v": 1.50}',
                         "2025-02-03T04:05:06.789Z"])  # fmt: skip
        batch = [candidate(text, 100 + number) for number, pair in enumerate(PAIRS) for text in pair]
        found["batch"] = outcome(
            db, picked.format("ingest_memories(%s::jsonb, %s)"), [json.dumps(batch), TENANT]
        )
        for bucket in ("single", "words"):
            for day, text in enumerate(
                ["Ann lives in Bonn", "Ann lives in Rome", "Ann now lives in Rome", "Ann lives in Bonn"]
            ):
                found[f"{bucket} {day}"] = outcome(
                    db, picked.format(
                        "ingest_memory(%s, %s, %s, subject => 'Ann', predicate => 'lives_in',"
                        " observed_at => %s, metadata => %s)"),
                    [text, TENANT, bucket, f"2025-01-0{day + 1}T00:00:00Z", '{"v": 0.1}'])  # fmt: skip
        found["known"] = outcome(
            db, "select k.status || pg_catalog.encode(k.content_hash, 'hex')"
            " from memfold.known_memory(%s, %s, subject => 's0') k",
            [PAIRS[0][0], TENANT])  # fmt: skip
        found["search"] = outcome(
            db, "select pg_catalog.concat_ws(' ', s.content, round(s.similarity::numeric, 6))"
            " from memfold.search_memories('[0.9,0.1,0.4,0.1]'::public.vector, 'm',"
            " %s, 'default', 20) s order by 1", [TENANT])  # fmt: skip
        found["plain"] = outcome(
            db, "with i as (insert into memfold.memories (tenant_id, content) values (%s, %s) returning content_hash)"
            " select pg_catalog.encode(content_hash, 'hex') from i", [TENANT, PAIRS[1][0]])  # fmt: skip
        found["stored"] = outcome(
            db, "select pg_catalog.concat_ws(' ', m.content, pg_catalog.encode(m.content_hash, 'hex'), m.status,"
            " m.metadata::text, k.observations, extract(epoch from k.first_seen)::text)"
            " from memfold.memories m join memfold.memory_totals k using (tenant_id, memory_id)"
            " where m.tenant_id = %s and k.first_seen < '2026-01-01Z' order by 1", [TENANT])  # fmt: skip
        # aliases too, which memory_totals leaves out
        found["statuses"] = outcome(
            db, "select pg_catalog.concat_ws(' ', content, status) from memfold.memories"
            " where tenant_id = %s and is_ingested order by 1", [TENANT])  # fmt: skip
        found["intervals"] = outcome(
            db, "select pg_catalog.concat_ws(' ', m.content, extract(epoch from i.valid_from)::text)"
            " from memfold.memory_intervals as i join memfold.memories as m using (tenant_id, memory_id)"
            " where i.tenant_id = %s order by 1", [TENANT])  # fmt: skip
    return found


@pytest.mark.one_server
def test_no_setting_changes_a_decision(db: DB, connect: Connect) -> None:
    model(db)
    db.execute("select set_predicate('lives_in', %s)", [TENANT])
    db.execute("select set_policy(%s, 'words', lexical_threshold => 0.5, on_ambiguous => 'insert')", [TENANT])
    expected = decisions(connect())
    kinds = [str(value) for value in expected.values()]
    assert sum("merged" in kind for kind in kinds) > 1
    assert sum("escalated" in kind for kind in kinds) > 10
    assert not [name for name, value in expected.items() if isinstance(value, str)]
    wrong: list[Any] = []
    applied = 0
    warm = connect()
    assert decisions(warm) == expected
    for name, settings in SETTINGS.items():
        cold = connect()
        for session in (cold, warm):
            for setting, value in settings.items():
                session.execute("select pg_catalog.set_config(%s, %s, false)", [setting, value])
            applied += 1
            found = decisions(session)
            wrong += [
                (name, "cold" if session is cold else "warm", part, found[part], expected[part])
                for part in expected
                if found[part] != expected[part]
                # this setting asks for an error where row-level security would hide rows: nothing is decided
                and not (name == "rows" and found[part] in ("42501", []))
                # this setting fires no triggers: a plain row has no rules then
                and not (name == "replica" and part == "plain")
            ]
        cold.close()
        warm.execute("reset all")
    assert wrong == []
    assert applied == 2 * len(SETTINGS)
    check(db)


LITERAL = re.compile(
    r"--[^\n]*|/\*.*?\*/|\$([a-z]+)\$.*?\$\1\$|(?P<kind>\b[eE]|\b[uU]&)?'(?P<body>(?:[^']|'')*)'", re.DOTALL
)


def test_no_string_depends_on_a_setting(db: DB) -> None:
    """PL/pgSQL reads its strings when it first runs, by the session's settings: a backslash only in E'', no U&''."""
    sources = db.execute(
        "select p.oid::regprocedure::text, p.prosrc from pg_proc as p join pg_language as l on l.oid = p.prolang"
        " where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])"
        " and l.lanname in ('plpgsql', 'sql') and p.prosqlbody is null"
    ).fetchall()
    assert len(sources) > 100
    assert any("E'\\\\x" in source for _, source in sources)
    wrong = [
        (name, literal[0])
        for name, source in sources
        for literal in LITERAL.finditer(source)
        if (kind := (literal["kind"] or "").upper()) == "U&"
        or (kind != "E" and "\\" in (literal["body"] or ""))
    ]
    assert wrong == []


@pytest.mark.one_server
@pytest.mark.parametrize("way", ["alembic", "extension"])
def test_strings_of_an_installation(make: Make, extension_available: bool, way: str) -> None:
    """The database may set how strings are read: memfold installs and decides as everywhere."""
    if way == "extension" and not extension_available:
        pytest.skip("CREATE EXTENSION memfold does not work on this server")
    dsn = make()
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set standard_conforming_strings = off".encode())
    servers.load_present(dsn, way)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.execute("show standard_conforming_strings").fetchone() == ("off",)
        wrong = connection.execute(
            "select count(*) from memfold.canonicalizer_selftest() where not ok"
        ).fetchone()
        assert wrong == (0,)
        found = connection.execute(
            "select encode(memfold_internal._content_hash("
            "  'fact', 's', null, 'x', 'prose/1', 'type,subject,predicate', null), 'hex'),"
            " encode(memfold_internal._full_hash('fact', 's', null, 'x'), 'hex'),"
            " memfold_internal._guard('t', 'user is Alice', 'user is Anna')"
        ).fetchone()
    assert found is not None
    assert found[0] == found[1] == sha256(b"fact\0s\0\xff\0\xff\0x").hexdigest()
    assert found[2] == ["name: alice <> anna"]
