"""search_memories by words: its results with and without an index, by both, over buckets, with conditions on
metadata."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from psycopg.rows import dict_row

from tests.conftest import Connect
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB, one
from tests.support.searching import keep, texts
from tests.support.server_statistics import FILL, never_analyze, read
from tests.support.vectors import limit

pytestmark = pytest.mark.new_database

Found = list[dict[str, Any]]
TEXTS = [
    "Ann drinks a flat white every morning",
    "Ann likes tea, not coffee",
    "Bob drinks coffee with oat milk",
    "The deployment runs on Kubernetes 1.29",
    "Ann's flat is in Lisbon",
]


def words(db: DB, query: str, *, tenant: str = "acme", **given: Any) -> Found:
    named = "".join(f", {name} => %s" for name in given)
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            f"select * from memfold.search_memories(query => %s, tenant_id => %s{named})".encode(),
            [query, tenant, *given.values()],
        ).fetchall()


@pytest.fixture
def store(db: DB) -> DB:
    for content in TEXTS:
        ingest(db, content)
    return db


@pytest.fixture(params=["scan", "index"])
def way(request: pytest.FixtureRequest, store: DB) -> DB:
    if request.param == "index":
        store.execute("select create_text_index()")
    return store


def test_rare_words_count_more(way: DB) -> None:
    found = words(way, "What coffee does Ann drink: a flat white?")
    assert found[0]["content"] == TEXTS[0]
    assert {TEXTS[1], TEXTS[2], TEXTS[4]} == set(texts(found)[1:])
    assert [row["score"] for row in found] == sorted((row["score"] for row in found), reverse=True)
    assert all(0 < row["word_share"] <= 1 and row["similarity"] is None for row in found)
    assert all(row["matched_similarity"] is None and row["complete"] for row in found)
    # in any order they weigh the same, to the last digit
    assert words(way, "Ann drinks white") == words(way, "white drinks Ann")
    assert texts(words(way, "kubernetes")) == [TEXTS[3]]
    assert texts(words(way, "1.29")) == [TEXTS[3]]
    assert words(way, "zebra") == words(way, "?!") == []


def test_subject_predicate_and_object_are_words_too(way: DB) -> None:
    ingest(way, "It is on the first floor", subject="Office", predicate="located_in", object="Porto")
    for query in ("porto", "OFFICE", "located"):
        assert texts(words(way, query)) == ["It is on the first floor"]


def test_a_long_text_is_found_by_its_beginning(way: DB) -> None:
    """8,000 characters: otherwise a long text stated repeatedly would make every search slow."""
    ingest(way, "Kitchen " + "and so on " * 798 + "cellar" + " and so on" * 20 + " attic")
    assert len(words(way, "kitchen")) == len(words(way, "cellar")) == 1
    assert words(way, "attic") == []


def test_text_without_spaces(way: DB) -> None:
    ingest(way, "用户喜欢喝咖啡。")
    ingest(way, "用户喜欢喝茶。")
    ingest(way, "Die Straße heißt Äußere Gasse.")
    assert texts(words(way, "咖啡"))[0] == "用户喜欢喝咖啡。"
    assert texts(words(way, "茶")) == ["用户喜欢喝茶。"]
    assert texts(words(way, "STRAßE äUßERE")) == ["Die Straße heißt Äußere Gasse."]
    assert texts(words(way, "gasse")) == ["Die Straße heißt Äußere Gasse."]


@pytest.mark.parametrize(
    "hostile", ["it's", "a\\b", "' | '", "x & !y", "(", "coffee:*", "%", "'", "\\", "\x01", "$$"]
)
def test_a_query_is_words_and_nothing_else(way: DB, hostile: str) -> None:
    ingest(way, f"hostile {hostile} text")
    assert texts(words(way, f"hostile {hostile}"))[0] == f"hostile {hostile} text"


def test_a_merged_text_resolves_to_its_memory(way: DB) -> None:
    model(way)
    root = ingest(way, "Ann keeps bees", **vector(1.0))
    ingest(way, "Ann is a beekeeper in spare hours", **vector(0.97))
    way.execute(
        "select merge_memories((select memory_id from memories where tenant_id = 'acme' and content like '%%beekeeper%%'"
        " and status = 'active'), %s, tenant_id => 'acme') where exists (select from memories where tenant_id = 'acme'"
        " and content like '%%beekeeper%%' and status = 'active')",
        [root.memory_id],
    )
    [row] = words(way, "beekeeper")
    assert (row["memory_id"], row["matched_content"]) == (root.memory_id, "Ann is a beekeeper in spare hours")
    assert row["matched_id"] != row["memory_id"]
    check(way)


def test_only_what_recall_may_show(way: DB) -> None:
    way.execute("select set_predicate('lives_in', 'acme', 'one')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    ingest(way, "Ann lives in Porto", object="Porto", observed_at="2026-01-01", **slot)
    ingest(way, "Ann lives in Faro", object="Faro", observed_at="2026-02-01", **slot)
    gone = ingest(way, "Ann lives near Sintra")
    way.execute("select reject_memory(%s, tenant_id => 'acme')", [gone.memory_id])
    assert words(way, "porto") == words(way, "sintra") == []
    assert texts(words(way, "porto", as_of="2026-01-15")) == ["Ann lives in Porto"]
    assert texts(words(way, "lives", subject="ann")) == ["Ann lives in Faro"]
    assert words(way, "lives", memory_type="event") == []
    assert words(way, "lives", min_confidence=0.99) == []


def test_a_session_and_its_merged_texts(way: DB) -> None:
    ingest(way, "Ann mentioned a tandem bicycle", session_id="s1")
    assert texts(words(way, "bicycle", session_id="s1")) == ["Ann mentioned a tandem bicycle"]
    assert words(way, "bicycle", session_id="s2") == words(way, "coffee", session_id="s1") == []


def test_a_language(store: DB) -> None:
    ingest(store, "Ann was running with the dogs")
    assert "Ann was running with the dogs" not in texts(words(store, "dog runs"))
    store.execute("select set_options('acme', text_search => 'english')")
    assert texts(words(store, "dog runs"))[0] == "Ann was running with the dogs"
    # for English, stop words tell which words to leave out
    assert words(store, "with the") == []
    scanned = words(store, "dog runs")
    store.execute("select create_text_index('english')")
    assert words(store, "dog runs") == scanned
    with pytest.raises(Exception, match="unknown text search configuration"):
        store.execute("select set_options('acme', text_search => 'klingon')")


def test_memories_without_vectors_are_shown_as_one_by_words(store: DB) -> None:
    ingest(store, "Ann plays the viola on Sundays in Porto")
    ingest(store, "On Sundays Ann plays the viola in Porto.")
    ingest(store, "On Sundays Ann plays the viola in Porto for 3 hours")
    found = words(store, "viola porto")
    assert [row["collapsed_count"] for row in found] == [1, 0]
    assert len(words(store, "viola porto", deduplicate=False)) == 3


def test_an_index_finds_what_a_scan_finds(store: DB) -> None:
    """The same rows in the same order for any words, in buckets and tenants that share them."""
    random.seed(7)
    vocabulary = [
        "red",
        "blue",
        "Öl",
        "cats",
        "v1.2",
        "a-b",
        "猫",
        "it's",
        "the",
        "on",
        "x@y.org",
        "n0",
        "Straße",
    ]
    for n in range(240):
        content = " ".join(random.choices(vocabulary, k=random.randint(1, 9))) + f" {n}"
        tenant, bucket = random.choice([("acme", "b"), ("acme", "c"), ("globex", "b")])
        store.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
        ingest(store, content, tenant_id=tenant, bucket_id=bucket)

    queries = [" ".join(random.choices(vocabulary, k=random.randint(1, 4))) for _ in range(40)]

    def answers() -> list[list[tuple[UUID, float]]]:
        found = []
        for query in queries:
            for tenant, bucket in (("acme", "b"), ("acme", "c"), ("globex", "b")):
                store.execute("select set_config('memfold.tenant_id', %s, false)", [tenant])
                rows = words(store, query, tenant=tenant, bucket_id=bucket, max_results=50, deduplicate=False)
                assert {row["bucket_id"] for row in rows} <= {bucket}
                found.append([(row["memory_id"], row["word_share"]) for row in rows])
        return found

    scanned = answers()
    assert sum(map(len, scanned)) > 1000
    store.execute("select create_text_index()")
    assert answers() == scanned


def test_the_index_is_used_under_row_level_security(db: DB, app: Connect) -> None:
    """A search by words reads in proportion to its results, not to the number of memories."""
    never_analyze(db)
    db.execute(FILL.replace("%(rows)s", "12000").encode())
    db.execute("select create_text_index()")
    mine = app("acme")

    def pages() -> int:
        with mine.transaction():
            before = read(mine)[0]
            assert len(words(mine, "11999")) == 1
            return read(mine)[0] - before

    # 244 on PostgreSQL 18, 299 on 15; the heap of memories has another 334
    assert min(pages() for _ in range(3)) < 400
    db.execute("set search_path = memfold")
    for (statement,) in db.execute("select memfold.text_index_ddl(drop_index => true)").fetchall():
        db.execute(statement)
    assert min(pages() for _ in range(2)) > 300


SCANS = """
select sum(pg_stat_get_xact_numscans(indexrelid)) filter (where indexrelid::regclass::text like '%memories_words_%'),
    sum(pg_stat_get_xact_numscans(indexrelid)) filter (where indexrelid::regclass::text not like '%memories_words_%')
from pg_index where indrelid = 'memfold.memories'::regclass
"""


def test_the_index_is_read_for_one_tenant(db: DB) -> None:
    """Without an index that begins with the tenant, which would need every text of the tenant split into words."""
    db.execute(FILL.replace("%(rows)s", "3000").encode())
    for number in range(3):
        ingest(db, f"Fact {number} of globex", tenant_id="globex")
    db.execute("select create_text_index()")
    db.execute("analyze memfold.memories")

    def found(tenant: str, owner: str) -> tuple[int, Any, Any]:
        with db.transaction():
            before = db.execute(SCANS).fetchone()
            rows = db.execute(
                "select memory_id from memfold_internal._indexed_words(%s,"
                " memfold_internal._word_keys(%s, 'default', '{fact,2}'), 'simple')",
                [tenant, owner],
            ).fetchall()
            after = db.execute(SCANS).fetchone()
        assert before is not None
        assert after is not None
        return len(rows), after[0] - before[0], after[1] - before[1]

    assert found("globex", "globex") == (4, 2, 0)
    assert found("acme", "globex") == (0, 2, 0)


def test_the_index_is_made_once(db: DB) -> None:
    db.execute("set search_path = memfold")
    [(statement,)] = db.execute("select text_index_ddl()").fetchall()
    db.execute(statement)
    assert db.execute("select text_index_ddl()").fetchall() == []
    db.execute("select create_text_index()")
    name = statement.split()[3]
    db.execute("update pg_index set indisvalid = false where indexrelid = %s::regclass", [name])
    assert len(db.execute("select text_index_ddl()").fetchall()) == 2
    db.execute("select create_text_index()")
    assert db.execute("select text_index_ddl()").fetchall() == []
    [(statement,)] = db.execute("select text_index_ddl(drop_index => true)").fetchall()
    db.execute(statement)
    assert db.execute("select text_index_ddl(drop_index => true)").fetchall() == []


# By both ---------------------------------------------------------------------------------------------------------


def test_reciprocal_ranks(db: DB) -> None:
    model(db)
    keep(db)
    ingest(db, "first by vector", **vector(1.0, 1))
    both = ingest(db, "second by vector, zebra", **vector(0.9, 2))
    ingest(db, "a text of the zebra that goes on and on and says more than others", **vector(0.1, 3))
    bare = ingest(db, "a zebra without a vector, as it happens")
    rows = words(db, "zebra", query_embedding="[1,0,0,0]", embedding_model="m", deduplicate=False)
    assert rows[0]["memory_id"] == both.memory_id
    by_id = {row["memory_id"]: row for row in rows}
    assert by_id[bare.memory_id]["similarity"] is None
    assert {row["content"] for row in rows if row["word_share"] is None} == {"first by vector"}
    # confidence and feedback are equal: 0.1 * 0.4 + 0.1 * 0.5
    vectors = sorted((r for r in rows if r["similarity"] is not None), key=lambda r: -r["similarity"])
    said = sorted((r for r in rows if r["word_share"] is not None), key=lambda r: -r["word_share"])
    for row in rows:
        ranks = [place + 1 for order in (vectors, said) for place, one in enumerate(order) if one is row]
        fit = 30.5 * sum(1 / (60 + rank) for rank in ranks)
        assert row["score"] == pytest.approx(0.8 * fit + 0.1 * row["confidence"] + 0.05)


def test_without_a_query(db: DB) -> None:
    for given in ({}, {"query": "  "}, {"bucket_ids": "{b}"}):
        named = "".join(f", {name} => %s" for name in given)
        with pytest.raises(Exception, match="the query is missing"):
            db.execute(f"select search_memories(tenant_id => 'acme'{named})".encode(), [*given.values()])


# Several buckets -------------------------------------------------------------------------------------------------


@pytest.fixture
def buckets(db: DB) -> DB:
    model(db)
    keep(db)
    for n, bucket in enumerate(["user:4/notes", "user:42/notes", "user:42/work", "user:420", "other"]):
        ingest(db, f"Note {n} about bees", bucket_id=bucket, **vector(0.9 - n / 100, 1))
        ingest(db, "User likes honey", bucket_id=bucket, **vector(0.99, 2))
    return db


def test_named_buckets_and_a_prefix(buckets: DB, app: Connect) -> None:
    mine = app("acme")

    def found(**given: Any) -> set[str]:
        by_words = words(mine, "bees honey", deduplicate=False, **given)
        by_vector = words(
            mine, "-", query_embedding="[1,0,0,0]", embedding_model="m", deduplicate=False, **given
        )
        assert {row["bucket_id"] for row in by_words} == {row["bucket_id"] for row in by_vector}
        return {row["bucket_id"] for row in by_words}

    assert found(bucket_ids=["user:42/work", "other", "none"]) == {"user:42/work", "other"}
    assert found(bucket_prefix="user:42/") == {"user:42/notes", "user:42/work"}
    assert found(bucket_prefix="user:42") == {"user:42/notes", "user:42/work", "user:420"}
    assert found(bucket_prefix="user:42/", bucket_ids=["other"]) == {"user:42/notes", "user:42/work", "other"}
    assert found(bucket_prefix="user:%") == found(bucket_ids=[]) == set()
    # the argument counts only where neither is given
    assert found(bucket_id="other", bucket_prefix="user:4/") == {"user:4/notes"}
    assert words(app("globex"), "bees", tenant="globex", bucket_prefix="user:") == []


def test_buckets_are_shown_as_one_and_stay_two(buckets: DB) -> None:
    found = words(buckets, "honey", bucket_prefix="user:42/")
    assert [(row["content"], row["collapsed_count"]) for row in found] == [("User likes honey", 1)]
    assert buckets.execute("select count(*) from memories where status = 'active'").fetchone() == (10,)
    check(buckets)


def test_values_of_a_slot_in_two_buckets_are_two(db: DB) -> None:
    db.execute("select set_predicate('likes', 'acme', 'one')")
    model(db)
    keep(db)
    for bucket, content in (("a", "Ann likes green tea"), ("b", "Ann likes green tea a lot")):
        ingest(db, content, bucket_id=bucket, subject="Ann", predicate="likes", **vector(1.0))
    assert [row["collapsed_count"] for row in words(db, "tea", bucket_ids=["a", "b"])] == [0, 0]


def test_one_search_ranks_as_the_searches_of_each_bucket_do(buckets: DB) -> None:
    given = {"query_embedding": "[1,0,0,0]", "embedding_model": "m", "deduplicate": False}
    query = "select memory_id, score from search_memories(%s, 'm', 'acme', {}, deduplicate => false) where score > 0"
    together = buckets.execute(
        query.format("bucket_prefix => 'user:'").encode(), [given["query_embedding"]]
    ).fetchall()
    apart: list[tuple[Any, ...]] = []
    for bucket in ("user:4/notes", "user:42/notes", "user:42/work", "user:420"):
        apart += buckets.execute(query.format(f"'{bucket}'").encode(), [given["query_embedding"]]).fetchall()
    assert together == sorted(apart, key=lambda row: (-row[1], -row[0].int))


def test_too_many_buckets(db: DB) -> None:
    assert words(db, "x", bucket_ids=[f"b{n}" for n in range(1000)]) == []
    with pytest.raises(Exception, match="too many buckets"):
        words(db, "x", bucket_ids=[f"b{n}" for n in range(1001)])
    with pytest.raises(Exception, match="bucket_ids is missing"):
        words(db, "x", bucket_ids=["a", None])


def test_a_prefix_is_found_by_the_index(db: DB) -> None:
    """Other buckets are skipped: none of their 12,000 memories is read."""
    never_analyze(db)
    db.execute(FILL.replace("%(rows)s", "12000").encode())
    for n in range(5):
        ingest(db, "A bee", bucket_id=f"user:{n}")

    def pages() -> int:
        with db.transaction():
            before = read(db)[0]
            assert len(words(db, "bee", bucket_prefix="user:", deduplicate=False)) == 5
            return read(db)[0] - before

    # 244 on PostgreSQL 18, 299 on 15; the heap of memories has another 334
    assert min(pages() for _ in range(3)) < 400


def test_named_buckets_are_found_by_indexes(db: DB, app: Connect) -> None:
    """50 buckets in one search, by words and by vector, under row level security: no table is read from its beginning."""
    model(db)
    keep(db)
    never_analyze(db)
    db.execute(FILL.replace("%(rows)s", "12000").encode())
    for n in range(50):
        ingest(db, f"Note {n} about bees", bucket_id=f"user:{n}", **vector(0.9 - n / 100, 1))
    mine = app("acme")
    given: dict[str, Any] = {
        "bucket_ids": [f"user:{n}" for n in range(50)],
        "deduplicate": False,
        "max_results": 100,
    }

    def scanned() -> int:
        # with earlier transactions that the session has not reported yet
        row = mine.execute(
            "select sum(seq_tup_read) from pg_stat_xact_all_tables"
            " where relname in ('memories', 'memory_vectors', 'memory_counters')"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def searched(**more: Any) -> tuple[int, int]:
        with mine.transaction():
            before, scanned_before = read(mine)[0], scanned()
            found = len(words(mine, "bees", **given, **more))
            assert found == 50
            assert scanned() == scanned_before, "a table was scanned"
            return found, read(mine)[0] - before

    for more in ({}, {"query_embedding": "[1,0,0,0]", "embedding_model": "m"}):
        pages = min(searched(**more)[1] for _ in range(3))
        # of each bucket its index, and of what is found the memory, its vector and its counters (validity)
        assert pages < 50 * 80, pages


# Conditions on metadata ------------------------------------------------------------------------------------------


def test_conditions_on_metadata(db: DB) -> None:
    model(db)
    keep(db)
    for year in (2019, 2021, 2023):
        ingest(
            db, f"Ann moved in {year}", metadata={"year": year, "tags": ["home"]}, **vector(0.9, year % 3 + 1)
        )
    ingest(db, "Ann moved once", **vector(0.9, 1))

    def found(path: str) -> set[str]:
        by_words = words(db, "moved", metadata_path=path, deduplicate=False)
        by_vector = words(
            db, "-", query_embedding="[1,0,0,0]", embedding_model="m", metadata_path=path, deduplicate=False
        )
        assert set(texts(by_words)) == set(texts(by_vector))
        return set(texts(by_words))

    assert found("$.year > 2020") == {"Ann moved in 2021", "Ann moved in 2023"}
    assert found("$.year > 2020 && $.year < 2022") == {"Ann moved in 2021"}
    assert found('exists($.tags[*] ? (@ == "home"))') == {
        f"Ann moved in {year}" for year in (2019, 2021, 2023)
    }
    assert found("strict $.year > 2020") == found("$.year > 2020")
    for path in ("$.year", "strict $.year", "$.tags[*] ? (@ == 1)"):
        with pytest.raises(Exception, match="is not a condition"):
            words(db, "moved", metadata_path=path)


def test_without_an_index_the_newest_texts_are_read_and_all_of_a_session_or_a_past_moment(store: DB) -> None:
    """A search of the past cannot report what it skipped: it reads everything."""
    moment = one(store, "select clock_timestamp()")
    limit(store, 3)
    ingest(store, "Ann has a cat", session_id="s")
    found = words(store, "Ann flat")
    assert (texts(found), {row["complete"] for row in found}) == ([TEXTS[4], "Ann has a cat"], {False})
    for given, expected in (
        ({"as_of": moment}, [TEXTS[4], TEXTS[0], TEXTS[1]]),
        ({"session_id": "s"}, ["Ann has a cat"]),
    ):
        found = words(store, "Ann flat", **given)
        assert sorted(texts(found)) == sorted(expected), given
        assert all(row["complete"] for row in found)
