"""A FORGET task asks every sink of a job, and tells which of them failed. No Spark is asked."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.clock import SystemClock
from headrace.connectors.connector import Setting
from headrace.errors import Refused, Unavailable
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, EpochAt
from headrace.model.jobs.spec import EnvSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import Assignment, ForgetPayload, PipelinePayload, TaskEnded
from headrace.worker import runner as runner_module
from headrace.worker.execution import Execution
from headrace.worker.outbox import Outbox
from headrace.worker.runner import Runner, settings_for
from tests.worker.leader import BOUND_S, CLOCK, Leader, at_work, given

SOURCES = (PluginSpec(name="S", plugin="FakeSource"),)
Asked = tuple[str, EpochAt, Collection[str] | None]


class Forgetful:
    def __init__(
        self, name: str, asked: list[Asked], closed: list[str], error: Exception | None
    ) -> None:
        self.name = self._name = name
        self._asked, self._closed, self._error = asked, closed, error
        self.mark: Mark | None = None
        self.clumsy = False

    def read_mark(self, session: object, at: EpochAt) -> Mark | None:
        return self.mark

    def forget(self, session: object, at: EpochAt, *, owners: Collection[str] | None) -> None:
        self._asked.append((self._name, at, owners))
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._closed.append(self._name)
        if self.clumsy:
            raise OSError("closed before")


class Desk:
    """Runs a FORGET task of two pipelines with two sinks each."""

    def __init__(self, home: Path) -> None:
        self.outbox = Outbox(home / "w1", posted=lambda: None)
        self.asked: list[Asked] = []
        self.closed: list[str] = []
        self.settings: list[Setting] = []
        self.errors: dict[tuple[int, str], Exception] = {}  # by pipeline and sink
        self.marks: dict[tuple[int, str], Mark] = {}  # likewise
        self.completed: dict[int, int] = {}
        self.clumsy = False  # whether no sink can be closed
        self.steps: list[str] = []

    def make_sink(self, plugin: PluginSpec, setting: Setting, *, secrets: object) -> Any:
        self.settings.append(setting)
        place = (setting.pipeline, plugin.name)
        made = Forgetful(plugin.name, self.asked, self.closed, self.errors.get(place))
        made.mark = self.marks.get(place)
        made.clumsy = self.clumsy
        return made

    def run(self, *, stopped: bool = False) -> TaskEnded:
        sinks = tuple(PluginSpec(name=name, plugin="Console") for name in ("A", "B"))
        payload = ForgetPayload(
            job="j1",
            incarnation="i1",
            env=EnvSpec(),
            pipelines=tuple(PipelineSpec(number=n, sources=SOURCES, sinks=sinks) for n in (1, 2)),
            up_to=7,
            completed=self.completed,
            owners=("i1", "i2"),
        )
        task = Assignment(
            claim=Claim("t", 1),
            kind=TaskKind.FORGET,
            lane=Lane.CONTROL,
            payload=payload.model_dump(mode="json"),
        )
        runner = Runner(cast("Any", None), SystemClock(), warehouse="file:/nowhere")

        def forget(execution: Execution) -> Any:
            if stopped:
                execution.stop()
            try:
                return runner.forget(execution)
            finally:
                self.steps.append(execution.progress.step)

        execution = Execution(task, self.outbox, forget)
        execution.start()
        assert execution.ended.wait(BOUND_S)
        [end] = self.outbox.pending(10)
        assert isinstance(end, TaskEnded)
        return end


def no_session(_spark: object, _execution: str) -> nullcontext[None]:
    return nullcontext()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(tmp_path)
    monkeypatch.setattr(runner_module, "make_sink", made.make_sink)
    monkeypatch.setattr(runner_module, "task_session", no_session)
    yield made
    made.outbox.close()


@pytest.mark.req("C2")
def test_every_sink_of_every_pipeline_is_asked(desk: Desk) -> None:
    assert desk.run().outcome == "SUCCESS"

    assert [(name, at.pipeline) for name, at, _ in desk.asked] == [
        ("A", 1),
        ("B", 1),
        ("A", 2),
        ("B", 2),
    ]
    assert {(at.incarnation, at.epoch, at.execution) for _, at, _ in desk.asked} == {
        ("i1", 7, "t.1")
    }
    assert all(owners == ("i1", "i2") for _, _, owners in desk.asked)
    assert [(s.job, s.incarnation, s.pipeline) for s in desk.settings] == [
        ("j1", "i1", n) for n in (1, 1, 2, 2)
    ]
    assert desk.steps == ["forgetting B of pipeline 2"]
    assert desk.closed == ["A", "B", "A", "B"]


@pytest.mark.req("C4")
def test_a_sink_that_fails_holds_up_no_other_and_each_one_is_told(desk: Desk) -> None:
    desk.errors = {(1, "A"): Unavailable("the catalog is away"), (2, "B"): Refused("not spent")}

    end = desk.run()

    assert len(desk.asked) == 4
    assert (end.outcome, end.retry) == ("FAILED", True)
    assert end.error == (
        "not all that job j1 left behind is deleted: "
        "A of pipeline 1: the catalog is away; B of pipeline 2: not spent"
    )


def test_a_sink_that_cant_be_closed_has_forgotten_all_the_same(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.clumsy, desk.errors[2, "B"] = True, Refused("not spent")

    end = desk.run()

    assert (len(desk.asked), len(desk.closed)) == (4, 4)
    assert end.error == "not all that job j1 left behind is deleted: B of pipeline 2: not spent"
    assert caplog.messages.count("sink not closed") == 4


def test_a_stop_is_heard_between_two_sinks(desk: Desk) -> None:
    assert desk.run(stopped=True).outcome == "CANCELED"
    assert desk.asked == []


def test_a_sink_is_told_how_long_a_commit_may_take() -> None:
    plugin = PluginSpec(name="A", plugin="Console")
    spec = PipelineSpec(number=3, sources=SOURCES, sinks=(plugin,))
    payload = PipelinePayload(job="j", incarnation="i", env=EnvSpec(), pipeline=spec)
    given = payload.model_copy(update={"commit_deadline_s": 5.0})

    told = [
        settings_for(plugin, p, pipeline=3, warehouse="w", clock=SystemClock())
        for p in (payload, given)
    ]

    assert [setting.commit_deadline_s for setting in told] == [COMMIT_DEADLINE_S, 5.0]
    assert told[0].pipeline == 3


class Noting(Leader):
    """Notes when it gave a task."""

    gave_s: float | None = None

    def _answer(self, verb: str, body: bytes) -> str:
        if verb == "sync" and self.give:
            self.gave_s = CLOCK.monotonic_s()
        return super()._answer(verb, body)


@pytest.mark.req("C2", "E1")
def test_an_execution_knows_when_its_task_was_asked_for_not_when_it_was_begun(
    tmp_path: Path,
) -> None:
    """Between the two its worker may sleep until the marks of its job are gone."""
    leader, claim = Noting(), Claim("t", 1)
    with at_work(leader, tmp_path) as worker:
        given(leader, worker, claim)
        execution = worker.sync_loop._active[claim]  # pyright: ignore[reportPrivateUsage]

    assert leader.gave_s is not None
    assert execution.since is not None
    assert execution.since.monotonic_s <= leader.gave_s


@pytest.mark.req("E7")
def test_a_mark_of_rows_that_the_store_does_not_know_is_not_forgotten(desk: Desk) -> None:
    """It is all that keeps a restore from writing them a second time."""
    desk.completed = {1: 2}
    desk.marks = {
        (1, "A"): Mark(3, aborted=False),
        (1, "B"): Mark(3, aborted=True),
        (2, "A"): Mark(3, aborted=False),
    }

    end = desk.run()

    assert end.outcome == "FAILED"
    assert "A of pipeline 1: the target of sink A holds epoch 3, and the highest" in str(end.error)
    assert [(name, at.pipeline) for name, at, _ in desk.asked] == [("B", 1), ("A", 2), ("B", 2)]


@pytest.mark.req("E7")
@pytest.mark.parametrize("epoch", [2, 8], ids=["known", "of a run that a restore began since"])
def test_other_marks_are_forgotten_as_far_as_they_are_to_be(desk: Desk, epoch: int) -> None:
    desk.completed, desk.marks = {1: 2}, {(1, "A"): Mark(epoch, aborted=False)}

    assert desk.run().outcome == "SUCCESS"
