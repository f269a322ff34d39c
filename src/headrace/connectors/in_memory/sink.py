"""InMemory: a sink that counts rows, forgets them, and fails where its options say so.

Where SeaTunnel's writer or committer throws, here a stage or a commit fails. The errors are
Python's own and none of ours, so they are treated like those of a bug or a broken machine: the
attempt is retried.
"""

from __future__ import annotations

import threading

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Committed, Setting, Staged
from headrace.connectors.in_memory.descriptor import InMemoryOptions
from headrace.connectors.targetless import Targetless, count_rows
from headrace.model.jobs.epoch import EpochAt

SLEEP_S = 5.0  # how long a commit takes with checkpoint_sleep


class _InMemoryHandle(BaseModel):
    """What is staged: only how many rows came."""

    rows: int


class InMemorySink(Targetless):
    def __init__(
        self,
        name: str,
        options: InMemoryOptions,
        setting: Setting,  # noqa: ARG002
        *,
        sleep_s: float = SLEEP_S,
    ) -> None:
        self.name, self._options, self._sleep_s = name, options, sleep_s

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:  # noqa: ARG002
        rows = count_rows(frame)
        if rows:
            self._fail_at_rows(at)
        if self._options.fails_at_stage:
            raise OSError(f"sink {self.name} was told to throw_exception")
        return Staged(_InMemoryHandle(rows=rows).model_dump(), rows)

    def _fail_at_rows(self, at: EpochAt) -> None:
        if self._options.runs_out_of_memory:
            raise MemoryError(f"sink {self.name} was told to throw_out_of_memory")
        texts = self._options.errors_by_attempt
        if (attempt := _attempt(at)) <= len(texts):
            raise RuntimeError(texts[attempt - 1])

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        if self._options.sleeps:
            threading.Event().wait(self._sleep_s)
        if self._options.fails_at_commit:
            raise OSError(f"sink {self.name} was told to throw_exception_of_committer")
        return Committed(already=False, facts={"rows": _InMemoryHandle.model_validate(handle).rows})


def _attempt(at: EpochAt) -> int:
    """The number of the attempt, from 1: the last part of an execution's id (`Claim.execution`)."""
    return int(at.execution.rpartition(".")[2])
