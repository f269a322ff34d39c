"""Jobs to submit, and what an execution reports of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from headrace.model.jobs.spec import EnvSpec, JobSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, FailureCause
from headrace.protocol.messages import (
    EpochCompleted,
    EpochPlanned,
    EpochPrepared,
    Json,
    Report,
    SettleResult,
    TaskEnded,
)

ROWS = 7  # of each epoch
SECRET = "the-secret-of-the-lake"

_numbers = count(1)


def pipeline(number: int) -> PipelineSpec:
    return PipelineSpec(
        number=number,
        sources=(
            PluginSpec(
                name=f"FakeSource-{number}",
                plugin="FakeSource",
                options={"schema": {"fields": {"id": "bigint"}}, "row.num": ROWS},
                output=f"rows-{number}",
            ),
        ),
        sinks=(PluginSpec(name=f"Console-{number}", plugin="Console", inputs=(f"rows-{number}",)),),
    )


def spec(
    *, pipelines: int = 1, retry_times: int = 0, retry_interval_s: int = 0, name: str = "demo"
) -> JobSpec:
    return JobSpec(
        name=name,
        env=EnvSpec(retry_times=retry_times, retry_interval_s=retry_interval_s),
        pipelines=tuple(pipeline(n + 1) for n in range(pipelines)),
    )


def plan(now_ms: int = 1) -> Json:
    return {
        "slices": {"FakeSource-1": {"data": [0, ROWS], "after": ROWS, "rows": ROWS, "last": True}},
        "now_ms": now_ms,
    }


def planned(claim: Claim, epoch: int = 1, *, now_ms: int = 1) -> EpochPlanned:
    return EpochPlanned(seq=next(_numbers), claim=claim, epoch=epoch, plan=plan(now_ms))


def prepared(
    claim: Claim,
    epoch: int = 1,
    *,
    handle: str = "staged",
    ready: tuple[str, ...] = ("FakeSource-1",),
    read: dict[str, int] | None = None,
) -> EpochPrepared:
    handles: Json = {"Console-1": {"handle": handle, "rows": ROWS}}
    said = {"claim": claim, "epoch": epoch, "handles": handles, "ready": ready, "read": read}
    return EpochPrepared.model_validate({"seq": next(_numbers), **said})


def completed(claim: Claim, epoch: int = 1) -> EpochCompleted:
    return EpochCompleted(
        seq=next(_numbers),
        claim=claim,
        epoch=epoch,
        positions={"FakeSource-1": ROWS * epoch},
        rows_in=ROWS,
        rows_out=ROWS,
        commits={"Console-1": {"rows": ROWS}},
    )


def succeeded(claim: Claim, *, result: Json | None = None) -> TaskEnded:
    return TaskEnded(seq=next(_numbers), claim=claim, outcome="SUCCESS", result=result)


def whole_run(claim: Claim, pipeline: int = 1) -> Sequence[Report]:
    """What an execution with one epoch says, from its plan to its end."""
    staged = prepared(claim, ready=(f"FakeSource-{pipeline}",))
    return [planned(claim), staged, completed(claim), succeeded(claim)]


def settled(claim: Claim, *aborted: int, completed: Sequence[EpochCompleted] = ()) -> TaskEnded:
    result = SettleResult(completed=tuple(completed), aborted=aborted)
    return succeeded(claim, result=result.model_dump(mode="json"))


def failed(
    claim: Claim,
    error: str = "it broke",
    *,
    retry: bool = True,
    cause: FailureCause = FailureCause.ERROR,
) -> TaskEnded:
    return TaskEnded(
        seq=next(_numbers), claim=claim, outcome="FAILED", error=error, retry=retry, cause=cause
    )


def stopped(claim: Claim) -> TaskEnded:
    return TaskEnded(seq=next(_numbers), claim=claim, outcome="CANCELED")
