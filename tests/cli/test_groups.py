"""headrace group …, headrace worker …: through the real commands, against fake coordinators."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import Engine

from headrace.api.group_views import group_view
from headrace.cli import groups, serve
from headrace.cli.group_text import about_group
from headrace.containers.container import Launch, LaunchState, LaunchStatus
from headrace.coordinator.context import CoordinatorSettings, GroupOptions
from headrace.errors import BadSetting, Refused
from headrace.store.core.engine import reading
from headrace.store.core.transactions import Term
from tests.cli.jobs.test_jobs import WORKER, always, invoke
from tests.cli.machine import error_body
from tests.cli.tables.lake import Script, said_to
from tests.coordinator.groups.group_harness import GRACE_S, GROUP, FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness
from tests.fakes import FakeClock

NOW = 1_700_000_000_000
MINUTE = 60_000
RESOURCE: dict[str, Any] = {
    "id": "r1",
    "group": "g",
    "container": "local",
    "threads": 4,
    "memory_mb": 0,
    "properties": {"pid": "7"},
    "made_for": "floor",
    "created_at_ms": NOW - 60 * MINUTE,
    "launch": 2,
    "step": "STARTED",
    "started_at_ms": NOW - 60 * MINUTE,
    "launched_at_ms": NOW - 2 * MINUTE,
    "orphaned_since_ms": NOW - 7 * MINUTE,
    "attempts": 1,
    "releasing": False,
    "error": "exit code 137, Killed\nout of memory",
    "worker": None,
    "next": "restart 2 of 5 in 3 min 10 s",
    "next_at_ms": NOW + 190_000,
}
GIVEN_UP: dict[str, Any] = {
    "resource": "r0",
    "container": "local",
    "threads": 4,
    "attempts": 5,
    "reason": "exit code 137, Killed\nout of memory",
    "at_ms": NOW - 3 * MINUTE,
}
SHOWN: dict[str, Any] = {
    "name": "g",
    "container": "local",
    "min_parallelism": 8,
    "effective_parallelism": 2,
    "effective_reason": "3 requests did not bring it to 8 threads; 2 work",
    "memory_mb": 2048,
    "policy": "balanced",
    "own_policy": True,
    "properties": {"spark-conf.spark.x": "1", "self-optimizing.quota": "2"},
    "created_at_ms": NOW,
    "removing": False,
    "capacity": {"registered": 2, "draining": 1, "booting": 0, "restarting": 4},
    "orphans": 1,
    "next": "the floor of 8 was given up: 2 work; tried again in 40 min",
    "next_at_ms": NOW + 40 * MINUTE,
    "resources": [RESOURCE],
    "workers": [{**WORKER, "next": "works; somebody started it by hand"}],
    "given_up": [GIVEN_UP],
}


@pytest.fixture(autouse=True)
def still_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (groups, groups):
        monkeypatch.setattr(module, "now_ms", lambda: NOW)


@pytest.mark.req("R5")
def test_a_group_is_shown_with_all_that_matters() -> None:
    shown = invoke(always(200, SHOWN), "group", "show", "g")

    for part in (
        "g: workers of container local",
        "the floor of 8 was given up: 2 work; tried again in 40 min",
        "8, effective 2",
        "3 requests did not bring it to 8 threads",
        "2 work, 1 draining, 4 being restarted",
        "2,048 MB each",
        "property      spark-conf.spark.x = 1",
        "of tables     self-optimizing.quota = 2",
        "resource r1: 4 threads, launch 2 in local, without a worker for 7 min",
        "restart 2 of 5 in 3 min 10 s",
        "exit code 137, Killed",
        "worker w1: holds 1 of 2 slots; works; somebody started it by hand",
        "resource r0 of 4 threads: gave up after 5 attempts, 3 min ago: "
        "exit code 137, Killed | out of memory",
    ):
        assert part in shown


def test_groups_are_listed_with_what_comes_next() -> None:
    shown = said_to(always(200, {"groups": [SHOWN]}), "group", "list")

    assert shown[0].split() == [
        *("group", "container", "floor", "threads", "policy", "orphans", "next")
    ]
    assert "8, effective 2" in shown[2]
    assert "tried again in 40 min" in shown[2]
    assert "`headrace group create`" in invoke(always(200, {"groups": []}), "group", "list")


def test_a_group_is_made_changed_and_deleted_as_it_was_said() -> None:
    script = Script(
        {
            "POST /v1/groups": [SHOWN],
            "PATCH /v1/groups/g": [SHOWN, SHOWN],
            "DELETE /v1/groups/g": [{**SHOWN, "next": "removed once 1 resource"}],
        }
    )

    invoke(
        script,
        *("group", "create", "g", "--container", "local", "--min-parallelism", "8"),
        *("--memory", "2048", "--scheduling-policy", "balanced", "--property", "a=b"),
    )
    invoke(
        script,
        *("group", "set", "g", "--memory", "0", "--no-scheduling-policy"),
        *("--property", "a=c", "--unset", "b"),
    )
    invoke(script, "group", "scale", "g", "--min-parallelism", "4")
    gone = invoke(script, "group", "delete", "g", "--force")

    assert [body for _, _, body in script.heard][:3] == [
        {
            "name": "g",
            "container": "local",
            "min_parallelism": 8,
            "memory_mb": 2048,
            "policy": "balanced",
            "properties": {"a": "b"},
        },
        {"memory_mb": 0, "policy": "", "properties": {"a": "c", "b": None}},
        {"min_parallelism": 4},
    ]
    assert "group g is removed once 1 resource" in gone


def test_a_further_worker_is_asked_for_with_a_key() -> None:
    script = Script({"POST /v1/groups/g/resources": [RESOURCE]})

    shown = invoke(script, "group", "scale", "g", "--threads", "4")

    [(_, _, body)] = script.heard
    assert body is not None
    assert (body["threads"], len(body["key"])) == (4, 32)
    assert "resource r1: 4 threads" in shown


def test_scale_takes_one_of_two() -> None:
    for given in ((), ("--threads", "1", "--min-parallelism", "1")):
        with pytest.raises(BadSetting, match="takes --threads N for a further worker, or"):
            invoke(always(200, SHOWN), "group", "scale", "g", *given)


def test_workers_are_shown_drained_and_released() -> None:
    launched = {**WORKER, "resource": "r1", "launch": 2, "drain_since_ms": NOW - MINUTE}
    script = Script(
        {
            "GET /v1/workers": [{"workers": [launched]}],
            "GET /v1/workers/w1": [launched],
            "POST /v1/workers/w1/drain": [
                {"worker": launched, "changed": True},
                {"worker": WORKER, "changed": False},
            ],
            "POST /v1/workers/w1/resume": [
                {"worker": WORKER, "changed": True},
                {"worker": WORKER, "changed": False},
            ],
            "POST /v1/resources/w1/release": [{**RESOURCE, "next": "stopped when it holds none"}],
        }
    )

    listed = invoke(script, "worker", "list")
    shown = invoke(script, "worker", "show", "w1")
    drained = invoke(script, "worker", "drain", "w1")
    by_hand = invoke(script, "worker", "drain", "w1")
    resumed = [invoke(script, "worker", "resume", "w1") for _ in range(2)]
    released = invoke(script, "worker", "release", "w1")

    assert "r1 launch 2" in listed
    assert "draining" in listed
    for part in ("holds 1 of 2 slots", "process 42 on here", "r1, launch 2", "for 1 min", "t1.1"):
        assert part in shown
    for part in ("speaks protocol 5", "sources       FakeSource", "sinks         Kafka 2.3"):
        assert part in shown
    assert "is given nothing more" in drained
    assert "`headrace worker release w1` ends it" in drained
    assert "`headrace worker resume w1` takes that back" in drained
    assert "worker w1 is given work again; it holds 1 of 2 slots" in resumed[0]
    assert "worker w1 did not drain, and is given work as before" in resumed[1]
    assert "was given nothing more before" in by_hand
    assert "somebody started it by hand, and has to end it" in by_hand
    assert "resource r1 is released: stopped when it holds none" in released


def test_logs_are_lines_and_nothing_else() -> None:
    told = {"resource": "r1", "launch": 2, "container": "local", "lines": ["a", "b"], "note": None}

    assert invoke(always(200, told), "worker", "logs", "w1", "--lines", "2") == "a\nb\n"
    assert json.loads(invoke(always(200, told), "worker", "logs", "w1", output="json")) == told


def test_what_a_coordinator_refuses_is_said_in_its_words() -> None:
    body = error_body("Refused", "group 'g' is used by 1 job (mine)")
    with pytest.raises(Refused, match=r"used by 1 job \(mine\)"):
        invoke(always(422, body), "group", "delete", "g")


def test_answers_for_programs_have_all_that_a_coordinator_says() -> None:
    newer = {**SHOWN, "added_by_a_newer_version": 7}

    assert json.loads(invoke(always(200, newer), "group", "show", "g", output="json")) == newer


def test_without_a_word_worker_is_a_worker_and_wants_a_coordinator() -> None:
    with pytest.raises(BadSetting, match="no coordinator was named"):
        serve.worker(_Alone(), coordinators=None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadSetting, match="can't stand before 'list'"):
        invoke(always(200, {"workers": []}), "worker", "--group", "x", "list")


class _Alone:
    invoked_subcommand = None


class Killed(FakeContainer):
    """The first worker that it starts is killed, the next one boots."""

    def status(self, launch: Launch) -> LaunchStatus:
        return super().status(launch) if launch.number == 1 else LaunchStatus(LaunchState.RUNNING)


@pytest.mark.req("R1", "R2", "R3")
def test_show_through_a_crash_and_a_recovery(store: Engine, clock: FakeClock, term: Term) -> None:
    care = GroupHarness(LeaderHarness(store, clock, term), Killed(), max_retries=5)
    care.group(min_parallelism=4)
    care.look()
    [made] = care.all()
    told = [_shown(care)]
    care.register(made.id, 1)
    care.look()
    told.append(_shown(care))
    care.looks(seconds=GRACE_S * 2, step_s=60)
    care.die(f"w-{made.id}-1")
    care.looks(seconds=110)
    told.append(_shown(care))
    care.looks(seconds=GRACE_S - 90)
    told.append(_shown(care))
    care.register(made.id, 2)
    care.look()
    told.append(_shown(care))

    booting, works, crashed, again, back = told
    assert "waits for 4 threads, booting or being started again" in booting
    assert "launch 1 boots; restart 1 of 5 in 5 min" in booting
    assert "nothing: its floor of 4 is kept" in works
    assert "without a worker for 1 min 40 s" in crashed
    assert "restart 1 of 5 in 3 min 20 s" in crashed
    assert "exit code 137, Killed" in crashed
    assert "0 work, 4 being restarted" in crashed
    assert "launch 2 boots; restart 2 of 5 in 4 min 50 s" in again
    assert f"w-{made.id}-2" in back
    assert "4 work" in back
    assert "without a worker" not in back


def _shown(care: GroupHarness) -> str:
    options = CoordinatorSettings("", "", groups=GroupOptions(care.setting, care.keep, care.places))
    now_ms = care.desk.clock.wall_ms()
    with reading(care.store) as conn:
        view = group_view(conn, care.read_group(), options, now_ms=now_ms)
    assert view.name == GROUP
    return "\n".join(about_group(view, now_ms=now_ms))
