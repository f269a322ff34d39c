"""The worker's half."""

from __future__ import annotations

from headrace.worker.tables.catalogs import TableWork
from headrace.worker.tables.registry import TableRun
from tests.table_service.messages import COUNT, Counted, CountPayload


def count_rows(work: TableWork, payload: CountPayload) -> Counted:
    ref = work.ref(payload.table)
    work.begin_step(f"counting the rows of {ref}")
    return Counted(rows=work.format.probe(work.session, ref).rows or 0)


COUNT_ROWS = TableRun(COUNT, count_rows)
