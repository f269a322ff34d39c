"""A whole coordinator: whatever breaks under it, it leads again or lets somebody else lead."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from headrace.clock import SystemClock
from headrace.coordinator.context import CoordinatorSettings
from headrace.coordinator.leadership.leader import Leadership
from headrace.coordinator.service import Coordinator
from headrace.coordinator.sync import writer as writer_module
from headrace.errors import StoreRefused
from headrace.model.ids import RandomIds
from headrace.model.jobs.status import JobStatus
from headrace.plugins.catalog import catalog
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.keyring import own_file
from headrace.store.core.leases import TAKEOVER_SUFFIX
from headrace.store.jobs import jobs
from headrace.store.key_change import change_key
from headrace.store.tables import lake_tables
from headrace.store.tables.catalogs import NewCatalog, add, secrets_of
from tests.coordinator.specs import SECRET, spec
from tests.stores import KEYS, open_store

BOUND_S = 120.0  # for a state to come, also on a busy machine
LOOK_S = 0.02
TTL_S = 3.0
HOUR_MS = 3_600_000
CLOCKS_READ_MS = 1_000  # between two clocks that are read one after the other
PAUSE_S = 2.6  # longer than a term is trusted, shorter than the ttl


class Jumping(SystemClock):
    """A pause of the whole process: monotonic time jumps on for every thread. Or somebody sets the
    wall clock."""

    paused_s = 0.0
    set_by_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.set_by_ms

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.paused_s


def eventually(met: Callable[[], object]) -> None:
    end_s = SystemClock().monotonic_s() + BOUND_S
    while not met():
        assert SystemClock().monotonic_s() < end_s, "it did not happen in time"
        threading.Event().wait(LOOK_S)


def leads(coordinator: Coordinator) -> Leadership:
    eventually(lambda: coordinator.leading)
    leading = coordinator.leading
    assert leading is not None
    return leading


def passes_run(coordinator: Coordinator, key: str) -> bool:
    """Whether a job that is submitted now is looked at."""
    job = coordinator.commands.submit(spec(), submission_key=key, group="default").id

    def status() -> JobStatus | None:
        with reading(coordinator.engine) as conn:
            found = jobs.get(conn, job)
        return found and found.status

    eventually(lambda: status() is JobStatus.PENDING)
    return True


Start = Callable[[str], Coordinator]


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


@pytest.fixture
def start(clock: Jumping) -> Iterator[Start]:
    started: list[Coordinator] = []

    def start(url: str) -> Coordinator:
        options = CoordinatorSettings(
            url, f"http://c{len(started)}:1", ttl_s=TTL_S, secret_keys=KEYS
        )
        started.append(Coordinator(options, clock, RandomIds()))
        started[-1].start()
        return started[-1]

    yield start
    for coordinator in started:
        coordinator.stop()


def refuse(*_: object, **__: object) -> Any:
    raise StoreRefused("attempt to write a readonly database")


def test_a_coordinator_looks_for_its_plugins_when_it_starts(start: Start, sqlite_url: str) -> None:
    catalog.cache_clear()

    start(sqlite_url)

    assert catalog.cache_info().currsize == 1


@pytest.mark.req("L1", "L2")
def test_a_leader_that_was_paused_beyond_its_trust_leads_anew_and_works(
    start: Start, store_url: str, clock: Jumping
) -> None:
    coordinator = start(store_url)
    first = leads(coordinator)
    assert passes_run(coordinator, "before")

    clock.paused_s += PAUSE_S
    eventually(first.over.is_set)

    assert leads(coordinator).term.epoch > first.term.epoch
    assert passes_run(coordinator, "after")


def test_a_leader_that_found_a_new_key_when_it_took_over_needs_its_file_no_more(
    start: Start, sqlite_url: str
) -> None:
    """All of its connections have the keys that one of them read."""
    coordinator, other = start(sqlite_url), open_store(sqlite_url)
    first = leads(coordinator)
    with writing(coordinator.engine) as conn:
        made = NewCatalog("lake", "rest", {}, "default", secrets={"lake.token": SECRET})
        assert add(conn, made, now_ms=1)
    change_key(other)
    other.dispose()
    eventually(first.over.is_set)
    assert leads(coordinator).term.epoch > first.term.epoch

    own_file(Path(str(coordinator.engine.url.database))).path.unlink()

    with reading(coordinator.engine) as conn:
        assert secrets_of(conn, "lake") == {"lake.token": SECRET}


@pytest.mark.req("L5")
@pytest.mark.parametrize("set_by_ms", [-HOUR_MS, HOUR_MS])
def test_a_leader_whose_wall_clock_is_set_moves_what_waits_and_counts_by_it_again(
    start: Start, store_url: str, clock: Jumping, set_by_ms: int
) -> None:
    coordinator = start(store_url)
    first = leads(coordinator)
    until_ms = clock.wall_ms() + 5 * HOUR_MS
    with writing(coordinator.engine) as conn:
        lake_tables.block(conn, "t", "b", reason="", until_ms=until_ms, now_ms=clock.wall_ms())

    clock.set_by_ms = set_by_ms

    eventually(lambda: leads(coordinator).term.epoch > first.term.epoch)
    with reading(coordinator.engine) as conn:
        [found] = lake_tables.blockers_of(conn, "t", now_ms=clock.wall_ms())
        told = leases.leader_time(conn)
    assert abs(found.expires_at_ms - (until_ms + set_by_ms)) < CLOCKS_READ_MS
    assert told is not None
    assert told.offset_ms == 0
    assert abs(told.clock_ms - clock.wall_ms()) < HOUR_MS / 2
    assert passes_run(coordinator, "after")


def test_a_candidate_that_runs_out_of_files_campaigns_on(
    start: Start, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(sqlite_url)
    leads(first)
    really, failed = os.open, threading.Event()

    def no_more_files(path: Any, *args: Any, **named: Any) -> int:
        if str(path).endswith(TAKEOVER_SUFFIX):
            failed.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return really(path, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_more_files)
        second = start(sqlite_url)
        assert failed.wait(BOUND_S)
    first.stop()

    assert leads(second)


def test_a_leader_whose_store_refuses_even_its_resignation_leads_again(
    start: Start, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = start(sqlite_url)
    first = leads(coordinator)
    with monkeypatch.context() as patch:
        patch.setattr(leases, "renew", refuse)
        patch.setattr(leases, "resign", refuse)
        eventually(first.over.is_set)
        eventually(lambda: coordinator.leading is None)

    assert leads(coordinator).term.epoch > first.term.epoch


def test_a_writer_that_can_not_open_the_store_answers_all_the_same(
    start: Start, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "open_writer", refuse)
        coordinator = start(sqlite_url)
        leads(coordinator)
        with pytest.raises(StoreRefused):
            coordinator.leader_term().writer.do(lambda _: 1).result(BOUND_S)

    assert coordinator.leader_term().writer.do(lambda _: 1).result(BOUND_S) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_term_ends_with_its_writer(start: Start, sqlite_url: str) -> None:
    def die(_: Connection) -> None:
        raise SystemExit

    coordinator = start(sqlite_url)
    first = leads(coordinator)
    coordinator.leader_term().writer.do(die)
    eventually(first.over.is_set)

    assert leads(coordinator).term.epoch > first.term.epoch
    assert coordinator.leader_term().writer.do(lambda _: 1).result(BOUND_S) == 1


def test_a_term_whose_threads_are_gone_is_not_renewed(
    start: Start, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = start(sqlite_url)
    first = leads(coordinator)
    monkeypatch.setattr(coordinator.leader_term(), "works", lambda: False)

    eventually(lambda: (now := coordinator.leading) and now is not first)
