"""InMemory fails where it is told to, with errors that are retried."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.in_memory.sink import InMemorySink
from headrace.errors import HeadraceError
from tests.spark.settings import at, setting

SLEEP_S = 0.2
LONG_S = 300.0  # longer than a commit that does not sleep can take


def sink(*, sleep_s: float = SLEEP_S, **options: Any) -> InMemorySink:
    return InMemorySink("InMemory-1", *setting("InMemory", "sink", options), sleep_s=sleep_s)


def test_rows_are_counted_and_forgotten(session: SparkSession) -> None:
    made = sink(sleep_s=LONG_S)
    staged = made.stage(session, session.range(7), at())
    began_s = time.monotonic()

    assert staged.rows == 7
    assert made.commit(session, staged.handle, at()).facts == {"rows": 7}
    assert time.monotonic() - began_s < LONG_S
    assert not made.opens
    made.finish(7)


@pytest.mark.parametrize(
    ("option", "error"), [("throw_exception", OSError), ("throw_out_of_memory", MemoryError)]
)
def test_a_stage_fails_so_that_it_is_retried(
    session: SparkSession, option: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"InMemory-1 was told to {option}") as raised:
        sink(**{option: True}).stage(session, session.range(1), at())
    assert not isinstance(raised.value, HeadraceError), "a Refused would end the job"


def test_a_commit_fails_after_a_stage_that_did_not(session: SparkSession) -> None:
    made = sink(throw_exception_of_committer=True)
    staged = made.stage(session, session.range(1), at())

    with pytest.raises(OSError, match="throw_exception_of_committer"):
        made.commit(session, staged.handle, at())


def test_each_attempt_fails_with_its_own_text_until_there_is_none(session: SparkSession) -> None:
    made = sink(throw_runtime_exception_list=["first", "second"])

    with pytest.raises(RuntimeError, match=r"^first$"):
        made.stage(session, session.range(1), at(execution="job.1.p.1"))
    with pytest.raises(RuntimeError, match=r"^second$"):
        made.stage(session, session.range(1), at(execution="job.1.p.2"))
    assert made.stage(session, session.range(1), at(execution="job.1.p.3")).rows == 1


def test_an_epoch_without_rows_fails_only_where_rows_play_no_part(session: SparkSession) -> None:
    patient = sink(throw_out_of_memory=True, throw_runtime_exception_list=["x"])

    assert patient.stage(session, session.range(0), at()).rows == 0
    with pytest.raises(OSError, match="throw_exception"):
        sink(throw_exception=True).stage(session, session.range(0), at())


def test_a_commit_sleeps(session: SparkSession) -> None:
    made = sink(checkpoint_sleep=True)
    staged = made.stage(session, session.range(1), at())
    began_s = time.monotonic()
    made.commit(session, staged.handle, at())

    assert time.monotonic() - began_s >= SLEEP_S
