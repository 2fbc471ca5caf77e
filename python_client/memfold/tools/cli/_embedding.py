"""The embedder of a command: an endpoint, or a model in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from memfold.client.embedding import EmbedderProtocol, LocalEmbedder, OpenAIEmbedder

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--embed-url",
        metavar="URL",
        envvar="MEMFOLD_EMBED_URL",
        help="An OpenAI-compatible endpoint, such as http://host:8080/v1; default: MEMFOLD_EMBED_URL.",
    ),
    click.option(
        "--embed-model",
        metavar="NAME",
        envvar="MEMFOLD_EMBED_MODEL",
        help="The model to ask there (or at OpenAI, without a URL); default: MEMFOLD_EMBED_MODEL.",
    ),
    click.option(
        "--embed-path",
        metavar="PATH",
        envvar="MEMFOLD_EMBED_PATH",
        help="A model to run here instead: its directory, or the package that contains it; --embed-model is then its name."
        " Needs memfold[embed]. Default: MEMFOLD_EMBED_PATH.",
    ),
)


def embed_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def make_embedder(url: str | None, model: str | None, path: str | None) -> EmbedderProtocol | None:
    """None: no vectors are made. Raises click.UsageError, or MemfoldError if PATH has no model."""
    if url is not None and path is not None:
        raise click.UsageError("give --embed-url or --embed-path, not both")
    if url is not None and model is None:
        raise click.UsageError("--embed-url needs --embed-model")
    if path is not None:
        return LocalEmbedder(path, name=model)
    return OpenAIEmbedder(model, url) if model is not None else None
