"""All that is wrong with a job file is said at once, and what is only unknown is a warning."""

from __future__ import annotations

import pytest

from headrace.errors import BadJob, BadJobFile
from headrace.jobfile.reader import examine_job, read_job
from headrace.jobfile.spec_checks import check_spec
from headrace.plugins.problems import PROBLEMS_MAX, WarningKind
from tests.jobfile.samples import TWO_PIPELINES, job, notes, problem, problems, read

WRONG = """\
env {
  parallelism = none
  job.mode = BACH
}
source {
  FakeSource { row.num = -1, plugin_output = a, schema { fields { id = it } } }
  FakeSorce { plugin_output = b }
}
transform { Sql { plugin_input = a, plugin_output = c, queryy = "select 1" } }
sink { Console { plugin_input = c, log.print.data = maybe } }
"""


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = problems(WRONG)

    assert [line.split(": ")[0] for line in said] == [
        "job.conf:2:17",
        "job.conf:3:14",
        "job.conf:6:26",
        "job.conf:6:72",
        "job.conf:7:3",
        "job.conf:9:56",
        "job.conf:10:53",
    ]
    assert said[3].endswith("unknown type 'it'; did you mean 'int'?")
    assert "did you mean 'FakeSource'?" in said[4]


def test_the_first_problem_is_the_errors_own_and_the_others_stand_beside_it() -> None:
    with pytest.raises(BadJobFile) as refused:
        read(WRONG)

    error = refused.value
    assert (error.path, error.line, error.column) == ("job.conf", 2, 17)
    assert error.problem == "option 'parallelism' of env must be a whole number, and is 'none'"
    assert [each.line for each in error.others] == [3, 6, 6, 7, 9, 10]
    assert len(error.problems) == 7
    assert error.more == 0


def test_of_very_many_problems_some_are_listed_and_the_rest_is_counted() -> None:
    many = "\n".join(f"FakeSource {{ row.num = x{n} }}" for n in range(30))

    said = problems(f"source {{\n{many}\n}}\nsink {{ Console {{ }} }}")

    assert len(said) == PROBLEMS_MAX + 1
    assert said[-1] == "and 41 more"


def test_mistakes_of_the_syntax_are_all_said_and_each_once() -> None:
    text = "env {\n  a = b : c\n  job.name\n  x = 5\n}\nsource {\n  y = @@\n  F { z == 1 }\n}\n"

    assert [line.split(": ")[0] for line in problems(text)] == [
        "job.conf:2:9",
        "job.conf:4:3",
        "job.conf:7:7",
        "job.conf:8:10",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("env {\n  a = 1\n}\nsource {\n  Fake {\n    b = 1\n}\nsink { }\n", "job.conf:5:8"),
        ("source {\n  Fake {\n    schema {\n      x = 1\n  }\n}\nsink { }\n", "job.conf:3:12"),
        ('env {\n  a = "}"  # }\n', "job.conf:1:5"),
        ("source = [\n  { plugin_name = x }\n", "job.conf:1:10"),
    ],
)
def test_a_bracket_that_is_never_closed_is_named_by_where_it_was_opened(
    text: str, place: str
) -> None:
    (said,) = problems(text)

    assert said.startswith(f"{place}: this ")
    assert "is never closed" in said


def test_wiring_is_checked_although_an_option_is_wrong() -> None:
    text = TWO_PIPELINES.replace("[a]", "[aa]").replace("x = int", "x = it", 1)

    assert [line.split(": ", 1)[1] for line in problems(text)] == [
        "unknown type 'it'; did you mean 'int'?",
        "sink Console-1 reads table 'aa', which nothing makes; did you mean 'a'?",
    ] or problems(text)[1].endswith("which nothing makes; known tables: a, b")


def test_an_unknown_option_is_a_warning_with_its_place_and_the_nearest_name() -> None:
    text = job(source="row.numm = 5", env="parallelisms = 2")

    reading = examine_job("job.conf", text=text)

    assert reading.spec is not None
    assert reading.unknown == 2
    assert [each.kind for each in reading.warnings] == [WarningKind.UNKNOWN] * 2
    assert notes(text) == [
        "job.conf:2:1: unknown option 'parallelisms' of env is ignored; "
        "did you mean 'parallelism'?",
        "job.conf:5:1: unknown option 'row.numm' of source FakeSource is ignored; "
        "did you mean 'row.num'?",
    ]
    assert "row.numm" not in reading.spec.pipelines[0].sources[0].options


def test_an_unknown_option_is_an_error_when_it_was_meant_for_a_required_one() -> None:
    text = job(transform='Sql { queryy = "select 1" }')

    assert problems(text) == [
        "job.conf:8:19: unknown option 'queryy' of transform Sql; did you mean 'query'? "
        "That one is required, and missing"
    ]


def test_an_unknown_option_is_an_error_when_it_was_meant_for_one_of_which_one_is_needed() -> None:
    text = "source { FakeSource { schemaa { fields { id = int } } } }\nsink { Console { } }"

    assert problem(text).endswith("did you mean 'schema'? That one is required, and missing")


def test_strictly_an_unknown_option_is_an_error() -> None:
    with pytest.raises(BadJobFile, match=r"unknown option 'x' of sink Console; known options: "):
        read_job("job.conf", text=job(sink="x = 1"), strict=True)


def test_what_a_reader_ignores_is_no_part_of_the_job_and_refused_over_the_wire() -> None:
    spec = read(job(sink="x = 1"))
    check_spec(spec)
    (sink,) = spec.pipelines[0].sinks
    pipeline = spec.pipelines[0].model_copy(
        update={"sinks": (sink.model_copy(update={"options": {"x": 1, "y": 2}}),)}
    )

    with pytest.raises(BadJob) as refused:
        check_spec(spec.model_copy(update={"pipelines": (pipeline,)}))

    assert [each.split(";")[0] for each in refused.value.problems] == [
        "Console-1: unknown option 'x' of sink Console",
        "Console-1: unknown option 'y' of sink Console",
    ]


def test_an_option_that_is_not_built_may_stand_for_one_that_is_required() -> None:
    text = "source { FakeSource { tables_configs = [] } }\nsink { Console { } }"

    (said,) = problems(text)

    assert "tables_configs" in said


def test_a_block_that_is_nearly_one_of_the_four_is_an_error_and_any_other_is_ignored() -> None:
    assert problem("sinks { }\n" + TWO_PIPELINES).endswith("did you mean 'sink'?")
    assert notes("zzz = 1\n" + TWO_PIPELINES) == [
        "job.conf:1:1: unknown block 'zzz' is ignored; known blocks: env, source, transform, sink"
    ]


def test_an_unknown_key_of_a_schema_is_a_warning() -> None:
    text = (
        "source { FakeSource { schema { columns = [{ name = x, type = int, nulable = true }] } } }"
        "\nsink { Console { } }"
    )

    assert notes(text) == [
        "job.conf:1:67: key 'nulable' of a column is unknown and has no effect; "
        "did you mean 'nullable'?"
    ]


def test_variables_that_can_not_be_are_all_said_and_each_cause_once() -> None:
    text = "a = ${b}\nb = ${a}\n" + job(source='row.num = "${"', sink="log.print.data = ${a}")

    said = [line.split(": ", 1)[1] for line in problems(text)]

    assert len(said) == 2
    assert said[0].startswith("'${' is no variable")
    assert said[1] == "${a} refers to itself" or said[1] == "${b} refers to itself"


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ("[a,b]", ["a", "b"]),
        ("['a b', \"c\"]", ["a b", "c"]),
        ('["a", "b"]', ["a", "b"]),
        ("[]", []),
    ],
)
def test_a_variable_may_hold_a_list(given: str, items: list[str]) -> None:
    text = job(source="string.template = ${names}")

    spec = read(text, variables={"names": given})

    assert spec.pipelines[0].sources[0].options["string.template"] == items


def test_a_text_that_looks_like_a_list_stays_a_text_where_one_is_wanted() -> None:
    spec = read(job(env="job.name = ${name}"), variables={"name": "[a,b]"})

    assert spec.name == "[a,b]"


@pytest.mark.parametrize("name", ["", "a b", "-x", "é"])
def test_a_group_has_a_name_that_can_be_one(name: str) -> None:
    assert "option 'group' of env can't be" in problem(job(env=f'group = "{name}"'))


def test_the_group_of_a_job_stands_in_env_and_not_in_what_is_stored() -> None:
    spec = read(job(env="group = large"))

    assert spec.group == "large"
    assert "group" not in read(job()).model_dump(mode="json")
    assert "group" not in spec.env.model_dump()
