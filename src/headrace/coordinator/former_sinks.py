"""Sinks that a restored job has no longer: what it left at them goes as if the job had ended.

A restore ends the cleanup of the run before it. Of a sink that is not in the new job file, or is
another target under the same name, nobody would be left to forget the marks. So a record of its
own stands for them, under a key that is made of the incarnation and the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from headrace.coordinator.former import Former
from headrace.model.cleanup import former_key
from headrace.model.jobspec import JobSpec, PipelineSpec, PluginSpec
from headrace.store import cleanups


def record_former_sinks(conn: Connection, former: Former, new: JobSpec, *, now_ms: int) -> None:
    """Before the record of the job's cleanup is dropped. Without one all of it is done already."""
    found = cleanups.get(conn, former.job.incarnation)
    left = _left(former.spec, new)
    if found is None or not left:
        return
    cleanups.add_targets(
        conn,
        former.job,
        key=former_key(former.job.incarnation, former.job.run),
        spec=former.spec.model_copy(update={"pipelines": tuple(left)}).model_dump(
            mode="json", exclude={"secrets"}
        ),
        secrets=_secrets(conn, former, left),
        up_to=max(found.up_to, former.highest_of_any),
        due_at_ms=found.targets_due_at_ms,
        now_ms=now_ms,
    )


def _left(old: JobSpec, new: JobSpec) -> Sequence[PipelineSpec]:
    """The old pipelines, each with the sinks that the new job does not have."""
    kept = {(p.number, *_told(sink)) for p in new.pipelines for sink in p.sinks}
    left: list[PipelineSpec] = []
    for pipeline in old.pipelines:
        gone = tuple(s for s in pipeline.sinks if (pipeline.number, *_told(s)) not in kept)
        if gone:
            left.append(pipeline.model_copy(update={"sinks": gone}))
    return left


def _told(sink: PluginSpec) -> tuple[str, str, str]:
    return sink.name, sink.plugin, repr(sorted(sink.options.items()))


def _secrets(conn: Connection, former: Former, left: Sequence[PipelineSpec]) -> Mapping[str, Any]:
    _, known = cleanups.reach(conn, former.job.incarnation)
    sinks = tuple(f"{sink.name}." for pipeline in left for sink in pipeline.sinks)
    return {path: value for path, value in known.items() if path.startswith(sinks)}
