"""Declarations of options: which a plugin has, of which kind, and which values are built.

An option is declared once, by its dotted path; `row.num = 5` and `row { num = 5 }` both set it.
A value that SeaTunnel knows and Headrace has not built yet is declared as unsupported, with the
reason, and refused. An option that SeaTunnel's own jobs carry and that has no effect here is
declared as idle: it is accepted with a warning, as is one that nothing declares. So nothing that a
user wrote is silently ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import JsonValue

from headrace.logs import is_secret
from headrace.model.text import hint, nearest
from headrace.plugins.problems import Problems
from headrace.plugins.schema import read_schema
from headrace.plugins.syntax_tree import (
    FilePlace,
    Node,
    Note,
    Object,
    Problem,
    Role,
    Scalar,
    scalars,
)

PARALLELISM_MAX = 10_000  # readers of a source; far above what one job can use


class Kind(StrEnum):
    INT = "a whole number"
    FLOAT = "a number"
    BOOL = "true or false"
    STRING = "a text"
    LIST = "a list"
    MAP = "an object of texts"  # flattened: {a.b = 1} is {"a.b": "1"}
    JSON = "a value"  # any; the plugin reads it
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
    items: Kind = Kind.STRING  # of a LIST: the kind of its items
    vectors: bool = True  # of a SCHEMA: whether vector columns are built
    supported: tuple[JsonValue, ...] | None = None  # None: every value is built
    unsupported: str = "is not built yet"  # why any other value is refused
    idle: str = ""  # why the option has no effect yet; "" means that it has one
    flaw: Callable[[str], str | None] | None = None  # of a STRING: what is wrong with it, or None
    # Regular expressions of the variables that the plugin itself replaces while the job runs, such
    # as `${now}`. Any other variable must have a value when the job file is read.
    placeholders: tuple[str, ...] = ()
    # Of a JSON: raises `Problem` when the value is wrong, and warns of what has no effect in it.
    reader: Callable[[Node, Note], object] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def secret(self) -> bool:
        return self.sensitive or is_secret(self.name)

    def replaces(self, variable: str) -> bool:
        return any(re.fullmatch(pattern, variable) for pattern in self.placeholders)

    def as_json(self) -> dict[str, JsonValue]:
        """What decides which values it takes. Words for people are left out: to mend one changes
        no job."""
        return {
            "name": self.name,
            "kind": self.kind.name,
            "default": self.default,
            "required": self.required,
            "secret": self.secret,
            "choices": [*self.choices],
            "aliases": [*self.aliases],
            "minimum": self.minimum,
            "maximum": self.maximum,
            "items": self.items.name,
            "vectors": self.vectors,
            "supported": None if self.supported is None else [*self.supported],
            "idle": bool(self.idle),
            "placeholders": [*sorted(self.placeholders)],
        }


@dataclass(frozen=True, slots=True)
class OptionSet:
    """Declared options, looked up by dotted path; below a prefix any name is accepted."""

    declared: tuple[Option, ...]
    # By prefix, e.g. "spark.": why the options below it are idle.
    prefixes: Mapping[str, str] = field(default_factory=dict[str, str])
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

    def is_free_form(self, path: str) -> bool:
        return path.startswith(tuple(self.prefixes))

    def why_idle(self, given: GivenOption) -> str:
        """Why the option has no effect yet; "" when it has one."""
        if given.option is not None:
            return given.option.idle
        return next(why for prefix, why in self.prefixes.items() if given.path.startswith(prefix))

    def has_options_below(self, path: str) -> bool:
        """Whether any option is declared below this path."""
        return path in self._branches

    def names(self) -> Iterable[str]:
        return self._by_name


@dataclass(frozen=True, slots=True)
class GivenOption:
    """An option that a block sets, as it was written."""

    option: Option | None  # None: below one of `OptionSet.prefixes`
    path: str
    place: FilePlace  # of its key
    node: Node


@dataclass(frozen=True, slots=True)
class UnknownOption:
    """An option that a block sets and nothing declares."""

    path: str
    place: FilePlace
    near: Option | None  # the declared one that was probably meant
    way_out: str  # names the nearest one, or the known ones


@dataclass(frozen=True, slots=True)
class BlockOptions:
    """What a block sets. One whose variable has no value is in `given`, and not among `usable`."""

    given: tuple[GivenOption, ...]
    usable: tuple[GivenOption, ...]
    unknown: tuple[UnknownOption, ...]

    @property
    def names(self) -> frozenset[str]:
        """The declared names of the options that are set, rightly or not."""
        return frozenset(each.option.name for each in self.given if each.option)


def given_options(
    options: OptionSet, block: Object, *, title: str, problems: Problems
) -> BlockOptions:
    """The options that a block sets. One that is set twice, and a variable without a value, are
    problems; whether an unknown one is a problem is for the caller to decide (`judge_unknown`)."""
    by_name: dict[str, GivenOption] = {}
    usable: list[GivenOption] = []
    unknown: list[UnknownOption] = []
    for given in _walk(options, block, prefix=""):
        if isinstance(given, UnknownOption):
            unknown.append(given)
            continue
        name = given.option.name if given.option else given.path
        before = by_name.setdefault(name, given)
        if before is not given:
            both = f"{before.path!r} and {given.path!r} are the same option of {title}; give one"
            problems.add(Problem(given.place, both))
            continue
        with problems.collect():
            _check_set(given, title=title)
            usable.append(given)
    return BlockOptions(tuple(by_name.values()), tuple(usable), tuple(unknown))


def judge_unknown(
    block: BlockOptions, *, missing: Iterable[str], title: str, problems: Problems
) -> frozenset[str]:
    """Warn of the unknown options of a block. One that is nearly a missing option, which the block
    needs, is a problem instead: it was surely meant. Returns the missing ones that were told so."""
    needed, told = frozenset(missing), set[str]()
    for each in block.unknown:
        if each.near is not None and each.near.name in needed:
            told.add(each.near.name)
            text = f"unknown option {each.path!r} of {title}; {each.way_out} That one is required"
            problems.add(Problem(each.place, f"{text}, and missing"))
        else:
            problems.unknown(each.place, f"option {each.path!r} of {title}", each.way_out)
    return frozenset(told)


def note_idle(options: OptionSet, block: Iterable[GivenOption], *, title: str, note: Note) -> None:
    """Warn of everything in the options of a block that has no effect."""
    for given in block:
        if why := options.why_idle(given):
            note(given.place, f"option {given.path!r} of {title} has no effect yet: {why}")
        if given.option is not None and given.option.reader is not None:
            given.option.reader(given.node, note)
        if given.option is not None and given.option.kind is Kind.SCHEMA:
            read_schema(given.node, note)
        for scalar in scalars(given.node):
            for unset in (unset for unset in scalar.unset if unset.reserved):
                text = (
                    f"option {given.path!r} of {title} keeps ${{{unset.name}}} as it stands: a job"
                )
                note(scalar.place, f"{text} writes one table, and nothing replaces it yet")


def _check_set(given: GivenOption, *, title: str) -> None:
    """Refuse a variable without a value: `${name}` itself would be sent, even as a password."""
    for scalar in scalars(given.node):
        for unset in scalar.unset:
            if given.option is None or not given.option.replaces(unset.name):
                named = f"option {given.path!r} of {title}"
                raise Problem(
                    scalar.place,
                    f"{named}: {unset}",
                    lacks=f"${{{unset.name}}} in {named}" if unset.reserved else "",
                    variable="" if unset.reserved else unset.name,
                )


def _walk(
    options: OptionSet, block: Object, *, prefix: str
) -> Iterator[GivenOption | UnknownOption]:
    for key, place, node in block.walk():
        path = prefix + key
        option = options.find(path)
        if option is not None:
            if not _is_null(node):  # as in HOCON, null means that the option is not set
                yield GivenOption(option, path, place, node)
        elif isinstance(node, Object) and (
            options.has_options_below(path) or options.is_free_form(path + ".")
        ):
            yield from _walk(options, node, prefix=path + ".")
        elif options.is_free_form(path):
            yield GivenOption(None, path, place, node)
        else:
            yield _unknown(options, path, place, node)


def _unknown(options: OptionSet, path: str, place: FilePlace, node: Node) -> UnknownOption:
    """An unknown option, by the whole path or by its beginning, whichever is near a known one:
    `schemaa { fields { … } }` is meant for `schema`, and `Row.Num` for `row.num`."""
    whole = _whole_path(path, node)
    written = next((each for each in (whole, path) if nearest(each, options.names())), whole)
    near = nearest(written, options.names())
    way_out = hint(written, options.names(), noun="options")
    return UnknownOption(written, place, options.find(near) if near else None, way_out)


def _whole_path(path: str, node: Node) -> str:
    """The path as it was probably written: for `Row.Num = 5` the unknown option is `Row.Num`."""
    while isinstance(node, Object) and len(node.members) == 1:
        ((key, node),) = node.members.items()
        path = f"{path}.{key}"
    return path


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def common_options(role: Role) -> tuple[Option, ...]:
    """The options that every plugin of a role has. Those for tables are wired by graph.py, and have
    SeaTunnel's older names as aliases."""
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


def one_table_options() -> tuple[Option, ...]:
    """The options by which SeaTunnel's transforms tell tables apart that come in one flow. A flow
    holds one table here, so only the values that mean all of them are taken."""
    why = "is not built yet: a flow holds one table; give each table a transform of its own"
    return (
        Option("table_match_regex", Kind.STRING, ".*", supported=(".*",), unsupported=why),
        Option("table_transform", Kind.JSON, supported=(), unsupported=why),
        Option(
            "rule_match_mode",
            Kind.STRING,
            "FIRST_MATCH",
            choices=("FIRST_MATCH", "ALL_MATCH"),
            supported=("FIRST_MATCH",),
            unsupported=why,
        ),
    )
