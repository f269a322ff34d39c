"""headrace job …, headrace workers: look at what coordinators know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import Context, CoordinatorOption, HomeOption, urls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.table import Table

    from headrace.client import Client, JobView, View

app = typer.Typer(help="See, stop and save jobs.", no_args_is_help=True, rich_markup_mode=None)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Its id, as `job list` shows it.")]


@app.command("list")
def list_jobs(
    ctx: typer.Context,
    running: Annotated[bool, typer.Option("--running", help="Only those not ended.")] = False,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
) -> None:
    """List jobs."""
    cli = Context.of(ctx)
    views = _client(cli, coordinator, home).jobs(running=running)
    from headrace.cli.summary import jobs_table

    _show_all(cli, views, lambda: jobs_table(views), none="no jobs")


@app.command()
def show(
    ctx: typer.Context,
    job: JobArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
) -> None:
    """Show a job and its pipelines."""
    _ask_and_show(ctx, coordinator, home, lambda client: client.job(job))


@app.command()
def cancel(
    ctx: typer.Context,
    job: JobArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
) -> None:
    """Stop a job; its sinks keep what was committed."""
    _ask_and_show(ctx, coordinator, home, lambda client: client.cancel_job(job))


@app.command()
def savepoint(
    ctx: typer.Context,
    job: JobArgument,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Ask for it, and leave.")] = False,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
) -> None:
    """Stop a job so that `run --restore` can go on from there."""
    cli = Context.of(ctx)
    client = _client(cli, coordinator, home)
    view = client.savepoint_job(job)
    if no_wait:
        _show(cli, view)
        return
    from headrace.cli.saving import wait_for_savepoint

    view = wait_for_savepoint(cli, client, view)
    _show(cli, view)
    from headrace.cli.job_run import check_end

    check_end(view, endless=True)


@app.command()
def checkpoints(
    ctx: typer.Context,
    job: JobArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
) -> None:
    """List the checkpoints of a job, the newest first."""
    cli = Context.of(ctx)
    views = _client(cli, coordinator, home).checkpoints(job)
    from headrace.cli.summary import checkpoints_table

    _show_all(cli, views, lambda: checkpoints_table(views), none="no checkpoints yet")


def workers(
    ctx: typer.Context, coordinator: CoordinatorOption = None, home: HomeOption = None
) -> None:
    """List workers and what they run."""
    cli = Context.of(ctx)
    views = _client(cli, coordinator, home).workers()
    from headrace.cli.summary import workers_table

    _show_all(cli, views, lambda: workers_table(views), none="no workers")


def _client(cli: Context, coordinator: str | None, home: Path | None) -> Client:
    from headrace.cli import upfile

    cli.log_to_stderr()
    settings = cli.settings(home=home)
    return cli.client(upfile.coordinators(settings.home, urls_of(coordinator or "")), settings)


def _show_all(
    cli: Context, views: Sequence[View], table: Callable[[], Table], *, none: str
) -> None:
    if cli.output == "json":
        cli.show_json([view.model_dump(mode="json") for view in views])
    elif views:
        cli.stdout().print(table())
    else:
        typer.echo(none)


def _ask_and_show(
    ctx: typer.Context, coordinator: str | None, home: Path | None, ask: Callable[[Client], JobView]
) -> None:
    cli = Context.of(ctx)
    _show(cli, ask(_client(cli, coordinator, home)))


def _show(cli: Context, view: JobView) -> None:
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
        return
    from headrace.cli.summary import (
        ending_line,
        pipelines_table,
        repeatable_lines,
        savepoint_line,
    )

    cli.stdout().print(pipelines_table(view))
    typer.echo(ending_line(view))
    for line in repeatable_lines(view):
        typer.echo(line)
    if view.waits_for:
        typer.echo(f"waits for {view.waits_for}")
    if view.error:
        typer.echo(f"reason: {view.error}")
    if view.savepoint:
        typer.echo(savepoint_line(view, view.savepoint))
