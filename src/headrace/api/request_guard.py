"""Middleware that decides which requests come in: from whom, in which form, and how large.

`RequestGuard`: with a token, whoever shows it may call. Without one a coordinator serves this
machine only, and then no web page may make a browser call it. So the Host must be a name of ours
(against DNS rebinding); a body must have a content type that a page can't send without a preflight;
and whatever may change something is refused when it comes from a page of another site. A browser
says with each such request where it comes from; programs that are not browsers say nothing, and
pass.

`StorableText` refuses text that no store can keep before any route sees it: PostgreSQL has no NUL
in a text, and UTF-8 has no half of a surrogate pair, which JSON can spell (`"\\ud800"`). A name
with one of them can't exist, so a 422 is a true answer to any request. The worker protocol is
served in front of it: from what a worker reports, such characters are removed.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote_to_bytes, urlsplit

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.errors import response_to
from headrace.errors import Refused, Unauthorized
from headrace.model.text import storing_flaw

OPEN_PATHS = frozenset({"/health"})  # for load balancers; says nothing about jobs
BODY_BYTES_MAX = 16_000_000
NAMES_REMEMBERED_MAX = 1024
READING = frozenset({"GET", "HEAD", "OPTIONS"})  # they change nothing, and have no body
BODILESS = frozenset({"GET", "HEAD"})  # a body of these is neither read nor awaited
# Sec-Fetch-Site of a request by our own page, and of one that no page made.
OUR_SITES = frozenset({b"same-origin", b"none"})
_ESCAPED_FLAW = re.compile(r"\\u(?:0000|d[89a-f])", re.IGNORECASE)


class RequestGuard:
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
        refusal = self._refusal(scope["path"], headers, reading=reading)
        if refusal is None and not reading:
            body = await _read_body(headers, receive)
            if isinstance(body, bytes):
                receive = _replaying(body, receive)
            else:
                refusal = body
        await (refusal or self._app)(scope, receive, send)

    def _refusal(
        self, path: str, headers: Mapping[bytes, bytes], *, reading: bool
    ) -> JSONResponse | None:
        """The response to a caller that may not call; None: it may."""
        if self._token is None:
            return self._refuse_foreign_host(headers) or (
                None if reading else self._refuse_foreign_page(headers)
            )
        authorization = headers.get(b"authorization", b"")
        if path in OPEN_PATHS or self._shows_our_token(authorization):
            return None
        return response_to(Unauthorized(f"coordinator {self._address}", shown=bool(authorization)))

    def _refuse_foreign_host(self, headers: Mapping[bytes, bytes]) -> JSONResponse | None:
        host = _host(headers.get(b"host", b""))
        if host == self._host or is_loopback(host):
            return None
        text = (
            f"coordinator {self._address} has no token, so it answers under its own name only, "
            f"and not as {host!r}; set HEADRACE_TOKEN on both sides to reach it from elsewhere"
        )
        return response_to(Refused(text), 403)

    def _refuse_foreign_page(self, headers: Mapping[bytes, bytes]) -> JSONResponse | None:
        if _is_own_page(headers):
            return None
        origin = headers.get(b"origin", b"another place").decode("latin-1")
        text = (
            f"coordinator {self._address} has no token, so it does nothing for a web page of "
            f"{origin}; use the `headrace` command, or set HEADRACE_TOKEN and show it"
        )
        return response_to(Refused(text), 403)

    def _shows_our_token(self, authorization: bytes) -> bool:
        assert self._token is not None
        return shows_token(authorization, self._token)


def shows_token(authorization: bytes, token: bytes) -> bool:
    """Whether an Authorization header shows this token."""
    scheme, _, credentials = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(credentials, token)


@lru_cache(NAMES_REMEMBERED_MAX)  # called for each request, with the same few names
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

    Browsers send Sec-Fetch-Site only to loopback addresses and over https, but always the Origin.
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site in OUR_SITES
    host = headers.get(b"host", b"").lower()
    return origin is None or origin.lower().partition(b"://")[2] == host


async def _read_body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes | JSONResponse:
    """The whole body, or the response that refuses it. A body of unknown length is counted as it
    comes."""
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


def _replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that replays a body that was read, and then goes on."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


class StorableText:
    """Middleware behind the guard, which has limited the length of the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        flaw = _address_flaw(scope)
        if flaw is None and scope["method"] not in BODILESS:
            receive, body = await _buffered(receive)
            flaw = _body_flaw(body)
        if flaw is None:
            await self._app(scope, receive, send)
            return
        refused = Refused(f"the request can't be read: {flaw}; leave it out")
        await response_to(refused)(scope, receive, send)


def _address_flaw(scope: Scope) -> str | None:
    for part, text in (("path", scope["path"]), ("query", _query(scope["query_string"]))):
        if (flaw := storing_flaw(text)) is not None:
            return f"its {part} has {flaw}"
    return None


def _query(query: bytes) -> str:
    return unquote_to_bytes(query).decode(errors="replace")


def _body_flaw(body: bytes) -> str | None:
    try:
        text = body.decode("utf-8-sig")  # the application accepts a byte order mark, too
    except UnicodeDecodeError as error:
        return f"byte {error.start} of its body is not UTF-8"
    if "\0" in text:
        # No JSON in UTF-8 has one. The application would take it for UTF-16 or UTF-32, and read
        # text that was not checked here.
        return "its body has a NUL character, which JSON in UTF-8 never has"
    if not _ESCAPED_FLAW.search(text):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None  # not JSON: the application says so, with the place
    return _flaw_in(content, "body")


def _flaw_in(value: Any, place: str) -> str | None:
    """Uses a stack, not recursion: a body may be nested as deep as its length allows."""
    pending: list[tuple[Any, str]] = [(value, place)]
    while pending:
        value, place = pending.pop()
        match value:
            case str():
                if (flaw := storing_flaw(value)) is not None:
                    return f"{place} has {flaw}"
            case list():
                items = cast("list[Any]", value)
                pending += [(item, f"{place}.{number}") for number, item in enumerate(items)]
            case dict():
                for key, member in cast("dict[str, Any]", value).items():
                    if (flaw := storing_flaw(key)) is not None:
                        return f"a key in {place} has {flaw}"
                    pending.append((member, f"{place}.{key}"))
            case _:
                pass
    return None


async def _buffered(receive: Receive) -> tuple[Receive, bytes]:
    """A `receive` that replays the messages of the body and then goes on; and the whole body."""
    read: list[Message] = []
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        read.append(message)
        parts.append(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)
    read.reverse()

    async def again() -> Message:
        return read.pop() if read else await receive()

    return again, b"".join(parts)
