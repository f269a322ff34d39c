"""What must hold of tables and their processes: after each commit of the store, and at the end."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from headrace.model.tables.assessment import assess
from headrace.model.tables.schedule import left_out, quota_limit
from headrace.model.tables.settings import OptimizingSettings
from tests.simulation.database import Wire
from tests.simulation.lake import Lake, Table
from tests.simulation.scenario import Scenario
from tests.simulation.world import World

RUNNING, SUCCESS = "RUNNING", "SUCCESS"
UNKNOWN, LANDED = "outcome unknown", "its commit had landed"
_OPEN = "status NOT IN ('SUCCESS', 'FAILED', 'CANCELED')"
_GRANTED = (
    "SELECT table_id, count(*) FROM tasks "
    f"WHERE kind = 'REWRITE' AND granted = 1 AND {_OPEN} GROUP BY table_id"
)
# Looks are taken again and again by themselves; all other tasks end.
_LOOKS = "('EVALUATE', 'DISCOVER')"


class AfterTableCommit:
    """Looks at processes and grants after every commit that wrote to them."""

    def __init__(self, world: World, wire: Wire, lake: Lake, scenario: Scenario) -> None:
        self._world, self._wire, self._lake, self._scenario = world, wire, lake, scenario
        self._ended: dict[str, str] = {}  # status by process
        self._granted: dict[str, int] = {}

    def __call__(self, tables: set[str]) -> None:
        if "processes" in tables:
            self._processes()
        if "tasks" in tables:
            self._quotas()

    def _processes(self) -> None:
        found = self._wire.look("SELECT id, table_id, number, status, uuid FROM processes")
        running = Counter(table for _, table, _, status, _ in found if status == RUNNING)
        if any(count > 1 for count in running.values()):
            self._world.problem("one_process_at_a_time", f"{running}")
        for process, table, number, status, uuid in found:
            before = self._ended.get(process)
            if before not in {None, status}:
                self._world.problem("ended_stays_ended", f"process {process}: {before}, {status}")
            if before is None and status != RUNNING:
                self._ended[process] = status
                self._success_means_landed(table, number, status, uuid)

    def _success_means_landed(self, owner: str, number: int, status: str, uuid: str) -> None:
        landed = _landed(self._lake, uuid, owner, number)
        if status == SUCCESS and not landed:
            what = f"process {number} of {owner} is SUCCESS, and its commit is nowhere"
            self._world.problem("success_means_landed", what)

    def _quotas(self) -> None:
        """Judged when a table gets one more: workers that go take no grant back."""
        now = dict(self._wire.look(_GRANTED))
        if any(count > self._granted.get(table, 0) for table, count in now.items()):
            [(slots,)] = self._wire.look("SELECT coalesce(sum(slots), 0) FROM workers")
            most = quota_limit(self._scenario.quota, slots)
            for table, count in now.items():
                if count > max(most, self._granted.get(table, 0)):
                    what = f"{count} rewrites of {table} at work, {most} are its share of {slots}"
                    self._world.problem("quota_is_kept", what)
        self._granted = now


def _landed(lake: Lake, uuid: str, owner: str, number: int) -> int:
    return sum(t.landed.get((owner, number), 0) for t in lake.all_tables if t.uuid == uuid)


class Tables:
    """What the store knows of the lake, when everything seems to be over."""

    def __init__(self, world: World, wire: Wire, lake: Lake) -> None:
        self._world, self._wire, self._lake = world, wire, lake

    def unrest(self) -> list[str]:
        """What is still to happen, however far a clock that jumped would put it off."""
        left = [
            f"{what}: {found}"
            for what, query in (("tasks", _OPEN_TASKS), ("processes", _RUNNING), ("left", _LEFT))
            if (found := self._wire.look(query))
        ]
        known = {name: row for name, *row in self._wire.look(_KNOWN)}
        for name, table in self._lake.tables.items():
            left += _not_settled(name, table, known.pop(name, None))
        return left + [f"table {name} is not there any more" for name in known]

    def at_the_end(self, *, now_ms: int) -> None:
        for row in self._wire.look(_PROCESSES):
            self._ended_as_it_says(*row)
        for name, table in self._lake.tables.items():
            self._nothing_is_left(name, table)
        for name, failures in self._wire.look(_AT_REST):
            if name in self._lake.tables:
                self._optimized(name, self._lake.tables[name], json.loads(failures), now_ms)

    def _ended_as_it_says(
        self, process: str, owner: str, number: int, status: str, uuid: str, error: str | None
    ) -> None:
        landed, problem = _landed(self._lake, uuid, owner, number), self._world.problem
        if landed > 1:
            problem("success_means_landed", f"process {process} has landed {landed} times")
        there = any(table.uuid == uuid for table in self._lake.tables.values())
        told = UNKNOWN in (error or "") and LANDED in (error or "")
        if landed and status != SUCCESS and there and not told:
            what = f"process {number} of {owner} has landed and is {status}: {error}"
            problem("success_means_landed", what)

    def _nothing_is_left(self, name: str, table: Table) -> None:
        """Left to orphan cleaning are files that came after the end, or that nobody could list."""
        referred = table.referred()
        left = [
            path
            for path, number in table.staged.items()
            if path not in referred | table.late and number not in table.orphaned
        ]
        if left:
            self._world.problem("nothing_left_behind", f"staged for {name}: {left}")

    def _optimized(self, name: str, table: Table, failures: Any, now_ms: int) -> None:
        """Nobody writes any more: a plan of a table that may be optimized gains nothing (T2)."""
        settings, _ = OptimizingSettings.read(table.properties)
        if not settings.enabled:
            return
        shunned = left_out(failures)
        found = assess(table.files(), settings, {}, now_ms=now_ms, left_out=shunned)
        if found.pending is not None:
            what = f"table {name} rests, and {found.pending.data.files} files wait in it"
            self._world.problem("pending_is_not_lost", what)


def _not_settled(name: str, table: Table, row: list[Any] | None) -> list[str]:
    if row is None:
        return [f"table {name} is not known"]
    status, pointer = row
    if status == "IDLE" and pointer == table.pointer:
        return []
    return [f"table {name} is {status} at {pointer}, and the lake at {table.pointer}"]


_KNOWN = "SELECT name, status, pointer FROM lake_tables ORDER BY name"
_OPEN_TASKS = f"SELECT id, kind, status FROM tasks WHERE {_OPEN} AND kind NOT IN {_LOOKS}"
_RUNNING = f"SELECT id, number FROM processes WHERE status = '{RUNNING}'"
_LEFT = "SELECT id, number FROM processes WHERE leftovers = 1"
_PROCESSES = (
    "SELECT id, table_id, number, status, uuid, error FROM processes "
    f"WHERE status <> '{RUNNING}' ORDER BY id"
)
_AT_REST = (
    "SELECT name, file_failures FROM lake_tables "
    "WHERE wanted_paused = 0 AND status = 'IDLE' ORDER BY name"
)
