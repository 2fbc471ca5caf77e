"""Shared code of the tests of the MCP server: start one, connect, call a tool, read its answer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

COMMAND = str(Path(sys.executable).with_name("memfold"))
TOKEN = "a-token-of-32-characters-or-more"
TRANSPORTS = ("stdio", "http", "http with sessions")

Json = dict[str, Any]


def environment(dsn: str, tenant: str | None = "acme", **more: str) -> dict[str, str]:
    """The environment of a server: its database, without the variables of the tests that it must not see."""
    made = {name: value for name, value in os.environ.items() if not name.startswith(("MEMFOLD_", "OPENAI_"))}
    return made | {"MEMFOLD_DSN": dsn} | ({} if tenant is None else {"MEMFOLD_TENANT": tenant}) | more


def over_stdio(dsn: str, *options: str, **env: str) -> Client:
    """A client that starts its own server."""
    # the client's own environment is a small part of this one: memfold is where this one finds it
    path = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    told = {"MEMFOLD_DSN": dsn, "MEMFOLD_TENANT": "acme"} | path | env
    return Client(StdioServerParameters(command=COMMAND, args=["mcp", *options], env=told))


@contextlib.contextmanager
def http_server(dsn: str, *options: str, **env: str) -> Iterator[str]:
    """A server over HTTP; its URL."""
    process = subprocess.Popen(
        [COMMAND, "mcp", "--http", "0", *options],
        env=environment(dsn, MEMFOLD_MCP_TOKEN=TOKEN, **env), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("serving "), line + process.stderr.read()
        yield line.split()[1]
    finally:
        process.terminate()
        process.communicate()


@contextlib.asynccontextmanager
async def over_http(url: str, *, sessions: bool = False, token: str = TOKEN) -> AsyncIterator[Client]:
    """A client of a server at this address."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(
            streamable_http_client(url, http_client=http), mode="legacy" if sessions else "auto"
        ) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def connected(transport: str, dsn: str) -> AsyncIterator[Client]:
    """A client over one of TRANSPORTS."""
    if transport == "stdio":
        async with over_stdio(dsn) as client:
            yield client
    else:
        with http_server(dsn) as url:
            async with over_http(url, sessions=transport != "http") as client:
                yield client


async def call(client: Client, tool: str, **arguments: Any) -> Json:
    """A tool's answer; fails if it refuses. The SDK's client checks it against the tool's schema."""
    result = await client.call_tool(tool, arguments)
    text = "".join(getattr(part, "text", "") for part in result.content)
    assert not result.is_error, text
    made: Json | None = result.structured_content
    assert made is not None
    assert json.loads(text) == made
    return made


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """A tool's message for a call that it refuses."""
    result = await client.call_tool(tool, arguments)
    text = "".join(getattr(part, "text", "") for part in result.content)
    assert result.is_error, text
    assert "Traceback" not in text
    return text


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine to its end."""
    asyncio.run(work())


# an endpoint of embeddings ---------------------------------------------------------------------------------------

SYNONYMS = {"feline": "cat", "cats": "cat", "resides": "lives"}


def _vector(text: str) -> list[float]:
    """A bag of words, in which synonyms are one."""
    made = [0.0] * 64
    for word in re.findall(r"\w+", text.lower()):
        digest = hashlib.sha256(SYNONYMS.get(word, word).encode()).digest()
        made[digest[0] % 64] += 1.0
    length = math.sqrt(sum(number * number for number in made)) or 1.0
    return [number / length for number in made]


class _Embeddings(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked["input"])
        data = [{"index": place, "embedding": _vector(text)} for place, text in enumerate(asked["input"])]
        body = json.dumps({"data": data, "model": "bag", "object": "list"} if self.server.up else {}).encode()
        self.send_response(200 if self.server.up else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


class Endpoint(ThreadingHTTPServer):
    """Embeddings as OpenAI serves them; ``up`` False: 404 to all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Embeddings)
        self.up = True
        self.asked: list[list[str]] = []

    @property
    def env(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        return {"MEMFOLD_EMBED_URL": url, "MEMFOLD_EMBED_MODEL": "bag"}


@contextlib.contextmanager
def embeddings() -> Iterator[Endpoint]:
    """An endpoint of embeddings that runs while the block does."""
    with Endpoint() as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.shutdown()
            thread.join()
