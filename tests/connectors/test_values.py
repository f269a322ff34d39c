"""Small values: tokens, claims, ids and specs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from headrace.model.ids import RandomIds
from headrace.model.jobs.epoch import EpochAt
from headrace.model.jobs.spec import EnvSpec, JobSpec
from headrace.model.task import ASSIGNED, ENDED, TRANSITIONS, Claim, TaskStatus
from tests.coordinator.specs import spec


@pytest.mark.req("E1")
def test_a_token_is_the_same_whichever_execution_commits() -> None:
    first, second = (EpochAt("inc", 2, 7, execution) for execution in ("t.1", "t.2"))

    assert first.token == second.token == "inc/2/7"


@pytest.mark.req("E1")
@pytest.mark.parametrize("other", [("x", 2, 7), ("inc", 3, 7), ("inc", 2, 8)])
def test_another_epoch_has_another_token(other: tuple[str, int, int]) -> None:
    assert EpochAt(*other, "t.1").token != EpochAt("inc", 2, 7, "t.1").token


def test_an_execution_is_named_after_its_claim() -> None:
    assert Claim("t", 3).execution == "t.3"
    assert Claim("t", 2) < Claim("t", 10)


def test_a_task_that_has_ended_changes_no_more() -> None:
    assert TRANSITIONS.keys() == set(TaskStatus)
    assert all(not TRANSITIONS[status] for status in ENDED)
    assert all(TaskStatus.PLANNED in TRANSITIONS[status] for status in ASSIGNED)


def test_ids_are_32_hex_digits_and_differ() -> None:
    ids = RandomIds()
    made = {ids.new() for _ in range(100)}

    assert len(made) == 100
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in made)


def test_a_spec_survives_its_json_and_refuses_what_it_does_not_know() -> None:
    made = spec(pipelines=2)

    assert JobSpec.model_validate_json(made.model_dump_json()) == made
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        JobSpec.model_validate({**made.model_dump(), "colour": "red"})
    with pytest.raises(ValidationError):
        EnvSpec(parallelism=0)
