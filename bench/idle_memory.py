"""Resident memory of a coordinator that has nothing to do.

Peer: a bare FastAPI, uvicorn and SQLAlchemy application that only answers /health; what a
coordinator holds above it is our own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.bare import PEER_IS, bare_app
from bench.processes import leading
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
        peer_is=PEER_IS,
        idle_s=idle_s,
        resident_mb_by_store={kind: round(value, 1) for kind, value in found.items()},
    )


def _ours_mb(kind: str, folder: Path, idle_s: float) -> float:
    with stores(kind, folder) as made_here, leading(made_here.make(), folder=folder) as leader:
        time.sleep(idle_s)
        leader.child.check()
        return leader.child.rss_mb()


def _peer_mb(folder: Path, idle_s: float) -> float:
    with bare_app(folder) as started:
        time.sleep(idle_s)
        started.check()
        return started.rss_mb()
