"""How tables and processes change, and what a running process does next."""

from __future__ import annotations

import pytest

from headrace.errors import IllegalTransition
from headrace.model.tables.status import (
    OPTIMIZING,
    PROCESS_ENDED,
    PROCESS_TRANSITIONS,
    PROCESSING,
    TABLE_RELEASES,
    TABLE_RESETS,
    TABLE_TRANSITIONS,
    NextStep,
    OptimizingType,
    ProcessStatus,
    Recovery,
    TableStatus,
    check_process_transition,
    check_table_release,
    check_table_reset,
    check_table_transition,
    next_step,
    recover,
)
from headrace.model.task import TaskStatus

T = TableStatus
P = ProcessStatus


def test_every_status_has_its_ways_out() -> None:
    assert set(TABLE_TRANSITIONS) == set(TABLE_RELEASES) == set(TABLE_RESETS) == set(T)
    assert set(PROCESS_TRANSITIONS) == set(P)
    assert all(not PROCESS_TRANSITIONS[status] for status in PROCESS_ENDED)


def test_a_table_goes_round() -> None:
    for status in (T.IDLE, T.PENDING, T.PLANNING):
        assert TABLE_TRANSITIONS[status] & {T.PENDING, T.PLANNING, *OPTIMIZING}
    for kind in OptimizingType:
        check_table_transition("t", T.PLANNING, kind.status)
        check_table_transition("t", kind.status, T.COMMITTING)
        check_table_release("t", kind.status, T.IDLE, process=P.FAILED)
    check_table_release("t", T.COMMITTING, T.IDLE, process=P.SUCCESS)


def test_the_strongest_type_has_the_last_word() -> None:
    assert max(OptimizingType) is OptimizingType.FULL
    assert [kind.status for kind in sorted(OptimizingType)] == [
        T.MINOR_OPTIMIZING,
        T.MAJOR_OPTIMIZING,
        T.FULL_OPTIMIZING,
    ]


@pytest.mark.parametrize("current", sorted(PROCESSING))
def test_no_ordinary_step_takes_a_table_out_of_a_running_process(current: TableStatus) -> None:
    for target in T:
        if target not in PROCESSING:
            with pytest.raises(IllegalTransition, match=f"table 't' is {current} and can not"):
                check_table_transition("t", current, target)
    with pytest.raises(IllegalTransition):
        check_table_release("t", current, T.IDLE, process=P.RUNNING)


@pytest.mark.parametrize("current", sorted(set(T) - PROCESSING))
def test_a_table_without_a_process_has_none_to_be_released_from(current: TableStatus) -> None:
    with pytest.raises(IllegalTransition):
        check_table_release("t", current, T.IDLE, process=P.SUCCESS)


@pytest.mark.parametrize("current", sorted(PROCESS_ENDED))
def test_a_process_ends_once(current: ProcessStatus) -> None:
    check_process_transition("p", P.RUNNING, current)
    for target in P:
        with pytest.raises(IllegalTransition):
            check_process_transition("p", current, target)


@pytest.mark.req("T1", "T8")
@pytest.mark.parametrize("current", T)
def test_the_map_of_resets_is_what_recovery_decides(current: TableStatus) -> None:
    decided = {recover(process, current) for process in (None, *P)}
    resets = {each.table for each in decided if each.recovery is Recovery.RESET}

    assert resets == TABLE_RESETS[current]
    for target in set(T) - TABLE_RESETS[current]:
        with pytest.raises(IllegalTransition):
            check_table_reset("t", current, target)


S, F, C, A, W = (
    TaskStatus.SUCCESS,
    TaskStatus.FAILED,
    TaskStatus.CANCELED,
    TaskStatus.ACKED,
    TaskStatus.PLANNED,
)


@pytest.mark.parametrize(
    ("tasks", "whole", "partial"),
    [
        ([], NextStep.CLOSE, NextStep.CLOSE),
        ([S], NextStep.COMMIT, NextStep.COMMIT),
        ([S, S, S], NextStep.COMMIT, NextStep.COMMIT),
        ([S, W], NextStep.WAIT, NextStep.WAIT),
        ([S, A, S], NextStep.WAIT, NextStep.WAIT),
        ([S, F], NextStep.FAIL, NextStep.COMMIT),
        ([S, C], NextStep.FAIL, NextStep.COMMIT),
        ([S, F, A], NextStep.FAIL, NextStep.WAIT),
        ([F], NextStep.FAIL, NextStep.FAIL),
        ([F, C], NextStep.FAIL, NextStep.FAIL),
    ],
)
def test_what_a_running_process_does_next(
    tasks: list[TaskStatus], whole: NextStep, partial: NextStep
) -> None:
    assert next_step(tasks, allow_partial_commit=False) is whole
    assert next_step(tasks, allow_partial_commit=True) is partial
