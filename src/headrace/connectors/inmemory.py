"""InMemory: SeaTunnel's test sink. It counts rows, forgets them, and fails where it is told to.

In SeaTunnel a writer or a committer throws; here it is a stage or a commit. The errors are
Python's own and not ours, so they are what a bug or a broken machine would be: retried.
Nothing is written, so there is no token to spend.
"""

from __future__ import annotations

import threading

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Committed, Setting, Staged
from headrace.connectors.targetless import Targetless, count_rows
from headrace.model.epoch import EpochAt

SLEEP_S = 5.0  # of a commit, with checkpoint_sleep


class _Counted(BaseModel):
    rows: int


class InMemorySink(Targetless):
    def __init__(self, name: str, setting: Setting, *, sleep_s: float = SLEEP_S) -> None:
        self.name, self._options, self._sleep_s = name, setting.options, sleep_s

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:  # noqa: ARG002
        rows = count_rows(frame)
        if rows:
            self._fail_at_rows(at)
        if self._options.get("throw_exception"):
            raise OSError(f"sink {self.name} was told to throw_exception")
        return Staged(_Counted(rows=rows).model_dump(), rows)

    def _fail_at_rows(self, at: EpochAt) -> None:
        if self._options.get("throw_out_of_memory"):
            raise MemoryError(f"sink {self.name} was told to throw_out_of_memory")
        texts: list[str] = self._options.get("throw_runtime_exception_list") or []
        if (attempt := _attempt(at)) <= len(texts):
            raise RuntimeError(texts[attempt - 1])

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        if self._options.get("checkpoint_sleep"):
            threading.Event().wait(self._sleep_s)
        if self._options.get("throw_exception_of_committer"):
            raise OSError(f"sink {self.name} was told to throw_exception_of_committer")
        return Committed(already=False, facts={"rows": _Counted.model_validate(handle).rows})


def _attempt(at: EpochAt) -> int:
    """The last part of an execution's id, as `Claim.execution` makes it; from 1 on."""
    return int(at.execution.rpartition(".")[2])
