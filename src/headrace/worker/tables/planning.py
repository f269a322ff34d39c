"""Which files of a table are rewritten together, and in which tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import TableMissing, TableRef
from headrace.formats.iceberg.process import spent_number
from headrace.formats.iceberg.scan import Probe, probe, scan
from headrace.model.tables.bins import Bin
from headrace.model.tables.evaluate import Evaluated, evaluate, forced
from headrace.model.tables.files import TableFiles
from headrace.model.tables.grouping import group
from headrace.model.tables.plan import Plan, Room, plan
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType
from headrace.protocol.tables import (
    BINS_PER_PROCESS_MAX,
    BINS_PER_TASK_MAX,
    FILES_BLAMED_MAX,
    FILES_PER_PROCESS_MAX,
    BinTold,
    GainTold,
    Planned,
    PlanPayload,
)
from headrace.worker.tables.telling import chosen_of, gain_told, times_of, type_name
from headrace.worker.tables.work import Work


def plan_table(work: Work, told: PlanPayload) -> Planned:
    ref = work.ref(told.table)
    work.begins(f"planning {ref}")
    seen = _probed(work, ref)
    settings, _ = OptimizingSettings.read(seen.properties, told.defaults, told.groups)
    settings = replace(settings, max_file_count=min(settings.max_file_count, FILES_PER_PROCESS_MAX))
    base = Planned(
        uuid=seen.uuid,
        chosen=chosen_of(settings),
        retries=settings.execute_retries,
        allow_partial_commit=settings.allow_partial_commit,
        target_bytes=settings.target_size_bytes,
        spent=spent_number(seen.properties, told.table.id),
    )
    if not settings.enabled and told.at_least is None:
        return _nothing(base, "self-optimizing.enabled is false")
    files = scan(work.session, ref, filter=settings.filter, heard=work.heard)
    if files.snapshot is None:
        return _nothing(base, "it has no snapshot yet, and so no files")
    evaluated = _evaluated(told, files, settings, same=told.table.uuid in (None, seen.uuid))
    room = Room(told.budget_bytes, BINS_PER_PROCESS_MAX, FILES_PER_PROCESS_MAX)
    left_out = frozenset(told.left_out)
    made = plan(files, evaluated, settings, room=room, left_out=left_out)
    work.heard()
    base = base.model_copy(update={"snapshot": files.snapshot})
    if made is None:
        return _nothing(base, _why_nothing(evaluated, files, left_out))
    return base.model_copy(update=_made(made, files, settings))


def _probed(work: Work, ref: TableRef) -> Probe:
    try:
        return probe(work.session, ref)
    except TableMissing:
        raise Refused(f"there is no table {ref} any more; nothing is planned for it") from None


def _evaluated(
    told: PlanPayload, files: TableFiles, settings: OptimizingSettings, *, same: bool
) -> Sequence[Evaluated]:
    clocks = times_of(told.clocks if same else {})
    found = evaluate(files, settings, clocks, now_ms=told.now_ms)
    return found if told.at_least is None else forced(found, OptimizingType[told.at_least])


def _nothing(base: Planned, reason: str) -> Planned:
    return base.model_copy(update={"reason": reason})


def _why_nothing(
    evaluated: Sequence[Evaluated], files: TableFiles, left_out: frozenset[str]
) -> str:
    if not files.files:
        return "it has no files, or self-optimizing.filter leaves none"
    if all(each.type is None for each in evaluated):
        return "no partition needs it by any rule"
    shunned = sum(file.path in left_out for file in files.files)
    others = f"; {shunned} files are left out because they failed too often" if shunned else ""
    return f"no rewrite would gain anything: as few files as can be, and no deletes{others}"


def _made(made: Plan, files: TableFiles, settings: OptimizingSettings) -> dict[str, object]:
    gain = gain_told(made, files, settings)
    return {
        "type": type_name(made.type.name),
        "tasks": _tasks(made.bins, settings),
        "gain": GainTold(
            files_before=gain.files_before,
            files_after=gain.files_after,
            deletes_removed=gain.deletes_removed,
            bytes_before=gain.bytes_before,
            bytes_after=gain.bytes_after,
            bytes_read=gain.bytes_read,
            benefit=gain.benefit(settings.open_file_cost_bytes),
        ),
        "done": {each.id: type_name(kind.name) for each, kind in made.done.items()},
        "left": len(made.left),
        "left_out": tuple(file.path for file in made.left_out[:FILES_BLAMED_MAX]),
    }


def _tasks(bins: Sequence[Bin], settings: OptimizingSettings) -> tuple[tuple[BinTold, ...], ...]:
    """Bins are numbered through all tasks: a commit knows each by its number."""
    tasks: list[tuple[BinTold, ...]] = []
    first = 0
    for those in group(bins, task_bytes=settings.task_bytes, bins_max=BINS_PER_TASK_MAX):
        numbered = enumerate(those, start=first)
        tasks.append(tuple(_bin(number, each) for number, each in numbered))
        first += len(those)
    return tuple(tasks)


def _bin(number: int, each: Bin) -> BinTold:
    return BinTold(
        number=number,
        partition=each.partition.id,
        paths=tuple(file.path for file in each.files),
        bytes=each.read_bytes,
    )
