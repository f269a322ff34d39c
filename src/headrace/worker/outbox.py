"""Reports, kept until a leader has acknowledged them, whoever leads by then (D4).

The end of a task is also kept on disk: a worker that dies with its report unsaid would make
others do finished work again. The next worker with the same home says it instead. Reports within
an execution die with it, and need no file.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from headrace.errors import ClaimLost, CoordinatorUnavailable
from headrace.model.task import Claim
from headrace.protocol.messages import (
    REPORT_BYTES_PER_SYNC_MAX,
    Acknowledged,
    Report,
    TaskEnded,
)
from headrace.seams import seam
from headrace.worker.ownership import alone, owned

log = logging.getLogger(__name__)

ACKNOWLEDGE_TIMEOUT_S = 6 * 3600.0  # so long may every coordinator be away
LOOK_INTERVAL_S = 0.2  # at the stop flag, while waiting
ENDS_REMEMBERED_MAX = 1000  # executions whose end can be said again after it was acknowledged


class Posted:
    """A report on its way. `wait` blocks its execution until it is acknowledged."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.size_bytes = len(report.model_dump_json().encode())
        self.kept = True  # on disk, where it has to be
        self._answer: Acknowledged | None = None
        self._answered = threading.Event()

    def resolve(self, answer: Acknowledged) -> None:
        self._answer = answer
        self._answered.set()

    def wait(self, check: Callable[[], None]) -> Acknowledged:
        """`check` raises when the execution is to stop. ClaimLost: it is somebody else's now."""
        for _ in range(int(ACKNOWLEDGE_TIMEOUT_S / LOOK_INTERVAL_S)):
            if self._answered.wait(LOOK_INTERVAL_S):
                break
            check()
        if self._answer is None:
            raise CoordinatorUnavailable("no coordinator acknowledged a report for hours")
        if not self._answer.held:
            raise ClaimLost(self.report.claim.task, self.report.claim.attempt)
        return self._answer


class Outbox:
    def __init__(self, folder: Path, *, posted: Callable[[], None]) -> None:
        """`folder` is this process's own, beside those of others of the same home."""
        self._folder, self._wake = folder, posted
        self._lock = threading.Lock()
        self._pending: dict[int, Posted] = {}
        self._ends: OrderedDict[Claim, TaskEnded] = OrderedDict()
        self._seq = 0
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder.parent):
            folder.mkdir(exist_ok=True)
            self._held = owned(folder)
            assert self._held is not None, "the folder is named after this process"
            for other in sorted(folder.parent.iterdir()):
                if other != folder and other.is_dir():
                    self._take_over(other)

    def post(self, make: Callable[[int], Report]) -> Posted:
        """Take a report, made with the number given. The end of a task is durable on return,
        unless the disk refuses it."""
        with self._lock:
            self._seq += 1
            posted = Posted(make(self._seq))
            self._pending[self._seq] = posted
            if isinstance(posted.report, TaskEnded):
                seam("before end is kept")
                posted.kept = self._keep(posted.report)
                self._remember(posted.report)
                seam("end kept")
        self._wake()
        return posted

    def _remember(self, end: TaskEnded) -> None:
        self._ends[end.claim] = end
        while len(self._ends) > ENDS_REMEMBERED_MAX:
            self._ends.popitem(last=False)

    def say_end_again(self, claim: Claim) -> None:
        """Its leader does not know that it has ended, although one has acknowledged it (D2)."""
        if claim in self.unsaid_ends():
            return  # it is said until somebody acknowledges it
        with self._lock:
            end = self._ends.get(claim)
        if end is None:  # it was stopped without a word
            error = "it was stopped when its leader did not know this worker any more"
            end = TaskEnded(seq=0, claim=claim, outcome="CANCELED", error=error)
        self.post(lambda seq: end.model_copy(update={"seq": seq}))

    def _keep(self, end: TaskEnded) -> bool:
        """A full disk must not silence an execution: its end is then said from memory."""
        try:
            _write(self._file(end.seq), end.model_dump_json())
        except OSError:
            log.exception("end not kept on disk", extra={"execution": end.claim.execution})
            return False
        return True

    def _take_over(self, folder: Path) -> None:
        """Say what a dead process left unsaid. Its files go once ours are durable."""
        held = owned(folder)
        if held is None:
            return
        taken: list[Posted] = []
        for file in sorted(folder.glob("*.json")):
            try:
                left = TaskEnded.model_validate_json(file.read_bytes())
            except ValidationError:
                log.warning("report left behind can't be read", extra={"file": str(file)})
            else:
                made = self.post(lambda seq, left=left: left.model_copy(update={"seq": seq}))
                taken.append(made)
        seam("ends taken over")
        if all(posted.kept for posted in taken):
            shutil.rmtree(folder)
        os.close(held)

    def pending(self, most: int) -> Sequence[Report]:
        """The oldest reports nobody has acknowledged: no more than a coordinator takes at once."""
        with self._lock:
            oldest = list(self._pending.values())[:most]
        sizes = itertools.accumulate(posted.size_bytes for posted in oldest)
        fitting = sum(size <= REPORT_BYTES_PER_SYNC_MAX for size in sizes)
        return [posted.report for posted in oldest[: max(1, fitting)]]

    def unsaid_ends(self) -> Sequence[Claim]:
        """Executions whose end nobody has acknowledged."""
        with self._lock:
            reports = [posted.report for posted in self._pending.values()]
        return [report.claim for report in reports if isinstance(report, TaskEnded)]

    def acknowledge(self, answers: Sequence[Acknowledged]) -> None:
        for answer in answers:
            with self._lock:
                posted = self._pending.pop(answer.seq, None)
            if posted is None:
                continue
            if isinstance(posted.report, TaskEnded):
                self._file(answer.seq).unlink(missing_ok=True)
            posted.resolve(answer)

    def close(self) -> None:
        """Leave nothing behind, except reports that are still to be said."""
        if self._held is not None:
            with alone(self._folder.parent), self._lock:
                if not any(isinstance(p.report, TaskEnded) for p in self._pending.values()):
                    shutil.rmtree(self._folder)
                os.close(self._held)
                self._held = None

    def _file(self, seq: int) -> Path:
        return self._folder / f"{seq}.json"


def _write(path: Path, text: str) -> None:
    """Durable and whole: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
