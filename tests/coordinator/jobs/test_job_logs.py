"""What `headrace job logs` has to show: written with what it tells of, once, until it expires."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.coordinator.jobs import cleanup
from headrace.coordinator.jobs.cleanup import Expiry
from headrace.coordinator.jobs.job_log import TRIM_AFTER_LINES
from headrace.coordinator.sync.answers import BatchEffects
from headrace.protocol.messages import LINE_CHARS_MAX, LINES_PER_SYNC_MAX, Answer, LogLine
from headrace.store.core.engine import reading
from headrace.store.core.transactions import fenced
from headrace.store.jobs import history, job_logs
from headrace.store.jobs.job_logs import LOG_LINES_KEPT, Line
from headrace.store.tasks import claims
from tests.coordinator.jobs.ended import DELAY_S, finished, rows, wait_and_clean
from tests.coordinator.leader_harness import RETENTION, LeaderHarness
from tests.coordinator.specs import failed, planned, settled, spec


def lines_of(desk: LeaderHarness, job: str) -> Sequence[Line]:
    with reading(desk.store) as conn:
        return job_logs.last(conn, desk.job(job).incarnation, most=2 * LOG_LINES_KEPT)[0]


def told(desk: LeaderHarness, job: str, *, level: str | None = None) -> list[str]:
    return [each.text for each in lines_of(desk, job) if level in {None, each.level}]


def line(desk: LeaderHarness, job: str, number: int, text: str = "said") -> LogLine:
    owner = desk.job(job).incarnation
    at_ms = desk.clock.wall_ms() + number
    return LogLine(incarnation=owner, number=number, at_ms=at_ms, level="INFO", text=text)


def say(desk: LeaderHarness, *lines: LogLine, worker: str = "w1", lost: bool = False) -> Answer:
    """A worker goes on with all it was given, and says these lines."""
    with reading(desk.store) as conn:
        holds = [task.claim for task in claims.assigned_to(conn, [worker])]
    said = desk.say(worker, holds=holds, free={}).model_copy(update={"lines": lines})
    [answer] = desk.answer(said, lost=lost)
    return answer


def of_worker(desk: LeaderHarness, job: str, worker: str = "w1") -> list[str]:
    return [each.text for each in lines_of(desk, job) if each.source == worker]


def test_lines_that_are_said_twice_are_kept_once_and_acknowledged_each_time(
    desk: LeaderHarness,
) -> None:
    job, _ = desk.given()

    first = say(desk, line(desk, job, 1, "a"), line(desk, job, 2, "b"), lost=True)
    again = say(desk, line(desk, job, 1, "a"), line(desk, job, 2, "b"), line(desk, job, 3, "c"))

    assert (first.lines, again.lines) == (2, 3)
    assert of_worker(desk, job) == ["a", "b", "c"]


def test_two_workers_count_for_themselves(desk: LeaderHarness) -> None:
    job, _ = desk.given()

    say(desk, line(desk, job, 1, "of w1"))
    say(desk, line(desk, job, 1, "of w2"), worker="w2")

    assert (of_worker(desk, job), of_worker(desk, job, "w2")) == (["of w1"], ["of w2"])


@pytest.mark.req("C1")
def test_lines_of_a_job_that_nobody_knows_write_nothing_and_are_acknowledged(
    desk: LeaderHarness,
) -> None:
    desk.register("w1")
    unknown = LogLine(incarnation="gone", number=9, at_ms=1, level="INFO", text="late")

    assert say(desk, unknown).lines == 9

    with reading(desk.store) as conn:
        assert job_logs.last(conn, "gone", most=10) == ([], {})


def test_a_sync_without_lines_asks_the_store_for_nothing_more(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.register("w1")
    asked: list[object] = []

    def ask(*said: object, **_: object) -> None:
        asked.append(said)

    for name in ("add", "note", "trim"):
        monkeypatch.setattr(job_logs, name, ask)

    desk.sync("w1")

    assert asked == []


def test_a_job_keeps_its_last_lines_only(desk: LeaderHarness) -> None:
    job, _ = desk.given()
    number = LOG_LINES_KEPT + TRIM_AFTER_LINES

    for begin in range(1, number + 1, LINES_PER_SYNC_MAX):
        lines = [line(desk, job, begin + n, str(begin + n)) for n in range(LINES_PER_SYNC_MAX)]
        say(desk, *lines)

    kept = lines_of(desk, job)
    assert len(kept) == LOG_LINES_KEPT
    assert kept[-1].text == str(number)


def test_a_line_that_is_too_long_is_cut(desk: LeaderHarness) -> None:
    job, _ = desk.given()

    say(desk, line(desk, job, 1, "x" * 3 * LINE_CHARS_MAX))

    assert of_worker(desk, job) == ["x" * LINE_CHARS_MAX]


def test_the_life_of_a_job_is_told_by_whoever_led(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.passes()
    desk.take_over()
    desk.finish("w1", claim)
    desk.passes()

    # All of it in one millisecond: then it is in the order of sources.
    assert told(desk, job) == [
        "submitted: 'demo', 1 pipeline, group 'default'",
        "admitted: each pipeline has a slot",
        "job moved from SCHEDULED to RUNNING",
        "job moved from RUNNING to FINISHED",
        "pipeline 1: attempt 1 is given to worker w1",
        "pipeline 1: done, everything is read and committed",
    ]


def test_a_job_that_waits_says_so_once(desk: LeaderHarness) -> None:
    job = desk.submit(spec(pipelines=2))
    desk.passes()
    desk.register("w1", slots=1)
    desk.passes()

    [waits] = [text for text in told(desk, job) if text.startswith("waits for")]
    assert "2 free slots in group 'default'" in waits


def test_each_failed_attempt_is_told_with_its_reason_and_what_follows(desk: LeaderHarness) -> None:
    job, first = desk.given(spec(retry_times=1, retry_interval_s=30))
    desk.report("w1", failed(first, "the disk is full"))
    desk.clock.advance(30)
    second = desk.claimed("w1")
    desk.sync("w1", holds=[second], free={})
    desk.report("w1", failed(second, "the disk is still full"))
    desk.passes()

    assert told(desk, job, level="WARNING") == [
        "pipeline 1: attempt 1 failed, and is tried again in 30 s, at 2023-11-14T22:13:50Z "
        "(attempt 2 of 2, from epoch 1): the disk is full"
    ]
    assert told(desk, job, level="ERROR") == [
        "job moved from SCHEDULED to FAILING: the disk is still full",
        "job moved from FAILING to FAILED: the disk is still full",
        "pipeline 1: attempt 2 failed, and is not tried again: the disk is still full",
    ]


def test_what_was_asked_and_what_was_settled_is_told(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.commands.cancel(job)
    desk.passes()
    desk.report("w1", failed(claim))
    desk.passes()
    settle = desk.claimed("w1")
    desk.report("w1", settled(settle, 1))
    desk.passes()

    lines = told(desk, job)
    assert "cancel is wanted" in lines
    assert "settling pipeline 1: epoch 1 is aborted" in lines
    assert "job moved from CANCELING to CANCELED" in lines


def test_a_line_that_can_not_be_kept_stops_nothing(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, claim = desk.given()

    def breaks(*_: object, **__: object) -> None:
        raise ValueError("poison")

    monkeypatch.setattr(job_logs, "add", breaks)
    said = desk.say("w1", holds=[claim], free={}, reports=[planned(claim)])
    said = said.model_copy(update={"lines": (line(desk, job, 1),)})
    with fenced(desk.store, desk.term) as conn:
        [answer] = desk.dispatch.answer(conn, [said], BatchEffects(), apart=True)

    assert answer.lines == 1
    assert [each.held for each in answer.acknowledged] == [True]


@pytest.mark.req("C2")
def test_the_story_of_a_job_outlives_its_state(desk: LeaderHarness) -> None:
    job = finished(desk)
    incarnation = desk.job(job).incarnation
    before = told(desk, job)
    wait_and_clean(desk)
    assert rows(desk) == {}

    desk.clock.advance(RETENTION.job_log_expire_ms / 1000 - DELAY_S - 1)
    desk.clean()
    assert kept_of(desk, incarnation) == before
    desk.clock.advance(1)
    desk.clean()
    assert kept_of(desk, incarnation) == []


@pytest.mark.req("C2")
def test_history_is_kept_for_a_week_and_goes_in_batches(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EXPIRED_AT_ONCE_MAX", 1)
    for _ in range(2):
        finished(desk)
        desk.clock.advance(1)
    week_s = 7 * 24 * 3600.0
    desk.clock.advance(week_s - 3)
    desk.clean()
    assert rows(desk, "history") == {"history": 2}

    left: list[int] = []
    desk.clock.advance(3)
    for _ in range(2):
        desk.clean()
        left.append(rows(desk, "history").get("history", 0))
    assert left == [1, 0]


@pytest.mark.req("C2")
def test_of_too_many_lines_of_all_jobs_the_oldest_go_whoever_led_before(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "COUNTED_AT_ONCE", 3)
    old, new = desk.submit(), desk.submit()
    desk.register("w1")
    for number in range(1, 6):
        desk.clock.advance(1)
        say(desk, line(desk, old, number, f"old {number}"))
    for number in range(6, 11):
        desk.clock.advance(1)
        say(desk, line(desk, new, number, f"new {number}"))

    desk.expiry = Expiry(desk.clock, RETENTION, log_lines_max=7)
    for _ in range(5):  # it counts three of them in each pass
        desk.clean()

    assert of_worker(desk, old) == ["old 4", "old 5"]
    assert of_worker(desk, new) == [f"new {number}" for number in range(6, 11)]


def test_who_follows_a_job_that_was_quiet_for_long_sees_what_is_said_next(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    with reading(desk.store) as conn:
        before, seen = job_logs.last(conn, desk.job(job).incarnation, most=100)
    assert {each.source for each in before} >= {"coordinator", f"coordinator/{claim.task}"}
    desk.clock.advance(RETENTION.job_log_expire_ms / 1000 + 1)
    desk.sync("w1", holds=[claim], free={})
    desk.clean()
    assert lines_of(desk, job) == []

    desk.report("w1", failed(claim, "disk full"))
    desk.commands.cancel(job)

    with reading(desk.store) as conn:
        lines, _ = job_logs.after(conn, desk.job(job).incarnation, seen, most=100)
    sources = [each.source for each in lines]
    assert sorted(sources) == ["coordinator", f"coordinator/{claim.task}"], [*lines]


@pytest.mark.req("C2")
def test_too_many_lines_of_one_moment_go_and_no_more_than_too_many(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "COUNTED_AT_ONCE", 3)
    monkeypatch.setattr(job_logs, "EXPIRED_AT_ONCE_MAX", 2)
    job = desk.submit()
    desk.register("w1")
    say(desk, *(line(desk, job, number, f"line {number}") for number in range(1, 13)))

    desk.expiry = Expiry(desk.clock, RETENTION, log_lines_max=7)
    left: list[int] = []
    for _ in range(9):
        desk.clean()
        left.append(rows(desk, "job_logs")["job_logs"])

    assert left == [13, 13, 13, 13, 11, 9, 7, 7, 7]


@pytest.mark.req("C2")
def test_lines_from_before_a_clock_was_set_back_are_kept_as_long_as_others(
    desk: LeaderHarness,
) -> None:
    job = desk.submit()
    desk.register("w1")
    say(desk, line(desk, job, 1, "said tomorrow"))
    desk.clock.set_wall(desk.clock.wall_ms() - 24 * 3_600_000)
    desk.clean()

    desk.clock.advance(RETENTION.job_log_expire_ms / 1000 - 1)
    desk.clean()
    assert of_worker(desk, job) == ["said tomorrow"]
    desk.clock.advance(1)
    desk.clean()
    assert of_worker(desk, job) == []


def kept_of(desk: LeaderHarness, incarnation: str) -> list[str]:
    with reading(desk.store) as conn:
        return [each.text for each in job_logs.last(conn, incarnation, most=5000)[0]]
