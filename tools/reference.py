"""Write what follows from declarations: the pages of commands and of options of job files, the
diagrams of state machines, the tables of guarantees and functions, and the files of examples, each
in its place on a page that is written by hand, and the schema of the worker protocol.

`make reference` writes them; a test compares them with what this would write, so they can't age.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from headrace.cli.main import app
from headrace.jobfile.env import ENV
from headrace.model.groups import LAUNCH_TRANSITIONS
from headrace.model.jobs.epoch import CLEANUP_TRANSITIONS, EPOCH_TRANSITIONS
from headrace.model.jobs.status import JOB_TRANSITIONS, PIPELINE_TRANSITIONS, RESTORABLE, JobStatus
from headrace.model.tables.status import (
    PROCESS_TRANSITIONS,
    TABLE_RELEASES,
    TABLE_RESETS,
    TABLE_TRANSITIONS,
)
from headrace.model.task import TRANSITIONS
from headrace.plugins.catalog import installed
from headrace.plugins.descriptor import AnyDescriptor, Guarantee
from headrace.plugins.option_text import default_of, meaning, no_effect, takes
from headrace.plugins.options import Option, OptionSet
from headrace.protocol.messages import PROTOCOL_VERSION
from headrace.transforms.sql import function_table
from tools import wire_schema
from tools.tree import ROOT
from tools.wire_schema import path_of

REFERENCE = ROOT / "docs" / "reference"
STATE_MACHINES = ROOT / "docs" / "explanation" / "state-machines.md"
GUARANTEES = REFERENCE / "guarantees.md"
SQL_FUNCTIONS = REFERENCE / "sql-functions.md"
HOW_TO = ROOT / "docs" / "how-to"
# Pages that hold the files of an example, each between its marker and the end of its block.
BUILT_STEP_BY_STEP = tuple(
    HOW_TO / f"write-a-{part}.md" for part in ("connector", "container", "transform")
)
FILE = re.compile(r"^(<!-- file: (\S+) -->\n```\w+\n).*?^```$", re.DOTALL | re.MULTILINE)
GENERATED = "<!-- Written by `make reference`; change the declarations instead. -->\n\n"
# A diagram stands between its marker, which names the machine, and the end of its block.
DIAGRAM = re.compile(
    r"^(<!-- transitions: (\w+) -->\n)```mermaid\n.*?^```$", re.DOTALL | re.MULTILINE
)

# A table stands between its marker, which names the role, and the next empty line.
GUARANTEE_TABLE = re.compile(
    r"^(<!-- guarantees: (\w+) -->\n\n).*?(?=\n\n)", re.DOTALL | re.MULTILINE
)

# The table of functions, likewise.
FUNCTION_TABLE = re.compile(r"^(<!-- functions -->\n\n).*?(?=\n\n)", re.DOTALL | re.MULTILINE)

S = TypeVar("S", bound=StrEnum)


def pages() -> dict[Path, str]:
    """What each generated page must hold."""
    return {
        REFERENCE / "cli.md": GENERATED + "\n".join(_cli_page()) + "\n",
        SQL_FUNCTIONS: _with_functions(SQL_FUNCTIONS.read_text(encoding="utf-8")),
        REFERENCE / "job-options.md": GENERATED + "\n".join(_options_page()) + "\n",
        STATE_MACHINES: _with_diagrams(STATE_MACHINES.read_text(encoding="utf-8")),
        GUARANTEES: _with_guarantees(GUARANTEES.read_text(encoding="utf-8")),
        **{page: _with_files(page.read_text(encoding="utf-8")) for page in BUILT_STEP_BY_STEP},
    }


def _machines() -> Mapping[str, list[str]]:
    """The arrows of every machine, by its name."""
    restored = {status: frozenset({JobStatus.CREATED}) for status in RESTORABLE}
    return {
        "job": [*_arrows(JOB_TRANSITIONS), *_arrows(restored, ": restored")],
        "pipeline": _arrows(PIPELINE_TRANSITIONS),
        "task": _arrows(TRANSITIONS),
        "epoch": _arrows(EPOCH_TRANSITIONS),
        "cleanup": _arrows(CLEANUP_TRANSITIONS),
        "table": [
            *_arrows(TABLE_TRANSITIONS),
            *_arrows(TABLE_RELEASES, ": its process has ended"),
            *_arrows(TABLE_RESETS, ": recovery"),
        ],
        "process": _arrows(PROCESS_TRANSITIONS),
        "launch": _arrows(LAUNCH_TRANSITIONS),
    }


def _arrows(transitions: Mapping[S, frozenset[S]], label: str = "") -> list[str]:
    """One line for each step, in the order in which the statuses are declared."""
    statuses = list(type(next(iter(transitions))))
    return [
        f"    {old} --> {new}{label}"
        for old in statuses
        for new in statuses
        if new in transitions.get(old, ())
    ]


def _with_diagrams(page: str) -> str:
    """The page, with each diagram as its map says; all of them must be there, once."""
    machines = _machines()
    drawn = [name for _, name in DIAGRAM.findall(page)]
    if sorted(drawn) != sorted(machines):
        raise ValueError(f"the page draws {drawn}, and there are {list(machines)}")
    return DIAGRAM.sub(
        lambda found: "\n".join(
            [f"{found[1]}```mermaid", "stateDiagram-v2", *machines[found[2]], "```"]
        ),
        page,
    )


def _with_functions(page: str) -> str:
    """The page about Sql's functions, with its table."""
    rows = [
        _row("example", "in SeaTunnel", "gives", "in Spark", "gives", "without `engine`"),
        "|---|---|---|---|---|---|",
        *(
            _row(
                f"`{_cell(row.example)}`",
                _cell(row.zeta) or "nothing",
                _given(row.zeta_gives) if row.zeta else "",
                _cell(row.spark) or "nothing",
                _given(row.spark_gives) if row.spark else "",
                row.chosen.value,
            )
            for row in function_table.ROWS
        ),
    ]
    made, times = FUNCTION_TABLE.subn(lambda found: found[1] + "\n".join(rows), page)
    if times != 1:
        raise ValueError(f"{SQL_FUNCTIONS.name} must have one place for its table, and has {times}")
    return made


def _given(value: str | None) -> str:
    if not value:
        return "null" if value is None else "an empty text"
    shown = value.replace("\t", "⇥")
    return f"`{shown}`"


def own_plugins() -> list[AnyDescriptor]:
    """The plug-ins that come with headrace, whatever else is installed here."""
    return [plugin for plugin in installed() if plugin.package == "headrace"]


def _with_guarantees(page: str) -> str:
    """The page, with the table of each role as the descriptors say."""
    tables = {"sink": _sink_guarantees, "source": _source_guarantees}
    named = [role for _, role in GUARANTEE_TABLE.findall(page)]
    if sorted(named) != sorted(tables):
        raise ValueError(f"the page has tables of {named}, and there are {list(tables)}")
    return GUARANTEE_TABLE.sub(lambda found: found[1] + "\n".join(tables[found[2]]()), page)


def _sink_guarantees() -> Iterator[str]:
    yield "| sink | guarantee | how |\n|---|---|---|"
    groups: dict[tuple[Guarantee, str], list[str]] = {}
    for plugin in own_plugins():
        guarantee = plugin.capabilities.guarantee
        if plugin.role == "sink" and guarantee is not None:
            groups.setdefault((guarantee, plugin.capabilities.how), []).append(plugin.name)
    for guarantee in Guarantee:
        for (promised, how), names in groups.items():
            if promised is guarantee:
                yield _row(", ".join(names), guarantee, _cell(how))


def _source_guarantees() -> Iterator[str]:
    yield "| source | job.mode | gives the same rows again | how |\n|---|---|---|---|"
    for plugin in own_plugins():
        able = plugin.capabilities
        if plugin.role == "source":
            modes = [("BATCH", able.bounded), ("STREAMING", able.unbounded)]
            named = ", ".join(mode for mode, can in modes if can)
            yield _row(plugin.name, named, "yes" if able.repeatable else "no", _cell(able.how))


def _with_files(page: str) -> str:
    """The page, with each file as it stands in the example."""
    return FILE.sub(
        lambda found: f"{found[1]}{(ROOT / found[2]).read_text(encoding='utf-8')}```", page
    )


def commands(group: TyperGroup | None = None, path: str = "headrace") -> Iterator[_Command]:
    """Every command that can be typed, in the order of `--help`."""
    if group is None:
        group = cast("TyperGroup", typer.main.get_command(app))
        yield path, group
    for name, command in cast("dict[str, TyperCommand | TyperGroup]", group.commands).items():
        if command.hidden:
            continue
        if isinstance(command, TyperGroup):
            if command.invoke_without_command:
                yield f"{path} {name}", command
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


_Command = tuple[str, TyperCommand | TyperGroup]


def _cli_page() -> Iterator[str]:
    yield "# Commands\n"
    yield "Options of `headrace` itself stand before the command: `headrace --verbose worker list`."
    yield "`--output` alone may stand after it, too: `headrace worker list --output json`."
    yield "What the exit codes mean: [errors and exit codes](errors.md)."
    for path, command in commands():
        yield f"\n## `{path}`\n\n{inspect.cleandoc(command.help or '')}\n"
        yield "| argument or option | default | meaning |\n|---|---|---|"
        for parameter in command.params:
            if isinstance(parameter, TyperArgument | TyperOption) and not parameter.hidden:
                yield _parameter_row(parameter)


def _parameter_row(parameter: TyperArgument | TyperOption) -> str:
    if isinstance(parameter, TyperArgument):
        name = f"`{parameter.metavar or (parameter.name or '').upper()}`"
    else:
        every = [*sorted(parameter.opts, reverse=True), *parameter.secondary_opts]
        name = ", ".join(f"`{option}`" for option in every)
        name += f" {parameter.metavar}" if parameter.metavar else ""
    return _row(name, _default(parameter), _cell(parameter.help or ""))


def _default(parameter: TyperArgument | TyperOption) -> str:
    value: Any = parameter.default
    if parameter.required:
        return "required"
    if value is None or value in ([], 0) or callable(value):
        return ""
    return f"`{value}`"


def _options_page() -> Iterator[str]:
    yield "# Options of job files\n"
    yield "`row.num = 5` and `row { num = 5 }` mean the same. What is marked *not built* is known,"
    yield "and refused with its place in the file. How to write one:"
    yield "[write a job file](../how-to/write-a-job-file.md)."
    for title, doc, options in option_groups():
        yield f"\n## {title}\n\n{doc}\n"
        yield "| option | takes | default | meaning |\n|---|---|---|---|"
        for option in options.declared:
            yield _option_row(option)
        for prefix in options.prefixes:
            yield _row(f"`{prefix}…`", "anything", "", _cell(no_effect(options.prefixes[prefix])))


def option_groups() -> Iterator[tuple[str, str, OptionSet]]:
    """Title, sentence and options of the env block and of each plugin."""
    yield "env", "How the job as a whole runs.", ENV
    for plugin in own_plugins():
        yield f"{plugin.name} ({plugin.role})", plugin.doc, plugin.options


def _option_row(option: Option) -> str:
    names = " or ".join(f"`{name}`" for name in option.names)
    return _row(names, takes(option), default_of(option), _cell(meaning(option)))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    for path, text in {**pages(), path_of(PROTOCOL_VERSION): wire_schema.page()}.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
