"""`headrace job savepoint`: wait until a job that was asked for one has ended."""

from __future__ import annotations

import typer

from headrace.cli.context import Context
from headrace.cli.interrupts import Stopped, interrupts
from headrace.cli.progress import display
from headrace.cli.watch import Watch, has_ended
from headrace.client import Client, JobView
from headrace.clock import SystemClock


def wait_for_savepoint(cli: Context, client: Client, asked: JobView) -> JobView:
    """The job as it ended. An interrupt leaves: the savepoint is made without us, too."""
    if has_ended(asked):
        return asked
    clock = SystemClock()
    with interrupts(lambda: None) as wanted, display(cli.stderr(), clock) as shown:
        try:
            watch = Watch(client, asked.id, shown, lambda: None, clock=clock)
            return watch.until_ended(wanted)
        except Stopped:
            shown.note(f"the savepoint goes on; see it with `headrace job show {asked.id}`")
            raise typer.Exit(wanted.exit_code) from None
