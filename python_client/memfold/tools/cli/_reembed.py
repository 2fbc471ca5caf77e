"""``memfold reembed``: from one embedding model to another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import psycopg

from memfold.client._text import describe_error, escape_line
from memfold.client.embedding import Embedder, EmbedderProtocol, LocalEmbedder, OpenAIEmbedder
from memfold.client.errors import EndpointError, MemfoldError
from memfold.tools.admin import reembed
from memfold.tools.cli._npz import read_vectors
from memfold.tools.cli._shared import (
    FILE,
    dsn_option,
    fail,
    json_option,
    open_client,
    progress,
    report,
    resolve,
    say,
    show,
    show_lines,
    table_of,
    tenant_option,
)

_FOLLOW = 1.0
"""Seconds between two checks for new texts."""


def _stored(path: Path, model: str) -> EmbedderProtocol:
    try:
        vectors = read_vectors(path)
    except ValueError as error:
        fail(str(error))

    def embed(texts: list[str]) -> list[Any]:
        unknown = [text for text in texts if text not in vectors]
        if unknown:
            fail(f"{path} has no vector for {len(unknown)} texts, such as: {escape_line(unknown[0])}")
        return [vectors[text] for text in texts]

    return Embedder(embed, model, next((len(vector) for vector in vectors.values()), None))


@click.command("reembed")
@click.option("--from", "old", metavar="OLD", required=True, help="The model to replace.")
@click.option("--to", "new", metavar="NEW", help="The new model.")
@dsn_option
@tenant_option("Only this tenant; default: all, as a member of memfold_owner.")
@click.option(
    "--embed-url", metavar="URL", help="An OpenAI-compatible endpoint, such as http://host:8080/v1."
)
@click.option("--embed-model", metavar="NAME", help="The endpoint's name for the new model; default: NEW.")
@click.option(
    "--embed-path",
    metavar="PATH",
    help="The new model to run here instead: its directory, or the package that contains it. Needs memfold[embed].",
)
@click.option(
    "--vectors", type=FILE, metavar="FILE.npz", help="Vectors of the texts (arrays texts, vectors)."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Texts per request, vectors per call.",
)
@click.option(
    "--per-second", type=click.FloatRange(0, min_open=True), help="At most this many texts per second."
)
@click.option("--pause", type=click.FloatRange(0), default=0.0, help="Seconds to wait after each batch.")
@click.option("--follow", is_flag=True, help="Then keep embedding new texts, until interrupted.")
@click.option("--status", "show", is_flag=True, help="Only show the progress.")
@click.option("--cut-over", is_flag=True, help="Add missing vectors, and refuse vectors of OLD from then on.")
@click.option(
    "--drop", "remove", is_flag=True, help="After the cut-over: drop the vectors and the index of OLD."
)
@json_option
def reembed_command(
    old: str,
    new: str | None,
    dsn: str | None,
    tenant: str | None,
    embed_url: str | None,
    embed_model: str | None,
    embed_path: str | None,
    vectors: Path | None,
    batch: int,
    per_second: float | None,
    pause: float,
    follow: bool,
    show: bool,
    cut_over: bool,
    remove: bool,
) -> None:
    """Switch to another embedding model.

    Gives memories vectors of the new model, in addition to those of the old one, which you drop at the end. Nothing
    is merged or asked. It can be interrupted, and continues where it stopped. Callers can use either model until
    --cut-over.

    \b
    memfold reembed --from small --to large --embed-url http://host:8080/v1 --per-second 50
    memfold reembed --from small --to local --embed-path ./models/local
    memfold reembed --from small --to large --status
    memfold reembed --from small --to large --embed-url http://host:8080/v1 --cut-over
    memfold reembed --from small --drop
    """
    if show + cut_over + remove + follow > 1:
        raise click.UsageError("--status, --cut-over, --drop and --follow cannot be used together")
    if tenant is not None and (cut_over or remove):
        raise click.UsageError(
            "a model belongs to all tenants: --cut-over and --drop cannot be used with --tenant"
        )
    if [vectors, embed_path, embed_url or embed_model].count(None) < 2:
        raise click.UsageError("give one of --vectors, --embed-path and an endpoint")
    with open_client(dsn):
        pass
    where = resolve(dsn)
    tell = progress()

    def told(one: reembed.Progress) -> None:
        done = f"{one.dropped:,} dropped" if remove else f"{one.added:,} added"
        tell(f"{one.tenant_id}  {done}, {(one.dropped or one.added) / max(one.seconds, 1e-9):,.0f} a second")

    if remove:
        dropped = list(reembed.drop(where, old, batch=batch, pause=pause, told=told))
        for one in dropped:
            _line(one.tenant_id, f"{one.dropped:,} vectors of {old} dropped", one)
        report({"tenants": dropped})
        say(f"{old} is unregistered")
        return
    if new is None:
        raise click.UsageError("name the model that replaces it: --to NEW")
    if show:
        _status(where, old, new, tenant)
        return
    embedder: EmbedderProtocol
    if vectors is not None:
        embedder = _stored(vectors, new)
    elif embed_path is not None:
        embedder = LocalEmbedder(embed_path, name=new)
    else:
        embedder = OpenAIEmbedder(embed_model or new, embed_url, name=new)
    given: dict[str, Any] = {"batch": batch, "per_second": per_second, "pause": pause, "told": told}
    try:
        if cut_over:
            needed = [vectors, embed_path, embed_url, embed_model].count(None) < 4
            reembed.cut_over(where, old, new, embedder if needed else None, **given)
            report({"replaced": old, "by": new})
            say(f"{new} has replaced {old}, whose vectors are refused from now on")
            return
        filled = []
        for one in reembed.fill(where, old, new, embedder, tenant, **given):
            left = f", {one.missing:,} more arrived since" if one.missing else ""
            _line(one.tenant_id, f"{one.added:,} vectors of {new} added{left}", one)
            filled.append(one)
        report({"tenants": filled})
        while follow:
            time.sleep(_FOLLOW)
            for one in reembed.fill(where, old, new, embedder, tenant, **given):
                if one.added:
                    _line(one.tenant_id, f"{one.added:,} vectors of {new} added", one)
    except EndpointError as error:
        fail(f"{error}\nStored vectors are kept: run it again to continue.")
    except (MemfoldError, psycopg.Error, click.ClickException):
        raise
    except Exception as error:
        fail(f"{describe_error(error)}\nStored vectors are kept: run it again to continue.")


def _line(tenant: str, what: str, one: reembed.Progress) -> None:
    show(f"{tenant}  {what} in {one.seconds:.1f} s, longest call {one.longest * 1000:.0f} ms")


def _status(where: str, old: str, new: str, tenant: str | None) -> None:
    found = reembed.status(where, old, new, tenant)
    head = ["tenant", old, new, "missing", "pending", "own thresholds"]
    rows = [
        [one.tenant_id, one.old_vectors, one.new_vectors, one.missing, one.pending, one.own_thresholds]
        for one in found
    ]
    show_lines(table_of(head, rows))
    report({"tenants": found})
    if any(one.own_thresholds for one in found):
        say(
            f"policies with their own thresholds: chosen for {old}, they now apply to {new} too; see set_policy"
        )
