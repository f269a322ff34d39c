"""The other program that writes to lake tables, as a test speaks to it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.crash.cluster import QUICK_JVM, Cluster, Process
from tests.crash.stand import SPARK_START_MAX_S

Row = Mapping[str, Any]
TRIES_MAX = 20  # of a statement that meets our commits
# What Iceberg says to a writer whose files were replaced meanwhile: it is to try again.
CONFLICTS = (
    "CommitFailedException",
    "ValidationException",
    "Cannot commit",
    "conflicting",
    "Missing required files",
    "stale table metadata",
)


class NotWritten(Exception):
    """The statement failed, and not because somebody else committed first."""


class Writer:
    def __init__(self, made: Cluster, warehouse: Path) -> None:
        warehouse.mkdir(parents=True, exist_ok=True)
        log = made.folder / "writer.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        command = [
            "tests.crash.lake_writer",
            warehouse.as_uri(),
            str(made.folder / "writer-jvm.log"),
        ]
        with log.open("wb") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**kept, "JAVA_TOOL_OPTIONS": QUICK_JVM},
                start_new_session=True,
            )
        self._log = log
        made.processes.append(Process("writer", self._popen, log))
        self.conflicts = 0

    def ask(self, statement: str) -> Sequence[Row]:
        """Run it; again while others are faster."""
        for _ in range(TRIES_MAX):
            told = self._answer(statement)
            if "rows" in told:
                return told["rows"]
            if not any(word in told["error"] for word in CONFLICTS):
                raise NotWritten(f"{statement}: {told['error']}")
            self.conflicts += 1
        raise NotWritten(f"{statement}: others were faster {TRIES_MAX} times")

    def _answer(self, statement: str) -> Mapping[str, Any]:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(json.dumps(statement).encode() + b"\n")
        self._popen.stdin.flush()
        ready, _, _ = select.select([self._popen.stdout], [], [], SPARK_START_MAX_S)
        assert ready, f"no answer to {statement}: {self._log.read_text()}"
        line = self._popen.stdout.readline()
        assert line, f"the writer ended at {statement}: {self._log.read_text()}"
        return json.loads(line)

    def close(self) -> None:
        """See it out; the cluster ends it otherwise."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        self._popen.stdout.close()
