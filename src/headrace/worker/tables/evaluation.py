"""Evaluates tables and plans their rewrites, and turns the results into messages for the leader.

`evaluate_tables` finds out for each table what it is like, whether it needs optimizing, and why.
The metadata pointer is read first; files are scanned only if the pointer has moved, or if a rule
may have fired by time alone. A table that can't be read is reported with the reason, and the next
one follows. An unavailable catalog ends the evaluation, and no table is blamed.

`plan_table` chooses which files of a table are rewritten together, and in which tasks.

Messages are bounded, whatever a table is like.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.errors import HeadraceError, Refused
from headrace.lake.catalog import TableMissing, TableRef
from headrace.lake.table_format import Probe
from headrace.model.tables.assessment import (
    Assessment,
    SnapshotTotals,
    assess,
    estimated_scores,
    looks_healthy,
)
from headrace.model.tables.bins import Bin, group
from headrace.model.tables.evaluation import (
    NEVER,
    EvaluatedPartition,
    PartitionClock,
    evaluate,
    fires_at_ms,
    forced,
    needs_clock,
)
from headrace.model.tables.files import DeleteKind, Partition, TableFiles
from headrace.model.tables.plan import Gain, ProcessBudget, TablePlan, gain_of, plan
from headrace.model.tables.settings import Flaw, OptimizingSettings
from headrace.model.tables.status import OptimizingType
from headrace.protocol.tables import (
    BINS_PER_PROCESS_MAX,
    BINS_PER_TASK_MAX,
    CLOCKS_MAX,
    FILES_BLAMED_MAX,
    FILES_PER_PROCESS_MAX,
    PARTITIONS_NAMED_MAX,
    RULES_REPORTED_MAX,
    Chosen,
    Clocks,
    EvaluatedTable,
    EvaluatePayload,
    EvaluationResult,
    PartitionReport,
    Pending,
    Planned,
    PlannedBin,
    PlanPayload,
    RuleReport,
    Summary,
    ToEvaluate,
    type_name,
)
from headrace.worker.tables.catalogs import TableWork, trouble_with, unreadable

log = logging.getLogger(__name__)

SEEN_REPORTED_MAX = 1_000  # partitions of one table and evaluation; the next reports further ones
FLAW_CHARACTERS_MAX = 500  # a property may be of any length
ERROR_CHARACTERS_MAX = 2_000

# Errors that broken metadata of a table may cause, beside those of its format. The death of the
# JVM is none of them.
_BROKEN = (HeadraceError, ValueError, LookupError, TypeError, ArithmeticError)

Times = Mapping[Partition, PartitionClock]


def evaluate_tables(work: TableWork, payload: EvaluatePayload) -> EvaluationResult:
    """Evaluate each table of the task; ends early when the catalog is unavailable."""
    results: list[EvaluatedTable] = []
    for number, one in enumerate(payload.tables, start=1):
        ref = work.ref(one.table)
        work.begin_step(f"evaluating {ref} ({number} of {len(payload.tables)})")
        try:
            result = _evaluate(work, payload, one, ref)
        except (*_BROKEN, *work.format.errors.types) as error:
            work.execution.check()
            trouble = trouble_with(work)
            if trouble is not None:
                return EvaluationResult(
                    tables=tuple(results), catalog_error=work.safe(str(trouble))
                )
            result = _not_evaluated(work, one, ref, error)
        results.append(result)
    return EvaluationResult(tables=tuple(results))


def _not_evaluated(
    work: TableWork, one: ToEvaluate, ref: TableRef, error: Exception
) -> EvaluatedTable:
    if isinstance(error, TableMissing):
        return EvaluatedTable(id=one.table.id, gone=True)
    reason = work.safe(unreadable(work, ref, error))[:ERROR_CHARACTERS_MAX]
    log.warning("table not evaluated", extra={"table": str(ref), "reason": reason})
    return EvaluatedTable(id=one.table.id, error=reason)


def _evaluate(
    work: TableWork, payload: EvaluatePayload, one: ToEvaluate, ref: TableRef
) -> EvaluatedTable:
    seen = work.format.probe(work.session, ref)
    settings, flaws = OptimizingSettings.read(seen.properties, payload.defaults, payload.groups)
    base = EvaluatedTable(
        id=one.table.id,
        uuid=seen.uuid,
        pointer=seen.pointer,
        snapshot=seen.snapshot,
        look_at_ms=one.look_at_ms,
        chosen=chosen_of(settings),
        flaws=flaws_of(flaws),
    )
    waits = one.look_at_ms is None or payload.now_ms < one.look_at_ms
    if waits and one.pointer == seen.pointer:
        return base.model_copy(update={"unchanged": True})
    totals = totals_of(seen)
    if not settings.enabled:
        glance = estimated_summary(totals, settings)
        return base.model_copy(update={"look_at_ms": None, "summary": glance})
    # Amoro's pre-check, only after a first full scan: that sets `look_at_ms`.
    known = one.pointer is not None and one.look_at_ms is not None
    if settings.fallback_interval_ms >= 0 and known and waits and looks_healthy(totals, settings):
        return base.model_copy(update={"summary": estimated_summary(totals, settings)})
    return _scanned(work, payload, one, ref, seen, settings, base)


def _scanned(
    work: TableWork,
    payload: EvaluatePayload,
    one: ToEvaluate,
    ref: TableRef,
    seen: Probe,
    settings: OptimizingSettings,
    base: EvaluatedTable,
) -> EvaluatedTable:
    files = _scan(work, ref, settings)
    # Clocks of a former table of the same name do not hold for this one.
    clocks = times_of(one.clocks if one.table.uuid in (None, seen.uuid) else {})
    assessment = assess(
        files, settings, clocks, now_ms=payload.now_ms, left_out=frozenset(one.left_out)
    )
    work.note_progress()
    return base.model_copy(
        update={
            "snapshot": files.snapshot,
            "look_at_ms": look_at_ms(assessment.evaluated, settings, clocks, now_ms=payload.now_ms),
            "pending": pending_of(assessment, files, settings),
            "summary": summary_of(assessment, files, settings),
            "seen": first_seen(assessment.evaluated, clocks),
        }
    )


def plan_table(work: TableWork, payload: PlanPayload) -> Planned:
    """Choose the files to rewrite; without any, the result has a reason instead of tasks."""
    ref = work.ref(payload.table)
    work.begin_step(f"planning {ref}")
    seen = _probed(work, ref)
    settings, _ = OptimizingSettings.read(seen.properties, payload.defaults, payload.groups)
    settings = replace(settings, max_file_count=min(settings.max_file_count, FILES_PER_PROCESS_MAX))
    base = Planned(
        uuid=seen.uuid,
        chosen=chosen_of(settings),
        retries=settings.execute_retries,
        allow_partial_commit=settings.allow_partial_commit,
        target_bytes=settings.target_size_bytes,
        spent=work.format.spent_number(seen, payload.table.id),
    )
    if not settings.enabled and payload.at_least is None:
        return _nothing(base, "self-optimizing.enabled is false")
    files = _scan(work, ref, settings)
    if files.snapshot is None:
        return _nothing(base, "it has no snapshot yet, and so no files")
    evaluated = _evaluated(payload, files, settings, same=payload.table.uuid in (None, seen.uuid))
    room = ProcessBudget(payload.budget_bytes, BINS_PER_PROCESS_MAX, FILES_PER_PROCESS_MAX)
    left_out = frozenset(payload.left_out)
    made = plan(files, evaluated, settings, room=room, left_out=left_out)
    work.note_progress()
    base = base.model_copy(update={"snapshot": files.snapshot})
    if made is None:
        return _nothing(base, _why_nothing(evaluated, files, left_out))
    return base.model_copy(update=_made(made, files, settings))


def _scan(work: TableWork, ref: TableRef, settings: OptimizingSettings) -> TableFiles:
    return work.format.scan(
        work.session, ref, filter=settings.filter, on_progress=work.note_progress
    )


def _probed(work: TableWork, ref: TableRef) -> Probe:
    try:
        return work.format.probe(work.session, ref)
    except TableMissing:
        raise Refused(f"there is no table {ref} any more; nothing is planned for it") from None


def _evaluated(
    payload: PlanPayload, files: TableFiles, settings: OptimizingSettings, *, same: bool
) -> Sequence[EvaluatedPartition]:
    clocks = times_of(payload.clocks if same else {})
    partitions = evaluate(files, settings, clocks, now_ms=payload.now_ms)
    return (
        partitions
        if payload.at_least is None
        else forced(partitions, OptimizingType[payload.at_least])
    )


def _nothing(base: Planned, reason: str) -> Planned:
    return base.model_copy(update={"reason": reason})


def _why_nothing(
    evaluated: Sequence[EvaluatedPartition], files: TableFiles, left_out: frozenset[str]
) -> str:
    if not files.files:
        return "it has no files, or self-optimizing.filter leaves none"
    if all(each.type is None for each in evaluated):
        return "no partition needs it by any rule"
    shunned = sum(file.path in left_out for file in files.files)
    others = f"; {shunned} files are left out because they failed too often" if shunned else ""
    return f"no rewrite would gain anything: as few files as can be, and no deletes{others}"


def _made(made: TablePlan, files: TableFiles, settings: OptimizingSettings) -> dict[str, object]:
    return {
        "type": type_name(made.type),
        "tasks": _tasks(made.bins, settings),
        "gain": reported_gain(made, files, settings),
        "done": {each.id: type_name(kind) for each, kind in made.done.items()},
        "left": len(made.left),
        "left_out": tuple(file.path for file in made.left_out[:FILES_BLAMED_MAX]),
    }


def _tasks(bins: Sequence[Bin], settings: OptimizingSettings) -> tuple[tuple[PlannedBin, ...], ...]:
    """Bins are numbered consecutively over all tasks: a commit identifies each by its number."""
    tasks: list[tuple[PlannedBin, ...]] = []
    first = 0
    for those in group(bins, task_bytes=settings.task_bytes, bins_max=BINS_PER_TASK_MAX):
        numbered = enumerate(those, start=first)
        tasks.append(tuple(_bin(number, each) for number, each in numbered))
        first += len(those)
    return tuple(tasks)


def _bin(number: int, each: Bin) -> PlannedBin:
    return PlannedBin(
        number=number,
        partition=each.partition.id,
        paths=tuple(file.path for file in each.files),
        bytes=each.read_bytes,
    )


def times_of(clocks: Clocks) -> Times:
    return {Partition.of_id(key): PartitionClock(*times) for key, times in clocks.items()}


def chosen_of(settings: OptimizingSettings) -> Chosen:
    return Chosen(
        enabled=settings.enabled,
        group=settings.group,
        quota=settings.quota,
        min_plan_interval_ms=settings.min_plan_interval_ms,
        refresh_max_interval_ms=settings.refresh_max_interval_ms,
        refresh_step_ms=settings.refresh_step_ms,
    )


def flaws_of(flaws: Sequence[Flaw]) -> tuple[str, ...]:
    return tuple(str(flaw)[:FLAW_CHARACTERS_MAX] for flaw in flaws)


def reported_gain(made: TablePlan, files: TableFiles, settings: OptimizingSettings) -> Gain:
    """Under a filter it is unknown which delete files the other files still need: no removal is
    promised."""
    if settings.filter is None:
        return made.gain
    return gain_of(made.bins, (), files, settings)


def pending_of(
    assessment: Assessment, files: TableFiles, settings: OptimizingSettings
) -> Pending | None:
    pending = assessment.pending
    if pending is None or assessment.plan is None or pending.snapshot is None:
        return None
    gain = reported_gain(assessment.plan, files, settings)
    return Pending(
        type=type_name(pending.type),
        snapshot=pending.snapshot,
        partitions=len(pending.partitions),
        told=tuple(str(each) for each in pending.partitions[:PARTITIONS_NAMED_MAX]),
        files=pending.data.files,
        bytes=pending.data.bytes,
        position_deletes=pending.position_deletes.files,
        equality_deletes=pending.equality_deletes.files,
        files_after=gain.files_after,
        bytes_after=gain.bytes_after,
        benefit=gain.benefit,
    )


def summary_of(assessment: Assessment, files: TableFiles, settings: OptimizingSettings) -> Summary:
    kinds = [each.kind for each in files.deletes]
    equality = kinds.count(DeleteKind.EQUALITY)
    neediest = sorted(assessment.evaluated, key=_need, reverse=True)
    return Summary(
        partitions=len(assessment.evaluated),
        due=sum(each.type is not None for each in assessment.evaluated),
        files=assessment.files.files,
        bytes=assessment.files.bytes,
        rows=assessment.files.rows,
        position_deletes=len(kinds) - equality,
        equality_deletes=equality,
        score=assessment.scan_score,
        amoro_score=assessment.amoro_score,
        most=tuple(_partition_report(each) for each in neediest[:RULES_REPORTED_MAX]),
        set_by=dict(settings.set_by),
    )


def totals_of(seen: Probe) -> SnapshotTotals | None:
    """The totals in the current snapshot's summary; None: its writer did not give them."""
    if seen.snapshot is None:
        return SnapshotTotals(0, 0, 0, 0, 0, 0)
    if seen.files is None or seen.bytes is None or seen.rows is None:
        return None
    deletes = (seen.delete_files or 0, seen.position_deletes or 0, seen.equality_deletes or 0)
    return SnapshotTotals(seen.files, seen.bytes, seen.rows, *deletes)


def estimated_summary(
    totals: SnapshotTotals | None, settings: OptimizingSettings
) -> Summary | None:
    """A summary without a scan: it knows no partitions, and its scores are estimates."""
    if totals is None:
        return None
    score, amoro = estimated_scores(totals, settings)
    return Summary(
        partitions=0,
        due=0,
        files=totals.files,
        bytes=totals.bytes,
        rows=totals.rows,
        position_deletes=totals.position_delete_files,
        equality_deletes=totals.equality_delete_files,
        score=score,
        amoro_score=amoro,
        set_by=dict(settings.set_by),
    )


def look_at_ms(
    partitions: Sequence[EvaluatedPartition],
    settings: OptimizingSettings,
    clocks: Times,
    *,
    now_ms: int,
) -> int | None:
    """The earliest time at which a rule can fire though nothing changes; None: none can."""
    times = [
        fires_at_ms(each.measured, settings, clocks.get(each.partition, NEVER), now_ms=now_ms)
        for each in partitions
    ]
    if settings.fallback_interval_ms >= 0:  # a full scan is due then, whatever the totals say
        times.append(now_ms + settings.fallback_interval_ms)
    return min((at for at in times if at is not None), default=None)


def first_seen(partitions: Sequence[EvaluatedPartition], clocks: Times) -> tuple[str, ...]:
    """Partitions whose clock starts now: nothing is due in them, but something may be later.

    A partition that is due already has no clock until it is optimized: never optimized counts as
    due at once.
    """
    room = min(SEEN_REPORTED_MAX, CLOCKS_MAX - len(clocks))
    new = (
        each.partition.id
        for each in partitions
        if each.type is None and each.partition not in clocks and needs_clock(each.measured)
    )
    return tuple(key for key, _ in zip(new, range(room), strict=False))


def _need(each: EvaluatedPartition) -> tuple[int, int, int]:
    return each.type or 0, len(each.fired), each.cost


def _partition_report(each: EvaluatedPartition) -> PartitionReport:
    return PartitionReport(
        partition=str(each.partition),
        type=None if each.type is None else type_name(each.type),
        files=each.measured.files.files,
        bytes=each.measured.files.bytes,
        rules=tuple(
            RuleReport(
                type=type_name(rule.type),
                name=rule.name,
                said=rule.description,
                measured=rule.measured,
                threshold=rule.threshold,
                fired=rule.fired,
                unit=rule.unit,
            )
            for rule in each.rules
        ),
    )
