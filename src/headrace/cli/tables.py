"""headrace table …: how lake tables stand, why, and what may be asked of their optimizing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import table_blockers, table_now
from headrace.cli.asking import client_of, now_ms, show_all, show_one
from headrace.cli.context import Context, CoordinatorOption, HomeOption, OutputOption
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
def list_tables(
    ctx: typer.Context,
    catalog: Annotated[str | None, typer.Option(help="Only tables of this catalog.")] = None,
    status: Annotated[
        str | None,
        typer.Option(help="Only tables in it, e.g. PENDING or OPTIMIZING.", metavar="STATUS"),
    ] = None,
    limit: Annotated[
        int, typer.Option(help="Show at most so many.", min=1, max=TABLES_MAX)
    ] = TABLES_SHOWN,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """List tables: where their optimizing stands, and what waits to be rewritten."""
    cli = Context.of(ctx, output)
    asked = client_of(cli, coordinator, home)
    views = asked.tables(catalog=catalog, status=status, most=limit)
    from headrace.cli.table_summary import tables_table

    show_all(cli, views, lambda: tables_table(views, now_ms=now_ms()), none=NO_TABLES)
    if len(views) == limit and cli.output == "text":
        typer.echo(f"there may be more than these {limit}; --limit, --catalog and --status help")


@app.command()
def show(
    ctx: typer.Context,
    table: TableArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Show a table: its files, its health, what runs and what waits."""
    cli = Context.of(ctx, output)
    _show(cli, client_of(cli, coordinator, home).table(table))


@app.command()
def explain(
    ctx: typer.Context,
    table: TableArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Say why a table is being optimized, or is not, and what happens next."""
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).explain_table(table)
    if cli.output == "json":
        cli.show_json(view.model_dump(mode="json"))
        return
    from headrace.cli.table_summary import findings_table

    console = cli.stdout()
    console.print(view.headline, markup=False)
    console.print(findings_table(view))


@app.command()
def history(
    ctx: typer.Context,
    table: TableArgument,
    limit: Annotated[
        int, typer.Option(help="Show at most so many.", min=1, max=PROCESSES_MAX)
    ] = PROCESSES_SHOWN,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """List the processes of a table, the latest first; also of one that is gone."""
    cli = Context.of(ctx, output)
    views = client_of(cli, coordinator, home).processes(table, most=limit)
    from headrace.cli.table_summary import processes_table

    show_all(cli, views, lambda: processes_table(views, now_ms=now_ms()), none=NO_PROCESSES)


app.command("plan")(table_now.plan)
app.command("optimize")(table_now.optimize)


@app.command()
def cancel(
    ctx: typer.Context,
    table: TableArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """End what runs for a table. The table stays as it is, and its turn comes again."""
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).cancel_table(table)
    _told(
        cli,
        view,
        f"what runs for {table} is being canceled; nothing of it gets into the table",
        f"nothing runs for {table} that could be canceled; it is {view.status}",
    )


@app.command()
def pause(
    ctx: typer.Context,
    table: TableArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Leave a table alone until `resume`. What runs for it is closed."""
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).pause_table(table)
    way_back = f"`headrace table resume {table}` lets it be optimized again"
    _told(cli, view, f"{table} is paused; {way_back}", f"{table} was paused before; {way_back}")


@app.command()
def resume(
    ctx: typer.Context,
    table: TableArgument,
    coordinator: CoordinatorOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Let a paused table be optimized again."""
    cli = Context.of(ctx, output)
    view = client_of(cli, coordinator, home).resume_table(table)
    _told(cli, view, f"{table} is looked at now", f"{table} was not paused")


app.command("block")(table_blockers.block)
app.command("unblock")(table_blockers.unblock)


def _told(cli: Context, view: TableView, done: str, was_so: str) -> None:
    show_one(cli, view, lambda: [was_so if view.changed is False else done])


def _show(cli: Context, view: TableView) -> None:
    from headrace.cli.table_text import about_table

    show_one(cli, view, lambda: about_table(view, now_ms=now_ms()))
