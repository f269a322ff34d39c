"""A stream outlives its workers, as long as it gets on; and ends when it does not (K7, K8)."""

from __future__ import annotations

import pytest

from headrace.model.jobs.spec import LOST_WORKERS_MAX
from headrace.model.jobs.status import JobStatus
from tests.simulation.streams import DEATHS, MONTH_DAYS, live

pytestmark = pytest.mark.timeout(600)

SEED = 1
STUCK_AFTER = 12


@pytest.mark.req("K7", "K8")
def test_a_stream_that_lost_500_workers_in_a_month_is_running() -> None:
    """`make simulate` lives more of them."""
    month = live(SEED)

    assert month.problems == []
    assert (month.status, month.error) == (JobStatus.RUNNING, None)
    assert (month.deaths, month.too_little()) == (DEATHS, [])
    assert month.days >= MONTH_DAYS - 1
    assert month.epochs > DEATHS


@pytest.mark.req("K7", "K8")
def test_a_stream_that_gets_on_no_more_ends_with_the_tenth_lost_worker() -> None:
    month = live(SEED, deaths=STUCK_AFTER + 2 * LOST_WORKERS_MAX, stuck_after=STUCK_AFTER)

    assert month.problems == []
    assert month.status is JobStatus.FAILED
    assert f"{LOST_WORKERS_MAX} workers in a row were lost" in (month.error or "")
