"""Log lines of jobs: what was said about each, by its workers and by whoever led.

Each source counts its own lines, so that a line which is said twice is kept once, and a reader
can ask for what each has said since. Lines outlive the job's other rows: they go when they are
old, the oldest first when there are too many of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select, tuple_, update

from headrace.store.inserts import insert_absent
from headrace.store.prepared import Prepared, one_of
from headrace.store.schema import job_logs, jobs

LOG_LINES_KEPT = 10_000  # of each job, the last ones
EXPIRED_AT_ONCE_MAX = 5_000  # lines in one transaction, and those of the same millisecond
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
_NEXT = Prepared(
    select(
        jobs.c.incarnation,
        select(func.coalesce(func.max(job_logs.c.number), 0) + 1)
        .where(job_logs.c.incarnation == jobs.c.incarnation, job_logs.c.source == bindparam("by"))
        .scalar_subquery(),
    ).where(jobs.c.id == bindparam("of"))
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
_OLDEST = Prepared(
    select(job_logs.c.taken_at_ms)
    .where(job_logs.c.taken_at_ms <= bindparam("until_ms"))
    .order_by(job_logs.c.taken_at_ms)
    .limit(1)
    .offset(bindparam("skipped"))
)
_BACK = Prepared(
    select(job_logs.c.taken_at_ms)
    .where(job_logs.c.taken_at_ms < bindparam("before_ms"))
    .order_by(job_logs.c.taken_at_ms.desc())
    .limit(1)
    .offset(bindparam("skipped"))
)
_EXPIRE = Prepared(delete(job_logs).where(job_logs.c.taken_at_ms <= bindparam("until_ms")))
_UNTIMED = Prepared(
    update(job_logs).where(job_logs.c.taken_at_ms == 0).values(taken_at_ms=bindparam("now_ms"))
)


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


def note(conn: Connection, job_id: str, *, source: str, at_ms: int, level: str, text: str) -> None:
    """Keep one line under the next number of its source; nothing, when there is no such job.

    The caller holds a lock under which alone this source speaks of the job.
    """
    found = _NEXT.row(conn, {"of": job_id, "by": source})
    if found is None:
        return
    incarnation, number = found
    line = Line(source, number, at_ms, level, text)
    insert_absent(conn, job_logs, [_row(incarnation, job_id, line, now_ms=at_ms)])
    if number > LOG_LINES_KEPT:
        up_to = number - LOG_LINES_KEPT
        _FORGET.change(conn, {"of": incarnation, "by": source, "up_to": up_to})


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
    return _OLDEST.row(conn, {"until_ms": until_ms, "skipped": 0}) is not None


def expire(conn: Connection, *, until_ms: int, now_ms: int) -> int:
    """Forget the oldest of those that were taken by then, as many as go at once."""
    _UNTIMED.change(conn, {"now_ms": now_ms})  # taken by a program that did not know of it
    batch = {"until_ms": until_ms, "skipped": EXPIRED_AT_ONCE_MAX - 1}
    (last_ms,) = _OLDEST.row(conn, batch) or (until_ms,)
    return _EXPIRE.change(conn, {"until_ms": last_ms})


def taken_before(conn: Connection, before_ms: int, *, lines: int) -> int | None:
    """When the line was taken that so many lines are newer than, back from then; None: fewer."""
    found = _BACK.row(conn, {"before_ms": before_ms, "skipped": lines})
    return found[0] if found else None


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
