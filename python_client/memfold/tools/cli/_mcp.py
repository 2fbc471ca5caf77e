"""``memfold mcp``: the MCP server for agents."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import click

from memfold.client._log import Escaping
from memfold.tools.cli._embedding import embed_options, make_embedder
from memfold.tools.cli._shared import FILE, dsn_option, open_file, resolve, say

TOKEN = "MEMFOLD_MCP_TOKEN"  # noqa: S105 (its name)


@click.command()
@dsn_option
@click.option(
    "--tenant",
    metavar="ID",
    envvar="MEMFOLD_TENANT",
    help="The tenant; default: MEMFOLD_TENANT, else the login's.",
)
@click.option(
    "--bucket",
    metavar="ID",
    envvar="MEMFOLD_BUCKET",
    default="default",
    help="Default: MEMFOLD_BUCKET, else default.",
)
@embed_options
@click.option(
    "--http",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve HTTP instead; 0: a free port.",
)
@click.option("--host", metavar="ADDRESS", help="With --http: where to listen; default: 127.0.0.1.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="With --http: another host name to accept.",
)
@click.option(
    "--token-file", type=FILE, metavar="FILE", help=f"With --http: what clients must send; default: {TOKEN}."
)
def mcp(
    dsn: str | None,
    tenant: str | None,
    bucket: str,
    embed_url: str | None,
    embed_model: str | None,
    embed_path: str | None,
    port: int | None,
    host: str | None,
    hosts: tuple[str, ...],
    token_file: Path | None,
) -> None:
    """Serve memories to agents, by the Model Context Protocol.

    Serves one tenant and bucket: over stdin and stdout, for a client that starts it; with --http at
    http://127.0.0.1:PORT/mcp, for clients that send the token. Tools: remember, recall, profile, correct, forget, undo,
    explain, open_questions, answer. Callers cannot choose the tenant.

    Needs memfold[mcp].

    \b
    MEMFOLD_TENANT=acme memfold mcp
    MEMFOLD_TENANT=acme memfold mcp --http 8808 --token-file ~/.memfold-token
    """
    embedder = make_embedder(embed_url, embed_model, embed_path)
    if port is None and (token_file is not None or hosts or host is not None):
        raise click.UsageError("--token-file, --host and --allow-host need --http")
    from memfold.agents import mcp as serving  # no other command needs it, and it takes long to load

    place = serving.Place(
        resolve(dsn),
        tenant,
        bucket,
        embedder,
    )
    # stdout belongs to the protocol. Packages log too, and quote what clients send.
    log = logging.StreamHandler(sys.stderr)
    log.addFilter(Escaping())
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    if port is None:
        # Ctrl-C ends it like SIGTERM. Python's own handler would wait for the thread that reads stdin.
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            asyncio.run(serving.serve_stdio(place))
        finally:
            signal.signal(signal.SIGINT, before)
        return
    token = _token(token_file)

    def ready(url: str) -> None:
        say(f"serving {url}")

    asyncio.run(
        serving.serve_http(
            place, token, host="127.0.0.1" if host is None else host, port=port, hosts=hosts, ready=ready
        )
    )


def _token(file: Path | None) -> str:
    if file is not None:
        with open_file(file) as opened:
            token = opened.read().decode(errors="replace").strip()
    else:
        token = os.environ.get(TOKEN, "")
    if not token:
        raise click.UsageError(f"--http needs a token: give --token-file or set {TOKEN}")
    return token
