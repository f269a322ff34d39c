"""Replace what a process has rewritten, once; or give it up, and delete what it staged.

The table is asked first, every time: a commit that landed and was not reported is found there. An
answer is given only when it is known. Whatever leaves it open is raised, and the task is tried
again (E1, E3). Files go only after the token is spent (E6).
"""

from __future__ import annotations

import logging

from headrace.errors import HeadraceError, Refused, TokenSpent
from headrace.formats.iceberg.catalogs import TableMissing, TableRef
from headrace.formats.iceberg.conflicts import Group
from headrace.formats.iceberg.jvm import JAVA_ERRORS
from headrace.formats.iceberg.records import Rewritten
from headrace.formats.iceberg.replace import (
    Replaced,
    discard,
    give_up,
    look_replaced,
    replace,
    unclaimed,
)
from headrace.formats.iceberg.token import Spent, SpentBy
from headrace.protocol.tables import CommitPayload, CommitResult, Discarded, DiscardPayload
from headrace.seams import seam
from headrace.worker.tables.rewriting import chosen
from headrace.worker.tables.work import Work

log = logging.getLogger(__name__)


def commit_process(work: Work, told: CommitPayload) -> CommitResult:
    ref = work.ref(told.table)
    work.begins(f"asking {ref} for process {told.process.number}")
    if not work.is_there(ref, told.process):
        return CommitResult(outcome="GONE")
    try:
        found = look_replaced(work.session, ref, work.at(told.process))
        if found is None:
            found = _replace(work, told, ref)
    except TokenSpent:
        return CommitResult(outcome="ABORTED")
    except Refused:
        if work.is_there(ref, told.process):
            raise
        return CommitResult(outcome="GONE")  # dropped, or made anew, in the middle of it
    if found.groups is not None and not found.groups:
        return _give_up(work, told, ref, found)
    seam("table commit landed, before report")
    _tidy(work, told, ref, found)
    return _committed(found)


def discard_process(work: Work, told: DiscardPayload) -> Discarded:
    """Abort the process, then delete what it staged and no snapshot has."""
    ref = work.ref(told.table)
    work.begins(f"aborting process {told.process.number} of {ref}")
    if not work.is_there(ref, told.process):
        return Discarded()  # what was staged went with the table
    try:
        spent = _abort(work, told, ref)
        work.begins(f"deleting what process {told.process.number} of {ref} left")
        files = discard(work.session, ref, work.at(told.process))
    except TableMissing:
        return Discarded()
    seam("table leftovers deleted")
    committed = spent.snapshot if spent.by is SpentBy.DATA else None
    return Discarded(files=files, committed_snapshot=committed)


def _replace(work: Work, told: CommitPayload, ref: TableRef) -> Replaced:
    groups = _groups(work, told, ref)
    if isinstance(groups, Replaced):
        return groups
    work.begins(f"replacing {len(groups)} bins of {ref}")
    seam("before table commit")
    return replace(
        work.session,
        ref,
        groups,
        work.at(told.process),
        clock=work.clock,
        deadline_s=told.commit_deadline_s,
    )


def _groups(work: Work, told: CommitPayload, ref: TableRef) -> list[Group] | Replaced:
    """Each bin is a group of its own. When the planned snapshot is no more, all bins conflict."""
    rewritten = {made.number: made for made in map(Rewritten.model_validate, told.rewritten)}
    if set(rewritten) != {each.number for each in told.bins}:
        raise Refused(
            f"process {told.process.id} of {ref} names bins that were not rewritten, or the other "
            "way round; nothing was replaced, plan again"
        )
    try:
        inputs = chosen(work, ref, told.process.snapshot, told.bins)
    except TableMissing:
        raise
    except Refused as error:
        nothing = {each.number: str(error) for each in told.bins}
        return Replaced(already=False, snapshot=None, groups=frozenset(), conflicts=nothing)
    return [
        Group(number=each.number, bins=[each], rewritten=[rewritten[each.number]])
        for each in inputs
    ]


def _give_up(work: Work, told: CommitPayload, ref: TableRef, found: Replaced) -> CommitResult:
    """Every bin conflicts: nobody may commit them any more, and then their files go."""
    work.begins(f"giving up process {told.process.number} of {ref}: every bin conflicts")
    try:
        spent = _abort(work, told, ref)
        discard(work.session, ref, work.at(told.process))
        if spent.by is SpentBy.DATA:  # another execution of this commit was faster than the others
            landed = look_replaced(work.session, ref, work.at(told.process))
            return _committed(landed or found)
    except TableMissing:
        return CommitResult(outcome="GONE")
    return CommitResult(outcome="CONFLICT", conflicts=_by_text(found))


def _abort(work: Work, told: CommitPayload | DiscardPayload, ref: TableRef) -> Spent:
    seam("before table abort")
    spent = give_up(
        work.session,
        ref,
        work.at(told.process),
        clock=work.clock,
        deadline_s=told.commit_deadline_s,
    )
    seam("table abort spent, before deletion")
    return spent


def _tidy(work: Work, told: CommitPayload, ref: TableRef, found: Replaced) -> None:
    """Executions that were lost, and bins that conflict, have left files behind. What fails here
    is left to orphan cleaning: the commit has landed, and must be reported."""
    at = work.at(told.process)
    made = map(Rewritten.model_validate, told.rewritten)
    landed = [each for each in made if found.groups is None or each.number in found.groups]
    kept = [str(file["file-path"]) for each in landed for file in each.added]
    try:
        if unclaimed(work.session, ref, at, kept):
            discard(work.session, ref, at)
    except (HeadraceError, *JAVA_ERRORS):
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})


def _committed(found: Replaced) -> CommitResult:
    return CommitResult(
        outcome="COMMITTED",
        already=found.already,
        snapshot=found.snapshot,
        bins=None if found.groups is None else tuple(sorted(found.groups)),
        conflicts=_by_text(found),
    )


def _by_text(found: Replaced) -> dict[str, str]:
    return {str(number): reason for number, reason in sorted(found.conflicts.items())}
