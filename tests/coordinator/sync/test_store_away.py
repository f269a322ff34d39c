"""A PostgreSQL that is stopped and started again while a source says that it is ready (K4)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.errors import Unavailable
from headrace.model.jobs.status import JobStatus
from headrace.store.core import leases
from headrace.store.core.engine import open_store, reading, writing
from headrace.store.jobs.epochs import ready_of
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import completed, planned, prepared, succeeded
from tests.coordinator.writer_harness import BOUND_S, opened
from tests.fakes import FakeClock
from tests.postgresql import PostgreSQL


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    """One of its own: the tests beside this one need theirs."""
    made = PostgreSQL()
    yield made
    made.close()


@pytest.mark.req("K4")
@pytest.mark.postgresql
def test_a_report_that_meets_a_stopped_server_stays_unsaid_and_is_taken_by_the_next(
    server: PostgreSQL, clock: FakeClock
) -> None:
    store = open_store(server.url(server.create_database()))
    with writing(store) as conn:
        term = leases.take(conn, leases.read(conn), holder="c1", address="http://c1")
    assert term is not None
    desk = LeaderHarness(store, clock, term)
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    ready = prepared(claim, ready=("FakeSource-1",))

    with opened(desk) as office:
        server.server.stop()
        says = office.sync("w1", holds=[claim], reports=[ready], free={})
        with pytest.raises(Unavailable):
            says().result(BOUND_S)
        server.server.start()
        [acknowledged] = says().result(BOUND_S).acknowledged

    assert acknowledged.held
    with reading(store) as conn:
        assert ready_of(conn, desk.job(job).incarnation, 1) == {"FakeSource-1": 1}
    for report in (completed(claim), succeeded(claim)):
        desk.report("w1", report, holds=[claim])
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED
    store.dispose()
