"""headrace job …: look at what coordinators know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import job_logs
from headrace.cli.asking import Ask, asks, now_ms, show_all
from headrace.cli.context import AT_LEAST, Context
from headrace.errors import BadSetting

if TYPE_CHECKING:
    from headrace.client import Client
    from headrace.views import JobView

app = typer.Typer(help="See, stop and save jobs.", no_args_is_help=True, rich_markup_mode=None)

NOTHING_RUNS = "nothing runs; `headrace job history` shows what has ended"
NOTHING_ENDED = "nothing of that kind has ended, or its history has expired"
DELETE = "delete"
HISTORY_SHOWN = 100  # runs
HISTORY_MAX = 1000  # runs

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


@app.command("list")
@asks
def list_jobs(ask: Ask) -> None:
    """List jobs that have not ended."""
    views = ask.client.jobs()
    from headrace.cli.summary import jobs_table

    show_all(ask.cli, views, lambda: jobs_table(views, now_ms=now_ms()), none=NOTHING_RUNS)


@app.command()
@asks
def history(
    ask: Ask,
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
    full = None if job is None else ask.client.full_id("job", job)
    views = ask.client.history(full, status=status, name=name, most=limit)
    from headrace.cli.summary import history_table

    show_all(ask.cli, views, lambda: history_table(views), none=NOTHING_ENDED)


@app.command()
@asks
def show(ask: Ask, job: JobArgument) -> None:
    """Show a job and its pipelines, also once it has ended."""
    _show(ask.cli, ask.client.job(ask.client.full_id("job", job)))


@app.command()
@asks
def cancel(ask: Ask, job: JobArgument) -> None:
    """Ask a job to end; its sinks keep what was committed."""
    view = ask.client.cancel_job(ask.client.full_id("job", job))
    if ask.cli.output == "json":
        ask.cli.show_json(view.model_dump(mode="json"))
    else:
        typer.echo(_asked_to_end(view))


def _asked_to_end(view: JobView) -> str:
    """A command only writes what is wanted; that it has ended is for the leader to say."""
    from headrace.model.job import JOB_ENDED

    named = f"job {view.id} ({view.name})"
    if view.status in JOB_ENDED:
        return f"{named} has ended already: it is {view.status}"
    return (
        f"{named} is asked to end, and is {view.status} until it has; "
        f"`headrace job show {view.id}` tells"
    )


@app.command()
@asks
def savepoint(
    ask: Ask,
    words: SavepointArgument,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Ask for it, and leave.")] = False,
) -> None:
    """Stop a job so that it can be restored, or delete what was saved.

    `headrace run JOB_FILE --restore JOB` goes on from there.
    """
    match words:
        case [job]:  # also one that is called `delete`
            _save(ask.cli, ask.client, ask.client.full_id("job", job), wait=not no_wait)
        case [word, job] if word == DELETE:
            _delete_savepoint(ask.cli, ask.client, ask.client.full_id("job", job))
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
    from headrace.cli.saving import wait_for_savepoint

    view = wait_for_savepoint(cli, client, view)
    _show(cli, view)
    from headrace.cli.job_run import check_end

    check_end(view, endless=True)


def _delete_savepoint(cli: Context, client: Client, job: str) -> None:
    deleted = client.delete_savepoint(job)
    if cli.output == "json":
        cli.show_json(deleted.model_dump(mode="json"))
    else:
        typer.echo(f"the savepoint of job {deleted.id} is deleted; it can't be restored any more")


app.command()(job_logs.logs)


@app.command()
@asks
def checkpoints(ask: Ask, job: JobArgument) -> None:
    """List the checkpoints of a job, the newest first."""
    views = ask.client.checkpoints(ask.client.full_id("job", job))
    from headrace.cli.summary import checkpoints_table

    show_all(ask.cli, views, lambda: checkpoints_table(views), none="no checkpoints yet")


def _show(cli: Context, view: JobView) -> None:
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
        return
    from headrace.cli.ending import lines_about
    from headrace.cli.summary import pipelines_table

    cli.stdout().print(pipelines_table(view))
    for line in lines_about(view, now_ms=now_ms()):
        typer.echo(line)
