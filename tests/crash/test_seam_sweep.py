"""Every seam of an epoch: die there, start again, compare rows and leftovers.

A chain of seams shares one stand: whoever takes over from the dead is the next to die. Every job
has two epochs and two sinks, and first drops, once, what the one before it left there (epoch 0).
One sink writes files, the other one to a database or to a lake table. A seam of a sink is met with
that sink; one that every job passes is met twice, so that each is tried with each kind of target.
The list is taken from the source: a new seam is in the sweep by itself, and one that no job here
passes fails it, until a job that does is added.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

import pytest

from headrace.client.client import Client
from headrace.errors import CoordinatorUnavailable
from tests.crash.armed import arm
from tests.crash.cluster import Cluster, until
from tests.crash.database import Database
from tests.crash.jobs import (
    await_end,
    csv,
    ids_in,
    job,
    job_text,
    numbers,
    paced,
    staged_in,
    submit_text,
)
from tests.crash.lake import leftovers
from tests.crash.seam_list import Seam, seams_of_an_epoch
from tests.crash.stand import SPARK_START_MAX_S, Stand, Victim
from tests.turns import STORES

CHAIN_MAX = 8  # seams that share a stand

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600 * CHAIN_MAX)]

EPOCHS = 2
ROWS = 20
EPOCH_MS = 400
SEEN_MS = 4_000  # an epoch of a job that has to be seen while it runs, on a busy machine
ENDLESS_MS = 600_000
CLEANUP_MAX_S = 60 + 2 * SPARK_START_MAX_S  # its delay, and a worker that starts
TABLE, IN_LAKE = "sweep.rows", 'namespace = "sweep", table = "rows"'
DROP = 'data_save_mode = "DROP_DATA"'
SEAMS = seams_of_an_epoch()
ABORTS = {"before abort", "abort spent"}  # passed by jobs that are cancelled
STARTS = {"ends taken over"}  # passed by a worker that starts
# Passed all the time, also when nothing runs: they are armed once a job does.
SYNCS = {
    "before sync",
    "sync answered",
    "before sync transaction",
    "sync committed, before answer",
}
END_KEPT = Seam("worker/outbox.py", "end kept")
STAGED = Seam("lake/iceberg/stage.py", "staged")
OF_EVERY_JOB = [seam for seam in SEAMS if not seam.file.startswith(("connectors/", "lake/"))]
# Passed by whoever goes on with an epoch that another began: alone there is nothing to sweep.
AFTER_ANOTHER = {Seam("connectors/iceberg/sink.py", "before sweep")}
USUAL = [
    Seam("connectors/files/commit.py", "manifest written"),
    Seam("coordinator/sync/reports.py", "epoch prepared, in transaction"),
]


def chains() -> list[object]:
    """A few that stand for all, on either store; and all of them, the stores taking turns."""
    usual = [pytest.param(store, False, USUAL, id=f"{store}-a few") for store in STORES]
    cuts = [(False, cut) for cut in _cut(SEAMS)] + [(True, cut) for cut in _cut(OF_EVERY_JOB)]
    matrix: list[object] = []
    for number, (lake, cut) in enumerate(cuts):
        store = STORES[number % len(STORES)]
        name = f"{store}-{number}{'-lake' if lake else ''}"
        matrix.append(pytest.param(store, lake, cut, id=name, marks=pytest.mark.matrix))
    return [*usual, *matrix]


def _cut(seams: Sequence[Seam]) -> list[Sequence[Seam]]:
    return [seams[at : at + CHAIN_MAX] for at in range(0, len(seams), CHAIN_MAX)]


class Sweep:
    def __init__(self, made: Cluster, database: Database) -> None:
        self._armed = made.folder / "armed.seam"
        self.stand = Stand(made, under=("tests.crash.armed", str(self._armed)))
        self._database, self._jobs = database, 0
        self._lake = False  # whether the second sink is a lake table, and not a database
        self._target, self._warehouse = made.folder / "target", made.folder / "home" / "warehouse"

    def job(self, *, every_ms: int = EPOCH_MS) -> str:
        """The next job; its rows are numbered as those of no other."""
        self._jobs += 1
        into_lake = f'Iceberg {{ plugin_input = "made", {IN_LAKE}, {DROP} }}'
        return job_text(
            [numbers("made", ROWS, paced(EPOCHS, every_ms), first=self._first)],
            [
                csv(["made"], self._target, DROP),
                into_lake if self._lake else self._database.sink("made", "rows", DROP),
            ],
            f"checkpoint.interval = {every_ms}",
        )

    @property
    def _first(self) -> int:
        return 1 + 1000 * self._jobs

    def die_at(self, seam: Seam, *, lake: bool) -> None:
        self._lake = lake or "/iceberg/" in seam.file
        if seam.name in ABORTS:
            self._die_in_a_cancelled_job(seam)
        elif seam.name in STARTS:
            self._die_at_the_start(seam)
        else:
            self._die_in_a_job(seam)

    def _die_in_a_job(self, seam: Seam) -> None:
        text = self.job(every_ms=SEEN_MS if seam.name in SYNCS else EPOCH_MS)
        if seam.name in SYNCS:
            job_id = self._submit(text)
            until(lambda: self._runs(job_id), limit_s=SPARK_START_MAX_S, what="the job runs")
            self._arm(seam)
        else:
            first = STAGED if seam in AFTER_ANOTHER else seam
            self._arm(first)
            try:
                job_id = self._submit(text)
            except CoordinatorUnavailable:  # it died before it could answer
                job_id = ""
            if first != seam:
                self._await_dead(first)
                self._arm(seam)
                self.stand.start_worker()
        self._await_death(seam)
        await_end(self.stand.url, job_id or self._submit(text))
        self._compare(seam, list(range(self._first, self._first + ROWS)))

    def _die_in_a_cancelled_job(self, seam: Seam) -> None:
        job_id = self._submit(self.job(every_ms=ENDLESS_MS))
        limit_s = 2 * SPARK_START_MAX_S
        until(self._both_have_staged, limit_s=limit_s, what="both sinks have staged")
        self._arm(seam)
        with closing(Client([self.stand.url])) as client:
            client.cancel_job(job_id)
        self._await_death(seam)
        ended = await_end(self.stand.url, job_id, "CANCELED")
        # On a busy machine an epoch may have been completed before the cancel came: it stays.
        completed = ended.pipelines[0].rows_in
        if "left open" in (ended.pipelines[0].error or ""):
            # Its successor came up too late for the job to wait for: the cleanup settles it.
            until(self._nothing_is_staged, limit_s=CLEANUP_MAX_S, what="nothing is left staged")
        self._compare(seam, list(range(self._first, self._first + completed)))

    def _die_at_the_start(self, seam: Seam) -> None:
        """With an end to say that its predecessor kept, and could not say."""
        self._arm(END_KEPT)
        job_id = self._submit(self.job())
        self._await_dead(END_KEPT)
        self._arm(seam)
        self.stand.start_worker()
        self._await_death(seam)
        await_end(self.stand.url, job_id)
        self._compare(seam, list(range(self._first, self._first + ROWS)))

    def _runs(self, job_id: str) -> bool:
        return job(self.stand.url, job_id).status == "RUNNING"

    def _submit(self, text: str) -> str:
        return submit_text(self.stand.url, text, key=f"job-{self._jobs}")

    def _arm(self, seam: Seam) -> None:
        arm(self._armed, [seam])

    def _await_death(self, seam: Seam) -> None:
        """Until somebody died there; then start that one again."""
        self._await_dead(seam)
        coordinator = seam.is_met_by_a_coordinator
        self.stand.strike(Victim.COORDINATOR if coordinator else Victim.WORKER)

    def _await_dead(self, seam: Seam) -> None:
        coordinator = seam.is_met_by_a_coordinator
        process = self.stand.coordinator if coordinator else self.stand.worker
        limit_s = 2 * SPARK_START_MAX_S
        until(lambda: process.popen.poll() is not None, limit_s=limit_s, what=f"{seam} is met")
        assert self._armed.with_suffix(".met").read_text() == str(seam), process.log.read_text()

    def _nothing_is_staged(self) -> bool:
        return not staged_in([self._target]) and not self._second_has_staged()

    def _both_have_staged(self) -> bool:
        return bool(staged_in([self._target]) and self._second_has_staged())

    def _second_has_staged(self) -> list[str]:
        return leftovers(self._warehouse, TABLE) if self._lake else self._database.stages()

    def _compare(self, seam: Seam, expected: Sequence[int]) -> None:
        second = self._ids_in_the_lake() if self._lake else self._database.ids("rows")
        assert (ids_in(self._target), second) == (expected, expected), seam
        assert (staged_in([self._target]), self._second_has_staged()) == ([], []), seam

    def _ids_in_the_lake(self) -> list[int]:
        """A job of its own reads them."""
        copy = self.stand.made.folder / f"copy-{self._jobs}"
        source = f'Iceberg {{ plugin_output = "read", {IN_LAKE} }}'
        text = job_text([source], [csv(["read"], copy)])
        await_end(self.stand.url, submit_text(self.stand.url, text, key=copy.name))
        return ids_in(copy)


@pytest.mark.req("E1", "E2", "E6")
@pytest.mark.parametrize(("store_url", "lake", "chain"), chains(), indirect=["store_url"])
def test_after_a_death_at_any_seam_every_row_is_there_once_and_nothing_is_left_staged(
    made: Cluster,
    database: Database,
    chain: Sequence[Seam],
    capsys: pytest.CaptureFixture[str],
    *,
    lake: bool,
) -> None:
    sweep = Sweep(made, database)
    sweep.stand.start()
    store = made.store_url.partition(":")[0]
    for seam in chain:
        began_s = time.monotonic()
        sweep.die_at(seam, lake=lake)
        with capsys.disabled():
            print(f"\n{store}: {seam}: {time.monotonic() - began_s:.0f} s", end="")  # noqa: T201  a table of them is asked for


def test_the_seams_that_stand_for_all_are_seams() -> None:
    assert {*USUAL, END_KEPT, STAGED, *AFTER_ANOTHER} <= set(SEAMS)
    assert {seam.name for seam in SEAMS} >= ABORTS | STARTS | SYNCS
