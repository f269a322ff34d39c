"""headrace connectors list and show: the sources, transforms and sinks that are installed here.

They are read from the descriptors of this machine's packages. Nobody is asked, so what coordinators
and workers elsewhere have may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.context import Context, OutputOption
from headrace.errors import NotFound, Refused

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.plugins.catalog import PluginCatalog
    from headrace.plugins.descriptor import AnyDescriptor
    from headrace.plugins.options import Option

LABEL_WIDTH = 14  # characters
OPTION_WIDTH = 28

app = typer.Typer(
    help="See the sources, transforms and sinks that are installed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_connectors(ctx: typer.Context, output: OutputOption = None) -> None:
    """List sources, transforms and sinks, with the package that brings each."""
    from headrace.plugins.catalog import catalog

    cli, found = Context.of(ctx, output), catalog()
    if cli.output == "json":
        cli.show_json(
            {
                "plugins": [_summary(each) for each in found.descriptors],
                "unusable": list(_unusable(found)),
            }
        )
        return
    cli.stdout().print(_table(found.descriptors))
    for line in _unusable(found):
        typer.echo(line)


@app.command()
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As job files call it.")],
    output: OutputOption = None,
) -> None:
    """Show what a source, transform or sink can do, and every option that it takes."""
    from headrace.plugins.catalog import catalog

    cli, found = Context.of(ctx, output), catalog()
    named = [each for each in found.descriptors if each.name.lower() == name.lower()]
    if not named:
        raise _missing(found, name)
    if cli.output == "json":
        cli.show_json([_whole(each) for each in named])
        return
    for line in (line for each in named for line in _about(each)):
        typer.echo(line)


def _missing(found: PluginCatalog, name: str) -> Refused:
    from headrace.model.text import hint
    from headrace.plugins.syntax_tree import ROLES

    for role in ROLES:
        if (obstacle := found.obstacle(role, name)) is not None:
            return Refused(obstacle)
    near = hint(name, sorted({each.name for each in found.descriptors}), noun="names")
    return NotFound("source, transform or sink", name, way_out=near)


def _unusable(found: PluginCatalog) -> Iterator[str]:
    yield from map(str, (*found.conflicts, *found.broken))


def _table(descriptors: Sequence[AnyDescriptor]) -> Table:
    from headrace.cli.jobs.text import table_of

    table = table_of("role", "name", "guarantee", "job.mode", "package", "version")
    for each in descriptors:
        table.add_row(
            each.role, each.name, _guarantee(each), _modes(each), each.package, each.version
        )
    return table


def _guarantee(of: AnyDescriptor) -> str:
    return "-" if of.capabilities.guarantee is None else of.capabilities.guarantee.value


def _modes(of: AnyDescriptor) -> str:
    able = of.capabilities
    modes = (("BATCH", able.bounded), ("STREAMING", able.unbounded))
    return ", ".join(mode for mode, can in modes if can)


def _about(of: AnyDescriptor) -> Iterator[str]:
    able = of.capabilities
    yield f"{of.title}: {of.doc}"
    if able.guarantee is not None:
        yield _fact("guarantee", f"{able.guarantee}: {able.how}")
    yield _fact("job.mode", _modes(of))
    if of.role == "source":
        again = "the same slice gives the same rows, or is refused" if able.repeatable else "no"
        yield _fact("repeatable", again)
    if of.role != "transform":
        yield _fact("rows", ", ".join(sorted(kind.name for kind in able.row_kinds)))
        yield _fact("tables", "several at once" if able.multi_table else "one")
    if of.role == "sink":
        yield _fact("upserts", "yes" if able.upsert else "no")
        yield _fact("save modes", ", ".join(map(str, able.save_modes)) or "none")
        yield _fact("new columns", "yes" if able.schema_evolution else "no")
    yield _fact("package", of.brought_by)
    yield _fact("options", "")
    for option in of.options.declared:
        yield from _option_lines(option)
    for prefix in of.options.prefixes:
        yield f"  {prefix}…"
    yield ""


def _fact(label: str, text: str) -> str:
    return f"  {label:<{LABEL_WIDTH}}{text}".rstrip()


def _option_lines(option: Option) -> Iterator[str]:
    from headrace.plugins.option_text import default_of, meaning, takes

    default = default_of(option)
    head = f"{takes(option)}; {default}" if default else takes(option)
    yield f"    {' or '.join(option.names):<{OPTION_WIDTH}} {head}"
    if text := meaning(option):
        yield f"    {'':<{OPTION_WIDTH}} {text}"


def _summary(of: AnyDescriptor) -> dict[str, Any]:
    return {
        "role": of.role,
        "name": of.name,
        "package": of.package,
        "version": of.version,
        "digest": of.digest,
        "capabilities": of.capabilities.as_json(),
    }


def _whole(of: AnyDescriptor) -> dict[str, Any]:
    return {
        **_summary(of),
        "doc": of.doc,
        "how": of.capabilities.how,
        "make": of.make,
        "jars": [jar.coordinates for jar in of.jars],
        "one_of": [list(group) for group in of.one_of],
        "options": [
            {**option.as_json(), "doc": option.doc, "unsupported": option.unsupported}
            for option in of.options.declared
        ],
    }
