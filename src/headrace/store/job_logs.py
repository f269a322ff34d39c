"""Log lines of jobs: what was said about each, by its workers and by whoever led.

Each source counts its own lines, so that a line which is said twice is kept once, and a reader
can ask for what each has said since. Lines go with the job's other rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select, tuple_

from headrace.store.inserts import insert_absent
from headrace.store.prepared import Prepared, one_of
from headrace.store.schema import job_logs, jobs

LOG_LINES_KEPT = 1000  # of each job, the last ones
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


def add(conn: Connection, said: Mapping[tuple[str, str], Sequence[Line]]) -> Sequence[str]:
    """Keep lines, by incarnation and source. Returns the incarnations that have jobs.

    Lines of a job that is gone are nobody's: they never bring anything of it back (C1).
    """
    owners = sorted({incarnation for incarnation, _ in said})
    known: dict[str, str] = dict(_KNOWN.rows(conn, {"owners": owners}))
    rows = [
        _row(incarnation, known[incarnation], line)
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
    insert_absent(
        conn, job_logs, [_row(incarnation, job_id, Line(source, number, at_ms, level, text))]
    )
    if number > LOG_LINES_KEPT:
        up_to = number - LOG_LINES_KEPT
        _FORGET.change(conn, {"of": incarnation, "by": source, "up_to": up_to})


def _row(incarnation: str, job_id: str, line: Line) -> dict[str, str | int]:
    return {
        "incarnation": incarnation,
        "source": line.source,
        "number": line.number,
        "job_id": job_id,
        "at_ms": line.at_ms,
        "level": line.level,
        "text": line.text,
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
