"""Which plugins there are, found by role and name, whatever the case of the name."""

from __future__ import annotations

from headrace.jobfile.known import SEATUNNEL
from headrace.jobfile.nodes import ROLES, Place, Problem, Role
from headrace.jobfile.options import PluginDecl
from headrace.jobfile.plugins.assert_ import ASSERT
from headrace.jobfile.plugins.console import CONSOLE
from headrace.jobfile.plugins.fake import FAKE_SOURCE
from headrace.jobfile.plugins.fields import FIELD_MAPPER, FILTER
from headrace.jobfile.plugins.files import (
    HDFS_FILE_SINK,
    HDFS_FILE_SOURCE,
    LOCAL_FILE_SINK,
    LOCAL_FILE_SOURCE,
)
from headrace.jobfile.plugins.iceberg import ICEBERG_SINK, ICEBERG_SOURCE
from headrace.jobfile.plugins.inmemory import IN_MEMORY
from headrace.jobfile.plugins.jdbc import JDBC_SINK, JDBC_SOURCE
from headrace.jobfile.plugins.sql import SQL
from headrace.jobfile.suggest import hint

DECLARED: tuple[PluginDecl, ...] = (
    FAKE_SOURCE,
    ICEBERG_SOURCE,
    JDBC_SOURCE,
    LOCAL_FILE_SOURCE,
    HDFS_FILE_SOURCE,
    FIELD_MAPPER,
    FILTER,
    SQL,
    ASSERT,
    CONSOLE,
    ICEBERG_SINK,
    JDBC_SINK,
    LOCAL_FILE_SINK,
    HDFS_FILE_SINK,
    IN_MEMORY,
)

_BY_ROLE: dict[Role, dict[str, PluginDecl]] = {
    role: {decl.name.lower(): decl for decl in DECLARED if decl.role == role} for role in ROLES
}


def declared(role: Role) -> list[str]:
    return [decl.name for decl in _BY_ROLE[role].values()]


def declaration(role: Role, name: str) -> PluginDecl | None:
    return _BY_ROLE[role].get(name.lower())


def find_plugin(role: Role, name: str, place: Place) -> PluginDecl:
    """The declaration of a plugin. Raises `Problem`, which names the nearest one."""
    decl = declaration(role, name)
    if decl is not None:
        return decl
    built = ", ".join(declared(role))
    if any(name.lower() == known.lower() for known in SEATUNNEL[role]):
        raise Problem(place, f"{role} {name} is not built yet; built so far: {built}")
    for other in ROLES:
        if name.lower() in _BY_ROLE[other]:
            raise Problem(place, f"{_BY_ROLE[other][name.lower()].name} is a {other}, not a {role}")
    known = hint(name, declared(role), noun=f"{role}s")
    raise Problem(place, f"there is no {role} {name!r}; {known}")
