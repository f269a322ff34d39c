"""Whose a launch is: one process, told from all others that had or will have its pid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.containers import launch_claims
from headrace.containers.container import LaunchState
from headrace.containers.launch_claims import start_of
from headrace.errors import BadSetting
from tests.cli.machine import is_gone
from tests.containers.launches import ended_after, launch_of, stand_ins, started, wait_until_works

ASKS = "import os; from headrace.containers.launch_claims import start_of; print(start_of"


@pytest.mark.parametrize("other", ["ended", "another program's"])
def test_a_claim_of_a_process_that_is_gone_is_not_taken_for_alive(
    tmp_path: Path, other: str
) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    with ended_after(container, launch):
        container.start(launch)
        wait_until_works(container, launch)
        claim = launch_claims.read(container.folder(launch))
    assert claim is not None
    assert claim.pid is not None
    if other == "another program's":  # its pid was given out again, to this very process
        claim = claim.model_copy(update={"pid": os.getpid()})
    later = launch_of(2)
    folder = container.folder(later)
    folder.mkdir()
    (folder / launch_claims.CLAIM).write_text(claim.model_dump_json())

    assert container.status(later).state is LaunchState.ENDED
    container.stop(later, grace_s=30)
    assert not is_gone(os.getpid())


def test_a_process_has_one_start_whoever_asks() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", f"{ASKS}(os.getpid()), flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        said = child.stdout.readline().strip()

        assert start_of(child.pid) == said
        assert start_of(os.getpid()) != said
        child.communicate("\n")
    assert start_of(child.pid) is None


def test_a_claim_that_can_not_be_read_is_told_and_nothing_is_started(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    folder = container.folder(launch)
    folder.mkdir(parents=True)
    (folder / launch_claims.CLAIM).write_text("{")

    with pytest.raises(BadSetting, match=r"claim\.json can not be read: it is no claim"):
        container.start(launch)

    assert started(container, launch) == []


def test_a_home_that_can_not_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "containers").write_text("in the way")

    with pytest.raises(BadSetting, match="can not be made: Not a directory; give --home a folder"):
        stand_ins(tmp_path).start(launch_of())
