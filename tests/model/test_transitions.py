"""Which status may follow which: asked forwards, backwards, and through the doors of their own."""

from __future__ import annotations

import pytest

from headrace.errors import IllegalTransition
from headrace.model.jobs.epoch import CHECKPOINT_TIMEOUT_MS, EPOCH_TRANSITIONS, EpochStatus
from headrace.model.jobs.status import JOB_ENDED, RESTORABLE, JobStatus, check_restorable
from headrace.model.tables.status import TABLE_RESETS, TableStatus, check_table_reset
from headrace.model.task import PipelineOrder
from headrace.model.transitions import predecessors


@pytest.mark.req("S1")
def test_what_a_status_may_follow_is_the_map_read_backwards() -> None:
    for target in EpochStatus:
        before = {old for old, following in EPOCH_TRANSITIONS.items() if target in following}
        assert predecessors(EPOCH_TRANSITIONS, target) == before
    assert predecessors(EPOCH_TRANSITIONS, EpochStatus.COMPLETED) == {EpochStatus.PREPARED}


@pytest.mark.req("S1")
@pytest.mark.parametrize("status", JobStatus)
def test_a_job_begins_again_only_from_an_end_that_can_be_restored(status: JobStatus) -> None:
    if status in RESTORABLE:
        assert status in JOB_ENDED
        check_restorable("j", status)
    else:
        with pytest.raises(IllegalTransition):
            check_restorable("j", status)


@pytest.mark.req("S1", "T8")
@pytest.mark.parametrize("status", TableStatus)
@pytest.mark.parametrize("target", TableStatus)
def test_recovery_resets_a_table_only_as_its_map_says(
    status: TableStatus, target: TableStatus
) -> None:
    if target in TABLE_RESETS[status]:
        check_table_reset("t", status, target)
    else:
        with pytest.raises(IllegalTransition):
            check_table_reset("t", status, target)


def test_an_order_is_stored_as_it_was_given_and_read_back() -> None:
    order = PipelineOrder(retry_times=2, commit_deadline_s=5.0)

    assert order.stored() == {"retry_times": 2, "commit_deadline_s": 5.0}
    assert PipelineOrder.of(order.stored()) == order
    assert order.commit_timeout_ms == CHECKPOINT_TIMEOUT_MS
    assert PipelineOrder(checkpoint_timeout_ms=7).commit_timeout_ms == 7
