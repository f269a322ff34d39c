"""The plug-ins that are installed here, found by entry points.

A package offers its plug-ins under the group `headrace.connectors` or `headrace.transforms`, each
entry point naming a `Descriptor` or a tuple of them. Headrace's own come through the same door, so
that nothing has to know them by name. The packages are looked at once, when the first plug-in is
asked for; a package that is installed later is seen after a restart.

One package breaks no other: an entry point that can't be loaded is listed with the reason, and
whoever uses its plug-in is told. When two packages declare a plug-in of the same name, neither is
used: which one a job means must not depend on the order of a path. One descriptor that is declared
twice is one plug-in, as when pip left behind the metadata of another version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from pydantic import JsonValue

from headrace.model.jobs.spec import JobSpec, PipelineSpec
from headrace.plugins.descriptor import AnyDescriptor, Descriptor
from headrace.plugins.entry_points import distinct, package_of, reason_of, title_of, version_of
from headrace.plugins.save_modes import SaveModes
from headrace.plugins.syntax_tree import ROLES, Role

log = logging.getLogger(__name__)

# By group of entry points: the roles that its plug-ins may have.
GROUPS: Mapping[str, tuple[Role, ...]] = {
    "headrace.connectors": ("source", "sink"),
    "headrace.transforms": ("transform",),
}
INSTALL = (
    "If it comes with a package of its own, type `pip install PACKAGE` where the job file is read, "
    "at every coordinator and at every worker, and restart them"
)
NOTHING_INSTALLED = (
    "No plug-in is found here at all, not even those of headrace: it was installed without its "
    "entry points; type `pip install --force-reinstall --no-deps headrace`"
)


@dataclass(frozen=True, slots=True)
class BrokenEntryPoint:
    """An entry point whose descriptors can't be read."""

    name: str
    package: str
    version: str
    reason: str

    def __str__(self) -> str:
        package = title_of(self.package, self.version)
        return f"plug-in {self.name!r} of package {package} can't be loaded: {self.reason}"


@dataclass(frozen=True, slots=True)
class NameConflict:
    """A plug-in that several packages declare."""

    role: Role
    name: str
    packages: tuple[str, ...]  # with their versions

    def __str__(self) -> str:
        return (
            f"{self.role} {self.name} is declared by {len(self.packages)} packages, "
            f"{' and '.join(self.packages)}; uninstall all of them but one, and restart"
        )


@dataclass(frozen=True, slots=True)
class PluginCatalog:
    """The plug-ins that can be used, by role and name, and why others can't."""

    descriptors: tuple[AnyDescriptor, ...]
    broken: tuple[BrokenEntryPoint, ...] = ()
    conflicts: tuple[NameConflict, ...] = ()
    _found: Mapping[tuple[Role, str], AnyDescriptor] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = {(each.role, each.name.lower()): each for each in self.descriptors}
        object.__setattr__(self, "_found", found)

    def find(self, role: Role, name: str) -> AnyDescriptor | None:
        """The descriptor of a plug-in, whatever the case of its name; None when it is missing."""
        return self._found.get((role, name.lower()))

    def names(self, role: Role) -> list[str]:
        return [each.name for each in self.descriptors if each.role == role]

    def obstacle(self, role: Role, name: str) -> str | None:
        """Why a plug-in that is installed can't be used, and the way out; None: it is not."""
        for conflict in self.conflicts:
            if (conflict.role, conflict.name.lower()) == (role, name.lower()):
                return str(conflict)
        for broken in self.broken:
            if broken.name.lower() == name.lower():
                return f"{broken}; install it again, with what it needs, and restart"
        return None

    def way_to_install(self) -> str:
        """What to do about a name that nobody declares, as whole sentences."""
        if not self.descriptors and not self.broken:
            return NOTHING_INSTALLED
        unread = "".join(f" {each}." for each in self.broken)
        return f"{INSTALL}.{unread}"


@cache
def catalog() -> PluginCatalog:
    """What is installed here, looked up once for each process."""
    return read_catalog(each for group in GROUPS for each in entry_points(group=group))


def installed() -> tuple[AnyDescriptor, ...]:
    """The descriptors of all plug-ins that can be used here, sorted by role and name."""
    return catalog().descriptors


def needed_by(spec: JobSpec | PipelineSpec) -> frozenset[tuple[Role, str]]:
    """The plug-ins that a job or a pipeline needs, by role and name."""
    pipelines = spec.pipelines if isinstance(spec, JobSpec) else (spec,)
    needed: set[tuple[Role, str]] = set()
    for pipeline in pipelines:
        needed |= {("source", each.plugin) for each in pipeline.sources}
        needed |= {("transform", each.plugin) for each in pipeline.transforms}
        needed |= {("sink", each.plugin) for each in pipeline.sinks}
    return frozenset(needed)


def save_modes_of(sink: str, options: Mapping[str, JsonValue]) -> SaveModes | None:
    """The save modes of a sink with these options; None: it has none, or is missing here."""
    descriptor = catalog().find("sink", sink)
    return None if descriptor is None else descriptor.save_modes_of(options)


def opens(pipeline: PipelineSpec) -> bool:
    """Whether a sink of the pipeline does something before the first row, which is epoch 0."""
    modes = (save_modes_of(sink.plugin, sink.options) for sink in pipeline.sinks)
    return any(each is not None and each.opens for each in modes)


def read_catalog(points: Iterable[EntryPoint]) -> PluginCatalog:
    """The catalog that these entry points make."""
    found: dict[tuple[Role, str], dict[int, AnyDescriptor]] = {}  # inside, by what was loaded
    broken: list[BrokenEntryPoint] = []
    for point in distinct(points):
        try:
            for loaded, descriptor in _descriptors(point):
                declared = found.setdefault((descriptor.role, descriptor.name.lower()), {})
                declared.setdefault(id(loaded), descriptor)
        except KeyboardInterrupt:
            raise  # a person's wish to end, and nothing of the package's
        except BaseException as error:  # noqa: BLE001  a package may even exit when it is imported
            package, version = package_of(point), version_of(point)
            reason = reason_of(error)
            facts = {"plugin": point.name, "package": package, "reason": reason}
            log.warning("plug-in not loaded", extra=facts)
            broken.append(BrokenEntryPoint(point.name, package, version, reason))
    usable = [one for (one, *others) in (each.values() for each in found.values()) if not others]
    return PluginCatalog(
        tuple(sorted(usable, key=lambda each: (ROLES.index(each.role), each.name.lower()))),
        tuple(broken),
        tuple(_conflicts(found)),
    )


def _descriptors(point: EntryPoint) -> Iterator[tuple[object, AnyDescriptor]]:
    """The descriptors that an entry point names, as they are and with the package that brings
    them."""
    loaded: Any = point.load()
    for each in cast("Sequence[object]", loaded if isinstance(loaded, tuple) else (loaded,)):
        if not isinstance(each, Descriptor):
            raise TypeError(f"{point.value} must be a Descriptor, or a tuple of them")
        descriptor = cast("AnyDescriptor", each)
        if descriptor.role not in GROUPS[point.group]:
            raise TypeError(f"{point.value}: a {descriptor.role} does not belong to {point.group}")
        package, version = package_of(point), version_of(point)
        yield (
            each,
            replace(
                descriptor,
                package=descriptor.package or package,
                version=descriptor.version or version,
            ),
        )


def _conflicts(
    found: Mapping[tuple[Role, str], Mapping[int, AnyDescriptor]],
) -> Iterator[NameConflict]:
    for role, name in sorted(found):
        declared = tuple(found[role, name].values())
        if len(declared) > 1:
            packages = tuple(each.brought_by for each in declared)
            yield NameConflict(role, declared[0].name, packages)
