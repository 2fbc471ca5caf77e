"""Serves the page: only on this machine unless told otherwise, with a token generated at each start."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import uvicorn

from memfold.client._http import bare, in_url, listen
from memfold.tools.web.app import make_app
from memfold.tools.web.database import Place, resolve_tenant
from memfold.tools.web.guard import Guard, Keys


def make_server(
    place: Place, listening: socket.socket, host: str, hosts: Sequence[str] = ()
) -> tuple[uvicorn.Server, str]:
    """A server for the listening socket, and its URL. Raises an error if the database, login or tenant is unusable."""
    place = resolve_tenant(place)
    keys = Keys()
    port = listening.getsockname()[1]
    # Browsers do not separate cookies by port: two servers on one machine must not overwrite each other's.
    app = Guard(make_app(place, keys.csrf), keys, [*hosts, in_url(host)], f"memfold_{port}")
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    return uvicorn.Server(config), f"http://{in_url(host)}:{port}/?token={keys.token}"


def serve(
    place: Place,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Sequence[str] = (),
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until a signal. Port 0 means a free one; ``ready`` gets the URL; ``hosts``: further names of the server.

    Raises InvalidOptionError if it cannot listen there, and the errors of ``make_server``.
    """
    host = bare(host)
    with listen(host, port) as listening:
        server, url = make_server(place, listening, host, hosts)
        ready(url)
        server.run(sockets=[listening])
