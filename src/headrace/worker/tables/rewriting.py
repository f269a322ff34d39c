"""Rewrite the bins of one task: all in one Spark job, or one by one once that has failed.

One file that can't be read fails the whole job. Tried alone, each bin tells for itself whether it
can be rewritten, so that the bad one is named and the others' work is kept.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from headrace.errors import HeadraceError, Refused
from headrace.formats.iceberg.catalogs import TableRef
from headrace.formats.iceberg.choose import choose
from headrace.formats.iceberg.commit import look
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_told
from headrace.formats.iceberg.records import Inputs, Rewritten
from headrace.formats.iceberg.rewrite import rewrite
from headrace.protocol.messages import Json
from headrace.protocol.tables import BinFailed, BinTold, RewritePayload, RewriteResult
from headrace.seams import seam
from headrace.worker.execution import RUNNING
from headrace.worker.tables.catalogs import trouble_with
from headrace.worker.tables.work import Work

log = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX = 500  # of one bin; a task has many
_FAILED = (HeadraceError, *JAVA_ERRORS)
# Spark tells an executor's error as text: `Lost task 0.2 in stage 7.0 (…): CLASS: MESSAGE`.
_LOST_TASK = re.compile(r"Lost task [^\n]*?\): (?P<error>[^\n]+)")


def rewrite_bins(work: Work, told: RewritePayload) -> RewriteResult:
    ref = work.ref(told.table)
    work.begins(f"choosing {len(told.bins)} bins of {ref}")
    work.check_there(ref, told.process)
    _check_unspent(work, told, ref)
    inputs = chosen(work, ref, told.process.snapshot, told.bins)
    # Under this name rows are counted while Spark writes them, and count as signs of life.
    work.execution.says(RUNNING, expected=sum(each.rows for each in inputs))
    seam("before table rewrite")
    try:
        made = _rewrite(work, told, ref, inputs)
    except _FAILED as error:
        _check_worth_it(work, error)
        facts = {"table": str(ref), "reason": _line(error)}
        log.warning("bins not rewritten together, trying one by one", extra=facts)
        return _one_by_one(work, told, ref, inputs)
    seam("table rewrite staged")
    return RewriteResult(rewritten=tuple(_json(each) for each in made))


def _check_unspent(work: Work, told: RewritePayload, ref: TableRef) -> None:
    """What is staged after the end of its process nobody would commit, nor delete."""
    if look(work.session, ref, work.at(told.process).commit_at) is not None:
        raise Refused(
            f"process {told.process.number} of {ref} has ended: the table says that its token, or "
            "a later one, is spent; nothing was rewritten. If the store was restored from a "
            "backup, its numbers are used up to there; it goes on once they are passed"
        )


def chosen(work: Work, ref: TableRef, snapshot: int, bins: Sequence[BinTold]) -> list[Inputs]:
    """The records of each bin, under the number it has in its process."""
    paths = [each.paths for each in bins]
    found = choose(work.session, ref, snapshot=snapshot, bins=paths, heard=work.heard)
    return [
        inputs.model_copy(update={"number": each.number})
        for inputs, each in zip(found, bins, strict=True)
    ]


def _rewrite(
    work: Work, told: RewritePayload, ref: TableRef, inputs: Sequence[Inputs]
) -> list[Rewritten]:
    at = work.at(told.process)
    return rewrite(work.session, ref, inputs, at, target_bytes=told.target_bytes)


def _one_by_one(
    work: Work, told: RewritePayload, ref: TableRef, inputs: Sequence[Inputs]
) -> RewriteResult:
    made: list[Rewritten] = []
    failed: list[BinFailed] = []
    for each in inputs:
        work.heard()
        try:
            made += _rewrite(work, told, ref, [each])
        except _FAILED as error:
            _check_worth_it(work, error)
            failed.append(_blamed(work, ref, each, error))
    return RewriteResult(rewritten=tuple(_json(each) for each in made), failed=tuple(failed))


def _check_worth_it(work: Work, error: Exception) -> None:
    """Not when it was told to stop (a cancelled job raises anything), nor when it is refused."""
    work.execution.check()
    if isinstance(error, Refused):
        raise error


def _blamed(work: Work, ref: TableRef, inputs: Inputs, error: Exception) -> BinFailed:
    said = java_told(error) if isinstance(error, JAVA_ERRORS) else str(error)
    paths = [str(task["data-file"]["file-path"]) for task in inputs.tasks]
    named = next((path for path in paths if _names(said, path)), None)
    trouble = None if named else trouble_with(work.session, work.catalog)
    if trouble is not None:  # the catalog is away: no file is to blame, and others fail as well
        raise trouble from error
    log.warning("bin not rewritten", extra={"table": str(ref), "bin": inputs.number, "file": named})
    return BinFailed(number=inputs.number, error=work.safe(_line(error)), path=named)


def _names(said: str, path: str) -> bool:
    """A file system may tell the path without its scheme, or with another number of slashes."""
    return path in said or urlsplit(path).path in said


def _line(error: Exception) -> str:
    """What happened, not that a job was aborted because of it."""
    if not isinstance(error, JAVA_ERRORS):
        return str(error)[:ERROR_CHARACTERS_MAX]
    said = java_told(error)
    lost = _LOST_TASK.search(said)
    line = lost["error"] if lost else said.strip().splitlines()[-1]
    return line[:ERROR_CHARACTERS_MAX]


def _json(made: Rewritten) -> Json:
    return made.model_dump(mode="json")
