"""``memfold web``: a page for viewing memories, judging and undoing."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import sys

import click

from memfold.client._log import Escaping
from memfold.tools.cli._embedding import embed_options, make_embedder
from memfold.tools.cli._shared import dsn_option, resolve, say, show


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
    help="The tenant; default: MEMFOLD_TENANT, else the login's, or a choice of those that it sees.",
)
@embed_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="The port; default: 0, a free one.",
)
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", help="The address to listen on; default: 127.0.0.1."
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Another host name to accept.")
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
    """View memories, judge and undo in a browser.

    Prints its URL, with a token that is generated at each start: anyone who has it acts as this login. It listens
    only on this machine, unless --host says otherwise. With an embedding model the page also searches by meaning.

    Needs memfold[web].

    \b
    memfold web --tenant acme --port 8809
    """
    embedder = make_embedder(embed_url, embed_model, embed_path)
    from memfold.tools import web as serving  # no other command needs it

    log = logging.StreamHandler(sys.stderr)
    log.addFilter(Escaping())
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[log])
    if not _is_loopback(host):
        say(
            f"warning: other machines can reach {host}: anyone with the URL acts as this login, and HTTP is not encrypted"
        )
    place = serving.Place(resolve(dsn), tenant, embedder)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        serving.serve(place, host=host, port=port, hosts=hosts, ready=show)
