"""Workers that speak the protocol and do nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.http import Line

WAIT_S = 5.0  # parked at most so long, then it syncs as a heartbeat


class SimulatedWorker:
    """One worker on one connection. It ends each task with the sync after it got it."""

    def __init__(self, line: Line, name: str, group: str) -> None:
        self._line, self._name, self._group = line, name, group
        self._syncs = self._reports = 0
        self._seen: Mapping[str, int] = {"term": 0, "number": 0}
        self.holds: Sequence[Mapping[str, Any]] = ()  # assignments not yet reported as ended

    async def register(self) -> None:
        said = {"worker": self._name, "group": self._group, "slots": 1, "control_slots": 1}
        about = {"version": "bench", "host": "bench", "pid": 1, "spark_application": "none"}
        await self._line.post("/v1/worker/register", {**said, **about})

    async def sync(self) -> int:
        """Report what it held as done, and take the next; how many were done."""
        done = len(self.holds)
        self._syncs += 1
        said = {
            "worker": self._name,
            "sync": self._syncs,
            "seen": self._seen,
            "reports": [self._ended(each["claim"]) for each in self.holds],
            "free": {"SLOT": 1},
        }
        answer = await self._line.post("/v1/worker/sync", said)
        self._seen = {"term": answer["term"], "number": answer["number"]}
        self.holds = answer["assignments"]
        return done

    async def wait(self) -> bool:
        """Park until there is something; whether there is."""
        query = f"worker={self._name}&group={self._group}&free=SLOT&timeout_s={WAIT_S}"
        return bool((await self._line.get(f"/v1/worker/wait?{query}"))["rung"])

    async def goodbye(self) -> None:
        await self._line.post("/v1/worker/goodbye", {"worker": self._name})

    def _ended(self, claim: Mapping[str, Any]) -> Mapping[str, Any]:
        self._reports += 1
        return {"kind": "TASK_ENDED", "seq": self._reports, "claim": claim, "outcome": "SUCCESS"}
