"""Rewrites the bins of a process, then commits the replacement once, or aborts and discards it.

The bins of one task are rewritten in one Spark job, or one by one once that has failed. One file
that can't be read fails the whole job; alone, each bin shows whether it can be rewritten, so that
the bad one is named and the work on the others is kept.

Commit and abort ask the table first, every time: a commit that landed and was not reported is found
there. An outcome is reported only when it is known. Whatever leaves it open is raised, and the task
is tried again (E1, E3). Files are deleted only after the token is spent (E6).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from urllib.parse import urlsplit

from headrace.errors import HeadraceError, Refused, TokenSpent
from headrace.lake.catalog import TableMissing, TableRef
from headrace.lake.table_format import BinInputs, ProcessSpent, Replaced, RewrittenBin
from headrace.model.jobs.epoch import SpentBy
from headrace.protocol.tables import (
    BinFailed,
    CommitPayload,
    CommitResult,
    Discarded,
    DiscardPayload,
    PlannedBin,
    RewritePayload,
    RewriteResult,
)
from headrace.seams import seam
from headrace.worker.execution import RUNNING
from headrace.worker.tables.catalogs import TableWork, trouble_with

log = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX = 500  # per bin; a task has many


def rewrite_bins(work: TableWork, payload: RewritePayload) -> RewriteResult:
    """Rewrite and stage the bins of one task; bins that fail are reported, not raised."""
    ref = work.ref(payload.table)
    work.begin_step(f"choosing {len(payload.bins)} bins of {ref}")
    work.check_there(ref, payload.process)
    _check_unspent(work, payload, ref)
    inputs = chosen_inputs(work, ref, payload.process.snapshot, payload.bins)
    # In this step the rows that Spark writes are counted, and count as signs of life.
    work.execution.set_progress(RUNNING, expected=sum(each.rows for each in inputs))
    seam("before table rewrite")
    try:
        made = _rewrite(work, payload, ref, inputs)
    except _failures(work) as error:
        _check_worth_it(work, error)
        facts = {"table": str(ref), "reason": _line(work, error)}
        log.warning("bins not rewritten together, trying one by one", extra=facts)
        return _one_by_one(work, payload, ref, inputs)
    seam("table rewrite staged")
    return RewriteResult(rewritten=tuple(each.record() for each in made))


def _check_unspent(work: TableWork, payload: RewritePayload, ref: TableRef) -> None:
    """Refuse a process that has ended: its staged files would neither be committed nor deleted."""
    if work.format.look(work.session, ref, work.at(payload.process)) is not None:
        raise Refused(
            f"process {payload.process.number} of {ref} has ended: the table says that its token, "
            "or a later one, is spent; nothing was rewritten. If the store was restored from a "
            "backup, its numbers are used up to there; it goes on once they are passed"
        )


def chosen_inputs(
    work: TableWork, ref: TableRef, snapshot: int, bins: Sequence[PlannedBin]
) -> Sequence[BinInputs]:
    """The inputs of each bin, under the number that it has in its process."""
    paths = {each.number: each.paths for each in bins}
    return work.format.choose(
        work.session, ref, snapshot=snapshot, bins=paths, on_progress=work.note_progress
    )


def _rewrite(
    work: TableWork, payload: RewritePayload, ref: TableRef, inputs: Sequence[BinInputs]
) -> Sequence[RewrittenBin]:
    at = work.at(payload.process)
    return work.format.rewrite(work.session, ref, inputs, at, target_bytes=payload.target_bytes)


def _one_by_one(
    work: TableWork, payload: RewritePayload, ref: TableRef, inputs: Sequence[BinInputs]
) -> RewriteResult:
    made: list[RewrittenBin] = []
    failed: list[BinFailed] = []
    for each in inputs:
        work.note_progress()
        try:
            made += _rewrite(work, payload, ref, [each])
        except _failures(work) as error:
            _check_worth_it(work, error)
            failed.append(_blamed(work, ref, each, error))
    return RewriteResult(rewritten=tuple(each.record() for each in made), failed=tuple(failed))


def _failures(work: TableWork) -> tuple[type[Exception], ...]:
    """The errors that a rewrite may raise, of which some are a file's fault."""
    return (HeadraceError, *work.format.errors.types)


def _check_worth_it(work: TableWork, error: Exception) -> None:
    """Raise instead of going on when the execution is to stop (a canceled job may raise anything),
    or when the rewrite was refused."""
    work.execution.check()
    if isinstance(error, Refused):
        raise error


def _blamed(work: TableWork, ref: TableRef, inputs: BinInputs, error: Exception) -> BinFailed:
    errors = work.format.errors
    text = errors.messages(error) if isinstance(error, errors.types) else str(error)
    named = next((path for path in inputs.paths if _mentions(text, path)), None)
    trouble = None if named else trouble_with(work)
    if trouble is not None:  # the catalog is unavailable: no file's fault, all bins would fail
        raise trouble from error
    log.warning("bin not rewritten", extra={"table": str(ref), "bin": inputs.number, "file": named})
    return BinFailed(number=inputs.number, error=work.safe(_line(work, error)), path=named)


def _mentions(text: str, path: str) -> bool:
    """Whether the text names the file: perhaps without its scheme, or with another number of
    slashes."""
    return path in text or urlsplit(path).path in text


def _line(work: TableWork, error: Exception) -> str:
    """The cause in one line, rather than that a job was aborted because of it."""
    errors = work.format.errors
    line = errors.cause(error) if isinstance(error, errors.types) else str(error)
    return line[:ERROR_CHARACTERS_MAX]


def commit_process(work: TableWork, payload: CommitPayload) -> CommitResult:
    """Replace the files of the process once, whoever runs this and however often."""
    ref = work.ref(payload.table)
    work.begin_step(f"asking {ref} for process {payload.process.number}")
    if not work.is_there(ref, payload.process):
        return CommitResult(outcome="GONE")
    try:
        replaced = work.format.look_replaced(work.session, ref, work.at(payload.process))
        if replaced is None:
            replaced = _replace(work, payload, ref)
    except TokenSpent:
        return CommitResult(outcome="ABORTED")
    except Refused:
        if work.is_there(ref, payload.process):
            raise
        return CommitResult(outcome="GONE")  # dropped or created anew meanwhile
    if replaced.groups is not None and not replaced.groups:
        return _give_up(work, payload, ref, replaced)
    seam("table commit landed, before report")
    _tidy(work, payload, ref, replaced)
    return _committed(replaced)


def discard_process(work: TableWork, payload: DiscardPayload) -> Discarded:
    """Abort the process, then delete the files that it staged and that no snapshot has."""
    ref = work.ref(payload.table)
    work.begin_step(f"aborting process {payload.process.number} of {ref}")
    if not work.is_there(ref, payload.process):
        return Discarded()  # the staged files went with the table
    try:
        spent = _abort(work, payload, ref)
        work.begin_step(f"deleting what process {payload.process.number} of {ref} left")
        files = work.format.discard(work.session, ref, work.at(payload.process))
    except TableMissing:
        return Discarded()
    seam("table leftovers deleted")
    committed = spent.snapshot if spent.by is SpentBy.DATA else None
    return Discarded(files=files, committed_snapshot=committed)


def _replace(work: TableWork, payload: CommitPayload, ref: TableRef) -> Replaced:
    rewritten = {made.number: made for made in _rewritten(work, payload)}
    if rewritten.keys() != {each.number for each in payload.bins}:
        raise Refused(
            f"process {payload.process.id} of {ref} names bins that were not rewritten, or the "
            "other way round; nothing was replaced, plan again"
        )
    inputs = _inputs_left(work, payload, ref)
    if isinstance(inputs, Replaced):
        return inputs
    work.begin_step(f"replacing {len(inputs)} bins of {ref}")
    seam("before table commit")
    return work.format.replace(
        work.session,
        ref,
        inputs,
        rewritten,
        work.at(payload.process),
        clock=work.clock,
        deadline_s=payload.commit_deadline_s,
    )


def _rewritten(work: TableWork, payload: CommitPayload) -> Sequence[RewrittenBin]:
    return [work.format.read_rewritten(each) for each in payload.rewritten]


def _inputs_left(
    work: TableWork, payload: CommitPayload, ref: TableRef
) -> Sequence[BinInputs] | Replaced:
    """The inputs of the bins that are to be replaced. If the planned snapshot no longer exists, all
    bins conflict."""
    try:
        return chosen_inputs(work, ref, payload.process.snapshot, payload.bins)
    except TableMissing:
        raise
    except Refused as error:
        nothing = {each.number: str(error) for each in payload.bins}
        return Replaced(already=False, snapshot=None, groups=frozenset(), conflicts=nothing)


def _give_up(
    work: TableWork, payload: CommitPayload, ref: TableRef, replaced: Replaced
) -> CommitResult:
    """Every bin conflicts: abort, so that nobody can commit them any more, then delete their
    files."""
    work.begin_step(f"giving up process {payload.process.number} of {ref}: every bin conflicts")
    try:
        spent = _abort(work, payload, ref)
        work.format.discard(work.session, ref, work.at(payload.process))
        if spent.by is SpentBy.DATA:  # another execution has committed before the other writers
            landed = work.format.look_replaced(work.session, ref, work.at(payload.process))
            return _committed(landed or replaced)
    except TableMissing:
        return CommitResult(outcome="GONE")
    return CommitResult(outcome="CONFLICT", conflicts=_conflict_texts(replaced))


def _abort(work: TableWork, payload: CommitPayload | DiscardPayload, ref: TableRef) -> ProcessSpent:
    seam("before table abort")
    spent = work.format.give_up(
        work.session,
        ref,
        work.at(payload.process),
        clock=work.clock,
        deadline_s=payload.commit_deadline_s,
    )
    seam("table abort spent, before deletion")
    return spent


def _tidy(work: TableWork, payload: CommitPayload, ref: TableRef, replaced: Replaced) -> None:
    """Delete files left behind by lost executions and conflicting bins. If that fails, they are
    left to orphan cleaning: the commit has landed, and must be reported."""
    at = work.at(payload.process)
    made = _rewritten(work, payload)
    landed = [each for each in made if replaced.groups is None or each.number in replaced.groups]
    kept = [path for each in landed for path in each.paths]
    try:
        if work.format.unclaimed(work.session, ref, at, kept):
            work.format.discard(work.session, ref, at)
    except _failures(work):
        log.warning("staged files left to orphan cleaning", extra={"table": str(ref)})


def _committed(replaced: Replaced) -> CommitResult:
    return CommitResult(
        outcome="COMMITTED",
        already=replaced.already,
        snapshot=replaced.snapshot,
        bins=None if replaced.groups is None else tuple(sorted(replaced.groups)),
        conflicts=_conflict_texts(replaced),
    )


def _conflict_texts(replaced: Replaced) -> dict[str, str]:
    return {str(number): reason for number, reason in sorted(replaced.conflicts.items())}
