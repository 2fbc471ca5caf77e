"""The catalog of a database with memfold, and the public functions."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import servers
from tests.support.queries import DB

SNAPSHOT = Path(__file__).with_name("snapshot.sql").read_text()
PUBLIC = {
    "add_embeddings", "add_labelled_pair", "add_labelled_pairs", "adopted_claim", "adopted_hash", "adopted_repeat",
    "apply_calibration", "apply_decay",
    "approve_run", "ask_links", "attach_embedding", "calibrate_by_anchors", "canonicalize", "canonicalizer_selftest",
    "check_invariants", "claim_judgements", "clean_exact_duplicates", "collect_pairs", "consolidate",
    "create_text_index", "create_vector_index", "current_memories", "current_memory", "derive_scope", "describe_pairs",
    "drop_embeddings", "duplicate_pairs",
    "effective_confidence", "embed_pending", "end_reembedding", "end_session", "erase_bucket", "erase_memory",
    "erase_source", "erase_tenant", "explain_memory", "export_bucket", "fail_judgement", "find_similar", "forget_memories",
    "import_bucket", "ingest_memories", "ingest_memory", "ingest_plain_rows", "known_memory", "link_predicate",
    "link_subject", "merge_memories", "missing_embeddings", "pairs_to_label", "pending_embeddings",
    "preview_memory", "profile", "prune_memories", "record_feedback", "reembed_status", "register_embedding_model",
    "rehash_bucket", "reject_memory", "remove_labelled_pair", "replace_embedding_model", "replay_bucket",
    "resolve_judgement", "retry_judgements", "run_maintenance", "run_maintenance_all",
    "search_memories", "set_common_predicates", "set_options", "set_policy", "set_predicate", "start_reembedding",
    "suggest_links", "suggest_predicates",
    "supersede_memory", "sweep_duplicates", "take_up_links", "tenants", "text_index_ddl", "undo", "undo_calibration",
    "undo_actor", "undo_run", "unlink_predicate", "unlink_subject", "unregister_embedding_model",
    "update_memory", "vector_index_ddl",
}  # fmt: skip


def snapshot(connection: DB) -> list[str]:
    """Everything that the catalog says of memfold's schemas, a line for each object."""
    connection.execute("set search_path = pg_catalog")
    return [row[0] for row in connection.execute(SNAPSHOT).fetchall()]


def plain(lines: list[str]) -> list[str]:
    """The parts that must be equal in all databases of a server, apart from rows written by a test or an earlier
    version."""
    # CREATE EXTENSION ... CASCADE creates pgvector if it is missing, in another schema; only its name differs
    lines = [re.sub(r"\b(public|memfold|extensions)\.vector\b", "vector", line) for line in lines]
    return [line for line in lines if f'"tenant_id": "{servers.BEFORE}"' not in line]


# The public functions that are STABLE.
READERS = (
    "canonicalizer_selftest", "check_invariants", "current_memories", "current_memory", "duplicate_pairs",
    "effective_confidence", "explain_memory", "export_bucket", "find_similar", "known_memory", "missing_embeddings",
    "pairs_to_label", "pending_embeddings", "preview_memory", "profile", "reembed_status", "suggest_links",
    "suggest_predicates", "tenants", "text_index_ddl", "vector_index_ddl",
)  # fmt: skip
