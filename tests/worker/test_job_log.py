"""What is said about a job on its worker: caught, bounded, without secrets, said until taken."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from headrace.errors import Refused
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    LINE_CHARS_MAX,
    LINES_PER_SYNC_MAX,
    Assignment,
    LogLine,
    TaskEnded,
)
from headrace.worker import outbox as worker_outbox
from headrace.worker.execution import Execution
from headrace.worker.outbox import JobLog, Outbox
from headrace.worker.pipeline import CommitThread
from tests.fakes import FakeClock
from tests.worker.leader import BOUND_S, Leader, Worker, eventually

log = logging.getLogger("headrace.worker.somewhere")
OWNER = "incarnation-1"
PASSWORD = "hunter2-of-the-lake"


def assignment(task: str = "t", *, payload: dict[str, JsonValue] | None = None) -> Assignment:
    given: dict[str, JsonValue] = {"job": "j1", "incarnation": OWNER, "pipeline": {"number": 1}}
    return Assignment(
        claim=Claim(task, 1),
        kind=TaskKind.PIPELINE,
        lane=Lane.SLOT,
        payload=given if payload is None else payload,
    )


@pytest.fixture
def lines(clock: FakeClock) -> Iterator[JobLog]:
    """It listens, and knows of the execution t.1."""
    made = JobLog(clock)
    made.begin(assignment())
    with made.listening():
        yield made


def texts(lines: JobLog) -> list[str]:
    return [line.text for line in lines.pending()]


def test_a_record_that_names_its_execution_is_said_of_its_job(
    lines: JobLog, clock: FakeClock
) -> None:
    log.info("task taken", extra={"execution": "t.1", "kind": "PIPELINE"})

    assert lines.pending() == [
        LogLine(
            incarnation=OWNER,
            number=1,
            at_ms=clock.wall_ms(),
            level="INFO",
            text="task taken  execution=t.1 kind=PIPELINE",
        )
    ]


def test_what_belongs_to_no_job_or_is_no_news_is_not_caught(lines: JobLog) -> None:
    lines.begin(assignment("noop", payload={}))
    log.info("registered", extra={"worker": "w1"})
    log.info("of another worker", extra={"execution": "unknown.1"})
    log.info("of no job", extra={"execution": "noop.1"})
    log.debug("a detail", extra={"execution": "t.1"})
    logging.getLogger("py4j").error("not ours", extra={"execution": "t.1"})

    assert texts(lines) == []


def test_a_thread_of_an_execution_speaks_for_it_and_so_does_its_tail(
    lines: JobLog, tmp_path: Path
) -> None:
    def run(execution: Execution) -> Mapping[str, Any] | None:
        log.warning("files came in too late")
        tail = CommitThread("tail", waiting=lambda: None)
        tail.begin(lambda: log.warning("commit not confirmed"))
        tail.join()
        tail.end()
        return None

    execution = Execution(assignment(), Outbox(tmp_path / "w1", posted=lambda: None), run)
    execution.start()
    assert execution.ended.wait(BOUND_S)
    log.warning("said by nobody's thread")

    assert texts(lines) == ["files came in too late", "commit not confirmed"]


def test_lines_are_said_until_they_are_taken(lines: JobLog) -> None:
    for number in range(LINES_PER_SYNC_MAX + 5):
        log.info("line %s", number, extra={"execution": "t.1"})

    first = lines.pending()
    assert len(first) == LINES_PER_SYNC_MAX
    assert lines.pending() == first
    lines.acknowledge(first[-1].number)
    assert [line.number for line in lines.pending()] == [first[-1].number + n for n in range(1, 6)]
    lines.acknowledge(0)  # a coordinator that knows nothing of lines
    assert len(lines.pending()) == 5


def test_when_nobody_takes_them_the_oldest_are_dropped_and_one_line_says_how_many(
    lines: JobLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_outbox, "LINES_BUFFERED_MAX", 3)
    for _ in range(5):
        log.info("said", extra={"execution": "t.1"})

    [lost, *kept] = lines.pending()
    assert (lost.number, lost.level) == (2, "WARNING")
    assert lost.text == "2 lines are lost: no coordinator took them in time"
    assert [line.number for line in kept] == [3, 4, 5]

    lines.acknowledge(5)
    assert lines.pending() == []


def test_secrets_are_redacted_by_name_and_by_value(lines: JobLog) -> None:
    secrets: JsonValue = {"Jdbc-1.password": PASSWORD, "Jdbc-1.more": {"key": [f"{PASSWORD}-2"]}}
    payload: dict[str, JsonValue] = {"job": "j1", "incarnation": OWNER, "secrets": secrets}
    lines.begin(assignment("s", payload=payload))

    log.error("refused", extra={"execution": "s.1", "reason": f"no user x with {PASSWORD}-2"})
    log.error("refused", extra={"execution": "s.1", "auth_token": "abcd"})
    log.error("login as x:%s failed", PASSWORD, extra={"execution": "s.1"})

    assert texts(lines) == [
        "refused  execution=s.1 reason=no user x with ******",
        "refused  execution=s.1 auth_token=******",
        "login as x:****** failed  execution=s.1",
    ]


def test_a_secret_in_an_error_is_not_reported_either(tmp_path: Path) -> None:
    def run(execution: Execution) -> Mapping[str, Any] | None:
        raise Refused(f"can't log in with {PASSWORD}")

    payload: dict[str, JsonValue] = {"secrets": {"Jdbc-1.password": PASSWORD}}
    outbox = Outbox(tmp_path / "w1", posted=lambda: None)
    execution = Execution(assignment(payload=payload), outbox, run)
    execution.start()
    assert execution.ended.wait(BOUND_S)

    [end] = outbox.pending(1)
    assert isinstance(end, TaskEnded)
    assert end.error == "can't log in with ******"


def test_a_line_is_one_line_that_every_store_and_message_can_hold(lines: JobLog) -> None:
    trace = "it broke\n\tat org.apache.Spark.run(Spark.scala:1)\n... 3 more\nCaused by: disk full"
    log.error("execution failed", extra={"execution": "t.1", "reason": trace})
    about = {"execution": "t.1"}
    # Not by the logger: whoever runs the tests hears that too, and can't send it on.
    lines.handle(
        log.makeRecord(log.name, logging.INFO, "", 0, "a\0b \udcff", (), None, extra=about)
    )
    log.info("x" * 3 * LINE_CHARS_MAX, extra={"execution": "t.1"})
    gone = OSError("the share is gone")
    log.error("staged files not swept", extra={"execution": "t.1"}, exc_info=gone)

    failed, odd, long, swept = lines.pending()
    assert failed.text == "execution failed  execution=t.1 reason=it broke Caused by: disk full"
    assert odd.text == "ab ?  execution=t.1"
    assert odd.model_dump_json()
    assert len(long.text) == LINE_CHARS_MAX
    assert swept.text.endswith("execution=t.1 error=OSError: the share is gone")


def test_all_is_heard_however_little_the_worker_itself_writes(clock: FakeClock) -> None:
    ours = logging.getLogger("headrace")
    ours.setLevel(logging.ERROR)
    made = JobLog(clock)
    made.begin(assignment())

    with made.listening():
        log.info("heard", extra={"execution": "t.1"})
    log.info("not heard any more", extra={"execution": "t.1"})

    assert texts(made) == ["heard  execution=t.1"]
    assert (ours.level, made in ours.handlers) == (logging.ERROR, False)


def test_executions_that_ended_long_ago_are_forgotten(
    lines: JobLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_outbox, "ENDED_REMEMBERED_MAX", 1)
    lines.begin(assignment("u"))
    lines.begin(assignment("v"))

    lines.end(["v.1"])
    for execution in ("t.1", "u.1", "v.1"):
        log.info("said", extra={"execution": execution})

    assert texts(lines) == ["said  execution=u.1", "said  execution=v.1"]


def test_a_host_says_lines_with_its_syncs_and_the_last_with_its_goodbye(
    leader: Leader, worker: Worker
) -> None:
    with worker.sync_loop.job_log.listening():
        leader.give = [assignment()]
        eventually(lambda: "t.1" in worker.work.started)
        leader.rounds()  # an old coordinator takes none: they are said again and again
        assert [line.text for line in leader.syncs()[-1].lines] == [
            "task taken  execution=t.1 kind=PIPELINE"
        ]
        leader.lines_taken = 1
        eventually(lambda: leader.syncs()[-1].lines == ())

        stopped = threading.Thread(target=worker.stop)
        log.info("the last word", extra={"execution": "t.1"})
        stopped.start()
        stopped.join(BOUND_S)

    said = [line.text for each in leader.said for line in getattr(each, "lines", ())]
    assert said[-1] == "the last word  execution=t.1"
