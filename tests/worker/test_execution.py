"""One attempt: what it says of its end, and how a failure reads."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ClaimLost, Refused
from headrace.model.task import FailureCause
from headrace.protocol.messages import (
    PAYLOAD_BYTES_MAX,
    REPORT_BYTES_PER_SYNC_MAX,
    Acknowledged,
    EpochPlan,
    Slice,
    TaskEnded,
)
from headrace.worker.execution import ERROR_CHARACTERS_MAX, Execution
from headrace.worker.outbox import Outbox
from tests.worker.leader import BOUND_S, assignment

Does = Callable[[Execution], Mapping[str, Any] | None]


class Bench:
    def __init__(self, home: Path) -> None:
        self.posted = threading.Event()
        self.outbox = Outbox(home / "w1", posted=self.posted.set)

    def make(
        self,
        run: Does,
        *,
        after: Sequence[Execution] = (),
        died_of: Callable[[], None] = lambda: None,
    ) -> Execution:
        def does(execution: Execution) -> Mapping[str, Any] | None:
            return run(execution)

        return Execution(
            assignment(),
            self.outbox,
            does,
            after=after,
            died_of=died_of,
        )

    def end(self, run: Does, *, died_of: Callable[[], None] = lambda: None) -> TaskEnded:
        execution = self.make(run, died_of=died_of)
        execution.start()
        assert execution.ended.wait(BOUND_S)
        [report] = self.outbox.pending(10)
        assert isinstance(report, TaskEnded)
        return report


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def raises(error: Exception) -> Does:
    def run(_: Execution) -> None:
        raise error

    return run


def test_what_a_task_returns_is_its_result(bench: Bench) -> None:
    end = bench.end(lambda _: {"outcome": "aborted"})

    assert (end.outcome, end.result, end.error) == ("SUCCESS", {"outcome": "aborted"}, None)


def test_a_result_that_no_coordinator_takes_is_a_failure_and_not_said_for_ever(
    bench: Bench,
) -> None:
    end = bench.end(lambda _: {"found": "x" * REPORT_BYTES_PER_SYNC_MAX})

    assert (end.outcome, end.result, end.retry) == ("FAILED", None, False)
    assert f"{REPORT_BYTES_PER_SYNC_MAX} are the limit" in (end.error or "")


def test_a_result_that_can_not_be_told_is_a_failure(bench: Bench) -> None:
    end = bench.end(lambda _: {"found": object()})
    assert (end.outcome, end.retry) == ("FAILED", True)
    assert end.error == "its end could not be told: ValidationError; see its log"


def test_a_task_that_ends_its_thread_has_failed(bench: Bench) -> None:
    end = bench.end(lambda _: sys.exit(3))
    assert (end.outcome, end.error) == (
        "FAILED",
        "its end could not be told: SystemExit; see its log",
    )


def test_a_failure_that_can_not_be_looked_into_is_a_failure(bench: Bench) -> None:
    def asks_the_jvm() -> None:
        raise ConnectionError("the gateway is gone")

    end = bench.end(raises(ValueError("secret")), died_of=asks_the_jvm)
    assert (end.outcome, end.error) == (
        "FAILED",
        "its end could not be told: ConnectionError; see its log",
    )


def test_a_refusal_is_not_to_be_tried_again_and_is_said_in_its_own_words(bench: Bench) -> None:
    end = bench.end(raises(Refused("there is no table x; create it first")))

    assert (end.outcome, end.retry) == ("FAILED", False)
    assert end.error == "there is no table x; create it first"


def test_any_other_failure_may_be_tried_again_and_names_its_kind(bench: Bench) -> None:
    end = bench.end(raises(OSError("disk full")))

    assert (end.outcome, end.retry) == ("FAILED", True)
    assert end.error == "OSError: disk full"


def test_a_java_trace_becomes_what_happened_and_what_caused_it(bench: Bench) -> None:
    trace = "\n".join(
        [
            "An error occurred while calling o12.save.",
            ": org.apache.spark.SparkException: Job aborted.",
            "\tat org.apache.spark.Something(Some.scala:1)",
            "Caused by: java.io.IOException: one",
            "\t... 12 more",
            "Caused by: java.io.IOException: No space left on device",
            "\tat java.base/java.io.Something(Native Method)",
        ]
    )
    end = bench.end(raises(RuntimeError(trace)))

    assert end.error == (
        "RuntimeError: An error occurred while calling o12.save. "
        ": org.apache.spark.SparkException: Job aborted. "
        "Caused by: java.io.IOException: No space left on device"
    )


def test_a_long_error_is_cut(bench: Bench) -> None:
    end = bench.end(raises(RuntimeError("x" * 10_000)))

    assert end.error is not None
    assert len(end.error) == ERROR_CHARACTERS_MAX


def test_whatever_a_stopped_task_raises_it_was_cancelled(bench: Bench) -> None:
    def run(execution: Execution) -> None:
        execution.stop()
        raise RuntimeError("Job 7 cancelled part of cancelled job tags")

    end = bench.end(run)

    assert (end.outcome, end.error) == ("CANCELED", None)


def test_a_task_that_was_stopped_before_it_began_never_runs(bench: Bench) -> None:
    ran: list[bool] = []
    execution = bench.make(lambda _: ran.append(True))
    execution.stop()
    execution.start()

    assert execution.ended.wait(BOUND_S)
    assert ran == []


def test_a_task_that_is_stopped_silently_says_nothing(bench: Bench) -> None:
    execution = bench.make(lambda execution: execution.stop(silently=True))
    execution.start()

    assert execution.ended.wait(BOUND_S)
    assert bench.outbox.pending(10) == []


def test_the_plan_that_comes_back_is_the_one_to_run(bench: Bench) -> None:
    granted: list[EpochPlan] = []

    def run(execution: Execution) -> None:
        granted.append(
            execution.granted_plan(execution.propose(1, EpochPlan(slices={}, now_ms=222)))
        )

    answer_first(bench, run, Acknowledged(seq=1, held=True, plan={"slices": {}, "now_ms": 111}))

    assert granted == [EpochPlan(slices={}, now_ms=111)]


def test_a_lost_claim_ends_the_work_before_anything_is_committed(bench: Bench) -> None:
    committed: list[bool] = []

    def run(execution: Execution) -> None:
        execution.wait_until_prepared(execution.prepare(1, {}))
        committed.append(True)

    answer_first(bench, run, Acknowledged(seq=1, held=False))

    assert committed == []
    [end] = bench.outbox.pending(10)
    assert isinstance(end, TaskEnded)
    assert end.error == str(ClaimLost("t", 1))


@pytest.mark.parametrize("what", ["plan", "stage handles"])
def test_what_is_too_large_to_be_recorded_is_refused_before_it_is_posted(
    bench: Bench, what: str
) -> None:
    large = "x" * PAYLOAD_BYTES_MAX

    def run(execution: Execution) -> None:
        if what == "plan":
            execution.propose(3, EpochPlan(slices={"s": Slice(data=large, after=1)}, now_ms=0))
        else:
            execution.prepare(3, {"Iceberg-1": large})

    end = bench.end(run)

    assert (end.outcome, end.retry) == ("FAILED", False)
    assert end.error is not None
    assert re.match(rf"the {what} of epoch 3 takes 4000\d\d\d? bytes, and 4000000 are", end.error)


@pytest.mark.parametrize("error", [Refused("no"), OSError("full")])
def test_only_a_failure_that_is_not_a_refusal_is_logged_with_its_trace(
    bench: Bench, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    bench.end(raises(error))

    [record] = [record for record in caplog.records if record.getMessage() == "execution failed"]
    assert (record.exc_info is None) == isinstance(error, Refused)
    assert record.__dict__["reason"] == str(error)


def answer_first(bench: Bench, run: Does, answer: Acknowledged) -> None:
    """Acknowledge the first report of an execution as soon as it is made."""
    execution = bench.make(run)
    execution.start()
    assert bench.posted.wait(BOUND_S)
    bench.outbox.acknowledge([answer])
    assert execution.ended.wait(BOUND_S)


# As Spark and py4j write them.
HEAP = "java.lang.OutOfMemoryError: Java heap space"
IN_A_TASK = (
    "An error occurred while calling o66.append.\n: org.apache.spark.SparkException: Job aborted "
    "due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 "
    f"in stage 1.0 (TID 1) (10.0.0.1 executor 3): {HEAP}\n\tat java.base/java.util.Arrays.copyOf"
)
IN_THE_DRIVER = f"An error occurred while calling o12.count.\n: {HEAP}\n\tat org.apache.spark.X.y"


def wrapped(text: str) -> Refused:
    """As sinks and transforms tell what Spark told them."""
    made = Refused("the rows can't be staged")
    made.__cause__ = RuntimeError(text)
    return made


@pytest.mark.parametrize(
    "error",
    [RuntimeError(IN_A_TASK), RuntimeError(IN_THE_DRIVER), wrapped(IN_A_TASK)],
    ids=["task", "driver", "wrapped"],
)
def test_memory_that_ran_out_is_no_error_of_the_job(bench: Bench, error: Exception) -> None:
    end = bench.end(raises(error))

    assert (end.outcome, end.cause, end.retry) == ("FAILED", FailureCause.OUT_OF_MEMORY, True)
    assert (end.error or "").startswith(
        "Spark's JVM ran out of memory (java.lang.OutOfMemoryError)"
    )


@pytest.mark.parametrize(
    "text",
    ["no memory", "org.apache.spark.memory.SparkOutOfMemoryError: no 64 bytes", "OutOfMemoryError"],
)
def test_other_errors_are_the_jobs_own(bench: Bench, text: str) -> None:
    end = bench.end(raises(RuntimeError(text)))

    assert (end.cause, end.retry) == (FailureCause.ERROR, True)


class Silenced(Exception):
    """As an error of Java whose JVM is gone: its words were never fetched."""

    def __str__(self) -> str:
        raise ConnectionRefusedError


def test_an_error_whose_words_went_with_the_jvm_is_said_all_the_same(bench: Bench) -> None:
    end = bench.end(raises(Silenced()))

    assert end.outcome == "FAILED"
    assert end.error == "Silenced: Silenced, and the JVM is gone that could say more"
