"""How a worker lists the tables of a catalog, and explains errors of the catalog.

A task that fails must say whose fault it is: an unavailable catalog is no table's, and a table with
broken metadata is not the catalog's. So after an error the catalog is asked something else, to see
whether it answers at all (`trouble_with`).

`TableWork` is the context of one table task: its execution, Spark session, clock, catalog, and the
format of the tables in it, which does every step at a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import HeadraceError, Refused, Unavailable
from headrace.lake.catalog import CatalogConfig, Namespace, TableMissing, TableRef
from headrace.lake.table_format import AnyTableFormat, ProcessExecution
from headrace.protocol.tables import (
    TABLES_PER_CATALOG_MAX,
    Discovered,
    DiscoverPayload,
    ProcessRef,
    TableIdentifier,
)
from headrace.worker.execution import Execution
from headrace.worker.outbox import redacted, secrets_of

FILTER_CHARACTERS_MAX = 500  # a longer pattern may take for ever; the command refuses it too
_LEVEL = "\x1f"  # separates the levels of a namespace, as in Iceberg's REST protocol


@dataclass(frozen=True, slots=True)
class TableWork:
    """The context of one table task."""

    execution: Execution
    session: SparkSession
    clock: Clock
    catalog: CatalogConfig
    format: AnyTableFormat

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

    def at(self, process: ProcessRef) -> ProcessExecution:
        execution = self.execution
        return ProcessExecution(process.owner, process.number, execution.id, execution.since)

    def is_there(self, ref: TableRef, process: ProcessRef) -> bool:
        """Whether the very table that was planned is there, not another of the same name."""
        try:
            return self.format.uuid(self.session, ref) == process.uuid
        except TableMissing:
            return False

    def check_there(self, ref: TableRef, process: ProcessRef) -> None:
        if not self.is_there(ref, process):
            raise Refused(
                f"{ref} was dropped, or made anew, since process {process.id} planned it; nothing "
                "is left to do for this process"
            )


def discover(work: TableWork, payload: DiscoverPayload) -> Discovered:
    """List the tables of a catalog that match its filter."""
    work.begin_step(f"listing the tables of {work.catalog.name}")
    listed = work.format.list_tables(
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


def trouble_with(work: TableWork) -> Refused | Unavailable | None:
    """What is wrong with the catalog itself; None when it answers."""
    catalog, errors = work.catalog, work.format.errors
    try:
        work.format.list_namespaces(work.session, catalog)
    except (Refused, Unavailable) as error:
        return error
    except errors.types as error:
        if errors.is_closed(error):
            return None
        return errors.translated(
            error,
            f"catalog {catalog.name!r} does not answer: {errors.line(error)}; expected it to list "
            f"its namespaces. See that it is up and reached from this worker, and check "
            f"{catalog.set_by}",
        )
    return None


def explained(work: TableWork, error: Exception, what: str) -> HeadraceError:
    """The error to raise for one that the format's library raised during `what`."""
    errors = work.format.errors
    return trouble_with(work) or errors.translated(error, f"{what}: {errors.line(error)}")


def unreadable(work: TableWork, ref: TableRef, error: Exception) -> str:
    """Why a table could not be evaluated while its catalog answers, and what helps."""
    errors = work.format.errors
    if isinstance(error, HeadraceError):
        return str(error)
    if not isinstance(error, errors.types):
        text = f"{type(error).__name__}: {error}"
        return f"{ref} can't be read: {text}; its metadata is damaged: restore or drop the table"
    return f"{ref} can't be read: {errors.line(error)}; {errors.way_out(error)}"
