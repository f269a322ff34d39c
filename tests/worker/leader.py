"""A scripted leader behind a transport, and a sync loop that speaks to it on its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from headrace.clock import SystemClock
from headrace.model.task import Claim, FailureCause, Lane, TaskKind
from headrace.protocol.messages import (
    Acknowledged,
    Answer,
    Assignment,
    Goodbye,
    Register,
    Registered,
    Sync,
)
from headrace.worker.client import LeaderClient
from headrace.worker.execution import Execution, Run
from headrace.worker.jvm_monitor import Spark
from headrace.worker.outbox import Outbox
from headrace.worker.sync_loop import SyncLoop
from tests.fakes import registration

BOUND_S = 120.0  # for a state to come, also on a busy machine
LOOK_S = 0.01
CLOCK = SystemClock()

Said = Sync | Register | Goodbye


def eventually(met: Callable[[], object]) -> None:
    end_s = CLOCK.monotonic_s() + BOUND_S
    while not met():
        assert CLOCK.monotonic_s() < end_s, "it did not happen in time"
        threading.Event().wait(LOOK_S)


def assignment(task: str = "t", attempt: int = 1, lane: Lane = Lane.SLOT) -> Assignment:
    return Assignment(claim=Claim(task, attempt), kind=TaskKind.NOOP, lane=lane, payload={})


class Leader:
    """Acknowledges every report, unless told otherwise; gives what is put into `give`."""

    def __init__(self) -> None:
        self.term, self.number = 5, 0
        self.away = False
        self.acknowledges = True
        self.lines_taken = 0  # the highest number of a log line that it takes
        self.registered = True
        self.refuses: dict[str, tuple[int, str]] = {}  # by verb: status and message
        self.refuses_as = "Refused"  # the kind
        self.give: list[Assignment] = []
        self.stop: list[Claim] = []
        self.said: list[Said] = []
        self.refused: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        verb = request.url.path.rpartition("/")[2]
        if self.away:
            raise httpx2.ConnectError("away", request=request)
        if verb in self.refuses:
            status, message = self.refuses[verb]
            self.refused.append(verb)
            error = {"kind": self.refuses_as, "message": message}
            return httpx2.Response(status, json={"error": error})
        if verb == "wait":
            threading.Event().wait(LOOK_S)
            return httpx2.Response(200, json={"rung": bool(self.give or self.stop)})
        with self._lock:
            return httpx2.Response(200, content=self._answer(verb, request.content))

    def _answer(self, verb: str, body: bytes) -> str:
        if verb == "register":
            self.said.append(Register.model_validate_json(body))
            self.registered = True
            return Registered(term=self.term, heartbeat_timeout_ms=60_000).model_dump_json()
        if verb == "goodbye":
            self.said.append(Goodbye.model_validate_json(body))
            return "{}"
        sync = Sync.model_validate_json(body)
        self.said.append(sync)
        self.number += 1
        give, self.give = (self.give, []) if self.registered else ([], self.give)
        stop, self.stop = self.stop, []
        return Answer(
            term=self.term,
            number=self.number,
            registered=self.registered,
            assignments=tuple(give),
            stop=tuple(stop),
            acknowledged=tuple(
                Acknowledged(seq=report.seq, held=True)
                for report in (sync.reports if self.acknowledges else ())
            ),
            lines=self.lines_taken,
        ).model_dump_json()

    def syncs(self) -> list[Sync]:
        return [said for said in list(self.said) if isinstance(said, Sync)]

    def registers(self) -> int:
        return sum(isinstance(said, Register) for said in list(self.said))

    def goodbyes(self) -> list[Goodbye]:
        return [said for said in list(self.said) if isinstance(said, Goodbye)]

    def ends(self) -> list[tuple[Claim, str]]:
        """Ends that were said to this leader, each once."""
        found: dict[tuple[Claim, str], None] = {}
        for said in self.syncs():
            for report in said.reports:
                if report.kind == "TASK_ENDED":
                    found[report.claim, report.outcome] = None
        return list(found)

    def rounds(self, number: int = 2) -> None:
        """Let the worker say everything at least so often from now on."""
        before = len(self.syncs())
        eventually(lambda: len(self.syncs()) >= before + number)


class Work:
    """What the tasks do: they run until they are let go, or stopped."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.running: set[str] = set()
        self.overlaps = 0
        self.cancelled: list[str] = []
        self.alive = True  # Spark's JVM
        self.death = FailureCause.LOST  # what it died of, once it is not
        self.tasks_finished: tuple[int, int] = (0, 0)  # as it says of every execution
        self.rows_written = 0
        self.asked = 0  # how often it was asked
        self.may_end = threading.Event()
        self.deaf = threading.Event()  # while set, a stopped task goes on all the same

    def ask(self, _: str) -> tuple[int, int]:
        self.asked += 1
        return self.tasks_finished

    def run(self, execution: Execution) -> Mapping[str, Any] | None:
        self.started.append(execution.id)
        task = execution.claim.task
        self.overlaps += task in self.running
        self.running.add(task)
        try:
            while not self.may_end.wait(LOOK_S):
                if not self.deaf.is_set():
                    execution.check()
        finally:
            self.running.discard(task)
        return {"done": execution.id}


class Worker:
    def __init__(
        self, leader: Leader, home: Path, *, may_replace_earlier_process: bool = True
    ) -> None:
        self.leader, self.work, self.home = leader, Work(), home
        self.errors: list[BaseException] = []
        self.leaves_when_idle: Callable[[], bool] = lambda: False
        self.runs: dict[TaskKind, Run] = dict.fromkeys(TaskKind, self.work.run)
        clients = [
            LeaderClient(["http://a:1"], token=None, transport=httpx2.MockTransport(leader))
            for _ in range(2)
        ]
        self.sync_loop = SyncLoop(
            registration("w1"),
            clients[0],
            clients[1],
            lambda posted: Outbox(home / "w1", posted=posted),
            self.runs,
            Spark(
                alive=lambda: self.work.alive,
                cancel=self.work.cancelled.append,
                rows_written=lambda _: self.work.rows_written,
                tasks_finished=self.work.ask,
                died_of=lambda: self.work.death,
            ),
            CLOCK,
            may_replace_earlier_process=may_replace_earlier_process,
            leaves_when_idle=lambda: self.leaves_when_idle(),  # noqa: PLW0108  set later
        )
        self._thread = threading.Thread(target=self._main, daemon=True)

    def _main(self) -> None:
        try:
            self.sync_loop.run()
        except BaseException as error:  # noqa: BLE001  a test looks at it
            self.errors.append(error)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.sync_loop.stop()
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()


@contextmanager
def at_work(leader: Leader, home: Path) -> Generator[Worker]:
    worker = Worker(leader, home)
    worker.start()
    try:
        yield worker
    finally:
        worker.work.deaf.clear()
        worker.stop()
    assert worker.errors == []


def given(leader: Leader, worker: Worker, *claims: Claim) -> None:
    """Give these, and wait until they run."""
    leader.give = [assignment(claim.task, claim.attempt) for claim in claims]
    eventually(lambda: {claim.execution for claim in claims} <= set(worker.work.started))
