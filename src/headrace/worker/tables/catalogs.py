"""How a worker reaches a catalog, and what to say when it does not.

A task that fails must tell whose fault it is: a catalog that is away is no table's, and a table
with broken metadata is not the catalog's. So after an error the catalog is asked something else.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, Refused, Unavailable
from headrace.formats.iceberg.catalogs import CatalogConfig, TableRef, embedded_catalog
from headrace.formats.iceberg.jvm import (
    JAVA_ERRORS,
    JavaError,
    java_classes,
    java_message,
    not_granted,
)
from headrace.formats.iceberg.listing import list_namespaces
from headrace.model.jobspec import REDACTED
from headrace.protocol.tables import OfCatalog

EMBEDDED_TYPE = "embedded"
TYPES = ("jdbc", "rest", "hive", "glue", "hadoop")  # Iceberg knows each by the same word
_HADOOP = "hadoop."  # properties that are Hadoop's, not the catalog's
_IMPLEMENTATION = "catalog-impl"

# A catalog that says this has been reached, and only does not show its namespaces.
_CLOSED = frozenset(
    {"AccessControlException", "ForbiddenException", "UnsupportedOperationException"}
)
_DENIED = _CLOSED | {"AccessDeniedException", "NotAuthorizedException"}
_MISSING = frozenset({"FileNotFoundException", "NotFoundException", "NoSuchFileException"})


def config_of(told: OfCatalog, warehouse: str) -> CatalogConfig:
    """How Iceberg opens the catalog, secrets put back in their places."""
    spec = told.catalog
    if spec.type == EMBEDDED_TYPE:
        return replace(embedded_catalog(warehouse), set_by="--warehouse of this worker")
    if spec.type not in TYPES:
        raise Refused(
            f"catalog {spec.name!r} is of type {spec.type!r}, which this worker does not know; "
            f"expected one of {', '.join(TYPES)}; remove it and add it anew, or update the worker"
        )
    properties = _with_secrets(told)
    own = {key: value for key, value in properties.items() if not key.startswith(_HADOOP)}
    if _IMPLEMENTATION not in own:  # Iceberg takes one of both
        own["type"] = spec.type
    return CatalogConfig(
        spec.name,
        own,
        {
            key.removeprefix(_HADOOP): value
            for key, value in properties.items()
            if key.startswith(_HADOOP)
        },
        set_by=f"its type and properties (`headrace catalog show {spec.name}`)",
    )


def _with_secrets(told: OfCatalog) -> dict[str, str]:
    name = told.catalog.name
    secrets = {key.removeprefix(f"{name}."): str(value) for key, value in told.secrets.items()}
    properties = {**told.catalog.properties, **secrets}
    for key, value in properties.items():
        if value == REDACTED:
            raise Refused(
                f"property {key!r} of catalog {name!r} is redacted, and its value is not known; "
                f"give it again: `headrace catalog set {name} --property {key}=…`"
            )
    return properties


def trouble_with(session: SparkSession, config: CatalogConfig) -> Refused | Unavailable | None:
    """What is wrong with the catalog itself; None when it answers."""
    try:
        list_namespaces(session, config)
    except (Refused, Unavailable) as error:
        return error
    except JAVA_ERRORS as error:
        if not _CLOSED.isdisjoint(java_classes(error)):
            return None
        return not_granted(
            error,
            f"catalog {config.name!r} does not answer: {_line(error)}; expected it to list its "
            f"namespaces. See that it is up and reached from this worker, and check "
            f"{config.set_by}",
        )
    return None


def explained(
    session: SparkSession, config: CatalogConfig, error: JavaError, what: str
) -> HeadraceError:
    """The error to raise for one of Java's, in the middle of `what`."""
    trouble = trouble_with(session, config)
    return trouble or not_granted(error, f"{what}: {_line(error)}")


def unreadable(ref: TableRef, error: Exception) -> str:
    """Why a table could not be looked at, while its catalog answers; and what helps."""
    if isinstance(error, HeadraceError):
        return str(error)
    if not isinstance(error, JAVA_ERRORS):
        said = f"{type(error).__name__}: {error}"
        return f"{ref} can't be read: {said}; its metadata is damaged: restore or drop the table"
    classes = set(java_classes(error))
    if not _DENIED.isdisjoint(classes):
        way_out = "this worker may not read it: grant it, or leave the table out with a filter"
    elif not _MISSING.isdisjoint(classes):
        way_out = "a file of its metadata is missing: restore it, or drop the table"
    else:
        way_out = "its metadata may be damaged: restore it, or drop the table"
    return f"{ref} can't be read: {_line(error)}; {way_out}"


def _line(error: JavaError) -> str:
    return f"{java_classes(error)[0]}: {java_message(error)}"
