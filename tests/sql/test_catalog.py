"""The catalog: both installation methods create the same schema, and every object follows the rules."""

from __future__ import annotations

import psycopg
import pytest

from tests.conftest import Target
from tests.support.catalog import PUBLIC, plain, snapshot
from tests.support.queries import DB

# What only the owner (a DBA) may call.
OWNERS = {
    "adopted_claim", "adopted_hash", "adopted_repeat",
    "apply_calibration", "calibrate_by_anchors",
    "create_text_index", "create_vector_index", "derive_scope", "describe_pairs", "drop_embeddings",
    "erase_tenant", "import_bucket", "register_embedding_model",
    "replace_embedding_model", "replay_bucket", "run_maintenance_all", "tenants", "text_index_ddl",
    "undo_calibration", "unregister_embedding_model", "vector_index_ddl",
}  # fmt: skip
# What commits can neither pin search_path nor be a definer: it writes every name in full, operators too.
PROCEDURES = {"rehash_bucket", "run_maintenance_all", "take_up_links"}
# Private functions that are reachable and pin nothing: they write names that need no path.
UNPINNED = {
    # made of built-in functions alone; called by canonicalize(), which is pinned, and by views
    "_fold_1", "_keep_apart_1", "_fail", "_policy", "_options", "_decay", "_canonicalizer_sample", "_require_autocommit",
    # what an index of words is made of: it is computed by the role that writes the row
    "_text_words", "_word_keys",
    # columns that are generated, in the schema files
    "_content_hash", "_is_consistent", "_pair_key", "_scope_key",
}  # fmt: skip
# The functions of an application that an agent may also call, and no others.
AGENTS = {
    "attach_embedding", "canonicalize", "current_memories", "current_memory", "effective_confidence", "embed_pending",
    "explain_memory", "find_similar", "forget_memories", "ingest_memories", "ingest_memory", "known_memory",
    "pending_embeddings", "preview_memory", "profile", "record_feedback", "reject_memory", "resolve_judgement",
    "search_memories", "undo", "update_memory",
}  # fmt: skip
# The functions that a judge may call; a judge has no tenant.
JUDGES = {"claim_judgements", "fail_judgement", "resolve_judgement", "retry_judgements"}
# Functions that work across tenants belong to memfold_queue, whose policies allow it.
QUEUES = {"_claim", "_retry_judgements", "_indexed_words", "tenants"}


@pytest.mark.core
def test_all_installation_methods_create_the_same_catalog(
    db: DB, target: Target, extension_available: bool
) -> None:
    found = snapshot(db)
    assert len(found) > 400
    other = "extension" if target.way == "alembic" else "alembic"
    if not extension_available:
        assert target.way != "extension"
        other = "alembic"
    with psycopg.connect(target.cluster.dsn(target.cluster.template(other)), autocommit=True) as connection:
        elsewhere = snapshot(connection)
    assert sorted(set(plain(found)) - set(plain(elsewhere))) == []
    assert sorted(set(plain(elsewhere)) - set(plain(found))) == []
    assert len(plain(found)) == len(plain(elsewhere))


FUNCTIONS = """
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang
    where n.nspname in ('memfold', 'memfold_internal') and not exists (
        select from pg_depend d join pg_extension x on x.oid = d.refobjid
        where d.objid = p.oid and d.deptype = 'e' and x.extname = 'vector')"""


@pytest.mark.core
def test_the_public_functions(db: DB) -> None:
    names = db.execute(f"select distinct proname {FUNCTIONS} and proname !~ '^_'").fetchall()
    assert {row[0] for row in names} == PUBLIC


@pytest.mark.core
def test_public_functions_are_pinned(db: DB) -> None:
    """A function that is reachable pins search_path, or has a body that was bound when it was made."""
    loose = db.execute(
        f"select proname {FUNCTIONS} and proname !~ '^_' and prosqlbody is null"
        " and not coalesce(proconfig::text like '%search_path=pg_catalog, pg_temp%', false)"
    ).fetchall()
    assert {name for (name,) in loose} == PROCEDURES


@pytest.mark.core
def test_private_functions_run_beneath_a_pinned_one(db: DB) -> None:
    """Functions that pin nothing: nobody else may call them, or they write names that need no path."""
    loose = db.execute(
        f"select proname, prosrc {FUNCTIONS} and proname ~ '^_' and prosqlbody is null and proconfig is null"
        " and has_function_privilege('memfold_app', p.oid, 'execute')"
    ).fetchall()
    assert {name for name, _ in loose} <= UNPINNED


@pytest.mark.core
def test_only_what_runs_under_the_caller_s_path_writes_pg_catalog(db: DB) -> None:
    written = db.execute(
        f"select proname {FUNCTIONS} and prosqlbody is null and prosrc ~ '(?<!['',])pg_catalog[.][a-z]'"
    ).fetchall()
    assert {name for (name,) in written} <= UNPINNED | PROCEDURES


@pytest.mark.core
def test_nothing_is_public(db: DB) -> None:
    assert (
        db.execute(
            f"select proname {FUNCTIONS} and exists (select from aclexplode(coalesce(proacl, acldefault('f', proowner))) a"
            " where a.grantee = 0)"
        ).fetchall()
        == []
    )
    assert (
        db.execute(
            "select relname from pg_class c"
            " where relnamespace = any('{memfold,memfold_internal}'::regnamespace[]) and exists ("
            " select from aclexplode(relacl) a where a.grantee = 0)"
        ).fetchall()
        == []
    )
    granted = db.execute(
        f"select distinct proname {FUNCTIONS} and proname !~ '^_'"
        " and has_function_privilege('memfold_app', p.oid, 'execute')"
    ).fetchall()
    assert {row[0] for row in granted} == PUBLIC - OWNERS
    agents = db.execute(
        f"select distinct proname {FUNCTIONS} and proname !~ '^_'"
        " and has_function_privilege('memfold_agent', p.oid, 'execute')"
    ).fetchall()
    assert {row[0] for row in agents} == AGENTS
    # private ones that run as their owner: they read
    definers = db.execute(
        f"select distinct proname, provolatile::text {FUNCTIONS} and proname ~ '^_' and prosecdef"
        " and has_function_privilege('memfold_agent', p.oid, 'execute')"
    ).fetchall()
    assert {name for name, _ in definers} == {"_believed_memories", "_explain_pair", "_veto_reasons"}
    judges = db.execute(
        f"select distinct proname {FUNCTIONS} and has_function_privilege('memfold_judge', p.oid, 'execute')"
    ).fetchall()
    assert {row[0] for row in judges} == JUDGES


@pytest.mark.core
def test_only_the_owners_roles_make_objects_in_the_schemas(db: DB) -> None:
    """A role that could create a function in memfold's schema could have it run as the owner."""
    makers = db.execute(
        "select n.nspname::text, r.rolname::text from pg_namespace as n cross join pg_roles as r"
        " where n.nspname in ('memfold', 'memfold_internal') and r.rolname ~ '^memfold_'"
        " and has_schema_privilege(r.oid, n.oid, 'create') order by 1, 2"
    ).fetchall()
    owners = ("memfold_owner", "memfold_queue")
    assert makers == [(schema, role) for schema in ("memfold", "memfold_internal") for role in owners]
    public = "select count(*) from pg_namespace as n cross join aclexplode(n.nspacl) as a where a.grantee = 0"
    assert db.execute(f"{public} and n.nspname in ('memfold', 'memfold_internal')").fetchone() == (0,)


@pytest.mark.core
def test_everything_belongs_to_the_owner(db: DB) -> None:
    others = db.execute(
        f"select proname, proowner::regrole::text {FUNCTIONS} and proowner <> 'memfold_owner'::regrole"
    ).fetchall()
    assert set(others) == {(name, "memfold_queue") for name in QUEUES}
    assert (
        db.execute(
            "select relname from pg_class where relnamespace = any('{memfold,memfold_internal}'::regnamespace[])"
            " and relkind in ('r', 'v')"
            " and relname <> 'alembic_version' and relowner <> 'memfold_owner'::regrole"
        ).fetchall()
        == []
    )
    row = db.execute(
        "select rolcanlogin, rolsuper, rolbypassrls from pg_roles where rolname = 'memfold_owner'"
    ).fetchone()
    assert row == (False, False, False)


@pytest.mark.core
def test_definers_are_the_write_api(db: DB) -> None:
    definers = {row[0] for row in db.execute(f"select proname {FUNCTIONS} and prosecdef").fetchall()}
    assert definers == PUBLIC - OWNERS - PROCEDURES - {
        "canonicalize", "canonicalizer_selftest", "current_memories", "current_memory", "explain_memory",
    } | {
        "adopted_claim", "adopted_hash", "adopted_repeat",
        "apply_calibration", "calibrate_by_anchors",
        "create_text_index", "create_vector_index", "describe_pairs", "drop_embeddings",
        "text_index_ddl", "erase_tenant",
        "import_bucket", "register_embedding_model", "replace_embedding_model", "replay_bucket",
        "undo_calibration", "unregister_embedding_model", "vector_index_ddl", "_believed_memories",
        "_explain_pair",
        "_rehash_batch", "_rehash_begin", "_rehash_end", "_take_up_batch", "_veto_reasons",
    } | QUEUES  # fmt: skip


@pytest.mark.core
def test_everything_public_is_commented(db: DB) -> None:
    assert (
        db.execute(
            f"select proname {FUNCTIONS} and proname !~ '^_' and obj_description(p.oid, 'pg_proc') is null"
        ).fetchall()
        == []
    )
    assert (
        db.execute(
            "select relname from pg_class where relnamespace = any('{memfold,memfold_internal}'::regnamespace[])"
            " and relkind in ('r', 'v', 'c')"
            " and relname !~ '^alembic' and obj_description(oid, 'pg_class') is null"
            " and not exists (select from pg_type t where t.typrelid = pg_class.oid and relkind = 'c'"
            "  and obj_description(t.oid, 'pg_type') is not null)"
        ).fetchall()
        == []
    )


@pytest.mark.core
def test_no_small_numbers_in_signatures(db: DB) -> None:
    """Drivers pass double precision and bigint; a function of real or smallint would not be found."""
    assert (
        db.execute(
            f"select proname {FUNCTIONS} and proname !~ '^_' and exists ("
            " select from unnest(proargtypes::oid[]) t where t in ('real'::regtype, 'smallint'::regtype))"
        ).fetchall()
        == []
    )


@pytest.mark.core
def test_keys_lead_with_the_tenant(db: DB) -> None:
    shared = (
        "embedding_models", "calibrations", "calibration_changes", "tenant_roles", "alembic_version", "adoptions",
        "adoption_archive", "adoption_repeats", "adoption_claims", "lexicon",
    )  # fmt: skip
    assert (
        db.execute(
            "select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid"
            " where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])"
            " and c.relkind = 'r' and c.relname <> all(%s)"
            # no keys: the newest of all tenants; two that must not look as good as the key (test_query_plans)
            " and i.indexrelid <> all('{memfold.runs_maintenance_idx,memfold.memories_scope_idx,"
            "memfold.memories_active_idx}'::regclass[])"
            " and (select attname from pg_attribute where attrelid = c.oid and attnum = i.indkey[0]) is distinct from"
            " 'tenant_id'",
            [list(shared)],
        ).fetchall()
        == []
    )
    assert (
        db.execute(
            "select conname from pg_constraint where connamespace = any('{memfold,memfold_internal}'::regnamespace[])"
            " and contype = 'f'"
            " and conrelid::regclass::text !~ 'calibration(s|_changes)$' and (select attname from pg_attribute"
            " where attrelid = conrelid and attnum = conkey[1]) <> 'tenant_id'"
        ).fetchall()
        == []
    )


@pytest.mark.core
def test_key_texts_have_collation_c(db: DB) -> None:
    assert (
        db.execute(
            "select attrelid::regclass::text, attname from pg_attribute a join pg_class c on c.oid = attrelid"
            " where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])"
            " and c.relkind = 'r' and c.relname <> 'alembic_version'"
            " and attnum > 0 and not attisdropped and atttypid = 'text'::regtype and attcollation <> '\"C\"'::regcollation"
            " and (c.relname, attname) <> ('antonyms', 'language')"
        ).fetchall()
        == []
    )


def test_plpgsql_check(db: DB, target: Target) -> None:
    """Every function under plpgsql_check, on the server that has it (the full one)."""
    has = db.execute("select from pg_available_extensions where name = 'plpgsql_check'").fetchone()
    if target.cluster.name == "embedded":
        pytest.skip("plpgsql_check is not on the embedded server; this runs on the full one")
    assert has is not None, "the full server has no plpgsql_check: make server"
    db.execute("create extension plpgsql_check")
    db.execute("set search_path = pg_catalog, public")
    relations = {
        "_fill_policy": "memfold.memories", "_refuse": "memfold.memories",
        "_replace_policy": "memfold.policies", "_replace_antonym": "memfold.antonyms",
    }  # fmt: skip
    # what fails on purpose, and what is called only where it is
    expected = {
        ("_no_commit", "invalid transaction termination"),
        ("_require_autocommit", "cannot commit while a subtransaction is active"),
        ("_maintenance_task", "function memfold.apply_decay(text) does not exist"),
        ('schema "cron" does not exist'),
        ('relation "cron.job" does not exist'),
        ("_other_profile", "function memfold.lemmatize(text, text) does not exist"),
        ("_profile", "function memfold.lemma_profile(text) does not exist"),
        ("_vectors", "function memfold_internal._holds_model() does not exist"),
        ("_segmented", "function memfold.segment_words(text, text) does not exist"),
        ("_lemma_selftest", "function memfold.lemma_selftest() does not exist"),
    }
    complaints = []
    for oid, name in db.execute(f"select p.oid, proname {FUNCTIONS} and lanname = 'plpgsql'").fetchall():
        rows = db.execute(
            "select lineno, level, message from plpgsql_check_function_tb(funcoid => %s::regprocedure,"
            " relid => %s::regclass, other_warnings => true, extra_warnings => false, performance_warnings => false)",
            [oid, relations.get(name, "0")],
        ).fetchall()
        complaints += [
            (name, *row) for row in rows if row[1] in ("error", "warning") and (name, row[2]) not in expected
        ]
    assert complaints == []


# The tenant is required: a mistake would erase one.
WITHOUT_SETTING = {"erase_tenant": None}
ARGUMENTS = """
select p.proname, a.name, pg_get_function_arg_default(p.oid, a.place::integer), p.prokind::text
from pg_proc as p
cross join lateral unnest(p.proargnames, p.proargmodes) with ordinality as a (name, mode, place)
where p.pronamespace = 'memfold'::regnamespace and coalesce(a.mode, 'i') in ('i', 'b')
order by p.proname, a.place"""


def test_arguments_have_one_order_and_one_name(db: DB) -> None:
    """The order of arguments: what the call is about, tenant_id, bucket_id, the rest; tenant_id defaults to the
    setting."""
    functions: dict[str, list[tuple[str, str | None]]] = {}
    for function, name, default, _ in db.execute(ARGUMENTS).fetchall():
        functions.setdefault(function, []).append((name, default))
    assert len(functions) > 60
    for function, arguments in functions.items():
        names = [name for name, _ in arguments]
        assert not {"bucket", "tenant", "max", "at", "patient"} & set(names), function
        assert "model" not in names or function in ("resolve_judgement", "fail_judgement"), (
            "a judge's model is another"
        )
        if "tenant_id" not in names:
            continue
        place = names.index("tenant_id")
        default = arguments[place][1]
        if function in WITHOUT_SETTING:
            assert default == WITHOUT_SETTING[function], function
        else:
            assert "current_setting('memfold.tenant_id'::text, true)" in (default or ""), function
            # a query is a vector or a text, so that neither is asked for
            before = [] if function == "search_memories" else arguments[:place]
            assert all(default is None for _, default in before), f"{function}: an option before tenant_id"
        if "bucket_id" in names:
            assert names[place + 1] == "bucket_id", function
