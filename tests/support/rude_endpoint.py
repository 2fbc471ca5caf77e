"""An endpoint that nobody should trust: endless replies, bombs, redirects, and words that quote the request."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.questions import question  # noqa: F401 (a fixture)

KEY = "sk-Zx81-do-not-show-this-9f2c"
"""The key that it receives, and echoes."""
RUDE = "\x1b]0;PWNED\x07\x1b[2J\x9b31m\u202eevil\u2066\u200e\r\nok everything is fine"
"""Characters that control a terminal, and a line that poses as another one."""
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Every such character."""


@functools.cache
def bomb(inner: int, layers: int = 1) -> bytes:
    """This many bytes of JSON white space, compressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    block = b" " * 1_048_576
    made = b"".join(packer.compress(block) for _ in range(inner // len(block))) + packer.flush()
    for _ in range(layers - 1):
        packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        made = packer.compress(made) + packer.flush()
    return made


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RudeEndpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, dict(self.headers), json.loads(body)))
        # a client that has read enough hangs up
        with contextlib.suppress(ConnectionError):
            getattr(self, self.server.mode)()
        self.close_connection = True

    def do_GET(self) -> None:
        self.do_POST()

    def _head(self, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _whole(self, status: int, payload: bytes, **headers: str) -> None:
        self._head(status, Content_Length=str(len(payload)), **headers)
        self.wfile.write(payload)

    def _forever(self, status: int = 200) -> None:
        self._head(status, Transfer_Encoding="chunked")
        chunk = b"[[0,0,0,0,0,0,0," * 4096
        while self.server.sent < self.server.most:
            self.wfile.write(b"%x\r\n" % len(chunk) + chunk + b"\r\n")
            self.server.sent += len(chunk)
        self.wfile.write(b"0\r\n\r\n")

    def endless(self) -> None:
        self._forever()

    def endless_error(self) -> None:
        self._forever(500)

    def gzip_bomb(self) -> None:
        self._whole(200, self.server.payload, Content_Encoding="gzip")

    def nested_bomb(self) -> None:
        self._whole(200, self.server.payload, Content_Encoding="gzip, gzip")

    def tail(self) -> None:
        """Endless data follows the end of a compressed reply."""
        packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._head(200, Content_Encoding="gzip", Transfer_Encoding="chunked")
        chunk = packer.compress(b"{}") + packer.flush()
        while self.server.sent < self.server.most:
            self.wfile.write(b"%x\r\n" % len(chunk) + chunk + b"\r\n")
            self.server.sent += len(chunk)
            chunk = b"x" * 65_536
        self.wfile.write(b"0\r\n\r\n")

    def compressed(self) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._whole(200, packer.compress(self.server.payload) + packer.flush(), Content_Encoding="gzip")

    def plain(self) -> None:
        self._whole(200, self.server.payload)

    def echo(self) -> None:
        """An error that quotes the key, the texts and terminal control characters in its body and headers."""
        told = {
            "authorization": self.headers["Authorization"],
            "asked": self.server.asked[-1][2],
            "rude": RUDE,
        }
        error = {
            "message": f"{RUDE} Incorrect API key {KEY}: {told}",
            "type": RUDE,
            "code": KEY,
            "param": told,
        }
        self._whole(self.server.status, json.dumps({"error": error}, ensure_ascii=False).encode(), X_Key=KEY)

    def page(self) -> None:
        """The same, without JSON."""
        self._whole(self.server.status, f"<h1>{RUDE} {KEY}</h1>".encode())

    def redirect(self) -> None:
        self._whole(307, b"", Location=self.server.elsewhere)

    def log_message(self, *args: Any) -> None:
        pass


class RudeEndpoint(ThreadingHTTPServer):
    """One of them; ``mode`` is what it does, the name of a method above."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode = "echo"
        self.status = 401
        self.payload = b""
        self.elsewhere = ""
        self.most = 4 << 30
        self.sent = 0
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Cut connections are expected here."""


@contextlib.contextmanager
def running() -> Iterator[RudeEndpoint]:
    """A rude endpoint that runs while the block does."""
    with RudeEndpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.most = 0
            server.shutdown()
            thread.join()
