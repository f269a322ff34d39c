"""What each pass asks, and what people type: found by an index, however many rows there are."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, insert, update

from headrace.model.jobs.epoch import CleanupStep
from headrace.store.core.engine import is_sqlite, reading, writing
from headrace.store.jobs import cleanups, jobs
from headrace.store.jobs.schema import cleanups as cleanup_rows
from headrace.store.lookups import ID_DIGITS, IdKind, ids_with_prefix
from tests.coordinator.specs import spec
from tests.store.plans import heard_statements, plans, reads_all_of


def given_cleanups(store: Engine, **due_at_ms: int) -> None:
    with writing(store) as conn:
        for name, at_ms in due_at_ms.items():
            about = {"incarnation": name, "job_id": name, "group_name": "default"}
            times = {"made_at_ms": 1, "due_at_ms": at_ms, "targets_due_at_ms": at_ms}
            row = {**about, **times, "step": CleanupStep.STATE}
            conn.execute(insert(cleanup_rows).values(**row))


def wanted(store: Engine, *names: str) -> None:
    with writing(store) as conn:
        those = cleanup_rows.c.incarnation.in_(names)
        conn.execute(update(cleanup_rows).where(those).values(wanted_at_once=1))


def test_cleanups_come_when_they_are_due_or_wanted_and_each_of_them_once(store: Engine) -> None:
    given_cleanups(store, c=1, a=2, b=2, later=9, asked=9, both=3)
    wanted(store, "asked", "both")

    with reading(store) as conn:
        assert cleanups.due(conn, now_ms=5, most=10) == ["c", "a", "b", "both", "asked"]
        assert cleanups.due(conn, now_ms=5, most=1) == ["c", "asked"]
        assert cleanups.due(conn, now_ms=0, most=1) == ["asked"]


@pytest.mark.req("C3")
def test_a_pass_reads_no_cleanup_that_is_not_due(store: Engine) -> None:
    """There may be one for each job of the last days, and a pass comes twice a second."""
    given_cleanups(store, a=1, b=2)
    with reading(store) as conn, heard_statements(store) as heard:
        cleanups.due(conn, now_ms=5, most=10)

    for plan in plans(store, heard):
        assert not reads_all_of(plan, "cleanups"), plan


MADE = "ab12".ljust(ID_DIGITS, "0")


def given_jobs(store: Engine, *ids: str) -> None:
    with writing(store) as conn:
        for job_id in ids:
            assert jobs.insert_job(
                conn,
                spec(),
                job_id=job_id,
                incarnation=f"of {job_id}",
                submission_key=job_id,
                group="default",
                now_ms=1,
            )


def test_ids_that_were_made_are_found_by_their_beginning(store: Engine) -> None:
    last, other = "ab12".ljust(ID_DIGITS, "f"), "ab13".ljust(ID_DIGITS, "0")
    chosen = "ab12-chosen"
    given_jobs(store, MADE, last, other, chosen, "ab12", "aa".ljust(ID_DIGITS, "a"))

    with reading(store) as conn:
        found = {
            asked: ids_with_prefix(conn, IdKind.JOB, asked, most=10)
            for asked in ("ab12", chosen, MADE, "ab", "a", "b", "ab12-")
        }
    assert found == {
        "ab12": ["ab12", MADE, last],
        chosen: [chosen],
        MADE: [MADE],
        "ab": [MADE, last, other],
        "a": ["aa".ljust(ID_DIGITS, "a"), MADE, last, other],
        "b": [],
        "ab12-": [],
    }


@pytest.mark.parametrize("kind", list(IdKind))
def test_an_id_is_looked_for_by_an_index(store: Engine, kind: IdKind) -> None:
    given_jobs(store, MADE)
    with reading(store) as conn, heard_statements(store) as heard:
        ids_with_prefix(conn, kind, "ab12", most=10)

    [plan] = plans(store, heard)
    if is_sqlite(store):  # PostgreSQL's are in the order of some language
        tables = ("jobs", "history", "savepoints", "workers", "resources")
        assert not reads_all_of(plan, *tables), plan
