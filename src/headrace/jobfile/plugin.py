"""One plugin block, checked against its declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from headrace.jobfile.convert import convert
from headrace.jobfile.nodes import Node, Note, Place, Problem, Role, Written, untold
from headrace.jobfile.options import Given, PluginDecl, given_options, note_idle
from headrace.jobfile.registry import find_plugin
from headrace.model.jobspec import EnvSpec


@dataclass(frozen=True, slots=True)
class Named:
    """A table's name, and where it stands."""

    table: str
    place: Place


@dataclass(frozen=True, slots=True)
class Plugin:
    decl: PluginDecl
    place: Place
    options: Mapping[str, JsonValue]
    inputs: tuple[Named, ...]
    output: Named | None

    @property
    def role(self) -> Role:
        return self.decl.role


def read_plugin(written: Written, *, note: Note = untold) -> Plugin:
    """The plugin with its options converted. Raises `Problem` at the first wrong one."""
    decl = find_plugin(written.role, written.name, written.place)
    given = given_options(decl.options, written.options, title=decl.title)
    options = {_name(one): convert(one, title=decl.title) for one in given}
    _check_present(decl, options, written.place)
    note_idle(decl.options, given, title=decl.title, note=note)
    nodes = {_name(one): one.node for one in given}
    inputs, output = options.pop("plugin_input", None), options.pop("plugin_output", None)
    return Plugin(
        decl,
        written.place,
        options,
        _named(inputs if isinstance(inputs, list) else [], nodes.get("plugin_input")),
        next(iter(_named([] if output is None else [output], nodes.get("plugin_output"))), None),
    )


def check_mode(plugin: Plugin, env: EnvSpec) -> None:
    """A source that comes to an end has no place in a job that does not. Raises `Problem`."""
    if env.job_mode != "STREAMING":
        return
    decl = plugin.decl
    if not decl.streams:
        raise Problem(
            plugin.place,
            f"{decl.title} reads what is there, once, and a streaming job does not end; set "
            "job.mode = BATCH in env",
        )
    if decl.streaming_flaw is not None and (flaw := decl.streaming_flaw(plugin.options)):
        raise Problem(plugin.place, f"{decl.title}: {flaw}")


def _name(given: Given) -> str:
    return given.option.name if given.option else given.path


def _named(tables: list[JsonValue], node: Node | None) -> tuple[Named, ...]:
    place = node.place if node is not None else Place(0, 0)
    seen: list[str] = []
    for table in map(str, tables):
        if not table:
            raise Problem(place, "a table's name is empty")
        if table in seen:
            raise Problem(place, f"table {table!r} is listed twice")
        seen.append(table)
    return tuple(Named(table, place) for table in seen)


def _check_present(decl: PluginDecl, options: Mapping[str, JsonValue], place: Place) -> None:
    for option in decl.options.declared:
        if option.required and option.name not in options:
            raise Problem(place, f"{decl.title} needs the option {option.name!r}: {option.doc}")
    for group in decl.one_of:
        if not any(name in options for name in group):
            names = " or ".join(map(repr, group))
            raise Problem(place, f"{decl.title} needs the option {names}")
    for low in (name for name in options if name.endswith(".min")):
        high = low.removesuffix("min") + "max"
        if _number(options[low]) > _number(options.get(high)):
            raise Problem(place, f"option {low!r} of {decl.title} is above {high!r}")
    if decl.flaw is not None and (flaw := decl.flaw(options)):
        raise Problem(place, f"{decl.title}: {flaw}")


def _number(value: JsonValue) -> float:
    return value if isinstance(value, int | float) else float("inf")
