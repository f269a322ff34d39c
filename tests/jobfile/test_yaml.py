"""Job files in YAML: the same jobs, variables and errors as in HOCON, and nothing dangerous."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.jobfile.yaml_document import read_yaml
from headrace.plugins.problems import Problems
from headrace.plugins.syntax_tree import to_json
from tests.jobfile.samples import FIRST, YAML, notes, problem, problems, read


def test_a_job_in_yaml_is_the_job_in_hocon() -> None:
    assert read(YAML, path="job.yaml") == read(FIRST)


def test_plugins_may_stand_in_a_mapping() -> None:
    text = (
        "source:\n  FakeSource:\n    schema: {fields: {id: int}}\ntransform:\nsink:\n  Console:\n"
    )

    spec = read(text, path="job.yml")

    assert [each.plugin for each in spec.pipelines[0].sinks] == ["Console"]


def test_variables_are_those_of_hocon() -> None:
    text = YAML.replace("row.num: 16", "row.num: ${rows:3}").replace("${nobody:none}", "$${x}")

    spec = read(text, path="job.yaml", variables={"rows": "5"})

    assert spec.pipelines[0].sources[0].options["row.num"] == 5
    assert "'${x}'" in str(spec.pipelines[0].transforms[0].options["query"])


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("yes", "yes"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("0x10", "0x10"),
        ("010", "010"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("1.5", 1.5),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_a_text_without_quotes_means_what_it_means_in_hocon(written: str, value: object) -> None:
    kept = Problems()

    document = read_yaml(f"a: {written}", kept)

    assert not kept.found
    assert to_json(document.root) == {"a": value}


def test_words_of_yaml_1_1_are_plain_keys() -> None:
    kept = Problems()

    assert to_json(read_yaml("on: 1\nno: 2\n5: 3", kept).root) == {"on": 1, "no": 2, "5": 3}


def test_a_merge_key_takes_over_what_is_not_written() -> None:
    kept = Problems()
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: [*a, *b], x: 9}"

    assert to_json(read_yaml(text, kept).root)["c"] == {"x": 9, "y": 2, "z": 4}  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("env:\n  a: 1\n  a: 2\n", "3:3", "the key 'a' stands in line 2 already"),
        ("env: !!python/object:os.system x", "1:6", "a text that begins with '!' is a tag"),
        ('env: {a: "\\U00110000"}', "1:1", "an escape in a text names no character"),
        ("env: {a: *hunter2}", "1:10", "this alias, *NAME, names nothing"),
        ("env: {a: 1\nb: 2\n", "2:2", "a flow mapping that begins in line 1, column 6"),
        ("env: [1, 2\n", "2:1", "a flow sequence that begins in line 1, column 6"),
        ('env: "x\n', "2:1", "a quoted scalar that begins in line 1, column 6"),
        ("env:\n\ta: 1", "2:1", "this is no YAML"),
        ("a: 1\n---\nb: 1", "2:1", "a second document begins here"),
        ("a: &a [*a]", "1:8", "this alias, *NAME, names nothing that stands before it"),
        ("? [a]\n: 1", "1:3", "a key must be a text"),
        ("- a", "1:1", "a job file is a mapping"),
        ("", "1:1", "the file is empty"),
        ("a: \x07", "1:4", "a character stands here that YAML does not allow"),
        ("a: {<<: 5}", "1:5", "<< takes a mapping"),
        ("a: " + "[" * 100, "1:67", "nested more than 64 deep"),
        ("sink: 5", "1:7", "sink must be a block of plugins, or a list of them"),
        ("sink: {Console: 5}", "1:8", "sink Console must be a mapping of its options"),
        ("sink: [{a: 1}]", "1:8", "a sink in a list must be an object with plugin_name"),
    ],
)
def test_what_can_not_be_understood_is_said_with_its_place(
    text: str, place: str, said: str
) -> None:
    refused = problem(text, path="job.yaml")

    assert refused.startswith(f"job.yaml:{place}: ")
    assert said in refused


def test_aliases_can_not_make_a_file_grow_without_end() -> None:
    laughs = "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))

    assert "more than 100000 values, aliases included" in problem(
        "a0: &a0 [x]\n" + laughs, path="job.yaml"
    )


def test_options_in_yaml_have_their_places() -> None:
    text = YAML.replace("row.num: 16", "row.num: many").replace("table: people", "tablee: people")

    assert [line.split(": ")[0] for line in problems(text, path="job.yaml")] == [
        "job.yaml:8:14",
        "job.yaml:25:5",
    ]


def test_an_unknown_option_in_yaml_is_a_warning() -> None:
    said = notes(YAML.replace("row.num:", "row.numm:"), path="job.yaml")

    assert any(line.startswith("job.yaml:8:5: unknown option 'row.numm'") for line in said)


def test_a_job_in_hocon_loads_no_reader_of_yaml() -> None:
    code = "import sys, headrace.jobfile.reader; sys.exit('yaml' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
