"""Who needs the workers of a group: told before it is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from headrace.store.schema import OPEN_JOB, jobs, workers
from headrace.store.table_schema import catalogs, lake_tables

JOBS_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Users:
    jobs: int = 0  # that have not ended
    named: Sequence[str] = ()  # some of these jobs
    catalogs: Sequence[str] = ()
    tables: int = 0
    by_hand: int = 0  # workers that nobody of us started

    def __bool__(self) -> bool:
        return bool(self.jobs or self.catalogs or self.tables or self.by_hand)


def of(conn: Connection, group: str) -> Users:
    mine = (jobs.c.group_name == group, OPEN_JOB)
    named = select(jobs.c.id).where(*mine).order_by(jobs.c.id).limit(JOBS_NAMED_MAX)
    of_catalogs = select(catalogs.c.name).where(catalogs.c.group_name == group)
    by_hand = (workers.c.group_name == group, workers.c.resource_id.is_(None))
    return Users(
        jobs=int(conn.scalar(select(func.count()).select_from(jobs).where(*mine)) or 0),
        named=list(conn.execute(named).scalars()),
        catalogs=list(conn.execute(of_catalogs.order_by(catalogs.c.name)).scalars()),
        tables=int(
            conn.scalar(
                select(func.count())
                .select_from(lake_tables)
                .where(lake_tables.c.group_name == group)
            )
            or 0
        ),
        by_hand=int(conn.scalar(select(func.count()).select_from(workers).where(*by_hand)) or 0),
    )
