"""What a side of an older version is told, and that it is never told what it would misread."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from headrace.model.jobs.epoch import EpochStatus
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    PROTOCOL_VERSION,
    Answer,
    Assignment,
    EpochPlan,
    OpenEpoch,
    PipelinePayload,
    Registered,
    Restore,
    Slice,
    Sync,
    TaskEnded,
    TaskGivenBack,
)
from headrace.protocol.versions import PAYLOADS, SPOKEN, NotSaid, Since, WireVersions
from tests.protocol.schema_values import Types
from tools import wire_schema

BEFORE = PROTOCOL_VERSION - 1
NEXT = PROTOCOL_VERSION + 1
CLAIM = Claim("t", 1)


def next_version(
    *, kinds: Mapping[str, int] | None = None, fields: Mapping[str, Since] | None = None
) -> WireVersions:
    """The table that the next version will have, if these are what it adds."""
    return replace(
        SPOKEN,
        newest=NEXT,
        oldest=PROTOCOL_VERSION,
        kinds={**SPOKEN.kinds, **(kinds or {})},
        fields={**SPOKEN.fields, **(fields or {})},
    )


def assignments() -> Iterator[Assignment]:
    """Of every kind, with all that their payloads may hold."""
    types = Types(wire_schema.present())
    for kind in TaskKind:
        made = PAYLOADS[kind].__name__
        for payload in types.values(made) if made in wire_schema.messages() else [{}]:
            yield Assignment(claim=CLAIM, kind=kind, lane=Lane.SLOT, payload=payload)


def test_every_answer_as_the_version_before_is_told_it_fits_the_schema_of_that_version() -> None:
    before = Types(wire_schema.snapshot(BEFORE))
    for given in assignments():
        answer = Answer(term=3, number=4, assignments=(given,), protocol=PROTOCOL_VERSION)

        said = json.loads(SPOKEN.said(answer, BEFORE))

        assert before.flaws("Answer", said) == []
        [assignment] = said["assignments"]
        payload = PAYLOADS[given.kind].__name__
        if payload in wire_schema.messages():
            assert before.flaws(payload, assignment["payload"]) == []
    registered = Registered(term=3, heartbeat_timeout_ms=5, protocol=PROTOCOL_VERSION)
    assert before.flaws("Registered", json.loads(SPOKEN.said(registered, BEFORE))) == []


def test_its_own_version_is_told_everything() -> None:
    answer = Answer(term=3, number=4, protocol=PROTOCOL_VERSION)

    assert SPOKEN.said(answer, PROTOCOL_VERSION) == answer.model_dump_json().encode()


def payload(**restore: Any) -> dict[str, Any]:
    slices = {"data": Slice(data=1, after=2, last=True), "b": Slice(data=3, after=4)}
    opened = OpenEpoch(
        epoch=3, status=EpochStatus.PLANNED, plan=EpochPlan(slices=slices, now_ms=1), **restore
    )
    plugins = [{"name": "p", "plugin": "FakeSource"}]
    return PipelinePayload.model_validate(
        {
            "job": "j",
            "incarnation": "i",
            "env": {},
            "pipeline": {"number": 1, "sources": plugins, "sinks": plugins},
            "restore": Restore(open=(opened,)),
        }
    ).model_dump(mode="json")


def given(kind: str = TaskKind.PIPELINE, **said: Any) -> Assignment:
    return Assignment(claim=CLAIM, kind=kind, lane=Lane.SLOT, payload=payload(**said))


def test_a_newer_field_is_left_out_wherever_it_stands() -> None:
    """In a list, in a mapping with names that are also those of fields, and deep inside."""
    spoken = next_version(
        fields={
            "Slice.last": Since(NEXT),
            "EnvSpec.retry_times": Since(NEXT),
            "PluginSpec.options": Since(NEXT),
            "Acknowledged.plan": Since(NEXT),
        }
    )
    answer = Answer(term=1, number=1, assignments=(given(),), protocol=NEXT)

    said = json.loads(spoken.said(answer, PROTOCOL_VERSION))

    told = said["assignments"][0]["payload"]
    whole = answer.assignments[0].payload
    [opened] = told["restore"]["open"]
    assert opened["plan"]["slices"]["data"] == {"data": 1, "after": 2, "rows": None, "lasts_ms": 0}
    assert "retry_times" not in told["env"]
    assert [set(p) for p in told["pipeline"]["sinks"]] == [{"name", "plugin", "inputs", "output"}]
    assert told["restore"]["positions"] == whole["restore"]["positions"]  # type: ignore[index,call-overload]
    assert Answer.model_validate(said).assignments[0].claim == CLAIM


def test_a_vital_field_that_says_nothing_is_left_out_and_otherwise_nothing_is_said() -> None:
    spoken = next_version(fields={"OpenEpoch.handles": Since(NEXT, vital=True)})

    spoken.check(given(), PROTOCOL_VERSION)
    with pytest.raises(NotSaid, match=f"handles of OpenEpoch came with protocol {NEXT}"):
        spoken.check(given(handles={"sink": 1}), PROTOCOL_VERSION)
    spoken.check(given(handles={"sink": 1}), NEXT)


def test_a_kind_that_a_version_does_not_know_is_not_said_to_it() -> None:
    spoken = next_version(kinds={TaskKind.NOOP: NEXT})

    assert spoken.unknown_kinds(PROTOCOL_VERSION) == {TaskKind.NOOP}
    assert spoken.unknown_kinds(NEXT) == frozenset()
    with pytest.raises(NotSaid, match=f"NOOP tasks came with protocol {NEXT}"):
        spoken.check(given(TaskKind.NOOP), PROTOCOL_VERSION)


def test_a_report_that_a_version_does_not_know_is_kept_back() -> None:
    reports = (
        TaskEnded(seq=1, claim=CLAIM, outcome="SUCCESS"),
        TaskGivenBack(seq=2, claim=CLAIM, reason="?"),
    )
    sync = Sync(protocol=BEFORE, worker="w", sync=1, reports=reports)

    said = json.loads(SPOKEN.said(sync, BEFORE))

    assert [report["seq"] for report in said["reports"]] == [1]
    assert Types(wire_schema.snapshot(BEFORE)).flaws("Sync", said) == []


@pytest.mark.parametrize(
    ("oldest", "newest", "common"),
    [(5, 6, 6), (4, 5, 5), (5, 5, 5), (6, 7, 6), (7, 8, None), (3, 4, None), (4, 4, None)],
)
def test_two_sides_speak_the_newest_version_that_both_know(
    oldest: int, newest: int, common: int | None
) -> None:
    mine = replace(SPOKEN, oldest=5, newest=6)

    assert mine.common(oldest=oldest, newest=newest) == common


def test_an_assignment_of_an_unknown_kind_or_lane_spoils_no_answer() -> None:
    given = {"claim": {"task": "t", "attempt": 1}, "kind": "BREW", "lane": "TAP", "payload": {}}
    known = {**given, "kind": "NOOP", "lane": "SLOT"}

    answer = Answer.model_validate({"term": 1, "number": 1, "assignments": [given, known]})

    assert [(a.kind, a.lane) for a in answer.assignments] == [("BREW", "TAP"), ("NOOP", "SLOT")]
    assert [type(a.kind) for a in answer.assignments] == [str, TaskKind]
