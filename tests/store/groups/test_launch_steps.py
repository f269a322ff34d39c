"""The step of a launch changes only along its map, however late an answer comes (S1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Engine

from headrace.model.groups import LAUNCH_TRANSITIONS, LaunchStep, ResourceErrorKind
from headrace.store.core.engine import reading, writing
from headrace.store.groups import groups, resources
from headrace.store.groups.resources import Resource
from tests.stores import given_resource

S = LaunchStep

Write = Callable[[Connection, Resource], bool]


def _started(conn: Connection, resource: Resource) -> bool:
    return resources.started(conn, resource, {}, now_ms=2)


def _failed(conn: Connection, resource: Resource) -> bool:
    return resources.failed(conn, resource, ResourceErrorKind.NOT_STARTED, "no room")


# Every function that moves a launch, and where to.
WRITES: dict[LaunchStep, Write] = {S.STARTED: _started, S.FAILED: _failed}


@pytest.fixture
def resource_id(store: Engine) -> str:
    with writing(store) as conn:
        groups.add(conn, "g", now_ms=1, container="local")
        resources.add(
            conn,
            "r1",
            group="g",
            container="local",
            threads=1,
            memory_mb=1,
            properties={},
            made_for="user",
            now_ms=1,
        )
    return "r1"


def given(store: Engine, step: LaunchStep) -> Resource:
    with writing(store) as conn:
        given_resource(conn, "r1", step=step)
    return read(store)


def read(store: Engine) -> Resource:
    with reading(store) as conn:
        found = resources.get(conn, "r1")
    assert found is not None
    return found


@pytest.mark.req("S1")
@pytest.mark.usefixtures("resource_id")
def test_a_launch_goes_exactly_as_its_map_says_whatever_the_caller_saw(store: Engine) -> None:
    reached = {to for after in LAUNCH_TRANSITIONS.values() for to in after}
    assert reached == set(WRITES), "and nobody can write another step of a launch"
    for current in S:
        for to, write in WRITES.items():
            for seen in S:
                stale = given(store, seen)
                given(store, current)

                with writing(store) as conn:
                    landed = write(conn, stale)

                assert landed == (to in LAUNCH_TRANSITIONS[current]), (current, to, seen)
                assert read(store).step is (to if landed else current)


@pytest.mark.req("S1", "R8")
@pytest.mark.usefixtures("resource_id")
def test_a_launch_is_intended_once_and_the_next_one_under_its_own_number(store: Engine) -> None:
    for current in S:
        before = given(store, current)

        with writing(store) as conn:
            assert resources.intend(conn, before, attempts=1, now_ms=3)
            assert not resources.intend(conn, before, attempts=1, now_ms=3)
            assert not _started(conn, before), "an answer about the launch before is late"

        after = read(store)
        assert (after.launch, after.step) == (before.launch + 1, S.INTENDED)


@pytest.mark.req("S1")
@pytest.mark.usefixtures("resource_id")
@pytest.mark.parametrize(
    ("current", "then"),
    [(S.INTENDED, S.INTENDED), (S.STARTED, S.STARTED), (S.FAILED, S.STARTED)],
)
def test_a_worker_that_registers_shows_that_a_failed_start_came_up(
    store: Engine, current: LaunchStep, then: LaunchStep
) -> None:
    """A start that is still to be answered stays intended: its answer says what it discovered."""
    given(store, current)
    with writing(store) as conn:
        given_resource(conn, "r1", orphaned_since_ms=1, attempts=2, told="x", notice="ISOLATED")

    orphan = read(store)
    with writing(store) as conn:
        assert resources.registered(conn, orphan)

    after = read(store)
    assert after.step is then
    assert (after.orphaned_since_ms, after.attempts) == (None, 0)
    assert (after.told, after.notice) == (None, None)
