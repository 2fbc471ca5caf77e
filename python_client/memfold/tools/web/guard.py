"""Access control: a request uses one of this server's names, comes from no other page, and has the token or its cookie."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from memfold.client._http import Secret, allowed_hosts, is_allowed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STATIC = "/static/"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # not no-referrer: a form would be sent with "Origin: null"
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Keys:
    """Random values that a server generates at its start: its token, its cookie, and the token of its forms."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self.session = secrets.token_urlsafe(32)
        self.csrf = hmac.new(self.session.encode(), b"csrf", hashlib.sha256).hexdigest()


class Guard:
    """Admits requests with the cookie, which is exchanged for the token; everything else is refused before anything
    is read."""

    def __init__(self, app: ASGIApp, keys: Keys, hosts: Sequence[str], cookie: str) -> None:
        self._app = app
        self._token, self._session = Secret(keys.token), Secret(keys.session)
        self._cookie = cookie
        self._given = f"{cookie}={keys.session}; HttpOnly; SameSite=Strict; Path=/"
        self._allowed = allowed_hosts(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if not scope["path"].startswith(STATIC):
                    headers["cache-control"] = "no-store"
            await send(message)

        refusal = self._refuse(scope)
        if refusal is None:
            await self._app(scope, receive, send_guarded)
        else:
            await refusal(scope, receive, send_guarded)

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not is_allowed(hosts[0], self._allowed):
            return PlainTextResponse("This server is not called by that name: see --allow-host.\n", 421)
        if scope["method"] not in ("GET", "HEAD") and not _is_own(headers, hosts[0]):
            return PlainTextResponse("The request came from another page.\n", 403)
        if scope["path"].startswith(STATIC):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["method"] == "GET" and given:
            if len(given) == 1 and self._token.matches(given[0].encode()):
                return RedirectResponse("/", 303, {"set-cookie": self._given})
            return PlainTextResponse("That is not the token of this server.\n", 403)
        if not self._is_known(headers):
            return PlainTextResponse("Open the URL that memfold web printed.\n", 401)
        return None

    def _is_known(self, headers: Headers) -> bool:
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load("; ".join(headers.getlist("cookie")))
        except CookieError:
            return False
        return self._cookie in cookies and self._session.matches(cookies[self._cookie].value.encode())


def _is_own(headers: Headers, host: str) -> bool:
    """Whether it comes from a page of this server: browsers say so; other clients send no ``Origin``."""
    origins = headers.getlist("origin")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin" or len(origins) > 1:
        return False
    return not origins or origins[0].partition("://")[2].lower() == host.lower()
