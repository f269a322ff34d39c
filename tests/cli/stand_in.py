"""headrace with all its own processes but no Spark: `python -m tests.cli.stand_in run job.conf`.

The coordinator is the real one. The worker is a real sync loop that speaks the real protocol; only
what it runs is made up: it says rows, waits for a sign, commits nothing, and reports the end.
A job says by its number of rows what becomes of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from types import FrameType, ModuleType
from typing import Any

from headrace.cli import main
from headrace.cli.local import supervisor
from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.containers.child_process import UNHURRIED
from headrace.errors import JavaMissing, Refused, Unavailable
from headrace.model.ids import RandomIds
from headrace.model.task import TaskKind
from headrace.protocol.messages import (
    EpochCompleted,
    EpochPlan,
    ForgetPayload,
    Json,
    PipelinePayload,
    Slice,
)
from headrace.worker.client import LeaderClient
from headrace.worker.execution import Execution
from headrace.worker.jvm_monitor import Spark
from headrace.worker.outbox import Outbox
from headrace.worker.sync_loop import SyncLoop
from tests.fakes import registration

FINISHES = 7
FAILS = 13
UNSETTLED = 71  # fails with a prepared epoch, which nobody can settle
RETRIED = 72  # its first attempt fails
WAITS = 50  # for the file `go` in its home, or to be stopped
ENDLESS = 60  # epoch after epoch, until it is stopped
DEAF = 99  # runs until its process ends
REFUSING = "STAND_IN_REFUSES"  # in the environment: the worker does not start
JVM_KILLED = "jvm-killed"  # a file in its home
SINK_AWAY = "sink-away"  # the same
FORGOTTEN = "forgotten"  # what the targets of the last job were cleaned with
LOOK_S = 0.05
ENDLESS_PAUSE_S = 0.5  # between two epochs


def run_made_up(execution: Execution, home: Path) -> Mapping[str, Any] | None:
    if execution.assignment.kind is TaskKind.FORGET:
        return forget(execution, home)
    payload = PipelinePayload.model_validate(execution.assignment.payload)
    source = payload.pipeline.sources[0]
    rows = source.options["row.num"]
    assert isinstance(rows, int)
    if execution.assignment.kind is TaskKind.SETTLE:
        return settle_made_up(payload, rows)
    if rows == ENDLESS:
        return run_endless(execution, payload)
    if payload.restore.epoch:
        return None
    part = Slice(data=None, after=rows, rows=rows)
    execution.granted_plan(execution.propose(1, EpochPlan(slices={source.name: part}, now_ms=0)))
    execution.set_progress("running", epoch=1, rows=rows // 2, expected=rows)
    while rows == DEAF or (rows == WAITS and not (home / "go").exists()):
        if rows != DEAF:
            execution.check()
        Event().wait(LOOK_S)
    fail_made_up(execution, rows)
    sys.stdout.write("a row [that looks] like markup\n")
    sys.stdout.flush()
    ready = [plugin.name for plugin in payload.pipeline.sources]
    execution.wait_until_prepared(execution.prepare(1, {}, ready))
    facts: Json = {"table": "demo.events", "snapshot": "4711", "rows": rows, "total_rows": 2 * rows}
    execution.complete(
        EpochCompleted(
            seq=0,
            claim=execution.claim,
            epoch=1,
            positions={source.name: rows},
            rows_in=rows,
            rows_out=rows,
            commits={payload.pipeline.sinks[0].name: facts},
        )
    )
    return None


def forget(execution: Execution, home: Path) -> None:
    """Say what it would be done with, unless the made-up sink is away."""
    if (home / SINK_AWAY).exists():
        raise Refused("the made-up sink is away")
    secrets = ForgetPayload.model_validate(execution.assignment.payload).secrets
    (home / FORGOTTEN).write_text(json.dumps(secrets))


def settle_made_up(payload: PipelinePayload, rows: int) -> Mapping[str, Any]:
    if rows == UNSETTLED:
        raise Unavailable("the made-up target is still full")
    return {"aborted": [left.epoch for left in payload.restore.open]}


def fail_made_up(execution: Execution, rows: int) -> None:
    if rows == RETRIED and execution.claim.attempt == 1:
        raise Unavailable("the made-up target is away")
    if rows == UNSETTLED:
        execution.wait_until_prepared(execution.prepare(1, {}))
        raise Refused("the made-up target is full")
    if rows == FAILS:
        raise Refused("the made-up source is out of luck")


def run_endless(execution: Execution, payload: PipelinePayload) -> None:
    """An epoch of ENDLESS rows at a time; ends with a savepoint, or is stopped."""
    source, sink = payload.pipeline.sources[0].name, payload.pipeline.sinks[0].name
    epoch, written = payload.restore.epoch, payload.restore.written.get(sink, 0)
    while not execution.saving:
        epoch, written = epoch + 1, written + ENDLESS
        part = Slice(data=None, after=written, rows=ENDLESS)
        execution.granted_plan(execution.propose(epoch, EpochPlan(slices={source: part}, now_ms=0)))
        execution.set_progress("running", epoch=epoch, rows=written)
        execution.wait_until_prepared(execution.prepare(epoch, {}))
        execution.complete(
            EpochCompleted(
                seq=0,
                claim=execution.claim,
                epoch=epoch,
                positions={source: written},
                rows_in=ENDLESS,
                rows_out=ENDLESS,
                commits={},
                written={sink: written},
            )
        )
        execution.rest(ENDLESS_PAUSE_S)
    execution.saved = True


def serve_worker(
    *,
    coordinators: Sequence[str],
    group: str,
    slots: int,
    token: str | None,
    settings: Settings,
    **_: object,
) -> None:
    if REFUSING in os.environ:
        raise JavaMissing("the made-up Java is too old")
    home = settings.home
    client, waits = (LeaderClient(coordinators, token=token) for _ in range(2))
    name = RandomIds().new()

    def jvm_alive() -> bool:
        """Until a file says that it was killed; the next worker has one of its own."""
        killed = home / JVM_KILLED
        if killed.exists():
            killed.unlink()
            return False
        return True

    loop = SyncLoop(
        registration(
            name,
            group,
            slots=slots,
            control_slots=2,
            pid=os.getpid(),  # by which `headrace run` knows its own worker
            application=f"made-up-{name}",
        ),
        client,
        waits,
        lambda posted: Outbox(home / "outbox" / name, posted=posted),
        {kind: lambda execution: run_made_up(execution, home) for kind in TaskKind},
        Spark(jvm_alive, lambda _: None, lambda _: None, lambda _: (0, 0)),
        SystemClock(),
    )

    def stop(_number: int, _frame: FrameType | None) -> None:
        loop.stop()

    for number in (signal.SIGTERM, signal.SIGINT, UNHURRIED):
        signal.signal(number, stop)
    loop.run()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.cli.stand_in", *arguments]


if __name__ == "__main__":
    made_up = ModuleType("headrace.worker.service")
    made_up.__dict__["serve_worker"] = serve_worker
    sys.modules[made_up.__name__] = made_up
    supervisor.command = command
    main.main()
