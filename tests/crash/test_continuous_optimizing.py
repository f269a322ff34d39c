"""Another program writes to two lake tables without a pause, Headrace optimizes them all the while,
and its leader and worker are killed at random seams.

After every write the rows are those of a plain copy. In the end the tables have few files, and
nothing runs, waits or is left staged. The seed is printed; SEED and STEPS set the long run's.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Iterator

import pytest

from headrace.errors import CoordinatorUnavailable, NotFound
from headrace.model.tables.status import ProcessStatus, TableStatus
from tests.crash.cluster import Cluster, until
from tests.crash.optimizing import ENDS_MAX_S, LOOK_S, Optimizing, identifier
from tests.crash.random_writes import DECK, RandomWrites
from tests.crash.seam_list import Seam, seams_of_a_table

pytestmark = [pytest.mark.crash]

IDLE = TableStatus.IDLE

EAGER = {
    "self-optimizing.minor.trigger.file-count": "3",
    "self-optimizing.major.trigger.duplicate-ratio": "0.05",
    "self-optimizing.min-plan-interval": "100ms",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.spark.fanout.enabled": "true",
}
OPTIONS = ("--refresh-tables-interval", "1", "--refresh-catalogs-interval", "2")
FORMATS = {"v2": "2", "v3": "3"}
FILES_MAX = 6  # of a table, when all is done: it has at most three partitions
SHORT_STRETCH = len(DECK) // 2  # with two of them each kind of write comes at least once
SHORT_STEPS_MAX, SHORT_SEED = 80, 11
LONG_STEPS, LONG_STRETCH, LONG_KILLS = 120, 8, 12
# Of a process that nobody cancels.
GIVEN_UP = {"before table abort", "table abort spent, before deletion", "table leftovers deleted"}
RESET = "table reset, in transaction"
MET = [seam for seam in seams_of_a_table() if seam.name not in {*GIVEN_UP, RESET}]


class Soak:
    """Writes, one after another, with deaths that are armed now and then."""

    def __init__(self, made: Cluster, seed: int) -> None:
        self._rng = random.Random(seed)
        self.lake = Optimizing(made, options=OPTIONS)
        self._met = made.folder / "armed.met"
        self._waits_for: Seam | None = None
        self.writes = {name: RandomWrites(identifier(name), self._rng) for name in FORMATS}
        self._deck: list[str] = []
        self.kills: list[Seam] = []
        self.steps = self.files_most = 0

    def start(self) -> None:
        self.lake.stand.start_worker()
        for name, version in FORMATS.items():
            create = self.writes[name].creation({**EAGER, "format-version": version})
            self.lake.writer.ask(create)
        self.lake.stand.start_coordinator()

    def write_some(self, count: int) -> None:
        """And then let all of it be optimized."""
        for _ in range(count):
            self.write()
            self.follow()
        self.breathe("MAJOR")

    def write(self) -> None:
        """One random write; afterwards the table has the rows of the copy."""
        self.steps += 1
        name = self._rng.choice(sorted(self.writes))
        writes = self.writes[name]
        self._deck = self._deck or self._rng.sample(DECK, len(DECK))
        statement, done = writes.next(self._deck.pop())
        self.lake.writer.ask(statement)
        done()
        found = self.lake.writer.ask(writes.query())
        assert found == writes.expected(), f"step {self.steps}, {name}, after: {statement}"
        self.files_most = max(self.files_most, self.lake.count_files(name)[0])

    def arm(self, seams: list[Seam]) -> None:
        if self._waits_for is None:
            self._waits_for = self._rng.choice(seams)
            self.lake.arm(self._waits_for)

    def follow(self) -> bool:
        """If somebody died at the armed seam, start the next one. Whether nothing is armed now."""
        seam = self._waits_for
        if seam is not None and self._met.exists() and self._met.read_text() == str(seam):
            victim = self.lake.await_dead(seam)
            self._met.unlink()
            self.kills.append(seam)
            self._waits_for = None
            self.lake.stand.strike(victim)
        return self._waits_for is None

    def breathe(self, type_: str) -> None:
        """No write for a while: each table is optimized once, whatever dies meanwhile."""
        for name in self.writes:
            self._await(lambda name=name: self._is_between(name), f"no process of {name} runs")
            self._await(lambda name=name: self._ask(name, type_), f"{name} is to be optimized")
            self._await(lambda name=name: self._is_done(name), f"{name} is optimized")

    def come_to_rest(self) -> None:
        self.lake.disarm()
        self.follow()
        self._waits_for = None
        self.breathe("FULL")
        self.lake.await_quiet(*self.writes)

    def _await(self, look: Callable[[], bool], what: str) -> None:
        def followed() -> bool:
            self.follow()
            return look()

        until(followed, limit_s=ENDS_MAX_S, what=what, every_s=LOOK_S)

    def _ask(self, name: str, type_: str) -> bool:
        try:
            self.lake.optimize(name, type_)
        except (CoordinatorUnavailable, NotFound):  # dead just now, or has not looked yet
            return False
        return True

    def _is_between(self, name: str) -> bool:
        all_ = self.lake.processes(name) if self.lake.knows(name) else ()
        return not any(each.status is ProcessStatus.RUNNING for each in all_)

    def _is_done(self, name: str) -> bool:
        table = self.lake.table(name)
        return self._is_between(name) and table.wanted_type is None and table.status is IDLE

    def assert_at_rest(self) -> None:
        for name, writes in self.writes.items():
            assert self.lake.writer.ask(writes.query()) == writes.expected(), name
            files, deletes = self.lake.count_files(name)
            assert (files <= FILES_MAX, deletes) == (True, 0), (name, files, deletes)
            assert self.lake.staged(name) == [], name
            assert self.lake.busy(name) == ""
        self._assert_stays_so()

    def _assert_stays_so(self) -> None:
        """Two looks at each table later no process has begun: nothing is rewritten for ever."""
        before = {name: len(self.lake.processes(name)) for name in self.writes}
        for name in self.writes:
            for _ in range(2):
                seen = self.lake.table(name).evaluated_at_ms
                until(
                    lambda name=name, seen=seen: self.lake.table(name).evaluated_at_ms != seen,
                    limit_s=ENDS_MAX_S,
                    what=f"{name} is looked at again",
                    every_s=LOOK_S,
                )
        assert {name: len(self.lake.processes(name)) for name in self.writes} == before

    def successes(self) -> int:
        all_ = [each for name in self.writes for each in self.lake.processes(name)]
        return sum(each.status is ProcessStatus.SUCCESS for each in all_)

    def told(self) -> str:
        kills = ", ".join(seam.name for seam in self.kills)
        return (
            f"{self.steps} writes, {self.lake.writer.conflicts} of them repeated, "
            f"{self.successes()} processes succeeded, at most {self.files_most} files; "
            f"deaths at: {kills}"
        )


@pytest.fixture
def soak(made: Cluster, request: pytest.FixtureRequest) -> Iterator[Soak]:
    seed = request.param or int(os.environ.get("SEED") or secrets.randbelow(10**6))
    with request.getfixturevalue("capsys").disabled():
        print(f"\nseed {seed}", end="")  # noqa: T201  to run it again
    begun = Soak(made, seed)
    yield begun
    begun.lake.close()


@pytest.mark.req("T3", "T7", "E1", "E4")
@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("soak", [SHORT_SEED], indirect=True)
def test_rows_are_those_of_a_plain_copy_while_tables_are_optimized_and_either_side_is_killed(
    soak: Soak, capsys: pytest.CaptureFixture[str]
) -> None:
    leaders = [seam for seam in MET if seam.is_met_by_a_coordinator]
    workers = [seam for seam in MET if not seam.is_met_by_a_coordinator]
    soak.start()
    for died, seams in enumerate((leaders, workers)):
        soak.arm(seams)
        soak.write_some(SHORT_STRETCH)
        while len(soak.kills) == died:  # what was written before left nothing to be rewritten
            assert soak.steps < SHORT_STEPS_MAX, f"not all died that were to: {soak.told()}"
            soak.write_some(SHORT_STRETCH)

    assert len(soak.kills) == 2
    soak.come_to_rest()
    soak.assert_at_rest()
    with capsys.disabled():
        print(f"\n{soak.told()}", end="")  # noqa: T201  asked for


@pytest.mark.req("T3", "T7", "E1", "E4")
@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("soak", [pytest.param(None, id="any")], indirect=True)
def test_rows_are_those_of_a_plain_copy_however_long_it_goes_on(
    soak: Soak, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = int(os.environ.get("STEPS") or LONG_STEPS)
    soak.start()
    while soak.steps < steps:
        if soak.follow() and len(soak.kills) < LONG_KILLS:
            soak.arm(MET)
        soak.write_some(LONG_STRETCH)

    soak.come_to_rest()
    soak.assert_at_rest()
    with capsys.disabled():
        print(f"\n{soak.told()}", end="")  # noqa: T201  asked for


def test_both_sides_have_seams_to_die_at() -> None:
    assert {seam.is_met_by_a_coordinator for seam in MET} == {True, False}
