"""headrace worker list|show|drain|resume|logs|release. Without such a word `headrace worker` is a
worker (serve.py)."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.asking import Ask, asks, now_ms, show_all, show_one
from headrace.cli.context import AT_LEAST

app = typer.Typer(rich_markup_mode=None)

NO_WORKERS = "no workers"
LINES_SHOWN = 100
LINES_MAX = 1000

WorkerArgument = Annotated[
    str, typer.Argument(metavar="WORKER", help=f"Its id, or how it begins: {AT_LEAST}.")
]
NamedArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKER|RESOURCE",
        help=f"The id of a worker or of a resource, or how it begins: {AT_LEAST}.",
    ),
]


@app.command("list")
@asks
def list_workers(ask: Ask) -> None:
    """List workers and what they run."""
    views = ask.client.workers()
    from headrace.cli.group_text import workers_table

    show_all(ask.cli, views, lambda: workers_table(views, now_ms=now_ms()), none=NO_WORKERS)


@app.command()
@asks
def show(ask: Ask, worker: WorkerArgument) -> None:
    """Show a worker: where it is, what it runs, and what becomes of it."""
    view = ask.client.worker(ask.client.full_id("worker", worker))
    from headrace.cli.group_text import about_worker

    show_one(ask.cli, view, lambda: about_worker(view, now_ms=now_ms()))


@app.command()
@asks
def drain(ask: Ask, worker: WorkerArgument) -> None:
    """Give a worker nothing more. What it holds, it finishes; it stays until it is ended."""
    view = ask.client.drain_worker(ask.client.full_id("worker", worker))
    from headrace.cli.group_text import about_drain

    show_one(ask.cli, view, lambda: about_drain(view))


@app.command()
@asks
def resume(ask: Ask, worker: WorkerArgument) -> None:
    """Take a drain back: the worker is given work again, as long as it is there."""
    view = ask.client.resume_worker(ask.client.full_id("worker", worker))
    from headrace.cli.group_text import about_resume

    show_one(ask.cli, view, lambda: about_resume(view))


@app.command()
@asks
def logs(
    ask: Ask,
    named: NamedArgument,
    lines: Annotated[int, typer.Option(help="Show so many.", min=1, max=LINES_MAX)] = LINES_SHOWN,
) -> None:
    """Show what a worker wrote last, as the container that started it has it."""
    view = ask.client.resource_logs(_resource(ask, named), lines=lines)
    if ask.cli.output == "text" and view.note:
        typer.echo(view.note, err=True)
    show_one(ask.cli, view, lambda: view.lines)


@app.command()
@asks
def release(ask: Ask, named: NamedArgument) -> None:
    """End a worker that was started for a group, and what was asked for with it.

    It is given nothing more, and stopped when it holds nothing. The group's floor may ask for
    another one.
    """
    view = ask.client.release_resource(_resource(ask, named))
    show_one(ask.cli, view, lambda: [f"resource {view.id} is released: {view.next}"])


def _resource(ask: Ask, named: str) -> str:
    return ask.client.full_id("resource", named)
