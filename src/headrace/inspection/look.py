"""Read every table of a catalog, a few at a time. What is broken is told; the rest goes on."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.errors import HeadraceError, Refused, SparkDied, heard
from headrace.formats.iceberg.catalogs import (
    CatalogConfig,
    TableMissing,
    TableRef,
    load_table,
    metadata_of,
)
from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_classes, java_message, not_granted
from headrace.formats.iceberg.listing import Listed, Namespace, list_tables
from headrace.formats.iceberg.scan import scan
from headrace.inspection.build import Read, inspected
from headrace.inspection.problems import way_out
from headrace.inspection.report import CatalogReport, Inspected, Unread
from headrace.inspection.secrets import Redactor
from headrace.model.tables.settings import property_of
from headrace.worker.spark import WarmSpark

log = logging.getLogger(__name__)

TABLES_MAX = 100_000
NOT_LISTED = "let this user list the namespace, or leave it out with --filter"
LOOKERS = 4  # tables read at a time: most of it is waiting for the catalog and its storage
WORD_EVERY_S = 2.0  # while no table ends: a damaged one may keep Iceberg busy for a while
FILTER = property_of("filter")

# Tables read, of so many, and the names of those being read, the longest first.
Seen = Callable[[int, int, Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be inspected."""

    type: str  # as the user names it
    config: CatalogConfig
    filter: re.Pattern[str] | None = None


def look(warm: WarmSpark, wanted: Wanted, clock: Clock, seen: Seen) -> CatalogReport:
    """The whole catalog. Errors that concern all of it are raised, secrets redacted."""
    began_s, now_ms = clock.monotonic_s(), clock.wall_ms()
    redactor = Redactor({**wanted.config.hadoop, **wanted.config.properties})
    try:
        listed = _listed(warm.session, wanted)
    except HeadraceError as error:
        told = redactor.text(str(error))
        raise heard(type(error).__name__, told) or Refused(told) from None
    refs = [
        TableRef(wanted.config, here, name)
        for here in listed.tables
        for name in listed.tables[here]
    ]
    found = _all_of(_Looker(warm, redactor, now_ms), refs, seen)
    tables = [each for each in found if isinstance(each, Inspected)]
    unread = [each for each in found if isinstance(each, Unread)]
    unread += [
        Unread(f"{'.'.join(here)}.*", redactor.text(reason), NOT_LISTED)
        for here, reason in listed.failed.items()
    ]
    return CatalogReport(
        catalog=wanted.config.name,
        type=wanted.type,
        properties=redactor.properties,
        at_ms=now_ms,
        took_s=round(clock.monotonic_s() - began_s, 3),
        filter=wanted.filter.pattern if wanted.filter else None,
        filtered=listed.others,
        tables=sorted(tables, key=lambda table: (-table.saving.spared_bytes, table.table)),
        unread=sorted(unread, key=lambda each: each.name),
    )


def _listed(session: SparkSession, wanted: Wanted) -> Listed:
    pattern, config = wanted.filter, wanted.config

    def is_wanted(here: Namespace, name: str) -> bool:
        return pattern is None or pattern.fullmatch(".".join((*here, name))) is not None

    try:
        listed = list_tables(session, config, wanted=is_wanted, tables_max=sys.maxsize)
    except JAVA_ERRORS as error:
        said = f"the tables of catalog {config.name!r} can't be listed: {java_message(error)}"
        raise not_granted(error, f"{said}; check {config.set_by}") from error
    count = sum(map(len, listed.tables.values()))
    if count > TABLES_MAX:
        raise Refused(
            f"catalog {config.name!r} has {count:,} tables, and {TABLES_MAX:,} are too many for "
            "one report; name a part of them with --filter"
        )
    return listed


def name_of(ref: TableRef) -> str:
    """As people and filters call it: without the catalog."""
    return ".".join((*ref.namespace, ref.name))


def _all_of(looker: _Looker, refs: Sequence[TableRef], seen: Seen) -> list[Inspected | Unread]:
    found: list[Inspected | Unread] = []
    ended: SimpleQueue[Future[Inspected | Unread]] = SimpleQueue()
    pool = ThreadPoolExecutor(LOOKERS, "inspect")
    try:
        for ref in refs:
            pool.submit(looker.table, ref).add_done_callback(ended.put)
        while len(found) < len(refs):  # ends: every table is read, or raises
            with suppress(Empty):
                found.append(ended.get(timeout=WORD_EVERY_S).result())
            seen(len(found), len(refs), looker.reading)
    finally:
        # Interrupted: what has not begun never does, and the caller ends the JVM.
        pool.shutdown(wait=False, cancel_futures=True)
    return found


class _Looker:
    def __init__(self, warm: WarmSpark, redactor: Redactor, now_ms: int) -> None:
        self._warm, self._redactor, self._now_ms = warm, redactor, now_ms
        self._reading: dict[str, None] = {}  # in the order they were begun

    @property
    def reading(self) -> Sequence[str]:
        """What is being read, the longest first."""
        return list(self._reading)

    def table(self, ref: TableRef) -> Inspected | Unread:
        self._reading[name_of(ref)] = None
        try:
            return self._look(ref)
        finally:
            # Not `del`: a dot in a namespace's name makes two tables read as one.
            self._reading.pop(name_of(ref), None)

    def _look(self, ref: TableRef) -> Inspected | Unread:
        try:
            return inspected(read(self._warm.session, ref), now_ms=self._now_ms)
        except JAVA_ERRORS as error:
            return self._unread(ref, java_message(error), java_classes(error))
        except Exception as error:  # the boundary: a broken table stops no other
            if not self._warm.alive():
                raise SparkDied from error
            log.info("table not read", extra={"table": name_of(ref)}, exc_info=error)
            return self._unread(ref, _said(error), (type(error).__name__,))

    def _unread(self, ref: TableRef, error: str, kinds: tuple[str, ...]) -> Unread:
        return Unread(name_of(ref), self._redactor.text(error), way_out(kinds))


def _said(error: Exception) -> str:
    match error:
        case TableMissing():
            return "there is no such table any more"
        case HeadraceError():
            return str(error)
        case _:
            return f"{type(error).__name__}: {error}"


def read(session: SparkSession, ref: TableRef) -> Read:
    """All that the report needs of one table: its metadata, and every file with its deletes."""
    metadata = metadata_of(session, load_table(session, ref))
    files, flaws = scan(session, ref), list[str]()
    filtered = None
    condition = files.properties.get(FILTER)
    if condition is not None:
        try:
            found = scan(session, ref, filter=condition)
            filtered = frozenset(file.path for file in found.files)
        except Refused as error:
            flaws.append(str(error))
    return Read(name_of(ref), metadata, files, filtered, flaws)
