"""headrace table plan, optimize: what would be done now, and do it now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.asking import Ask, asks, show_one
from headrace.cli.table_arguments import TableArgument, type_of

if TYPE_CHECKING:
    from headrace.views_tables import TableView

PLAN_TIMEOUT_S = 300
OPTIMIZE_TIMEOUT_S = 3600
TIMEOUT_MAX_S = 7 * 86_400


@asks
def plan(
    ask: Ask,
    table: TableArgument,
    kind: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="As if asked for: minor, major or full.  [default: as the rules say]",
        ),
    ] = None,
    timeout: Annotated[
        int, typer.Option(help="Seconds to wait for the answer.", min=1, max=TIMEOUT_MAX_S)
    ] = PLAN_TIMEOUT_S,
) -> None:
    """Show what would be rewritten now, and what that would gain. Nothing is changed."""
    client = ask.client
    asked = client.plan_table(table, type=type_of(kind) if kind is not None else None)
    from headrace.cli.table_text import about_plan
    from headrace.cli.table_wait import wait_for_plan

    view = wait_for_plan(ask.cli, client, asked, limit_s=timeout)
    show_one(ask.cli, view, lambda: about_plan(view))


@asks
def optimize(
    ask: Ask,
    table: TableArgument,
    kind: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="At least so thorough.")
    ] = "major",
    wait: Annotated[bool, typer.Option("--wait", help="Leave when it is done.")] = False,
    timeout: Annotated[
        int, typer.Option(help="Seconds to wait, with --wait.", min=1, max=TIMEOUT_MAX_S)
    ] = OPTIMIZE_TIMEOUT_S,
) -> None:
    """Optimize a table now, whatever its rules say. What gains nothing is not rewritten."""
    client = ask.client
    asked = client.optimize_table(table, type=type_of(kind))
    if not wait:
        show_one(ask.cli, asked, lambda: [_accepted(asked)])
        return
    from headrace.cli.table_wait import wait_for_process

    wait_for_process(ask.cli, client, asked, limit_s=timeout)


def _accepted(view: TableView) -> str:
    name = view.identifier
    see = f"`headrace table show {name}` shows how far it is"
    if view.process is not None and not view.process.settling and view.wanted_type is None:
        return f"process {view.process.number} of {name} is at it already; {see}"
    again = "was asked for before and" if view.changed is False else "is asked for, and"
    return f"optimizing {name} now {again} begins when a worker is free; {see}"
