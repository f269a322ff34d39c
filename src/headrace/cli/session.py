"""One `headrace run`: where the job runs, the wait for it, and an orderly end.

What is started is stopped after the caller has shown how it ended: nobody waits for a JVM to
exit before he may read his numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console

from headrace.cli.context import DEFAULT_GROUP
from headrace.cli.interrupts import Interrupts, interrupts
from headrace.cli.local import Machine, Shape, Stopped
from headrace.cli.progress import display
from headrace.cli.watch import LEAVE_MAX_S, Display, Watch
from headrace.client import Client, JobView
from headrace.clock import Clock
from headrace.errors import Refused, Unavailable
from headrace.model.jobspec import JobSpec

NAMES_SHOWN = 3  # of earlier jobs


@dataclass(frozen=True, slots=True)
class Ended:
    """How it went: the job as it was last seen, and the exit code of an interrupt."""

    view: JobView | None
    interrupted: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run: a job, or one that has ended and goes on under this file."""

    spec: JobSpec
    restore: str | None = None
    job_id: str | None = None  # None: the coordinator makes one

    @property
    def is_endless(self) -> bool:
        return self.spec.env.job_mode == "STREAMING"


def submit(client: Client, order: Order, note: Callable[[str], None]) -> JobView:
    """Submit under a new key, so that a lost answer does not make two jobs of one."""
    key = secrets.token_hex(16)
    body = order.spec.model_dump(mode="json")
    group = DEFAULT_GROUP if order.restore is None else None  # it stays in the one it had
    view = client.submit_job(
        body, submission_key=key, group=group, restore=order.restore, job_id=order.job_id
    )
    for text in view.notes:
        note(f"note: {text}")
    return view


@contextmanager
def run_here(
    order: Order,
    shape: Shape,
    make_client: Callable[[str], Client],
    console: Console,
    clock: Clock,
) -> Generator[Ended]:
    """Run a job on a machine that is brought up for it; the machine stops after the block."""
    machine = Machine(shape, make_client, clock)
    with interrupts(machine.kill) as wanted:
        try:
            with display(console, clock) as shown:
                ended = _run_on(machine, order, wanted, shown, clock)
            yield ended
        finally:
            machine.stop()


def _run_on(
    machine: Machine, order: Order, wanted: Interrupts, shown: Display, clock: Clock
) -> Ended:
    try:
        client = machine.start(wanted, shown.doing)
    except Stopped:
        return Ended(None, wanted.exit_code)
    earlier = _tell_of_earlier(client, shown)
    # Before the worker is up, so that it finds the job with its first question.

    def look_after() -> None:
        for line in machine.new_output():
            shown.note(line)
        machine.supervise()

    job = _submitted(client, order, shown)
    watch = Watch(client, job.id, shown, look_after, clock=clock)

    def run() -> JobView:
        machine.wait_for_worker(client, wanted, shown.doing)
        return watch.until_ended(wanted)

    ended = _carry_through(run, watch, wanted, shown, save=order.is_endless)
    look_after()  # the last rows came with the last epoch
    _tell_of_unfinished(client, earlier, shown)
    client.close()
    return ended


@contextmanager
def run_there(order: Order, client: Client, console: Console, clock: Clock) -> Generator[Ended]:
    """Run a job on coordinators and workers that somebody else keeps."""
    with interrupts(lambda: None) as wanted:
        with display(console, clock) as shown:
            job = _submitted(client, order, shown)
            watch = Watch(client, job.id, shown, lambda: None, clock=clock)
            ended = _carry_through(
                lambda: watch.until_ended(wanted), watch, wanted, shown, save=order.is_endless
            )
        yield ended


def _submitted(client: Client, order: Order, display: Display) -> JobView:
    view = submit(client, order, display.note)
    if order.is_endless:
        display.note(f"job {view.id} runs until it is stopped; Ctrl-C stops it with a savepoint")
    return view


def _carry_through(
    run: Callable[[], JobView], watch: Watch, wanted: Interrupts, display: Display, *, save: bool
) -> Ended:
    """Wait for the end; on Ctrl-C end the job and wait for that.

    `save`: with a savepoint. A job that reads without an end has no other good one, and can go on
    from there; one that has an end is run again.
    """
    try:
        return Ended(run())
    except Stopped:
        doing = "stopping the job with a savepoint" if save else "canceling the job"
        display.note(f"{doing}; press Ctrl-C again to leave at once")
    view = _saved(watch, wanted, display) if save else watch.cancel(wanted)
    if view is None:
        display.note(f"the job has not ended after {LEAVE_MAX_S:.0f} s; it is asked to")
    return Ended(view, wanted.exit_code)


def _saved(watch: Watch, wanted: Interrupts, display: Display) -> JobView | None:
    try:
        return watch.savepoint(wanted)
    except Refused as error:
        display.note(f"no savepoint: {error}; canceling the job")
        return watch.cancel(wanted)


def _tell_of_earlier(client: Client, display: Display) -> list[str]:
    earlier = client.jobs()
    for view in earlier[:NAMES_SHOWN]:
        display.note(f"job {view.id} ({view.name}) of an earlier run goes on as well")
    if len(earlier) > NAMES_SHOWN:
        display.note(f"and so do {len(earlier) - NAMES_SHOWN} more; see `headrace job list`")
    return [view.id for view in earlier]


def _tell_of_unfinished(client: Client, earlier: list[str], display: Display) -> None:
    if not earlier:
        return
    try:
        left = {view.id for view in client.jobs()} & set(earlier)
    except Unavailable:  # it is only a note: how our own job ended must still be told
        left = set(earlier)
    for job_id in sorted(left)[:NAMES_SHOWN]:
        display.note(f"job {job_id} is not finished; it goes on with the next run or `headrace up`")
