"""What may come in: from whom, in which form, and how much of it.

With a token, whoever shows it may speak. Without one a coordinator serves this machine only, and
then a web page must not make a browser speak for it: a name that was pointed at this machine is
no name of ours (DNS rebinding), a body has a type that a page can't send unasked, and whatever
may change something is taken only from who is no page of another place. A browser says of each
such request where it comes from; programs that are no browser say nothing, and pass.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.errors import response_to
from headrace.errors import Refused, Unauthorized

OPEN_PATHS = frozenset({"/health"})  # what a load balancer asks; says nothing about jobs
BODY_BYTES_MAX = 16_000_000
NAMES_REMEMBERED_MAX = 1024
READING = frozenset({"GET", "HEAD", "OPTIONS"})  # change nothing, and have no body
# What browsers say of a request of our own page, and of one that no page made.
OUR_SITES = frozenset({b"same-origin", b"none"})


class Guard:
    """Middleware in front of every route. Without a token, the Host must be a name of ours."""

    def __init__(self, app: ASGIApp, token: str | None, *, address: str) -> None:
        self._app, self._address = app, address
        self._token = token.encode() if token is not None else None
        self._host = urlsplit(address).hostname

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        reading = scope["method"] in READING
        refusal = self._stranger(scope["path"], headers, reading=reading)
        if refusal is None and not reading:
            body = await _read(headers, receive)
            if isinstance(body, bytes):
                receive = _again(body, receive)
            else:
                refusal = body
        await (refusal or self._app)(scope, receive, send)

    def _stranger(
        self, path: str, headers: Mapping[bytes, bytes], *, reading: bool
    ) -> JSONResponse | None:
        if self._token is None:
            return self._foreign_name(headers) or (None if reading else self._foreign_page(headers))
        shown = headers.get(b"authorization", b"")
        if path in OPEN_PATHS or self._is_ours(shown):
            return None
        return response_to(Unauthorized(f"coordinator {self._address}", shown=bool(shown)))

    def _foreign_name(self, headers: Mapping[bytes, bytes]) -> JSONResponse | None:
        host = _host(headers.get(b"host", b""))
        if host == self._host or is_loopback(host):
            return None
        text = (
            f"coordinator {self._address} has no token, so it answers under its own name only, "
            f"and not as {host!r}; set HEADRACE_TOKEN on both sides to reach it from elsewhere"
        )
        return response_to(Refused(text), 403)

    def _foreign_page(self, headers: Mapping[bytes, bytes]) -> JSONResponse | None:
        if _is_own_page(headers):
            return None
        origin = headers.get(b"origin", b"another place").decode("latin-1")
        text = (
            f"coordinator {self._address} has no token, so it does nothing for a web page of "
            f"{origin}; use the `headrace` command, or set HEADRACE_TOKEN and show it"
        )
        return response_to(Refused(text), 403)

    def _is_ours(self, shown: bytes) -> bool:
        assert self._token is not None
        return shows_token(shown, self._token)


def shows_token(shown: bytes, token: bytes) -> bool:
    """Whether an Authorization header shows this token."""
    scheme, _, found = shown.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(found, token)


@lru_cache(NAMES_REMEMBERED_MAX)  # asked at each request, of the same few names
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(NAMES_REMEMBERED_MAX)
def _host(header: bytes) -> str:
    """The name in a Host header; "" when there is none."""
    try:
        return urlsplit(f"//{header.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""


def _is_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether our own page sent it, or no page at all.

    Browsers name the site only towards loopback and https; the origin they always name.
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site in OUR_SITES
    host = headers.get(b"host", b"").lower()
    return origin is None or origin.lower().partition(b"://")[2] == host


async def _read(headers: Mapping[bytes, bytes], receive: Receive) -> bytes | JSONResponse:
    """The whole body, or why it is not taken. One of unknown length is counted as it comes."""
    announced = headers.get(b"content-length", b"0")
    if not announced.isdigit() or int(announced) > BODY_BYTES_MAX:
        return _too_large()
    parts: list[bytes] = []
    left_bytes, more = BODY_BYTES_MAX, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return response_to(Refused("the client hung up"), 400)
        part: bytes = message.get("body", b"")
        left_bytes -= len(part)
        if left_bytes < 0:
            return _too_large()
        parts.append(part)
        more = message.get("more_body", False)
    body = b"".join(parts)
    return body if not body or _is_json(headers) else _not_json()


def _is_json(headers: Mapping[bytes, bytes]) -> bool:
    kind = headers.get(b"content-type", b"").partition(b";")[0]
    return kind.strip().lower() == b"application/json"


def _too_large() -> JSONResponse:
    return response_to(Refused(f"a body may have {BODY_BYTES_MAX} bytes at most"), 413)


def _not_json() -> JSONResponse:
    return response_to(Refused("a body must have the Content-Type application/json"), 415)


def _again(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body that was read, and then what comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
