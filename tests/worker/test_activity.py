"""Signs of life: what counts as one, and that nothing else does (D5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

from headrace.model.task import Claim
from headrace.protocol.messages import Acknowledged, EpochCompleted, EpochPlan
from headrace.worker import execution as execution_module
from headrace.worker.execution import Execution, ExecutionStopped
from headrace.worker.jvm_monitor import JvmMonitor, Spark
from headrace.worker.outbox import Outbox
from tests.worker.leader import BOUND_S, Leader, Worker, assignment, eventually, given

FIRST = Claim("t", 1)


class Bench:
    """An execution that a test drives by hand, and a JVM that says what it is told to say."""

    def __init__(self, home: Path) -> None:
        self.outbox = Outbox(home / "w1", posted=lambda: None)
        self.execution = Execution(assignment(), self.outbox, lambda execution: None)
        self.rows: int | None = None
        self.finished: tuple[int, int] = (-1, 0)
        self.looks = 0
        self.tending = JvmMonitor(
            Spark(self._alive, lambda _: None, lambda _: self.rows, lambda _: self.finished),
            lambda: [self.execution],
            on_death=lambda: None,
        )

    def _alive(self) -> bool:
        self.looks += 1
        return True

    def look(self) -> None:
        """Let Spark be asked from now on, all of it."""
        before = self.looks
        for more in (1, 2):
            self.tending.check_soon()
            eventually(lambda more=more: self.looks >= before + more)

    def acknowledge(self) -> None:
        pending = self.outbox.pending(10)
        self.outbox.acknowledge([Acknowledged(seq=r.seq, held=True, plan={}) for r in pending])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(execution_module, "TOUCH_INTERVAL_S", 0.01)
    made = Bench(tmp_path)
    yield made
    made.tending.end()
    made.outbox.close()


def grows(execution: Execution, times: int = 3) -> None:
    for _ in range(times):
        before = execution.activity
        eventually(lambda before=before: execution.activity > before)


@pytest.mark.req("D5")
def test_each_step_is_a_sign_of_life_also_when_it_is_the_same_step(bench: Bench) -> None:
    seen = {bench.execution.activity}
    for _ in range(3):
        bench.execution.set_progress("running", epoch=1)
        seen.add(bench.execution.activity)
        bench.execution.set_committing(1)
        seen.add(bench.execution.activity)

    assert len(seen) == 7
    assert min(seen) > 0, "0 means that nobody counts"


@pytest.mark.req("D5")
@pytest.mark.parametrize("pause", ["wait", "rest"])
def test_waiting_on_purpose_is_a_sign_of_life_for_as_long_as_it_lasts(
    bench: Bench, pause: str
) -> None:
    stopped = threading.Event()

    def waits() -> None:
        with pytest.raises(ExecutionStopped):
            getattr(bench.execution, pause)(1000.0)
        stopped.set()

    threading.Thread(target=waits, daemon=True).start()
    grows(bench.execution)
    bench.execution.stop()

    assert stopped.wait(BOUND_S)


@pytest.mark.req("D5")
def test_waiting_for_a_coordinator_that_is_away_is_a_sign_of_life(bench: Bench) -> None:
    execution, done = bench.execution, threading.Event()

    def reports() -> None:
        proposed = execution.propose(1, EpochPlan(slices={}, now_ms=1))
        with pytest.raises(ValueError, match="slices"):  # the made-up leader grants no plan
            execution.granted_plan(proposed)
        execution.wait_until_prepared(execution.prepare(1, {}))
        execution.complete(
            EpochCompleted(
                seq=0, claim=FIRST, epoch=1, positions={}, rows_in=0, rows_out=0, commits={}
            )
        )
        done.set()

    threading.Thread(target=reports, daemon=True).start()
    for kind in ("EPOCH_PLANNED", "EPOCH_PREPARED", "EPOCH_COMPLETED"):
        eventually(lambda kind=kind: [r.kind for r in bench.outbox.pending(10)] == [kind])
        grows(execution)
        bench.acknowledge()
    assert done.wait(BOUND_S)


@pytest.mark.req("D5")
def test_a_finished_spark_task_is_a_sign_of_life_whatever_the_step(bench: Bench) -> None:
    bench.execution.set_progress("committing", epoch=1)
    bench.tending.start()
    bench.look()
    before = bench.execution.activity
    bench.look()
    assert bench.execution.activity == before, "nothing has finished"

    for finished in ((0, 1), (0, 2), (1, 2), (1, 0)):
        bench.finished = finished
        bench.look()
        assert bench.execution.activity > before
        before = bench.execution.activity


@pytest.mark.req("D5")
def test_rows_that_spark_counts_are_a_sign_of_life(bench: Bench) -> None:
    bench.execution.set_progress("running", epoch=1)
    bench.tending.start()
    bench.rows = 5
    bench.look()
    before = bench.execution.activity
    bench.look()
    assert bench.execution.activity == before, "as many rows as before"

    bench.rows = 6
    bench.look()
    assert bench.execution.activity > before


@pytest.mark.req("D5")
def test_one_that_runs_and_does_nothing_gives_no_sign_of_life_and_its_worker_says_so(
    leader: Leader, worker: Worker
) -> None:
    given(leader, worker, FIRST)
    eventually(lambda: worker.work.asked > 1)  # the first word of Spark is a sign of life, too
    leader.rounds(2)
    still = _said(leader)
    leader.rounds(3)
    assert _said(leader) == still > 0

    leader.give = [assignment()]  # deployed again, with success
    eventually(lambda: not leader.give)
    asked = worker.work.asked
    eventually(lambda: worker.work.asked > asked + 1)
    leader.rounds(2)
    assert _said(leader) == still

    worker.work.tasks_finished = (3, 1)
    eventually(lambda: _said(leader) > still)


@pytest.mark.req("D5")
def test_waiting_for_an_older_attempt_that_does_not_end_is_no_sign_of_life(
    leader: Leader, worker: Worker
) -> None:
    worker.work.deaf.set()
    given(leader, worker, FIRST)
    leader.give = [assignment(attempt=2)]
    eventually(lambda: len(leader.syncs()[-1].holds) == 2)
    # The older one is cancelled at each look, and Spark asked of the newer one after that.
    eventually(lambda: len(worker.work.cancelled) > 2)
    leader.rounds(2)
    still = _said(leader, 1)
    eventually(lambda: len(worker.work.cancelled) > 4)
    leader.rounds(2)

    assert _said(leader, 1) == still


def _said(leader: Leader, at: int = 0) -> int:
    progress = leader.syncs()[-1].holds[at].progress
    assert progress is not None
    return progress.activity


def test_a_spark_that_is_stopped_at_the_end_has_not_died() -> None:
    looked, died = threading.Event(), threading.Event()

    def stopped_meanwhile() -> bool:
        tending.end()
        looked.set()
        return False

    spark = Spark(stopped_meanwhile, lambda _: None, lambda _: None, lambda _: (-1, 0))
    tending = JvmMonitor(spark, list[Execution], on_death=died.set)
    of_others = set(threading.enumerate())
    tending.start()
    assert looked.wait(BOUND_S)
    eventually(lambda: not set(threading.enumerate()) - of_others)

    assert not died.is_set()
    assert not tending.jvm_died


@pytest.mark.req("R1")
@pytest.mark.parametrize("error", [Py4JError("isStopped"), ConnectionRefusedError()])
def test_a_spark_that_can_not_be_asked_whether_it_lives_has_died(error: Exception) -> None:
    """A JVM may end in the middle of the question."""
    died = threading.Event()

    def gone() -> bool:
        raise error

    spark = Spark(gone, lambda _: None, lambda _: None, lambda _: (-1, 0))
    tending = JvmMonitor(spark, list[Execution], on_death=died.set)
    tending.start()

    assert died.wait(BOUND_S)
    assert tending.jvm_died
