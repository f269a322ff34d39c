"""headrace catalog …: where lake tables are found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.asking import Ask, asks, now_ms, show_all, show_one
from headrace.cli.context import (
    Context,
    pairs_of,
)
from headrace.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.views_tables import CatalogView

app = typer.Typer(
    help="See and change the catalogs whose tables are kept optimized.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NO_CATALOGS = "no catalogs yet; `headrace catalog add` adds one"
FILE_BYTES_MAX = 100_000

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The first part of its tables'.")]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="As Iceberg calls it, e.g. uri=…; repeat it for more. Secrets are never shown again.",
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--property-file",
        help="Lines NAME=VALUE, or - for standard input: keeps secrets from the list of processes.",
    ),
]
DefaultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--default",
        metavar="NAME=VALUE",
        help="A table property that holds where a table says nothing; repeat it for more.",
    ),
]
FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="REGEX",
        help="Only tables whose namespace.name it matches as a whole.",
    ),
]
GroupOption = Annotated[
    str | None, typer.Option("--group", help="The group of workers that look into it.")
]


@app.command()
@asks
def add(
    ask: Ask,
    name: NameArgument,
    kind: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="jdbc, rest, hive, glue or hadoop.")
    ],
    properties: PropertyOption = None,
    property_file: FileOption = None,
    defaults: DefaultOption = None,
    table_filter: FilterOption = None,
    group: GroupOption = None,
) -> None:
    """Add a catalog. Its tables are found by themselves, now and as they come."""
    given = {**_from_file(property_file), **pairs_of(properties or [], "--property")}
    view = ask.client.add_catalog(
        name,
        type=kind,
        properties=given,
        defaults=pairs_of(defaults or [], "--default"),
        table_filter=table_filter,
        group=group,
    )
    _show(ask.cli, view)


@app.command("list")
@asks
def list_catalogs(ask: Ask) -> None:
    """List catalogs and when they were last looked into."""
    views = ask.client.catalogs()
    from headrace.cli.table_summary import catalogs_table

    show_all(ask.cli, views, lambda: catalogs_table(views, now_ms=now_ms()), none=NO_CATALOGS)


@app.command()
@asks
def show(ask: Ask, name: NameArgument) -> None:
    """Show a catalog with its properties, secrets redacted."""
    _show(ask.cli, ask.client.catalog(name))


@app.command("set")
@asks
def change(
    ask: Ask,
    name: NameArgument,
    properties: PropertyOption = None,
    property_file: FileOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="PROPERTY", help="Take a property away."),
    ] = None,
    defaults: DefaultOption = None,
    unset_defaults: Annotated[
        list[str] | None,
        typer.Option("--unset-default", metavar="PROPERTY", help="Take a default away."),
    ] = None,
    table_filter: FilterOption = None,
    no_filter: Annotated[bool, typer.Option("--no-filter", help="Take the filter away.")] = False,
    group: GroupOption = None,
) -> None:
    """Change a catalog: what is given, and nothing else."""
    if no_filter and table_filter is not None:
        raise BadSetting("--filter and --no-filter exclude each other; give one of them")
    given = {**_from_file(property_file), **pairs_of(properties or [], "--property")}
    view = ask.client.change_catalog(
        name,
        properties={**given, **dict.fromkeys(unset or [])},
        defaults={
            **pairs_of(defaults or [], "--default"),
            **dict.fromkeys(unset_defaults or []),
        },
        table_filter="" if no_filter else table_filter,
        group=group,
    )
    _show(ask.cli, view)


@app.command()
@asks
def refresh(ask: Ask, name: NameArgument) -> None:
    """Look into a catalog now, for tables that came or went, rather than at its next turn."""
    view = ask.client.refresh_catalog(name)
    from headrace.cli.table_text import about_refresh

    show_one(ask.cli, view, lambda: about_refresh(view, now_ms=now_ms()))


@app.command()
@asks
def remove(ask: Ask, name: NameArgument) -> None:
    """Forget a catalog and its tables. Nothing in it is deleted."""
    view = ask.client.remove_catalog(name)
    show_one(
        ask.cli,
        view,
        lambda: [
            f"catalog {view.name} is being removed: what runs for its tables is closed first, and "
            "nothing in it is deleted"
        ],
    )


def _show(cli: Context, view: CatalogView) -> None:
    from headrace.cli.table_text import about_catalog

    def lines() -> Sequence[str]:
        return about_catalog(view, now_ms=now_ms())

    show_one(cli, view, lines)


def _from_file(path: Path | None) -> Mapping[str, str]:
    if path is None:
        return {}
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(
            f"--property-file {path} can't be read: {error}; it is a text file of NAME=VALUE lines"
        ) from error
    if len(text) > FILE_BYTES_MAX:
        raise BadSetting(f"--property-file {path} is longer than {FILE_BYTES_MAX} characters")
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    for number, line in enumerate(kept, start=1):
        if "=" not in line:  # which may be a secret, so it is not repeated
            raise BadSetting(
                f"--property-file {path}: entry {number} is not of the form NAME=VALUE"
            )
    return pairs_of(kept, "--property-file")
