"""Faults while jobs run: how each is recovered from, and what is there at the end."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults import DECK, Struck
from tests.chaos.load import BATCHES_OPEN_MAX, NAMESPACE, ROWS_A_SPLIT, Load, compactions
from tests.chaos.world import World
from tests.crash.cluster import until
from tests.crash.jobs import staged_in
from tests.crash.lake import leftovers

STREAMS = 2
LOOK_S = 0.5
FIRST_EPOCHS_MAX_S = 300.0  # until the streams run, with Spark started on a busy machine
RECOVERY_MAX_S = 300.0  # a worker's heartbeat timeout, another's Spark, and what it runs again
REST_MAX_S = 600.0  # until all batches have ended, once nothing is done to them any more
TABLES_REST_MAX_S = 300.0
PAUSE_S = (1.0, 6.0)  # between a recovery and the next fault
TOGETHER = 0.3  # how often a fault comes on top of another
BATCH_EVERY_S = 25.0


@dataclass
class Recovery:
    """A fault, and how long it took until each stream had completed two further epochs."""

    faults: tuple[str, ...]
    seconds: float | None  # None: it did not recover in time


@dataclass
class Verdict:
    """Of one target: what its source gave, and what is there."""

    job: str
    target: str
    expected: int
    found: int
    lost: int
    doubled: int

    @property
    def is_right(self) -> bool:
        return self.lost == self.doubled == 0 and self.expected == self.found


def verdict_of(job: str, target: str, rows: Sequence[int], *, last: int) -> Verdict:
    """Its source gave the numbers from 1 to `last`, each once."""
    lost, doubled = len(set(range(1, last + 1)) - set(rows)), len(rows) - len(set(rows))
    return Verdict(job, target, last, len(rows), lost, doubled)


@dataclass
class Report:
    recoveries: list[Recovery] = field(default_factory=list[Recovery])
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    problems: list[str] = field(default_factory=list[str])
    compactions: dict[str, int] = field(default_factory=dict[str, int])
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    batches: int = 0


class Campaign:
    def __init__(self, world: World, *, seed: int, say: Callable[[str], None]) -> None:
        self._world, self._rng, self._say = world, random.Random(seed), say
        self._streams = [Load(f"stream{n + 1}", streams=True, world=world) for n in range(STREAMS)]
        self._batches: list[Load] = []
        self._pending: list[tuple[float, Struck]] = []  # faults that end later, and when
        self._next_batch_s, self._takes_batches = 0.0, True
        self._deck = self._dealt()
        self.report = Report()

    def run(self, minutes: float) -> Report:
        for stream in self._streams:
            until(stream.submit, limit_s=FIRST_EPOCHS_MAX_S, what=f"{stream.name} is taken")
        self._await_epochs(2, limit_s=FIRST_EPOCHS_MAX_S)
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s:
            self._strike_and_recover()
            self._attend(self._rng.uniform(*PAUSE_S))
        self._rest()
        self._judge()
        return self.report

    def _dealt(self) -> Iterator[Callable[[World, random.Random], Struck | None]]:
        while True:
            cards = list(DECK)
            self._rng.shuffle(cards)
            yield from cards

    def _strike_and_recover(self) -> None:
        before_s = time.monotonic()
        struck = [self._strike()]
        if self._rng.random() < TOGETHER:
            self._attend(self._rng.uniform(0, 3))
            struck.append(self._strike())
        kinds = tuple(fault.kind for fault in struck if fault is not None)
        if not kinds:
            return
        recovered = self._await_epochs(2, limit_s=RECOVERY_MAX_S)
        took_s = time.monotonic() - before_s if recovered else None
        self.report.recoveries.append(Recovery(kinds, took_s))
        if took_s is None:
            self.report.problems.append(f"no recovery in {RECOVERY_MAX_S:g} s from {kinds}")
        self._say(f"   recovered in {took_s:.1f} s" if took_s else "   NOT RECOVERED")

    def _strike(self) -> Struck | None:
        fault = next(self._deck)
        if self._pending:  # what is stopped can't be asked, and a database can't crash twice
            until(self._attended, limit_s=RECOVERY_MAX_S, what="the faults before end")
        struck = fault(self._world, self._rng)
        if struck is not None:
            self._say(f"{struck.kind}: {struck.whom}")
            self._pending.append((time.monotonic() + struck.ends_after_s, struck))
        return struck

    def _attended(self) -> bool:
        self._tick()
        return not self._pending

    def _attend(self, for_s: float) -> None:
        end_s = time.monotonic() + for_s
        while time.monotonic() < end_s:
            self._tick()
            time.sleep(LOOK_S)

    def _tick(self) -> None:
        """What goes on all the time: faults end, the dead are started again, batches come."""
        now_s = time.monotonic()
        for at in [each for each in self._pending if each[0] <= now_s]:
            self._pending.remove(at)
            at[1].end()
        self._world.revive()
        if self._takes_batches and now_s >= self._next_batch_s and not self._pending:
            self._begin_batch()
            self._next_batch_s = now_s + BATCH_EVERY_S

    def _begin_batch(self) -> None:
        for batch in self._batches:
            if not batch.has_ended:
                batch.look()
        if sum(not batch.has_ended for batch in self._batches) >= BATCHES_OPEN_MAX:
            return
        batch = Load(f"batch{len(self._batches) + 1}", streams=False, world=self._world)
        if batch.submit():
            self._batches.append(batch)

    def _await_epochs(self, further: int, *, limit_s: float) -> bool:
        """Until each stream has completed so many more. False: not within the limit."""
        targets: dict[str, int] = {}
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            self._tick()
            if not self._pending:
                for stream in self._streams:
                    if stream.look() is not None:
                        targets.setdefault(stream.name, stream.epoch + further)
                reached = [s.epoch >= targets.get(s.name, s.epoch + 1) for s in self._streams]
                if all(reached):
                    return True
            time.sleep(LOOK_S)
        return False

    def _rest(self) -> None:
        """Nothing is done any more: what was begun ends, and what runs is still running."""
        until(self._attended, limit_s=RECOVERY_MAX_S, what="the faults end")
        self._takes_batches = False
        self._say("no more faults; batches end")
        until(self._batches_ended, limit_s=REST_MAX_S, what="the batches end", every_s=LOOK_S)
        self._await_epochs(2, limit_s=RECOVERY_MAX_S)
        for stream in self._streams:
            view = stream.look()
            if view is None or (view.status, view.run) != ("RUNNING", 1):
                self.report.problems.append(
                    f"{stream.name} is not RUNNING in its first run: {view}"
                )
        self._say("streams are cancelled")
        for stream in self._streams:
            until(lambda s=stream: _is_cancelled(s), limit_s=REST_MAX_S, what="a cancel is taken")
        for stream in self._streams:
            until(
                lambda s=stream: s.look() is not None and s.has_ended,
                limit_s=REST_MAX_S,
                what=f"{stream.name} ends",
                every_s=LOOK_S,
            )

    def _batches_ended(self) -> bool:
        self._world.revive()
        for batch in self._batches:
            if not batch.has_ended:
                batch.look()
        return all(batch.has_ended for batch in self._batches)

    def _judge(self) -> None:
        report, world = self.report, self._world
        report.problems += world.ended_by_themselves
        for load in (*self._streams, *self._batches):
            self._compare(load)
            report.compactions[load.name] = compactions(world, load.name)
        report.epochs = {stream.name: stream.epoch for stream in self._streams}
        report.batches = len(self._batches)
        report.problems += self._left_behind()
        if not report.batches or min(report.epochs.values()) < len(report.recoveries):
            report.problems.append("too little was done for a verdict")

    def _compare(self, load: Load) -> None:
        assert load.last is not None
        if not load.streams and load.last.status != "FINISHED":
            self.report.problems.append(f"{load.name} is {load.last.status}: {load.last.error}")
        by_target = load.rows_by_target()
        # A stream gave all up to the highest that any of its sinks has.
        highest = max((rows[-1] for rows in by_target.values() if rows), default=0)
        last = highest if load.streams else load.splits * ROWS_A_SPLIT
        for target, rows in by_target.items():
            self.report.verdicts.append(verdict_of(load.name, target, rows, last=last))

    def _left_behind(self) -> Sequence[str]:
        """What no job and no table refers to. Rewrites are under way until the tables rest."""
        loads = (*self._streams, *self._batches)
        names = [f"{NAMESPACE}.{load.name}" for load in loads]

        def staged() -> list[str]:
            return [file for name in names for file in leftovers(self._world.warehouse, name)]

        end_s = time.monotonic() + TABLES_REST_MAX_S
        while (found := staged()) and time.monotonic() < end_s:
            self._world.revive()
            time.sleep(LOOK_S)
        folders = [load.folder for load in loads]
        found += staged_in(folders) + empty_below(folders)
        found += self._world.database.stages()
        return [f"left behind: {name}" for name in found]


def empty_below(folders: Sequence[Path]) -> list[str]:
    """Folders of stages that were tidied up only half."""
    walked = (found for folder in folders for found in os.walk(folder / "_headrace"))
    return [at for at, inner, files in walked if not inner and not files]


def _is_cancelled(stream: Load) -> bool:
    assert stream.id is not None
    with stream.world.client() as client:
        client.cancel_job(stream.id)
    return True
