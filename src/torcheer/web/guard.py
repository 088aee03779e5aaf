"""Who may ask the server, and what its pages may do.

A server on 127.0.0.1 is open to every page the reader's browser visits. So a request must name this server in
``Host`` (a foreign name that resolves here is DNS rebinding), must not come from another origin, and may only read.
Bound elsewhere, the server also wants a token. Its page loads and sends nothing beyond this server.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torcheer.web.answers import refusal

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
COOKIE = "torcheer_token"
# Notebooks show the page in a frame; other sites may not.
FRAMES = "'self' http://127.0.0.1:* http://localhost:* https://localhost:* vscode-webview:"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    f"worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {FRAMES}"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), token: str | None = None) -> None:
        self.app = app
        self.hosts = {name.lower() for name in (*LOOPBACK, *hosts)}
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self.refused(scope)
        await (refused or self.app)(scope, receive, send_with_headers)

    def refused(self, scope: Scope) -> Response | None:
        """Return what a request that may not pass gets instead; None for one that may."""
        headers = Headers(scope=scope)
        if not self._is_known_host(headers.get("host", "")):
            shown = headers.get("host", "")
            return refusal(
                421,
                f"This server does not answer to the host {shown!r}. If that is a name you gave it, "
                f"start it with --allow-host {_without_port(shown) or 'NAME'}.",
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower():
            return refusal(403, f"Pages of {origin!r} may not ask this server.")
        is_api = scope["path"].startswith("/api")
        if is_api and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return refusal(403, "Pages of other sites may not ask this server.")
        if scope["method"] not in ("GET", "HEAD"):
            return refusal(405, f"{scope['method']} is not possible.")
        return self._without_token(scope, headers)

    def _is_known_host(self, host: str) -> bool:
        return _without_port(host).lower() in self.hosts

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        if self.token is None:
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        given = query.pop("token", [""])[0]
        if given and _equal(given, self.token):
            # Out of the address, which ends up in histories and screenshots.
            rest = urlencode(query, doseq=True)
            response = RedirectResponse(scope["path"] + (f"?{rest}" if rest else ""), 303)
            response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return response
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if _equal(bearer, self.token) or _equal(_cookie(headers), self.token):
            return None
        return refusal(401, "A token is needed: open the address that the server printed, with its ?token=…")


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def _without_port(host: str) -> str:
    """``localhost`` of ``localhost:5000``, ``[::1]`` of ``[::1]:5000``."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
