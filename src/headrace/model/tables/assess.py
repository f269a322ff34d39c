"""What an evaluation of a table ends in: whether it is pending, with how much, why, and how healthy
it is.

A table is pending only when a plan of it would gain something. Rules alone don't decide that: a
partition may have waited long enough and still hold nothing that a rewrite makes better.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.model.tables.evaluate import Clock, Evaluated, evaluate
from headrace.model.tables.files import Partition, TableFiles
from headrace.model.tables.health import amoro_score, scan_score
from headrace.model.tables.measure import DeleteIndex, Tally
from headrace.model.tables.plan import Plan, plan
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType


@dataclass(frozen=True, slots=True)
class PendingInput:
    """What waits to be rewritten: kept with the table through restarts (T2)."""

    snapshot: int | None
    type: OptimizingType
    partitions: Sequence[Partition]  # by spec and path
    data: Tally
    position_deletes: Tally
    equality_deletes: Tally


@dataclass(frozen=True, slots=True)
class Assessment:
    evaluated: Sequence[Evaluated]  # every partition, with its rules
    plan: Plan | None  # all there is to do, whatever the budget; None: nothing gains
    pending: PendingInput | None  # None together with the plan
    files: Tally
    amoro_score: int
    scan_score: int


def assess(
    table: TableFiles,
    settings: OptimizingSettings,
    clocks: Mapping[Partition, Clock],
    *,
    now_ms: int,
    left_out: Collection[str] = (),
) -> Assessment:
    evaluated = evaluate(table, settings, clocks, now_ms=now_ms)
    whole = plan(table, evaluated, settings, left_out=left_out)
    measured = [each.measured for each in evaluated]
    return Assessment(
        evaluated=evaluated,
        plan=whole,
        pending=None if whole is None else pending_input(table, whole),
        files=sum((each.files for each in measured), Tally()),
        amoro_score=amoro_score(measured, settings),
        scan_score=scan_score(measured, settings),
    )


def pending_input(table: TableFiles, whole: Plan) -> PendingInput:
    deletes = DeleteIndex(table)
    applied = frozenset(index for each in whole.bins for index in each.deletes)
    return PendingInput(
        snapshot=table.snapshot,
        type=whole.type,
        partitions=sorted({each.partition for each in whole.bins}),
        data=Tally.of([file for each in whole.bins for file in each.files]),
        position_deletes=deletes.tally(applied, by_position=True),
        equality_deletes=deletes.tally(applied, by_position=False),
    )
