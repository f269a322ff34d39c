"""Wait for a dry plan, or for the process that was asked for, and show how far it is.

Each wait has a limit. What was asked for goes on without us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import typer

from headrace.cli.context import Context
from headrace.cli.exits import StopWanted, interruptible, interrupts
from headrace.cli.jobs.watch import display
from headrace.cli.tables.text import about_process, activity_line
from headrace.client.client import Client
from headrace.client.tables import DryPlanView, ProcessView, TableView
from headrace.clock import SystemClock
from headrace.errors import JobFailed, Unavailable
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import ENDED, TaskStatus

POLL_S = 0.3

F = TypeVar("F")


def wait_for_plan(
    cli: Context, client: Client, requested: DryPlanView, *, limit_s: int
) -> DryPlanView:
    """The plan. Raises JobFailed, with the reason, when it could not be made."""

    def poll() -> tuple[str, DryPlanView | None]:
        view = client.dry_plan(requested.table, requested.task)
        waits = f"waits for {view.waits_for}" if view.waits_for else "a worker reads its files"
        return f"planning {view.table}: {waits}", view if view.status in ENDED else None

    timeout_text = (
        f"{requested.table} was not planned within {limit_s} s; is a worker of its group there?"
    )
    view = _poll_until(
        cli,
        poll,
        limit_s=limit_s,
        timeout_text=timeout_text,
        leave_text="the plan is made without us, and forgotten",
    )
    if view.status != TaskStatus.SUCCESS:
        raise JobFailed(f"table {view.table} can't be planned: {view.error or 'nobody said why'}")
    return view


def wait_for_process(cli: Context, client: Client, requested: TableView, *, limit_s: int) -> None:
    """Wait until what was asked for is done. Raises JobFailed when it ended otherwise."""
    name = requested.identifier
    running = requested.process if requested.process and not requested.process.settling else None
    before = running.number - 1 if running is not None else requested.processes

    def poll() -> tuple[str, tuple[TableView, ProcessView | None] | None]:
        view = client.table(name)
        newest = client.processes(name, most=1) if view.processes > before else ()
        done = next((each for each in newest if each.status != ProcessStatus.RUNNING), None)
        return activity_line(view), (view, done) if done or _is_over(view, requested) else None

    timeout_text = (
        f"table {name} was not optimized within {limit_s} s; it goes on, and "
        f"`headrace table explain {name}` says where it is"
    )
    leave_text = f"it goes on; see it with `headrace table show {name}`"
    view, process = _poll_until(
        cli, poll, limit_s=limit_s, timeout_text=timeout_text, leave_text=leave_text
    )
    _show_end(cli, view, process)


def _is_over(view: TableView, requested: TableView) -> bool:
    """Whether it ended without a process: nothing would be gained, or it could not be planned."""
    if view.process is not None or view.status == TableStatus.PLANNING:
        return False
    return view.wanted_type is None or view.failures > requested.failures


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


def _poll_until(
    cli: Context,
    poll: Callable[[], tuple[str, F | None]],
    *,
    limit_s: int,
    timeout_text: str,
    leave_text: str,
) -> F:
    """Poll until there is a result. Raises Unavailable with `timeout_text` after the limit; an
    interrupt prints `leave_text`, and exits."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + limit_s
    with interrupts(lambda: None) as stop, display(cli.stderr(), clock) as shown:
        while clock.monotonic_s() < end_s:
            try:
                text, result = interruptible(poll, stop=stop)
                if result is not None:
                    return result
                shown.doing(text)
                stop.check(POLL_S)
            except StopWanted:
                shown.note(leave_text)
                raise typer.Exit(stop.exit_code) from None
    raise Unavailable(timeout_text)
