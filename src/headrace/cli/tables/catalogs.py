"""headrace catalog …: where lake tables are found; headrace inspect: the health of a catalog.

`inspect` needs neither a coordinator nor a store.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.cli import exits
from headrace.cli.context import (
    CommandCall,
    Context,
    HomeOption,
    OutputOption,
    asks_coordinators,
    now_ms,
    pairs_of,
    show_all,
    show_one,
)
from headrace.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.client.tables import CatalogView
    from headrace.inspection.report import CatalogReport

EMBEDDED = "headrace"
MOST = 10
FILE_BYTES_MAX = 100_000
NO_CATALOGS = "no catalogs yet; `headrace catalog add` adds one"

app = typer.Typer(
    help="See and change the catalogs whose tables are kept optimized.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CatalogType = Literal["embedded", "jdbc", "rest", "hive", "glue", "hadoop"]
CatalogArgument = Annotated[
    str,
    typer.Argument(
        metavar="CATALOG", help="What it is called; a JDBC catalog keeps its tables under it."
    ),
]
TypeOption = Annotated[
    CatalogType | None,
    typer.Option("--type", help="How it is reached.  [default: embedded, for headrace]"),
]
InspectPropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="uri, warehouse, credential, … as Iceberg takes it; repeatable.",
    ),
]
InspectFilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter", metavar="REGEX", help="Only tables whose NAMESPACE.TABLE matches all of it."
    ),
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write it as a page, too.")
]
MostOption = Annotated[
    int, typer.Option("--most", min=1, max=10_000, help="Rows of each list in the text.")
]
MasterOption = Annotated[str, typer.Option(help="As spark-submit takes it.")]
ConfOption = Annotated[
    list[str] | None, typer.Option(help="A Spark setting; repeatable.", metavar="NAME=VALUE")
]
WarehouseOption = Annotated[
    str | None,
    typer.Option(help="The embedded warehouse.  [default: warehouse in --home]", metavar="DIR"),
]

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


def inspect(
    ctx: typer.Context,
    catalog: CatalogArgument = EMBEDDED,
    kind: TypeOption = None,
    properties: InspectPropertyOption = None,
    table_filter: InspectFilterOption = None,
    html: HtmlOption = None,
    most: MostOption = MOST,
    spark_master: MasterOption = "local[*]",
    conf: ConfOption = None,
    warehouse: WarehouseOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Tell the health of a catalog, and what optimizing it would save.

    Reads the metadata of every Iceberg table, with a Spark of its own: no coordinator is needed,
    and nothing is changed. Exits 1 when some table could not be read.
    """
    cli = Context.of(ctx, output)
    cli.log_to_stderr()
    _check_writable(html)
    from headrace.spark.installation import find_spark

    find_spark("`headrace inspect` needs Spark")
    from headrace.cli.tables.inspection_run import InspectionRequest, run

    request = InspectionRequest(
        catalog=catalog,
        type=kind or _type_of(catalog),
        properties=pairs_of(properties or [], "--property"),
        filter=_pattern(table_filter),
        warehouse=warehouse,
        spark_master=spark_master,
        conf=pairs_of(conf or [], "--conf"),
    )
    report = run(cli, request, cli.settings(home=home))
    _show_report(cli, report, html=html, most=most)
    if report.unread:
        raise typer.Exit(exits.SOME_FAILED)


def _show_report(cli: Context, report: CatalogReport, *, html: Path | None, most: int) -> None:
    if html is not None:
        from headrace.inspection.page import page

        html.write_text(page(report), encoding="utf-8")
    if cli.output == "json":
        from headrace.inspection.report import as_json

        cli.show_json(as_json(report))
        return
    from headrace.inspection.text import renderables

    console = cli.stdout()
    for part in renderables(report, most=most):
        console.print(part, soft_wrap=not sys.stdout.isatty())
    if html is not None:
        console.print(f"\nWritten to {html}", markup=False)


def _type_of(catalog: str) -> CatalogType:
    if catalog == EMBEDDED:
        return "embedded"
    raise BadSetting(
        f"catalog {catalog!r} is not the embedded one, so say how it is reached: --type "
        "jdbc|rest|hive|glue|hadoop, and --property for its uri, warehouse and credentials"
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise BadSetting(
            f"--filter takes a regular expression, and {text!r} is none: {error}; all of "
            r"namespace sales matches 'sales\..*'"
        ) from error


def _check_writable(html: Path | None) -> None:
    """Checked before the work begins, not after it."""
    if html is None:
        return
    if html.is_dir():
        raise BadSetting(f"--html {html} is a folder; name a file in it")
    if not html.absolute().parent.is_dir():
        raise BadSetting(f"--html {html}: there is no folder {html.absolute().parent}; make it")


@app.command()
@asks_coordinators
def add(
    call: CommandCall,
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
    all_properties = {
        **_read_property_file(property_file),
        **pairs_of(properties or [], "--property"),
    }
    view = call.client.add_catalog(
        name,
        type=kind,
        properties=all_properties,
        defaults=pairs_of(defaults or [], "--default"),
        table_filter=table_filter,
        group=group,
    )
    _show(call.cli, view)


@app.command("list")
@asks_coordinators
def list_catalogs(call: CommandCall) -> None:
    """List catalogs and when they were last looked into."""
    views = call.client.catalogs()
    from headrace.cli.tables.text import catalogs_table

    show_all(call.cli, views, lambda: catalogs_table(views, now_ms=now_ms()), none=NO_CATALOGS)


@app.command()
@asks_coordinators
def show(call: CommandCall, name: NameArgument) -> None:
    """Show a catalog with its properties, secrets redacted."""
    _show(call.cli, call.client.catalog(name))


@app.command("set")
@asks_coordinators
def change(
    call: CommandCall,
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
    all_properties = {
        **_read_property_file(property_file),
        **pairs_of(properties or [], "--property"),
    }
    view = call.client.change_catalog(
        name,
        properties={**all_properties, **dict.fromkeys(unset or [])},
        defaults={
            **pairs_of(defaults or [], "--default"),
            **dict.fromkeys(unset_defaults or []),
        },
        table_filter="" if no_filter else table_filter,
        group=group,
    )
    _show(call.cli, view)


@app.command()
@asks_coordinators
def refresh(call: CommandCall, name: NameArgument) -> None:
    """Look into a catalog now, for tables that came or went, rather than at its next turn."""
    view = call.client.refresh_catalog(name)
    from headrace.cli.tables.text import about_refresh

    show_one(call.cli, view, lambda: about_refresh(view, now_ms=now_ms()))


@app.command()
@asks_coordinators
def remove(call: CommandCall, name: NameArgument) -> None:
    """Forget a catalog and its tables. Nothing in it is deleted."""
    view = call.client.remove_catalog(name)
    show_one(
        call.cli,
        view,
        lambda: [
            f"catalog {view.name} is being removed: what runs for its tables is closed first, and "
            "nothing in it is deleted"
        ],
    )


def _show(cli: Context, view: CatalogView) -> None:
    from headrace.cli.tables.text import about_catalog

    def lines() -> Sequence[str]:
        return about_catalog(view, now_ms=now_ms())

    show_one(cli, view, lines)


def _read_property_file(path: Path | None) -> Mapping[str, str]:
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
        if "=" not in line:  # the line may be a secret, so it is not repeated
            raise BadSetting(
                f"--property-file {path}: entry {number} is not of the form NAME=VALUE"
            )
    return pairs_of(kept, "--property-file")
