"""``memfold web``: a page to look at memories, judge and undo."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import sys

import click

from memfold._log import Escaping
from memfold.cli._embedding import embed_options, make_embedder
from memfold.cli._shared import dsn_option, resolve, say, show


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@click.command()
@dsn_option
@click.option(
    "--tenant",
    metavar="ID",
    envvar="MEMFOLD_TENANT",
    help="Whose memories; default: MEMFOLD_TENANT, else the login's, or chosen among those that it sees.",
)
@embed_options
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Default: 0, one that is free."
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", help="Where to listen; default: 127.0.0.1.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A further name that it is called by."
)
def web(
    dsn: str | None,
    tenant: str | None,
    embed_url: str | None,
    embed_model: str | None,
    embed_path: str | None,
    port: int,
    host: str,
    hosts: tuple[str, ...],
) -> None:
    """Look at memories, judge and undo, in a browser.

    Prints its URL, with a token that is made up at each start: anyone who has it acts as this login. It listens on this
    machine only, unless --host says otherwise. A model that embeds lets the page search by meaning too.

    Needs memfold[web].

    \b
    memfold web --tenant acme --port 8809
    """
    embedder = make_embedder(embed_url, embed_model, embed_path)
    from memfold import web as serving  # no other command needs it

    log = logging.StreamHandler(sys.stderr)
    log.addFilter(Escaping())
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    if not _is_loopback(host):
        say(
            f"warning: {host} is not this machine alone: anyone with the URL acts as this login, and HTTP is not encrypted"
        )
    place = serving.Place(resolve(dsn), tenant, embedder)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        serving.serve(place, host=host, port=port, hosts=hosts, ready=show)
