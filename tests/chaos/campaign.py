"""Faults while jobs run: how each is recovered from, and what is there at the end.

Whatever goes wrong on the way is a problem of the report, and no reason to give none: a wait that
is too long, an exception, a fault that hits nobody.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.faults import DECK, KINDS, Fault, Struck
from tests.chaos.load import BATCHES_OPEN_MAX, Load
from tests.chaos.report import Recovery, Report, verdict_of
from tests.chaos.world import World

STREAMS = 2
LOOK_S = 0.5
PAUSE_S = (1.0, 6.0)  # between a recovery and the next fault
TOGETHER = 0.3  # how often a fault comes on top of another
TOGETHER_WITHIN_S = 3.0
BATCH_EVERY_S = 25.0
COMPACTED_FROM_MINUTES = 2.0  # of faults: then some table was compacted
ALL_KINDS_FROM_MINUTES = 10.0  # of faults: then each kind of them has struck
ORPHANS_A_FAULT_MAX = 10  # metadata files of the commits that one fault can have broken off


@dataclass(frozen=True, slots=True)
class Limits:
    """Of waits, in seconds; what takes longer is a problem."""

    first_epochs_s: float = 300.0  # until the streams run, with Spark started on a busy machine
    strike_s: float = 120.0  # until somebody leads, who is to be hit
    recovery_s: float = 300.0  # a heartbeat timeout, another worker's Spark, and what it runs again
    rest_s: float = 600.0  # until all batches have ended, once nothing is done to them any more
    leftovers_s: float = 300.0  # until tables rest, and the state of ended jobs is deleted


class Campaign:
    def __init__(
        self,
        world: World,
        report: Report,
        *,
        seed: int,
        say: Callable[[str], None],
        new_load: Callable[..., Load] = Load,
        limits: Limits | None = None,
    ) -> None:
        self._world, self._rng, self._say = world, random.Random(seed), say
        self._new_load, self._limits = new_load, limits or Limits()
        self._streams = [
            new_load(f"stream{n + 1}", streams=True, world=world) for n in range(STREAMS)
        ]
        self._batches: list[Load] = []  # also one that nobody has taken yet: it has no id
        self._pending: list[tuple[float, Struck]] = []  # faults that end later, and when
        self._next_batch_s, self._takes_batches = 0.0, True
        self._deck, self._dealt = self._deal(), set[str]()
        self.report = report

    def run(self, minutes: float) -> None:
        """Each part is done whatever became of the one before."""
        self._guarded("the faults", lambda: self._provoke(60 * minutes))
        self._guarded("ending the faults", self._end_faults)
        self._guarded("resting", self._rest)
        self._guarded("the verdict", lambda: self._judge(minutes))

    def _guarded(self, what: str, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - whatever it is, a report is given
            self._say(traceback.format_exc())
            self._problem(f"{what} broke off: {type(error).__name__}: {error}")

    def _problem(self, text: str) -> None:
        self._say(f"PROBLEM {text}")
        self.report.problems.append(text)

    def _await(self, look: Callable[[], bool], *, limit_s: float, what: str) -> bool:
        """False, and a problem: not within the limit."""
        end_s = time.monotonic() + limit_s
        while not look():
            if time.monotonic() > end_s:
                self._problem(f"not within {limit_s:g} s: {what}")
                return False
            time.sleep(LOOK_S)
        return True

    def _provoke(self, for_s: float) -> None:
        first_s = self._limits.first_epochs_s
        for stream in self._streams:
            self._await(stream.submit, limit_s=first_s, what=f"{stream.name} is taken")
        if not self._await_epochs(2, limit_s=first_s):
            self._problem(f"streams had no two epochs within {first_s:g} s, and nobody hurt them")
            return
        end_s = time.monotonic() + for_s
        self._strike_and_recover()
        while time.monotonic() < end_s:
            self._attend(self._rng.uniform(*PAUSE_S))
            self._strike_and_recover()

    def _deal(self) -> Iterator[Fault]:
        """First each kind once, so that a short run has as many of them as it can."""
        cards = list(KINDS)
        while True:
            self._rng.shuffle(cards)
            yield from cards
            cards = list(DECK)

    def _strike_and_recover(self) -> None:
        before_s, limit_s = time.monotonic(), self._limits.recovery_s
        done = [self._strike()]
        if self._rng.random() < TOGETHER:
            self._attend(self._rng.uniform(0, TOGETHER_WITHIN_S))
            done.append(self._strike())
        struck = [each for each in done if each is not None]
        if not struck:
            return
        recovered = self._await_epochs(2, limit_s=limit_s)
        took_s = time.monotonic() - before_s if recovered else None
        kinds = tuple(kind for kind, _ in struck)
        self.report.recoveries.append(Recovery(kinds, took_s))
        self.report.struck.update(kind for kind, fault in struck if fault.took_place())
        if took_s is None:
            self._problem(f"no recovery in {limit_s:g} s from {kinds}")
        else:
            self._say(f"   recovered in {took_s:.1f} s")

    def _strike(self) -> tuple[str, Struck] | None:
        """None, and a problem: there was nobody to be hit for too long."""
        fault = next(self._deck)
        self._dealt.add(fault.kind)
        done: list[Struck] = []

        def has_struck() -> bool:
            self._tick()
            if not self._pending:  # what is stopped can't be asked; a database can't crash twice
                done.extend(filter(None, [fault.strike(self._world, self._rng)]))
            return bool(done)

        limit_s = self._limits.strike_s
        if not self._await(has_struck, limit_s=limit_s, what=f"somebody to {fault.kind}"):
            return None
        (struck,) = done
        self._say(f"{fault.kind}: {struck.whom}")
        self._pending.append((time.monotonic() + struck.ends_after_s, struck))
        return fault.kind, struck

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
        if not self._batches_are_taken():
            return
        self._look_at_batches()
        if sum(not batch.has_ended for batch in self._batches) < BATCHES_OPEN_MAX:
            name = f"batch{len(self._batches) + 1}"
            self._batches.append(self._new_load(name, streams=False, world=self._world))
            self._batches_are_taken()

    def _batches_are_taken(self) -> bool:
        """The one that nobody took is offered again: somebody may have it, and could not say so."""
        return all(batch.id is not None or batch.submit() for batch in self._batches)

    def _look_at_batches(self) -> None:
        for batch in self._batches:
            if not batch.has_ended:
                batch.look()

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

    def _end_faults(self) -> None:
        """All of them, at once."""
        self._takes_batches = False
        while self._pending:
            _, struck = self._pending.pop()
            self._guarded("ending a fault", struck.end)
        self._world.lose_nothing_more()

    def _rest(self) -> None:
        """Nothing is done any more: what was begun ends, and what runs is still running."""
        limits = self._limits
        self._say("no more faults; batches end")
        self._await(self._batches_ended, limit_s=limits.rest_s, what="the batches end")
        if not self._await_epochs(2, limit_s=limits.recovery_s):
            at = {stream.name: stream.epoch for stream in self._streams}
            self._problem(f"streams stand still at epochs {at}, {limits.recovery_s:g} s long")
        for stream in self._streams:
            view = stream.look()
            if view is None or (view.status, view.run) != ("RUNNING", 1):
                self._problem(f"{stream.name} is not RUNNING in its first run: {view}")
        self._say("streams are cancelled")
        for stream in self._streams:
            self._await(stream.cancel, limit_s=limits.rest_s, what=f"{stream.name} is cancelled")
        for stream in self._streams:
            self._await(
                lambda s=stream: s.look() is not None and s.has_ended,
                limit_s=limits.rest_s,
                what=f"{stream.name} ends",
            )

    def _batches_ended(self) -> bool:
        self._tick()
        if self._batches_are_taken():
            self._look_at_batches()
        return all(batch.has_ended for batch in self._batches)

    def _judge(self, minutes: float) -> None:
        report, loads = self.report, (*self._streams, *self._batches)
        report.epochs = {stream.name: stream.epoch for stream in self._streams}
        report.batches = len(self._batches)
        for load in loads:
            self._guarded(f"comparing {load.name}", lambda each=load: self._compare(each))
        self._guarded("looking for leftovers", lambda: self._look_for_leftovers(loads))
        for load in loads:  # once no rewrite is under way any more
            self._guarded(f"the table of {load.name}", lambda each=load: self._look_at_table(each))
        self._judge_the_run(minutes)
        self._guarded("shutting down", self._shut_down)

    def _judge_the_run(self, minutes: float) -> None:
        """Whether enough was done to it for a verdict."""
        report = self.report
        if not report.batches or min(report.epochs.values()) < len(report.recoveries):
            self._problem("too little was done for a verdict")
        if minutes >= COMPACTED_FROM_MINUTES and not sum(report.compactions.values()):
            self._problem("no table was ever compacted")
        if len(report.orphans) > ORPHANS_A_FAULT_MAX * report.struck.total():
            self._problem(
                f"{len(report.orphans)} metadata files that nothing refers to, more than "
                f"{report.struck.total()} faults explain"
            )
        expected = set(self._dealt)
        if minutes >= ALL_KINDS_FROM_MINUTES:
            expected |= {fault.kind for fault in KINDS}
        for kind in sorted(expected - set(report.struck)):
            self._problem(f"a fault never took place: {kind}")

    def _shut_down(self) -> None:
        for problem in (*self._world.shut_down(), *self._world.ended_by_themselves):
            self._problem(problem)

    def _compare(self, load: Load) -> None:
        if load.last is not None and not load.streams and load.last.status != "FINISHED":
            self._problem(f"{load.name} is {load.last.status}: {load.last.error}")
        by_target = load.rows_by_target()
        given = load.given(by_target)
        for problem in (*load.problems, *load.miscounts(given)):
            self._problem(problem)
        for target, rows in by_target.items():
            self.report.judge(verdict_of(load.name, target, rows, last=given))

    def _look_at_table(self, load: Load) -> None:
        self.report.compactions[load.name] = load.compactions()
        files = load.files()
        self.report.orphans += files.orphans
        for file in files.gone:
            self._problem(f"gone, though a snapshot of {load.name} refers to it: {file}")

    def _look_for_leftovers(self, loads: Sequence[Load]) -> None:
        """What no job and no table refers to. Rewrites are under way until the tables rest."""

        def left() -> list[str]:
            self._world.revive()
            of_loads = [file for load in loads for file in load.left_behind()]
            return of_loads + self._world.left_behind()

        end_s = time.monotonic() + self._limits.leftovers_s
        while (found := left()) and time.monotonic() < end_s:
            time.sleep(LOOK_S)
        for name in found:
            self._problem(f"left behind: {name}")
