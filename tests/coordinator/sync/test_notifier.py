"""The bell: wakes those for whom there is something, and no more of them than there is work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Thread

import pytest

from headrace.coordinator.sync import notifier as bell_module
from headrace.coordinator.sync.notifier import WorkerNotifier
from headrace.model.task import Lane

LONG_S, SHORT_S = 20.0, 0.05
SLOT = frozenset({Lane.SLOT})
BOTH = frozenset({Lane.SLOT, Lane.CONTROL})

Parked = dict[str, "asyncio.Task[bool]"]


async def park(
    bell: WorkerNotifier, *names: str, group: str = "g", free: frozenset[Lane] = SLOT
) -> Parked:
    tasks = {
        name: asyncio.create_task(bell.wait(name, group, free, timeout_s=LONG_S)) for name in names
    }
    await asyncio.sleep(0)  # each of them reaches its wait
    return tasks


async def rung(parked: Parked) -> list[str]:
    """Who was woken, once everything that was called for has happened."""
    for _ in range(5):
        await asyncio.sleep(0)
    return sorted(name for name, task in parked.items() if task.done() and task.result())


def play(scene: Callable[[WorkerNotifier], Awaitable[None]]) -> None:
    async def whole() -> None:
        bell = WorkerNotifier()
        await scene(bell)
        bell.wake_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(whole())


@pytest.mark.parametrize(("work", "woken"), [(1, 1), (2, 2), (9, 3)])
def test_only_as_many_are_woken_as_there_is_work(work: int, woken: int) -> None:
    async def scene(bell: WorkerNotifier) -> None:
        parked = await park(bell, "w1", "w2", "w3")
        bell.wake_for({("g", Lane.SLOT): work})
        assert len(await rung(parked)) == woken

    play(scene)


def test_nobody_is_woken_for_another_group_or_a_lane_that_is_full() -> None:
    async def scene(bell: WorkerNotifier) -> None:
        other = await park(bell, "w1", group="other")
        full = await park(bell, "w2", free=frozenset())
        slots = await park(bell, "w3")
        bell.wake_for({("g", Lane.CONTROL): 5})
        bell.wake_for({})
        assert await rung(other | full | slots) == []

    play(scene)


def test_a_worker_with_two_free_lanes_is_woken_once() -> None:
    async def scene(bell: WorkerNotifier) -> None:
        both = await park(bell, "w1", free=BOTH)
        second = await park(bell, "w2", free=BOTH)
        bell.wake_for({("g", Lane.CONTROL): 1, ("g", Lane.SLOT): 1})
        assert await rung(both | second) == ["w1", "w2"]

    play(scene)


def test_one_worker_is_woken_by_name() -> None:
    async def scene(bell: WorkerNotifier) -> None:
        parked = await park(bell, "w1", "w2")
        bell.wake_worker("w2")
        bell.wake_worker("nobody")
        assert await rung(parked) == ["w2"]

    play(scene)


def test_everybody_is_woken_when_the_term_ends() -> None:
    async def scene(bell: WorkerNotifier) -> None:
        parked = await park(bell, "w1", "w2", "w3", free=frozenset())
        bell.wake_all()
        assert await rung(parked) == ["w1", "w2", "w3"]

    play(scene)


def test_a_newer_wait_of_the_same_worker_ends_the_older_one() -> None:
    async def scene(bell: WorkerNotifier) -> None:
        older = await park(bell, "w1")
        newer = await park(bell, "w1")
        assert await rung(older) == ["w1"]
        assert await rung(newer) == []
        bell.wake_worker("w1")
        assert await rung(newer) == ["w1"]

    play(scene)


def test_a_wait_ends_with_its_time_and_is_forgotten() -> None:
    async def scene(bell: WorkerNotifier) -> None:
        assert not await bell.wait("w1", "g", SLOT, timeout_s=SHORT_S)
        parked = await park(bell, "w2")
        bell.wake_for({("g", Lane.SLOT): 1})
        assert await rung(parked) == ["w2"]

    play(scene)


def test_too_many_waits_are_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell_module, "WAITS_MAX", 1)

    async def scene(bell: WorkerNotifier) -> None:
        first = await park(bell, "w1")
        second = await park(bell, "w2")
        assert await rung(first | second) == ["w2"]

    play(scene)


def test_a_bell_may_be_rung_from_another_thread_and_before_anybody_waits() -> None:
    async def scene(bell: WorkerNotifier) -> None:
        bell.wake_all()
        parked = await park(bell, "w1")
        thread = Thread(target=bell.wake_worker, args=["w1"])
        thread.start()
        assert await asyncio.wait_for(parked["w1"], LONG_S)
        thread.join()

    play(scene)
