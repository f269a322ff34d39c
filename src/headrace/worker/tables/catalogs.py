"""How a worker opens a catalog, lists its tables, and explains errors of the catalog.

A task that fails must say whose fault it is: an unavailable catalog is no table's, and a table with
broken metadata is not the catalog's. So after an error the catalog is asked something else, to see
whether it answers at all (`trouble_with`).

`TableWork` is the context of one table task: its execution, Spark session, clock and catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import HeadraceError, Refused, Unavailable
from headrace.lake.iceberg.catalogs import (
    CatalogConfig,
    Namespace,
    TableMissing,
    TableRef,
    embedded_catalog,
    list_namespaces,
    list_tables,
    load_table,
)
from headrace.lake.iceberg.token import ProcessAt
from headrace.model.jobs.spec import REDACTED
from headrace.protocol.tables import (
    TABLES_PER_CATALOG_MAX,
    Discovered,
    DiscoverPayload,
    OfCatalog,
    ProcessRef,
    TableIdentifier,
)
from headrace.spark.jvm import (
    JAVA_ERRORS,
    JavaError,
    java_classes,
    java_message,
    refused_or_unavailable,
)
from headrace.worker.execution import Execution
from headrace.worker.outbox import redacted, secrets_of

EMBEDDED_TYPE = "embedded"
TYPES = ("jdbc", "rest", "hive", "glue", "hadoop")  # Iceberg uses the same names
FILTER_CHARACTERS_MAX = 500  # a longer pattern may take for ever; the command refuses it too
_LEVEL = "\x1f"  # separates the levels of a namespace, as in Iceberg's REST protocol
_HADOOP = "hadoop."  # prefix of properties for Hadoop rather than the catalog
_IMPLEMENTATION = "catalog-impl"

# With these errors a catalog has answered; it only does not show its namespaces.
_CLOSED = frozenset(
    {"AccessControlException", "ForbiddenException", "UnsupportedOperationException"}
)
_DENIED = _CLOSED | {"AccessDeniedException", "NotAuthorizedException"}
_MISSING = frozenset({"FileNotFoundException", "NotFoundException", "NoSuchFileException"})


@dataclass(frozen=True, slots=True)
class TableWork:
    """The context of one table task."""

    execution: Execution
    session: SparkSession
    clock: Clock
    catalog: CatalogConfig

    def note_progress(self) -> None:
        """Note a sign of life, which the leader gets: it ends executions without any. Raises if
        this execution is to stop."""
        self.execution.touch()
        self.execution.check()

    def begin_step(self, step: str) -> None:
        self.execution.check()
        self.execution.set_progress(step)

    def safe(self, text: str) -> str:
        """Text from elsewhere without the catalog's secrets: results are shown to people."""
        return redacted(text, secrets_of(self.execution.assignment.payload))

    def ref(self, table: TableIdentifier) -> TableRef:
        return TableRef(self.catalog, table.namespace, table.name)

    def at(self, process: ProcessRef) -> ProcessAt:
        execution = self.execution
        return ProcessAt(process.owner, process.number, execution.id, execution.since)

    def is_there(self, ref: TableRef, process: ProcessRef) -> bool:
        """Whether the very table that was planned is there, not another of the same name."""
        try:
            return str(load_table(self.session, ref).uuid()) == process.uuid
        except TableMissing:
            return False

    def check_there(self, ref: TableRef, process: ProcessRef) -> None:
        if not self.is_there(ref, process):
            raise Refused(
                f"{ref} was dropped, or made anew, since process {process.id} planned it; nothing "
                "is left to do for this process"
            )


def config_of(payload: OfCatalog, warehouse: str) -> CatalogConfig:
    """How Iceberg opens the catalog, with secrets put back into the properties."""
    spec = payload.catalog
    if spec.type == EMBEDDED_TYPE:
        return replace(embedded_catalog(warehouse), set_by="--warehouse of this worker")
    if spec.type not in TYPES:
        raise Refused(
            f"catalog {spec.name!r} is of type {spec.type!r}, which this worker does not know; "
            f"expected one of {', '.join(TYPES)}; remove it and add it anew, or update the worker"
        )
    properties = _with_secrets(payload)
    own = {key: value for key, value in properties.items() if not key.startswith(_HADOOP)}
    if _IMPLEMENTATION not in own:  # Iceberg accepts only one of the two
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


def _with_secrets(payload: OfCatalog) -> dict[str, str]:
    name = payload.catalog.name
    secrets = {key.removeprefix(f"{name}."): str(value) for key, value in payload.secrets.items()}
    properties = {**payload.catalog.properties, **secrets}
    for key, value in properties.items():
        if value == REDACTED:
            raise Refused(
                f"property {key!r} of catalog {name!r} is redacted, and its value is not known; "
                f"give it again: `headrace catalog set {name} --property {key}=…`"
            )
    return properties


def discover(work: TableWork, payload: DiscoverPayload) -> Discovered:
    """List the tables of a catalog that match its filter."""
    work.begin_step(f"listing the tables of {work.catalog.name}")
    listed = list_tables(
        work.session,
        work.catalog,
        wanted=_wanted(payload),
        tables_max=TABLES_PER_CATALOG_MAX,
        on_progress=work.note_progress,
    )
    return Discovered(
        tables={_LEVEL.join(here): tuple(names) for here, names in listed.tables.items()},
        filtered=listed.others,
        failed={_LEVEL.join(here): work.safe(why) for here, why in listed.failed.items()},
    )


def _wanted(payload: DiscoverPayload) -> Callable[[Namespace, str], bool]:
    """A predicate for tables that pass the filter, which must match all of `namespace.table`."""
    text = payload.table_filter
    if text is None:
        return lambda _here, _name: True
    if len(text) > FILTER_CHARACTERS_MAX:
        raise _bad(
            payload, f"has {len(text)} characters, and {FILTER_CHARACTERS_MAX} are the limit"
        )
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise _bad(payload, f"is {text!r}, which is no regular expression: {error}") from None
    return lambda here, name: pattern.fullmatch(".".join((*here, name))) is not None


def _bad(payload: DiscoverPayload, problem: str) -> Refused:
    name = payload.catalog.name
    return Refused(
        f"the filter of catalog {name!r} {problem}; expected one for `namespace.table`, such as "
        f"sales\\..*: `headrace catalog set {name} --filter REGEX`"
    )


def trouble_with(session: SparkSession, config: CatalogConfig) -> Refused | Unavailable | None:
    """What is wrong with the catalog itself; None when it answers."""
    try:
        list_namespaces(session, config)
    except (Refused, Unavailable) as error:
        return error
    except JAVA_ERRORS as error:
        if not _CLOSED.isdisjoint(java_classes(error)):
            return None
        return refused_or_unavailable(
            error,
            f"catalog {config.name!r} does not answer: {_line(error)}; expected it to list its "
            f"namespaces. See that it is up and reached from this worker, and check "
            f"{config.set_by}",
        )
    return None


def explained(
    session: SparkSession, config: CatalogConfig, error: JavaError, what: str
) -> HeadraceError:
    """The error to raise for a Java error during `what`."""
    trouble = trouble_with(session, config)
    return trouble or refused_or_unavailable(error, f"{what}: {_line(error)}")


def unreadable(ref: TableRef, error: Exception) -> str:
    """Why a table could not be evaluated while its catalog answers, and what helps."""
    if isinstance(error, HeadraceError):
        return str(error)
    if not isinstance(error, JAVA_ERRORS):
        text = f"{type(error).__name__}: {error}"
        return f"{ref} can't be read: {text}; its metadata is damaged: restore or drop the table"
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
