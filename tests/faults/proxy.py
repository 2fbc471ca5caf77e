"""A connection that is cut."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.killable import PORT
from tests.faults.patience import PATIENCE


@dataclass(frozen=True)
class Cut:
    """The point at which a connection is cut: after this many bytes to the server or the client; and how."""

    kind: str
    """close: both ends see the end. reset: the client sees a reset. stall: silence, then close. orphan: the client sees
    the end at once, the server only later: until then its transaction stays open."""
    to_server: bool
    after: int
    seconds: float = 0.0
    word: bytes = b""
    """Not after so many bytes, but where this passes to the server for the ``after``-th time: it gets all of that, and
    its answer is dropped."""


class Proxy:
    """Forwards TCP connections on 127.0.0.1 to a server's socket, and cuts them as ``plan`` says."""

    def __init__(self, socket_dir: Path, plan: Callable[[], Cut | None]) -> None:
        self.upstream = f"{socket_dir}/.s.PGSQL.{PORT}"
        self.plan = plan
        self.cuts: Counter[str] = Counter()
        self.connections = 0
        self.closing = False
        self.threads: list[threading.Thread] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.acceptor = threading.Thread(target=self._accept, daemon=True)
        self.acceptor.start()

    def dsn(self, dbname: str = "postgres", user: str = "postgres") -> str:
        return (
            f"host=127.0.0.1 port={self.port} user={user} dbname={dbname} sslmode=disable gssencmode=disable"
            " connect_timeout=10"
        )

    def close(self) -> None:
        self.closing = True
        self.acceptor.join(PATIENCE)
        self.listener.close()
        for thread in self.threads:
            thread.join(PATIENCE)

    def _accept(self) -> None:
        while not self.closing:
            if select.select([self.listener], [], [], 0.1)[0]:
                client, _ = self.listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._carry, args=[client, self.plan()], daemon=True)
                self.threads = [t for t in self.threads if t.is_alive()] + [thread]
                thread.start()

    def _carry(self, client: socket.socket, cut: Cut | None) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as upstream:
            try:
                upstream.connect(self.upstream)
                self._forward(client, upstream, cut)
            except OSError:
                return

    def _forward(self, client: socket.socket, upstream: socket.socket, cut: Cut | None) -> None:
        passed = {True: 0, False: 0}
        words = 0
        while not self.closing:
            for source in select.select([client, upstream], [], [], 0.1)[0]:
                to_server = source is client
                data = source.recv(65536)
                if not data:
                    return
                if cut is not None and cut.word:
                    words += to_server and cut.word in data
                    if words == cut.after:
                        upstream.sendall(data)
                        select.select([upstream], [], [], 0.2)
                        self._cut(client, upstream, cut)
                        return
                elif (
                    cut is not None
                    and cut.to_server == to_server
                    and passed[to_server] + len(data) >= cut.after
                ):
                    data = data[: cut.after - passed[to_server]]
                    (upstream if to_server else client).sendall(data)
                    self._cut(client, upstream, cut)
                    return
                (upstream if to_server else client).sendall(data)
                passed[to_server] += len(data)

    def _cut(self, client: socket.socket, upstream: socket.socket, cut: Cut) -> None:
        where = "to the server" if cut.to_server else "to the client"
        self.cuts[f"{cut.kind}, {'answer dropped' if cut.word else where}"] += 1
        if cut.kind == "stall":
            time.sleep(cut.seconds)
        elif cut.kind == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif cut.kind == "orphan":
            client.close()
            # keep reading from the server, so that it does not block on a full socket
            end = time.monotonic() + cut.seconds
            while (left := end - time.monotonic()) > 0 and not self.closing:
                if select.select([upstream], [], [], left)[0] and not upstream.recv(65536):
                    return


class Plans:
    """The point at which each new connection is cut: usually a random byte in one direction, until there are enough."""

    def __init__(
        self, seed: int, share: float = 0.85, longest: int = 9000,
        words: tuple[bytes, ...] = (b"", b"", b"COMMIT\0", b"COMMIT\0", b"memfold.ingest_"),
    ) -> None:  # fmt: skip
        self.choice = random.Random(seed)
        self.lock = threading.Lock()
        self.share = share
        self.longest = longest
        self.words = words
        self.ended = False

    def __call__(self) -> Cut | None:
        with self.lock:
            if self.ended or self.choice.random() > self.share:
                return None
            kind = self.choice.choice(["close", "reset", "stall", "orphan"])
            # as often in the first bytes as in later ones: the start-up is short
            after = self.choice.randrange(1, self.choice.choice([500, 2500, self.longest]))
            # the worst place: the work is done, but the answer is lost
            word = self.choice.choice(self.words)
            if word:
                after = self.choice.randint(1, 4)
            return Cut(kind, self.choice.random() < 0.5, after, self.choice.uniform(0.05, 0.4), word)
