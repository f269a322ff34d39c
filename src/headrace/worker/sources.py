"""All sources of a pipeline, as one execution drives them beside planning and reading.

What a source learned while it was read is recorded with the epoch, under the source's name, among
the stage handles: that is what reaches whoever commits the epoch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from headrace.connectors.connector import Source
from headrace.protocol.messages import EpochPlan, Json
from headrace.worker.execution import Execution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

UNTOLD_MAX = 1000  # epochs of one source that it could not be told of; the oldest are dropped
_LEARNED = "learned"


class SourceGroup:
    """The sources of one pipeline: asks what they learned, tells them what is committed."""

    def __init__(
        self, sources: Sequence[Source], session: SparkSession, execution: Execution
    ) -> None:
        self._sources, self._session, self._execution = sources, session, execution
        # By name: the position after each committed epoch and what was learned, oldest first.
        self._untold: dict[str, deque[tuple[JsonValue, JsonValue]]] = {
            source.name: deque() for source in sources
        }

    def learned(self, plan: EpochPlan) -> Json:
        """What the sources learned from their slices of an epoch, as entries of its handles."""
        entries: Json = {}
        for source in self._sources:
            if source.name in plan.slices and (value := source.learned()) is not None:
                # The entry has the form of a sink's, so that whoever counts rows may count it.
                entries[source.name] = {"handle": None, "rows": 0, _LEARNED: value}
        return entries

    def tell_restored(self, positions: Mapping[str, JsonValue]) -> None:
        """Tell each source the position that the execution starts from: whoever completed the epoch
        before it may have died before it told."""
        for source in self._sources:
            if (position := positions.get(source.name)) is not None:
                self._queue(source.name, position, None)
        self.tell_again()

    def tell_committed(self, plan: EpochPlan, handles: Json) -> None:
        """Tell each source that read in an epoch that it is committed, with what it learned then.

        A source that fails is told later, of one epoch after the other: its failure must not fail
        the job, since the rows are where they belong.
        """
        for source in self._sources:
            if (part := plan.slices.get(source.name)) is not None:
                self._queue(source.name, part.after, _learned_in(handles, source.name))
        self.tell_again()

    def _queue(self, name: str, position: JsonValue, learned: JsonValue) -> None:
        untold = self._untold[name]
        if untold and untold[-1][1] is None:
            untold.pop()  # the later position says all that this one did
        if len(untold) >= UNTOLD_MAX:
            untold.popleft()
            facts = {"execution": self._execution.id, "source": name, "kept": UNTOLD_MAX}
            log.warning("source never told of an old commit", extra=facts)
        untold.append((position, learned))

    def tell_again(self) -> None:
        """Tell the sources what they have not been told yet, in order."""
        for source in self._sources:
            untold = self._untold[source.name]
            while untold:
                position, learned = untold[0]
                try:
                    source.committed(self._session, position, learned=learned)
                except Exception:
                    facts = {"execution": self._execution.id, "source": source.name}
                    log.exception("source not told of its commit", extra=facts)
                    break  # the later ones wait for this one
                untold.popleft()
                self._execution.touch()  # many may have waited, and a slow source is no stall
                if self._execution.stopping:
                    break  # whoever comes next tells the position

    def close(self) -> None:
        for source in self._sources:
            try:
                source.close()
            except Exception:
                facts = {"execution": self._execution.id, "source": source.name}
                log.exception("source not closed", extra=facts)


def _learned_in(handles: Json, name: str) -> JsonValue:
    entry: Any = handles.get(name)
    return None if entry is None else entry.get(_LEARNED)
