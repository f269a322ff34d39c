"""What `headrace job show` says of a job: how it stands, and how long what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.cli.summary import ending_line, moment, span
from headrace.model.cleanup import CleanupStep
from headrace.views import CleanupView, JobView, SavepointView

GOES: Mapping[str, str] = {
    CleanupStep.STATE: "its state",
    CleanupStep.TARGETS: "what it marked and staged at its sinks",
}


def lines_about(view: JobView, *, now_ms: int) -> Sequence[str]:
    return [*_how_it_stands(view), *_what_is_kept(view, now_ms=now_ms)]


def _how_it_stands(view: JobView) -> Iterator[str]:
    yield ending_line(view, rate=view.run == 1)
    if view.run > 1:
        yield f"run {view.run} of this job: it was restored"
    for pipeline in view.pipelines:
        if pipeline.repeatable is False:
            yield f"pipeline {pipeline.number} is not repeatable: {pipeline.not_repeatable}"
    if view.waits_for:
        yield f"waits for {view.waits_for}"
    if view.error:
        yield f"reason: {view.error}"


def _what_is_kept(view: JobView, *, now_ms: int) -> Iterator[str]:
    if view.savepoint:
        yield savepoint_line(view, view.savepoint)
    if view.cleaned:
        yield "its state is deleted, and this is what history has of it"
    if view.cleanup:
        yield _cleanup_line(view.cleanup, now_ms=now_ms)
    if view.history_until_ms is not None:
        yield f"history keeps it until {moment(view.history_until_ms)}"


def _cleanup_line(cleanup: CleanupView, *, now_ms: int) -> str:
    what = GOES.get(cleanup.step, cleanup.step)
    when = f"at {moment(cleanup.due_at_ms)}"
    if cleanup.due_at_ms > now_ms:
        when += f" (in {span(cleanup.due_at_ms - now_ms)})"
    waits = f"; waits for {cleanup.waits_for}" if cleanup.waits_for else ""
    if not cleanup.failures:
        return f"{what} will be deleted {when}{waits}"
    times = f"{cleanup.failures} time{'' if cleanup.failures == 1 else 's'}"
    return (
        f"{what} could not be deleted, {times} now, next try {when}{waits}: "
        f"{cleanup.error or 'no reason was given'}"
    )


def savepoint_line(view: JobView, made: SavepointView) -> str:
    """What was saved, until when, and how to go on from it."""
    kept = "saved" if made.kind == "savepoint" else f"its last {made.kind} is kept"
    positions = f"{len(made.sources)} position{'' if len(made.sources) == 1 else 's'}"
    rows = f"{sum(made.written.values()):,} rows written"
    until = f" until {moment(made.expires_at_ms)}" if made.expires_at_ms is not None else ""
    return (
        f"{kept}: epoch {made.epoch}, {positions}, {rows}; go on{until} with "
        f"`headrace run JOB_FILE --restore {view.id}`"
    )
