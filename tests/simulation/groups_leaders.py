"""Coordinators that look after groups: real care, real fence, real registering; thinned time.

Who leads is not simulated here (the other histories do that, by every seam): a lease is free a ttl
after its holder was last able to renew it. It is taken by the product's own statement, so whoever
had it is fenced. A leader looks when something becomes due, when it is rung, and now and then; a
worker's heartbeats are heard all at once, right before.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from sqlalchemy import Engine

from headrace.coordinator.context import GroupOptions, Metrics, run_once
from headrace.coordinator.groups.reconciler import GroupController
from headrace.coordinator.sync.liveness import WorkerExpiry, WorkerLiveness, register
from headrace.errors import Fenced, LeaderFenced, Refused, Unavailable
from headrace.model.ids import Ids
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.transactions import Term, fenced
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker
from tests.simulation import threads
from tests.simulation.groups_processes import REFUSED, TAKEN, Ground, Simulated
from tests.simulation.groups_setting import HEARTBEAT_TIMEOUT_S, IDLE_S, TICK_S, TRUST_S, TTL_S
from tests.simulation.stand_ins import Waker
from tests.simulation.world import Process, World

LOOK_S = (0.1, 1.0)  # of a candidate, at a lease that is free
LATENCY_S = (0.001, 0.5)
ASKED_S = 90.0  # until a leader looks what became of something that it asked of a container


class Lease:
    """Who holds it, until when he may believe so, and from when on others may take it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.holder: Process | None = None
        self.free_at_s = 0.0
        self._trusted_until_s = 0.0
        self.changed = threads.Event()

    def _free(self, seconds: float) -> None:
        self.free_at_s = min(self.free_at_s, self._world.now_s + seconds)
        self.changed.set()
        self.changed.clear()

    def taken(self, holder: Process) -> None:
        self.holder, self.free_at_s, self._trusted_until_s = holder, inf, inf

    def given_back(self, holder: Process) -> None:
        if self.holder is holder:
            self.holder = None
            self._free(0.0)

    def out_of_touch(self, process: Process, seconds: float) -> None:
        """It stands still, or the store does not answer it."""
        if process is self.holder:
            self._trusted_until_s = min(self._trusted_until_s, self._world.now_s + TRUST_S)
            if seconds >= TRUST_S:
                self._free(TTL_S)

    def died(self, process: Process) -> None:
        if process is self.holder:
            self.holder = None
            self._free(self._world.random_of("lease").choice([0.2, TTL_S]))

    def trusts(self, process: Process) -> bool:
        now_s = self._world.now_s
        if process is not self.holder or process.dead or now_s >= self._trusted_until_s:
            return False
        if max(process.frozen_until_s, process.storeless_until_s) <= now_s:
            self._trusted_until_s = inf  # it has renewed since
        return True


class Led:
    """One term."""

    def __init__(
        self,
        engine: Engine,
        term: Term,
        process: Process,
        ids: Ids,
        options: GroupOptions,
        lease: Lease,
    ) -> None:
        self._engine, self.term, self._process = engine, term, process
        self.roster = WorkerLiveness(process, timeout_s=HEARTBEAT_TIMEOUT_S)
        self._workers = WorkerExpiry(self.roster, process)
        self._care = GroupController(
            engine, term, process, ids, Metrics(), options, trusted=lambda: lease.trusts(process)
        )
        self.waker = Waker()

    def look(self) -> None:
        run_once(self._engine, self.term, self._workers, self._workers.keys(self._engine))
        self._care.run()

    def stop(self) -> None:
        Waker.everybody.remove(self.waker)
        self._care.stop()

    def register(self, said: Simulated) -> None:
        """As `LeaderTerm` does it, without its writer."""
        now_ms, launch = self._process.wall_ms(), said.launch
        told = Worker(
            *(said.name, launch.group, launch.threads, 1, "0", "host", 1, f"app-{said.name}"),
            *(now_ms, now_ms, launch.resource, launch.number),
        )
        self.roster.note_sync(said.name, 0)
        with fenced(self._engine, self.term) as conn:
            register(conn, told, now_ms=now_ms)

    def goodbye(self, said: Simulated) -> None:
        with fenced(self._engine, self.term) as conn:
            workers.unregister(conn, said.name)
        self.roster.forget(said.name)


class Coordinator:
    def __init__(
        self, ground: Ground, engine: Engine, ids: Ids, options: GroupOptions, lease: Lease
    ) -> None:
        self._ground, self._engine, self._ids = ground, engine, ids
        self._options, self._lease = options, lease
        self.led: Led | None = None

    def __call__(self, process: Process) -> None:
        process.at_death.append(lambda: self._lease.died(process))
        while True:
            term = self._campaign(process)
            self._ground.books.note("terms")
            led = Led(self._engine, term, process, self._ids, self._options, self._lease)
            self.led = led
            self._lease.taken(process)
            try:
                self._lead(process, led)
            finally:
                self.led = None
                led.stop()
            self._lease.given_back(process)

    def _campaign(self, process: Process) -> Term:
        while True:
            wait_s = self._lease.free_at_s - process.monotonic_s()
            if wait_s > 0:
                self._lease.changed.wait(None if wait_s == inf else wait_s)
            process.world.sleep(process.random.uniform(*LOOK_S))
            if self._lease.free_at_s > process.monotonic_s():
                continue
            try:
                with reading(self._engine) as conn:
                    seen = leases.read(conn)
                with writing(self._engine) as conn:
                    holder = f"{process.actor}.{process.life}.{seen.epoch if seen else 0}"
                    term = leases.take(conn, seen, holder=holder, address="")
            except Unavailable:
                continue
            if term is not None:
                return term

    def _lead(self, process: Process, led: Led) -> None:
        while self._lease.trusts(process):
            try:
                self._hear_all(led)
                led.look()
            except LeaderFenced:
                return
            except (Fenced, Unavailable) as error:
                process.world.tell(f"pass broken off: {error}")
                process.world.sleep(process.random.uniform(0.0, TICK_S))
                continue
            led.waker.wait(self._until_next_s(process))

    def _hear_all(self, led: Led) -> None:
        for each in self._ground.live.values():
            if each.registered and each.speaks:
                led.roster.note_sync(each.name, 0)

    def _until_next_s(self, process: Process) -> float:
        """Those that are left out would find what this one found."""
        now_ms, books = process.wall_ms(), self._ground.books
        due_s = [(at_ms - now_ms) / 1000 for at_ms in books.deadlines_ms() if at_ms > now_ms]
        due_s.append(process.random.uniform(0.0, IDLE_S))
        if self._ground.silent():
            due_s.append(HEARTBEAT_TIMEOUT_S / 2)
        if books.unnoticed():
            due_s.append(0.0)
        if books.held_back(now_ms):
            due_s.append(TICK_S)
        if books.asked_for():
            due_s.append(ASKED_S)
        return min(due_s) + process.random.uniform(0.0, TICK_S)


class Reached:
    """How processes reach who leads, if he answers."""

    def __init__(self, world: World, lease: Lease, coordinators: dict[str, Coordinator]) -> None:
        self._world, self._lease, self._coordinators = world, lease, coordinators

    def _leader(self) -> tuple[Process, Led] | None:
        holder = self._lease.holder
        led = self._coordinators[holder.actor].led if holder is not None else None
        if holder is None or led is None or holder.frozen_until_s > self._world.now_s:
            return None
        return holder, led

    def hear(self, process: Simulated) -> None:
        if process.registered and (found := self._leader()) is not None:
            found[1].roster.note_sync(process.name, 0)

    def ring(self, seconds: float) -> None:
        def run() -> None:
            if (found := self._leader()) is not None:
                found[1].waker.ring()

        self._world.later(seconds, run)

    def out_of_touch(self, process: Process, seconds: float) -> None:
        """Of a coordinator, which finds out as soon as it is back."""
        self._lease.out_of_touch(process, seconds)

        def run() -> None:
            if (led := self._coordinators[process.actor].led) is not None:
                led.waker.ring()

        self._world.later(seconds + LOOK_S[1], run, process)

    def ask(self, verb: str, process: Simulated, answer: Callable[[str | None], None]) -> None:
        found = self._leader()
        if found is None:
            answer(None)
            return
        holder, led = found

        def run() -> None:
            told = self._told(holder, led, verb, process)
            if told == TAKEN:
                led.waker.ring()
            late_s = self._world.random_of("wire").uniform(*LATENCY_S)
            self._world.later(late_s, lambda: answer(told))

        self._world.spawn(holder, run, verb)

    def _told(self, holder: Process, led: Led, verb: str, process: Simulated) -> str | None:
        if not self._lease.trusts(holder):
            return None
        try:
            (led.register if verb == "register" else led.goodbye)(process)
        except (Fenced, Unavailable) as error:
            self._world.tell(f"{verb} of {process.name} broken off: {error}")
            return None
        except Refused as error:
            self._world.tell(f"{process.name}: {error}")
            return REFUSED
        return TAKEN
