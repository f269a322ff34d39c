"""Where a job stands, from where its pipelines stand."""

from __future__ import annotations

from itertools import product

import pytest

from headrace.errors import IllegalTransition
from headrace.model.jobs.status import (
    JOB_ENDED,
    JOB_TRANSITIONS,
    JobStatus,
    PipelineStatus,
    check_job_transition,
    next_job_status,
)

J, P = JobStatus, PipelineStatus
EVERY_PAIR = [list(pair) for pair in product(P, repeat=2)]


FLAGS = [
    dict(zip(("cancel", "savepoint", "saved"), f, strict=True))
    for f in product((False, True), repeat=3)
]


def step(
    current: JobStatus,
    *pipelines: PipelineStatus,
    cancel: bool = False,
    savepoint: bool = False,
    saved: bool = False,
) -> JobStatus:
    return next_job_status(
        current, pipelines, cancel_wanted=cancel, savepoint_wanted=savepoint, saved=saved
    )


@pytest.mark.parametrize("current", sorted(JOB_ENDED))
def test_a_job_that_has_ended_stays_as_it_is(current: JobStatus) -> None:
    for pair, flags in product(EVERY_PAIR, FLAGS):
        assert step(current, *pair, **flags) is current


@pytest.mark.parametrize("current", list(J))
def test_every_step_is_one_that_the_machine_allows(current: JobStatus) -> None:
    for pair, flags in product(EVERY_PAIR, FLAGS):
        target = step(current, *pair, **flags)
        if target is not current:
            check_job_transition("j", current, target)


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize(
    "current", [J.SCHEDULED, J.RUNNING, J.DOING_SAVEPOINT, J.CANCELING, J.FAILING]
)
def test_a_job_whose_pipelines_have_ended_ends_within_three_steps(
    current: JobStatus, flags: dict[str, bool]
) -> None:
    for pair in product([P.FINISHED, P.FAILED], repeat=2):
        status = current
        for _ in range(3):
            status = step(status, *pair, **flags)
        assert status in JOB_ENDED


@pytest.mark.parametrize(
    ("current", "pipelines", "cancel", "expected"),
    [
        (J.SCHEDULED, [P.SCHEDULED, P.RUNNING], False, J.RUNNING),
        (J.SCHEDULED, [P.DEPLOYING, P.INITIALIZING], False, J.SCHEDULED),
        (J.SCHEDULED, [P.FINISHED, P.DEPLOYING], False, J.RUNNING),
        (J.SCHEDULED, [P.FINISHED, P.FINISHED], False, J.FINISHED),
        (J.RUNNING, [P.FINISHED, P.RUNNING], False, J.RUNNING),
        (J.RUNNING, [P.RUNNING, P.RUNNING], True, J.CANCELING),
        (J.RUNNING, [P.FINISHED, P.FINISHED], True, J.FINISHED),
        (J.RUNNING, [P.FAILING, P.RUNNING], False, J.FAILING),
        (J.RUNNING, [P.FAILING, P.RUNNING], True, J.FAILING),
        (J.PENDING, [P.CREATED, P.CREATED], True, J.CANCELING),
        (J.CANCELING, [P.FAILED, P.CANCELED], True, J.CANCELED),
        (J.CANCELING, [P.FINISHED, P.RUNNING], True, J.CANCELING),
        (J.FAILING, [P.FAILED, P.RUNNING], True, J.FAILING),
        (J.FAILING, [P.FAILED, P.CANCELED], True, J.FAILED),
    ],
)
def test_a_job_follows_its_pipelines(
    current: JobStatus, pipelines: list[PipelineStatus], *, cancel: bool, expected: JobStatus
) -> None:
    assert step(current, *pipelines, cancel=cancel) is expected


@pytest.mark.req("K7")
@pytest.mark.parametrize(
    ("current", "pipelines", "flags", "expected"),
    [
        # It is begun by a job that runs, and by no other.
        (J.CREATED, [P.CREATED, P.CREATED], {"savepoint"}, J.CREATED),
        (J.SCHEDULED, [P.SCHEDULED, P.INITIALIZING], {"savepoint"}, J.SCHEDULED),
        (J.SCHEDULED, [P.RUNNING, P.SCHEDULED], {"savepoint"}, J.RUNNING),
        (J.RUNNING, [P.RUNNING, P.SCHEDULED], {"savepoint"}, J.DOING_SAVEPOINT),
        (J.RUNNING, [P.FINISHED, P.RUNNING], {"savepoint"}, J.DOING_SAVEPOINT),
        (J.DOING_SAVEPOINT, [P.RUNNING, P.FINISHED], {"savepoint"}, J.DOING_SAVEPOINT),
        # It ends SAVEPOINT_DONE, or FINISHED when there was nothing left to save.
        (J.DOING_SAVEPOINT, [P.FINISHED, P.FINISHED], {"savepoint", "saved"}, J.SAVEPOINT_DONE),
        (J.DOING_SAVEPOINT, [P.FINISHED, P.FINISHED], {"savepoint"}, J.FINISHED),
        (J.RUNNING, [P.FINISHED, P.FINISHED], {"savepoint"}, J.FINISHED),
        (J.SCHEDULED, [P.FINISHED, P.FINISHED], {"savepoint"}, J.FINISHED),
        # A pipeline that was saved is never taken for one that has read everything.
        (J.RUNNING, [P.FINISHED, P.FINISHED], {"savepoint", "saved"}, J.DOING_SAVEPOINT),
        # A cancel beats it, until all is read; a failure does, too.
        (J.RUNNING, [P.RUNNING, P.RUNNING], {"savepoint", "cancel"}, J.CANCELING),
        (J.DOING_SAVEPOINT, [P.RUNNING, P.FINISHED], {"savepoint", "cancel"}, J.CANCELING),
        (
            J.DOING_SAVEPOINT,
            [P.FINISHED, P.FINISHED],
            {"savepoint", "saved", "cancel"},
            J.CANCELING,
        ),
        (J.DOING_SAVEPOINT, [P.FINISHED, P.FINISHED], {"savepoint", "cancel"}, J.FINISHED),
        (J.DOING_SAVEPOINT, [P.FAILING, P.FINISHED], {"savepoint"}, J.FAILING),
        (J.DOING_SAVEPOINT, [P.FAILED, P.RUNNING], {"savepoint", "cancel"}, J.FAILING),
        (J.CANCELING, [P.FINISHED, P.CANCELED], {"savepoint", "saved", "cancel"}, J.CANCELED),
    ],
)
def test_a_savepoint_ends_a_job_that_runs(
    current: JobStatus, pipelines: list[PipelineStatus], flags: set[str], expected: JobStatus
) -> None:
    assert step(current, *pipelines, **dict.fromkeys(flags, True)) is expected


def test_an_illegal_change_names_the_job_and_both_states() -> None:
    with pytest.raises(IllegalTransition, match="job 'j' is FINISHED and can not become RUNNING"):
        check_job_transition("j", J.FINISHED, J.RUNNING)


def test_every_status_has_its_transitions_and_only_ended_ones_have_none() -> None:
    assert JOB_TRANSITIONS.keys() == set(J)
    assert {status for status, targets in JOB_TRANSITIONS.items() if not targets} == JOB_ENDED
