"""Every field of a resource through the store and back, alone and listed (R4)."""

from __future__ import annotations

from dataclasses import fields

import pytest
from sqlalchemy import Connection, Engine

from headrace.model.groups import LaunchStep, ResourceErrorKind, ResourceNotice
from headrace.store.core.engine import reading, writing
from headrace.store.groups import groups, resources
from headrace.store.groups.resources import Resource

WHOLE = Resource(
    id="r1",
    group="g",
    container="farm",
    threads=7,
    memory_mb=3072,
    properties={"spark-conf.spark.x": "ä=1", "pid": "41"},
    made_for="user",
    created_at_ms=11,
    wanted_released=True,
    launch=3,
    step=LaunchStep.STARTED,
    started_at_ms=12,
    launched_at_ms=13,
    orphaned_since_ms=14,
    attempts=2,
    told="gave up",
    notice=ResourceNotice.GAVE_UP,
    error="exit code 137",
    error_kind=ResourceErrorKind.ENDED,
)


def kept(store: Engine) -> None:
    """As it came about: asked for, started, lost, started twice again, given up."""
    with writing(store) as conn:
        groups.add(conn, WHOLE.group, now_ms=1)
        assert resources.add(
            conn,
            WHOLE.id,
            group=WHOLE.group,
            container=WHOLE.container,
            threads=WHOLE.threads,
            memory_mb=WHOLE.memory_mb,
            properties={"spark-conf.spark.x": "ä=1"},
            made_for=WHOLE.made_for,
            now_ms=11,
        )
        resources.started(conn, there(conn), {"pid": "39"}, now_ms=12)
        resources.note_orphaned(conn, there(conn), now_ms=14)
        for attempt in (1, 2):
            resources.intend(conn, there(conn), attempts=attempt, now_ms=attempt)
        resources.started(conn, there(conn), {"pid": "41"}, now_ms=13)
        resources.note_error(conn, there(conn), ResourceErrorKind.ENDED, "exit code 137")
        resources.release(conn, there(conn), ResourceNotice.GAVE_UP, told="gave up")


def there(conn: Connection) -> Resource:
    found = resources.get(conn, WHOLE.id)
    assert found is not None
    return found


@pytest.mark.req("R4")
def test_every_field_comes_back_alone_and_listed(store: Engine) -> None:
    kept(store)

    with reading(store) as conn:
        assert resources.get(conn, "r1") == WHOLE
        assert resources.of_group(conn, "g") == [WHOLE]
        assert resources.all_of_them(conn) == [WHOLE]
        assert resources.of_group(conn, "default") == []


def test_no_field_has_a_value_that_it_would_have_anyway() -> None:
    """Or its loss would not show."""
    assert [each.name for each in fields(Resource) if not getattr(WHOLE, each.name)] == []
