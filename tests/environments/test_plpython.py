"""memfold_py in a server: lemmas, vectors computed in the database, Chinese and Japanese words; and a server without it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner

from memfold.tools.admin import migrate
from memfold.tools.cli import main
from tests.conftest import Make, Target
from tests.support import minilm_onnx, servers
from tests.support.docs_pages import run_story
from tests.support.queries import DB, one

sys.path.insert(0, str(servers.ROOT / "plpython"))

import memfold_py
from memfold_py import embed, golden, lemma, tokens

MODEL = "minilm"
MEMORIES = [
    json.loads(line)["content"]
    for line in (servers.ROOT / "demo" / "memories.jsonl").read_text().splitlines()
]
WHO = ["Alice", "Bob", "The user", "Carol Woods", "My manager"]
WHAT = [
    "likes {0} dogs", "liked {0} cats", "does not like {0} dogs", "has moved to {0} Main Street", "owns {0} bikes",
    "was promoted {0} times", "never eats more than {0} apples", "prefers {0} cups of coffee", "lives at number {0}",
    "mag {0} Hunde und kaufte Äpfel", "aime les {0} chiens noirs",
]  # fmt: skip
TEXTS = list(
    dict.fromkeys(
        MEMORIES + [f"{who} {what.format(n)}." for n in range(2, 30) for who in WHO for what in WHAT]
    )
)[:1000]


@pytest.fixture
def minilm(target: Target) -> Path:
    """all-MiniLM-L6-v2, where the server looks for models."""
    directory = target.cluster.models / MODEL
    with target.cluster.turn():
        if not directory.exists():
            made = directory.with_name("making")
            shutil.rmtree(made, ignore_errors=True)
            minilm_onnx.make(made)
            for path in (made, *made.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            made.rename(directory)
    return directory


@pytest.fixture
def py(db: DB, minilm: Path) -> DB:
    """A superuser's connection to a database with memfold_py and a bucket ``default`` of acme that embeds by itself."""
    db.execute("create extension memfold_py cascade")
    db.execute("select register_embedding_model(%s, 384, 0.92, 0.85)", [MODEL])
    db.execute("select set_policy('acme', embed => 'in_database', embed_model => %s)", [MODEL])
    return db


def refused(db: DB, code: str, query: str, *arguments: Any) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as error:
        db.execute(query.encode(), arguments)
    assert error.value.sqlstate == code, error.value
    assert error.value.diag.message_hint
    return error.value


def texts_embedded(db: DB) -> int:
    return int(one(db, "select coalesce(sum(texts), 0)::bigint from loaded_models()"))


# --- without memfold_py --------------------------------------------------------------------------------------------


@pytest.mark.core
@pytest.mark.parametrize(
    "options",
    [
        "canonicalizer => 'lemma'",
        "canonicalizer => 'lemma:de'",
        "canonicalizer => 'lemma/1:en:simplemma-2.0.0'",
        "embed => 'in_database', embed_model => 'minilm'",
        "lexical_threshold => 0.7, segmenter => 'zh'",
    ],
)
def test_a_policy_that_needs_memfold_py_is_refused_without_it(db: DB, options: str) -> None:
    db.execute("select register_embedding_model('minilm', 3, 0.92, 0.85)")
    before = one(db, "select array_agg(p.*::text order by p.*::text) from policies as p")
    error = refused(db, "MF056", f"select set_policy('acme', {options})")
    assert "memfold_py" in str(error)
    assert "create extension memfold_py" in str(error.diag.message_hint)
    assert one(db, "select array_agg(p.*::text order by p.*::text) from policies as p") == before
    # and everything else works: the rest of the suite runs without it, too
    assert one(db, "select action from ingest_memory('User likes Vim', 'acme')") == "inserted"


@pytest.mark.core
def test_a_preset_that_needs_memfold_py_says_so(db: DB) -> None:
    notices: list[str] = []
    db.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    assert one(db, "select canonicalizer from set_policy('acme', preset => 'hash_first')") == "prose/1"
    assert any("lemma/1" in notice for notice in notices)


def test_without_it_nothing_is_tested_of_it(db: DB) -> None:
    assert one(db, "select count(*) from canonicalizer_selftest() where profile like 'lemma%'") == 0
    assert one(db, "select embed_pending('acme')") == 0


@pytest.mark.full_server
def test_dropping_it_is_noticed(py: DB) -> None:
    """A bucket whose rules need it raises an error that says so, loses nothing, and works again when it is back."""
    py.execute("select set_policy('acme', 'words', canonicalizer => 'lemma')")
    py.execute("select ingest_memory('User likes dogs', 'acme', 'words')")
    py.execute("drop extension memfold_py")
    for bucket in ("words", "default"):
        refused(py, "MF056", "select ingest_memory('User likes cats', 'acme', %s)", bucket)
    assert one(py, "select count(*) from memories") == 1
    py.execute("create extension memfold_py")
    assert one(py, "select action from ingest_memory('User liked dogs', 'acme', 'words')") == "merged"


# --- lemma/1 --------------------------------------------------------------------------------------------------------


@pytest.mark.full_server
def test_one_fact_in_two_tenses(py: DB) -> None:
    profile = one(py, "select canonicalizer from set_policy('acme', 'words', canonicalizer => 'lemma')")
    assert profile == f"lemma/1:en:{lemma.forms_version()}"
    ingest = "select action, method from ingest_memory(%s, 'acme', 'words', memory_type => %s)"
    assert one(py, ingest, "User likes dogs", "fact") == ("inserted", None)
    assert one(py, ingest, "user liked dogs.", "fact") == ("merged", "hash")
    assert one(py, ingest, "User does not like dogs", "fact") != ("merged", "hash")
    # a quotation is its words
    assert one(py, ingest, "User likes dogs", "quote") == ("inserted", None)
    assert one(py, ingest, "User liked dogs", "quote") != ("merged", "hash")
    assert one(py, "select array_agg(distinct canonicalizer) from memories where memory_type = 'quote'") == [
        "prose/1"
    ]
    # a batch and a look agree
    batch = json.dumps([{"content": "user like dogs", "bucket_id": "words"}])
    assert one(py, "select action, method from ingest_memories(%s, 'acme')", batch) == ("merged", "hash")
    assert one(py, "select method from preview_memory('User liked DOGS', 'acme', 'words')") == "vector"
    # the row contains all that its hash needs
    assert one(py, "select count(*) from check_invariants('acme')") == 0


@pytest.mark.full_server
def test_the_preset_takes_it(py: DB) -> None:
    assert one(py, "select canonicalizer from set_policy('acme', 'h', preset => 'hash_first')").startswith(
        "lemma/1:en:"
    )


@pytest.mark.full_server
def test_a_bucket_is_rehashed_to_lemmas_and_back(py: DB) -> None:
    py.execute("select set_policy('acme', 'words', embed => 'client')")
    for text in ("User likes dogs", "User liked dogs", "User does not like dogs"):
        py.execute("select ingest_memory(%s, 'acme', 'words')", [text])
    py.execute("call rehash_bucket('acme', 'words', canonicalizer => 'lemma')")
    assert one(py, "select count(*) from current_memories('acme', 'words')") == 2
    py.execute("call rehash_bucket('acme', 'words', canonicalizer => 'prose')")
    assert one(py, "select count(*) from current_memories('acme', 'words')") == 3
    assert one(py, "select count(*) from check_invariants('acme')") == 0


@pytest.mark.full_server
def test_golden_pairs_in_the_server(py: DB) -> None:
    rows = py.execute(
        "select profile, ok from canonicalizer_selftest() where profile like 'lemma/1:%'"
    ).fetchall()
    assert sorted(rows) == [
        (f"lemma/1:{language}:{lemma.forms_version()}", True) for language in sorted(lemma.LANGUAGES)
    ]
    for language, a, b, equal, note in golden.GOLDEN:
        profile = f"lemma/1:{language}:{lemma.forms_version()}"
        assert (
            one(py, "select canonicalize(%s, %s) = canonicalize(%s, %s)", a, profile, b, profile)
        ) is equal, note


@pytest.mark.full_server
def test_another_version_of_the_lemmatiser_is_refused_before_it_splits_facts(py: DB) -> None:
    error = refused(py, "MF059", "select canonicalize('User likes dogs', 'lemma/1:en:simplemma-0.9.9')")
    assert "0.9.9" in str(error)
    assert lemma.forms_version().removeprefix("simplemma-") in str(error) + str(error.diag.message_detail)


@pytest.mark.full_server
@pytest.mark.parametrize(
    "profile", ["lemma:xx", "lemma:", "lemma:en:", "lemma/1:en", "lemma/2", "lemma/1:xx:simplemma-2.0.0"]
)
def test_an_unknown_profile(py: DB, profile: str) -> None:
    before = one(py, "select count(*) from policies")
    if profile == "lemma/1:en":
        assert one(
            py, "select canonicalizer from set_policy('acme', 'p', canonicalizer => %s)", profile
        ).startswith(profile)
        return
    refused(py, "MF011", "select set_policy('acme', 'p', canonicalizer => %s)", profile)
    assert one(py, "select count(*) from policies") == before


# --- vectors made in the database ------------------------------------------------------------------------------------

SESSION = """
set search_path = public, memfold;
select action, tier, method from ingest_memory('The user''s favourite editor is Vim', 'acme');
select action, tier, method from ingest_memory('The favourite editor of the user is Vim', 'acme');
select action, tier, method from ingest_memory('The user''s birthday is in March', 'acme');
select sum(texts) from loaded_models();
select action, tier, method from ingest_memory('the user''s favourite editor is VIM.', 'acme');
select action, tier, method from ingest_memory('The favourite editor of the user is Vim', 'acme');
select action, tier, method from ingest_memory('The user''s birthday is in March!', 'acme');
select sum(texts) from loaded_models();
"""


@pytest.mark.full_server
def test_psql_alone_merges_paraphrases(py: DB, target: Target) -> None:
    """The client knows no models: a paraphrase is merged, and a known text is never embedded again."""
    done = subprocess.run(
        [
            target.cluster.bindir / "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1",
            target.cluster.dsn(py.info.dbname),
        ],
        input=SESSION, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "inserted||", "merged|2|vector", "inserted||", "3", "merged|1|hash", "merged|1|alias", "merged|1|hash", "3",
    ]  # fmt: skip
    assert one(py, "select count(*) from check_invariants('acme')") == 0


@pytest.mark.full_server
def test_batches_embed_each_new_text_once(py: DB) -> None:
    texts = ["User likes tea", "User likes tea", "USER LIKES TEA", "The favourite editor of the user is Vim"]
    py.execute("select ingest_memory('The user''s favourite editor is Vim', 'acme')")
    before = texts_embedded(py)
    batch = json.dumps([{"content": text} for text in texts])
    rows = py.execute(
        "select action, method from ingest_memories(%s, 'acme') order by ordinal", [batch]
    ).fetchall()
    assert rows == [("inserted", None), ("merged", "hash"), ("merged", "hash"), ("merged", "vector")]
    # two spellings of one are two texts until they are hashed, and one of them is stored
    assert texts_embedded(py) - before <= 3
    again = texts_embedded(py)
    py.execute("select ingest_memories(%s, 'acme')", [batch])
    assert texts_embedded(py) == again
    assert one(py, "select count(*) from memories where embedding_pending") == 0


@pytest.mark.full_server
def test_preview_predicts_ingest(py: DB) -> None:
    py.execute("select ingest_memory('The user''s favourite editor is Vim', 'acme')")
    for text in ("The favourite editor of the user is Vim", "User likes tea"):
        look = one(py, "select action, tier, method, similarity from preview_memory(%s, 'acme')", text)
        assert one(py, "select action, tier, method, similarity from ingest_memory(%s, 'acme')", text) == look


@pytest.mark.full_server
def test_callers_with_a_vector_are_not_asked(py: DB) -> None:
    py.execute("select register_embedding_model('theirs', 3, 0.92, 0.85)")
    py.execute("select ingest_memory('a', 'acme', embedding => '[1,0,0]', embedding_model => 'theirs')")
    py.execute("select ingest_memory('b', 'acme', embedding_model => 'theirs')")
    assert texts_embedded(py) == 0
    assert one(py, "select array_agg(content order by content) from pending_embeddings('acme')") == ["b"]


@pytest.mark.full_server
def test_pending_texts_are_embedded_later(py: DB, target: Target) -> None:
    """When all allowed sessions hold a model, the next one stores without a vector, and loses nothing."""
    others = []
    for _ in range(2):  # MEMFOLD_MODEL_SESSIONS of the suite's server
        other = psycopg.connect(target.cluster.dsn(py.info.dbname), autocommit=True)
        other.execute("set search_path = public, memfold")
        other.execute("select embed_text('x', %s)", [MODEL])
        others.append(other)
    assert (
        one(py, "select action from ingest_memory('The user''s favourite editor is Vim', 'acme')")
        == "inserted"
    )
    assert (
        one(py, "select action from ingest_memory('The favourite editor of the user is Vim', 'acme')")
        == "inserted"
    )
    error = refused(py, "MF057", "select embed_text('x', %s)", MODEL)
    assert "2" in str(error) + str(error.diag.message_detail)
    assert one(py, "select embed_pending('acme')") == 0
    assert one(py, "select count(*) from pending_embeddings('acme')") == 2
    assert one(others[0], "select embed_pending('acme', max_results => 1)") == 1
    assert one(others[0], "select run_maintenance('acme') -> 'counts' ->> 'embed'") == "1"
    assert one(py, "select count(*) from pending_embeddings('acme')") == 0
    assert one(py, "select array_agg(status order by created_at) from memories") == ["active", "merged"]
    # a session's end frees its slot
    others[0].close()
    deadline = time.monotonic() + 10
    while True:
        try:
            assert one(py, "select vector_dims(embed_text('x', %s))", MODEL) == 384
            break
        except psycopg.Error:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    others[1].close()


@pytest.mark.full_server
def test_a_released_model_slot_is_taken_again(py: DB) -> None:
    """DISCARD ALL, as poolers send it, releases advisory locks; the model stays, and is counted."""
    py.execute("select embed_text('x', %s)", [MODEL])
    py.execute("discard all")
    py.execute("set search_path = public, memfold")
    py.execute("select embed_text('x', %s)", [MODEL])
    held = one(py, "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
    assert held == 1


@pytest.mark.full_server
def test_what_an_application_may_do(py: DB, app: Any) -> None:
    connection = app("acme")
    assert one(connection, "select action from ingest_memory('User likes tea', 'acme')") == "inserted"
    assert one(connection, "select vector_dims(embed_text('User likes tea', %s))", MODEL) == 384
    assert one(connection, "select model from loaded_models()") == MODEL
    # no model that a DBA has not registered, wherever its files are
    for name in ("/etc", "/root/model", "../minilm", "all-MiniLM-L6-v2", ""):
        refused(connection, "MF013", "select embed_text('x', %s)", name)
    for query in ("select model_sessions()", "create extension memfold_py"):
        with pytest.raises(psycopg.Error):
            connection.execute(query.encode())


@pytest.mark.full_server
def test_an_unavailable_model(py: DB) -> None:
    py.execute("select register_embedding_model('absent', 384, 0.92, 0.85)")
    py.execute("select set_policy('acme', 'b', embed => 'in_database', embed_model => 'absent')")
    error = refused(py, "MF058", "select ingest_memory('User likes tea', 'acme', 'b')")
    assert "absent" in str(error)
    assert one(py, "select count(*) from memories") == 0
    # registered with another size
    py.execute("select register_embedding_model(%s, 3, 0.92, 0.85)", [f"{MODEL}:3"])
    refused(py, "MF013", "select set_policy('acme', 'c', embed => 'in_database', embed_model => 'nobody')")
    refused(py, "MF012", "select set_policy('globex', 'c', embed => 'in_database')")


@pytest.mark.full_server
def test_a_model_of_another_size(py: DB, minilm: Path) -> None:
    link = minilm.with_name("wrong")
    if not link.exists():
        link.symlink_to(minilm)
    py.execute("select register_embedding_model('wrong', 3, 0.92, 0.85)")
    refused(py, "MF014", "select embed_text('x', 'wrong')")


# --- the same inside and outside ---------------------------------------------------------------------------------------


@pytest.mark.full_server
def test_results_equal_those_of_the_package(py: DB, minilm: Path) -> None:
    """1,000 texts: lemmas and vectors of the database are those of the package."""
    assert len(set(TEXTS)) == 1000
    for language in ("en", "de", "fr"):
        inside = one(py, "select array_agg(lemmatize(t, %s) order by i) from unnest(%s::text[]) with ordinality as x (t, i)",
            language, TEXTS)  # fmt: skip
        assert inside == [lemma.lemmatize(text, language) for text in TEXTS]
    model = embed.load(str(minilm), threads=1)
    assert model.route == "onnx"
    outside = np.asarray(model.encode(TEXTS))
    answer = one(py, "select embed_texts(%s::text[], %s)::text[]", TEXTS, MODEL)
    vectors = np.array([json.loads(vector) for vector in answer], dtype=np.float32)
    assert vectors.shape == (1000, 384)
    assert np.array_equal(vectors, outside.astype(np.float32))
    # one by one, because other texts in a batch pad it, and padding changes the last bits
    for text, vector in list(zip(TEXTS, vectors, strict=True))[::100]:
        single = np.array(
            json.loads(one(py, "select embed_text(%s, %s)::text", text, MODEL)), dtype=np.float32
        )
        assert float(single @ vector) > 1 - 1e-5


# --- words of scripts without spaces ----------------------------------------------------------------------------------


@pytest.mark.full_server
@pytest.mark.parametrize(
    ("language", "known", "candidate", "other"),
    [
        ("zh", "用户在上海学习中文和数学", "用户在上海学习数学和中文", "用户喜欢绿茶"),
        (
            "ja",
            "ユーザーは緑茶とコーヒーが好き",
            "ユーザーはコーヒーと緑茶が好き",
            "ユーザーは東京に住んでいる",
        ),
    ],
)
def test_words_without_spaces(py: DB, language: str, known: str, candidate: str, other: str) -> None:
    py.execute(
        "select set_policy('acme', 'w', lexical_threshold => 0.7, segmenter => %s, embed => 'client', guard => 'off')",
        [language],
    )
    ingest = "select action, method from ingest_memory(%s, 'acme', 'w')"
    assert one(py, ingest, known) == ("inserted", None)
    assert one(py, ingest, candidate) == ("merged", "lexical")
    assert one(py, ingest, other) == ("inserted", None)
    words = set(one(py, "select segment_words(%s, %s)", known, language))
    assert words == set(tokens.tokens(known, language))
    assert any(len(word) > 1 for word in words)


@pytest.mark.full_server
def test_another_segmenter_rewrites_the_words(py: DB) -> None:
    py.execute("select set_policy('acme', 'w', lexical_threshold => 0.7, embed => 'client')")
    py.execute("select ingest_memory('用户喜欢喝绿茶', 'acme', 'w')")
    written = "select array_agg(token order by token) from memory_tokens where bucket_id = 'w'"
    characters = one(py, written)
    py.execute("select set_policy('acme', 'w', segmenter => 'zh')")
    assert one(py, written) != characters
    assert "喜欢" in one(py, written)
    py.execute("select set_policy('acme', 'w', segmenter => 'characters')")
    assert one(py, written) == characters


# --- installation and upgrade ------------------------------------------------------------------------------------------


@pytest.mark.full_server
def test_versions_are_compared(py: DB) -> None:
    assert (
        one(py, "select extversion from pg_extension where extname = 'memfold_py'") == memfold_py.__version__
    )
    control = (servers.ROOT / "plpython/memfold_py/extension/memfold_py.control").read_text()
    assert f"default_version = '{memfold_py.__version__}'" in control
    source = one(py, "select prosrc from pg_proc where proname = 'lemmatize'")
    py.execute(
        "create function memfold.later() returns text language plpython3u as $$"
        + source.replace(memfold_py.__version__, "9.9.9").replace("content, profile", "'a', 'en'")
        + "$$"
    )
    error = refused(py, "MF059", "select memfold.later()")
    assert "9.9.9" in str(error) + str(error.diag.message_detail)


@pytest.fixture
def bare(target: Target) -> Iterator[servers.Cluster]:
    """A full server whose Python does not have memfold_py."""
    cluster = servers.Cluster("own", target.cluster.bindir)
    cluster.start(extension=False)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.full_server
def test_a_server_without_the_package(target: Target, bare: servers.Cluster) -> None:
    with psycopg.connect(bare.dsn(), autocommit=True) as db:
        db.execute("create extension memfold_py cascade")
        db.execute("set search_path = public, memfold")
        error = refused(db, "MF058", "select set_policy('acme', canonicalizer => 'lemma')")
        assert "memfold_py" in str(error)
        said = CliRunner().invoke(main, ["doctor", "--dsn", bare.dsn()])
        assert said.exit_code == 1
        assert "canonicalizer self-test not run: " in said.output
        assert one(db, "select action from ingest_memory('User likes tea', 'acme')") == "inserted"


@pytest.mark.full_server
def test_its_script_also_updates(py: DB) -> None:
    """The next release ships it again as memfold_py--1.0.0--X.Y.Z.sql (CONTRIBUTING.md): it replaces what is there."""
    functions = "select p.oid, p.proowner, p.proacl::text, p.prosrc from pg_proc as p join pg_depend as d on d.objid = p.oid"
    functions += " join pg_extension as e on e.oid = d.refobjid where e.extname = 'memfold_py' order by p.oid"
    before = py.execute(functions.encode()).fetchall()
    assert len(before) == 9
    script = (servers.ROOT / f"plpython/memfold_py/extension/memfold_py--{servers.PRESENT}.sql").read_text()
    py.execute(script[script.index("\n") :].encode())
    assert py.execute(functions.encode()).fetchall() == before


@pytest.mark.full_server
def test_doctor_knows_it(py: DB, dsn: str) -> None:
    assert migrate.drift(dsn) == []
    said = CliRunner().invoke(main, ["doctor", "--dsn", dsn])
    assert "PROBLEM" not in said.output, said.output


@pytest.mark.full_server
def test_a_dump_comes_back(py: DB, target: Target, make: Make, tmp_path: Path) -> None:
    py.execute("select set_policy('acme', 'words', canonicalizer => 'lemma')")
    py.execute("select ingest_memory('User likes dogs', 'acme', 'words')")
    copy = make()
    for command in (
        ["pg_dump", "-Fc", "-f", tmp_path / "dump", "-d", target.cluster.dsn(py.info.dbname)],
        ["pg_restore", "--exit-on-error", "-d", copy, tmp_path / "dump"],
    ):
        done = subprocess.run(
            [target.cluster.bindir / command[0], *command[1:]], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    with psycopg.connect(copy, autocommit=True) as back:
        back.execute("set search_path = public, memfold")
        ingest = "select action, method from ingest_memory('User liked dogs', 'acme', 'words')"
        assert one(back, ingest) == ("merged", "hash")
        assert one(back, "select count(*) from check_invariants('acme')") == 0


@pytest.mark.full_server
def test_its_functions_are_described_and_not_public(py: DB) -> None:
    rows = py.execute(
        "select p.proname, obj_description(p.oid, 'pg_proc'), has_function_privilege('public', p.oid, 'execute')"
        " from pg_proc as p join pg_depend as d on d.objid = p.oid and d.classid = 'pg_proc'::regclass"
        " join pg_extension as e on e.oid = d.refobjid where e.extname = 'memfold_py'"
    ).fetchall()
    assert {name for name, _, _ in rows} == {
        "_holds_model", "_model_sessions", "lemma_profile", "lemmatize", "lemma_selftest", "embed_text", "embed_texts",
        "loaded_models", "segment_words",
    }  # fmt: skip
    assert all(description and not public for _, description, public in rows)
    if one(py, "select count(*) from pg_available_extensions where name = 'plpgsql_check'") == 1:
        py.execute("create extension plpgsql_check")
        names = (
            "_other_profile",
            "_profile",
            "_vectors",
            "_segmented",
            "_lemma_selftest",
            "_holds_model",
            "embed_pending",
        )
        for name in names:
            checked = py.execute(
                "select message from pg_proc as p, plpgsql_check_function_tb(p.oid::regprocedure, extra_warnings => false)"
                " where p.proname = %s and level in ('error', 'warning')", [name],
            ).fetchall()  # fmt: skip
            assert checked == [], name


# --- what the page shows -------------------------------------------------------------------------------------------

SHOWN = [
    ("plpython.md", "select register_embedding_model", ""),
    ("plpython.md", "select canonicalizer from set_policy", ""),
]


@pytest.mark.full_server
def test_the_page_shows_what_a_server_prints(db: DB, dsn: str, minilm: Path, target: Target) -> None:
    db.execute("create extension memfold_py cascade")
    # under its own name, the model of the page has them
    db.execute("select register_embedding_model(%s, 384, 0.92, 0.85)", [MODEL])
    run_story(dsn, target.cluster.bindir, SHOWN, {"all-MiniLM-L6-v2": MODEL})
