"""What no store can keep is refused before any route sees it: a NUL, and half of a character.

PostgreSQL has no NUL in a text, and UTF-8 no half of a surrogate pair, which JSON can spell
(`"\\ud800"`). A name with one of them can't exist, so that a 422 is true for whatever was asked.
The worker protocol is served in front of this: what a worker reports is kept without them.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.errors import response_to
from headrace.errors import Refused
from headrace.model.text import storing_flaw

_MAY_SPELL_ONE = re.compile(r"\\u(?:0000|d[89a-f])", re.IGNORECASE)
BODILESS = frozenset({"GET", "HEAD"})  # nobody reads what comes with these, or waits for it


class StorableText:
    """Middleware behind the guard, which has limited how long a body may be."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        flaw = _address_flaw(scope)
        if flaw is None and scope["method"] not in BODILESS:
            receive, body = await _whole(receive)
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
        text = body.decode("utf-8-sig")  # the application takes a mark at the beginning, too
    except UnicodeDecodeError as error:
        return f"byte {error.start} of its body is not UTF-8"
    if "\0" in text:
        # No JSON in UTF-8 has one. The application would guess UTF-16 or UTF-32 by it, and find
        # there what nobody has looked at here.
        return "its body has a NUL character, which JSON in UTF-8 never has"
    if not _MAY_SPELL_ONE.search(text):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None  # no JSON: the application says so, with the place
    return _flaw_in(found, "body")


def _flaw_in(value: Any, place: str) -> str | None:
    """A stack instead of a recursion: a body may be nested as deep as its length allows."""
    left: list[tuple[Any, str]] = [(value, place)]
    while left:
        value, place = left.pop()
        match value:
            case str():
                if (flaw := storing_flaw(value)) is not None:
                    return f"{place} has {flaw}"
            case list():
                items = cast("list[Any]", value)
                left += [(item, f"{place}.{number}") for number, item in enumerate(items)]
            case dict():
                for key, member in cast("dict[str, Any]", value).items():
                    if (flaw := storing_flaw(key)) is not None:
                        return f"a key in {place} has {flaw}"
                    left.append((member, f"{place}.{key}"))
            case _:
                pass
    return None


async def _whole(receive: Receive) -> tuple[Receive, bytes]:
    """The body, and a receive that gives the same messages again and then what comes later."""
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
