"""A leader that dies or sleeps while it starts a worker again: one worker, and not two (R8).

Whoever starts it has little patience, so that the test need not wait, and who follows has a lot: a
worker may boot as slowly as it likes on a busy machine. The seams are taken from the source: a new
one is in the list by itself, and one that nobody passes here fails it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence

import pytest

from headrace.model.groups import LaunchStep
from headrace.store.tasks.workers import Worker
from tests.crash.cluster import Cluster, Process, free_port, until
from tests.crash.groups_stand import (
    BOOT_MAX_S,
    RESTART_MAX_S,
    TAKE_OVER_MAX_S,
    Groups,
    groups_of,
    restarting,
    stopped,
    times,
)
from tests.crash.seam_list import Seam, seams_of_a_restart

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

FOUND_LOST = Seam("coordinator/groups/reconciler.py", "resource found lost, before it is locked")
BEFORE_LAUNCH = Seam("coordinator/groups/launcher.py", "before launch")
SPAWNED = Seam("containers/detached.py", "launch spawned, before its claim was seen")
SEAMS = seams_of_a_restart()
PASSES = 3
HURRIED = restarting(2)
PATIENT = restarting(300)
NO_SECOND_TRY = (*HURRIED, "--auto-restart-max-retries", "0")


@pytest.fixture
def stand(made: Cluster) -> Iterator[Groups]:
    with groups_of(made) as begun:
        yield begun


class Two:
    """A hurried leader with a seam that is armed, a worker that was started before, and is killed,
    and a patient one who follows the leader. Workers know both."""

    second: Process

    def __init__(self, stand: Groups, *, seams: str) -> None:
        self._stand = stand
        ports = [free_port() for _ in range(2)]
        known = ("--coordinators", ",".join(f"http://127.0.0.1:{port}" for port in ports))
        starter = stand.leader("starter", *PATIENT, *known, port=ports[1])
        stand.ask(starter.url, "r1")
        self.first = stand.coordinator("first", *HURRIED, *known, seams=seams, port=ports[0])
        self._known, self._port = known, ports[1]
        self.lost = stand.await_worker("r1")
        self.started_at_ms = stand.resource("r1").started_at_ms
        starter.kill()
        stand.made.leader(self.first, limit_s=TAKE_OVER_MAX_S)
        stand.kill(self.lost)

    def follow(self, patience: Sequence[str] = PATIENT) -> Worker:
        """Until the second one leads, and has the worker of the second launch."""
        self.second = self._stand.leader("second", *patience, *self._known, port=self._port)
        worker = self._stand.await_worker("r1", launch=2)
        assert self._stand.resource("r1").started_at_ms == self.started_at_ms
        assert worker.pid != self.lost.pid
        return worker


def matrix() -> list[object]:
    return [
        pytest.param(seam, id=seam.name, marks=() if seam == SPAWNED else pytest.mark.matrix)
        for seam in SEAMS
    ]


@pytest.mark.req("R8")
@pytest.mark.parametrize("seam", matrix())
def test_a_leader_killed_between_its_intent_and_its_record_leaves_one_worker(
    stand: Groups, seam: Seam
) -> None:
    """Before its intent was committed it has left nothing, and the second decides by itself."""
    undecided = seam.file == FOUND_LOST.file
    two = Two(stand, seams=f"{seam.name}=kill")

    two.first.wait_killed(limit_s=RESTART_MAX_S)
    left = stand.resource("r1")
    expected = (1, LaunchStep.STARTED) if undecided else (2, LaunchStep.INTENDED)
    assert (left.launch, left.step) == expected

    worker = two.follow(restarting() if undecided else PATIENT)
    stand.await_passes(two.second.url, PASSES)
    stand.assert_works("r1", worker)
    assert times([two.first.log, two.second.log], "launched ", "launch=2") == 1, "recorded once"


def test_the_seams_that_stand_for_all_are_seams() -> None:
    assert {FOUND_LOST, BEFORE_LAUNCH, SPAWNED} <= set(SEAMS)


@pytest.mark.req("R8")
def test_a_leader_that_slept_between_its_intent_and_its_start_adds_no_worker(
    stand: Groups,
) -> None:
    """It wakes right before it asks the container. Its term is over by then, and it does not."""
    two = Two(stand, seams=f"{BEFORE_LAUNCH.name}=stop")
    until(two.first.stopped, limit_s=RESTART_MAX_S, what="the leader sleeps")
    worker = two.follow()
    launched = stand.resource("r1")

    two.first.signal(signal.SIGCONT)

    until(
        lambda: two.first.said("launching broken off"), limit_s=BOOT_MAX_S, what="it finds that out"
    )
    stand.await_passes(two.second.url, PASSES)
    stand.assert_works("r1", worker)
    assert stand.resource("r1") == launched


@pytest.mark.req("R8")
def test_of_two_coordinators_only_the_leader_starts_a_worker_again(stand: Groups) -> None:
    first = stand.leader("first", *restarting())
    second = stand.coordinator("second", *restarting())
    stand.ask(second.url, "r1")

    stand.kill(stand.await_worker("r1"))

    worker = stand.await_worker("r1", launch=2)
    stand.await_passes(second.url, PASSES)
    stand.assert_works("r1", worker)
    assert times([first.log], "resource is started again", "resource=r1") == 1
    for words in ("resource has no worker", "resource is started again", "launched "):
        assert not second.said(words)
    assert first.leads()


SLEEPS_AT_FIRST = """
local { type = local, properties { export.HEADRACE_SEAMS = "launch claimed=stop" } }
"""


@pytest.mark.req("R4", "R8")
def test_a_worker_that_registers_between_check_and_removal_stays(stand: Groups) -> None:
    """It sleeps before it registers. The leader has found it lost and is about to give it up, and
    sleeps too; the next one has more patience."""
    port = free_port()
    known = (
        *stand.containers("slow.conf", SLEEPS_AT_FIRST),
        *("--coordinators", f"http://127.0.0.1:{port}"),  # the one that it asks
    )
    first = stand.leader("first", *NO_SECOND_TRY, *known, seams=f"{FOUND_LOST.name}=stop")
    second = stand.coordinator("second", *PATIENT, *known, port=port)
    stand.ask(second.url, "r1")
    until(lambda: _sleeps(first), limit_s=RESTART_MAX_S, what="the leader sleeps")
    stand.made.leader(second, limit_s=TAKE_OVER_MAX_S)
    launched = stand.await_resource("r1", lambda found: found.step is LaunchStep.STARTED)
    pid = int(launched.properties["pid"])
    until(lambda: stopped(pid), limit_s=BOOT_MAX_S, what="the worker sleeps")
    assert stand.worker_of("r1") is None

    os.kill(pid, signal.SIGCONT)
    worker = stand.await_worker("r1")
    assert worker.pid == pid
    first.signal(signal.SIGCONT)

    until(lambda: not first.leads(), limit_s=TAKE_OVER_MAX_S, what="the first one knows")
    stand.await_passes(second.url, PASSES)
    stand.assert_works("r1", worker)
    assert not stand.resource("r1").wanted_released
    assert stand.given_up() == []


def _sleeps(leader: Process) -> bool:
    """Or slept: on SQLite it sat on the file's lock, and its successor had to kill it."""
    return leader.popen.poll() == -signal.SIGKILL or leader.stopped()
