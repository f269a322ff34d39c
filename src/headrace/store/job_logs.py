"""Log lines of jobs: what was said about each, by its workers and by whoever led.

Each source counts its own lines, so that a line which is said twice is kept once, and a reader
can ask for what each has said since. Lines outlive the job's other rows: they go when they are
old, the oldest first when there are too many of them.
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

from headrace.store.inserts import insert_absent
from headrace.store.prepared import Prepared, one_of
from headrace.store.schema import job_logs, jobs, tasks

LOG_LINES_KEPT = 10_000  # of each job, the last ones
EXPIRED_AT_ONCE_MAX = 5_000  # lines in one transaction
AHEAD_MAX_MS = 60_000  # of the leader's clock: later than that no line can have been taken
UNTIMED_MS = 0  # of a line that an older program wrote: it is given a time before it can expire
LATEST_MS = 2**62  # later than any line, also after the clock was set back
SOURCES_ASKED_MAX = 400  # in one statement: SQLite's depth of an expression has a limit


@dataclass(frozen=True, slots=True)
class Line:
    source: str
    number: int
    at_ms: int
    level: str
    text: str


_ORDER = (job_logs.c.at_ms, job_logs.c.source, job_logs.c.number)
_COLUMNS = tuple(job_logs.c[name] for name in ("source", "number", "at_ms", "level", "text"))
# A cleaner that is about to delete the job is waited for; whoever moves it is not.
_KNOWN = Prepared(
    select(jobs.c.incarnation, jobs.c.id)
    .where(one_of(jobs.c.incarnation, "owners"))
    .order_by(jobs.c.id)
    .with_for_update(read=True, key_share=True)
)


def _counted_on(counter: Column[int], incarnation: ColumnElement[str]) -> ColumnElement[int]:
    """The next number of a source. Its lines may all have expired, so a counter knows the last
    one; a program before this one did not count, so lines that are kept may be further."""
    kept = (
        select(func.coalesce(func.max(job_logs.c.number), 0))
        .where(job_logs.c.incarnation == incarnation, job_logs.c.source == bindparam("by"))
        .scalar_subquery()
    )
    return case((kept > counter, kept), else_=counter) + 1


_NEXT_OF_JOB = Prepared(
    update(jobs)
    .where(jobs.c.id == bindparam("of"))
    .values(log_number=_counted_on(jobs.c.log_number, jobs.c.incarnation))
    .returning(jobs.c.incarnation, jobs.c.log_number)
)
_OWNER = select(jobs.c.incarnation).where(jobs.c.id == bindparam("of")).scalar_subquery()
_NEXT_OF_TASK = Prepared(
    update(tasks)
    .where(tasks.c.id == bindparam("task"), tasks.c.job_id == bindparam("of"))
    .values(log_number=_counted_on(tasks.c.log_number, _OWNER))
    .returning(_OWNER, tasks.c.log_number)
)
_FORGET = Prepared(
    delete(job_logs).where(
        job_logs.c.incarnation == bindparam("of"),
        job_logs.c.source == bindparam("by"),
        job_logs.c.number <= bindparam("up_to"),
    )
)
_LAST_OF_EACH = Prepared(
    select(job_logs.c.source, func.max(job_logs.c.number))
    .where(job_logs.c.incarnation == bindparam("of"))
    .group_by(job_logs.c.source)
)
_NEWEST = Prepared(
    select(*_COLUMNS)
    .where(job_logs.c.incarnation == bindparam("of"))
    .order_by(*(column.desc() for column in _ORDER))
    .limit(bindparam("most"))
)
_FIRST_TOO_MANY = Prepared(
    select(*_ORDER)
    .where(job_logs.c.incarnation == bindparam("of"))
    .order_by(*(column.desc() for column in _ORDER))
    .limit(1)
    .offset(bindparam("kept"))
)

_KEY = (job_logs.c.incarnation, job_logs.c.source, job_logs.c.number)
_BEFORE_ALL = ("", "", 0)


def _among(taken: Callable[[Column[int]], ColumnElement[bool]]) -> ColumnElement[bool]:
    """So many lines that were taken then, the oldest first. By key, as thousands may have been
    taken in one millisecond."""
    found = job_logs.alias("found")
    chosen = (
        select(*(found.c[column.name] for column in _KEY))
        .where(taken(found.c.taken_at_ms))
        .order_by(found.c.taken_at_ms)
        .limit(bindparam("most"))
    )
    return tuple_(*_KEY).in_(chosen)


_OLDEST = Prepared(
    select(job_logs.c.taken_at_ms)
    .where(job_logs.c.taken_at_ms <= bindparam("until_ms"))
    .order_by(job_logs.c.taken_at_ms)
    .limit(1)
)
_AHEAD = Prepared(
    select(job_logs.c.taken_at_ms)
    .where(job_logs.c.taken_at_ms > bindparam("latest_ms"))
    .order_by(job_logs.c.taken_at_ms)
    .limit(1)
)
_EXPIRE = Prepared(
    delete(job_logs).where(
        _among(lambda at_ms: and_(at_ms <= bindparam("until_ms"), at_ms > UNTIMED_MS))
    )
)
_UNTIMED = Prepared(
    update(job_logs)
    .where(_among(lambda at_ms: at_ms == UNTIMED_MS))
    .values(taken_at_ms=bindparam("now_ms"))
)
_AHEAD_TO_NOW = Prepared(
    update(job_logs)
    .where(_among(lambda at_ms: at_ms > bindparam("latest_ms")))
    .values(taken_at_ms=bindparam("now_ms"))
)
_AFTER = tuple_(*_KEY) > tuple_(
    bindparam("owner", type_=Text()),
    bindparam("by", type_=Text()),
    bindparam("said", type_=BigInteger()),
)
_FURTHER = Prepared(
    select(*_KEY).where(_AFTER).order_by(*_KEY).limit(1).offset(bindparam("skipped"))
)
_REST = Prepared(select(func.count()).select_from(job_logs).where(_AFTER))


def add(
    conn: Connection, said: Mapping[tuple[str, str], Sequence[Line]], *, now_ms: int
) -> Sequence[str]:
    """Keep lines, by incarnation and source. Returns the incarnations that have jobs.

    Lines of a job that is gone are nobody's: they never bring anything of it back (C1).
    """
    owners = sorted({incarnation for incarnation, _ in said})
    known: dict[str, str] = dict(_KNOWN.rows(conn, {"owners": owners}))
    rows = [
        _row(incarnation, known[incarnation], line, now_ms=now_ms)
        for (incarnation, _), lines in said.items()
        if incarnation in known
        for line in lines
    ]
    if rows:
        insert_absent(conn, job_logs, rows)
    return sorted(known)


def note(conn: Connection, job_id: str, said: Line, *, task_id: str | None = None) -> None:
    """Keep one line under the next number of its source; nothing, when there is no such job.

    The caller has changed the job's row, and with `task_id` that of its task: under that lock
    alone does this source speak of the job.
    """
    if task_id is None:
        found = _NEXT_OF_JOB.row(conn, {"of": job_id, "by": said.source})
    else:
        found = _NEXT_OF_TASK.row(conn, {"of": job_id, "task": task_id, "by": said.source})
    if found is None:
        return
    incarnation, number = found
    line = replace(said, number=number)
    insert_absent(conn, job_logs, [_row(incarnation, job_id, line, now_ms=said.at_ms)])
    if number > LOG_LINES_KEPT:
        up_to = number - LOG_LINES_KEPT
        _FORGET.change(conn, {"of": incarnation, "by": said.source, "up_to": up_to})


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
    """Forget all but the last lines of a job."""
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
    """Whether a line was taken at a time that is yet to come."""
    return _AHEAD.row(conn, {"latest_ms": now_ms + AHEAD_MAX_MS}) is not None


def set_right(conn: Connection, *, now_ms: int) -> None:
    """Give lines the time of now that have none, or one that is yet to come, as many as go at once.

    The first ones were taken by a program that did not know of it, the others before a clock was
    set back, or by a node whose clock is ahead: they would outlive all others.
    """
    batch = {"now_ms": now_ms, "most": EXPIRED_AT_ONCE_MAX}
    _UNTIMED.change(conn, batch)
    _AHEAD_TO_NOW.change(conn, {**batch, "latest_ms": now_ms + AHEAD_MAX_MS})


def expire(conn: Connection, *, until_ms: int, too_many: int = 0) -> int:
    """Forget lines that were taken by then, and so many of the oldest in any case; the oldest
    first, and not more than go at once."""
    most = EXPIRED_AT_ONCE_MAX
    gone = _EXPIRE.change(conn, {"until_ms": until_ms, "most": most})
    more = min(too_many, most) - gone
    return gone + (_EXPIRE.change(conn, {"until_ms": LATEST_MS, "most": more}) if more > 0 else 0)


@dataclass(frozen=True, slots=True)
class Counted:
    lines: int = 0
    up_to: tuple[str, str, int] | None = _BEFORE_ALL  # None: that were all


def count(conn: Connection, before: Counted, *, most: int) -> Counted:
    """Count on, so many lines at a time: to count millions takes longer than a statement may."""
    assert before.up_to is not None
    incarnation, source, number = before.up_to
    at = {"owner": incarnation, "by": source, "said": number}
    further = _FURTHER.row(conn, {**at, "skipped": most - 1})
    if further is not None:
        incarnation, source, number = further
        return Counted(before.lines + most, (incarnation, source, number))
    [(rest,)] = _REST.rows(conn, at)
    return Counted(before.lines + rest, None)


def last(
    conn: Connection, incarnation: str, *, most: int
) -> tuple[Sequence[Line], Mapping[str, int]]:
    """The last lines, in their order; and by source, up to where they were looked at."""
    reached: dict[str, int] = dict(_LAST_OF_EACH.rows(conn, {"of": incarnation}))
    rows = _NEWEST.rows(conn, {"of": incarnation, "most": most})
    # What came between the two statements is for the next look.
    lines = [line for row in rows if _is_within(line := Line(*row), reached)]
    return lines[::-1], reached


def _is_within(line: Line, reached: Mapping[str, int]) -> bool:
    return line.number <= reached.get(line.source, 0)


def after(
    conn: Connection, incarnation: str, seen: Mapping[str, int], *, most: int
) -> tuple[Sequence[Line], Mapping[str, int]]:
    """What each source has said since, in order; and up to where the next look need not go."""
    known = dict(list(seen.items())[-SOURCES_ASKED_MAX:])
    new = [and_(job_logs.c.source == source, job_logs.c.number > n) for source, n in known.items()]
    query = (
        select(*_COLUMNS)
        .where(job_logs.c.incarnation == incarnation)
        .where(or_(job_logs.c.source.not_in(sorted(known)), *new))
        # By source: whatever is cut off comes next, and nothing is passed over.
        .order_by(job_logs.c.source, job_logs.c.number)
        .limit(most)
    )
    lines = [Line(*row) for row in conn.execute(query)]
    reached = {**known, **{line.source: line.number for line in lines}}
    return sorted(lines, key=lambda line: (line.at_ms, line.source, line.number)), reached
