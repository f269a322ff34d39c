"""What a person sees while a job runs and when it has ended."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from headrace.cli.jobs.text import moment, pipelines_table, reason, took
from headrace.cli.jobs.watch import PLAIN_EVERY_S, ProgressBars, ProgressLines
from headrace.client.views import JobView
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
    lines = ProgressLines(Console(file=text, width=200), clock)
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
    lines = ProgressLines(Console(file=text, width=200), clock)
    lines.job(seen(5000, expected=None))
    clock.advance(PLAIN_EVERY_S)
    lines.job(seen(5050, expected=None))

    assert lines_of(text)[-1].endswith("pipeline 1 · running · 5,050 rows · 10 rows/s · epoch 3")


def test_rows_are_those_of_the_fullest_sink() -> None:
    """As its execution counts them: neither their sum, nor something between."""
    text = io.StringIO()
    pipeline = pipeline_view(
        "FINISHED",
        rows_out=1010,
        written={"big": 1000, "small": 10},
        commits={"big": {}, "small": {}},
    )
    lines = ProgressLines(Console(file=text, width=200), FakeClock())
    lines.job(JobView.model_validate(job_view("FINISHED", pipelines=[pipeline])))

    assert " · 1,000 rows · " in text.getvalue()


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
    lines = ProgressLines(Console(file=text, width=200), FakeClock())
    lines.job(JobView.model_validate(job_view(status, pipelines=[pipeline])))

    assert text.getvalue().rstrip().endswith(f" · epoch {shown}")


def attempt(**changed: object) -> dict[str, object]:
    made: dict[str, object] = {
        "kind": "PIPELINE",
        "number": 2,
        "most": 4,
        "epoch": 7,
        "running": False,
        "lost": False,
        "error": "the disk is full",
        "next_at_ms": FakeClock().wall_ms() + 8000,
    }
    return {**made, **changed}


def trying(status: str = "SCHEDULED", job: str = "RUNNING", **changed: object) -> JobView:
    pipeline = pipeline_view(status, epoch=6, rows_out=600, commits={}, attempt=attempt(**changed))
    return JobView.model_validate(job_view(job, pipelines=[pipeline], error="why it fails"))


def test_a_failed_attempt_is_told_once_and_its_reason_stands_on_the_line() -> None:
    clock, text = FakeClock(), io.StringIO()
    lines = ProgressLines(Console(file=text, width=400), clock)
    lines.job(trying())
    clock.advance(1)
    lines.job(trying())
    clock.advance(PLAIN_EVERY_S)
    lines.job(trying())

    told = [line.split(" s  ", 1)[1] for line in lines_of(text)]
    at = moment(FakeClock().wall_ms() + 8000)
    facts = "600 rows · 0 rows/s · epoch 6"
    assert told == [
        f"pipeline 1: attempt 1 of 4 failed: the disk is full; attempt 2 of 4 follows at {at}",
        f"pipeline 1 · attempt 2 of 4 in 8.0 s · {facts}",
        f"pipeline 1 · attempt 2 of 4 in 2.0 s · {facts} · the disk is full",
    ]


def test_a_failure_after_progress_is_told_like_the_first() -> None:
    """Progress gives retries back, so it is the second attempt of four again."""
    clock, text = FakeClock(), io.StringIO()
    lines = ProgressLines(Console(file=text, width=400), clock)
    lines.job(trying(failed_at_ms=1))
    lines.job(trying(failed_at_ms=1, running=True))
    lines.job(trying(failed_at_ms=2, error="the disk is full again"))

    told = [line.split(" s  ", 1)[1] for line in lines_of(text) if " failed: " in line]
    assert [line.split(": ")[2].split(";")[0] for line in told] == [
        "the disk is full",
        "the disk is full again",
    ]


def test_a_lost_worker_is_told_with_the_epoch_that_is_begun_again() -> None:
    text = io.StringIO()
    gone = "worker w1 is gone (no word from it for 20 s)"
    lines = ProgressLines(Console(file=text, width=400), FakeClock())
    lines.job(trying(lost=True, error=gone, next_at_ms=None, most=10))
    lines.job(trying("RUNNING", lost=True, error=gone, next_at_ms=None, most=10, running=True))

    told = [line.split(" s  ", 1)[1] for line in lines_of(text)]
    assert told[0] == f"pipeline 1: {gone}; attempt 2 of 10 from epoch 7"
    assert told[1].startswith("pipeline 1 · attempt 2 of 10 waits for a worker · ")
    assert told[2].startswith("pipeline 1 · running, attempt 2 of 10 · ")
    assert len(told) == 3


def test_a_failing_job_says_why_and_how_it_is_settled() -> None:
    text = io.StringIO()
    settling = {"kind": "SETTLE", "number": 5, "most": 20, "epoch": 3}
    lines = ProgressLines(Console(file=text, width=400), FakeClock())
    lines.job(trying("FAILING", "FAILING", **settling))

    told = [line.split(" s  ", 1)[1] for line in lines_of(text)]
    at = moment(FakeClock().wall_ms() + 8000)
    assert told[:2] == [
        "the job fails: why it fails",
        "pipeline 1: epoch 3 could not be settled, attempt 5 of 20 follows "
        f"at {at}: the disk is full",
    ]
    assert told[2].startswith("pipeline 1 · failing, settling epoch 3, attempt 5 of 20 in 8.0 s · ")


def test_what_an_ended_execution_said_last_is_not_shown_as_what_is_done_now() -> None:
    progress = {"step": "running", "epoch": 1, "rows": 5, "rows_expected": 10}
    pipeline = pipeline_view("FAILING", epoch=0, rows_out=0, commits={}, progress=progress)
    text = io.StringIO()
    lines = ProgressLines(Console(file=text, width=200), FakeClock())
    lines.job(JobView.model_validate(job_view("FAILING", pipelines=[pipeline])))

    assert "pipeline 1 · failing · 5 of 10 rows" in text.getvalue()


def test_rows_never_run_backwards_nor_beyond_what_is_expected() -> None:
    """A second attempt begins lower, and Spark may count a row of a task that ran twice."""
    clock = FakeClock()
    progress = Progress(TextColumn("{task.description}"), console=Console(file=io.StringIO()))
    bars = ProgressBars(progress, clock)
    shown: list[tuple[float, float | None]] = []
    for rows in (100, 900, 1004, 0, 300, 1000):
        bars.job(seen(rows))
        clock.advance(1)
        shown.append((progress.tasks[0].completed, progress.tasks[0].total))

    assert shown == [(100, 1000), (900, 1000)] + [(1000, 1000)] * 4
    written = {"a": 600, "b": 600}
    committed = pipeline_view(rows_out=1200, written=written, progress=None)
    bars.job(JobView.model_validate(job_view(pipelines=[committed])))
    assert progress.tasks[0].completed == 1000, "two sinks hold the same rows"
    bars.job(seen(400, expected=500))
    assert "1,000 of 1,000 rows" in progress.tasks[0].fields["facts"]


def test_a_bar_shows_the_reason_in_place_of_rows_while_it_waits() -> None:
    progress = Progress(TextColumn("{task.description}"), console=Console(file=io.StringIO()))
    bars = ProgressBars(progress, FakeClock())
    bars.job(trying(error="word " * 30))
    (bar,) = progress.tasks

    assert bar.description == "pipeline 1 · attempt 2 of 4 in 8.0 s"
    assert bar.fields["facts"] == "word " * 11 + "…"


def test_why_a_task_was_given_back_is_said_once() -> None:
    text = io.StringIO()
    pipeline = pipeline_view("SCHEDULED", error="no such jar here")
    lines = ProgressLines(Console(file=text, width=200), FakeClock())
    for _ in range(2):
        lines.job(JobView.model_validate(job_view("RUNNING", pipelines=[pipeline])))

    assert text.getvalue().count("waits for a worker that can run it: no such jar here") == 1


def test_what_a_job_waits_for_is_said() -> None:
    text = io.StringIO()
    ProgressLines(Console(file=text, width=200), FakeClock()).job(seen(0, waits_for="2 free slots"))

    assert "(waits for 2 free slots)" in text.getvalue()


def test_the_end_of_a_wait_is_said_at_once() -> None:
    text = io.StringIO()
    lines = ProgressLines(Console(file=text, width=200), FakeClock())
    lines.job(seen(0, "created", waits_for="a free slot"))
    lines.job(seen(0, "created"))

    assert [" (waits for" in line for line in lines_of(text)] == [True, False]


@pytest.mark.parametrize("expected", [1000, None])
def test_a_bar_shows_rows_rate_epoch_and_step(expected: int | None) -> None:
    clock = FakeClock()
    progress = Progress(TextColumn("{task.description}"), console=Console(file=io.StringIO()))
    bars = ProgressBars(progress, clock)
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

    rows = [line.split() for line in lines_of(text)[3:5]]
    first = ["1", "RUNNING", "-", "1,000,000", "x.y", "-", "8000000000000000001", "-"]
    assert rows == [first, ["b", "-", "-", "-"]], "of a worker that counts no sources nor sinks"


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
