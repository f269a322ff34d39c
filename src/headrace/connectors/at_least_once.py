"""The base of sinks whose target can't refuse a token: at least once, and it says so.

Such a target has no step that is atomic and fenced. So rows are written when they are staged, and
can be seen from then on; the commit only answers. An epoch that is run again, after a crash or
because a task was repeated, writes its rows again. Where the target knows an idempotence key, rows
that come under a key that it has seen are not added again; the key has to be chosen with care
(`python_client.EpochPart`).

There is nothing to abort and nothing to sweep: what was written stays. There is no mark either, so
that a store older than its target (E7) is not noticed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Committed, Staged
from headrace.connectors.targetless import Targetless
from headrace.model.jobs.epoch import CommitAt, EpochAt
from headrace.plugins.descriptor import Guarantee
from headrace.seams import seam


@dataclass(frozen=True, slots=True)
class Written:
    rows: int
    facts: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])  # for people


class _WrittenHandle(BaseModel):
    rows: int
    facts: dict[str, JsonValue]


class AtLeastOnceSink(Targetless, ABC):
    """A sink that has only to `write`."""

    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE  # as its descriptor says
    name: str

    @abstractmethod
    def write(self, session: SparkSession, frame: DataFrame, at: CommitAt) -> Written:
        """Write all rows to the target, and return when it has them for good.

        Called once by an execution; another one may call it again for the same epoch. `at.token` is
        the same each time, the rows are if the sources are repeatable, and their order and the
        parts that they come in need not be.
        """

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:
        seam("before stage")
        written = self.write(session, frame, CommitAt(at, self.name))
        seam("staged")
        handle = _WrittenHandle(rows=written.rows, facts=dict(written.facts))
        return Staged(handle.model_dump(mode="json"), written.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        """Answer that the rows are there, which they have been since they were staged."""
        written = _WrittenHandle.model_validate(handle)
        return Committed(already=False, facts={"rows": written.rows, **written.facts})
