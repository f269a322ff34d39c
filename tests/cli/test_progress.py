"""What a person sees while a job runs and when it has ended."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from headrace.cli.progress import PLAIN_EVERY_S, Bars, Lines
from headrace.cli.summary import pipelines_table, reason, took
from headrace.client import JobView
from tests.cli.machine import job_view, pipeline_view
from tests.fakes import FakeClock


def seen(
    rows: int,
    step: str = "running",
    *,
    expected: int | None = 1000,
    waits_for: str | None = None,
) -> JobView:
    progress = {"step": step, "epoch": 3, "rows": rows, "rows_expected": expected}
    pipeline = pipeline_view(rows_in=0, rows_out=0, epoch=2, commits={}, progress=progress)
    return JobView.model_validate(job_view(pipelines=[pipeline], waits_for=waits_for))


def lines_of(text: io.StringIO) -> list[str]:
    return text.getvalue().splitlines()


def test_a_line_is_said_when_the_step_changes_and_every_few_seconds() -> None:
    clock, text = FakeClock(), io.StringIO()
    lines = Lines(Console(file=text, width=200), clock)
    lines.job(seen(0))
    clock.advance(1)
    lines.job(seen(100))
    assert len(lines_of(text)) == 1, "nothing new worth a line"
    clock.advance(PLAIN_EVERY_S)
    lines.job(seen(600))
    lines.job(seen(600, "committing"))

    assert [line.split("  ", 1)[1].strip() for line in lines_of(text)] == [
        "0.0 s  pipeline 1 · running · 0 of 1,000 rows · 0 rows/s · epoch 3",
        "6.0 s  pipeline 1 · running · 600 of 1,000 rows · 100 rows/s · epoch 3",
        "6.0 s  pipeline 1 · committing · 600 of 1,000 rows · 100 rows/s · epoch 3",
    ]


def test_rows_of_the_time_before_are_no_speed() -> None:
    clock, text = FakeClock(), io.StringIO()
    lines = Lines(Console(file=text, width=200), clock)
    lines.job(seen(5000, expected=None))
    clock.advance(PLAIN_EVERY_S)
    lines.job(seen(5050, expected=None))

    assert lines_of(text)[-1].endswith("pipeline 1 · running · 5,050 rows · 10 rows/s · epoch 3")


@pytest.mark.parametrize(
    ("status", "epoch", "shown"), [("FINISHED", 2, 1), ("FINISHED", 1, 0), ("RUNNING", 2, 2)]
)
@pytest.mark.parametrize("step", ["completed", None])
def test_the_completed_point_is_not_shown_as_an_epoch(
    status: str, epoch: int, shown: int, step: str | None
) -> None:
    """It has the next epoch's id, and a job of one epoch would seem to have had two."""
    progress = {"step": step, "epoch": shown, "rows": 10} if step else None
    pipeline = pipeline_view(status, epoch=epoch, progress=progress)
    text = io.StringIO()
    lines = Lines(Console(file=text, width=200), FakeClock())
    lines.job(JobView.model_validate(job_view(status, pipelines=[pipeline])))

    assert text.getvalue().rstrip().endswith(f" · epoch {shown}")


def test_what_a_job_waits_for_is_said() -> None:
    text = io.StringIO()
    Lines(Console(file=text, width=200), FakeClock()).job(seen(0, waits_for="2 free slots"))

    assert "(waits for 2 free slots)" in text.getvalue()


def test_the_end_of_a_wait_is_said_at_once() -> None:
    text = io.StringIO()
    lines = Lines(Console(file=text, width=200), FakeClock())
    lines.job(seen(0, "created", waits_for="a free slot"))
    lines.job(seen(0, "created"))

    assert [" (waits for" in line for line in lines_of(text)] == [True, False]


@pytest.mark.parametrize("expected", [1000, None])
def test_a_bar_shows_rows_rate_epoch_and_step(expected: int | None) -> None:
    clock = FakeClock()
    progress = Progress(TextColumn("{task.description}"), console=Console(file=io.StringIO()))
    bars = Bars(progress, clock)
    bars.doing("starting Spark")
    bars.job(seen(0, expected=expected))
    clock.advance(2)
    bars.job(seen(500, expected=expected))

    (bar,) = progress.tasks
    assert bar.description == "pipeline 1 · running"
    assert (bar.completed, bar.total) == (500, expected)
    of = " of 1,000" if expected else ""
    assert bar.fields["facts"] == f"500{of} rows · 250 rows/s · epoch 3"


def test_the_summary_names_each_sink_with_its_table_snapshot_and_rows() -> None:
    commits = {"a": {"table": "x.y", "snapshot": 8_000_000_000_000_000_001}, "b": {}}
    view = JobView.model_validate(job_view(pipelines=[pipeline_view(commits=commits)]))
    text = io.StringIO()
    Console(file=text, width=200).print(pipelines_table(view))

    rows = [line.split() for line in lines_of(text) if "RUNNING" in line]
    counts = ["1", "RUNNING", "1,000,000", "1,000,000"]
    assert rows == [[*counts, "x.y", "8000000000000000001", "-"], [*counts, "b", "-", "-"]]


def test_the_duration_is_from_the_start_not_from_the_submission() -> None:
    view = JobView.model_validate(job_view(ended_at_ms=1_700_000_003_000))

    assert took(view) == " in 2.0 s, 500,000 rows/s"


@pytest.mark.parametrize(
    ("job", "pipeline", "expected"),
    [
        ("it broke", None, "it broke"),
        (None, "its pipeline broke", "its pipeline broke"),
        ("java.X: a\n\tat Y\nCaused by: no room on disk\n\tat Z", None, "no room on disk"),
        (
            "Error in o1.save.\n: org.X: no catalog\n\tat Y",
            None,
            "Error in o1.save. : org.X: no catalog",
        ),
        (None, None, "no reason was given"),
    ],
)
def test_the_reason_is_the_line_that_says_most(
    job: str | None, pipeline: str | None, expected: str
) -> None:
    broken = job_view("FAILED", error=job, pipelines=[pipeline_view(error=pipeline)])

    assert reason(JobView.model_validate(broken)) == expected
