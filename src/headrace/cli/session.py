"""One `headrace run`: where the job runs, the wait for it, and an orderly end.

What is started is stopped after the caller has shown how it ended: nobody waits for a JVM to
exit before he may read his numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from rich.console import Console

from headrace.cli.calls import leavable
from headrace.cli.context import DEFAULT_GROUP
from headrace.cli.ending import left_lines, what_remains
from headrace.cli.interrupts import Interrupts, Stopped, interrupts
from headrace.cli.local import Machine, Shape
from headrace.cli.progress import display
from headrace.cli.watch import POLL_S, Display, Watch
from headrace.client import Client, JobView
from headrace.clock import Clock
from headrace.errors import Refused, Unavailable
from headrace.model.jobspec import JobSpec

NAMES_SHOWN = 3  # of earlier jobs
SETTLE_MAX_S = 20.0  # for the targets of a job that has ended, before what runs it is stopped
# From a signal to the end of all processes 20 s are promised while a job fails, of which
# LEAVE_FAILING_MAX_S are for the job; with these there are 2 s left for the command's own end.
EARLIER_MAX_S = 1.0  # to look after jobs of earlier runs
SETTLE_HURRY_MAX_S = 2.0  # as SETTLE_MAX_S, when somebody wants to leave
STOP_MAX_S = 10.0  # for all processes


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
    restore = None if order.restore is None else client.full_id("job", order.restore)
    view = client.submit_job(
        body, submission_key=key, group=group, restore=restore, job_id=order.job_id
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
            if ended.view is not None:
                hurry = ended.interrupted is not None
                limit_s = SETTLE_HURRY_MAX_S if hurry else SETTLE_MAX_S
                with closing(make_client(machine.url)) as client, display(console, clock) as shown:
                    settle(client, ended.view, wanted, shown, clock, limit_s=limit_s)
        finally:
            machine.stop(within_s=STOP_MAX_S if wanted.wait(0) else None)


def settle(
    client: Client,
    ended: JobView,
    wanted: Interrupts,
    shown: Display,
    clock: Clock,
    *,
    limit_s: float,
) -> None:
    """Have what the job left at its targets settled while there is somebody to do it, and say what
    remains. Most jobs leave nothing that can't wait, and are not held up."""
    view, stopping = ended, wanted.wait(0)
    until_s = clock.monotonic_s() + limit_s

    def answer(call: Callable[[str], JobView]) -> JobView:
        left_s = until_s - clock.monotonic_s()
        return leavable(lambda: call(ended.id), wanted=None if stopping else wanted, limit_s=left_s)

    try:
        view = answer(client.settle_job)
        while _is_settling(view, clock, left_s := until_s - clock.monotonic_s()) and left_s > 0:
            shown.doing("settling its targets")
            if stopping:
                wanted.pause(POLL_S)
            else:
                wanted.check(POLL_S)
            view = answer(client.job)
    except Stopped:
        pass  # what remains is said, and done by others
    except Unavailable as error:
        shown.note(f"its targets could not be settled now: {error}")
    if (remains := what_remains(view)) is not None:
        shown.note(remains)


def _is_settling(view: JobView, clock: Clock, left_s: float) -> bool:
    """Whether there is something to wait for: it is due soon, or a worker is at it."""
    cleanup = view.cleanup
    if cleanup is None or not (cleanup.unsettled or cleanup.secrets):
        return False
    due_in_ms = cleanup.due_at_ms - clock.wall_ms()
    return bool(cleanup.unsettled) or cleanup.at_work or due_in_ms < left_s * 1000


def _run_on(
    machine: Machine, order: Order, wanted: Interrupts, shown: Display, clock: Clock
) -> Ended:
    try:
        client = machine.start(wanted, shown.doing)
        earlier = _tell_of_earlier(leavable(client.jobs, wanted=wanted), shown)
    except Stopped:
        return Ended(None, wanted.exit_code)
    # Before the worker is up, so that it finds the job with its first question.

    def look_after() -> None:
        for line in (*machine.new_output(), *machine.supervise()):
            shown.note(line)

    if (job := _submitted(client, order, wanted, shown)) is None:
        return Ended(None, wanted.exit_code)
    watch = Watch(client, job.id, shown, look_after, clock=clock)

    def run() -> JobView:
        machine.wait_for_worker(client, wanted, shown.doing)
        return watch.until_ended(wanted)

    goes_on = "it goes on with the next `headrace run` or `headrace up` here"
    ended = _carry_through(run, watch, wanted, shown, save=order.is_endless, goes_on=goes_on)
    look_after()  # the last rows came with the last epoch
    _tell_of_unfinished(client, earlier, shown)
    client.close()
    return ended


@contextmanager
def run_there(order: Order, client: Client, console: Console, clock: Clock) -> Generator[Ended]:
    """Run a job on coordinators and workers that somebody else keeps."""
    with interrupts(lambda: None) as wanted:
        with display(console, clock) as shown:
            ended = _run_at(client, order, wanted, shown, clock)
        yield ended


def _run_at(
    client: Client, order: Order, wanted: Interrupts, shown: Display, clock: Clock
) -> Ended:
    if (job := _submitted(client, order, wanted, shown)) is None:
        return Ended(None, wanted.exit_code)
    watch = Watch(client, job.id, shown, lambda: None, clock=clock)
    return _carry_through(
        lambda: watch.until_ended(wanted),
        watch,
        wanted,
        shown,
        save=order.is_endless,
        goes_on=f"its coordinator goes on with it, see `headrace job show {job.id}`",
    )


def _submitted(
    client: Client, order: Order, wanted: Interrupts, display: Display
) -> JobView | None:
    """The job; None: a stop was wanted before anybody answered."""
    notes: list[str] = []
    try:
        view = leavable(lambda: submit(client, order, notes.append), wanted=wanted)
    except Stopped:
        display.note(
            "left before a coordinator answered: the job may have been submitted; see "
            "`headrace job list`"
        )
        return None
    for text in notes:
        display.note(text)
    if order.is_endless:
        display.note(f"job {view.id} runs until it is stopped; Ctrl-C stops it with a savepoint")
    return view


def _carry_through(
    run: Callable[[], JobView],
    watch: Watch,
    wanted: Interrupts,
    display: Display,
    *,
    save: bool,
    goes_on: str,
) -> Ended:
    """Wait for the end; on Ctrl-C end the job and wait for that.

    `save`: with a savepoint. A job that reads without an end has no other good one, and can go on
    from there; one that has an end is run again. `goes_on`: what becomes of one that does not end
    in time.
    """
    try:
        return Ended(run())
    except Stopped:
        doing = "stopping the job with a savepoint" if save else "canceling the job"
        display.note(f"{doing}; press Ctrl-C again to leave at once")
    view = _saved(watch, wanted, display) if save else watch.cancel(wanted)
    if view is None and watch.last is not None:
        for line in left_lines(watch.last, goes_on=goes_on):
            display.note(line)
    return Ended(view, wanted.exit_code)


def _saved(watch: Watch, wanted: Interrupts, display: Display) -> JobView | None:
    try:
        return watch.savepoint(wanted)
    except Refused as error:
        display.note(f"no savepoint: {error}; canceling the job")
        return watch.cancel(wanted)


def _tell_of_earlier(earlier: Sequence[JobView], display: Display) -> list[str]:
    for view in earlier[:NAMES_SHOWN]:
        display.note(f"job {view.id} ({view.name}) of an earlier run goes on as well")
    if len(earlier) > NAMES_SHOWN:
        display.note(f"and so do {len(earlier) - NAMES_SHOWN} more; see `headrace job list`")
    return [view.id for view in earlier]


def _tell_of_unfinished(client: Client, earlier: list[str], display: Display) -> None:
    if not earlier:
        return
    try:
        jobs = leavable(client.jobs, limit_s=EARLIER_MAX_S)
        left = {view.id for view in jobs} & set(earlier)
    except Unavailable:  # it is only a note: how our own job ended must still be told
        left = set(earlier)
    for job_id in sorted(left)[:NAMES_SHOWN]:
        display.note(f"job {job_id} is not finished; it goes on with the next run or `headrace up`")
