"""HTTP servers: the address they listen on, the host names they accept, and their token."""

from __future__ import annotations

import hashlib
import hmac
import socket
from collections.abc import Iterable

from memfold.client.errors import InvalidOptionError

SHORTEST_TOKEN = 16
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Secret:
    """The token that a caller must know. Its digest is compared, so that timing does not reveal its length either."""

    def __init__(self, value: str) -> None:
        self._digest = hashlib.sha256(value.encode()).digest()

    def matches(self, given: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha256(given).digest(), self._digest)


def check_token(token: str) -> None:
    """Raises InvalidOptionError if the token is too short, or no client can send it."""
    if len(token) < SHORTEST_TOKEN:
        raise InvalidOptionError(
            "the token is too short",
            detail=f"It has {len(token)} characters.",
            hint=f"Use {SHORTEST_TOKEN} or more, such as the output of: openssl rand -hex 32",
        )
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise InvalidOptionError(
            "no client can send the token",
            detail="It has a space, a line break, or a character that is not ASCII.",
            hint="Use one line of letters and digits, such as the output of: openssl rand -hex 32",
        )


def bare(host: str) -> str:
    """An address without the brackets of a URL."""
    return host.removeprefix("[").removesuffix("]")


def in_url(host: str) -> str:
    """The address as a URL names it."""
    return f"[{bare(host)}]" if ":" in host else host


def allowed_hosts(names: Iterable[str]) -> list[str]:
    """The host names that the server accepts, with any port (``:*``) or none.

    Prevents DNS rebinding: pages of another origin and calls by another name are refused.
    """
    return [form for name in (*LOOPBACK, *names) for form in (name, f"{name}:*")]


def is_allowed(host: str, allowed: Iterable[str]) -> bool:
    """Whether the header ``Host`` contains one of them."""
    name, _, port = host.lower().rpartition(":")
    forms = {form.lower() for form in allowed}
    return host.lower() in forms or (port.isdecimal() and f"{name}:*" in forms)


def listen(host: str, port: int) -> socket.socket:
    """Port 0 means a free one. Raises InvalidOptionError if the server cannot listen there."""
    try:
        if not host:
            raise OSError("it is empty, which would mean every address of this machine")
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as error:
        raise InvalidOptionError(
            "the server cannot listen there",
            detail=f"Address {host!r}, port {port}: {getattr(error, 'strerror', None) or error}.",
            hint="Use another port, or 0 for a free one; the address must be one of this machine's.",
        ) from error
