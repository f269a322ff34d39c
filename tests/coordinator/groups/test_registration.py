"""A worker registers in the very moment in which its resource is given up or started again (R4).

Both lock the resource's row. One comes first, and the other sees what it did.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

import pytest

from headrace.containers.container import Supports
from headrace.errors import LaunchOver
from headrace.seams import arm
from headrace.store.core.engine import is_sqlite, reading
from headrace.store.groups import resources
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker
from tests.coordinator.groups.group_harness import GRACE_S, GROUP, FakeContainer, GroupHarness, lost
from tests.coordinator.leader_harness import LeaderHarness

FOUND_LOST = "resource found lost, before it is locked"
# A registration that nothing holds back is over in a moment; on SQLite it waits for the writer.
HEAD_START_S = 0.5


def race(care: GroupHarness, launch: int) -> Future[None]:
    """Decide once, while a worker of this launch registers after the leader has looked."""
    with ThreadPoolExecutor(1) as pool:
        begun: list[Future[None]] = []

        def register() -> None:
            if not begun:
                begun.append(pool.submit(care.register, "r1", launch))
                wait_for(begun, HEAD_START_S)

        arm(FOUND_LOST, register)
        care.decide()
        [registration] = begun
    return registration


def worker_of(care: GroupHarness) -> Worker | None:
    with reading(care.store) as conn:
        return workers.of_resource(conn, "r1")


@pytest.mark.req("R4")
def test_a_worker_that_registers_while_its_resource_is_given_up_stays_or_is_refused(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = GroupHarness(desk, place, max_retries=1)
    care.group()
    lost(care)
    care.looks(seconds=GRACE_S + 10)
    desk.clock.advance(GRACE_S)

    registration = race(care, 2)

    assert care.there().wanted_released == isinstance(registration.exception(), LaunchOver)
    assert care.there().wanted_released == (worker_of(care) is None)
    if not is_sqlite(care.store):
        assert registration.exception() is None, "it was the first, and so it stays"
        assert care.there().attempts == 0


@pytest.mark.req("R4")
def test_a_slow_starter_that_registers_while_it_is_started_again_stays_or_is_refused(
    care: GroupHarness,
) -> None:
    lost(care)
    care.looks(seconds=GRACE_S + 10)
    care.desk.clock.advance(GRACE_S)

    registration = race(care, 2)

    replaced = isinstance(registration.exception(), LaunchOver)
    assert care.there().launch == (3 if replaced else 2)
    assert (worker_of(care) is None) == replaced
    if not is_sqlite(care.store):
        assert registration.exception() is None, "it was the first, and so it stays"


def test_a_start_of_which_nobody_knows_the_end_is_given_up_with_a_reason(
    desk: LeaderHarness,
) -> None:
    care = GroupHarness(desk, FakeContainer(supports=Supports(status=False)), max_retries=1)
    care.group()
    care.resource()

    care.looks(seconds=GRACE_S * 3, step_s=20)

    assert care.read() is None
    with reading(care.store) as conn:
        [told] = resources.given_up_of(conn, GROUP)
    assert told.reason.startswith("its worker had not registered 5 min after its start; ")
