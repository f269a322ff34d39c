"""Reports wait for a leader; the end of a task also outlives its process."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import ClaimLost
from headrace.model.task import Claim
from headrace.protocol.messages import Acknowledged, EpochPlanned, Report, TaskEnded
from headrace.seams import arm
from headrace.worker import outbox as outbox_module
from headrace.worker.outbox import Outbox
from tests.children import child, heard

CLAIM = Claim("t", 1)
BOUND_S = 120.0  # for a state to come, also on a busy machine
STARTERS = 6


def end(claim: Claim = CLAIM) -> Callable[[int], Report]:
    return lambda seq: TaskEnded(seq=seq, claim=claim, outcome="SUCCESS")


def planned(seq: int) -> Report:
    return EpochPlanned(seq=seq, claim=CLAIM, epoch=1, plan={})


def opened(home: Path, name: str) -> Outbox:
    return Outbox(home / name, posted=lambda: None)


def acknowledge(outbox: Outbox, *, held: bool = True) -> None:
    outbox.acknowledge([Acknowledged(seq=r.seq, held=held) for r in outbox.pending(100)])


def said(outbox: Outbox) -> list[Claim]:
    return sorted(report.claim for report in outbox.pending(100))


def files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


# A process that keeps the ends of two tasks, and lives until it is told.
KEEPER = """
import sys
from pathlib import Path
from headrace.model.task import Claim
from headrace.protocol.messages import TaskEnded
from headrace.worker.outbox import Outbox
outbox = Outbox(Path(sys.argv[1]) / "dead", posted=lambda: None)
for attempt in (1, 2):
    claim = Claim("t", attempt)
    outbox.post(lambda seq: TaskEnded(seq=seq, claim=claim, outcome="SUCCESS"))
print("kept", flush=True)
sys.stdin.read()
"""

DIES_TAKING_OVER = """
import sys
from pathlib import Path
from headrace.seams import arm_from
from headrace.worker.outbox import Outbox
arm_from("ends taken over=kill")
Outbox(Path(sys.argv[1]) / "second", posted=lambda: None)
"""


@pytest.mark.req("D4")
def test_an_end_outlives_its_process_and_the_next_one_says_it(tmp_path: Path) -> None:
    with child(KEEPER, str(tmp_path)) as keeper:
        assert heard(keeper) == "kept"
        beside = opened(tmp_path, "beside")
        assert said(beside) == []  # its owner lives, and says it itself
        assert (tmp_path / "dead").is_dir()
        keeper.kill()
        keeper.wait()

    after = opened(tmp_path, "after")

    assert said(after) == [Claim("t", 1), Claim("t", 2)]
    assert after.unacknowledged_ends() == [report.claim for report in after.pending(100)]
    assert not (tmp_path / "dead").exists()
    acknowledge(after)
    after.close()
    beside.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("D4")
def test_an_end_survives_a_second_process_that_dies_while_it_takes_it_over(tmp_path: Path) -> None:
    left_by_a_dead_process(tmp_path, "dead")
    with child(DIES_TAKING_OVER, str(tmp_path)) as second:
        assert second.wait(BOUND_S) == -signal.SIGKILL

    assert set(said(opened(tmp_path, "third"))) == {CLAIM}


@pytest.mark.req("D4")
def test_what_was_taken_over_is_durable_before_the_first_copy_goes(tmp_path: Path) -> None:
    left_by_a_dead_process(tmp_path, "dead")
    seen: list[list[str]] = []
    arm("ends taken over", lambda: seen.append(files(tmp_path)))

    opened(tmp_path, "second")

    assert seen == [["dead/1.json", "dead/lock", "second/1.json", "second/lock"]]


def left_by_a_dead_process(home: Path, name: str) -> Path:
    folder = home / name
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "1.json").write_text(end()(1).model_dump_json())
    return folder


def test_a_file_that_was_half_written_stops_nobody(tmp_path: Path) -> None:
    folder = left_by_a_dead_process(tmp_path, "dead")
    (folder / "2.tmp").write_text('{"kind": "TASK_EN')
    (folder / "3.json").write_text('{"kind": "TASK_EN')

    after = opened(tmp_path, "after")

    assert said(after) == [CLAIM]
    assert not folder.exists()


def test_a_file_beside_the_folders_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    opened(tmp_path, "w1").close()

    assert files(tmp_path) == ["notes.txt"]


def test_an_end_is_on_disk_before_anybody_hears_of_it(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    outbox = Outbox(tmp_path / "w1", posted=lambda: seen.append(files(tmp_path)))

    outbox.post(end())
    outbox.post(planned)

    assert seen == [["w1/1.json", "w1/lock"]] * 2


def test_a_file_goes_with_its_acknowledgement_and_not_before(tmp_path: Path) -> None:
    outbox = opened(tmp_path, "w1")
    outbox.post(end())
    outbox.post(end(Claim("t", 2)))

    outbox.acknowledge([Acknowledged(seq=1, held=True), Acknowledged(seq=99, held=True)])
    outbox.acknowledge([Acknowledged(seq=1, held=True)])

    assert files(tmp_path) == ["w1/2.json", "w1/lock"]
    assert said(outbox) == [Claim("t", 2)]


def test_reports_are_said_oldest_first_and_no_more_than_asked_for(tmp_path: Path) -> None:
    outbox = opened(tmp_path, "w1")
    for attempt in range(1, 6):
        outbox.post(end(Claim("t", attempt)))

    assert [report.seq for report in outbox.pending(3)] == [1, 2, 3]
    assert len(outbox.unacknowledged_ends()) == 5


def test_closing_leaves_nothing_behind(tmp_path: Path) -> None:
    outbox = opened(tmp_path, "w1")
    outbox.post(end())
    outbox.post(planned)
    outbox.acknowledge([Acknowledged(seq=1, held=True)])

    outbox.close()
    outbox.close()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("D4")
def test_closing_keeps_an_end_that_nobody_has_heard(tmp_path: Path) -> None:
    first = opened(tmp_path, "w1")
    first.post(end())
    first.close()

    assert said(opened(tmp_path, "w2")) == [CLAIM]


def test_many_that_start_and_stop_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    for number in range(3):
        left_by_a_dead_process(tmp_path, f"dead-{number}")
    start = threading.Barrier(STARTERS)

    def live(number: int) -> list[Claim]:
        start.wait(BOUND_S)
        outbox = opened(tmp_path, f"w{number}")
        found = said(outbox)
        acknowledge(outbox)
        outbox.close()
        return found

    with ThreadPoolExecutor(STARTERS) as pool:
        found = [claim for claims in pool.map(live, range(STARTERS)) for claim in claims]

    assert found == [CLAIM] * 3
    assert list(tmp_path.iterdir()) == []


def test_an_execution_waits_until_its_report_is_acknowledged(tmp_path: Path) -> None:
    outbox = opened(tmp_path, "w1")
    posted = outbox.post(planned)
    looks: list[int] = []

    def answer_at_the_second_look() -> None:
        looks.append(1)
        if len(looks) == 2:
            outbox.acknowledge([Acknowledged(seq=1, held=True, plan={"a": 1})])

    assert posted.wait(answer_at_the_second_look).plan == {"a": 1}


def test_an_execution_whose_claim_is_lost_learns_it(tmp_path: Path) -> None:
    outbox = opened(tmp_path, "w1")
    posted = outbox.post(planned)
    acknowledge(outbox, held=False)

    with pytest.raises(ClaimLost, match="attempt 1 of task 't' is no longer the current one"):
        posted.wait(lambda: None)


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_an_end_that_the_disk_refuses_is_said_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = opened(tmp_path, "w1")
    monkeypatch.setattr(outbox_module, "_write", no_space)

    outbox.post(end())

    assert said(outbox) == outbox.unacknowledged_ends() == [CLAIM]
    assert "end not kept on disk" in caplog.text
    acknowledge(outbox)
    outbox.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("D4")
def test_an_end_that_can_not_be_copied_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_by_a_dead_process(tmp_path, "dead")
    with monkeypatch.context() as patched:
        patched.setattr(outbox_module, "_write", no_space)
        assert said(opened(tmp_path, "second")) == [CLAIM]

    assert (tmp_path / "dead" / "1.json").exists()


@pytest.mark.parametrize(("limit_bytes", "said_at_once"), [(10**6, 3), (250, 2), (1, 1)])
def test_no_more_is_said_at_once_than_a_coordinator_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_bytes: int, said_at_once: int
) -> None:
    """A single one is said however large it is: who refuses it says why."""
    monkeypatch.setattr(outbox_module, "REPORT_BYTES_PER_SYNC_MAX", limit_bytes)
    outbox = opened(tmp_path, "w1")
    for _ in range(3):
        outbox.post(planned)
    assert 80 < len(planned(1).model_dump_json()) < 125

    assert [report.seq for report in outbox.pending(100)] == [1, 2, 3][:said_at_once]
