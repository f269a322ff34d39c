"""What `headrace job show` says of a job: how it stands, and how long what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.cli.summary import attempt_words, ending_line, moment, reason, span
from headrace.model.cleanup import CleanupStep
from headrace.model.job import JobStatus
from headrace.model.task import TaskKind
from headrace.views import AttemptView, CleanupView, JobView, SavepointView

HOW_TO_RESTORE_A_STORE = "how-to/back-up-and-restore-the-store"  # a page of the documentation
GOES: Mapping[str, str] = {
    CleanupStep.STATE: "its state",
    CleanupStep.TARGETS: "what it marked and staged at its sinks",
}


def lines_about(view: JobView, *, now_ms: int) -> Sequence[str]:
    return [*_how_it_stands(view, now_ms=now_ms), *_what_is_kept(view, now_ms=now_ms)]


def _how_it_stands(view: JobView, *, now_ms: int) -> Iterator[str]:
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
    for pipeline in view.pipelines:
        if pipeline.attempt is not None:
            yield f"pipeline {pipeline.number}: {_attempt_line(pipeline.attempt, now_ms=now_ms)}"


def _attempt_line(at: AttemptView, *, now_ms: int) -> str:
    """Which attempt runs or comes next, from which epoch, and why there is one."""
    begins = f" (at {moment(at.next_at_ms)})" if at.next_at_ms is not None else ""
    runs = "runs, " if at.running and at.kind != TaskKind.SETTLE else ""
    where = "" if at.kind == TaskKind.SETTLE else f", from epoch {at.epoch}"
    why = f"; the last one failed: {at.error}" if at.error and not at.lost else ""
    gone = f"{at.error}; " if at.lost else ""
    return f"{gone}{runs}{attempt_words(at, now_ms=now_ms)}{begins}{where}{why}"


def left_lines(view: JobView, *, goes_on: str) -> Sequence[str]:
    """What is left of a job that was asked to end, and has not by now."""
    lines = [f"job {view.id} is {view.status}, and asked to end: {goes_on}"]
    if view.status == JobStatus.FAILING:
        lines.append(f"it fails because of this: {reason(view)}")
    for pipeline in view.pipelines:
        at = pipeline.attempt
        if at is not None and at.kind == TaskKind.SETTLE:
            why = f": {at.error}" if at.error else ""
            lines.append(
                f"left of pipeline {pipeline.number}: epoch {at.epoch} is not settled{why}"
            )
        elif at is not None and at.error:
            lines.append(f"left of pipeline {pipeline.number}: its last attempt failed: {at.error}")
    return lines


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
    if cleanup.secrets:
        waits += f"; until then the store keeps {', '.join(cleanup.secrets)}, encrypted"
    if not cleanup.failures:
        return f"{what} will be deleted {when}{waits}"
    times = f"{cleanup.failures} time{'' if cleanup.failures == 1 else 's'}"
    return (
        f"{what} could not be deleted, {times} now, next try {when}{waits}: "
        f"{cleanup.error or 'no reason was given'}"
    )


def what_remains(view: JobView) -> str | None:
    """What a run that leaves now leaves to others; None: nothing but what it is there for."""
    cleanup = view.cleanup
    if cleanup is None or not (cleanup.unsettled or cleanup.secrets):
        return None
    later = "the next run, or any coordinator on this store"
    said: list[str] = []
    if cleanup.unsettled:
        numbers = ", ".join(map(str, cleanup.unsettled))
        said.append(f"what pipeline {numbers} staged is not settled at its sinks: {later}, does it")
    if cleanup.secrets:
        targets = cleanup.step == CleanupStep.TARGETS and not cleanup.failures
        when = f", from {moment(cleanup.due_at_ms)} on" if targets else ""
        said.append(
            f"the store keeps {', '.join(cleanup.secrets)}, encrypted, with which {later}, cleans "
            f"its sinks{when}; see `headrace job show {view.id}`"
        )
    if cleanup.error:
        said.append(f"the last try failed: {cleanup.error}")
    return "; ".join(said)


def savepoint_line(view: JobView, made: SavepointView) -> str:
    """What was saved, until when, and how to go on from it."""
    kept = "saved" if made.kind == "savepoint" else f"its last {made.kind} is kept"
    positions = f"{len(made.sources)} position{'' if len(made.sources) == 1 else 's'}"
    rows = f"{sum(made.written.values()):,} rows written"
    until = f" until {moment(made.expires_at_ms)}" if made.expires_at_ms is not None else ""
    if made.refused:
        return (
            f"{kept}{until}: epoch {made.epoch}, {positions}, {rows}; a restore is refused as long "
            f"as {made.refused}, see {HOW_TO_RESTORE_A_STORE}"
        )
    return (
        f"{kept}: epoch {made.epoch}, {positions}, {rows}; go on{until} with "
        f"`headrace run JOB_FILE --restore {view.id}`"
    )
