"""What is deleted of a job that has ended, and when.

STATE     its rows: job, pipelines, tasks, checkpoints, ready sets, secrets. Before that, what
          could not be settled at its end is settled: nobody else has its stage handles
TARGETS   at its sinks what is left staged, then the marks: once nobody can commit any more

History stays, and the log lines, and a savepoint, each until it expires. A restore ends the
cleanup: the job goes on above `up_to`, the highest epoch that is to be forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
JOB_LOG_LINES_MAX = 2_000_000  # of all jobs; beyond that, the oldest go
RETRY_PAUSE_MS = 5_000  # after the first failure; doubled after each
RETRY_PAUSE_MAX_MS = 10 * MINUTE_MS


class CleanupStep(StrEnum):
    STATE = "STATE"
    TARGETS = "TARGETS"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept, as the leader was told."""

    state_cleanup_delay_ms: int = MINUTE_MS  # 0: at once
    history_expire_ms: int = 7 * DAY_MS
    job_log_expire_ms: int = 7 * DAY_MS  # of each line, from when it was taken down
    savepoint_expire_ms: int = 7 * DAY_MS
    process_expire_ms: int = 30 * DAY_MS  # Amoro's self-optimizing.runtime-data-keep-time
    commit_deadline_ms: int = 60 * MINUTE_MS  # a commit that began earlier is refused

    @property
    def commit_deadline_s(self) -> float:
        return self.commit_deadline_ms / 1000

    @property
    def marks_kept_ms(self) -> int:
        """A committer may begin as the job ends. Twice: its clock need not be ours."""
        return 2 * self.commit_deadline_ms


def former_key(incarnation: str, run: int) -> str:
    """Of the record for sinks that a job had until this run, and has no longer."""
    return f"{incarnation}#{run}"


def incarnation_of(key: str) -> str:
    """Whose record it is."""
    return key.partition("#")[0]


def retry_pause_ms(failures: int) -> int:
    """How long a cleanup rests that failed so often."""
    return min(RETRY_PAUSE_MS << min(max(failures - 1, 0), 16), RETRY_PAUSE_MAX_MS)
