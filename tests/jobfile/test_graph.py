"""Wiring: chains without names, graphs with them, pipelines, and every mistake in between."""

from __future__ import annotations

import pytest

from headrace.model.jobs.spec import JobSpec
from tests.jobfile.samples import TWO_PIPELINES, problem, read

FAKE = "FakeSource {{ {wiring}\nschema {{ fields {{ x = int }} }} }}"


def graph(sources: list[str], transforms: list[str], sinks: list[str]) -> str:
    """Each plugin is given by its wiring alone, and each begins on a line of its own:
    two lines for a source, one for any other."""
    lines = ["source {", *(FAKE.format(wiring=wiring) for wiring in sources), "}", "transform {"]
    lines += [f'Sql {{ query = "select 1" {", " + w if w else ""} }}' for w in transforms]
    return "\n".join([*lines, "}", "sink {", *(f"Console {{ {w} }}" for w in sinks), "}"])


def wiring(spec: JobSpec) -> list[list[tuple[str, tuple[str, ...], str | None]]]:
    return [
        [
            (plugin.name, plugin.inputs, plugin.output)
            for plugin in (*pipeline.sources, *pipeline.transforms, *pipeline.sinks)
        ]
        for pipeline in spec.pipelines
    ]


@pytest.mark.parametrize(
    ("source", "transform", "sink", "first", "second"),
    [
        ("", "", "", "FakeSource-1", "Sql-1"),
        ("plugin_output = a", "", "", "a", "Sql-1"),
        ("", "source_table_name = b", "", "b", "Sql-1"),
        (
            "plugin_output = a",
            "plugin_input = wrong, plugin_output = c",
            "plugin_input = no",
            "a",
            "c",
        ),
        ("plugin_output = a", "plugin_output = a", "plugin_input = a", "a", "Sql-1"),
    ],
)
def test_a_simple_job_is_a_chain_whatever_it_is_named(
    source: str, transform: str, sink: str, first: str, second: str
) -> None:
    spec = read(graph([source], [transform], [sink]))

    assert wiring(spec) == [
        [("FakeSource-1", (), first), ("Sql-1", (first,), second), ("Console-1", (second,), None)]
    ]


def test_each_connected_part_is_a_pipeline() -> None:
    spec = read(TWO_PIPELINES)

    assert wiring(spec) == [
        [("FakeSource-1", (), "a"), ("Console-1", ("a",), None)],
        [("FakeSource-2", (), "b"), ("Console-2", ("b",), None)],
    ]
    assert [pipeline.number for pipeline in spec.pipelines] == [1, 2]


def test_what_shares_a_table_is_one_pipeline_and_its_transforms_are_in_order() -> None:
    spec = read(
        graph(
            ["plugin_output = a", "plugin_output = b", "plugin_output = c"],
            ["plugin_input = t2, plugin_output = t1", "plugin_input = [a, c], plugin_output = t2"],
            ["plugin_input = t1", "plugin_input = b", "plugin_input = [t2, c]"],
        )
    )

    assert wiring(spec) == [
        [
            ("FakeSource-1", (), "a"),
            ("FakeSource-3", (), "c"),
            ("Sql-2", ("a", "c"), "t2"),
            ("Sql-1", ("t2",), "t1"),
            ("Console-1", ("t1",), None),
            ("Console-3", ("t2", "c"), None),
        ],
        [("FakeSource-2", (), "b"), ("Console-2", ("b",), None)],
    ]


def test_a_plugin_without_an_input_reads_what_the_one_before_it_made() -> None:
    spec = read(graph([""], ["", ""], ["", "plugin_input = Sql-1"]))

    assert wiring(spec) == [
        [
            ("FakeSource-1", (), "FakeSource-1"),
            ("Sql-1", ("FakeSource-1",), "Sql-1"),
            ("Sql-2", ("Sql-1",), "Sql-2"),
            ("Console-1", ("Sql-2",), None),
            ("Console-2", ("Sql-1",), None),
        ]
    ]


A, B = "plugin_output = a", "plugin_output = b"


@pytest.mark.parametrize(
    ("sources", "transforms", "sinks", "said"),
    [
        (
            [A, A],
            [],
            ["plugin_input = a"],
            "4:30: table 'a' of source FakeSource-2 is already made by source FakeSource-1; "
            "give it another plugin_output",
        ),
        (
            ["plugin_output = fake", B],
            [],
            ["plugin_input = fak", "plugin_input = b"],
            "10:26: sink Console-1 reads table 'fak', which nothing makes; did you mean 'fake'?",
        ),
        (
            [A, B],
            [],
            ["plugin_input = a"],
            "4:30: table 'b' of source FakeSource-2 is read by nothing; "
            "name it as plugin_input of a sink, or remove the plugin",
        ),
        (
            [A, B],
            [],
            ["plugin_input = a", ""],
            "11:1: sink Console-2 needs plugin_input (or source_table_name), "
            "since the job has 2 sources",
        ),
        (
            [A],
            ["plugin_input = y, plugin_output = x", "plugin_input = [x, a], plugin_output = y"],
            ["plugin_input = a"],
            "6:1: these transforms read each other: Sql-1, Sql-2",
        ),
        ([A, B], [], ["plugin_input = [a, a, b]"], "10:26: table 'a' is listed twice"),
        ([A, B], [], ['plugin_input = ["", b]'], "10:26: a table's name is empty"),
        ([], [], [""], "1:1: the job has no source; write a source { … } block with one"),
        ([""], [], [], "1:1: the job has no sink; write a sink { … } block with one"),
        ([""] * 501, [], [""], "1002:1: a job may have 500 plugins at most"),
    ],
)
def test_wiring_that_can_not_be_is_refused_with_its_place(
    sources: list[str], transforms: list[str], sinks: list[str], said: str
) -> None:
    assert problem(graph(sources, transforms, sinks)) == f"job.conf:{said}"
