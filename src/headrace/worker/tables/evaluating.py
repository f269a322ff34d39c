"""Look at tables, each for itself: what it is like, whether it needs optimizing, and why.

The metadata pointer is asked first, and files are scanned only where it moved or where time alone
may have made a rule fire. A table that can't be read is told with the reason, and the next one is
looked at; a catalog that is away ends the round, and no table is blamed.
"""

from __future__ import annotations

import logging

from headrace.errors import HeadraceError
from headrace.formats.iceberg.catalogs import TableMissing, TableRef
from headrace.formats.iceberg.jvm import JAVA_ERRORS
from headrace.formats.iceberg.scan import Probe, probe, scan
from headrace.model.tables.assess import assess
from headrace.model.tables.glance import looks_healthy
from headrace.model.tables.settings import OptimizingSettings
from headrace.protocol.tables import (
    Evaluated,
    EvaluatedTable,
    EvaluatePayload,
    ToEvaluate,
)
from headrace.worker.tables.catalogs import trouble_with, unreadable
from headrace.worker.tables.telling import (
    chosen_of,
    first_seen,
    flaws_of,
    glance_of,
    look_at_ms,
    pending_of,
    summary_of,
    times_of,
    totals_of,
)
from headrace.worker.tables.work import Work

log = logging.getLogger(__name__)

ERROR_CHARACTERS_MAX = 2_000
# What a table's metadata can do to whoever reads it. A JVM that has died is none of these.
_BROKEN = (HeadraceError, *JAVA_ERRORS, ValueError, LookupError, TypeError, ArithmeticError)


def evaluate_tables(work: Work, told: EvaluatePayload) -> Evaluated:
    found: list[EvaluatedTable] = []
    for number, one in enumerate(told.tables, start=1):
        ref = work.ref(one.table)
        work.begins(f"evaluating {ref} ({number} of {len(told.tables)})")
        try:
            seen = _evaluate(work, told, one, ref)
        except _BROKEN as error:
            work.execution.check()
            trouble = trouble_with(work.session, work.catalog)
            if trouble is not None:
                return Evaluated(tables=tuple(found), catalog_error=work.safe(str(trouble)))
            seen = _not_seen(work, one, ref, error)
        found.append(seen)
    return Evaluated(tables=tuple(found))


def _not_seen(work: Work, one: ToEvaluate, ref: TableRef, error: Exception) -> EvaluatedTable:
    if isinstance(error, TableMissing):
        return EvaluatedTable(id=one.table.id, gone=True)
    said = work.safe(unreadable(ref, error))[:ERROR_CHARACTERS_MAX]
    log.warning("table not evaluated", extra={"table": str(ref), "reason": said})
    return EvaluatedTable(id=one.table.id, error=said)


def _evaluate(work: Work, told: EvaluatePayload, one: ToEvaluate, ref: TableRef) -> EvaluatedTable:
    seen = probe(work.session, ref)
    settings, flaws = OptimizingSettings.read(seen.properties, told.defaults, told.groups)
    base = EvaluatedTable(
        id=one.table.id,
        uuid=seen.uuid,
        pointer=seen.pointer,
        snapshot=seen.snapshot,
        look_at_ms=one.look_at_ms,
        chosen=chosen_of(settings),
        flaws=flaws_of(flaws),
    )
    waits = one.look_at_ms is None or told.now_ms < one.look_at_ms
    if waits and one.pointer == seen.pointer:
        return base.model_copy(update={"unchanged": True})
    totals = totals_of(seen)
    if not settings.enabled:
        glance = glance_of(totals, settings)
        return base.model_copy(update={"look_at_ms": None, "summary": glance})
    # Amoro's pre-check. Not before every file was looked at once: then `look_at_ms` is set.
    known = one.pointer is not None and one.look_at_ms is not None
    if settings.fallback_interval_ms >= 0 and known and waits and looks_healthy(totals, settings):
        return base.model_copy(update={"summary": glance_of(totals, settings)})
    return _scanned(work, told, one, ref, seen, settings, base)


def _scanned(
    work: Work,
    told: EvaluatePayload,
    one: ToEvaluate,
    ref: TableRef,
    seen: Probe,
    settings: OptimizingSettings,
    base: EvaluatedTable,
) -> EvaluatedTable:
    files = scan(work.session, ref, filter=settings.filter, heard=work.heard)
    # Clocks of another table, that had the same name, say nothing of this one.
    clocks = times_of(one.clocks if one.table.uuid in (None, seen.uuid) else {})
    found = assess(files, settings, clocks, now_ms=told.now_ms, left_out=frozenset(one.left_out))
    work.heard()
    return base.model_copy(
        update={
            "snapshot": files.snapshot,
            "look_at_ms": look_at_ms(found.evaluated, settings, clocks, now_ms=told.now_ms),
            "pending": pending_of(found, files, settings),
            "summary": summary_of(found, files, settings),
            "seen": first_seen(found.evaluated, clocks),
        }
    )
