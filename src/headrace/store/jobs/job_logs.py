"""Log lines of jobs, from their workers and from the coordinators.

Each source numbers its own lines, so that a line which is sent twice is kept once, and a reader can
ask for what each source wrote since a number. Lines outlive the job's other rows: they are deleted
when they are old, and the oldest first when there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    tuple_,
    update,
)

from headrace.store.core.engine import insert_absent
from headrace.store.core.prepared_statements import PreparedStatement, one_of
from headrace.store.jobs.schema import job_logs, jobs
from headrace.store.tasks.schema import tasks

LOG_LINES_KEPT = 10_000  # of each job, the last ones
EXPIRED_AT_ONCE_MAX = 5_000  # lines in one transaction
AHEAD_MAX_MS = 60_000  # past the leader's clock: no line can have been taken later than that
UNTIMED_MS = 0  # of a line that an older program wrote: it gets a time before it can expire
LATEST_MS = 2**62  # later than any line, also after the clock was set back
SOURCES_ASKED_MAX = 400  # in one statement: SQLite limits the depth of an expression


@dataclass(frozen=True, slots=True)
class Line:
    """One log line."""

    source: str
    number: int
    at_ms: int
    level: str
    text: str


_ORDER = (job_logs.c.at_ms, job_logs.c.source, job_logs.c.number)
_COLUMNS = tuple(job_logs.c[name] for name in ("source", "number", "at_ms", "level", "text"))
# FOR KEY SHARE: it waits for a cleanup that deletes the job, but not for a change of its status.
_KNOWN = PreparedStatement(
    select(jobs.c.incarnation, jobs.c.id)
    .where(one_of(jobs.c.incarnation, "owners"))
    .order_by(jobs.c.id)
    .with_for_update(read=True, key_share=True)
)


def _next_number(counter: Column[int], incarnation: ColumnElement[str]) -> ColumnElement[int]:
    """The next number of a source. All its lines may have expired, so a counter has the last
    number; an older program did not count, so lines that are kept may have a higher one."""
    kept = (
        select(func.coalesce(func.max(job_logs.c.number), 0))
        .where(job_logs.c.incarnation == incarnation, job_logs.c.source == bindparam("by"))
        .scalar_subquery()
    )
    return case((kept > counter, kept), else_=counter) + 1


_NEXT_OF_JOB = PreparedStatement(
    update(jobs)
    .where(jobs.c.id == bindparam("of"))
    .values(log_number=_next_number(jobs.c.log_number, jobs.c.incarnation))
    .returning(jobs.c.incarnation, jobs.c.log_number)
)
_OWNER = select(jobs.c.incarnation).where(jobs.c.id == bindparam("of")).scalar_subquery()
_NEXT_OF_TASK = PreparedStatement(
    update(tasks)
    .where(tasks.c.id == bindparam("task"), tasks.c.job_id == bindparam("of"))
    .values(log_number=_next_number(tasks.c.log_number, _OWNER))
    .returning(_OWNER, tasks.c.log_number)
)
_FORGET = PreparedStatement(
    delete(job_logs).where(
        job_logs.c.incarnation == bindparam("of"),
        job_logs.c.source == bindparam("by"),
        job_logs.c.number <= bindparam("up_to"),
    )
)
_LAST_OF_EACH = PreparedStatement(
    select(job_logs.c.source, func.max(job_logs.c.number))
    .where(job_logs.c.incarnation == bindparam("of"))
    .group_by(job_logs.c.source)
)
_NEWEST = PreparedStatement(
    select(*_COLUMNS)
    .where(job_logs.c.incarnation == bindparam("of"))
    .order_by(*(column.desc() for column in _ORDER))
    .limit(bindparam("most"))
)
_FIRST_TOO_MANY = PreparedStatement(
    select(*_ORDER)
    .where(job_logs.c.incarnation == bindparam("of"))
    .order_by(*(column.desc() for column in _ORDER))
    .limit(1)
    .offset(bindparam("kept"))
)

_KEY = (job_logs.c.incarnation, job_logs.c.source, job_logs.c.number)
_BEFORE_ALL = ("", "", 0)


def _among(taken: Callable[[Column[int]], ColumnElement[bool]]) -> ColumnElement[bool]:
    """The keys of the `most` oldest lines whose time `taken` accepts. By key, since thousands
    may have been taken in one millisecond."""
    taken_lines = job_logs.alias("found")
    chosen = (
        select(*(taken_lines.c[column.name] for column in _KEY))
        .where(taken(taken_lines.c.taken_at_ms))
        .order_by(taken_lines.c.taken_at_ms)
        .limit(bindparam("most"))
    )
    return tuple_(*_KEY).in_(chosen)


_OLDEST = PreparedStatement(
    select(job_logs.c.taken_at_ms)
    .where(job_logs.c.taken_at_ms <= bindparam("until_ms"))
    .order_by(job_logs.c.taken_at_ms)
    .limit(1)
)
_AHEAD = PreparedStatement(
    select(job_logs.c.taken_at_ms)
    .where(job_logs.c.taken_at_ms > bindparam("latest_ms"))
    .order_by(job_logs.c.taken_at_ms)
    .limit(1)
)
_EXPIRE = PreparedStatement(
    delete(job_logs).where(
        _among(lambda at_ms: and_(at_ms <= bindparam("until_ms"), at_ms > UNTIMED_MS))
    )
)
_UNTIMED = PreparedStatement(
    update(job_logs)
    .where(_among(lambda at_ms: at_ms == UNTIMED_MS))
    .values(taken_at_ms=bindparam("now_ms"))
)
_AHEAD_TO_NOW = PreparedStatement(
    update(job_logs)
    .where(_among(lambda at_ms: at_ms > bindparam("latest_ms")))
    .values(taken_at_ms=bindparam("now_ms"))
)
_AFTER = tuple_(*_KEY) > tuple_(
    bindparam("owner", type_=Text()),
    bindparam("by", type_=Text()),
    bindparam("said", type_=BigInteger()),
)
_FURTHER = PreparedStatement(
    select(*_KEY).where(_AFTER).order_by(*_KEY).limit(1).offset(bindparam("skipped"))
)
_REST = PreparedStatement(select(func.count()).select_from(job_logs).where(_AFTER))


def add(
    conn: Connection, new_lines: Mapping[tuple[str, str], Sequence[Line]], *, now_ms: int
) -> Sequence[str]:
    """Keep lines, by incarnation and source. Returns the incarnations that have jobs.

    Lines of a job that is gone are dropped: they never bring anything of it back (C1).
    """
    owners = sorted({incarnation for incarnation, _ in new_lines})
    known: dict[str, str] = dict(_KNOWN.rows(conn, {"owners": owners}))
    rows = [
        _row(incarnation, known[incarnation], line, now_ms=now_ms)
        for (incarnation, _), lines in new_lines.items()
        if incarnation in known
        for line in lines
    ]
    if rows:
        insert_absent(conn, job_logs, rows)
    return sorted(known)


def note(conn: Connection, job_id: str, line: Line, *, task_id: str | None = None) -> None:
    """Keep one line under the next number of its source; nothing, when there is no such job.

    The caller has changed the job's row, and with `task_id` its task's row: this source writes
    about the job only under that lock.
    """
    if task_id is None:
        row = _NEXT_OF_JOB.row(conn, {"of": job_id, "by": line.source})
    else:
        row = _NEXT_OF_TASK.row(conn, {"of": job_id, "task": task_id, "by": line.source})
    if row is None:
        return
    incarnation, number = row
    numbered = replace(line, number=number)
    insert_absent(conn, job_logs, [_row(incarnation, job_id, numbered, now_ms=line.at_ms)])
    if number > LOG_LINES_KEPT:
        up_to = number - LOG_LINES_KEPT
        _FORGET.change(conn, {"of": incarnation, "by": line.source, "up_to": up_to})


def _row(incarnation: str, job_id: str, line: Line, *, now_ms: int) -> dict[str, str | int]:
    return {
        "incarnation": incarnation,
        "source": line.source,
        "number": line.number,
        "job_id": job_id,
        "at_ms": line.at_ms,
        "level": line.level,
        "text": line.text,
        "taken_at_ms": now_ms,
    }


def trim(conn: Connection, incarnation: str, *, kept: int = LOG_LINES_KEPT) -> None:
    """Delete all but the last lines of a job."""
    oldest = _FIRST_TOO_MANY.row(conn, {"of": incarnation, "kept": kept})
    if oldest is not None:
        conn.execute(
            delete(job_logs).where(
                job_logs.c.incarnation == incarnation, tuple_(*_ORDER) <= tuple_(*oldest)
            )
        )


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    return _OLDEST.row(conn, {"until_ms": until_ms}) is not None


def any_ahead(conn: Connection, *, now_ms: int) -> bool:
    """Whether a line has a time that is yet to come."""
    return _AHEAD.row(conn, {"latest_ms": now_ms + AHEAD_MAX_MS}) is not None


def set_right(conn: Connection, *, now_ms: int) -> None:
    """Give lines the time of now that have none, or one that is yet to come, as many as one
    transaction may.

    The former were taken by a program that did not know of that column; the latter before a clock
    was set back, or by a node whose clock is ahead. They would outlive all others.
    """
    batch = {"now_ms": now_ms, "most": EXPIRED_AT_ONCE_MAX}
    _UNTIMED.change(conn, batch)
    _AHEAD_TO_NOW.change(conn, {**batch, "latest_ms": now_ms + AHEAD_MAX_MS})


def expire(conn: Connection, *, until_ms: int, too_many: int = 0) -> int:
    """Delete lines that were taken by then, and `too_many` of the oldest in any case; the oldest
    first, and no more than one transaction may. Returns how many."""
    most = EXPIRED_AT_ONCE_MAX
    gone = _EXPIRE.change(conn, {"until_ms": until_ms, "most": most})
    more = min(too_many, most) - gone
    return gone + (_EXPIRE.change(conn, {"until_ms": LATEST_MS, "most": more}) if more > 0 else 0)


@dataclass(frozen=True, slots=True)
class LinesCounted:
    """How many lines were counted so far, and where to go on."""

    lines: int = 0
    up_to: tuple[str, str, int] | None = _BEFORE_ALL  # None: all are counted


def count(conn: Connection, before: LinesCounted, *, most: int) -> LinesCounted:
    """Count `most` more lines: to count millions at once takes longer than a statement may."""
    assert before.up_to is not None
    incarnation, source, number = before.up_to
    at = {"owner": incarnation, "by": source, "said": number}
    further = _FURTHER.row(conn, {**at, "skipped": most - 1})
    if further is not None:
        incarnation, source, number = further
        return LinesCounted(before.lines + most, (incarnation, source, number))
    [(rest,)] = _REST.rows(conn, at)
    return LinesCounted(before.lines + rest, None)


def last(
    conn: Connection, incarnation: str, *, most: int
) -> tuple[Sequence[Line], Mapping[str, int]]:
    """The last lines, in order; and by source, the number up to which they were read."""
    reached: dict[str, int] = dict(_LAST_OF_EACH.rows(conn, {"of": incarnation}))
    rows = _NEWEST.rows(conn, {"of": incarnation, "most": most})
    # Lines that were written between the two statements are left to the next call.
    lines = [line for row in rows if _is_within(line := Line(*row), reached)]
    return lines[::-1], reached


def _is_within(line: Line, reached: Mapping[str, int]) -> bool:
    return line.number <= reached.get(line.source, 0)


def after(
    conn: Connection, incarnation: str, seen: Mapping[str, int], *, most: int
) -> tuple[Sequence[Line], Mapping[str, int]]:
    """What each source wrote after the number in `seen`, in order; and by source, the number
    reached."""
    known = dict(list(seen.items())[-SOURCES_ASKED_MAX:])
    new = [and_(job_logs.c.source == source, job_logs.c.number > n) for source, n in known.items()]
    query = (
        select(*_COLUMNS)
        .where(job_logs.c.incarnation == incarnation)
        .where(or_(job_logs.c.source.not_in(sorted(known)), *new))
        # Ordered by source, so that the next call gets what is cut off, and nothing is skipped.
        .order_by(job_logs.c.source, job_logs.c.number)
        .limit(most)
    )
    lines = [Line(*row) for row in conn.execute(query)]
    reached = {**known, **{line.source: line.number for line in lines}}
    return sorted(lines, key=lambda line: (line.at_ms, line.source, line.number)), reached
