"""The steps of `headrace run` once its file is read: find a place, submit, wait, sum up.

The job runs at coordinators that are there already, or on a machine that is brought up for it. What
was started is stopped only after the result has been shown: nobody should wait for a JVM to exit
before he can read his numbers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console

from headrace.cli.context import DEFAULT_GROUP, Context, allowed_jars, urls_of
from headrace.cli.exits import Interrupts, StopWanted, interruptible, interrupts
from headrace.cli.jobs.text import (
    ending_line,
    output_lines,
    outputs_of,
    pipelines_table,
    reason,
    savepoint_line,
    unfinished_lines,
    what_remains,
)
from headrace.cli.jobs.watch import POLL_S, Display, JobWatch, display
from headrace.cli.local import up_file
from headrace.cli.local.supervisor import Machine, MachineShape
from headrace.client.client import Client
from headrace.client.views import JobView
from headrace.clock import Clock, SystemClock
from headrace.config import Settings
from headrace.errors import BadSetting, JobFailed, Refused, Unavailable
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.text import count
from headrace.plugins.jars import JarCoordinates, is_allowed
from headrace.plugins.problems import JobWarning, WarningKind
from headrace.spark.installation import find_java, find_spark

NAMES_SHOWN = 3  # of earlier jobs
WARNED = {
    WarningKind.UNKNOWN: ("unknown name is ignored", "unknown names are ignored"),
    WarningKind.NO_EFFECT: ("thing has no effect", "things have no effect"),
}
SLOTS_MIN = 2
SETTLE_MAX_S = 20.0  # for the targets of a job that has ended, before what runs it is stopped

# While a job fails, all processes are gone 20 s after a signal. LEAVE_FAILING_MAX_S of them are for
# the job; the following limits leave 2 s for the command's own end.
EARLIER_MAX_S = 1.0  # to ask for jobs of earlier runs
SETTLE_HURRY_MAX_S = 2.0  # as SETTLE_MAX_S, when somebody wants to leave
STOP_MAX_S = 10.0  # for all processes


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run: a new job, or an ended one that goes on under this file."""

    spec: JobSpec
    restore: str | None = None
    job_id: str | None = None  # None: the coordinator makes one
    group: str | None = None  # over the one that the file asks for

    @property
    def wanted_group(self) -> str | None:
        """The group to submit to; None: a restored job stays where it was."""
        default = DEFAULT_GROUP if self.restore is None else None
        return self.group or self.spec.group or default

    @property
    def is_endless(self) -> bool:
        return self.spec.env.job_mode == "STREAMING"


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a job runs: at coordinators that are there already, or on a machine of its own."""

    settings: Settings
    coordinators: str | None  # None: bring one up
    spark_conf: Mapping[str, str]
    named: bool = False  # by --coordinator
    allow_jars: Sequence[str] = ()  # of the worker that is brought up


@dataclass(frozen=True, slots=True)
class RunResult:
    """How it went: the job as last seen, and the exit code if it was interrupted."""

    view: JobView | None
    interrupted: int | None = None


def show_spec(cli: Context, spec: JobSpec, *, warnings: Sequence[JobWarning]) -> None:
    if cli.output == "json":
        cli.show_json(spec.model_dump(mode="json", exclude={"secrets"}))
        return
    typer.echo(f"{spec.name}: {spec.env.job_mode}, parallelism {spec.env.parallelism}")
    for pipeline in spec.pipelines:
        plugins = (*pipeline.sources, *pipeline.transforms, *pipeline.sinks)
        typer.echo(f"  pipeline {pipeline.number}: {' → '.join(each.plugin for each in plugins)}")
    for kind, named in WARNED.items():
        if number := sum(each.kind is kind for each in warnings):
            typer.echo(f"  {count(number, *named)}, told above")


def find_place(
    cli: Context,
    *,
    coordinator: str | None,
    spark_conf: Mapping[str, str],
    allow_jars: Sequence[str] | None,
    home: Path | None,
) -> RunPlace:
    cli.log_to_stderr()
    settings = cli.settings(home=home)
    urls = ",".join(urls_of(coordinator)) if coordinator is not None else None
    if urls is None:
        up = up_file.find(settings.home, lambda url: cli.client([url], settings))
        urls = up.address if up else None
    if urls is not None and (spark_conf or allow_jars):
        option = "--conf" if spark_conf else "--allow-jars"
        raise BadSetting(
            f"{option} is for a worker that `headrace run` starts, and {urls} has its own; give it "
            "to `headrace worker` or `headrace up` instead"
        )
    allowed = allowed_jars(allow_jars, settings)
    return RunPlace(settings, urls, spark_conf, named=coordinator is not None, allow_jars=allowed)


def detach(cli: Context, order: Order, place: RunPlace) -> None:
    if place.coordinators is None:
        raise BadSetting(
            "--detach leaves the job to a coordinator that stays; start one with `headrace up`, "
            "or name one with --coordinator http://HOST:PORT"
        )
    client = _client(cli, place.coordinators, place)
    view = submit(client, order, lambda text: typer.echo(text, err=True))
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
    else:
        typer.echo(f"job {view.id} submitted; see it with `headrace job show {view.id}`")


def carry_out(cli: Context, order: Order, place: RunPlace) -> None:
    """Run it and wait. Raises JobFailed when it did not finish."""
    with _running(cli, order, place) as result:
        if result.view is not None:
            _show(cli, result.view, rate=order.restore is None)
    if result.interrupted is not None:
        raise typer.Exit(result.interrupted)
    assert result.view is not None, "a job that nobody interrupted was seen to its end"
    check_end(result.view, endless=order.is_endless)


def _running(cli: Context, order: Order, place: RunPlace) -> AbstractContextManager[RunResult]:
    def make_client(urls: str) -> Client:
        return _client(cli, urls, place)

    clock, console = SystemClock(), cli.stderr()
    if place.coordinators is not None:
        return run_there(order, make_client(place.coordinators), console, clock)
    # Fail now and in one line, rather than later in the worker's log.
    _check_jars(order.spec, place.allow_jars)
    find_spark("a job that runs here, and not at a --coordinator, needs Spark")
    find_java()
    cli.make_home(place.settings)
    slots = max(len(order.spec.pipelines), SLOTS_MIN)
    shape = MachineShape(
        home=place.settings.home,
        slots=slots,
        conf=place.spark_conf,
        allow_jars=place.allow_jars,
    )
    return run_here(_in_own_group(cli, order), shape, make_client, console, clock)


def _in_own_group(cli: Context, order: Order) -> Order:
    """The order, in the group that every worker that is brought up here is in: whoever is brought
    up next must be able to go on with the job, and knows nothing of its groups."""
    if order.wanted_group not in {None, DEFAULT_GROUP}:
        text = f"note: group {order.wanted_group!r} is for coordinators that stay; it runs here"
        cli.stderr().print(text, highlight=False, markup=False)
    return replace(order, group=DEFAULT_GROUP)


def _check_jars(spec: JobSpec, allowed: Sequence[str]) -> None:
    """Refuse a job that asks for jars which its only worker would not allow."""
    asked = [JarCoordinates(each) for each in spec.env.jars]
    refused = [jar for jar in asked if not is_allowed(jar, allowed)]
    if refused:
        names = ", ".join(jar.coordinates for jar in refused)
        raise BadSetting(
            f"the job file asks for {names} in env.jars, which would run with all rights of the "
            f"worker; allow it with --allow-jars {refused[0].module}, or HEADRACE_ALLOW_JARS"
        )


def _client(cli: Context, urls: str, place: RunPlace) -> Client:
    if place.coordinators is None:
        return cli.client(urls_of(urls), place.settings)
    named_urls = urls_of(urls) if place.named else []
    return cli.client(
        urls_of(urls),
        place.settings,
        known_from=lambda: up_file.known_from(place.settings.home, named_urls),
    )


def _show(cli: Context, view: JobView, *, rate: bool) -> None:
    outputs = outputs_of(view)
    if cli.output == "json":
        cli.show_json({**view.model_dump(mode="json"), "outputs": outputs})
        return
    cli.stdout().print(pipelines_table(view))
    typer.echo(ending_line(view, rate=rate))
    for line in output_lines(outputs):
        typer.echo(line)
    if view.savepoint:
        typer.echo(savepoint_line(view, view.savepoint))


def check_end(view: JobView, *, endless: bool) -> None:
    """Raises JobFailed unless it ended well, as a job without an end does by a savepoint."""
    match view.status:
        case JobStatus.FINISHED:
            return
        case JobStatus.SAVEPOINT_DONE if endless:
            return
        case JobStatus.SAVEPOINT_DONE:
            why = "somebody stopped it with a savepoint"
        case JobStatus.FAILED:
            why = reason(view)
        case JobStatus.CANCELED:
            why = "somebody canceled it"
        case _:  # a word of a newer coordinator
            why = "this headrace does not know how it ended"
    raise JobFailed(f"job {view.id} is {view.status}: {why}")


def submit(client: Client, order: Order, note: Callable[[str], None]) -> JobView:
    """Submit under a new key, so that a lost answer does not make two jobs of one."""
    key = secrets.token_hex(16)
    body = order.spec.model_dump(mode="json", exclude={"group"})
    restore = None if order.restore is None else client.full_id("job", order.restore)
    view = client.submit_job(
        body,
        submission_key=key,
        group=order.wanted_group,
        restore=restore,
        job_id=order.job_id,
    )
    for text in view.notes:
        note(f"note: {text}")
    return view


@contextmanager
def run_here(
    order: Order,
    shape: MachineShape,
    make_client: Callable[[str], Client],
    console: Console,
    clock: Clock,
) -> Generator[RunResult]:
    """Run a job on a machine that is brought up for it; the machine stops after the block."""
    machine = Machine(shape, make_client, clock)
    with interrupts(machine.kill) as stop:
        try:
            with display(console, clock) as shown:
                result = _run_on_machine(machine, order, stop, shown, clock)
            yield result
            if result.view is not None:
                hurry = result.interrupted is not None
                limit_s = SETTLE_HURRY_MAX_S if hurry else SETTLE_MAX_S
                with closing(make_client(machine.url)) as client, display(console, clock) as shown:
                    settle(client, result.view, stop, shown, clock, limit_s=limit_s)
        finally:
            machine.stop(within_s=STOP_MAX_S if stop.wait(0) else None)


def _run_on_machine(
    machine: Machine, order: Order, stop: Interrupts, shown: Display, clock: Clock
) -> RunResult:
    try:
        client = machine.start(stop, shown.doing)
        earlier = _note_earlier_jobs(interruptible(client.jobs, stop=stop), shown)
    except StopWanted:
        return RunResult(None, stop.exit_code)
    # Submitted before the worker is up, so that its first sync gets the job.

    def supervise() -> None:
        for line in (*machine.new_output(), *machine.supervise()):
            shown.note(line)

    if (job := _submit_unless_stopped(client, order, stop, shown)) is None:
        return RunResult(None, stop.exit_code)
    watch = JobWatch(client, job.id, shown, supervise, clock=clock)

    def run() -> JobView:
        machine.wait_for_worker(client, stop, shown.doing)
        return watch.until_ended(stop)

    goes_on = "it goes on with the next `headrace run` or `headrace up` here"
    result = _wait_or_end(run, watch, stop, shown, save=order.is_endless, goes_on=goes_on)
    supervise()  # the last rows came with the last epoch
    _note_unfinished_jobs(client, earlier, shown)
    client.close()
    return result


def settle(
    client: Client,
    job: JobView,
    stop: Interrupts,
    shown: Display,
    clock: Clock,
    *,
    limit_s: float,
) -> None:
    """Have what the job left at its targets settled while there is a worker to do it, and say what
    remains. Most jobs leave nothing urgent, and are not held up."""
    view, stopping = job, stop.wait(0)
    until_s = clock.monotonic_s() + limit_s

    def answer(call: Callable[[str], JobView]) -> JobView:
        left_s = until_s - clock.monotonic_s()
        return interruptible(lambda: call(job.id), stop=None if stopping else stop, limit_s=left_s)

    try:
        view = answer(client.settle_job)
        while _is_settling(view, clock, left_s := until_s - clock.monotonic_s()) and left_s > 0:
            shown.doing("settling its targets")
            if stopping:
                stop.pause(POLL_S)
            else:
                stop.check(POLL_S)
            view = answer(client.job)
    except StopWanted:
        pass  # what remains is shown, and left to others
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


@contextmanager
def run_there(order: Order, client: Client, console: Console, clock: Clock) -> Generator[RunResult]:
    """Run a job on coordinators and workers that somebody else keeps."""
    with interrupts(lambda: None) as stop:
        with display(console, clock) as shown:
            result = _run_at_coordinators(client, order, stop, shown, clock)
        yield result


def _run_at_coordinators(
    client: Client, order: Order, stop: Interrupts, shown: Display, clock: Clock
) -> RunResult:
    if (job := _submit_unless_stopped(client, order, stop, shown)) is None:
        return RunResult(None, stop.exit_code)
    watch = JobWatch(client, job.id, shown, lambda: None, clock=clock)
    return _wait_or_end(
        lambda: watch.until_ended(stop),
        watch,
        stop,
        shown,
        save=order.is_endless,
        goes_on=f"its coordinator goes on with it, see `headrace job show {job.id}`",
    )


def _submit_unless_stopped(
    client: Client, order: Order, stop: Interrupts, display: Display
) -> JobView | None:
    """The job; None: a stop was wanted before a coordinator answered."""
    notes: list[str] = []
    try:
        view = interruptible(lambda: submit(client, order, notes.append), stop=stop)
    except StopWanted:
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


def _wait_or_end(
    run: Callable[[], JobView],
    watch: JobWatch,
    stop: Interrupts,
    display: Display,
    *,
    save: bool,
    goes_on: str,
) -> RunResult:
    """Wait for the end of the job; on Ctrl-C, end it and wait for that.

    `save`: end it with a savepoint. A streaming job has no other good end, and can go on from
    there; a batch job is run again. `goes_on`: what becomes of a job that does not end in time.
    """
    try:
        return RunResult(run())
    except StopWanted:
        doing = "stopping the job with a savepoint" if save else "canceling the job"
        display.note(f"{doing}; press Ctrl-C again to leave at once")
    view = _end_with_savepoint(watch, stop, display) if save else watch.cancel(stop)
    if view is None and watch.last is not None:
        for line in unfinished_lines(watch.last, goes_on=goes_on):
            display.note(line)
    return RunResult(view, stop.exit_code)


def _end_with_savepoint(watch: JobWatch, stop: Interrupts, display: Display) -> JobView | None:
    try:
        return watch.savepoint(stop)
    except Refused as error:
        display.note(f"no savepoint: {error}; canceling the job")
        return watch.cancel(stop)


def _note_earlier_jobs(earlier: Sequence[JobView], display: Display) -> list[str]:
    for view in earlier[:NAMES_SHOWN]:
        display.note(f"job {view.id} ({view.name}) of an earlier run goes on as well")
    if len(earlier) > NAMES_SHOWN:
        display.note(f"and so do {len(earlier) - NAMES_SHOWN} more; see `headrace job list`")
    return [view.id for view in earlier]


def _note_unfinished_jobs(client: Client, earlier: list[str], display: Display) -> None:
    if not earlier:
        return
    try:
        jobs = interruptible(client.jobs, limit_s=EARLIER_MAX_S)
        unfinished = {view.id for view in jobs} & set(earlier)
    except Unavailable:  # only a note is lost: how our own job ended must still be shown
        unfinished = set(earlier)
    for job_id in sorted(unfinished)[:NAMES_SHOWN]:
        display.note(f"job {job_id} is not finished; it goes on with the next run or `headrace up`")
