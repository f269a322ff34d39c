"""The model of a lake is a table format like any other, or histories on it would prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import pytest

from headrace.lake.catalog import CatalogConfig, TableRef
from headrace.lake.table_format import ProcessExecution
from tests.contracts.table_format import FormatHarness, TableFormatContract
from tests.simulation.faults import Faults
from tests.simulation.lake import CATALOG, NAMESPACE, ROW_BYTES, TARGET_ROWS, Lake, Table
from tests.simulation.lake_format import SimulatedFormat
from tests.simulation.lake_people import append_rows, remove_entry
from tests.simulation.world import Process, World, set_world

T = TypeVar("T")
NAME = "t"
LIMIT_S = 1_000.0  # virtual ones, of all calls together


class InFiber:
    """A format that is called from outside of a history: each call runs in a fiber, to its end."""

    def __init__(self, within: SimulatedFormat, process: Process) -> None:
        self._within, self._process = within, process

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._within, name)
        return self._in_fiber(value) if callable(value) else value

    def _in_fiber(self, call: Callable[..., T]) -> Callable[..., T]:
        @wraps(call)
        def run(*args: object, **options: object) -> T:
            ended: list[Callable[[], T]] = []

            def main() -> None:
                try:
                    result = call(*args, **options)
                except Exception as error:  # noqa: BLE001  raised again outside
                    ended.append(_raising(error))
                else:
                    ended.append(lambda: result)

            world = self._process.world
            world.spawn(self._process, main, "call")
            assert world.run(until_s=LIMIT_S, done=lambda: bool(ended)), world.problems
            return ended[0]()

        return run


def _raising(error: Exception) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again


class LakeHarness(FormatHarness):
    """Two files of one row in each partition."""

    lake: Lake

    @property
    def table(self) -> Table:
        return self.lake.tables[NAME]

    def fill(self) -> None:
        for value in (0, 1, 0, 1):
            append_rows(self.lake, self.table, value, rows=1)

    def rows(self) -> Sequence[object]:
        snapshot = self.table.current
        return sorted(row for each in snapshot.files for row in self.table.live(snapshot, each))

    def append(self) -> None:
        append_rows(self.lake, self.table, 0, rows=1)

    def remove_file(self, path: str) -> None:
        [entry] = [each for each in self.table.current.files if each.path == path]
        remove_entry(self.table, entry)

    def make_anew(self) -> None:
        self.lake.make(NAME, {})
        self.fill()

    def staged(self, process: ProcessExecution) -> int:
        return sum(number == process.number for number in self.table.staged.values())


class TestTheModelOfALake(TableFormatContract):
    @pytest.fixture
    def lake(self) -> Iterator[FormatHarness]:
        world = World("0")
        set_world(world)
        told: list[str] = []
        lake = Lake(Faults(world, ()), lambda what, _: told.append(what), rewrite_s=0.1)
        ref = TableRef(CatalogConfig(CATALOG, {}), (NAMESPACE,), NAME)
        process = world.start("worker", lambda _: None)
        inside = cast("Any", InFiber(SimulatedFormat(lake), process))
        harness = LakeHarness(inside, None, process, ref, TARGET_ROWS * ROW_BYTES)
        harness.lake = lake
        harness.make_anew()
        yield harness
        world.end()
        set_world(None)
        # The lake tells what a history may not do; one test does just that.
        assert set(told) <= {"nothing_deleted_that_may_be_committed"}
