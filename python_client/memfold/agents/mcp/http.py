"""Streamable HTTP: only on this machine unless told otherwise, and only for clients that have the token."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from memfold.client._http import Secret, allowed_hosts, bare, check_token, in_url, listen

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"


class RequireToken:
    """Admits requests with ``Authorization: Bearer TOKEN``; all others get 401 before anything is read."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        check_token(token)
        self._app = app
        self._secret = Secret(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not self._is_known(scope):
            await self._refuse(send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        kind, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return self._secret.matches(token.strip()) and kind.lower() == b"bearer"

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
    allowed = allowed_hosts(hosts)
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=allowed,
        allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in allowed],
    )


async def serve(
    server: MCPServer, token: str, host: str, port: int, hosts: Sequence[str], ready: Callable[[str], None]
) -> None:
    """Serve until a signal. Port 0 means a free one; ``ready`` gets the URL.

    Raises InvalidOptionError if no client can send the token, or the server cannot listen there.
    """
    host, name = bare(host), in_url(host)
    app = server.streamable_http_app(
        streamable_http_path=PATH, transport_security=_security([*hosts, name]), host=host
    )
    config = uvicorn.Config(RequireToken(app, token), log_level="warning", server_header=False)
    with listen(host, port) as listening:
        ready(f"http://{name}:{listening.getsockname()[1]}{PATH}")
        await uvicorn.Server(config).serve(sockets=[listening])
