"""Declarations: which options a plugin has, of which kind, and what of them is built.

An option is declared once, by its dotted path; `row.num = 5` and `row { num = 5 }` both find it.
A value that SeaTunnel knows and Headrace has not built yet is declared as such, with the reason,
and refused. What SeaTunnel's own jobs carry and nothing here reads yet is accepted and noted:
nothing that a user wrote is ignored without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import JsonValue

from headrace.jobfile.nodes import Node, Note, Object, Place, Problem, Role, Scalar, scalars
from headrace.jobfile.suggest import hint
from headrace.logs import is_secret

PARALLELISM_MAX = 10_000  # readers of a source; far above what one job can use


class Kind(StrEnum):
    INT = "a whole number"
    FLOAT = "a number"
    BOOL = "true or false"
    STRING = "a text"
    LIST = "a list"
    MAP = "an object of texts"  # flattened: {a.b = 1} is {"a.b": "1"}
    JSON = "a value"  # any; its reader is the plugin
    SCHEMA = "a schema block"


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: Kind
    default: JsonValue = None
    required: bool = False
    sensitive: bool = False
    doc: str = ""
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    items: Kind = Kind.STRING  # of a LIST
    vectors: bool = True  # of a SCHEMA: whether vector columns are built
    supported: tuple[JsonValue, ...] | None = None  # None: every value is built
    unsupported: str = "is not built yet"  # what is said of any other value
    idle: str = ""  # why it has no effect yet; "" means that it has one
    flaw: Callable[[str], str | None] | None = None  # of a STRING: what is wrong with a value
    # What it replaces while the job runs, as patterns of names: `${now}`. A variable of any other
    # name has to have a value when the job file is read.
    placeholders: tuple[str, ...] = ()
    # Of a JSON: raises `Problem` when it is wrong, and notes what has no effect in it.
    reads: Callable[[Node, Note], object] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def secret(self) -> bool:
        return self.sensitive or is_secret(self.name)

    def replaces(self, variable: str) -> bool:
        return any(re.fullmatch(pattern, variable) for pattern in self.placeholders)


@dataclass(frozen=True, slots=True)
class Options:
    """A set of options, looked up by dotted path."""

    declared: tuple[Option, ...]
    prefixes: Mapping[str, str] = field(default_factory=dict[str, str])  # "spark.": why it is idle
    _by_name: Mapping[str, Option] = field(init=False, repr=False, compare=False)
    _branches: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {name: option for option in self.declared for name in option.names}
        branches = {
            name.rsplit(".", maxsplit=count)[0]
            for name in (*by_name, *(prefix + "x" for prefix in self.prefixes))
            for count in range(1, name.count(".") + 1)
        }
        object.__setattr__(self, "_by_name", by_name)
        object.__setattr__(self, "_branches", frozenset(branches))

    def find(self, path: str) -> Option | None:
        return self._by_name.get(path)

    def free(self, path: str) -> bool:
        return path.startswith(tuple(self.prefixes))

    def idle(self, given: Given) -> str:
        """Why what was given has no effect yet; "" when it has one."""
        if given.option is not None:
            return given.option.idle
        return next(why for prefix, why in self.prefixes.items() if given.path.startswith(prefix))

    def leads_on(self, path: str) -> bool:
        """Whether options are declared below this path."""
        return path in self._branches

    def names(self) -> Iterable[str]:
        return self._by_name


@dataclass(frozen=True, slots=True)
class PluginDecl:
    name: str
    role: Role
    options: Options
    doc: str = ""
    one_of: tuple[tuple[str, ...], ...] = ()  # of each group at least one must be given
    # What is wrong with options that are right each by itself.
    flaw: Callable[[Mapping[str, JsonValue]], str | None] | None = None
    repeatable: bool = True  # of a source: a slice gives the same rows again, or is refused (E5)
    streams: bool = True  # of a source: whether it can be read without an end
    # What is wrong with options that are right, when the job does not end.
    streaming_flaw: Callable[[Mapping[str, JsonValue]], str | None] | None = None

    @property
    def title(self) -> str:
        return f"{self.role} {self.name}"


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it was written."""

    option: Option | None  # None: below a free prefix
    path: str
    place: Place  # of its key
    node: Node


def given_options(options: Options, block: Object, *, title: str) -> list[Given]:
    """What is written in a block, as declared options. Raises `Problem` for an unknown one."""
    found: dict[str, Given] = {}
    for given in _walk(options, block, title=title, prefix=""):
        name = given.option.name if given.option else given.path
        before = found.get(name)
        if before is not None:
            both = f"{before.path!r} and {given.path!r} are the same option of {title}; give one"
            raise Problem(given.place, both)
        _check_set(given, title=title)
        found[name] = given
    return list(found.values())


def _check_set(given: Given, *, title: str) -> None:
    """A variable that nobody set would be sent as it stands, a password among others."""
    for scalar in scalars(given.node):
        for unset in scalar.unset:
            if given.option is None or not given.option.replaces(unset.name):
                raise Problem(scalar.place, f"option {given.path!r} of {title}: {unset}")


def note_idle(options: Options, given: Iterable[Given], *, title: str, note: Note) -> None:
    for one in given:
        if why := options.idle(one):
            note(one.place, f"option {one.path!r} of {title} has no effect yet: {why}")
        if one.option is not None and one.option.reads is not None:
            one.option.reads(one.node, note)
        for scalar in scalars(one.node):
            for unset in (unset for unset in scalar.unset if unset.reserved):
                text = f"option {one.path!r} of {title} keeps ${{{unset.name}}} as it stands: a job"
                note(scalar.place, f"{text} writes one table, and nothing replaces it yet")


def _walk(options: Options, block: Object, *, title: str, prefix: str) -> Iterable[Given]:
    for key, place, node in block.walk():
        path = prefix + key
        option = options.find(path)
        if option is not None:
            if not _is_null(node):  # as in HOCON, null means: not given
                yield Given(option, path, place, node)
        elif isinstance(node, Object) and (options.leads_on(path) or options.free(path + ".")):
            yield from _walk(options, node, title=title, prefix=path + ".")
        elif options.free(path):
            yield Given(None, path, place, node)
        else:
            path = _whole(path, node)
            known = hint(path, options.names(), noun="options")
            raise Problem(place, f"unknown option {path!r} of {title}; {known}")


def _whole(path: str, node: Node) -> str:
    """The path as it was probably written: `Row.Num = 5` is not about an option `Row`."""
    while isinstance(node, Object) and len(node.members) == 1:
        ((key, node),) = node.members.items()
        path = f"{path}.{key}"
    return path


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def common_options(role: Role) -> tuple[Option, ...]:
    """What every plugin of a role has. Wiring is read by graph.py, under both its names."""
    output = Option(
        "plugin_output", Kind.STRING, aliases=("result_table_name",), doc="The table it makes."
    )
    inputs = Option(
        "plugin_input", Kind.LIST, aliases=("source_table_name",), doc="The tables it reads."
    )
    parallelism = Option(
        "parallelism", Kind.INT, minimum=1, maximum=PARALLELISM_MAX, doc="Instead of the job's."
    )
    match role:
        case "source":
            return (output, parallelism)
        case "transform":
            return (output, inputs, parallelism)
        case "sink":
            return (inputs, parallelism)
