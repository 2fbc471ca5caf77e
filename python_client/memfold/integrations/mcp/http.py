"""Streamable HTTP: on this machine alone unless told otherwise, and for clients that have the token."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from memfold.errors import InvalidOptionError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
SHORTEST_TOKEN = 16
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class RequireToken:
    """Lets through who sends ``Authorization: Bearer TOKEN``; 401 to all others, before anything is read."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        if len(token) < SHORTEST_TOKEN:
            raise InvalidOptionError(
                "the token is too short",
                detail=f"It has {len(token)} characters.",
                hint=f"Take {SHORTEST_TOKEN} or more, such as those of: openssl rand -hex 32",
            )
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidOptionError(
                "no client can send the token",
                detail="It has a space, a line break, or a character that is not ASCII.",
                hint="Take one line of letters and digits, such as that of: openssl rand -hex 32",
            )
        self._app = app
        self._digest = hashlib.sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not self._is_known(scope):
            await self._refuse(send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        kind, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        # Digests, so that the time says nothing of the token's length either.
        same = hmac.compare_digest(hashlib.sha256(token.strip()).digest(), self._digest)
        return same and kind.lower() == b"bearer"

    @staticmethod
    async def _refuse(send: Send) -> None:
        body = json.dumps(
            {"error": "invalid_token", "error_description": "a bearer token is required"}
        ).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"www-authenticate", b"Bearer"),
        ]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _security(hosts: Sequence[str]) -> TransportSecuritySettings:
    """By which names it may be called: against DNS rebinding a page of another origin, or by another name, is refused."""
    names = [*LOOPBACK, *hosts]
    allowed = [form for name in names for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=allowed,
        allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in allowed],
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        if not host:
            raise OSError("it is empty, which would be every address of this machine")
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as error:
        raise InvalidOptionError(
            "the server cannot listen there",
            detail=f"Address {host!r}, port {port}: {getattr(error, 'strerror', None) or error}.",
            hint="Take another port, 0 for one that is free; an address is one of this machine's.",
        ) from error


async def serve(
    server: MCPServer, token: str, host: str, port: int, hosts: Sequence[str], ready: Callable[[str], None]
) -> None:
    """Serve until a signal. Port 0 takes a free one; ``ready`` is told the URL.

    Raises InvalidOptionError where the token is none that a client can send, or nothing can listen there.
    """
    host = host.removeprefix("[").removesuffix("]")
    name = f"[{host}]" if ":" in host else host
    app = server.streamable_http_app(
        streamable_http_path=PATH, transport_security=_security([*hosts, name]), host=host
    )
    config = uvicorn.Config(RequireToken(app, token), log_level="warning", server_header=False)
    with _listen(host, port) as listening:
        ready(f"http://{name}:{listening.getsockname()[1]}{PATH}")
        await uvicorn.Server(config).serve(sockets=[listening])
