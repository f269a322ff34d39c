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

app = typer.Typer(help="See and stop jobs.", no_args_is_help=True, rich_markup_mode=None)

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
    view = ask(_client(cli, coordinator, home))
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
        return
    from headrace.cli.summary import ending_line, pipelines_table

    cli.stdout().print(pipelines_table(view))
    typer.echo(ending_line(view))
    if view.waits_for:
        typer.echo(f"waits for {view.waits_for}")
    if view.error:
        typer.echo(f"reason: {view.error}")
