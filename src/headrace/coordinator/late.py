"""Late news: reports of something that has ended, is gone, or is another's by now (C1).

Each is acknowledged, so that its worker may forget it, and changes nothing. What it says is worth
one line, however often a worker that missed the answer says it.
"""

from __future__ import annotations

import logging

from headrace.logs import Once
from headrace.protocol.messages import Acknowledged, Report, TaskEnded

log = logging.getLogger(__name__)


class LateNews:
    """Of one term, told by the thread that applies reports."""

    def __init__(self) -> None:
        self._once = Once()

    def note(self, report: Report, answer: Acknowledged) -> None:
        """Tell of a report that was not taken. Its task may be gone: its claim is all there is."""
        if answer.held or not self._once.first((report.claim, report.kind)):
            return
        log.info(
            "late report",
            extra={
                "report": report.kind,
                "task": report.claim.task,
                "execution": report.claim.execution,
                "epoch": None if isinstance(report, TaskEnded) else report.epoch,
            },
        )
