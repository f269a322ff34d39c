"""HTTP in as few instructions as will do: the load shares the machine with what it measures.

One connection, kept alive, one request at a time. Every wait has a limit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from bench.processes import NotMeasured

CONNECT_MAX_S = 10.0
ANSWER_MAX_S = 30.0
HOST = "127.0.0.1"


class BadAnswer(NotMeasured):
    """No answer, or one that is not a success; its body says why."""


class Line:
    """A kept connection to a coordinator. For one task at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, path: str, body: Any) -> Any:
        content = json.dumps(body, separators=(",", ":")).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        return await self._call(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)

    async def get(self, path: str) -> Any:
        return await self._call(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())

    async def _call(self, request: bytes) -> Any:
        try:
            async with asyncio.timeout(ANSWER_MAX_S):
                self._writer.write(request)
                head = await self._reader.readuntil(b"\r\n\r\n")
                body = await self._reader.readexactly(content_length(head))
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError) as error:
            raise BadAnswer(f"no answer within {ANSWER_MAX_S:.0f} s: {error!r}") from error
        if not head.startswith(b"HTTP/1.1 2"):
            raise BadAnswer(body.decode(errors="replace"))
        return json.loads(body)


def content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise BadAnswer("an answer without Content-Length")


@asynccontextmanager
async def line_to(port: int) -> AsyncGenerator[Line]:
    async with asyncio.timeout(CONNECT_MAX_S):
        reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
