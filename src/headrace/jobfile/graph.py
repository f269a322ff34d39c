"""Wires the plugins of a job into pipelines, and finds sinks that clash at one target.

A simple job (one source, at most one transform, one sink) is a chain, whatever table names it
gives. In any other job the names count: each table is made by one plugin, each is read, and a
plugin that names no input reads what the plugin before it made. Each connected part of the graph
is a pipeline of its own.

Pipelines of a job don't wait for each other. So a sink that opens its target, that is, does
something to a table or folder before its first row, could do it to rows that a sink of another
pipeline has written there by then: `find_clash` finds such pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from headrace.jobfile.registry import NamedTable, Plugin
from headrace.model.text import hint
from headrace.plugins.catalog import catalog, save_modes_of
from headrace.plugins.descriptor import TargetKey
from headrace.plugins.problems import Problems
from headrace.plugins.save_modes import SaveModes
from headrace.plugins.syntax_tree import ROLES, FilePlace, Note, Problem, Role

PLUGINS_MAX = 500  # of one job


@dataclass(frozen=True, slots=True)
class WiredPlugin:
    """A plugin with its name within the job, and the tables that it really reads and makes."""

    name: str
    plugin: Plugin
    inputs: tuple[NamedTable, ...]
    output: NamedTable | None

    @property
    def role(self) -> Role:
        return self.plugin.role

    @property
    def title(self) -> str:
        return f"{self.role} {self.name}"


@dataclass(frozen=True, slots=True)
class ConfiguredSink:
    """A sink of a pipeline; `options` include the secrets."""

    pipeline: int
    name: str
    plugin: str
    options: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Clash:
    """Two sinks of different pipelines at one target, which `opener` opens."""

    opener: ConfiguredSink
    modes: SaveModes  # of the opener
    other: ConfiguredSink

    def __str__(self) -> str:
        schema, data = self.modes.schema, self.modes.data
        return (
            f"sink {self.opener.name} of pipeline {self.opener.pipeline} and sink "
            f"{self.other.name} of pipeline {self.other.pipeline} write to the same place, which "
            f"{self.opener.name} opens with schema_save_mode = {schema} and data_save_mode = "
            f"{data}: pipelines don't wait for each other, so it could find the rows of the "
            "other one. Feed one sink with both tables (plugin_input = [a, b]), or write to "
            "two places"
        )


def check_roles(
    roles: Collection[Role], *, end: FilePlace, problems: Problems, where: str = ""
) -> None:
    """Check that a job with plugins of these roles has a source and a sink. `end` is the place of
    a missing one; `where` says how it is written."""
    for role in ("source", "sink"):
        if role not in roles:
            way_out = where.format(role=role) or f"write a {role} {{ … }} block with one"
            problems.add(Problem(end, f"the job has no {role}; {way_out}"))


def wire(plugins: Sequence[Plugin], *, problems: Problems) -> list[list[WiredPlugin]]:
    """The pipelines of a job, each sorted so that a plugin comes after its inputs; none of them
    when something is wrong with the wiring, which is added to `problems`."""
    ordered = [plugin for role in ROLES for plugin in plugins if plugin.role == role]
    if len(ordered) > PLUGINS_MAX:
        place = ordered[PLUGINS_MAX].place
        problems.add(Problem(place, f"a job may have {PLUGINS_MAX} plugins at most"))
        return []
    numbered = _numbered(ordered)
    counts = [sum(each.role == role for each in numbered) for role in ROLES]
    if counts[0] == 1 and counts[1] <= 1 and counts[2] == 1:
        return [_chain(numbered, problems.note)]
    before = problems.count
    wired = _with_default_tables(numbered, problems)
    _check_names(wired, problems, told_before=before)
    if problems.count == before:
        with problems.collect():
            return _connected_parts(_sorted(wired))
    return []


def find_clash(sinks: Sequence[ConfiguredSink]) -> Clash | None:
    """The first sink that opens a target to which a sink of another pipeline writes."""
    places = [(sink, place) for sink in sinks if (place := _target_of(sink)) is not None]
    for opener, opened in places:
        modes = save_modes_of(opener.plugin, opener.options)
        if modes is None or not modes.opens:
            continue
        for other, place in places:
            # To open a folder is also to open the folders in it, so a prefix is enough.
            if other.pipeline != opener.pipeline and place[: len(opened)] == opened:
                return Clash(opener, modes, other)
    return None


def _numbered(plugins: Iterable[Plugin]) -> list[WiredPlugin]:
    """Give each plugin a name within the job: "Jdbc-1", "Jdbc-2"."""
    counts: dict[str, int] = {}
    wired: list[WiredPlugin] = []
    for plugin in plugins:
        number = counts[plugin.descriptor.name] = counts.get(plugin.descriptor.name, 0) + 1
        name = f"{plugin.descriptor.name}-{number}"
        wired.append(WiredPlugin(name, plugin, plugin.inputs, plugin.output))
    return wired


def _chain(plugins: list[WiredPlugin], note: Note) -> list[WiredPlugin]:
    """Each plugin reads what the one before it makes, whatever names they give."""
    chain: list[WiredPlugin] = []
    made: NamedTable | None = None
    for wired, after in itertools.zip_longest(plugins, plugins[1:]):
        inputs = () if made is None else (made,)
        _note_other_inputs(wired, made, note)
        output = None if after is None else _output(wired, after)
        if output is not None and made is not None and output.table == made.table:
            output = NamedTable(wired.name, output.place)
        chain.append(replace(wired, inputs=inputs, output=output))
        made = output
    return chain


def _output(wired: WiredPlugin, after: WiredPlugin) -> NamedTable:
    """The table that a plugin makes; without a name it takes the one that its reader uses."""
    wanted = (
        after.inputs[0] if len(after.inputs) == 1 else NamedTable(wired.name, wired.plugin.place)
    )
    return wired.output or wanted


def _note_other_inputs(wired: WiredPlugin, made: NamedTable | None, note: Note) -> None:
    for name in wired.inputs:
        if made is not None and name.table != made.table:
            note(
                name.place,
                f"{wired.title} reads table {made.table!r}, the only one there is: nothing makes "
                f"{name.table!r}",
            )


def _with_default_tables(plugins: list[WiredPlugin], problems: Problems) -> list[WiredPlugin]:
    """Fill in the tables that are not named: an output is named after its plugin, and an input is
    the output of the plugin before. It is a problem when it is not certain which one that is."""
    sources = [wired for wired in plugins if wired.role == "source"]
    filled: list[WiredPlugin] = []
    before: WiredPlugin | None = None
    for wired in plugins:
        inputs = wired.inputs
        if wired.role != "source" and not inputs:
            if before is None or (before.role == "source" and len(sources) > 1):
                text = f"{wired.title} needs plugin_input (or source_table_name), since the job has"
                problems.add(Problem(wired.plugin.place, f"{text} {len(sources)} sources"))
            inputs = tuple(filter(None, [before.output if before else None]))
        output = (
            None
            if wired.role == "sink"
            else wired.output or NamedTable(wired.name, wired.plugin.place)
        )
        filled.append(replace(wired, inputs=inputs, output=output))
        before = filled[-1] if output else before
    return filled


def _check_names(plugins: list[WiredPlugin], problems: Problems, *, told_before: int) -> None:
    makers = _makers(plugins, problems)
    read: set[str] = set()
    for wired in plugins:
        for name in wired.inputs:
            if name.table not in makers:
                known = hint(name.table, makers, noun="tables")
                text = f"{wired.title} reads table {name.table!r}, which nothing makes; {known}"
                problems.add(Problem(name.place, text))
            read.add(name.table)
    if problems.count > told_before:
        return  # a table that is read by nothing is probably one whose reader was told already
    for table, wired in makers.items():
        if table not in read:
            place = wired.output.place if wired.output else wired.plugin.place
            text = f"table {table!r} of {wired.title} is read by nothing; "
            way_out = "name it as plugin_input of a sink, or remove the plugin"
            problems.add(Problem(place, text + way_out))


def _makers(plugins: list[WiredPlugin], problems: Problems) -> dict[str, WiredPlugin]:
    makers: dict[str, WiredPlugin] = {}
    for wired in plugins:
        if wired.output is None:
            continue
        other = makers.setdefault(wired.output.table, wired)
        if other is not wired:
            made = f"table {wired.output.table!r} of {wired.title} is already made by {other.title}"
            text = f"{made}; give it another plugin_output"
            problems.add(Problem(wired.output.place, text))
    return makers


def _sorted(plugins: list[WiredPlugin]) -> list[WiredPlugin]:
    """Sort topologically: inputs first; of the plugins that could be next, the first written."""
    done: list[WiredPlugin] = []
    made: set[str] = set()
    left = list(plugins)
    while left:
        ready = next((o for o in left if all(n.table in made for n in o.inputs)), None)
        if ready is None:
            names = ", ".join(wired.name for wired in left if wired.role == "transform")
            raise Problem(left[0].plugin.place, f"these transforms read each other: {names}")
        left.remove(ready)
        done.append(ready)
        if ready.output is not None:
            made.add(ready.output.table)
    return done


def _connected_parts(plugins: list[WiredPlugin]) -> list[list[WiredPlugin]]:
    """The connected parts of the graph, in the order in which their first source was written."""
    part_of: dict[str, list[WiredPlugin]] = {}
    for wired in plugins:
        tables = [name.table for name in (*wired.inputs, *filter(None, [wired.output]))]
        joined = {id(part): part for table in tables if (part := part_of.get(table))}
        merged = [*(member for part in joined.values() for member in part), wired]
        for member in merged:
            for name in (*member.inputs, *filter(None, [member.output])):
                part_of[name.table] = merged
    order = {wired.name: at for at, wired in enumerate(plugins)}
    parts = {id(part): sorted(part, key=lambda o: order[o.name]) for part in part_of.values()}
    return sorted(parts.values(), key=lambda part: order[part[0].name])


def _target_of(sink: ConfiguredSink) -> TargetKey | None:
    """What identifies the table or folder of a sink; None: it has no target."""
    descriptor = catalog().find("sink", sink.plugin)
    return None if descriptor is None else descriptor.target_of(sink.options)
