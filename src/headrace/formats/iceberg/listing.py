"""All tables of a catalog, namespace by namespace, through Iceberg's own API.

Names come in a few JVM calls for each namespace, however many tables it has. A namespace that can't
be listed is told and stops no other: it may be closed to us, or broken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.formats.iceberg.bulk import ask_each
from headrace.formats.iceberg.catalogs import CatalogConfig, open_catalog
from headrace.formats.iceberg.jvm import (
    JAVA_ERRORS,
    JavaError,
    java_classes,
    java_message,
    jvm,
    string_array,
)
from headrace.formats.iceberg.records import Heard, unheard

NAMESPACE_DEPTH_MAX = 8  # levels
NAMESPACES_MAX = 20_000

Namespace = tuple[str, ...]

_NAME = ("org.apache.iceberg.catalog.TableIdentifier", "name")
_LEVELS = ("org.apache.iceberg.catalog.Namespace", "levels")
_NAMESPACES = "org.apache.iceberg.catalog.SupportsNamespaces"


@dataclass(frozen=True, slots=True)
class Listed:
    tables: Mapping[Namespace, Sequence[str]]  # wanted ones, of every namespace that was listed
    others: int = 0  # tables that nobody wants
    failed: Mapping[Namespace, str] = field(default_factory=dict[Namespace, str])


def list_namespaces(
    session: SparkSession, config: CatalogConfig, parent: Namespace = ()
) -> Sequence[Namespace]:
    """The namespaces right below another; at the root of the catalog without one."""
    catalog = open_catalog(session, config)
    if not jvm(session).java.lang.Class.forName(_NAMESPACES).isInstance(catalog):
        raise Refused(
            f"catalog {config.name!r} does not list its namespaces, so its tables can't be found; "
            "use one of Iceberg's own catalogs"
        )
    found = catalog.listNamespaces(_namespace(session, parent))
    levels: list[Sequence[str]] = ask_each(session, _list(session, found), _LEVELS)
    return sorted(tuple(each) for each in levels)


def list_tables(
    session: SparkSession,
    config: CatalogConfig,
    *,
    wanted: Callable[[Namespace, str], bool],
    tables_max: int,
    heard: Heard = unheard,
) -> Listed:
    """The wanted tables of the catalog, by namespace; Java's error when its root can't be listed.

    `Refused` when there are more than `tables_max` of them.
    """
    tables: dict[Namespace, Sequence[str]] = {}
    failed: dict[Namespace, str] = {}
    left = list(reversed(list_namespaces(session, config)))
    seen, count, others = len(left), 0, 0
    while left:
        heard()
        here = left.pop()
        try:
            names = _tables(session, config, here)
            below = _below(session, config, here)
        except JAVA_ERRORS as error:
            if not _is_gone(error):
                failed[here] = f"{java_classes(error)[0]}: {java_message(error)}"
            continue
        tables[here] = [name for name in names if wanted(here, name)]
        others += len(names) - len(tables[here])
        seen, count = seen + len(below), count + len(tables[here])
        _check_few(config, seen, count, tables_max)
        left.extend(reversed(below))
    return Listed(tables, others, failed)


def _tables(session: SparkSession, config: CatalogConfig, here: Namespace) -> Sequence[str]:
    found = open_catalog(session, config).listTables(_namespace(session, here))
    return sorted(ask_each(session, _list(session, found), _NAME))


def _below(session: SparkSession, config: CatalogConfig, here: Namespace) -> Sequence[Namespace]:
    """Of a catalog whose namespaces have one level: none, whatever it says to the question."""
    if len(here) >= NAMESPACE_DEPTH_MAX:
        return ()
    try:
        below = list_namespaces(session, config, here)
    except JAVA_ERRORS as error:
        if not _is_flat(error):
            raise
        return ()
    return [each for each in below if each[: len(here)] == here and len(each) > len(here)]


def _is_gone(error: JavaError) -> bool:
    """Dropped since it was listed: its tables are no more."""
    return "NoSuchNamespaceException" in java_classes(error)


def _is_flat(error: JavaError) -> bool:
    flat = {"UnsupportedOperationException", "NoSuchNamespaceException", "ValidationException"}
    return not flat.isdisjoint(java_classes(error)[:1])


def _check_few(config: CatalogConfig, namespaces: int, tables: int, tables_max: int) -> None:
    for what, count, most in (
        ("namespaces", namespaces, NAMESPACES_MAX),
        ("tables", tables, tables_max),
    ):
        if count > most:
            raise Refused(
                f"catalog {config.name!r} has more than {most} {what}, too many to look after; "
                f"let a filter choose some: `headrace catalog set {config.name} --filter REGEX`"
            )


def _namespace(session: SparkSession, levels: Namespace) -> Any:
    java = jvm(session)
    return java.org.apache.iceberg.catalog.Namespace.of(string_array(session, *levels))


def _list(session: SparkSession, found: Any) -> Any:
    return jvm(session).java.util.ArrayList(found)
