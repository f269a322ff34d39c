"""headrace run and headrace job …: run a job from its file, and see, stop and save jobs.

`run` reads the file before anything else is loaded or started, so that errors in it are shown at
once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import (
    AT_LEAST,
    AllowJarsOption,
    CommandCall,
    Context,
    CoordinatorOption,
    HomeOption,
    OutputOption,
    asks_coordinators,
    now_ms,
    pairs_of,
    show_all,
)
from headrace.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.cli.exits import Interrupts
    from headrace.client.client import Client
    from headrace.client.views import JobView, LogLineView, LogList
    from headrace.clock import Clock
    from headrace.jobfile.reader import JobReading

TAIL = 1000  # lines, by default
TAIL_MAX = 10_000  # lines, as many as coordinators keep of a job
POLL_S = 0.5
QUIET_LOOKS = 2  # polls without a line after the end of the job: a worker sends its last ones soon
COORDINATOR_AWAY_MAX_S = 600.0
WORKER_CHARS = 8  # of a worker's name, for people
HISTORY_SHOWN = 100  # runs
HISTORY_MAX = 1000  # runs

NOTHING_RUNS = "nothing runs; `headrace job history` shows what has ended"
NOTHING_ENDED = "nothing of that kind has ended, or its history has expired"
DELETE = "delete"

app = typer.Typer(help="See, stop and save jobs.", no_args_is_help=True, rich_markup_mode=None)

JobIdOption = Annotated[
    str | None, typer.Option(metavar="JOB", help="Id of the job.  [default: a new one]")
]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help=f"Its id, or how it begins: {AT_LEAST}.")
]
SavepointArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[delete] JOB",
        help="A job to stop; after the word `delete` one whose savepoint is to go. Its id, or how "
        f"it begins: {AT_LEAST}.",
    ),
]


def run(
    ctx: typer.Context,
    job_file: Annotated[
        Path, typer.Argument(metavar="JOB_FILE", help="The job, in HOCON, JSON, YAML or SQL.")
    ],
    variables: Annotated[
        list[str] | None,
        typer.Option("--variable", "-i", metavar="NAME=VALUE", help="For ${NAME} in the file."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job, over the file's.")] = None,
    job_id: JobIdOption = None,
    coordinator: CoordinatorOption = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A Spark setting of the worker started for it."),
    ] = None,
    allow_jars: AllowJarsOption = None,
    restore: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Go on with a stopped or failed job, from its savepoint."),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Group of workers to run in, over the file's.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only read the file.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse options that nothing knows.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit, and don't wait.")] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Run a job, here or where headrace is running."""
    cli = Context.of(ctx, output)
    if job_id is not None and restore is not None:
        raise BadSetting("a restored job keeps its id; leave --job-id out")
    if group is not None:
        from headrace.model.ids import check_name

        check_name("group", group)
    reading = _read(job_file, variables=pairs_of(variables or [], "-i"), strict=strict)
    spec = reading.check()
    spec = spec.model_copy(update={"name": name}) if name else spec
    from headrace.cli.jobs import run_steps as job_run

    if check:
        job_run.show_spec(cli, spec, warnings=reading.warnings)
        return
    place = job_run.find_place(
        cli,
        coordinator=coordinator,
        spark_conf=pairs_of(conf or [], "--conf"),
        allow_jars=allow_jars,
        home=home,
    )
    carry_out = job_run.detach if detach else job_run.carry_out
    carry_out(cli, job_run.Order(spec, restore, job_id, group), place)


def _read(path: Path, *, variables: Mapping[str, str], strict: bool) -> JobReading:
    """Read the file, and show what is to be known about it. What has no effect is of interest only
    where the job can run."""
    from headrace.config import variables as environment
    from headrace.jobfile.reader import examine_job
    from headrace.plugins.problems import WarningKind

    reading = examine_job(path, variables=variables, environment=environment(), strict=strict)
    for warning in reading.warnings:
        if warning.kind is WarningKind.UNKNOWN:
            typer.echo(f"warning: {reading.line_of(warning)}", err=True)
        elif reading.spec is not None:
            typer.echo(f"note: {reading.line_of(warning)}", err=True)
    if reading.unknown:
        typer.echo(
            f"warning: {path}: unknown names that are ignored: {reading.unknown}; --strict refuses "
            "them",
            err=True,
        )
    return reading


@asks_coordinators
def logs(
    call: CommandCall,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help=f"Its id, or how it begins: {AT_LEAST}; or its incarnation, as `job history` "
            "has it.",
        ),
    ],
    tail: Annotated[
        int, typer.Option(help="Begin with at most so many lines.", min=0, max=TAIL_MAX)
    ] = TAIL,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show what comes, until the job has ended.")
    ] = False,
) -> None:
    """Show what was said about a job, by coordinators and workers."""
    client = call.client
    job = client.full_id("job", job)
    first = client.logs(job, tail=tail)
    _show_lines(call.cli, first)
    if not follow:
        if not first.lines and tail:
            typer.echo(f"no log lines of job {job} are kept: none yet, or no more", err=True)
        return
    from headrace.cli.exits import interrupts
    from headrace.clock import SystemClock

    with interrupts(lambda: None) as stop:
        for page in _follow(client, job, first, stop, SystemClock()):
            _show_lines(call.cli, page)
        if stop.wait(0):
            raise typer.Exit(stop.exit_code)


def _follow(
    client: Client, job: str, page: LogList, stop: Interrupts, clock: Clock
) -> Iterator[LogList]:
    """Further lines, until the job has ended or a stop is wanted."""
    from headrace.cli.exits import StopWanted, interruptible
    from headrace.errors import LogsGone, Unavailable

    quiet, away, answered_s = 0, False, clock.monotonic_s()
    while quiet < QUIET_LOOKS and not stop.wait(POLL_S):
        try:
            page = interruptible(partial(client.logs, job, after=page.cursor), stop=stop)
        except StopWanted:
            return
        except LogsGone as error:  # nothing more will come
            typer.echo(str(error), err=True)
            return
        except Unavailable:
            if not away:
                typer.echo("no coordinator answers; waiting for one", err=True)
            away = True
            if clock.monotonic_s() - answered_s > COORDINATOR_AWAY_MAX_S:
                raise
            continue
        away, answered_s = False, clock.monotonic_s()
        quiet = quiet + 1 if page.ended and not page.lines else 0
        yield page


def _show_lines(cli: Context, page: LogList) -> None:
    for line in page.lines:
        if cli.output == "json":
            typer.echo(json.dumps(line.model_dump(mode="json")))
        else:
            typer.echo(_line_text(line))


def _line_text(line: LogLineView) -> str:
    from headrace.cli.jobs.text import moment

    at = f"{moment(line.at_ms)}.{line.at_ms % 1000:03}"
    # An error may quote what a job read, which must not control the terminal.
    printable = "".join(char if char.isprintable() else "?" for char in line.text)
    return f"{at} {line.level:<7} {_source_name(line.source):<15}  {printable}"


def _source_name(source: str) -> str:
    name, _, _ = source.partition("/")
    return name if name == "coordinator" else f"worker {name[:WORKER_CHARS]}"


@app.command("list")
@asks_coordinators
def list_jobs(call: CommandCall) -> None:
    """List jobs that have not ended."""
    views = call.client.jobs()
    from headrace.cli.jobs.text import jobs_table

    show_all(call.cli, views, lambda: jobs_table(views, now_ms=now_ms()), none=NOTHING_RUNS)


@app.command()
@asks_coordinators
def history(
    call: CommandCall,
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help=f"Only this one; {AT_LEAST} of its id.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Only what ended so, e.g. FAILED.", metavar="STATUS")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    limit: Annotated[
        int, typer.Option(help="Show at most so many.", min=1, max=HISTORY_MAX)
    ] = HISTORY_SHOWN,
) -> None:
    """List how jobs ended, the latest first."""
    full = None if job is None else call.client.full_id("job", job)
    views = call.client.history(full, status=status, name=name, most=limit)
    from headrace.cli.jobs.text import history_table

    show_all(call.cli, views, lambda: history_table(views), none=NOTHING_ENDED)


@app.command()
@asks_coordinators
def show(call: CommandCall, job: JobArgument) -> None:
    """Show a job and its pipelines, also once it has ended."""
    _show(call.cli, call.client.job(call.client.full_id("job", job)))


@app.command()
@asks_coordinators
def cancel(call: CommandCall, job: JobArgument) -> None:
    """Ask a job to end; its sinks keep what was committed."""
    view = call.client.cancel_job(call.client.full_id("job", job))
    if call.cli.output == "json":
        call.cli.show_json(view.model_dump(mode="json"))
    else:
        typer.echo(_asked_to_end(view))


def _asked_to_end(view: JobView) -> str:
    """The command only records what is wanted; that the job has ended is for the leader to say."""
    from headrace.model.jobs.status import JOB_ENDED

    named = f"job {view.id} ({view.name})"
    if view.status in JOB_ENDED:
        return f"{named} has ended already: it is {view.status}"
    return (
        f"{named} is asked to end, and is {view.status} until it has; "
        f"`headrace job show {view.id}` tells"
    )


@app.command()
@asks_coordinators
def savepoint(
    call: CommandCall,
    words: SavepointArgument,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Ask for it, and leave.")] = False,
) -> None:
    """Stop a job so that it can be restored, or delete what was saved.

    `headrace run JOB_FILE --restore JOB` goes on from there.
    """
    match words:
        case [job]:  # also one that is called `delete`
            _save(call.cli, call.client, call.client.full_id("job", job), wait=not no_wait)
        case [word, job] if word == DELETE:
            _delete_savepoint(call.cli, call.client, call.client.full_id("job", job))
        case _:
            raise BadSetting(
                "`headrace job savepoint` takes JOB, or `delete JOB`, and not "
                f"{' '.join(words)!r}; one job at a time"
            )


def _save(cli: Context, client: Client, job: str, *, wait: bool) -> None:
    view = client.savepoint_job(job)
    if not wait:
        _show(cli, view)
        return
    from headrace.cli.jobs.watch import wait_for_savepoint

    view = wait_for_savepoint(cli, client, view)
    _show(cli, view)
    from headrace.cli.jobs.run_steps import check_end

    check_end(view, endless=True)


def _delete_savepoint(cli: Context, client: Client, job: str) -> None:
    deleted = client.delete_savepoint(job)
    if cli.output == "json":
        cli.show_json(deleted.model_dump(mode="json"))
    else:
        typer.echo(f"the savepoint of job {deleted.id} is deleted; it can't be restored any more")


app.command()(logs)


@app.command()
@asks_coordinators
def checkpoints(call: CommandCall, job: JobArgument) -> None:
    """List the checkpoints of a job, the newest first."""
    views = call.client.checkpoints(call.client.full_id("job", job))
    from headrace.cli.jobs.text import checkpoints_table

    show_all(call.cli, views, lambda: checkpoints_table(views), none="no checkpoints yet")


def _show(cli: Context, view: JobView) -> None:
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
        return
    from headrace.cli.jobs.text import lines_about, pipelines_table

    cli.stdout().print(pipelines_table(view))
    for line in lines_about(view, now_ms=now_ms()):
        typer.echo(line)
