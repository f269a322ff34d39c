"""With a home that machines share: a launch of another one is told as such, and never touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.containers import launch_claims
from headrace.containers.container import Elsewhere, Launch, LaunchState, LaunchStatus
from headrace.containers.detached import LOG, DetachedWorkers
from headrace.containers.launch_claims import LaunchClaim, start_of
from headrace.errors import Unavailable
from tests.cli.machine import is_gone
from tests.containers.launches import launch_of, stand_ins


def claimed_elsewhere(container: DetachedWorkers, launch: Launch, *, withdrawn: bool) -> Path:
    """Its pid and its start are those of this process, which has to survive the test."""
    folder = container.folder(launch)
    folder.mkdir(parents=True)
    mine = start_of(os.getpid())
    assert mine is not None
    pid = None if withdrawn else os.getpid()
    claim = LaunchClaim(pid=pid, started=mine, session=os.getsid(0), host="elsewhere")
    (folder / launch_claims.CLAIM).write_text(claim.model_dump_json())
    return folder


def test_a_process_of_another_host_is_left_to_that_host(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    claimed_elsewhere(container, launch, withdrawn=False)

    status = container.status(launch)

    assert status.state is LaunchState.UNKNOWN
    assert status.said == (
        f"it is process {os.getpid()} of host elsewhere, which can not be asked from here"
    )
    assert container.start(launch).properties["host"] == "elsewhere"
    with pytest.raises(Elsewhere, match=r"on host elsewhere.* end it there") as told:
        container.stop(launch, grace_s=0)
    assert isinstance(told.value, Unavailable)
    assert not is_gone(os.getpid())


def test_its_log_is_read_where_the_home_is_shared(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    folder = claimed_elsewhere(container, launch, withdrawn=False)
    (folder / LOG).write_text("one\ntwo\n")

    assert container.logs(launch, lines=1) == ["two"]


def test_one_whose_end_was_seen_there_has_ended_for_everybody(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    folder = claimed_elsewhere(container, launch, withdrawn=False)
    (folder / LOG).write_text("last words\n")
    launch_claims.record_end(folder, 71)

    container.stop(launch, grace_s=0)

    assert container.status(launch) == LaunchStatus(LaunchState.ENDED, 71, "last words")
    assert not is_gone(os.getpid())


def test_one_that_was_stopped_there_before_it_began_is_no_process_anywhere(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    claimed_elsewhere(container, launch, withdrawn=True)

    container.stop(launch, grace_s=0)

    assert container.status(launch).state is LaunchState.ENDED
