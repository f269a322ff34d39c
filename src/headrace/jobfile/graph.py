"""Wiring: which plugin reads what, and which of them form a pipeline together.

A simple job (one source, at most one transform, one sink) is a chain, whatever names it gives.
In any other job the names count: each table is made once, each is read, and a plugin that names
no input reads what the plugin before it made. Each connected part is a pipeline of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.jobfile.nodes import ROLES, Note, Place, Problem, Role
from headrace.jobfile.plugin import Named, Plugin
from headrace.jobfile.suggest import hint

PLUGINS_MAX = 500


@dataclass(frozen=True, slots=True)
class Wired:
    """A plugin with its name within the job and the tables it really reads and makes."""

    name: str
    plugin: Plugin
    inputs: tuple[Named, ...]
    output: Named | None

    @property
    def role(self) -> Role:
        return self.plugin.role

    @property
    def title(self) -> str:
        return f"{self.role} {self.name}"


def wire(plugins: Sequence[Plugin], *, end: Place, note: Note) -> list[list[Wired]]:
    """The pipelines of a job, each in an order in which inputs come first. Raises `Problem`."""
    ordered = [plugin for role in ROLES for plugin in plugins if plugin.role == role]
    for role in ("source", "sink"):
        if not any(plugin.role == role for plugin in ordered):
            raise Problem(end, f"the job has no {role}; write a {role} {{ … }} block with one")
    if len(ordered) > PLUGINS_MAX:
        raise Problem(ordered[PLUGINS_MAX].place, f"a job may have {PLUGINS_MAX} plugins at most")
    named = _numbered(ordered)
    counts = [sum(one.role == role for one in named) for role in ROLES]
    if counts[0] == 1 and counts[1] <= 1 and counts[2] == 1:
        return [_chain(named, note)]
    wired = _filled(named)
    _check_names(wired)
    return _parts(_sorted(wired))


def _numbered(plugins: Iterable[Plugin]) -> list[Wired]:
    counts: dict[str, int] = {}
    wired: list[Wired] = []
    for plugin in plugins:
        number = counts[plugin.decl.name] = counts.get(plugin.decl.name, 0) + 1
        name = f"{plugin.decl.name}-{number}"
        wired.append(Wired(name, plugin, plugin.inputs, plugin.output))
    return wired


def _chain(named: list[Wired], note: Note) -> list[Wired]:
    chain: list[Wired] = []
    made: Named | None = None
    for one, after in itertools.zip_longest(named, named[1:]):
        inputs = () if made is None else (made,)
        _note_other(one, made, note)
        output = None if after is None else _output(one, after)
        if output is not None and made is not None and output.table == made.table:
            output = Named(one.name, output.place)
        chain.append(replace(one, inputs=inputs, output=output))
        made = output
    return chain


def _output(one: Wired, after: Wired) -> Named:
    """A table without a name takes the one that its reader uses."""
    wanted = after.inputs[0] if len(after.inputs) == 1 else Named(one.name, one.plugin.place)
    return one.output or wanted


def _note_other(one: Wired, made: Named | None, note: Note) -> None:
    for name in one.inputs:
        if made is not None and name.table != made.table:
            note(
                name.place,
                f"{one.title} reads table {made.table!r}, the only one there is: nothing makes "
                f"{name.table!r}",
            )


def _filled(named: list[Wired]) -> list[Wired]:
    """Names where none were given: an output is named after its plugin, and an input is the
    output of the plugin before."""
    sources = [one for one in named if one.role == "source"]
    filled: list[Wired] = []
    before: Wired | None = None
    for one in named:
        inputs = one.inputs
        if one.role != "source" and not inputs:
            if before is None or (before.role == "source" and len(sources) > 1):
                raise Problem(
                    one.plugin.place,
                    f"{one.title} needs plugin_input (or source_table_name), since the job has "
                    f"{len(sources)} sources",
                )
            inputs = tuple(filter(None, [before.output]))
        output = None if one.role == "sink" else one.output or Named(one.name, one.plugin.place)
        filled.append(replace(one, inputs=inputs, output=output))
        before = filled[-1] if output else before
    return filled


def _check_names(wired: list[Wired]) -> None:
    makers = _makers(wired)
    read: set[str] = set()
    for one in wired:
        for name in one.inputs:
            if name.table not in makers:
                raise Problem(
                    name.place,
                    f"{one.title} reads table {name.table!r}, which nothing makes; "
                    f"{hint(name.table, makers, noun='tables')}",
                )
            read.add(name.table)
    for table, one in makers.items():
        if table not in read:
            place = one.output.place if one.output else one.plugin.place
            raise Problem(
                place,
                f"table {table!r} of {one.title} is read by nothing; "
                "name it as plugin_input of a sink, or remove the plugin",
            )


def _makers(wired: list[Wired]) -> dict[str, Wired]:
    makers: dict[str, Wired] = {}
    for one in wired:
        if one.output is None:
            continue
        other = makers.get(one.output.table)
        if other is not None:
            raise Problem(
                one.output.place,
                f"table {one.output.table!r} of {one.title} is already made by {other.title}; "
                "give it another plugin_output",
            )
        makers[one.output.table] = one
    return makers


def _sorted(wired: list[Wired]) -> list[Wired]:
    """In an order in which inputs come first; of those that could be next, the first written."""
    done: list[Wired] = []
    made: set[str] = set()
    left = list(wired)
    while left:
        ready = next((o for o in left if all(n.table in made for n in o.inputs)), None)
        if ready is None:
            names = ", ".join(one.name for one in left if one.role == "transform")
            raise Problem(left[0].plugin.place, f"these transforms read each other: {names}")
        left.remove(ready)
        done.append(ready)
        if ready.output is not None:
            made.add(ready.output.table)
    return done


def _parts(wired: list[Wired]) -> list[list[Wired]]:
    """The connected parts, in the order in which their first source was written."""
    part_of: dict[str, list[Wired]] = {}
    for one in wired:
        tables = [name.table for name in (*one.inputs, *filter(None, [one.output]))]
        joined = {id(part): part for table in tables if (part := part_of.get(table))}
        merged = [*(member for part in joined.values() for member in part), one]
        for member in merged:
            for name in (*member.inputs, *filter(None, [member.output])):
                part_of[name.table] = merged
    order = {one.name: at for at, one in enumerate(wired)}
    parts = {id(part): sorted(part, key=lambda o: order[o.name]) for part in part_of.values()}
    return sorted(parts.values(), key=lambda part: order[part[0].name])
