"""A restored job of which a pipeline never came to its epoch 0: its save modes are still to come.

Epoch 0 runs once in the life of a job. So it is run by a restore only when nobody ever planned it;
a token of it may be spent otherwise. And only under the number it had, by which the target knows
it: a pipeline that took the number over must not drop rows that its own sinks hold already.
"""

from __future__ import annotations

from headrace.coordinator.former import Former
from headrace.errors import Refused
from headrace.jobfile.saving import opens
from headrace.model.jobspec import PipelineSpec

UNOPENED = -1  # epoch 0 is to come


def is_unopened(former: Former, pipeline: PipelineSpec) -> bool:
    """Whether it begins with epoch 0. Refused when that is due and can't be done any more."""
    if not any(opens(sink.options) for sink in pipeline.sinks):
        return False
    sinks, job_id = _sinks(pipeline), former.job.id
    waiting = {was.number for was in former.pipelines if was.epoch == UNOPENED}
    due = [was for was in former.spec.pipelines if was.number in waiting and _sinks(was) & sinks]
    for was in due:
        if was.number != pipeline.number or _sinks(was) != sinks:
            raise Refused(
                f"pipeline {was.number} of job {job_id!r} has not done yet what the save modes of "
                f"its sinks ask for; to do so it must stay pipeline {was.number}, with sink "
                f"{_named(was)} as before. Keep it so in the job file, or run the file anew "
                "without --restore"
            )
        if former.highest[was.number] >= 0:
            raise Refused(
                f"pipeline {was.number} of job {job_id!r} stopped while it did what the save modes "
                f"of its sink {_named(was)} ask for: its epoch 0 was begun, and is not run twice. "
                "Run the file anew without --restore"
            )
    return bool(due)


def _sinks(pipeline: PipelineSpec) -> set[str]:
    return {sink.name for sink in pipeline.sinks}


def _named(pipeline: PipelineSpec) -> str:
    return ", ".join(repr(sink.name) for sink in pipeline.sinks)
