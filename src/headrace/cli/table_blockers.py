"""headrace table block, unblock: a writer asks that a table be left alone for a while."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from headrace.cli.asking import Ask, asks, show_one
from headrace.cli.table_arguments import TableArgument

BLOCK_S = 600
BLOCK_MAX_S = 24 * 3600

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Who asks, e.g. nightly-load.")]


@asks
def block(
    ask: Ask,
    table: TableArgument,
    name: NameArgument,
    reason: Annotated[str, typer.Option(help="Why, for whoever looks at the table.")],
    seconds: Annotated[
        int, typer.Option(help="How long it holds from now on.", min=1, max=BLOCK_MAX_S)
    ] = BLOCK_S,
) -> None:
    """Have a table left alone: nothing is planned or committed meanwhile.

    Asked again under the same name it is renewed. It ends by itself. A commit that has begun before
    may still land, and is told.
    """
    view = ask.client.block_table(table, name, reason=reason, seconds=seconds)
    from headrace.cli.summary import moment

    def lines() -> Iterator[str]:
        yield (
            f"{table} is left alone until {moment(view.expires_at_ms)} for {name}; the same "
            f"command renews it, `headrace table unblock {table} {name}` ends it"
        )
        if view.committing is not None:
            yield (
                f"but process {view.committing} had begun to commit before, and that may still "
                f"land: wait until `headrace table history {table}` shows that it has ended"
            )

    show_one(ask.cli, view, lambda: list(lines()))


@asks
def unblock(ask: Ask, table: TableArgument, name: NameArgument) -> None:
    """End a blocker before its time."""
    view = ask.client.unblock_table(table, name)
    show_one(ask.cli, view, lambda: [f"{name} no longer blocks {table}"])
