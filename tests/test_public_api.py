"""`import headrace` is the public API: small, typed, documented, and quick to import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

import headrace
from headrace.client.client import ROUNDS_MAX
from headrace.client.views import JobView
from tests.cli.machine import JOB_FILE, Coordinators, environment, job_view
from tests.test_docs import page

PAGE = page("reference/python")
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENDED = job_view("FINISHED", ended_at_ms=1_700_000_002_000)


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(headrace, name) is not None
    assert name in dir(headrace)
    assert f"\n| `{name}` | " in PAGE


def test_nothing_is_documented_that_is_not_public() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(headrace.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'headrace' has no attribute 'Pipeline'"):
        _: Any = headrace.__getattr__("Pipeline")


def test_importing_it_loads_nothing_that_is_slow() -> None:
    code = (
        "import sys, headrace; headrace.__version__\n"
        "print(sorted(name for name in sys.modules if name.startswith('headrace')))\n"
        "print([name for name in ('httpx2', 'lark', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines() == ["['headrace', 'headrace.errors']", "[]"]


def test_a_job_that_was_read_can_be_submitted_as_it_is() -> None:
    spec: headrace.JobSpec = headrace.read_job("job.conf", text=JOB_FILE)
    there = Coordinators(a=lambda _: httpx2.Response(200, json=job_view()))

    with headrace.Client(["http://a:1"], transport=there.transport()) as client:
        view: JobView = client.submit_job(spec, submission_key="k1")

    assert view.id == "j1"
    assert there.asked == ["a POST /v1/jobs"]


def test_the_example_in_the_docs_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    views = iter([job_view(), ENDED])

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=next(views))

    there, client = Coordinators(**{"127.0.0.1": answer}), headrace.Client

    def connected(urls: list[str], *, token: str | None) -> headrace.Client:
        return client(urls, token=token, transport=there.transport())

    (tmp_path / "job.conf").write_text(JOB_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(headrace, "Client", connected)
    (example,) = EXAMPLE.findall(PAGE)

    exec(compile(example, "docs/reference/python.md", "exec"), {})

    assert there.asked == ["127.0.0.1 POST /v1/jobs", "127.0.0.1 GET /v1/jobs/j1"]
    assert capsys.readouterr().out == "j1 FINISHED None\n"


def test_the_docs_say_how_often_a_coordinator_is_asked() -> None:
    words = {2: "twice", 3: "three times", 4: "four times"}

    assert f"after each was asked {words[ROUNDS_MAX]} |" in PAGE
