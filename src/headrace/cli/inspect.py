"""headrace inspect: the health of a whole catalog, told without a coordinator and a store."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.cli import exits
from headrace.cli.context import Context, HomeOption, OutputOption, pairs_of
from headrace.errors import BadSetting

if TYPE_CHECKING:
    from headrace.inspection.report import CatalogReport

EMBEDDED = "headrace"
MOST = 10
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
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="uri, warehouse, credential, … as Iceberg takes it; repeatable.",
    ),
]
FilterOption = Annotated[
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


def inspect(
    ctx: typer.Context,
    catalog: CatalogArgument = EMBEDDED,
    kind: TypeOption = None,
    properties: PropertyOption = None,
    table_filter: FilterOption = None,
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
    from headrace.cli.inspecting import Asked, run

    asked = Asked(
        catalog=catalog,
        type=kind or _type_of(catalog),
        properties=pairs_of(properties or [], "--property"),
        filter=_pattern(table_filter),
        warehouse=warehouse,
        spark_master=spark_master,
        conf=pairs_of(conf or [], "--conf"),
    )
    report = run(cli, asked, cli.settings(home=home))
    _show(cli, report, html=html, most=most)
    if report.unread:
        raise typer.Exit(exits.SOME_FAILED)


def _show(cli: Context, report: CatalogReport, *, html: Path | None, most: int) -> None:
    if html is not None:
        from headrace.inspection.page import page

        html.write_text(page(report), encoding="utf-8")
    if cli.output == "json":
        from headrace.inspection.as_json import as_json

        cli.show_json(as_json(report))
        return
    from headrace.inspection.text import shown

    console = cli.stdout()
    for part in shown(report, most=most):
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
    """Before the work, not after it."""
    if html is None:
        return
    if html.is_dir():
        raise BadSetting(f"--html {html} is a folder; name a file in it")
    if not html.absolute().parent.is_dir():
        raise BadSetting(f"--html {html}: there is no folder {html.absolute().parent}; make it")
