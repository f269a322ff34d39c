"""headrace: the root of the command line, and the one place where an error becomes an exit code.

Modules imported here load nothing heavy; each command imports what it needs when it is called.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli import connectors, exits, groups, serve, store
from headrace.cli.context import Context, Output
from headrace.cli.jobs import commands, import_command
from headrace.cli.local import commands as local_commands
from headrace.cli.tables import catalogs
from headrace.cli.tables import commands as table_commands

# Plain help: rich would take as long to load as everything else.
app = typer.Typer(
    help="Crash-proof data pipelines on Spark, into lake tables.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("run")(commands.run)
app.command("import")(import_command.import_jobs)
app.command("up")(local_commands.up)
app.add_typer(commands.app, name="job")
app.add_typer(catalogs.app, name="catalog")
app.add_typer(table_commands.app, name="table")
app.add_typer(groups.app, name="group")
app.command("workers")(groups.list_workers)
app.command("coordinator")(serve.coordinator)
groups.worker_app.callback(invoke_without_command=True)(serve.worker)
app.add_typer(groups.worker_app, name="worker")
app.command("inspect")(catalogs.inspect)
app.add_typer(connectors.app, name="connectors")
app.add_typer(store.app, name="store")
app.command("doctor")(local_commands.doctor)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    output: Annotated[Output, typer.Option(help="For people, or for programs.")] = "text",
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Log more; twice for all.")
    ] = 0,
    debug: Annotated[  # noqa: ARG001 - read by main(), outside of the command
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    if ctx.obj is None:  # a test brings its own
        ctx.obj = Context(output=output, verbose=verbose)


def main() -> None:
    try:
        app(prog_name="headrace")
    except Exception as error:  # noqa: BLE001 - the boundary: nothing stands above a command
        exits.exit_with_error(error, debug="--debug" in sys.argv)
