"""What the env of a job asks for."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from headrace.model.jobs.spec import EnvSpec


@pytest.mark.parametrize(
    ("given", "jars"),
    [
        ({}, ()),
        ({"jars": ["org.a:b:1", "org.a:c:2"]}, ("org.a:b:1", "org.a:c:2")),
        ({"jars": "file:///tmp/a.jar;file:///tmp/b.jar"}, ()),
    ],
)
def test_jars_that_a_job_asks_for_are_a_list_of_coordinates(
    given: dict[str, JsonValue], jars: tuple[str, ...]
) -> None:
    assert EnvSpec(other=given).jars == jars
