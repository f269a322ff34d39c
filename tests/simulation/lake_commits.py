"""Commits, aborts and deletions at the model of a lake, fenced as the product's own are.

The steps are those of lake/iceberg/{commit,replace}.py: look, try, and when there was no answer
look again. What the catalog does at one moment is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from headrace.clock import Clock
from headrace.errors import Fenced, Refused, TokenSpent, Unavailable
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg.file_records import Inputs
from headrace.lake.iceberg.replace import GROUPS, dangling
from headrace.lake.iceberg.replace_conflicts import BinGroup, Conflict
from headrace.lake.iceberg.token import (
    COMMIT,
    EXECUTION,
    SPENT_BY,
    ProcessAt,
    SpentAtTable,
    TableCommitAt,
)
from headrace.lake.table_format import Replaced
from headrace.model.jobs.epoch import Deadline, SpentBy, now
from headrace.model.tables.files import DeleteKind
from headrace.seams import seam
from tests.simulation.lake import Delete, Entry, Lake, Table
from tests.simulation.world import the_world

SPEND_TRIES_MAX = 2
SPEND_WAIT_S = 0.5
SWAPS_MAX = 4


def check_same(table: Table, ref: TableRef, inputs: Inputs) -> None:
    if table.uuid != inputs.uuid:
        raise Refused(f"{ref} was dropped and made anew since it was planned; plan again")


def folder_of(table: Table, at: ProcessAt) -> str:
    return f"{table.uuid}/{at.owner}/{at.number}/"


def look(lake: Lake, ref: TableRef, at: ProcessAt) -> SpentAtTable | None:
    return lake.ask("look", lambda: lake.found(ref).spent(at.commit_at))


def look_replaced(lake: Lake, ref: TableRef, at: ProcessAt) -> Replaced | None:
    spent = look(lake, ref, at)
    return None if spent is None else _told(ref, at, spent, {}, already=True)


def _told(
    ref: TableRef,
    at: ProcessAt,
    spent: SpentAtTable,
    conflicts: Mapping[int, str],
    *,
    already: bool,
) -> Replaced:
    if spent.by is SpentBy.ABORT:
        raise TokenSpent(at.token, str(ref))
    said = spent.summary.get(GROUPS)
    groups = None if said is None else frozenset(map(int, said.split(",")))
    return Replaced(already, spent.snapshot, groups, conflicts)


Change = Callable[[Table], SpentAtTable]  # to be made at once, unless it raises


def replace(
    lake: Lake,
    ref: TableRef,
    groups: Sequence[BinGroup],
    at: ProcessAt,
    *,
    clock: Clock,
    deadline_s: float,
) -> Replaced:
    left: Sequence[BinGroup] = list(groups)
    conflicts: dict[int, str] = {}
    deadline = Deadline(*_since(at, clock), deadline_s)
    while left:
        change = partial(_replace, ref=ref, groups=left, at=at)
        try:
            spent, already = _spend(lake, ref, at, change, deadline)
        except Conflict as conflict:
            conflicts |= conflict.reasons
            left = _others(left, conflict.reasons)
            continue
        return _told(ref, at, spent, conflicts, already=already)
    return Replaced(already=False, snapshot=None, groups=frozenset(), conflicts=conflicts)


def _others(groups: Sequence[BinGroup], reasons: Mapping[int, str]) -> Sequence[BinGroup]:
    return [group for group in groups if group.number not in reasons]


def _since(at: ProcessAt, clock: Clock) -> tuple[Clock, Any]:
    return clock, at.since or now(clock)


def _spend(
    lake: Lake, ref: TableRef, at: ProcessAt, change: Change, deadline: Deadline
) -> tuple[SpentAtTable, bool]:
    """A commit without an answer is looked for in the table. Whether it was there before."""
    for _ in range(SPEND_TRIES_MAX):
        spent = look(lake, ref, at)
        if spent is not None:
            return spent, True
        try:
            return lake.call("commit", lambda: _guarded(lake, ref, at, change, deadline)), False
        except Unavailable:
            the_world().sleep(SPEND_WAIT_S)
    spent = look(lake, ref, at)
    if spent is None:
        raise Unavailable(f"{ref} did not take the commit {at.token}")
    return spent, True


def _guarded(
    lake: Lake, ref: TableRef, at: ProcessAt, change: Change, deadline: Deadline
) -> SpentAtTable:
    """Validated, then the pointer is swapped; when somebody was faster, validated anew."""
    for _ in range(SWAPS_MAX):
        table = lake.found(ref)
        version = table.version
        if (spent := table.spent(at.commit_at)) is not None:
            return spent
        if deadline.passed:
            raise Fenced(f"the commit of {at.token} began more than {deadline} ago")
        seam("table replacement validated")
        if lake.tables.get(ref.name) is table and table.version == version:
            spent = change(table)
            table.land(at.owner, at.number, spent.by)
            return spent
    raise Unavailable(f"{ref} changes all the time")


def _marks(at: TableCommitAt, by: SpentBy) -> tuple[dict[str, str], dict[str, str]]:
    summary = {COMMIT: at.token, SPENT_BY: by.value, EXECUTION: at.execution}
    marks = {at.mark_key: str(at.epoch)}
    if by is SpentBy.ABORT:
        marks[at.aborted_key] = at.execution
    return summary, marks


def _replace(
    table: Table, ref: TableRef, groups: Sequence[BinGroup], at: ProcessAt
) -> SpentAtTable:
    check_same(table, ref, groups[0].bins[0])
    if reasons := _conflicts(table, groups):
        raise Conflict(str(ref), reasons)
    current, bins = table.current, [inputs for group in groups for inputs in group.bins]
    replaced = {str(task["data-file"]["file-path"]) for one in bins for task in one.tasks}
    partition = {each.path: each.partition for each in current.files}
    sequence = bins[0].sequence
    added = [
        Entry(str(file["file-path"]), partition[_first(group.bins[0])], sequence)
        for group in groups
        for made in group.rewritten
        for file in made.added
    ]
    if gone := [each.path for each in added if each.path not in table.stored]:
        raise Refused(f"what was rewritten for {ref} is gone or damaged ({gone}); plan again")
    unneeded = {str(each["file-path"]) for each in dangling(groups)}
    summary, marks = _marks(at.commit_at, SpentBy.DATA)
    summary[GROUPS] = ",".join(str(group.number) for group in groups)
    made = table.commit(
        [*(each for each in current.files if each.path not in replaced), *added],
        [each for each in current.deletes if each.path not in unneeded],
        summary,
        marks,
    )
    return SpentAtTable(SpentBy.DATA, made.id, at.execution, summary)


def _first(inputs: Inputs) -> str:
    return str(inputs.tasks[0]["data-file"]["file-path"])


def _conflicts(table: Table, groups: Sequence[BinGroup]) -> dict[int, str]:
    planned = table.snapshot(groups[0].bins[0].snapshot)
    if planned is None:
        return {group.number: "the planned snapshot was expired" for group in groups}
    now_there = {each.path: each for each in table.current.files}
    reasons: dict[int, str] = {}
    for group in groups:
        for path in (str(t["data-file"]["file-path"]) for one in group.bins for t in one.tasks):
            entry = now_there.get(path)
            if entry is None:
                reasons[group.number] = f"{path} was removed"
            elif _by_position(planned.deletes_of(entry)) != _by_position(
                table.current.deletes_of(entry)
            ):
                reasons[group.number] = f"rows of {path} were deleted"
    return reasons


def _by_position(deletes: Iterable[Delete]) -> set[str]:
    return {each.path for each in deletes if each.kind is DeleteKind.POSITION}


def give_up(
    lake: Lake,
    ref: TableRef,
    at: ProcessAt,
    *,
    clock: Clock,
    deadline_s: float,
) -> SpentAtTable:
    def change(table: Table) -> SpentAtTable:
        summary, marks = _marks(at.commit_at, SpentBy.ABORT)
        made = table.commit(table.current.files, table.current.deletes, summary, marks)
        return SpentAtTable(SpentBy.ABORT, made.id, at.execution, summary)

    return _spend(lake, ref, at, change, Deadline(*_since(at, clock), deadline_s))[0]


def unclaimed(lake: Lake, ref: TableRef, at: ProcessAt, kept: Iterable[str]) -> frozenset[str]:
    with _listing(lake, ref, at) as table:
        return frozenset(_staged(table, at)) - frozenset(kept)


def discard(lake: Lake, ref: TableRef, at: ProcessAt) -> int:
    """Refused while the token is unspent. Nobody may rely on that: here it is told as well."""
    with _listing(lake, ref, at) as table:
        left = sorted(set(_staged(table, at)) - table.referred())
        lake.call("delete", lambda: _delete(lake, table, at, left))
    return len(left)


@contextmanager
def _listing(lake: Lake, ref: TableRef, at: ProcessAt) -> Generator[Table]:
    """When it fails, a commit that has landed leaves what is there to orphan cleaning."""
    table = lake.found(ref)
    try:
        lake.ask("files", lambda: None)
        yield table
    except Unavailable:
        table.orphaned.add(at.number)
        raise


def _staged(table: Table, at: ProcessAt) -> list[str]:
    return [path for path in table.staged if path.startswith(folder_of(table, at))]


def _delete(lake: Lake, table: Table, at: ProcessAt, paths: Sequence[str]) -> None:
    if table.spent(at.commit_at) is None:
        what = f"{paths} of process {at.number}, whose token is not spent"
        if paths:
            lake.problem("nothing_deleted_that_may_be_committed", what)
        raise Refused(f"nothing was deleted: {what}")
    for path in paths:
        if path in table.referred():
            lake.problem("every_table_row_once", f"{path} was deleted, and a snapshot has it")
        table.stored.pop(path, None)
        table.staged.pop(path, None)
        table.late.discard(path)
