"""The way to a server, as a test can cut it: TCP on this side, a socket or a port on the other.

A JDBC driver speaks TCP only, and the server of the tests listens on a Unix socket. Being in
between, a test can let a COMMIT through and lose its answer, which is what a cut cable does. So
it can with the answers of a coordinator to its workers.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

CHUNK_BYTES = 1 << 16
PATTERN_BYTES_MAX = 200  # a text may be cut by two chunks


@dataclass
class _Line:
    """One connection: its two ends, and what has been said on it."""

    client: socket.socket
    server: socket.socket
    said: bytes = b""
    matched: bool = False
    mute: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Wire:
    def __init__(self, target: str | int) -> None:
        """`target`: the path of a Unix socket, or a port of this machine."""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._lose: list[bytes] = []
        self._lose_next = 0
        self._ends_with_loss = False
        self.lost = 0  # answers so far
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_commit_after(self, said: bytes) -> None:
        """Once: of the next connection that says this, the answer to its COMMIT is lost."""
        with self._lock:
            self._lose.append(said)

    def lose_answers(self, count: int) -> None:
        """Of the next so many answers nothing arrives, and their connections are cut."""
        with self._lock:
            self._lose_next = count

    def lose_nothing_more(self) -> None:
        """Take back what was asked for and has not come about."""
        with self._lock:
            self._lose.clear()
            self._lose_next = 0

    def close_listener_after_loss(self) -> None:
        """The whole database is out of reach from the lost answer on."""
        self._ends_with_loss = True

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:  # nobody listens there just now
                client.close()
                continue
            line = _Line(client, server)
            for pump in (self._to_server, self._to_client):
                threading.Thread(target=pump, args=(line,), daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self._target, int):
            return socket.create_connection(("127.0.0.1", self._target))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._target)
        except OSError:
            server.close()
            raise
        return server

    def _to_server(self, line: _Line) -> None:
        with suppress(OSError):
            while data := line.client.recv(CHUNK_BYTES):
                self._judge(line, data)
                line.server.sendall(data)
        line.close()

    def _to_client(self, line: _Line) -> None:
        with suppress(OSError):
            while data := line.server.recv(CHUNK_BYTES):
                if line.mute.is_set() or self._is_next_lost():  # the server has done it
                    with self._lock:
                        self.lost += 1
                    if self._ends_with_loss:
                        self.close()
                    break
                line.client.sendall(data)
        line.close()

    def _is_next_lost(self) -> bool:
        with self._lock:
            lost = self._lose_next > 0
            self._lose_next -= lost
        return lost

    def _judge(self, line: _Line, data: bytes) -> None:
        line.said = line.said[-PATTERN_BYTES_MAX:] + data
        with self._lock:
            found = [pattern for pattern in self._lose if pattern in line.said]
            if found and not line.matched:
                line.matched = True
                self._lose.remove(found[0])
        if line.matched and b"COMMIT" in data:
            line.mute.set()
