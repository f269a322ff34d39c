"""A leader that looks after groups, containers that do as they are told, and workers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine

from headrace.containers.container import (
    Launch,
    Launched,
    LaunchState,
    LaunchStatus,
    Supports,
    WorkerContainer,
)
from headrace.coordinator.context import GroupOptions, Pass, run_once
from headrace.coordinator.groups.launcher import Launcher
from headrace.coordinator.groups.reconciler import GroupReconciler
from headrace.coordinator.sync.liveness import register
from headrace.errors import BadSetting
from headrace.model.groups import AutoRestart, KeepSetting
from headrace.store.core.engine import reading, writing
from headrace.store.core.transactions import fenced
from headrace.store.groups import groups, resources
from headrace.store.groups.groups import Group
from headrace.store.groups.resources import Resource
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker
from tests.coordinator.leader_harness import LeaderHarness
from tests.stores import given_group

GRACE_S = 300
GROUP = "g"
WAIT_S = 120.0


@dataclass(slots=True)
class FakeContainer:
    """A container in memory. Said twice for one launch, it starts once, as every container must."""

    name: str = "local"
    supports: Supports = field(default_factory=Supports)
    started: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    stopped: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    gone: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])  # deleted by others
    asked: list[Launch] = field(default_factory=list[Launch])
    error: Exception | None = None
    found: Mapping[str, str] = field(default_factory=dict[str, str])

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        if "unknown" in properties:
            raise BadSetting(f"group {group!r}: container {self.name!r}: unknown property")
        assert memory_mb >= 0

    def start(self, launch: Launch) -> Launched:
        self.asked.append(launch)
        if self.error is not None:
            raise self.error
        if (launch.resource, launch.number) not in self.started:
            self.started.append((launch.resource, launch.number))
        return Launched({"pid": str(1000 + launch.number), **self.found})

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        assert grace_s > 0
        self.stopped.append((launch.resource, launch.number))

    def status(self, launch: Launch) -> LaunchStatus:
        if (launch.resource, launch.number) in self.gone:
            return LaunchStatus(LaunchState.UNKNOWN, said="there is no such Deployment")
        if not self.supports.restart:  # it sees to it
            return LaunchStatus(LaunchState.RUNNING, said="Killed")
        return LaunchStatus(LaunchState.ENDED, 137, "Killed")

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        del launch, lines
        return ()


class GroupHarness:
    def __init__(
        self,
        desk: LeaderHarness,
        *places: FakeContainer,
        enabled: bool = True,
        max_retries: int = 5,
        keep: KeepSetting | None = None,
    ) -> None:
        self.desk = desk
        self.places: dict[str, WorkerContainer] = {place.name: place for place in places}
        self.setting = AutoRestart(enabled, max_retries, GRACE_S * 1000)
        self.keep = keep or KeepSetting()
        self.trusted = True
        self._led: list[Launcher] = []
        desk.ending.callback(self.end)
        self.begin()

    def end(self) -> None:
        """No thread outlives its test, and its store."""
        for each in self._led:
            each.stop(wait=True)

    def begin(self) -> None:
        """As a leader begins: with nothing but the store."""
        options = GroupOptions(
            self.setting, self.keep, self.places, coordinators=("http://127.0.0.1:1",)
        )
        self._groups = GroupReconciler(self.desk.clock, self.desk.ids, options)
        self.launching = Launcher(
            self.store, self.desk.term, self.desk.clock, options, trusted=lambda: self.trusted
        )
        self._led.append(self.launching)

    @property
    def store(self) -> Engine:
        return self.desk.store

    def take_over(self) -> None:
        self.desk.take_over()
        self.begin()

    def group(self, name: str = GROUP, **values: object) -> None:
        with writing(self.store) as conn:
            groups.add(conn, name, now_ms=self.desk.clock.wall_ms(), container="local")
            if values:
                given_group(conn, name, **values)

    def resource(self, name: str = "r1", *, container: str = "local", threads: int = 4) -> str:
        with writing(self.store) as conn:
            resources.add(
                conn,
                name,
                group=GROUP,
                container=container,
                threads=threads,
                memory_mb=2048,
                properties={"spark-conf.spark.x": "1"},
                made_for="user",
                now_ms=self.desk.clock.wall_ms(),
            )
        return name

    def decide(self) -> Pass:
        keys = self._groups.keys(self.store)
        return run_once(self.store, self.desk.term, self._groups, keys)

    def ask(self) -> None:
        self.launching.run()
        self.launching.wait(WAIT_S)

    def look(self) -> Pass:
        """One pass: decide, then have containers asked."""
        found = self.decide()
        self.ask()
        return found

    def looks(self, *, seconds: float, step_s: float = 10.0) -> None:
        """Passes, while time goes by."""
        for _ in range(int(seconds / step_s)):
            self.desk.clock.advance(step_s)
            self.look()

    def register(
        self,
        resource: str,
        launch: int,
        *,
        worker: str | None = None,
        group: str = GROUP,
        slots: int | None = None,
    ) -> None:
        """With all the threads that were asked for, unless told otherwise."""
        now_ms, name = self.desk.clock.wall_ms(), worker or f"w-{resource}-{launch}"
        asked = self.read(resource)
        slots = slots or (asked.threads if asked else 4)
        told = Worker(
            name, group, slots, 1, "0", "host", 1, "app", now_ms, now_ms, resource, launch
        )
        with fenced(self.store, self.desk.term) as conn:
            register(conn, told, now_ms=now_ms)

    def die(self, worker: str) -> None:
        with fenced(self.store, self.desk.term) as conn:
            workers.unregister(conn, worker)

    def read(self, resource: str = "r1") -> Resource | None:
        with reading(self.store) as conn:
            return resources.get(conn, resource)

    def there(self, resource: str = "r1") -> Resource:
        found = self.read(resource)
        assert found is not None
        return found

    def all(self) -> Sequence[Resource]:
        with reading(self.store) as conn:
            return resources.of_group(conn, GROUP)

    def read_group(self) -> Group:
        with reading(self.store) as conn:
            found = groups.get(conn, GROUP)
        assert found is not None
        return found


def lost(care: GroupHarness) -> None:
    """A resource whose worker registered, and died."""
    care.resource()
    care.look()
    care.register("r1", 1)
    care.look()
    care.die("w-r1-1")
    care.look()
