"""Search as a client does, in buckets whose memories tier 2 has kept apart."""

from __future__ import annotations

import json
from typing import Any

from psycopg.rows import dict_row

from tests.support.queries import DB

QUERY = json.dumps([1.0, 0.0, 0.0, 0.0])
Found = list[dict[str, Any]]


def search(
    db: DB, query: str = QUERY, *, tenant: str = "acme", bucket: str = "default", **given: Any
) -> Found:
    """Call search_memories with named arguments; its rows."""
    if isinstance(given.get("metadata"), dict | list):
        given["metadata"] = json.dumps(given["metadata"])
    name = given.pop("embedding_model", "m")
    named = "".join(f", {argument} => %s" for argument in given)
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            f"select * from memfold.search_memories(tenant_id => %s, bucket_id => %s, query_embedding => %s,"
            f" embedding_model => %s{named})",
            [tenant, bucket, query, name, *given.values()],
        ).fetchall()


def texts(found: Found) -> list[str]:
    """The texts found, in order."""
    return [row["content"] for row in found]


def keep(db: DB, touch: bool = False, **rules: Any) -> None:
    """Tier 2 keeps everything: only deduplication at load time acts on similar memories."""
    rules = {"on_ambiguous": "insert", "merge_threshold": 1, **rules}
    named = ", ".join(f"{name} => %s" for name in rules)
    db.execute(f"select memfold.set_policy('acme', {named})", [*rules.values()])
    db.execute("select memfold.set_options('acme', search_threshold => 0.8, touch => %s)", [touch])
