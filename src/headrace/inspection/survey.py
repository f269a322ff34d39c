"""The survey: read every table of a catalog through Spark, a few at a time, into a report.

A table that can't be read is listed in the report, with its error and a way out by the classes of
that error; the others are read all the same. Secrets of the catalog's properties are redacted
wherever an error repeats them.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from urllib.parse import unquote

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import HeadraceError, Refused, SparkDied, error_of_kind
from headrace.inspection.report import (
    CatalogReport,
    InspectedTable,
    TableReading,
    Unread,
    inspect_table,
)
from headrace.lake.catalog import CatalogConfig, Namespace, TableListing, TableMissing, TableRef
from headrace.lake.iceberg.catalogs import list_tables, load_table, metadata_of
from headrace.lake.iceberg.scan import scan
from headrace.logs import REDACTED, is_secret
from headrace.model.tables.settings import property_of
from headrace.model.text import blanked, secret_places
from headrace.spark.jvm_bridge import (
    JAVA_ERRORS,
    java_classes,
    java_message,
    refused_or_unavailable,
)
from headrace.worker.warm_session import WarmSpark

log = logging.getLogger(__name__)

TABLES_MAX = 100_000
NOT_LISTED = "let this user list the namespace, or leave it out with --filter"
READERS_MAX = 4  # tables read at a time; reading mostly waits for the catalog and its storage
PROGRESS_EVERY_S = 2.0  # while no table ends; a damaged one may keep Iceberg busy for a while
FILTER = property_of("filter")
SECRET_CHARS_MIN = 4  # a shorter secret may be a part of any word, and is not replaced

# Called with how many tables are read, of how many, and the names of those being read, the one
# that takes longest first.
OnProgress = Callable[[int, int, Sequence[str]], None]

_WAYS_OUT: Sequence[tuple[frozenset[str], str]] = (
    (
        frozenset({"NoSuchTableException", "TableMissing", "NoSuchNamespaceException"}),
        "it was dropped while the catalog was read; inspect again",
    ),
    (
        frozenset(
            {
                "AccessControlException",
                "AccessDeniedException",
                "ForbiddenException",
                "NotAuthorizedException",
                "S3Exception",
            }
        ),
        "let this user read the table's folder and its entry in the catalog, or give --property "
        "the credentials of one who may",
    ),
    (
        frozenset({"NotFoundException", "FileNotFoundException", "NoSuchFileException"}),
        "restore the named file from a backup, or drop the table from the catalog (without purge) "
        "and register its newest metadata file that is whole, with Spark's "
        "`CALL system.register_table`",
    ),
    (
        frozenset(
            {
                "JsonParseException",
                "JsonEOFException",
                "MismatchedInputException",
                "AvroRuntimeException",
                "InvalidAvroMagicException",
                "RuntimeIOException",
                "UncheckedIOException",
                "ValidationException",
                "IllegalArgumentException",
            }
        ),
        "its metadata is damaged: restore the file from a backup, or drop the table from the "
        "catalog (without purge) and register an earlier metadata file with Spark's "
        "`CALL system.register_table`",
    ),
    (
        frozenset({"ClassNotFoundException", "NoClassDefFoundError"}),
        "a jar is missing; add it with --conf spark.driver.extraClassPath=FILE",
    ),
)
_OTHERWISE = (
    "see whether Spark can read it; if it can, inspect again with --verbose and report what it says"
)


@dataclass(frozen=True, slots=True)
class InspectionWish:
    """What is to be inspected."""

    type: str  # as the user names it
    config: CatalogConfig
    filter: re.Pattern[str] | None = None


def inspect_catalog(
    warm: WarmSpark, wish: InspectionWish, clock: Clock, on_progress: OnProgress
) -> CatalogReport:
    """Inspect a whole catalog. Errors that concern all of it are raised, with secrets redacted."""
    began_s, now_ms = clock.monotonic_s(), clock.wall_ms()
    redactor = Redactor({**wish.config.hadoop, **wish.config.properties})
    try:
        listed = _list_wanted(warm.session, wish)
    except HeadraceError as error:
        message = redactor.text(str(error))
        raise error_of_kind(type(error).__name__, message) or Refused(message) from None
    refs = [
        TableRef(wish.config, here, name) for here in listed.tables for name in listed.tables[here]
    ]
    results = _inspect_all(_TableInspector(warm, redactor, now_ms), refs, on_progress)
    tables = [each for each in results if isinstance(each, InspectedTable)]
    unread = [each for each in results if isinstance(each, Unread)]
    unread += [
        Unread(f"{'.'.join(here)}.*", redactor.text(reason), NOT_LISTED)
        for here, reason in listed.failed.items()
    ]
    return CatalogReport(
        catalog=wish.config.name,
        type=wish.type,
        properties=redactor.properties,
        at_ms=now_ms,
        took_s=round(clock.monotonic_s() - began_s, 3),
        filter=wish.filter.pattern if wish.filter else None,
        filtered=listed.others,
        tables=sorted(tables, key=lambda table: (-table.saving.spared_bytes, table.table)),
        unread=sorted(unread, key=lambda each: each.name),
    )


def _list_wanted(session: SparkSession, wish: InspectionWish) -> TableListing:
    pattern, config = wish.filter, wish.config

    def is_wanted(here: Namespace, name: str) -> bool:
        return pattern is None or pattern.fullmatch(".".join((*here, name))) is not None

    try:
        listed = list_tables(session, config, wanted=is_wanted, tables_max=sys.maxsize)
    except JAVA_ERRORS as error:
        problem = f"the tables of catalog {config.name!r} can't be listed: {java_message(error)}"
        raise refused_or_unavailable(error, f"{problem}; check {config.set_by}") from error
    count = sum(map(len, listed.tables.values()))
    if count > TABLES_MAX:
        raise Refused(
            f"catalog {config.name!r} has {count:,} tables, and {TABLES_MAX:,} are too many for "
            "one report; name a part of them with --filter"
        )
    return listed


def name_of(ref: TableRef) -> str:
    """The name for people and filters: without the catalog."""
    return ".".join((*ref.namespace, ref.name))


def _inspect_all(
    inspector: _TableInspector, refs: Sequence[TableRef], on_progress: OnProgress
) -> list[InspectedTable | Unread]:
    results: list[InspectedTable | Unread] = []
    ended: SimpleQueue[Future[InspectedTable | Unread]] = SimpleQueue()
    pool = ThreadPoolExecutor(READERS_MAX, "inspect")
    try:
        for ref in refs:
            pool.submit(inspector.table, ref).add_done_callback(ended.put)
        while len(results) < len(refs):  # ends: every table is read, or raises
            with suppress(Empty):
                results.append(ended.get(timeout=PROGRESS_EVERY_S).result())
            on_progress(len(results), len(refs), inspector.reading)
    finally:
        # When interrupted, tables that have not begun never do, and the caller ends the JVM.
        pool.shutdown(wait=False, cancel_futures=True)
    return results


class _TableInspector:
    """Reads single tables; used by several threads at once."""

    def __init__(self, warm: WarmSpark, redactor: Redactor, now_ms: int) -> None:
        self._warm, self._redactor, self._now_ms = warm, redactor, now_ms
        self._reading: dict[str, None] = {}  # an ordered set: in the order they were begun

    @property
    def reading(self) -> Sequence[str]:
        """The tables that are being read, the one that takes longest first."""
        return list(self._reading)

    def table(self, ref: TableRef) -> InspectedTable | Unread:
        self._reading[name_of(ref)] = None
        try:
            return self._inspect(ref)
        finally:
            # Not `del`: with a dot in the name of a namespace, two tables may have the same name.
            self._reading.pop(name_of(ref), None)

    def _inspect(self, ref: TableRef) -> InspectedTable | Unread:
        try:
            return inspect_table(read_table(self._warm.session, ref), now_ms=self._now_ms)
        except JAVA_ERRORS as error:
            return self._unread(ref, java_message(error), java_classes(error))
        except Exception as error:  # the boundary: a broken table must not stop the others
            if not self._warm.alive():
                raise SparkDied from error
            log.info("table not read", extra={"table": name_of(ref)}, exc_info=error)
            return self._unread(ref, _error_text(error), (type(error).__name__,))

    def _unread(self, ref: TableRef, error: str, kinds: tuple[str, ...]) -> Unread:
        return Unread(name_of(ref), self._redactor.text(error), way_out(kinds))


def _error_text(error: Exception) -> str:
    match error:
        case TableMissing():
            return "there is no such table any more"
        case HeadraceError():
            return str(error)
        case _:
            return f"{type(error).__name__}: {error}"


def read_table(session: SparkSession, ref: TableRef) -> TableReading:
    """Read what the report needs of one table: its metadata, and every file with its deletes."""
    metadata = metadata_of(session, load_table(session, ref))
    files, flaws = scan(session, ref), list[str]()
    filtered = None
    condition = files.properties.get(FILTER)
    if condition is not None:
        try:
            filtered_files = scan(session, ref, filter=condition)
            filtered = frozenset(file.path for file in filtered_files.files)
        except Refused as error:
            flaws.append(str(error))
    return TableReading(name_of(ref), metadata, files, filtered, flaws)


class Redactor:
    """Replaces the secrets of these properties in texts."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        secrets = {value for key, value in properties.items() if is_secret(key)}
        for value in properties.values():
            secrets.update(_inside(value))
        long = (secret for secret in secrets if len(secret) >= SECRET_CHARS_MIN)
        self._secrets: Sequence[str] = sorted(long, key=len, reverse=True)
        self._shown = {
            key: REDACTED if is_secret(key) else self.text(blanked(value))
            for key, value in properties.items()
        }

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties as they may be shown."""
        return self._shown

    def text(self, message: str) -> str:
        """The message with every secret replaced."""
        for secret in self._secrets:
            message = message.replace(secret, REDACTED)
        return message


def _inside(value: str) -> set[str]:
    """Secrets inside of a value such as a URI, as they are written and decoded."""
    secrets = {value[first:last] for first, last in secret_places(value)}
    return secrets | {unquote(secret) for secret in secrets} | {one.strip("{}") for one in secrets}


def way_out(kinds: Collection[str]) -> str:
    """What to do about a table that can't be read.

    `kinds` are the names of the classes of its error and of the causes.
    """
    return next((way for known, way in _WAYS_OUT if not known.isdisjoint(kinds)), _OTHERWISE)
