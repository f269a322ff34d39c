"""Wait for a plan, or for the process that was asked for, and show how far it is.

Each wait has a limit. What was asked for goes on without us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import typer

from headrace.cli.calls import leavable
from headrace.cli.context import Context
from headrace.cli.interrupts import Stopped, interrupts
from headrace.cli.progress import display
from headrace.cli.table_text import about_process, doing
from headrace.client import Client
from headrace.clock import SystemClock
from headrace.errors import JobFailed, Unavailable
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import ENDED, TaskStatus
from headrace.views_tables import DryPlanView, ProcessView, TableView

POLL_S = 0.3

F = TypeVar("F")


def wait_for_plan(cli: Context, client: Client, asked: DryPlanView, *, limit_s: int) -> DryPlanView:
    """The plan. JobFailed: it could not be made, with the reason."""

    def look() -> tuple[str, DryPlanView | None]:
        view = client.dry_plan(asked.table, asked.task)
        waits = f"waits for {view.waits_for}" if view.waits_for else "a worker reads its files"
        return f"planning {view.table}: {waits}", view if view.status in ENDED else None

    late = f"{asked.table} was not planned within {limit_s} s; is a worker of its group there?"
    view = _until(
        cli, look, limit_s=limit_s, late=late, left="the plan is made without us, and forgotten"
    )
    if view.status != TaskStatus.SUCCESS:
        raise JobFailed(f"table {view.table} can't be planned: {view.error or 'nobody said why'}")
    return view


def wait_for_process(cli: Context, client: Client, asked: TableView, *, limit_s: int) -> None:
    """Until what was asked for is done. JobFailed: it ended otherwise."""
    name = asked.identifier
    running = asked.process if asked.process and not asked.process.settling else None
    before = running.number - 1 if running is not None else asked.processes

    def look() -> tuple[str, tuple[TableView, ProcessView | None] | None]:
        view = client.table(name)
        newest = client.processes(name, most=1) if view.processes > before else ()
        done = next((each for each in newest if each.status != ProcessStatus.RUNNING), None)
        return doing(view), (view, done) if done or _is_over(view, asked) else None

    late = (
        f"table {name} was not optimized within {limit_s} s; it goes on, and "
        f"`headrace table explain {name}` says where it is"
    )
    left = f"it goes on; see it with `headrace table show {name}`"
    view, process = _until(cli, look, limit_s=limit_s, late=late, left=left)
    _show_end(cli, view, process)


def _is_over(view: TableView, asked: TableView) -> bool:
    """Without a process: nothing was to be gained, or it could not even be planned."""
    if view.process is not None or view.status == TableStatus.PLANNING:
        return False
    return view.wanted_type is None or view.failures > asked.failures


def _show_end(cli: Context, view: TableView, process: ProcessView | None) -> None:
    name = view.identifier
    if cli.output == "json":
        ended = process.model_dump(mode="json") if process is not None else None
        cli.show_json({"table": view.model_dump(mode="json"), "process": ended})
    elif process is not None and process.status == ProcessStatus.SUCCESS:
        typer.echo(about_process(process))
    elif process is None and view.wanted_type is None:
        typer.echo(f"nothing to do: no rewrite of {name} would gain anything")
    if process is not None and process.status != ProcessStatus.SUCCESS:
        raise JobFailed(about_process(process))
    if process is None and view.wanted_type is not None:
        raise JobFailed(
            f"table {name} could not be planned: {view.error or 'nobody said why'}; it is tried "
            f"again, and `headrace table explain {name}` says when"
        )


def _until(
    cli: Context, look: Callable[[], tuple[str, F | None]], *, limit_s: int, late: str, left: str
) -> F:
    """Look again and again, until there is something or the time is over."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + limit_s
    with interrupts(lambda: None) as wanted, display(cli.stderr(), clock) as shown:
        while clock.monotonic_s() < end_s:
            try:
                text, found = leavable(look, wanted=wanted)
                if found is not None:
                    return found
                shown.doing(text)
                wanted.check(POLL_S)
            except Stopped:
                shown.note(left)
                raise typer.Exit(wanted.exit_code) from None
    raise Unavailable(late)
