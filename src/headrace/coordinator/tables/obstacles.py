"""What may stand between a table and its optimizing, in the order in which it would be met."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.coordinator.tables.committing import may_land
from headrace.coordinator.tables.evaluations import NOT_EVALUATED
from headrace.coordinator.tables.finding import Finding, Verdict, blocks, ok, remark, waits
from headrace.coordinator.tables.processes import SETTLE_TIMEOUT_S
from headrace.coordinator.tables.standing import Standing, plannable_at_ms
from headrace.model.measures import ago, count, span, until
from headrace.model.tables.backoff import FILE_FAILURES_MAX
from headrace.model.tables.settings import property_of
from headrace.model.tables.status import TableStatus
from headrace.model.task import TaskKind
from headrace.model.text import utc

FILES_NAMED_MAX = 3


def catalog(standing: Standing, now_ms: int) -> Iterator[Finding]:
    found = standing.catalog
    if found is None:
        return
    show = f"`headrace catalog show {found.name}`"
    if found.wanted_removed:
        yield blocks(
            "catalog",
            f"catalog {found.name!r} is being removed, and this table goes with it",
            f"to have it back, `headrace catalog add {found.name}` when that is done",
        )
    elif found.failures or found.error:
        times = f" ({count(found.failures, 'try', 'tries')} in a row)" if found.failures else ""
        yield blocks(
            "catalog",
            f"catalog {found.name!r} can't be looked into{times}: "
            f"{found.error or 'nobody said why'}",
            f"mend it, or what it was told (`headrace catalog set {found.name} --property …`); "
            f"it is tried again {until(found.due_at_ms, now_ms)}. {show} has the whole error",
        )
    elif found.discovered_at_ms is not None:
        looked = ago(found.discovered_at_ms, now_ms)
        yield ok("catalog", f"catalog {found.name!r} was looked into {looked}")


def switched_off(standing: Standing, _now_ms: int) -> Iterator[Finding]:
    table, enabled = standing.table, property_of("enabled")
    if table.wanted_paused:
        way_out = f"`headrace table resume {table.identifier}` lets it be optimized again"
        yield blocks("switch", "it is paused", way_out)
    if not table.enabled:
        yield Finding(
            "switch",
            Verdict.BLOCKS,
            f"{enabled} is false",
            measured="false",
            threshold="true",
            property=enabled,
            way_out=f"ALTER TABLE {table.identifier} SET TBLPROPERTIES ('{enabled}'='true'), or "
            f"`headrace catalog set {table.catalog} --default {enabled}=true` if the table itself "
            "says nothing",
            waits=True,
        )
    if table.may_optimize:
        yield ok("switch", "self-optimizing is on")


def group(standing: Standing, _now_ms: int) -> Iterator[Finding]:
    table = standing.table
    needed = {table.group: property_of("group")}
    if standing.catalog is not None:
        needed.setdefault(standing.catalog.group, "")
    there = ", ".join(map(repr, sorted(standing.groups)))
    for name, set_by in needed.items():
        if standing.groups.get(name):
            continue
        move = f"set {set_by} of the table" if set_by else f"`headrace catalog set {table.catalog}"
        instead = (
            f"{move} to one of {there}" if set_by else f"{move} --group …` with one of {there}"
        )
        yield Finding(
            "group",
            Verdict.BLOCKS,
            f"group {name!r} has no workers"
            + (f"; groups that have some: {there}" if there else ", and neither has any other"),
            measured="0 workers",
            threshold="1",
            property=set_by or None,
            way_out=f"start one with `headrace worker --group {name}`"
            + (f", or {instead}" if there else ""),
            waits=True,
        )


def held_off(standing: Standing, now_ms: int) -> Iterator[Finding]:
    name = standing.table.identifier
    for blocker in standing.blockers:
        yield blocks(
            "blocker",
            f"{blocker.name!r} asks that it be left alone until {utc(blocker.expires_at_ms)}: "
            f"{blocker.reason}",
            f"it ends by itself {until(blocker.expires_at_ms, now_ms)}, or with "
            f"`headrace table unblock {name} {blocker.name}`",
        )
    process = standing.process
    if process is not None and standing.blockers and may_land(standing.table, process):
        yield remark(
            "blocker",
            f"process {process.number} had begun to commit before, and nobody holds that back: it "
            "may still land",
            f"`headrace table history {name}` shows when it has ended",
        )
    if process is not None and process.settling:
        since_ms = process.settling_since_ms or now_ms
        latest_ms = since_ms + SETTLE_TIMEOUT_S * 1000  # later, if the leader changes meanwhile
        yield waits(
            "settlement",
            f"process {process.number} is settling since {utc(since_ms)}: a coordinator stopped "
            "while it committed, and the table is asked whether the commit is in it; nothing else "
            f"is planned until then, {until(latest_ms, now_ms)} at the latest",
        )


def failing(standing: Standing, now_ms: int) -> Iterator[Finding]:
    table = standing.table
    # One that can't be evaluated waits for its next look, one whose process failed for its plan.
    unseen = (table.error or "").startswith(NOT_EVALUATED)
    again_ms = table.due_at_ms if unseen else table.not_before_ms
    if table.failures:
        yield waits(
            "failures",
            f"the last {count(table.failures, 'try', 'tries')} failed: "
            f"{table.error or 'nobody said why'}; it is tried again "
            f"{until(again_ms, now_ms)}, and later after each failure",
            "mend the reason"
            + ("" if unseen else f"; `headrace table optimize {table.identifier}` tries at once"),
        )
    elif table.error:
        yield remark("error", f"the last look at it failed: {table.error}", "mend the reason")


def flaws(standing: Standing, _now_ms: int) -> Iterator[Finding]:
    for flaw in standing.flaws:
        said, _, way_out = flaw.partition(". ")
        yield remark("property", said or flaw, way_out or None)


def files_left_out(standing: Standing, _now_ms: int) -> Iterator[Finding]:
    if not standing.left_out:
        return
    number, named = len(standing.left_out), ", ".join(standing.left_out[:FILES_NAMED_MAX])
    more = f" and {number - FILES_NAMED_MAX} more" if number > FILES_NAMED_MAX else ""
    yield Finding(
        "left out",
        Verdict.HOLDS,
        f"{count(number, 'file')} took part in {FILE_FAILURES_MAX} failures and "
        f"{'is' if number == 1 else 'are'} not planned any more: {named}{more}",
        measured=count(number, "file"),
        threshold=f"{FILE_FAILURES_MAX} failures",
        way_out="look whether they can be read; once they are replaced by others they are "
        "forgotten here",
    )


def evaluated(standing: Standing, now_ms: int) -> Iterator[Finding]:
    table, under_way = standing.table, standing.under_way
    if table.evaluated_at_ms is None:
        looking = under_way is not None and under_way.kind is TaskKind.EVALUATE
        when = "now" if looking else until(table.due_at_ms, now_ms)
        yield waits("evaluation", f"nobody has looked at it yet; that is due {when}")
    else:
        yield ok("evaluation", f"it was looked at {ago(table.evaluated_at_ms, now_ms)}")


def turn(standing: Standing, now_ms: int) -> Iterator[Finding]:
    """Of a pending table: what else must be so before it is planned."""
    table, at = standing.table, standing.turn
    if table.status is not TableStatus.PENDING:
        return
    if (next_ms := plannable_at_ms(table)) > now_ms:
        yield Finding(
            "interval",
            Verdict.HOLDS,
            f"it was planned {span(now_ms - (table.planned_at_ms or 0))} ago, and may be planned "
            f"again {until(next_ms, now_ms)}",
            measured=span(now_ms - (table.planned_at_ms or 0)),
            threshold=span(table.min_plan_interval_ms),
            property=property_of("min_plan_interval_ms"),
            waits=True,
        )
    yield from _slots(standing)
    if at is not None:
        yield from _place(standing, now_ms)


def _slots(standing: Standing) -> Iterator[Finding]:
    slots, name = standing.slots, standing.table.group
    add = f"wait, or add workers with `headrace worker --group {name}`"
    held = f"{slots.pipelines} held by jobs, {slots.rewrites} by tables"
    if slots.enough and standing.table.wanted_type is None:
        yield waits(
            "slots",
            f"other tables have work for all of the {count(slots.total, 'slot')} of group {name!r} "
            f"({held}); a plan made now would only grow old",
            add,
        )
    elif slots.total and not slots.free:
        yield waits(
            "slots", f"none of {count(slots.total, 'slot')} of group {name!r} is free: {held}", add
        )


def _place(standing: Standing, now_ms: int) -> Iterator[Finding]:
    table, at = standing.table, standing.turn
    assert at is not None
    since_ms = table.pending_since_ms or table.status_since_ms
    bound = (
        f"it is pending for {span(now_ms - since_ms)}, and after {span(at.starved_after_ms)} it "
        "comes before all that waited less"
    )
    if at.place is None:
        return
    if at.place == 1:
        yield ok("turn", f"it is the next of its group to be planned (policy {at.policy}); {bound}")
        return
    yield waits(
        "turn",
        f"{count(at.place - 1, 'table')} of group {table.group!r} "
        f"{'has its' if at.place == 2 else 'have their'} turn before it (place {at.place} of "
        f"{at.rivals}, policy {at.policy}); {bound}",
    )
