"""Resident memory of a coordinator that has nothing to do.

Peer: a bare FastAPI, uvicorn and SQLAlchemy application that only answers /health; what a
coordinator holds above it is our own.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2

from bench.processes import HEALTH_TIMEOUT_S, START_MAX_S, child, leading, until
from bench.result import Result, made
from bench.stores import KINDS, stores, workplace

IDLE_S, IDLE_QUICK_S = 20.0, 5.0
AIM_MB = 150.0


def run(*, quick: bool) -> Iterator[Result]:
    idle_s = IDLE_QUICK_S if quick else IDLE_S
    with workplace("memory") as folder:
        found = {kind: _ours_mb(kind, folder, idle_s) for kind in KINDS}
        peer = _peer_mb(folder, idle_s)
    yield made(
        "idle_memory",
        ours=found["sqlite"],
        peer=peer,
        unit="MB",
        aim=(AIM_MB, f"under {AIM_MB:.0f} MB resident on SQLite"),
        met=found["sqlite"] < AIM_MB,
        peer_is="a FastAPI + uvicorn + SQLAlchemy application that only answers /health",
        idle_s=idle_s,
        resident_mb_by_store={kind: round(value, 1) for kind, value in found.items()},
    )


def _ours_mb(kind: str, folder: Path, idle_s: float) -> float:
    with stores(kind, folder) as made_here, leading(made_here.make(), folder=folder) as leader:
        time.sleep(idle_s)
        leader.child.check()
        return leader.child.rss_mb()


def _peer_mb(folder: Path, idle_s: float) -> float:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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
        time.sleep(idle_s)
        started.check()
        return started.rss_mb()
