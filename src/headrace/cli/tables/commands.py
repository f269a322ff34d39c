"""headrace table …: show and explain lake tables, plan and optimize them, pause and block them.

A blocker is a writer's request that a table be left alone for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.context import CommandCall, Context, asks_coordinators, now_ms, show_all, show_one
from headrace.errors import BadSetting

if TYPE_CHECKING:
    from headrace.client.tables import TableView

TYPES = ("MINOR", "MAJOR", "FULL")
BLOCK_S = 600
BLOCK_MAX_S = 24 * 3600
PLAN_TIMEOUT_S = 300
OPTIMIZE_TIMEOUT_S = 3600
TIMEOUT_MAX_S = 7 * 86_400
PROCESSES_SHOWN = 20
PROCESSES_MAX = 1000
TABLES_SHOWN = 1000
TABLES_MAX = 100_000

NO_TABLES = (
    "no such tables are known; `headrace catalog list` shows where they are looked for, and when"
)
NO_PROCESSES = "nothing was ever rewritten here, or it is longer ago than history keeps"

app = typer.Typer(
    help="See, explain and steer the optimizing of tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="catalog.namespace.name, as `table list` shows it.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Who asks, e.g. nightly-load.")]


def optimizing_type(text: str) -> str:
    """The type of optimizing as a user writes it, in either case."""
    if text.upper() not in TYPES:
        raise BadSetting(
            f"--type {text!r} is no type of optimizing; take minor (small files and deletes), "
            "major (and undersized files) or full (and everything else that gains)"
        )
    return text.upper()


@asks_coordinators
def block(
    call: CommandCall,
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
    view = call.client.block_table(table, name, reason=reason, seconds=seconds)
    from headrace.cli.jobs.text import moment

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

    show_one(call.cli, view, lambda: list(lines()))


@asks_coordinators
def unblock(call: CommandCall, table: TableArgument, name: NameArgument) -> None:
    """End a blocker before its time."""
    view = call.client.unblock_table(table, name)
    show_one(call.cli, view, lambda: [f"{name} no longer blocks {table}"])


@asks_coordinators
def plan(
    call: CommandCall,
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
    client = call.client
    requested = client.plan_table(table, type=optimizing_type(kind) if kind is not None else None)
    from headrace.cli.tables.text import about_plan
    from headrace.cli.tables.waits import wait_for_plan

    view = wait_for_plan(call.cli, client, requested, limit_s=timeout)
    show_one(call.cli, view, lambda: about_plan(view))


@asks_coordinators
def optimize(
    call: CommandCall,
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
    client = call.client
    requested = client.optimize_table(table, type=optimizing_type(kind))
    if not wait:
        show_one(call.cli, requested, lambda: [_accepted_text(requested)])
        return
    from headrace.cli.tables.waits import wait_for_process

    wait_for_process(call.cli, client, requested, limit_s=timeout)


def _accepted_text(view: TableView) -> str:
    name = view.identifier
    see = f"`headrace table show {name}` shows how far it is"
    if view.process is not None and not view.process.settling and view.wanted_type is None:
        return f"process {view.process.number} of {name} is at it already; {see}"
    again = "was asked for before and" if view.changed is False else "is asked for, and"
    return f"optimizing {name} now {again} begins when a worker is free; {see}"


@app.command("list")
@asks_coordinators
def list_tables(
    call: CommandCall,
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
    views = call.client.tables(catalog=catalog, status=status, most=limit)
    from headrace.cli.tables.text import tables_table

    show_all(call.cli, views, lambda: tables_table(views, now_ms=now_ms()), none=NO_TABLES)
    if len(views) == limit and call.cli.output == "text":
        typer.echo(f"there may be more than these {limit}; --limit, --catalog and --status help")


@app.command()
@asks_coordinators
def show(call: CommandCall, table: TableArgument) -> None:
    """Show a table: its files, its health, what runs and what waits."""
    _show(call.cli, call.client.table(table))


@app.command()
@asks_coordinators
def explain(call: CommandCall, table: TableArgument) -> None:
    """Say why a table is being optimized, or is not, and what happens next."""
    view = call.client.explain_table(table)
    if call.cli.output == "json":
        call.cli.show_json(view.model_dump(mode="json"))
        return
    from headrace.cli.tables.text import findings_table

    console = call.cli.stdout()
    console.print(view.headline, markup=False)
    console.print(findings_table(view))


@app.command()
@asks_coordinators
def history(
    call: CommandCall,
    table: TableArgument,
    limit: Annotated[
        int, typer.Option(help="Show at most so many.", min=1, max=PROCESSES_MAX)
    ] = PROCESSES_SHOWN,
) -> None:
    """List the processes of a table, the latest first; also of one that is gone."""
    views = call.client.processes(table, most=limit)
    from headrace.cli.tables.text import processes_table

    show_all(call.cli, views, lambda: processes_table(views, now_ms=now_ms()), none=NO_PROCESSES)


app.command("plan")(plan)
app.command("optimize")(optimize)


@app.command()
@asks_coordinators
def cancel(call: CommandCall, table: TableArgument) -> None:
    """End what runs for a table. The table stays as it is, and its turn comes again."""
    view = call.client.cancel_table(table)
    _show_change(
        call.cli,
        view,
        f"what runs for {table} is being canceled; nothing of it gets into the table",
        f"nothing runs for {table} that could be canceled; it is {view.status}",
    )


@app.command()
@asks_coordinators
def pause(call: CommandCall, table: TableArgument) -> None:
    """Leave a table alone until `resume`. What runs for it is closed."""
    view = call.client.pause_table(table)
    way_back = f"`headrace table resume {table}` lets it be optimized again"
    _show_change(
        call.cli, view, f"{table} is paused; {way_back}", f"{table} was paused before; {way_back}"
    )


@app.command()
@asks_coordinators
def resume(call: CommandCall, table: TableArgument) -> None:
    """Let a paused table be optimized again."""
    view = call.client.resume_table(table)
    _show_change(call.cli, view, f"{table} is looked at now", f"{table} was not paused")


app.command("block")(block)
app.command("unblock")(unblock)


def _show_change(cli: Context, view: TableView, done: str, unchanged: str) -> None:
    """`done` when the command changed something, `unchanged` when it was so before."""
    show_one(cli, view, lambda: [unchanged if view.changed is False else done])


def _show(cli: Context, view: TableView) -> None:
    from headrace.cli.tables.text import about_table

    show_one(cli, view, lambda: about_table(view, now_ms=now_ms()))
