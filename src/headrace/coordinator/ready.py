"""Ready to close: when all sources of a pipeline have read everything, it may end (K1, K2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import Connection

from headrace.coordinator.attempts import Place
from headrace.model.epoch import OPEN_MAX
from headrace.model.jobspec import JobSpec
from headrace.store import jobs, ready

log = logging.getLogger(__name__)


def ready_of(conn: Connection, place: Place, spec: JobSpec) -> Sequence[str]:
    """The sources of the pipeline that are ready. Other names in the set are nobody's (K4).

    Raises `ValueError` when the set can't be true: to guess would lose rows, or hang.
    """
    sources = _sources(place, spec)
    found = ready.of(conn, place.job.incarnation, place.pipeline.number)
    newest = place.pipeline.epoch + OPEN_MAX
    for name, epoch in found.items():
        if not 0 <= epoch <= newest:
            raise ValueError(
                f"source {name!r} is ready to close since epoch {epoch}, and {newest} is the "
                "newest there can be"
            )
    for stranger in (name for name in found if name not in sources):
        facts = {"job": place.job.id, "pipeline": place.pipeline.number, "source": stranger}
        log.warning("ready to close, but no source of the pipeline", extra=facts)
    return [name for name in sources if name in found]


def not_ready(conn: Connection, place: Place) -> Sequence[str]:
    """The sources of the pipeline that still have something to read."""
    spec = jobs.spec_of(conn, place.job.id)
    found = ready_of(conn, place, spec)
    return [name for name in _sources(place, spec) if name not in found]


def _sources(place: Place, spec: JobSpec) -> Sequence[str]:
    pipeline = next(p for p in spec.pipelines if p.number == place.pipeline.number)
    return [source.name for source in pipeline.sources]
