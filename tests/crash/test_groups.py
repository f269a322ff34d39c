"""Workers that die come back, with real processes and a real local container (R1 to R4, R7).

What a killed leader leaves behind is in test_group_seams.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.cli.exits import REFUSED
from headrace.client.client import Client
from headrace.model.groups import LaunchStep
from tests.cli.machine import headrace
from tests.crash.cluster import Cluster, until
from tests.crash.groups_stand import (
    BOOT_MAX_S,
    GROUP,
    RESTART_MAX_S,
    Groups,
    groups_of,
    restarting,
    times,
)
from tests.crash.jobs import await_end, csv, ids_in, job, job_text, numbers, paced, submit_text
from tests.crash.stand import SPARK_START_MAX_S

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

# Of one with Spark, which takes long to boot on a busy machine.
SPARK_GRACE_S = 30
DEFAULT = "default"  # the group of jobs
SPLITS, ROWS = 12, 60  # a row group every half second
EPOCH_MS = 500
# Each start is over before the next, also on a busy machine.
FAILING_GRACE_S = 5
RETRIES = 5
PASSES = 4


@pytest.fixture
def stand(made: Cluster) -> Iterator[Groups]:
    with groups_of(made) as begun:
        yield begun


def numbered(made: Cluster, name: str, *pace: str) -> str:
    return job_text(
        [numbers("made", ROWS, *pace)],
        [csv(["made"], made.folder / name)],
        f"checkpoint.interval = {EPOCH_MS}",
    )


@pytest.mark.req("R1", "R4")
def test_a_killed_worker_comes_back_and_goes_on_with_what_was_lost(made: Cluster) -> None:
    with groups_of(made, under=()) as stand:
        url = stand.leader("coordinator", *restarting(SPARK_GRACE_S)).url
        stand.ask(url, "r1", group=DEFAULT)
        lost = submit_text(url, numbered(made, "lost", paced(SPLITS, EPOCH_MS)), key="lost")
        killed = stand.await_worker("r1", limit_s=SPARK_START_MAX_S)
        first = stand.resource("r1")
        until(lambda: job(url, lost).pipelines[0].epoch > 1, limit_s=300, what="the job has begun")

        stand.kill(killed)

        worker = stand.await_worker("r1", launch=2, limit_s=SPARK_START_MAX_S)
        stand.assert_works("r1", worker)
        again = stand.resource("r1")
        assert worker.pid != killed.pid
        left = [each.name for each in (stand.home / "scratch").iterdir()]
        assert left == [worker.id], "what the killed JVM kept for a while is gone"
        assert again.started_at_ms == first.started_at_ms
        assert (again.launched_at_ms or 0) >= (first.launched_at_ms or 0) + SPARK_GRACE_S * 1000
        later = submit_text(url, numbered(made, "later"), key="later")
        for name, job_id in (("lost", lost), ("later", later)):
            await_end(url, job_id)
            assert ids_in(made.folder / name) == list(range(1, ROWS + 1))
        stand.assert_works("r1", worker)


@pytest.mark.req("R3")
def test_five_starts_that_fail_in_a_row_end_in_removal_and_the_reason_is_told(
    stand: Groups,
) -> None:
    """Somebody has misspelt a setting that the container hands to its workers."""
    wrong = "local { type = local, properties { export.HEADRACE_LOG_LEVEL = verbose } }"
    options = (*restarting(FAILING_GRACE_S), *stand.containers("wrong.conf", wrong))
    leader = stand.leader("coordinator", *options)

    stand.ask(leader.url, "r1")

    limit_s = (RETRIES + 1) * FAILING_GRACE_S + BOOT_MAX_S
    until(lambda: stand.find("r1") is None, limit_s=limit_s, what="its record is gone")
    [told] = stand.given_up()
    assert (told.resource, told.attempts) == ("r1", RETRIES)
    assert f"its process ended with code {REFUSED} before it had begun: " in told.reason
    assert "HEADRACE_LOG_LEVEL" in told.reason, "its last line"
    assert stand.processes("r1") == []
    launches = stand.home / "containers" / "local" / "r1"
    assert sorted(each.name for each in launches.iterdir()) == list("123456")
    given_up = f"gave up after {RETRIES} attempts"
    assert times([leader.log], "resource given up", f"{given_up}: {told.reason}") == 1
    shown = headrace("group", "show", GROUP, "--coordinator", leader.url, cwd=stand.home)
    [line] = [each for each in shown.stdout.splitlines() if given_up in each]
    assert told.reason in line
    stand.await_passes(leader.url, PASSES)
    assert len(list(launches.iterdir())) == RETRIES + 1, "nobody starts it any more"


@pytest.mark.req("R2")
def test_by_default_a_killed_worker_is_seen_and_nothing_is_done(stand: Groups) -> None:
    leader = stand.leader("coordinator", "--auto-restart-grace-period", "1")
    stand.ask(leader.url, "r1")
    killed = stand.await_worker("r1")
    before = stand.resource("r1")

    stand.kill(killed)
    stand.await_resource("r1", lambda found: found.error is not None)
    stand.await_passes(leader.url, PASSES)

    after = stand.resource("r1")
    assert after.orphaned_since_ms is not None
    assert (after.launch, after.attempts, after.step) == (1, 0, LaunchStep.STARTED)
    assert (after.wanted_released, after.properties) == (False, before.properties)
    assert stand.processes("r1") == []
    [shown] = stand.view(leader.url).resources
    assert shown.next.startswith("nothing: auto-restart is off. ")
    assert shown.error is not None
    assert shown.error.startswith(f"killed by signal {signal.SIGKILL:d}")


LOCAL = "local { type = local }"
SPARE = "spare { type = local }"


@pytest.mark.req("R7")
def test_a_container_that_was_taken_out_isolates_its_orphan_and_no_other(stand: Groups) -> None:
    both = stand.containers("both.conf", f"{LOCAL}\n{SPARE}")
    one = stand.containers("one.conf", LOCAL)
    old = stand.leader("old", *restarting(), *both)
    stand.ask(old.url, "r1", container="spare")
    stand.ask(old.url, "r2")
    workers = [stand.await_worker(name) for name in ("r1", "r2")]
    old.signal(signal.SIGTERM)
    assert old.popen.wait(RESTART_MAX_S) == 0

    new = stand.leader("new", *restarting(), *one, port=int(old.url.rpartition(":")[2]))
    for worker in workers:
        stand.kill(worker)

    stand.assert_works("r2", stand.await_worker("r2", launch=2))
    stand.await_passes(new.url, PASSES)
    left = stand.resource("r1")
    assert (left.launch, left.attempts, left.wanted_released) == (1, 0, False)
    assert stand.processes("r1") == []
    assert times([new.log], "resource left alone", "resource=r1") == 1
    with closing(Client([new.url])) as client:
        shown = client.resource("r1")
    assert "container 'spare' is no longer configured" in shown.next
