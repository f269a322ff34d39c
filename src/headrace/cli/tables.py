"""headrace table …: how lake tables stand, why, and what may be asked of their optimizing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import table_blockers, table_now
from headrace.cli.asking import Ask, asks, now_ms, show_all, show_one
from headrace.cli.context import Context
from headrace.cli.table_arguments import TableArgument

if TYPE_CHECKING:
    from headrace.views_tables import TableView

app = typer.Typer(
    help="See, explain and steer the optimizing of tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NO_TABLES = (
    "no such tables are known; `headrace catalog list` shows where they are looked for, and when"
)
NO_PROCESSES = "nothing was ever rewritten here, or it is longer ago than history keeps"
PROCESSES_SHOWN = 20
PROCESSES_MAX = 1000
TABLES_SHOWN = 1000
TABLES_MAX = 100_000


@app.command("list")
@asks
def list_tables(
    ask: Ask,
    catalog: Annotated[str | None, typer.Option(help="Only tables of this catalog.")] = None,
    status: Annotated[
        str | None,
        typer.Option(help="Only tables in it, e.g. PENDING or OPTIMIZING.", metavar="STATUS"),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Show at most so many.", min=1, max=TABLES_MAX)
    ] = TABLES_SHOWN,
) -> None:
    """List tables: where their optimizing stands, and what waits to be rewritten."""
    views = ask.client.tables(catalog=catalog, status=status, most=limit)
    from headrace.cli.table_summary import tables_table

    show_all(ask.cli, views, lambda: tables_table(views, now_ms=now_ms()), none=NO_TABLES)
    if len(views) == limit and ask.cli.output == "text":
        typer.echo(f"there may be more than these {limit}; --limit, --catalog and --status help")


@app.command()
@asks
def show(ask: Ask, table: TableArgument) -> None:
    """Show a table: its files, its health, what runs and what waits."""
    _show(ask.cli, ask.client.table(table))


@app.command()
@asks
def explain(ask: Ask, table: TableArgument) -> None:
    """Say why a table is being optimized, or is not, and what happens next."""
    view = ask.client.explain_table(table)
    if ask.cli.output == "json":
        ask.cli.show_json(view.model_dump(mode="json"))
        return
    from headrace.cli.table_summary import findings_table

    console = ask.cli.stdout()
    console.print(view.headline, markup=False)
    console.print(findings_table(view))


@app.command()
@asks
def history(
    ask: Ask,
    table: TableArgument,
    limit: Annotated[
        int, typer.Option(help="Show at most so many.", min=1, max=PROCESSES_MAX)
    ] = PROCESSES_SHOWN,
) -> None:
    """List the processes of a table, the latest first; also of one that is gone."""
    views = ask.client.processes(table, most=limit)
    from headrace.cli.table_summary import processes_table

    show_all(ask.cli, views, lambda: processes_table(views, now_ms=now_ms()), none=NO_PROCESSES)


app.command("plan")(table_now.plan)
app.command("optimize")(table_now.optimize)


@app.command()
@asks
def cancel(ask: Ask, table: TableArgument) -> None:
    """End what runs for a table. The table stays as it is, and its turn comes again."""
    view = ask.client.cancel_table(table)
    _told(
        ask.cli,
        view,
        f"what runs for {table} is being canceled; nothing of it gets into the table",
        f"nothing runs for {table} that could be canceled; it is {view.status}",
    )


@app.command()
@asks
def pause(ask: Ask, table: TableArgument) -> None:
    """Leave a table alone until `resume`. What runs for it is closed."""
    view = ask.client.pause_table(table)
    way_back = f"`headrace table resume {table}` lets it be optimized again"
    _told(ask.cli, view, f"{table} is paused; {way_back}", f"{table} was paused before; {way_back}")


@app.command()
@asks
def resume(ask: Ask, table: TableArgument) -> None:
    """Let a paused table be optimized again."""
    view = ask.client.resume_table(table)
    _told(ask.cli, view, f"{table} is looked at now", f"{table} was not paused")


app.command("block")(table_blockers.block)
app.command("unblock")(table_blockers.unblock)


def _told(cli: Context, view: TableView, done: str, was_so: str) -> None:
    show_one(cli, view, lambda: [was_so if view.changed is False else done])


def _show(cli: Context, view: TableView) -> None:
    from headrace.cli.table_text import about_table

    show_one(cli, view, lambda: about_table(view, now_ms=now_ms()))
