"""Whether a job can go on under another job file, and what is said of it."""

from __future__ import annotations

import pytest

from headrace.errors import Refused
from headrace.jobfile.reader import read_job
from headrace.model.jobs.spec import (
    EnvSpec,
    JobSpec,
    PipelineSpec,
    PluginSpec,
    changes,
    check_restore,
)


def job(
    *sources: str,
    sinks: tuple[str, ...] = ("Console-1",),
    mode: str = "BATCH",
    plugin: str = "FakeSource",
    rows: int = 7,
) -> JobSpec:
    """Sources in one pipeline each, all into the same kind of sinks."""
    pipelines = tuple(
        PipelineSpec(
            number=number,
            sources=(PluginSpec(name=name, plugin=plugin, options={"row.num": rows}, output=name),),
            sinks=tuple(PluginSpec(name=f"{s}", plugin="Console", inputs=(name,)) for s in sinks),
        )
        for number, name in enumerate(sources, start=1)
    )
    env = EnvSpec.model_validate({"job_mode": mode})
    return JobSpec(name="demo", env=env, pipelines=pipelines)


def test_the_same_file_goes_on_without_a_word() -> None:
    check_restore("j", job("a", "b"), job("a", "b"), left_open={1, 2})
    assert changes(job("a"), job("a")) == []


def test_a_lost_source_is_refused_by_name_with_what_there_is() -> None:
    with pytest.raises(Refused) as refused:
        check_restore("j", job("a", "b", "c"), job("b", "d"), left_open=())

    assert str(refused.value) == (
        "the job file has lost source 'a' (plugin_output 'a'), 'c' (plugin_output 'c'), of which "
        "job 'j' has a position; it has source 'b' (plugin_output 'b'), 'd' (plugin_output 'd'). "
        "Put the source back, or run the file anew without --restore"
    )


def test_a_source_that_is_another_plugin_by_now_is_refused() -> None:
    with pytest.raises(Refused, match="source 'a' of job 'j' was a FakeSource, and is a Jdbc"):
        check_restore("j", job("a"), job("a", plugin="Jdbc"), left_open=())


def test_another_mode_is_refused() -> None:
    with pytest.raises(Refused, match=r"was a STREAMING job, and the job file says job\.mode"):
        check_restore("j", job("a", mode="STREAMING"), job("a"), left_open=())


def test_what_is_new_is_told() -> None:
    assert changes(job("a"), job("a", "b", sinks=("Console-2",), rows=8)) == [
        "source 'b' is new: it is read from its beginning",
        "source 'a' has other options than before: it goes on from where it was",
        "sink 'Console-2' is new: it gets the rows from here on, and no save mode is carried out",
        "sink 'Console-1' is gone: it keeps what it has",
    ]


@pytest.mark.parametrize("new", [job("b", "a"), job("a", "b", sinks=("Console-2",))])
def test_an_epoch_that_could_not_be_settled_needs_its_pipeline(new: JobSpec) -> None:
    check_restore("j", job("a", "b"), new, left_open=())

    with pytest.raises(Refused) as refused:
        check_restore("j", job("a", "b"), new, left_open={2})

    assert str(refused.value) == (
        "pipeline 2 of job 'j' has an epoch that could not be settled; to finish it, pipeline 2 "
        "of the job file must have source 'b' and sink 'Console-1', as before. Restore it with "
        "that file; a later restore may change them"
    )


def test_a_pipeline_without_such_an_epoch_may_change() -> None:
    check_restore("j", job("a", "b"), job("a", "b", "c"), left_open={1})


def reading(*folders: str, pattern: str = ".*") -> JobSpec:
    """A job file with a source for each folder, in this order."""
    sources = "\n".join(
        f'LocalFile {{ path = "/in/{folder}", file_format_type = text, plugin_output = {folder}, '
        f'file_filter_pattern = "{pattern}" }}'
        for folder in folders
    )
    sink = f"Console {{ plugin_input = [{', '.join(folders)}] }}"
    env = "env { job.mode = STREAMING }"
    return read_job("job.conf", text=f"{env}\nsource {{ {sources} }}\nsink {{ {sink} }}\n")


@pytest.mark.parametrize("now", [("b", "a"), ("new", "a", "b")], ids=["swapped", "put first"])
def test_a_source_does_not_go_on_from_the_position_of_another_one(now: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as refused:
        check_restore("j", reading("a", "b"), reading(*now), left_open=())

    assert str(refused.value) == (
        "source 'LocalFile-1' of job 'j' is called 'LocalFile-2' in the job file, where "
        f"'LocalFile-1' (path '/in/{now[0]}') would go on from its position; sources are named by "
        "their order in the file. Keep the order they had, and add new ones at the end"
    )


def test_sources_may_be_added_at_the_end_and_their_options_may_change() -> None:
    old = reading("a", "b")
    check_restore("j", old, reading("a", "b", "new"), left_open=())
    check_restore("j", old, reading("moved", "b"), left_open=())
    check_restore("j", old, reading("a", "b", pattern="x"), left_open=())


def test_a_lost_source_is_told_with_what_it_read() -> None:
    with pytest.raises(Refused, match=r"has lost source 'LocalFile-2' \(path '/in/b'\), of which"):
        check_restore("j", reading("a", "b"), reading("a"), left_open=())
