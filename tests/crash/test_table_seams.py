"""A leader or a worker that dies while a lake table is optimized: at every seam, on either store.

A chain of cells shares one stand, and each cell has a table of its own: whoever takes over from the
dead is the next to die. However it went, a table has its rows, its files were replaced once, one
process of it succeeded, and nothing is left staged. The list is taken from the source: a new seam
is in the sweep by itself, and one that nobody passes here fails it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import TaskKind
from tests.crash.cluster import Cluster, until
from tests.crash.optimizing import ENDS_MAX_S, LOOK_S, Optimizing, identifier
from tests.crash.seam_list import Seam, seams_of_a_table
from tests.crash.stand import Victim
from tests.turns import STORES

CHAIN_MAX = 6  # cells that share a stand

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600 * CHAIN_MAX)]

P = ProcessStatus
ROWS, FILES = 40, 4
SEAMS = seams_of_a_table()

PLANNED = Seam("coordinator/tables/plan_scheduler.py", "plan persisted, in transaction")
TO_COMMIT = Seam("coordinator/tables/commits.py", "commit planned, in transaction")
RECORDED = Seam("coordinator/tables/commits.py", "commit recorded, in transaction")
RESET = Seam("coordinator/tables/recovery.py", "table reset, in transaction")
BEFORE_ANSWER = Seam("coordinator/sync/writer.py", "sync committed, before answer")
STAGED = Seam("worker/tables/rewrite.py", "table rewrite staged")
LANDED = Seam("worker/tables/rewrite.py", "table commit landed, before report")
VALIDATED = Seam("lake/iceberg/replace.py", "table replacement validated")
# Passed by whoever deletes what a canceled process has staged.
OF_GIVEN_UP = {
    Seam("worker/tables/rewrite.py", "before table abort"),
    Seam("worker/tables/rewrite.py", "table abort spent, before deletion"),
    Seam("worker/tables/rewrite.py", "table leftovers deleted"),
}

Point = tuple[Seam, ...]  # passed one after another; somebody dies at the last
Cell = tuple[Point, ...]  # deaths, one after another
# Who has to die first: then there is something to reset, or staged files of a canceled process.
BEFORE: Mapping[Seam, Cell] = {RESET: ((RECORDED,),), **dict.fromkeys(OF_GIVEN_UP, ((STAGED,),))}


def cells() -> list[Cell]:
    """Each seam; and, where a leader's transaction was committed, before anybody heard of it."""
    found: list[Cell] = []
    for seam in SEAMS:
        found.append((*BEFORE.get(seam, ()), (seam,)))
        if seam in (PLANNED, TO_COMMIT, RECORDED):
            found.append(((seam, BEFORE_ANSWER),))
    return found


USUAL: list[Cell] = [((RECORDED,), (RESET,)), ((STAGED,),)]


def chains() -> list[object]:
    """A few that stand for all, on either store; and all of them, the stores taking turns."""
    every = cells()
    cuts = [every[at : at + CHAIN_MAX] for at in range(0, len(every), CHAIN_MAX)]
    usual = [pytest.param(store, USUAL, id=f"{store}-a few") for store in STORES]
    matrix: list[object] = []
    for number, cut in enumerate(cuts):
        store = STORES[(number + 1) % len(STORES)]
        matrix.append(pytest.param(store, cut, id=f"{store}-{number}", marks=pytest.mark.matrix))
    return [*usual, *matrix]


@pytest.fixture
def lake(made: Cluster) -> Iterator[Optimizing]:
    begun = Optimizing(made)
    yield begun
    begun.close()


def make_table(lake: Optimizing, name: str) -> None:
    """A few small files, and deletes that are not applied yet; no rule asks to rewrite them."""
    table = identifier(name)
    properties = (
        "'format-version' = '2', 'write.delete.mode' = 'merge-on-read', "
        "'self-optimizing.major.trigger.duplicate-ratio' = '1', "
        "'self-optimizing.minor.trigger.interval' = '-1'"
    )
    lake.writer.ask(f"CREATE TABLE {table} (id BIGINT) USING iceberg TBLPROPERTIES ({properties})")
    lake.writer.ask(f"INSERT INTO {table} SELECT id FROM range(0, {ROWS}, 1, {FILES})")
    lake.writer.ask(f"DELETE FROM {table} WHERE id % 10 = 3")
    assert lake.count_files(name)[0] == FILES


def rows_in(lake: Optimizing, name: str) -> list[int]:
    return [row["id"] for row in lake.writer.ask(f"SELECT id FROM {identifier(name)} ORDER BY id")]


AFTER_IT_SLEPT = 2  # the term
EXPECTED = [number for number in range(ROWS) if number % 10 != 3]


def assert_replaced_once(lake: Optimizing, name: str) -> None:
    lake.await_quiet(name)
    statuses = [process.status for process in lake.processes(name)]
    assert statuses.count(P.SUCCESS) == 1, statuses
    assert set(statuses) <= {P.SUCCESS, P.CLOSED}, "one that was being planned is planned again"
    assert len(lake.replacements(name)) == 1
    assert rows_in(lake, name) == EXPECTED
    assert (lake.count_files(name), lake.staged(name)) == ((1, 0), [])
    assert lake.table(name).optimized_snapshot is not None


def assert_given_up(lake: Optimizing, name: str) -> None:
    lake.await_quiet(name)
    assert [process.status for process in lake.processes(name)] == [P.KILLED]
    assert rows_in(lake, name) == EXPECTED
    assert (lake.replacements(name), lake.staged(name)) == ([], [])


def cancel(lake: Optimizing, name: str) -> None:
    with lake.client() as client:
        client.cancel_table(identifier(name))

    def killed() -> bool:
        return lake.processes(name)[-1].status is P.KILLED

    until(killed, limit_s=ENDS_MAX_S, what="it is canceled", every_s=LOOK_S)


def die(lake: Optimizing, name: str, cell: Cell) -> None:
    """Each dies in its turn, and is followed by another."""
    first, *others = cell
    lake.arm(*first)
    lake.optimize(name)
    victim = lake.await_dead(first[-1])
    for point in others:
        if point[-1] in OF_GIVEN_UP:
            cancel(lake, name)
        lake.arm(*point)
        lake.stand.strike(victim, wait=False)
        victim = lake.await_dead(point[-1])
    lake.stand.strike(victim)
    check = assert_given_up if cell[-1][-1] in OF_GIVEN_UP else assert_replaced_once
    check(lake, name)


@pytest.mark.req("T1", "T3", "T7", "E1", "E3", "E6")
@pytest.mark.parametrize(("store_url", "chain"), chains(), indirect=["store_url"])
def test_after_a_death_at_any_seam_files_are_replaced_once_and_nothing_is_left_staged(
    lake: Optimizing, chain: Sequence[Cell], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"t{number}" for number in range(len(chain))]
    lake.stand.start_worker()
    for name in names:
        make_table(lake, name)
    lake.stand.start_coordinator()
    for name, cell in zip(names, chain, strict=True):
        lake.await_known(name)
        began_s = time.monotonic()
        die(lake, name, cell)
        told = ", then ".join(" > ".join(map(str, point)) for point in cell)
        with capsys.disabled():
            print(f"\n{told}: {time.monotonic() - began_s:.0f} s", end="")  # noqa: T201  a table of them is asked for


def test_the_seams_that_stand_for_all_are_seams() -> None:
    named = {PLANNED, TO_COMMIT, RECORDED, RESET, STAGED, LANDED, VALIDATED, *OF_GIVEN_UP}
    assert named <= set(SEAMS)


@pytest.mark.req("T1", "E3")
def test_a_commit_that_landed_unheard_is_settled_once_its_catalog_is_back(lake: Optimizing) -> None:
    """The worker dies after its commit, the leader too, and the table can't be asked at first."""
    lake.stand.start_worker()
    make_table(lake, "t")
    lake.stand.start_coordinator()
    lake.await_known("t")
    lake.arm(LANDED)
    lake.optimize("t")
    lake.await_dead(LANDED)
    lake.stand.kill(Victim.BOTH)
    assert lake.table("t").status is TableStatus.COMMITTING
    assert len(lake.replacements("t")) == 1
    catalog = lake.warehouse / "catalog.db"
    away = catalog.rename(catalog.with_suffix(".away"))
    catalog.mkdir()  # nobody can open it, or make another in its place

    lake.stand.start_again(Victim.BOTH)

    until(lambda: commit_failures(lake, "t"), limit_s=ENDS_MAX_S, what="asked in vain")
    [process] = lake.processes("t")
    assert process.settling
    table = lake.table("t")
    assert (table.status, table.optimized_snapshot) == (TableStatus.IDLE, None)
    catalog.rmdir()
    away.rename(catalog)
    assert_replaced_once(lake, "t")
    [process] = lake.processes("t")
    assert lake.result(process)["already"] is True


def commit_failures(lake: Optimizing, name: str) -> int:
    tasks = [task for process in lake.processes(name) for task in lake.tasks(process)]
    return sum(task.failures for task in tasks if task.kind is TaskKind.COMMIT)


@pytest.mark.req("T1", "E1")
def test_a_committer_that_wakes_after_another_settled_changes_nothing(made: Cluster) -> None:
    """It sleeps within its commit: the table has said yes to it, and nothing has landed yet."""
    lake = Optimizing(made, armed=False)
    lake.stand.start_worker(seams=f"{VALIDATED.name}=stop")
    make_table(lake, "t")
    lake.stand.start_coordinator()
    lake.await_known("t")
    lake.optimize("t")
    lake.stand.await_stopped_worker()
    sleeper = lake.stand.worker
    sleeper.signal(signal.SIGSTOP)  # its JVM as well
    assert lake.table("t").status is TableStatus.COMMITTING
    assert lake.replacements("t") == []

    lake.stand.strike(Victim.COORDINATOR)
    lake.stand.start_worker()
    assert_replaced_once(lake, "t")
    seen = lake.processes("t"), lake.snapshots("t")
    sleeper.signal(signal.SIGCONT)

    refused = "commit not confirmed"  # says the committer, when the table has refused it
    until(lambda: sleeper.said(refused), limit_s=ENDS_MAX_S, what="it is refused", every_s=LOOK_S)
    again = f"term={AFTER_IT_SLEPT}"
    until(lambda: sleeper.said(again), limit_s=ENDS_MAX_S, what="it works again", every_s=LOOK_S)
    assert (lake.processes("t"), lake.snapshots("t")) == seen
    assert_replaced_once(lake, "t")
    lake.close()
