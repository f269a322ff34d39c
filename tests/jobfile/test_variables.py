"""Variables: where a value comes from, and what is left alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from headrace.errors import BadSetting
from headrace.jobfile.document import read_document
from headrace.jobfile.nodes import Problem, to_json
from headrace.jobfile.variables import RESERVED, substitute
from tests.jobfile.samples import job, read


def resolved(
    text: str,
    variables: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> JsonValue:
    document, _ = substitute(
        read_document(text), variables=variables or {}, environment=environment or {}
    )
    return to_json(document.root)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${x}", "1"),
        ('"${x}"', "1"),
        ("${x}_table", "1_table"),
        ('"select "${x}" from \'"${y}"\'"', "select 1 from 'two words'"),
        ('"""${x}\n${y}"""', "1\ntwo words"),
        ("[${x}, { a = ${y} }]", ["1", {"a": "two words"}]),
        ("${none:50}", "50"),
        ("${x:50}", "1"),
        ('"a${none:}b"', "ab"),
        ("${none}", "${none}"),
        ('"${none}_${now}"', "${none}_${now}"),
        ("${HOME_DIR}/x", "/home/x"),
        ('"${?none}x"', "x"),
        ("[${?none}, 1]", [1]),
    ],
)
def test_a_variable_is_replaced_inside_and_outside_of_quotes(
    written: str, value: JsonValue
) -> None:
    variables = {"x": "1", "y": "two words"}

    read = resolved(f"a = {written}", variables, {"x": "not this", "HOME_DIR": "/home"})

    assert read == {"a": value}


def test_a_reference_into_the_document_takes_the_value_that_stands_there() -> None:
    text = (
        "base { n = 5, l = [1] }\n"
        "a = ${base.n}, b = ${base.l} [2], c = ${base} { n = 6 }, d = x${a}"
    )

    assert resolved(text) == {
        "base": {"n": 5, "l": [1]},
        "a": 5,
        "b": [1, 2],
        "c": {"n": 6, "l": [1]},
        "d": "x5",
    }


def test_a_block_written_after_a_reference_is_merged_into_it() -> None:
    assert resolved("b { d = 2 }\na = ${b}\na { c = 1 }") == {
        "b": {"d": 2},
        "a": {"d": 2, "c": 1},
    }


def test_an_optional_variable_without_a_value_leaves_what_was_there() -> None:
    assert resolved("a = 1\na = ${?none}\nb = ${?none}") == {"a": 1}
    assert resolved("a = 1\na = ${?x}", {"x": "2"}) == {"a": "2"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ${b}\nb = ${a}", "${b} refers to itself"),
        ("a = x${a}", "${a} refers to itself"),
        (
            "\n".join(f"a{i} = ${{a{i + 1}}}" for i in range(40)) + "\na40 = 1",
            "more than 32 references to references",
        ),
        (
            "a0 = [1]\n" + "\n".join(f"a{i + 1} = [${{a{i}}}, ${{a{i}}}]" for i in range(30)),
            "references repeat more than 100000 values",
        ),
        (
            "a0 = xxxxxxxx\n" + "\n".join(f"a{i + 1} = ${{a{i}}}${{a{i}}}" for i in range(30)),
            "references make a text of more than 1000000 characters",
        ),
    ],
)
def test_references_that_never_end_or_grow_are_refused(text: str, said: str) -> None:
    with pytest.raises(Problem) as raised:
        resolved(text)

    assert raised.value.text == said


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_reserved_name_is_left_to_the_sink_and_can_not_be_given(name: str) -> None:
    assert resolved(f'a = ${{{name}}}, b = "x_${{{name}:y}}"', {}, {name: "no"}) == {
        "a": f"${{{name}}}",
        "b": f"x_${{{name}:y}}",
    }
    with pytest.raises(BadSetting) as refused:
        read(job(), variables={name: "x"})
    assert str(refused.value) == (
        f"variable {name!r} is reserved: sinks replace ${{{name}}} for each table; "
        "give the variable another name"
    )


def test_a_variable_becomes_what_its_option_needs() -> None:
    text = job(source='row.num = "${rows:50}"\nstring.template = ${names}\nint.template = ${ages}')

    spec = read(text, variables={"names": "a, b", "ages": "[1, 2]"})

    assert spec.pipelines[0].sources[0].options == {
        "row.num": 50,
        "string.template": ["a", "b"],
        "int.template": [1, 2],
        "schema": {"fields": {"id": "int"}},
    }
