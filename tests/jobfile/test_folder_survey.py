"""A survey of a folder says of each job file whether it would run here, and what keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import JobFileUnreadable, NotFound
from headrace.jobfile.folder_survey import FolderSurvey, Verdict, survey_folder, why
from tests.conformance import JOBS, every_job_file
from tests.jobfile.samples import JSON, SQL, TWO_PIPELINES, YAML, job

FILES = {
    "runs.conf": TWO_PIPELINES,
    "deep/runs.json": JSON,
    "deep/job.sql": SQL,
    "job.yaml": YAML,
    "differs.conf": job(env="custom_parameters { a = b }", sink="x = 1"),
    "values.conf": job(source="row.num = ${rows}", sink="log.print.data = ${shown}"),
    "lacks.conf": job(transform="Embedding { }\nTextChunk { }"),
    "wrong.conf": job(source="row.num = many", transform="Embedding { }"),
    "broken.conf": "source { sink {",
    "latin.conf": "",
    "package.json": '{"name": "x"}',
    ".hidden/bad.conf": "source sink",
    "notes.txt": "source and sink",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "latin.conf").write_bytes("source sink é".encode("latin-1"))
    return tmp_path


def surveyed(folder: Path, *, strict: bool = False, **variables: str) -> FolderSurvey:
    return survey_folder(folder, variables=variables, environment={}, strict=strict)


def test_every_job_file_has_its_verdict(folder: Path) -> None:
    survey = surveyed(folder)

    assert {each.path: each.verdict for each in survey.files} == {
        "broken.conf": Verdict.WRONG,
        "deep/job.sql": Verdict.RUNS,
        "deep/runs.json": Verdict.RUNS,
        "differs.conf": Verdict.DIFFERS,
        "job.yaml": Verdict.DIFFERS,  # spark.master
        "lacks.conf": Verdict.NOT_BUILT,
        "latin.conf": Verdict.UNREADABLE,
        "runs.conf": Verdict.RUNS,
        "values.conf": Verdict.NEEDS_VALUES,
        "wrong.conf": Verdict.WRONG,
    }
    assert survey.others == 1
    assert not survey.all_would_run
    assert survey.missing == [("transform Embedding", 2), ("transform TextChunk", 1)]


def test_what_is_missing_is_named_for_each_file(folder: Path) -> None:
    by_path = {each.path: each for each in surveyed(folder).files}

    assert by_path["values.conf"].variables == ["rows", "shown"]
    assert by_path["lacks.conf"].lacks == ["transform Embedding", "transform TextChunk"]
    assert why(by_path["differs.conf"])[0].startswith("10:1: unknown option 'x' of sink Console")
    assert why(by_path["latin.conf"])[0].startswith("can't be read: byte 12 is not UTF-8")


def test_programs_get_all_of_it(folder: Path) -> None:
    answer = surveyed(folder).as_json()
    files = {each["path"]: each for each in answer["files"]}  # type: ignore[index,call-overload,union-attr]

    assert answer["counts"]["RUNS"] == 3  # type: ignore[index,call-overload]
    assert files["runs.conf"]["would_run"] is True  # type: ignore[index,call-overload]
    assert files["wrong.conf"]["problems"][0] == {  # type: ignore[index,call-overload]
        "line": 5,
        "column": 11,
        "text": "option 'row.num' of source FakeSource must be a whole number, and is 'many'",
    }
    assert files["latin.conf"]["problems"][0]["line"] is None  # type: ignore[index,call-overload]


def test_given_variables_and_strictness_count(folder: Path) -> None:
    survey = surveyed(folder, rows="5", shown="true", strict=True)

    verdicts = {each.path: each.verdict for each in survey.files}
    assert verdicts["values.conf"] is Verdict.RUNS
    assert verdicts["differs.conf"] is Verdict.WRONG


def test_one_file_is_a_survey_of_itself(folder: Path) -> None:
    (only,) = surveyed(folder / "runs.conf").files

    assert (only.path, only.verdict) == ("runs.conf", Verdict.RUNS)


def test_a_folder_without_a_job_and_no_folder_at_all_are_refused(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")

    with pytest.raises(NotFound, match="there is no job file in "):
        surveyed(tmp_path)
    with pytest.raises(JobFileUnreadable, match="can't be read: no such file or directory"):
        surveyed(tmp_path / "nope")


@pytest.mark.parametrize("file", every_job_file()[:1])
def test_seatunnels_own_jobs_are_surveyed(file: Path) -> None:
    survey = surveyed(JOBS)

    assert file.relative_to(JOBS).as_posix() in {each.path for each in survey.files}
    counts = survey.counts
    assert counts[Verdict.UNREADABLE] == 0
    assert counts[Verdict.WRONG] <= 1, "local_file_to_console.conf has an empty schema"
    assert counts[Verdict.NEEDS_VALUES] >= 5
    assert counts[Verdict.RUNS] + counts[Verdict.DIFFERS] >= 47
