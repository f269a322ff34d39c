"""A restored job of which a pipeline never came to its epoch 0: its save modes are still to come.

Epoch 0 runs once in the life of a job. So it is run by a restore only when nobody ever planned it;
a token of it may be spent otherwise. And only under the number it had, by which the target knows
it: a pipeline that took the number over must not drop rows that its own sinks hold already.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from headrace.errors import Refused
from headrace.jobfile.saving import opens
from headrace.model.epoch import EpochAt
from headrace.model.jobspec import JobSpec, PipelineSpec
from headrace.store import epochs
from headrace.store.jobs import Job, Pipeline

UNOPENED = -1  # epoch 0 is to come


def is_unopened(
    conn: Connection,
    job: Job,
    pipeline: PipelineSpec,
    old: JobSpec,
    before: Sequence[Pipeline],
) -> bool:
    """Whether it begins with epoch 0. Refused when that is due and can't be done any more."""
    if not any(opens(sink.options) for sink in pipeline.sinks):
        return False
    sinks = _sinks(pipeline)
    waiting = {was.number for was in before if was.epoch == UNOPENED}
    due = [was for was in old.pipelines if was.number in waiting and _sinks(was) & sinks]
    for was in due:
        if was.number != pipeline.number or _sinks(was) != sinks:
            raise Refused(
                f"pipeline {was.number} of job {job.id!r} has not done yet what the save modes of "
                f"its sinks ask for; to do so it must stay pipeline {was.number}, with sink "
                f"{_named(was)} as before. Keep it so in the job file, or run the file anew "
                "without --restore"
            )
        left = epochs.get(conn, EpochAt(job.incarnation, was.number, 0, ""))
        if left is not None:
            raise Refused(
                f"pipeline {was.number} of job {job.id!r} stopped while it did what the save modes "
                f"of its sink {_named(was)} ask for: its epoch 0 is {left.status}, and is not run "
                "twice. Run the file anew without --restore"
            )
    return bool(due)


def _sinks(pipeline: PipelineSpec) -> set[str]:
    return {sink.name for sink in pipeline.sinks}


def _named(pipeline: PipelineSpec) -> str:
    return ", ".join(repr(sink.name) for sink in pipeline.sinks)
