"""Where a job stands, from where its pipelines stand."""

from __future__ import annotations

from itertools import product

import pytest

from headrace.errors import IllegalTransition
from headrace.model.job import (
    JOB_ENDED,
    JOB_TRANSITIONS,
    JobStatus,
    PipelineStatus,
    check_job_transition,
    next_job_status,
)

J, P = JobStatus, PipelineStatus
EVERY_PAIR = [list(pair) for pair in product(P, repeat=2)]


def step(current: JobStatus, *pipelines: PipelineStatus, cancel: bool = False) -> JobStatus:
    return next_job_status(current, pipelines, cancel_wanted=cancel)


@pytest.mark.parametrize("current", sorted(JOB_ENDED))
def test_a_job_that_has_ended_stays_as_it_is(current: JobStatus) -> None:
    for pair in EVERY_PAIR:
        assert step(current, *pair, cancel=True) is current


@pytest.mark.parametrize("current", list(J))
def test_every_step_is_one_that_the_machine_allows(current: JobStatus) -> None:
    for pair, cancel in product(EVERY_PAIR, (False, True)):
        target = step(current, *pair, cancel=cancel)
        if target is not current:
            check_job_transition("j", current, target)


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("current", [J.SCHEDULED, J.RUNNING, J.CANCELING, J.FAILING])
def test_a_job_whose_pipelines_have_ended_ends_within_two_steps(
    current: JobStatus, *, cancel: bool
) -> None:
    for pair in product([P.FINISHED, P.FAILED], repeat=2):
        assert step(step(current, *pair, cancel=cancel), *pair, cancel=cancel) in JOB_ENDED


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


def test_an_illegal_change_names_the_job_and_both_states() -> None:
    with pytest.raises(IllegalTransition, match="job 'j' is FINISHED and can not become RUNNING"):
        check_job_transition("j", J.FINISHED, J.RUNNING)


def test_every_status_has_its_transitions_and_only_ended_ones_have_none() -> None:
    assert JOB_TRANSITIONS.keys() == set(J)
    assert {status for status, targets in JOB_TRANSITIONS.items() if not targets} == JOB_ENDED
