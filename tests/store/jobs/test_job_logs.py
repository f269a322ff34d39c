"""Log lines of jobs: kept once, read in order, never too many or too old, nobody's revived."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, Engine, func, select, text

from headrace.model.task import Lane, TaskKind
from headrace.store.core.engine import is_sqlite, reading, writing
from headrace.store.jobs import job_logs, jobs
from headrace.store.jobs.job_logs import LOG_LINES_KEPT, Line, LinesCounted
from headrace.store.jobs.schema import job_logs as rows
from headrace.store.tasks import tasks
from tests.coordinator.specs import spec
from tests.store.plans import heard_statements, plans, reads_all_of

OWNER = "incarnation-1"
DAY_MS = 24 * 3_600_000


@pytest.fixture
def job(store: Engine) -> str:
    with writing(store) as conn:
        given_job(conn, "j1", OWNER)
    return "j1"


def given_job(conn: Connection, job_id: str, incarnation: str) -> None:
    assert jobs.insert_job(
        conn,
        spec(),
        job_id=job_id,
        incarnation=incarnation,
        submission_key=f"key of {job_id}",
        group="default",
        now_ms=1,
    )


def line(number: int, *, source: str = "w1", at_ms: int | None = None, text: str = "") -> Line:
    return Line(
        source, number, number if at_ms is None else at_ms, "INFO", text or f"line {number}"
    )


def said(store: Engine, *lines: Line, owner: str = OWNER, now_ms: int = 1) -> None:
    by_source: dict[tuple[str, str], list[Line]] = {}
    for each in lines:
        by_source.setdefault((owner, each.source), []).append(each)
    with writing(store) as conn:
        job_logs.add(conn, by_source, now_ms=now_ms)


def kept(store: Engine, *, most: int = LOG_LINES_KEPT, owner: str = OWNER) -> list[str]:
    with reading(store) as conn:
        lines, _ = job_logs.last(conn, owner, most=most)
    return [each.text for each in lines]


def test_a_line_that_is_said_twice_is_kept_once(store: Engine, job: str) -> None:
    said(store, line(1), line(2))
    said(store, line(2, text="said again"), line(3))

    assert kept(store) == ["line 1", "line 2", "line 3"]


@pytest.mark.req("C1")
def test_lines_of_a_job_that_is_gone_are_nobodys(store: Engine, job: str) -> None:
    said(store, line(1), owner="of another incarnation")

    with reading(store) as conn:
        assert conn.scalar(select(func.count()).select_from(rows)) == 0


def test_lines_are_read_by_time_whoever_said_them(store: Engine, job: str) -> None:
    said(store, line(1, at_ms=30, text="c"), line(2, at_ms=10, text="a"))
    said(store, line(1, source="w2", at_ms=20, text="b"))

    assert kept(store) == ["a", "b", "c"]
    assert kept(store, most=2) == ["b", "c"]
    assert kept(store, most=0) == []


def test_what_came_late_from_another_source_is_not_passed_over(store: Engine, job: str) -> None:
    said(store, line(7, at_ms=1000, text="first"))
    with reading(store) as conn:
        _, seen = job_logs.last(conn, OWNER, most=0)
    said(
        store, line(1, source="w2", at_ms=5, text="old, and late"), line(8, at_ms=1001, text="new")
    )

    with reading(store) as conn:
        lines, seen = job_logs.after(conn, OWNER, seen, most=100)
        nothing, same = job_logs.after(conn, OWNER, seen, most=100)

    assert [each.text for each in lines] == ["old, and late", "new"]
    assert (list(nothing), same, seen) == ([], seen, {"w1": 8, "w2": 1})


def test_what_does_not_fit_into_an_answer_comes_in_the_next(store: Engine, job: str) -> None:
    said(store, *(line(n) for n in range(1, 6)), *(line(n, source="w2") for n in range(1, 6)))
    seen: dict[str, int] = {}
    found: list[tuple[str, int]] = []
    for _ in range(4):
        with reading(store) as conn:
            lines, reached = job_logs.after(conn, OWNER, seen, most=3)
        seen = dict(reached)
        found += [(each.source, each.number) for each in lines]

    assert sorted(found) == [(source, n) for source in ("w1", "w2") for n in range(1, 6)]


def test_the_last_lines_stay_whoever_said_them(store: Engine, job: str) -> None:
    said(store, *(line(n) for n in range(1, 6)), *(line(n, source="w2") for n in range(1, 6)))
    with writing(store) as conn:
        given_job(conn, "j2", "another")
    said(store, line(1, text="of another job"), owner="another")

    with writing(store) as conn:
        job_logs.trim(conn, OWNER, kept=3)
        job_logs.trim(conn, OWNER, kept=3)

    assert kept(store) == ["line 4", "line 5", "line 5"]
    assert kept(store, owner="another") == ["of another job"]


def noted(
    conn: Connection, job_id: str, text: str, *, task: str | None = None, at_ms: int = 1
) -> None:
    source = f"coordinator/{task}" if task else "coordinator"
    job_logs.note(conn, job_id, Line(source, 0, at_ms, "INFO", text), task_id=task)


def given_task(conn: Connection, task_id: str, job_id: str) -> None:
    tasks.plan(
        conn,
        task_id=task_id,
        kind=TaskKind.SETTLE,
        lane=Lane.CONTROL,
        group="default",
        payload={},
        job_id=job_id,
        pipeline=1,
        now_ms=1,
    )


def test_a_coordinators_lines_have_numbers_of_their_own(store: Engine, job: str) -> None:
    with writing(store) as conn:
        given_task(conn, "t1", job)
        for text in ("one", "two"):
            noted(conn, job, text)
        noted(conn, job, "three", task="t1")
        noted(conn, "no job", "four")
        noted(conn, job, "five", task="no task")

    with reading(store) as conn:
        _, reached = job_logs.last(conn, OWNER, most=0)
    assert kept(store) == ["one", "two", "three"]
    assert reached == {"coordinator": 2, "coordinator/t1": 1}


@pytest.mark.parametrize("task", [None, "t1"])
def test_who_follows_a_job_sees_what_is_said_after_all_before_has_expired(
    store: Engine, job: str, task: str | None
) -> None:
    """A stream may be quiet for a week."""
    with writing(store) as conn:
        given_task(conn, "t1", job)
        for text in ("one", "two", "three"):
            noted(conn, job, text, task=task)
    with reading(store) as conn:
        _, seen = job_logs.last(conn, OWNER, most=10)
    with writing(store) as conn:
        assert job_logs.expire(conn, until_ms=10) == 3
        noted(conn, job, "four", task=task, at_ms=20)

    with reading(store) as conn:
        lines, _ = job_logs.after(conn, OWNER, seen, most=10)
    assert [(each.number, each.text) for each in lines] == [(4, "four")]


def test_what_one_source_says_for_ever_does_not_grow_for_ever(store: Engine, job: str) -> None:
    """Also when a program before this one has counted by the lines that are kept."""
    said(store, *(line(n, source="coordinator") for n in (1, 2, LOG_LINES_KEPT + 1)))

    with writing(store) as conn:
        noted(conn, job, "the last", at_ms=50_000)

    assert kept(store) == [f"line {LOG_LINES_KEPT + 1}", "the last"]


def test_lines_expire_by_when_they_were_taken_and_not_by_what_their_worker_took_for_the_time(
    store: Engine, job: str
) -> None:
    said(store, line(1, at_ms=9_000, text="old"), now_ms=100)
    said(store, line(2, at_ms=1, text="new"), now_ms=200)

    with writing(store) as conn:
        assert not job_logs.any_expired(conn, until_ms=99)
        assert job_logs.any_expired(conn, until_ms=100)
        assert job_logs.expire(conn, until_ms=100) == 1
        assert not job_logs.any_expired(conn, until_ms=199)

    assert kept(store) == ["new"]


def test_lines_that_an_older_program_took_are_of_the_time_at_which_they_are_found(
    store: Engine, job: str
) -> None:
    said(store, line(1), now_ms=0)

    with writing(store) as conn:
        assert job_logs.any_expired(conn, until_ms=100)
        assert job_logs.expire(conn, until_ms=100) == 0, "it has no time yet"
        job_logs.set_right(conn, now_ms=200)
        assert job_logs.expire(conn, until_ms=100) == 0
        assert not job_logs.any_expired(conn, until_ms=199)

    assert kept(store) == ["line 1"]


def test_the_oldest_go_first_and_not_more_than_a_batch_at_once(
    store: Engine, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_logs, "EXPIRED_AT_ONCE_MAX", 2)
    for number in range(1, 6):
        said(store, line(number), now_ms=number)

    gone: list[list[str]] = []
    for _ in range(3):
        with writing(store) as conn:
            job_logs.expire(conn, until_ms=5)
        gone.append(kept(store))

    assert gone == [["line 3", "line 4", "line 5"], ["line 5"], []]


def test_lines_of_one_millisecond_go_in_batches_too(
    store: Engine, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_logs, "EXPIRED_AT_ONCE_MAX", 2)
    said(store, *(line(number) for number in range(1, 6)), now_ms=5)

    with writing(store) as conn:
        gone = [job_logs.expire(conn, until_ms=5) for _ in range(4)]

    assert gone == [2, 2, 1, 0]


def test_of_too_many_lines_so_many_go_and_no_more_also_of_one_millisecond(
    store: Engine, job: str
) -> None:
    said(store, *(line(number) for number in range(1, 6)), now_ms=5)
    said(store, line(6), now_ms=6)

    with writing(store) as conn:
        assert job_logs.expire(conn, until_ms=1, too_many=3) == 3

    assert len(kept(store)) == 3
    assert "line 6" in kept(store)


def test_lines_from_the_future_are_of_now_a_batch_at_a_time(
    store: Engine, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a million of them in one statement would outlast the leader's lease."""
    monkeypatch.setattr(job_logs, "EXPIRED_AT_ONCE_MAX", 2)
    for number in range(1, 4):
        said(store, line(number), now_ms=DAY_MS + number)
    said(store, line(4), now_ms=100 + job_logs.AHEAD_MAX_MS)  # by a node that is a little ahead

    found: list[dict[int, int]] = []
    for now_ms in (100, 200):
        with writing(store) as conn:
            assert job_logs.any_ahead(conn, now_ms=now_ms)
            job_logs.set_right(conn, now_ms=now_ms)
            found.append(dict(conn.execute(select(rows.c.number, rows.c.taken_at_ms)).all()))

    ahead = {4: 100 + job_logs.AHEAD_MAX_MS}
    assert found == [{1: 100, 2: 100, 3: DAY_MS + 3, **ahead}, {1: 100, 2: 100, 3: 200, **ahead}]
    with reading(store) as conn:
        assert not job_logs.any_ahead(conn, now_ms=200)


@pytest.mark.parametrize("most", [1, 2, 5, 6, 7])
def test_all_lines_are_counted_a_few_at_a_time(store: Engine, job: str, most: int) -> None:
    said(store, *(line(n) for n in range(1, 4)), *(line(n, source="w2") for n in range(1, 4)))
    counted, steps = LinesCounted(), 0
    while counted.up_to is not None:
        with reading(store) as conn:
            counted = job_logs.count(conn, counted, most=most)
        steps += 1

    assert (counted.lines, steps) == (6, 6 // most + 1)


def test_expiry_and_count_are_served_by_indexes(store: Engine, job: str) -> None:
    said(store, *(line(number) for number in range(1, 50)))
    with writing(store) as conn, heard_statements(store) as heard:
        job_logs.any_ahead(conn, now_ms=9)
        job_logs.set_right(conn, now_ms=9)
        job_logs.expire(conn, until_ms=0)
        job_logs.count(conn, LinesCounted(), most=10)
        job_logs.count(conn, LinesCounted(), most=100)

    assert len(heard) == 7
    for plan in plans(store, heard):
        assert not reads_all_of(plan, "job_logs", "found"), plan


def test_the_expiry_is_served_by_an_index(store: Engine, job: str) -> None:
    """Millions of lines are looked at every second."""
    said(store, *(line(number) for number in range(1, 50)))
    explain = "EXPLAIN QUERY PLAN" if is_sqlite(store) else "EXPLAIN"
    query = "SELECT taken_at_ms FROM job_logs WHERE taken_at_ms <= 5 ORDER BY taken_at_ms LIMIT 1"
    with writing(store) as conn:
        if not is_sqlite(store):
            conn.execute(text("SET LOCAL enable_seqscan = off"))
        plan = " ".join(str(row) for row in conn.execute(text(f"{explain} {query}")))

    assert "ix_job_logs_taken_at_ms" in plan
