"""The MCP server of memfold, over stdio and streamable HTTP. Needs the extra ``memfold[mcp]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memfold.client._extras import needs

with needs("mcp"):
    from memfold.agents.mcp.server import make_server
    from memfold.agents.mcp.store import Place, Store

__all__ = ["Place", "Store", "make_server", "serve_http", "serve_stdio"]


async def serve_stdio(place: Place) -> None:
    """Serve one client over stdin and stdout, until it closes them."""
    async with Store(place) as store:
        await make_server(store).run_stdio_async()


async def serve_http(
    place: Place,
    token: str,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Sequence[str] = (),
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve clients that have the token, until a signal. ``hosts``: other names of the server; port 0: a free one."""
    from memfold.agents.mcp import http

    async with Store(place) as store:
        await http.serve(make_server(store), token, host, port, hosts, ready)
