"""The containers that are configured, by name: from containers.conf, of the kinds installed here.

    containers {
      on-yarn { type = spark, properties { master = yarn, spark-conf.spark.executor.memory = 4g } }
    }

`local` and `external` exist without a file, and may be given properties in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from headrace.config import Settings, variables
from headrace.containers.container import NAME, NAME_RULE, ContainerSetting, WorkerContainer
from headrace.containers.kinds import installed_kinds
from headrace.errors import BadSetting, NotFound
from headrace.jobfile.hocon import Document, read_document
from headrace.jobfile.variables import substitute
from headrace.model.text import hint
from headrace.plugins.syntax_tree import (
    Array,
    Concatenation,
    FilePlace,
    Node,
    Object,
    Problem,
    Reference,
    Scalar,
    describe,
)

FILE = "containers.conf"  # in the home, unless HEADRACE_CONTAINERS names another
FILE_BYTES_MAX = 1_000_000
ALWAYS = ("local", "external")  # exist without a file; name and kind are the same
Entry = tuple[str, str, Mapping[str, str], FilePlace]  # name, kind, properties, place


class Containers:
    """The configured containers, by name."""

    def __init__(self, by_name: Mapping[str, WorkerContainer], *, place: str) -> None:
        self._by_name = by_name
        self._place = place

    @property
    def names(self) -> list[str]:
        return sorted(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> WorkerContainer:
        """Raises NotFound for a container that is not, or no longer, configured (R7)."""
        container = self._by_name.get(name)
        if container is None:
            way_out = f"{hint(name, self.names, noun='containers')}; add it to {self._place}"
            raise NotFound("container", name, way_out=way_out)
        return container


def configured(settings: Settings, *, token: str | None) -> Containers:
    """Read the configuration. `token`: the one that workers have to present."""
    path = settings.containers or settings.home / FILE
    written = (
        _read(path) if settings.containers is not None or path.exists() else Object(FilePlace(1, 1))
    )
    kinds = installed_kinds()
    try:
        entries = list(_entries(written, kinds.names))
    except Problem as problem:
        raise _setting_error(path, problem) from None
    entries += _unconfigured({name for name, _, _, _ in entries})
    return Containers(
        {
            name: kinds.make(
                kind,
                ContainerSetting(name, properties, f"{path}:{place.line}", settings.home, token),
            )
            for name, kind, properties, place in entries
        },
        place=str(path),
    )


def _unconfigured(written: Collection[str]) -> Iterator[Entry]:
    for name in ALWAYS:
        if name not in written:
            yield name, name, {}, FilePlace(1, 1)


def _entries(root: Object, kinds: Sequence[str]) -> Iterator[Entry]:
    for name, place, node in root.walk():
        title = f"container {name!r}"
        if NAME.fullmatch(name) is None:
            raise Problem(place, f"{title} can not be used as a name; expected {NAME_RULE}")
        block = _block(node, title)
        for key, where, _ in block.walk():
            if key not in {"type", "properties"}:
                raise Problem(where, f"unknown key {key!r} in {title}; known: type, properties")
        properties = block.members.get("properties", Object(place))
        flat = dict(_flat(_block(properties, f"properties of {title}"), "", title))
        yield name, _kind(name, block, place, kinds), flat, place


def _kind(name: str, block: Object, place: FilePlace, known: Sequence[str]) -> str:
    node = block.members.get("type")
    if node is None:
        raise Problem(place, f"container {name!r} has no type; expected one of {', '.join(known)}")
    kind = node.text if isinstance(node, Scalar) else None
    if kind is None or kind not in known:
        raise Problem(
            node.place,
            f"container {name!r} is of type {describe(node)}, which does not exist; "
            f"expected one of {', '.join(known)}. A kind that comes with a package of its own has "
            "to be installed at every coordinator",
        )
    if name in ALWAYS and kind != name:
        raise Problem(
            node.place,
            f"container {name!r} is always of type {name}, and not {kind}; give yours another name",
        )
    return kind


def _block(node: Node, title: str) -> Object:
    if not isinstance(node, Object):
        raise Problem(node.place, f"{title} must be an object {{ … }}, and is {describe(node)}")
    return node


def _flat(block: Object, prefix: str, title: str) -> Iterator[tuple[str, str]]:
    """Properties by dotted name: HOCON reads `spark-conf.spark.executor.memory = 4g` as nested
    objects."""
    for key, _, node in block.walk():
        match node:
            case Object():
                yield from _flat(node, f"{prefix}{key}.", title)
            case Scalar(value=None):
                continue
            case Scalar():
                yield prefix + key, _with_value(node, prefix + key, title)
            case Array() | Reference() | Concatenation():
                text = f"property {prefix + key!r} of {title} must be a text, and is"
                raise Problem(node.place, f"{text} {describe(node)}")


def _with_value(node: Scalar, name: str, title: str) -> str:
    for unset in node.unset:
        raise Problem(
            node.place,
            f"property {name!r} of {title} needs variable {unset.name!r}, which has no value; set "
            "it in the environment",
        )
    return node.text


def _read(path: Path) -> Object:
    """The block `containers` of the file, with environment variables substituted."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadSetting(
            f"{path} can not be read: {reason}; HEADRACE_CONTAINERS names the file of containers"
        ) from error
    if len(data) > FILE_BYTES_MAX:
        raise BadSetting(f"{path} can not be read: it is larger than {FILE_BYTES_MAX} bytes")
    try:
        document, _ = substitute(read_document(text), variables={}, environment=variables())
        return _root(document)
    except Problem as problem:
        raise _setting_error(path, problem) from None


def _root(document: Document) -> Object:
    containers = document.root.members.get("containers")
    if document.plugins or len(document.root.members) > 1 or containers is None:
        raise Problem(document.root.place, "expected one block, `containers { NAME { … } }`")
    return _block(containers, "containers")


def _setting_error(path: Path, problem: Problem) -> BadSetting:
    return BadSetting(f"{path}:{problem.place.line}:{problem.place.column}: {problem.text}")
