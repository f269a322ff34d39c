"""Which open jobs a pass has to look at: those that are marked, and those whose time has come.

Passes follow each other twice a second, and there may be 20,000 open jobs, to nearly none of which
anything happened. So it is written down when something did:

**Whoever writes something that could make a job's reconcile due marks the job in the same
transaction. A job that is not marked, and whose time has not come, needs no look.**

A mark is `jobs.due_at_ms = 0`, which a command on any node writes, or `pipelines.moved = 1`, which
goes with every change of a pipeline's status. Reports of workers mark the pipeline and not the job:
they hold the lock of a task, and its pipeline is theirs to change, while a pass locks a job first
and then its tasks. The other way around, the two would deadlock.

Only a look that finds nothing to do takes marks away, and in the transaction that read what it was
judged by. It locks the rows with the marks before it reads anything, and leaves alone what is
locked by somebody else: whoever changes a job at this moment either has committed, and is read; or
has not, and its mark comes after.

A job that waits for a time is due at a time of the leader's clock (`due_time_shift` moves it). All
others have none, and are in no index that a pass reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Text,
    Update,
    bindparam,
    or_,
    select,
    tuple_,
    update,
)

from headrace.store.core.prepared_statements import (
    PreparedBatch,
    PreparedStatement,
    RowColumns,
    one_of,
)
from headrace.store.jobs.jobs import (
    DUE,
    JOB_COLUMNS,
    PIPELINE_COLUMNS,
    Job,
    PipelineRow,
    to_job,
    to_pipeline,
)
from headrace.store.jobs.schema import MOVED_PIPELINE, OPEN_JOB, TIMED_JOB, jobs, pipelines

DueAt = tuple[int, str]  # when a job is due, and its id: the order of those that are
FIRST: DueAt = (1, "")  # of those that are due at a time; 0 is none


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A job that nobody else changes until the transaction ends, with its marks."""

    job: Job
    due_at_ms: int | None
    moved: Sequence[int]  # its pipelines that are marked


@dataclass(frozen=True, slots=True)
class QuietJob:
    """An open job that is not due by its own row."""

    job: Job
    due_at_ms: int | None


_FRESH = PreparedStatement(
    select(jobs.c.id, jobs.c.wanted_cancel)
    .where(TIMED_JOB, jobs.c.due_at_ms == 0, jobs.c.id > bindparam("after"))
    .order_by(jobs.c.id)
    .limit(bindparam("most"))
)
_DUE = PreparedStatement(
    select(jobs.c.due_at_ms, jobs.c.id)
    .where(
        TIMED_JOB,
        jobs.c.due_at_ms <= bindparam("now_ms"),
        tuple_(jobs.c.due_at_ms, jobs.c.id)
        > tuple_(bindparam("after_ms", type_=BigInteger()), bindparam("after", type_=Text())),
    )
    .order_by(jobs.c.due_at_ms, jobs.c.id)
    .limit(bindparam("most"))
)
_MOVED = PreparedStatement(
    select(pipelines.c.job_id)
    .where(MOVED_PIPELINE, pipelines.c.job_id > bindparam("after"))
    .order_by(pipelines.c.job_id)
    .limit(bindparam("most"))
)
_LOCK = PreparedStatement(
    select(*JOB_COLUMNS, jobs.c.due_at_ms)
    .where(one_of(jobs.c.id, "ids"))
    .order_by(jobs.c.id)
    .with_for_update(key_share=True, skip_locked=True)
)
_LOCK_MOVED = PreparedStatement(
    select(pipelines.c.job_id, pipelines.c.number)
    .where(one_of(pipelines.c.job_id, "ids"), MOVED_PIPELINE)
    .order_by(pipelines.c.job_id, pipelines.c.number)
    .with_for_update(skip_locked=True)
)
_PIPELINES = PreparedStatement(
    select(*PIPELINE_COLUMNS)
    .where(one_of(pipelines.c.job_id, "ids"))
    .order_by(pipelines.c.job_id, pipelines.c.number)
)
_MARK = PreparedStatement(update(jobs).where(one_of(jobs.c.id, "ids")).values(DUE))
_MARK_PIPELINE = PreparedStatement(
    update(pipelines)
    .where(pipelines.c.job_id == bindparam("job"), pipelines.c.number == bindparam("place"))
    .values(moved=1)
)
_QUIET = PreparedStatement(
    select(*JOB_COLUMNS, jobs.c.due_at_ms)
    .where(
        OPEN_JOB,
        jobs.c.id > bindparam("after"),
        or_(jobs.c.due_at_ms.is_(None), jobs.c.due_at_ms > bindparam("now_ms")),
    )
    .order_by(jobs.c.id)
    .limit(bindparam("most"))
)
_STILL_QUIET = PreparedStatement(
    select(jobs.c.id)
    .where(
        one_of(jobs.c.id, "ids"),
        OPEN_JOB,
        or_(jobs.c.due_at_ms.is_(None), jobs.c.due_at_ms > bindparam("now_ms")),
        ~select(pipelines.c.number).where(pipelines.c.job_id == jobs.c.id, MOVED_PIPELINE).exists(),
    )
    .order_by(jobs.c.id)
)


def _unmoved(row: RowColumns) -> Update:
    mine = (pipelines.c.job_id == row["job"], pipelines.c.number == row["place"])
    return update(pipelines).where(*mine).values(moved=0)


def _time(row: RowColumns) -> Update:
    return update(jobs).where(jobs.c.id == row["job"]).values(due_at_ms=row["at_ms"])


_TIMES = PreparedBatch(_time, key=jobs.c.id, job=Text(), at_ms=BigInteger())
_UNMOVED = PreparedBatch(_unmoved, key=pipelines.c.job_id, job=Text(), place=Integer())


def fresh(conn: Connection, *, after: str = "", most: int) -> Mapping[str, bool]:
    """Jobs whose own row is marked, in pages, and whether each is to be canceled."""
    rows = _FRESH.rows(conn, {"after": after, "most": most})
    return {job_id: bool(wanted_cancel) for job_id, wanted_cancel in rows}


def due(conn: Connection, *, now_ms: int, after: DueAt = FIRST, most: int) -> Sequence[DueAt]:
    """Jobs whose time has come, the longest due first, in pages."""
    values = {"now_ms": now_ms, "after_ms": after[0], "after": after[1], "most": most}
    return [(at_ms, job_id) for at_ms, job_id in _DUE.rows(conn, values)]


def moved(conn: Connection, *, after: str = "", most: int) -> Sequence[str]:
    """Jobs of which a pipeline is marked, in pages; also such as have ended since."""
    rows = _MOVED.rows(conn, {"after": after, "most": most})
    return list(dict.fromkeys(job_id for (job_id,) in rows))


def marked(conn: Connection, *, now_ms: int, most: int) -> Iterator[str]:
    """Jobs that are marked or whose time has come, of each kind the first ones, in no order."""
    yield from fresh(conn, most=most)
    yield from moved(conn, most=most)
    yield from (job_id for _, job_id in due(conn, now_ms=now_ms, most=most))


def lock(conn: Connection, ids: Collection[str]) -> Sequence[LookedAt]:
    """Those of these jobs that nobody changes right now, for a look that may take marks away."""
    rows = _LOCK.rows(conn, {"ids": sorted(ids)})
    marks: dict[str, list[int]] = {row[0]: [] for row in rows}
    for job_id, number in _LOCK_MOVED.rows(conn, {"ids": sorted(marks)}) if marks else ():
        marks[job_id].append(number)
    return [LookedAt(to_job(row[:-1]), row[-1], marks[row[0]]) for row in rows]


def pipelines_of_all(conn: Connection, ids: Collection[str]) -> Mapping[str, Sequence[PipelineRow]]:
    """The pipelines of these jobs, by job."""
    by_job: dict[str, list[PipelineRow]] = {job_id: [] for job_id in ids}
    for row in _PIPELINES.rows(conn, {"ids": sorted(by_job)}) if by_job else ():
        by_job[row[0]].append(to_pipeline(row))
    return by_job


def set_quiet(conn: Connection, seen: Sequence[tuple[LookedAt, int | None]]) -> None:
    """Take the marks of these jobs away, and note when each is due by itself; None: never. They
    were locked before they were judged."""
    changed = [(each, at_ms) for each, at_ms in seen if each.due_at_ms != at_ms]
    if times := [{"job": each.job.id, "at_ms": at_ms} for each, at_ms in changed]:
        _TIMES.change(conn, times)
    if gone := [{"job": each.job.id, "place": place} for each, _ in seen for place in each.moved]:
        _UNMOVED.change(conn, gone)


def mark(conn: Connection, ids: Collection[str]) -> None:
    """Have a pass look at these jobs at once. The caller holds no lock of a task."""
    _MARK.change(conn, {"ids": sorted(ids)})


def mark_pipeline(conn: Connection, job_id: str, number: int) -> None:
    """Have a pass look at this pipeline's job: a task of it changed, and its status did not."""
    _MARK_PIPELINE.change(conn, {"job": job_id, "place": number})


def quiet(conn: Connection, *, now_ms: int, after: str = "", most: int) -> Sequence[QuietJob]:
    """Open jobs that are not due by their own row, in pages, for the sweep behind the marks."""
    values = {"now_ms": now_ms, "after": after, "most": most}
    return [QuietJob(to_job(row[:-1]), row[-1]) for row in _QUIET.rows(conn, values)]


def still_quiet(conn: Connection, ids: Collection[str], *, now_ms: int) -> Sequence[str]:
    """Those of these jobs that no mark has reached in the meantime, either."""
    rows = _STILL_QUIET.rows(conn, {"ids": sorted(ids), "now_ms": now_ms})
    return [job_id for (job_id,) in rows]
