"""Serving the page: on this machine alone unless told otherwise, under a token that is made up at each start."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import uvicorn

from memfold._http import bare, in_url, listen
from memfold.web.app import make_app
from memfold.web.database import Place, resolve_tenant
from memfold.web.guard import Guard, Keys


def make_server(
    place: Place, listening: socket.socket, host: str, hosts: Sequence[str] = ()
) -> tuple[uvicorn.Server, str]:
    """A server of what listens there, and its URL. Raises what is wrong with the database, the login or the tenant."""
    place = resolve_tenant(place)
    keys = Keys()
    port = listening.getsockname()[1]
    # Cookies are not kept apart by port: two servers of one machine must not take each other's away.
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
    """Serve until a signal. Port 0 takes a free one; ``ready`` is told the URL; ``hosts``: further names it is called by.

    Raises InvalidOptionError where nothing can listen there, and what ``make_server`` raises.
    """
    host = bare(host)
    with listen(host, port) as listening:
        server, url = make_server(place, listening, host, hosts)
        ready(url)
        server.run(sockets=[listening])
