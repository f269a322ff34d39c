"""headrace table block, unblock: a writer asks that a table be left alone for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.asking import client_of, show_one
from headrace.cli.context import Context, CoordinatorOption, HomeOption, OutputOption
from headrace.cli.table_arguments import TableArgument

BLOCK_S = 600
BLOCK_MAX_S = 24 * 3600

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Who asks, e.g. nightly-load.")]


def block(
    ctx: typer.Context,
    table: TableArgument,
    name: NameArgument,
    reason: Annotated[str, typer.Option(help="Why, for whoever looks at the table.")],
    seconds: Annotated[
        int, typer.Option(help="How long it holds from now on.", min=1, max=BLOCK_MAX_S)
    ] = BLOCK_S,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Have a table left alone: nothing is planned or committed meanwhile.

    Asked again under the same name it is renewed. It ends by itself.
    """
    cli = Context.of(ctx, output)
    asked = client_of(cli, coordinator, home)
    view = asked.block_table(table, name, reason=reason, seconds=seconds)
    from headrace.cli.summary import moment

    show_one(
        cli,
        view,
        lambda: [
            f"{table} is left alone until {moment(view.expires_at_ms)} for {name}; the same "
            f"command renews it, `headrace table unblock {table} {name}` ends it"
        ],
    )


def unblock(
    ctx: typer.Context,
    table: TableArgument,
    name: NameArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """End a blocker before its time."""
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).unblock_table(table, name)
    show_one(cli, view, lambda: [f"{name} no longer blocks {table}"])
