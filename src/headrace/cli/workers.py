"""headrace worker list|show|drain|logs|release. Without such a word `headrace worker` is a worker
(serve.py)."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.asking import client_of, now_ms, show_all, show_one
from headrace.cli.context import Context, CoordinatorOption, HomeOption, OutputOption

app = typer.Typer(rich_markup_mode=None)

NO_WORKERS = "no workers"
LINES_SHOWN = 100
LINES_MAX = 1000

WorkerArgument = Annotated[
    str, typer.Argument(metavar="WORKER", help="Its id, as `worker list` shows it.")
]
NamedArgument = Annotated[
    str, typer.Argument(metavar="WORKER|RESOURCE", help="The id of a worker, or of a resource.")
]


@app.command("list")
def list_workers(
    ctx: typer.Context,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """List workers and what they run."""
    cli = Context.of(ctx, output)
    views = client_of(cli, coordinator, home).workers()
    from headrace.cli.group_text import workers_table

    show_all(cli, views, lambda: workers_table(views, now_ms=now_ms()), none=NO_WORKERS)


@app.command()
def show(
    ctx: typer.Context,
    worker: WorkerArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Show a worker: where it is, what it runs, and what becomes of it."""
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).worker(worker)
    from headrace.cli.group_text import about_worker

    show_one(cli, view, lambda: about_worker(view, now_ms=now_ms()))


@app.command()
def drain(
    ctx: typer.Context,
    worker: WorkerArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Give a worker nothing more. What it holds, it finishes; it stays until it is ended."""
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).drain_worker(worker)
    from headrace.cli.group_text import about_drain

    show_one(cli, view, lambda: about_drain(view))


@app.command()
def logs(
    ctx: typer.Context,
    named: NamedArgument,
    lines: Annotated[int, typer.Option(help="Show so many.", min=1, max=LINES_MAX)] = LINES_SHOWN,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Show what a worker wrote last, as the container that started it has it."""
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).resource_logs(named, lines=lines)
    if cli.output == "text" and view.note:
        typer.echo(view.note, err=True)
    show_one(cli, view, lambda: view.lines)


@app.command()
def release(
    ctx: typer.Context,
    named: NamedArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """End a worker that was started for a group, and what was asked for with it.

    It is given nothing more, and stopped when it holds nothing. The group's floor may ask for
    another one.
    """
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).release_resource(named)
    show_one(cli, view, lambda: [f"resource {view.id} is released: {view.next}"])
