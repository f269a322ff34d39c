"""The bare application (`bench.peer_app`), running: what a server costs that does nothing.

It is a module of its own so that the application itself loads nothing of the bench.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from bench.processes import HEALTH_TIMEOUT_S, START_MAX_S, Child, child, free_port, until

PEER_IS = "a FastAPI + uvicorn + SQLAlchemy application that only answers /health"


@contextmanager
def bare_app(folder: Path) -> Generator[Child]:
    """For the length of the block; it has answered once."""
    port = free_port()
    command = ["-m", "bench.peer_app", str(port), str(folder / "peer.db")]
    with child("peer_app", command, folder=folder) as started:

        def answers() -> bool:
            started.check()
            try:
                url = f"http://127.0.0.1:{port}/health"
                return httpx2.get(url, timeout=HEALTH_TIMEOUT_S, trust_env=False).is_success
            except httpx2.TransportError:  # not serving yet: asked again, within the limit
                return False

        until(answers, limit_s=START_MAX_S, what="the peer application answers")
        yield started
