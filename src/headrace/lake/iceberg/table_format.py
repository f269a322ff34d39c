"""Iceberg as a table format: each step of a worker's table tasks, done by the module it is in.

`JavaErrorReader` reads what Iceberg and Spark raise in their JVM: whose fault it is, what helps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import Refused, Unavailable
from headrace.lake.catalog import CatalogConfig, Namespace, OnProgress, TableListing, TableRef
from headrace.lake.iceberg import catalogs, commit, file_records, replace, rewrite, scan, token
from headrace.lake.iceberg.catalogs import EMBEDDED_TYPE, TYPES
from headrace.lake.iceberg.file_records import Inputs, Rewritten
from headrace.lake.iceberg.replace_conflicts import BinGroup
from headrace.lake.iceberg.token import ProcessAt, SpentAtTable
from headrace.lake.table_format import Probe, ProcessExecution, ProcessSpent, Replaced
from headrace.model.tables.files import TableFiles
from headrace.spark.jvm_bridge import (
    JAVA_ERRORS,
    JavaError,
    java_classes,
    java_message,
    java_messages,
    refused_or_unavailable,
)

# With these errors a catalog has answered; it only does not show its namespaces.
_CLOSED = frozenset(
    {"AccessControlException", "ForbiddenException", "UnsupportedOperationException"}
)
_DENIED = _CLOSED | {"AccessDeniedException", "NotAuthorizedException"}
_MISSING = frozenset({"FileNotFoundException", "NotFoundException", "NoSuchFileException"})
# Spark reports an executor's error as text: `Lost task 0.2 in stage 7.0 (…): CLASS: MESSAGE`.
_LOST_TASK = re.compile(r"Lost task [^\n]*?\): (?P<error>[^\n]+)")


class JavaErrorReader:
    """The `FormatErrors` of a format whose library lives in the JVM."""

    types: tuple[type[Exception], ...] = JAVA_ERRORS

    def translated(self, error: Exception, message: str) -> Refused | Unavailable:
        return refused_or_unavailable(_java(error), message)

    def is_closed(self, error: Exception) -> bool:
        return not _CLOSED.isdisjoint(java_classes(_java(error)))

    def line(self, error: Exception) -> str:
        return f"{java_classes(_java(error))[0]}: {java_message(_java(error))}"

    def cause(self, error: Exception) -> str:
        text = java_messages(_java(error))
        lost = _LOST_TASK.search(text)
        return lost["error"] if lost else text.strip().splitlines()[-1]

    def messages(self, error: Exception) -> str:
        return java_messages(_java(error))

    def way_out(self, error: Exception) -> str:
        classes = set(java_classes(_java(error)))
        if not _DENIED.isdisjoint(classes):
            return "this worker may not read it: grant it, or leave the table out with a filter"
        if not _MISSING.isdisjoint(classes):
            return "a file of its metadata is missing: restore it, or drop the table"
        return "its metadata may be damaged: restore it, or drop the table"


class IcebergFormat:
    """The `TableFormat` of Iceberg tables, in any catalog that Iceberg's own library opens."""

    catalog_types: Collection[str] = (EMBEDDED_TYPE, *TYPES)
    errors = JavaErrorReader()

    def catalog_config(
        self, name: str, kind: str, properties: Mapping[str, str], *, warehouse: str
    ) -> CatalogConfig:
        return catalogs.catalog_config(name, kind, properties, warehouse=warehouse)

    def list_namespaces(self, session: SparkSession, catalog: CatalogConfig) -> Sequence[Namespace]:
        return catalogs.list_namespaces(session, catalog)

    def list_tables(
        self,
        session: SparkSession,
        catalog: CatalogConfig,
        *,
        wanted: Callable[[Namespace, str], bool],
        tables_max: int,
        on_progress: OnProgress,
    ) -> TableListing:
        return catalogs.list_tables(
            session, catalog, wanted=wanted, tables_max=tables_max, on_progress=on_progress
        )

    def uuid(self, session: SparkSession, ref: TableRef) -> str:
        return str(catalogs.load_table(session, ref).uuid())

    def probe(self, session: SparkSession, ref: TableRef) -> Probe:
        return scan.probe(session, ref)

    def spent_number(self, seen: Probe, owner: str) -> int:
        return token.spent_number(seen.properties, owner)

    def scan(
        self,
        session: SparkSession,
        ref: TableRef,
        *,
        filter: str | None,  # noqa: A002 - the property's name
        on_progress: OnProgress,
    ) -> TableFiles:
        return scan.scan(session, ref, filter=filter, on_progress=on_progress)

    def choose(
        self,
        session: SparkSession,
        ref: TableRef,
        *,
        snapshot: int,
        bins: Mapping[int, Sequence[str]],
        on_progress: OnProgress,
    ) -> Sequence[Inputs]:
        chosen = file_records.choose(
            session, ref, snapshot=snapshot, bins=list(bins.values()), on_progress=on_progress
        )
        return [
            inputs.model_copy(update={"number": number})
            for number, inputs in zip(bins, chosen, strict=True)
        ]

    def rewrite(
        self,
        session: SparkSession,
        ref: TableRef,
        bins: Sequence[Inputs],
        process: ProcessExecution,
        *,
        target_bytes: int,
    ) -> Sequence[Rewritten]:
        return rewrite.rewrite(session, ref, bins, at(process), target_bytes=target_bytes)

    def read_rewritten(self, record: Mapping[str, Any]) -> Rewritten:
        return Rewritten.model_validate(record)

    def look(
        self, session: SparkSession, ref: TableRef, process: ProcessExecution
    ) -> ProcessSpent | None:
        spent = commit.look(session, ref, at(process).commit_at)
        return None if spent is None else process_spent(spent)

    def look_replaced(
        self, session: SparkSession, ref: TableRef, process: ProcessExecution
    ) -> Replaced | None:
        return replace.look_replaced(session, ref, at(process))

    def replace(
        self,
        session: SparkSession,
        ref: TableRef,
        bins: Sequence[Inputs],
        rewritten: Mapping[int, Rewritten],
        process: ProcessExecution,
        *,
        clock: Clock,
        deadline_s: float,
    ) -> Replaced:
        groups = bin_groups(bins, rewritten)
        return replace.replace(
            session, ref, groups, at(process), clock=clock, deadline_s=deadline_s
        )

    def give_up(
        self,
        session: SparkSession,
        ref: TableRef,
        process: ProcessExecution,
        *,
        clock: Clock,
        deadline_s: float,
    ) -> ProcessSpent:
        return process_spent(
            replace.give_up(session, ref, at(process), clock=clock, deadline_s=deadline_s)
        )

    def discard(self, session: SparkSession, ref: TableRef, process: ProcessExecution) -> int:
        return replace.discard(session, ref, at(process))

    def unclaimed(
        self, session: SparkSession, ref: TableRef, process: ProcessExecution, kept: Iterable[str]
    ) -> Collection[str]:
        return replace.unclaimed(session, ref, at(process), kept)


def at(process: ProcessExecution) -> ProcessAt:
    """The process as Iceberg's tables know it: with its token, its mark and its folder."""
    return ProcessAt(process.owner, process.number, process.execution, process.since)


def process_spent(spent: SpentAtTable) -> ProcessSpent:
    return ProcessSpent(spent.by, spent.snapshot)


def bin_groups(bins: Sequence[Inputs], rewritten: Mapping[int, Rewritten]) -> list[BinGroup]:
    """Each bin as a group of its own: it is replaced, or conflicts, for itself."""
    return [
        BinGroup(number=each.number, bins=[each], rewritten=[rewritten[each.number]])
        for each in bins
    ]


def _java(error: Exception) -> JavaError:
    return cast("JavaError", error)
