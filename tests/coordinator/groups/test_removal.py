"""A group that is removed takes its workers along, also those that are well."""

from __future__ import annotations

import pytest

from headrace.containers.launching import Launch
from headrace.coordinator.groups.launching import ASK_PAUSE_S
from headrace.store import groups
from headrace.store.engine import reading
from tests.coordinator.groups.stand import GROUP, Care, Place


@pytest.mark.req("R3")
def test_a_removed_group_ends_workers_that_are_registered(care: Care, place: Place) -> None:
    care.resource()
    care.look()
    care.register("r1", 1)
    care.look()
    care.group(wanted_removed=1)

    for _ in range(3):  # released and drained, stopped, forgotten
        care.look()

    assert place.stopped == [("r1", 1)]
    with reading(care.store) as conn:
        assert groups.get(conn, GROUP) is None


def test_a_stop_that_breaks_off_is_said_again_after_a_pause(
    care: Care, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Launch] = []

    def broken(launch: Launch, *, grace_s: float) -> None:
        del grace_s
        asked.append(launch)
        raise OSError("no answer")

    care.resource()
    care.look()
    with monkeypatch.context() as away:
        away.setattr(Place, "stop", staticmethod(broken))
        care.group(wanted_removed=1)
        care.looks(seconds=ASK_PAUSE_S * 2, step_s=1)

    assert 2 <= len(asked) <= 3
    care.looks(seconds=ASK_PAUSE_S * 2, step_s=1)
    assert place.stopped == [("r1", 1)]
