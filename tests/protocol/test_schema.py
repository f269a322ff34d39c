"""The schema of the protocol is a checked snapshot: it changes with its version, or not at all."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.model.task import TaskKind
from headrace.protocol.messages import PROTOCOL_VERSION, Report
from headrace.protocol.versions import PAYLOADS, SPOKEN
from tests.protocol.schema_values import Types
from tools import wire_schema
from tools.wire_schema import Schema, breaking, messages, refuse_breaking

BEFORE = PROTOCOL_VERSION - 1
SENT_BY_WORKERS = ("Register", "Sync", "Goodbye")


@pytest.fixture(scope="module")
def now() -> Schema:
    return wire_schema.present()


def test_the_schema_is_what_its_snapshot_says(now: Schema) -> None:
    snapshot = wire_schema.snapshot(PROTOCOL_VERSION)
    refuse_breaking(snapshot, now)

    assert wire_schema.text_of(now) == wire_schema.text_of(snapshot), "run `make reference`"


def _a_field_is_gone(types: Schema) -> None:
    del types["Held"]["properties"]["claim"]


def _a_field_is_of_another_type(types: Schema) -> None:
    types["Progress"]["properties"]["rows"]["type"] = "string"


def _a_default_is_another(types: Schema) -> None:
    types["TaskEnded"]["properties"]["retry"]["default"] = False


def _a_field_must_be_sent(types: Schema) -> None:
    types["Slice"]["required"].append("rows")


def _a_new_field_must_be_sent(types: Schema) -> None:
    types["Claim"]["properties"]["since_ms"] = {"type": "integer"}
    types["Claim"]["required"].append("since_ms")


def _there_is_another_kind(types: Schema) -> None:
    types["FailureCause"]["enum"].append("BORED")


def _a_message_is_gone(types: Schema) -> None:
    del types["Goodbye"]


@pytest.mark.parametrize(
    "change",
    [
        _a_field_is_gone,
        _a_field_is_of_another_type,
        _a_default_is_another,
        _a_field_must_be_sent,
        _a_new_field_must_be_sent,
        _there_is_another_kind,
        _a_message_is_gone,
    ],
)
def test_a_change_that_others_of_this_version_would_misread_must_raise_it(
    now: Schema, change: Any
) -> None:
    changed = copy.deepcopy(now)
    change(changed)

    with pytest.raises(ValueError, match="Raise PROTOCOL_VERSION"):
        refuse_breaking(now, changed)


def test_what_is_new_and_has_a_default_may_be_added_and_inner_types_renamed(now: Schema) -> None:
    changed = copy.deepcopy(now)
    changed["Claim"]["properties"]["mood"] = {"type": "string", "default": "good"}
    changed["Renamed"] = changed.pop("Gain")
    changed["Planned"]["properties"]["gain"]["anyOf"][0]["$ref"] = "#/$defs/Renamed"

    assert list(breaking(now, changed)) == []


def test_the_table_of_versions_names_every_field_that_is_newer_than_the_oldest(now: Schema) -> None:
    newer = set(wire_schema.newer_fields(wire_schema.snapshot(SPOKEN.oldest), now))

    assert newer == {name for name, since in SPOKEN.fields.items() if since.version > SPOKEN.oldest}


def test_the_table_of_versions_names_every_kind_every_payload_and_every_report() -> None:
    kinds = {str(kind) for kind in TaskKind}
    reports = {each.model_fields["kind"].default for each in _reports()}

    assert set(SPOKEN.kinds) == set(PAYLOADS) == kinds
    assert set(SPOKEN.reports) == reports


def _reports() -> tuple[type[BaseModel], ...]:
    return Report.__origin__.__args__  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SENT_BY_WORKERS)
def test_every_message_that_a_worker_of_the_version_before_sends_is_read(name: str) -> None:
    before = Types(wire_schema.snapshot(BEFORE))
    for said in before.values(name):
        assert before.flaws(name, said) == [], "the test itself made it up wrongly"

        read = messages()[name].model_validate_json(json.dumps(said)).model_dump(mode="json")

        assert {key: read[key] for key in said} == said


@pytest.mark.parametrize(
    "name", sorted({kind.__name__ for kind in PAYLOADS.values()} - {"Message"})
)
def test_every_payload_of_the_version_before_is_read(name: str) -> None:
    """They are made by coordinators: what they mean has not changed for workers either."""
    before = Types(wire_schema.snapshot(BEFORE))
    for said in before.values(name):
        read = messages()[name].model_validate_json(json.dumps(said)).model_dump(mode="json")

        assert {key: read[key] for key in said} == said
