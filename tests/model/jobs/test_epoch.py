"""What an epoch is called at a target, and how long what it leaves there is kept."""

from __future__ import annotations

from itertools import pairwise

from headrace.model.jobs.epoch import (
    RETRY_PAUSE_MAX_MS,
    RETRY_PAUSE_MS,
    CommitAt,
    Deadline,
    EpochAt,
    Retention,
    former_key,
    incarnation_of,
    now,
    retry_pause_ms,
)
from tests.fakes import FakeClock

EPOCH = EpochAt("i1", pipeline=2, epoch=7, execution="t1.1")


def test_the_token_of_an_epoch_is_the_same_whoever_executes_it() -> None:
    again = EpochAt("i1", pipeline=2, epoch=7, execution="t1.2")

    assert EPOCH.token == again.token == "i1/2/7"


def test_each_sink_has_a_token_of_its_own() -> None:
    commit = CommitAt(EPOCH, "Iceberg-1")

    assert commit.token == "i1/2/7/Iceberg-1"
    assert (commit.epoch, commit.execution) == (7, "t1.1")
    assert commit.token != CommitAt(EPOCH, "Iceberg-2").token


def test_marks_outlive_the_last_commit_by_any_clock() -> None:
    kept = Retention(commit_deadline_ms=90_000)

    assert kept.commit_deadline_s == 90
    assert kept.marks_kept_ms == 180_000


def test_sinks_of_a_former_run_have_a_record_of_their_own() -> None:
    key = former_key("i1", 3)

    assert key != former_key("i1", 4)
    assert incarnation_of(key) == incarnation_of("i1") == "i1"


def test_a_cleanup_that_fails_waits_longer_each_time_up_to_a_limit() -> None:
    pauses = [retry_pause_ms(failures) for failures in range(1, 100)]

    assert pauses[0] == RETRY_PAUSE_MS
    assert all(later == min(2 * earlier, RETRY_PAUSE_MAX_MS) for earlier, later in pairwise(pauses))


def test_a_deadline_is_said_in_seconds() -> None:
    clock = FakeClock()

    assert str(Deadline(clock, now(clock), 3600)) == "3600 s"
