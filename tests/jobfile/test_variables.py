"""Variables: where a value comes from, and what is left alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from headrace.errors import BadJobFile, BadSetting
from headrace.jobfile.hocon import read_document
from headrace.jobfile.reader import read_job
from headrace.jobfile.variables import substitute
from headrace.plugins.syntax_tree import RESERVED, Problem, to_json
from tests.jobfile.samples import job, problem, read


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


UNSET = (
    "variable 'NOPE' has no value; give it with -i NOPE=… or in the environment, "
    "or write $${NOPE} for the text ${NOPE} itself"
)
JDBC = """\
source { FakeSource { schema { fields { id = int } } } }
sink { Jdbc { url = "jdbc:postgresql://h/d", table = t,
  password = ${NOPE} } }
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (JDBC, f"job.conf:3:14: option 'password' of sink Jdbc: {UNSET}"),
        (
            job(source='string.template = [a, "x${NOPE}"]'),
            f"job.conf:5:23: option 'string.template' of source FakeSource: {UNSET}",
        ),
        (
            job(source='rows = [{ kind = INSERT, fields = ["${NOPE}"] }]'),
            f"job.conf:5:36: option 'rows' of source FakeSource: {UNSET}",
        ),
        (
            job(env='job.name = "${NOPE}"'),
            f"job.conf:2:12: option 'job.name' of env: {UNSET}",
        ),
        (
            job(env="spark.x = ${NOPE}"),
            f"job.conf:2:11: option 'spark.x' of env: {UNSET}",
        ),
        (
            job(env='spark { "${NOPE}" = 1 }'),
            f"job.conf:2:9: {UNSET}",
        ),
        (
            job(env="job.name = ${base.name}") + 'base { name = "${NOPE}" }',
            f"job.conf:12:15: option 'job.name' of env: {UNSET}",
        ),
    ],
)
def test_a_variable_without_a_value_is_refused_wherever_it_stands(text: str, said: str) -> None:
    assert problem(text) == said


@pytest.mark.parametrize("environment", [{}, {"A": "a", "B": "b"}])
@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("${A:${B}}", "${A:${B}"),
        ("${A:x-${B}-y}", "${A:x-${B}"),
        ("${}", "${}"),
        ("${:}", "${:}"),
        ("${a{b}}", "${a{b}}"),
        ("${?}", "${?}"),
        ("${A", "${A"),
    ],
)
def test_what_begins_as_a_variable_and_is_none_is_never_sent(
    written: str, named: str, environment: Mapping[str, str]
) -> None:
    text = JDBC.replace("${NOPE}", f'"{written}"')

    with pytest.raises(BadJobFile) as refused:
        read(text, environment=environment)
    assert str(refused.value) == (
        f"job.conf:3:14: {named!r} is no variable: write ${{name}} or ${{name:default}}, with no "
        "variable inside of it, or $${ for the text ${ itself"
    )


def test_a_variable_in_a_query_of_many_lines_is_refused() -> None:
    text = JDBC.replace("${NOPE}", "x").replace(
        "sink {",
        'transform { Sql { query = """\n  select * from fake\n  where id > ${NOPE}""" } }\nsink {',
    )

    assert problem(text) == f"job.conf:2:27: option 'query' of transform Sql: {UNSET}"


def test_the_name_that_was_probably_meant_is_told() -> None:
    with pytest.raises(
        BadJobFile, match=r"variable 'DB_PASWORD' .*\(did you mean 'DB_PASSWORD'\?\)"
    ):
        read(JDBC.replace("NOPE", "DB_PASWORD"), environment={"DB_PASSWORD": "secret", "X": "y"})


def test_a_placeholder_is_left_to_the_option_that_replaces_it_and_to_no_other() -> None:
    source = "source { FakeSource { schema { fields { id = int } } } }\n"
    sink = (
        "sink { LocalFile {\n"
        "path = /a\ncustom_filename = true\nhave_partition = true\npartition_by = [id]\n"
        'file_name_expression = "${transactionId}_${now}_${uuid}"\n'
        'partition_dir_expression = "${k0}=${v0}"\n} }\n'
    )

    options = read(source + sink).pipelines[0].sinks[0].options

    assert options["file_name_expression"] == "${transactionId}_${now}_${uuid}"
    assert options["partition_dir_expression"] == "${k0}=${v0}"
    for wrong, said in (
        ("path = /a", "option 'path' of sink LocalFile: variable 'now' has no value"),
        ("partition_dir_expression", "option 'partition_dir_expression' of sink LocalFile"),
    ):
        text = sink.replace("path = /a", 'path = "/a/${now}"')
        if wrong != "path = /a":
            text = sink.replace("${v0}", "${now}")
        assert said in problem(source + text)


def test_a_placeholder_of_an_option_is_its_own_whatever_the_environment_has() -> None:
    text = (
        "source { FakeSource { schema { fields { id = int } } } }\n"
        'sink { LocalFile { path = "/a/${now}", custom_filename = true\n'
        'file_name_expression = "${now}_${uuid}_${WHERE}" } }\n'
    )
    environment = {"now": "env", "uuid": "env", "WHERE": "here"}

    kept = read(text, environment=environment).pipelines[0].sinks[0].options
    given = read(text, environment=environment, variables={"now": "x"}).pipelines[0].sinks[0]

    assert (kept["path"], kept["file_name_expression"]) == ("/a/env", "${now}_${uuid}_here")
    assert given.options["file_name_expression"] == "x_${uuid}_here"


def test_a_reserved_name_is_kept_by_the_options_of_a_sink_that_list_it_and_told() -> None:
    told: list[str] = []
    text = JDBC.replace("table = t", 'table = "${table_name}"').replace("${NOPE}", "x")

    spec = read_job("job.conf", text=text, note=told.append)

    assert spec.pipelines[0].sinks[0].options["table"] == "${table_name}"
    assert told == [
        "job.conf:2:54: option 'table' of sink Jdbc keeps ${table_name} as it stands: a job writes "
        "one table, and nothing replaces it yet"
    ]
    assert problem(JDBC.replace("NOPE", "table_name")) == (
        "job.conf:3:14: option 'password' of sink Jdbc: ${table_name} stands for a part of each "
        "table's name in SeaTunnel's sinks, which is not built yet; write the name itself"
    )


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"$${x}"', "${x}"),
        ("$${x}", "${x}"),
        ("a$${x:y}b", "a${x:y}b"),
        ('"""$${x} is ${x}"""', "${x} is 1"),
        ('"$"${x}', "$1"),
        ('"costs $"${x}" and $$"', "costs $1 and $$"),
        ('"$$$${x}"', "$$${x}"),
        ('"$${}$${"', "${}${"),
        ('"$${a:${x}}"', "${a:1}"),
    ],
)
def test_a_doubled_dollar_writes_the_variable_itself(written: str, value: str) -> None:
    assert resolved(f"a = {written}", {"x": "1"}) == {"a": value}


def test_what_was_written_with_a_doubled_dollar_is_not_looked_for_again() -> None:
    spec = read(JDBC.replace("${NOPE}", '"$${NOPE}"'), variables={"NOPE": "no"})

    assert spec.secrets["Jdbc-1.password"] == "${NOPE}"


def test_the_value_of_a_variable_is_taken_as_it_is() -> None:
    spec = read(JDBC, environment={"NOPE": "a${b}$${c}"})

    assert spec.secrets["Jdbc-1.password"] == "a${b}$${c}"


def test_a_value_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadJobFile, match="the value of variable 'NOPE' has half of"):
        read(JDBC, environment={"NOPE": "name\udce9"})


def test_a_key_and_the_name_of_a_plugin_may_hold_variables() -> None:
    assert resolved('"${x}.b" = 1', {"x": "a"}) == {"a.b": 1}
    text = JDBC.replace("${NOPE}", "x") + 'source = [{ plugin_name = "${kind}", row.num = 1 }]'
    with pytest.raises(BadJobFile, match="there is no source 'Fake'"):
        read(text, variables={"kind": "Fake"})


def test_blocks_that_references_put_into_each_other_are_refused_when_they_are_too_deep() -> None:
    deep = ".".join("a" * 40)
    text = "\n".join(f"r{n}.{deep} = ${{r{n + 1}}}" for n in range(30)) + "\nr30 = 1"

    with pytest.raises(Problem, match="nested more than 64 deep, references included"):
        resolved(text)


def test_a_block_can_not_be_put_into_a_text() -> None:
    with pytest.raises(
        Problem, match=r"\$\{b\} is a block or a list, and can't be put into a text"
    ):
        resolved('b { c = 1 }\na = "x${b}"')


def test_a_variable_becomes_what_its_option_needs() -> None:
    text = job(source='row.num = "${rows:50}"\nstring.template = ${names}\nint.template = ${ages}')

    spec = read(text, variables={"names": "a, b", "ages": "[1, 2]"})

    assert spec.pipelines[0].sources[0].options == {
        "row.num": 50,
        "string.template": ["a", "b"],
        "int.template": [1, 2],
        "schema": {"fields": {"id": "int"}},
    }
