"""What the model found, as messages to the leader: bounded, whatever a table is like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.formats.iceberg.scan import Probe
from headrace.model.tables.assess import Assessment
from headrace.model.tables.evaluate import NEVER, Clock, Evaluated, fires_at_ms, needs_clock
from headrace.model.tables.files import DeleteKind, Partition, TableFiles
from headrace.model.tables.glance import Totals, estimated_scores
from headrace.model.tables.plan import Gain, Plan, gain_of
from headrace.model.tables.properties import Flaw
from headrace.model.tables.settings import OptimizingSettings
from headrace.protocol.tables import (
    CLOCKS_MAX,
    PARTITIONS_TOLD_MAX,
    RULES_TOLD_MAX,
    Chosen,
    Clocks,
    PartitionTold,
    Pending,
    RuleTold,
    Summary,
    TypeName,
)

SEEN_TOLD_MAX = 1_000  # partitions of one table and evaluation; the next one tells further ones
FLAW_CHARACTERS_MAX = 500  # a property may hold anything

Times = Mapping[Partition, Clock]


def times_of(clocks: Clocks) -> Times:
    return {Partition.of_id(key): Clock(*times) for key, times in clocks.items()}


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


def gain_told(made: Plan, files: TableFiles, settings: OptimizingSettings) -> Gain:
    """Under a filter nobody knows which delete files the others still need: none is promised."""
    if settings.filter is None:
        return made.gain
    return gain_of(made.bins, (), files, settings)


def pending_of(
    found: Assessment, files: TableFiles, settings: OptimizingSettings
) -> Pending | None:
    pending = found.pending
    if pending is None or found.plan is None or pending.snapshot is None:
        return None
    gain = gain_told(found.plan, files, settings)
    return Pending(
        type=type_name(pending.type.name),
        snapshot=pending.snapshot,
        partitions=len(pending.partitions),
        told=tuple(str(each) for each in pending.partitions[:PARTITIONS_TOLD_MAX]),
        files=pending.data.files,
        bytes=pending.data.bytes,
        position_deletes=pending.position_deletes.files,
        equality_deletes=pending.equality_deletes.files,
        files_after=gain.files_after,
        bytes_after=gain.bytes_after,
        benefit=gain.benefit(settings.open_file_cost_bytes),
    )


def summary_of(found: Assessment, files: TableFiles, settings: OptimizingSettings) -> Summary:
    kinds = [each.kind for each in files.deletes]
    equality = kinds.count(DeleteKind.EQUALITY)
    neediest = sorted(found.evaluated, key=_need, reverse=True)
    return Summary(
        partitions=len(found.evaluated),
        due=sum(each.type is not None for each in found.evaluated),
        files=found.files.files,
        bytes=found.files.bytes,
        rows=found.files.rows,
        position_deletes=len(kinds) - equality,
        equality_deletes=equality,
        score=found.scan_score,
        amoro_score=found.amoro_score,
        most=tuple(_partition_told(each) for each in neediest[:RULES_TOLD_MAX]),
        set_by=dict(settings.set_by),
    )


def totals_of(seen: Probe) -> Totals | None:
    """What the current snapshot's summary says; None: its writer did not tell."""
    if seen.snapshot is None:
        return Totals(0, 0, 0, 0, 0, 0)
    if seen.files is None or seen.bytes is None or seen.rows is None:
        return None
    deletes = (seen.delete_files or 0, seen.position_deletes or 0, seen.equality_deletes or 0)
    return Totals(seen.files, seen.bytes, seen.rows, *deletes)


def glance_of(totals: Totals | None, settings: OptimizingSettings) -> Summary | None:
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
    found: Sequence[Evaluated], settings: OptimizingSettings, clocks: Times, *, now_ms: int
) -> int | None:
    """The earliest time at which a rule can fire though nothing changes; None: none can."""
    times = [
        fires_at_ms(each.measured, settings, clocks.get(each.partition, NEVER), now_ms=now_ms)
        for each in found
    ]
    if settings.fallback_interval_ms >= 0:  # a look at every file is due then, whatever was told
        times.append(now_ms + settings.fallback_interval_ms)
    return min((at for at in times if at is not None), default=None)


def first_seen(found: Sequence[Evaluated], clocks: Times) -> tuple[str, ...]:
    """Partitions whose time begins now: nothing is due in them, and something may be, later.

    One that is due already has no clock until it is optimized: never done counts as due at once.
    """
    room = min(SEEN_TOLD_MAX, CLOCKS_MAX - len(clocks))
    new = (
        each.partition.id
        for each in found
        if each.type is None and each.partition not in clocks and needs_clock(each.measured)
    )
    return tuple(key for key, _ in zip(new, range(room), strict=False))


def type_name(name: str) -> TypeName:
    match name:
        case "MINOR" | "MAJOR" | "FULL":
            return name
        case _:
            raise ValueError(f"{name!r} is no type of optimizing")


def _need(each: Evaluated) -> tuple[int, int, int]:
    return each.type or 0, len(each.fired), each.cost


def _partition_told(each: Evaluated) -> PartitionTold:
    return PartitionTold(
        partition=str(each.partition),
        type=None if each.type is None else type_name(each.type.name),
        files=each.measured.files.files,
        bytes=each.measured.files.bytes,
        rules=tuple(
            RuleTold(
                type=type_name(rule.type.name),
                name=rule.name,
                said=rule.said,
                measured=rule.measured,
                threshold=rule.threshold,
                fired=rule.fired,
            )
            for rule in each.rules
        ),
    )
