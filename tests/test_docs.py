"""What a user can set, type or meet is found in docs/."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import errors
from headrace.api import connections, guard, server
from headrace.api.routes import jobs, worker_protocol
from headrace.cli import serve_options
from headrace.cli.jobs import commands as command_job_logs
from headrace.config import Settings
from headrace.coordinator.jobs import cleanup
from headrace.jobfile.reader import read_job
from headrace.model.groups import THREADS_MAX
from headrace.model.jobs import epoch
from headrace.model.task import TaskKind
from headrace.protocol import messages
from headrace.store.jobs import history, job_logs
from headrace.worker import outbox
from tools.reference import commands, option_groups, pages
from tools.requirement import requirement_ids
from tools.tree import ROOT

DOCS = ROOT / "docs"
JOB_FILE = re.compile(r"^```hocon\n(.*?)^```", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"^    (\w+) --> (\w+)$", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def every_error() -> Iterator[str]:
    for name, found in inspect.getmembers(errors, inspect.isclass):
        if issubclass(found, errors.HeadraceError):
            yield name


@pytest.mark.parametrize("setting", sorted(Settings.model_fields))
def test_every_setting_is_documented(setting: str) -> None:
    assert f"| `HEADRACE_{setting.upper()}` |" in page("reference/settings")


@pytest.mark.parametrize("error", sorted(every_error()))
def test_every_error_is_documented(error: str) -> None:
    assert f"`{error}`" in page("reference/errors")


def test_every_command_is_documented() -> None:
    text = page("reference/cli")

    assert not [path for path, _ in commands() if f"## `{path}`" not in text]


def test_every_option_of_every_plugin_is_documented() -> None:
    text = page("reference/job-options")
    missing = [
        f"{title}: {name}"
        for title, _, options in option_groups()
        for option in options.declared
        for name in option.names
        if f"`{name}`" not in text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    ]

    assert not missing


@pytest.mark.parametrize("path", sorted(pages()), ids=lambda path: path.name)
def test_a_generated_page_is_what_the_declarations_say(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages()[path], "run `make reference`"


@pytest.mark.parametrize("name", ["tutorial", "how-to/write-a-job-file"])
def test_a_job_file_in_the_docs_can_be_read(name: str) -> None:
    examples = JOB_FILE.findall(page(name))

    assert examples
    for text in examples:
        assert read_job("example.conf", text=text).pipelines


@pytest.mark.parametrize("requirement", sorted(requirement_ids()))
def test_every_requirement_says_what_must_hold(requirement: str) -> None:
    assert re.search(rf"^### {requirement} \w", page("requirements"), re.MULTILINE)


SETTINGS, PROTOCOL, ADR_26 = (
    "reference/settings",
    "reference/protocol",
    "adr/0026-the-story-outlives-the-state",
)
NUMBERS = [
    (PROTOCOL, f"say to each other, version {messages.PROTOCOL_VERSION}."),
    (PROTOCOL, f"A body has at most {guard.BODY_BYTES_MAX:,} bytes (413)"),
    (PROTOCOL, f"within {connections.BODY_S:g} s of its head (408)"),
    (PROTOCOL, f"at most {worker_protocol.WAIT_S_MAX:g} s |"),
    (PROTOCOL, f"`slots` (1 to {THREADS_MAX})"),
    (
        PROTOCOL,
        f"at most {messages.REPORTS_PER_SYNC_MAX}, and "
        f"{messages.REPORT_BYTES_PER_SYNC_MAX:,} bytes",
    ),
    (PROTOCOL, f"oldest first; at most {messages.LINES_PER_SYNC_MAX} |"),
    (PROTOCOL, f"at most {messages.LINE_CHARS_MAX:,} characters"),
    (PROTOCOL, f"keeps the last {outbox.LINES_BUFFERED_MAX:,} and says"),
    (PROTOCOL, f"the last {job_logs.LOG_LINES_KEPT:,}, of all jobs"),
    (PROTOCOL, f"the last {epoch.JOB_LOG_LINES_MAX:,}, and each line"),
    (PROTOCOL, f"its last {outbox.ENDS_REMEMBERED_MAX:,} ends"),
    (PROTOCOL, f"at most {messages.PAYLOAD_BYTES_MAX:,} bytes each"),
    (SETTINGS, f"| head of a request | {connections.HEAD_S:g} s "),
    (SETTINGS, f"| body of a request | {connections.BODY_S:g} s "),
    (SETTINGS, f"| answer that nobody takes | {connections.ANSWER_S:g} s |"),
    (SETTINGS, f"nothing is asked | {server.KEEP_ALIVE_S} s |"),
    (SETTINGS, f"| size of a head | {connections.HEAD_BYTES_MAX:,} bytes "),
    (SETTINGS, f"| size of a body | {guard.BODY_BYTES_MAX:,} bytes |"),
    (SETTINGS, f"| connections | {connections.FILES_KEPT} fewer than files"),
    (SETTINGS, f"up to {connections.FILES_WANTED:,} or"),
    (SETTINGS, f"`Retry-After: {connections.RETRY_AFTER_S}`"),
    (SETTINGS, f"long poll of a worker ({worker_protocol.WAIT_S_MAX:g} s at most)"),
    (
        SETTINGS,
        f"`--state-cleanup-delay-ms` | {serve_options.STATE_CLEANUP_DELAY_MS} milliseconds",
    ),
    (
        SETTINGS,
        f"`--history-job-expire-minutes` | {serve_options.HISTORY_EXPIRE_MIN} minutes",
    ),
    (SETTINGS, f"`--job-log-expire-minutes` | {serve_options.JOB_LOG_EXPIRE_MIN} minutes"),
    (SETTINGS, f"`--savepoint-expire-hours` | {serve_options.SAVEPOINT_EXPIRE_H} hours"),
    (SETTINGS, f"`--commit-deadline` | {serve_options.COMMIT_DEADLINE_S:g} seconds"),
    (SETTINGS, f"beyond {job_logs.LOG_LINES_KEPT:,} lines of a job"),
    (SETTINGS, f"beyond {epoch.JOB_LOG_LINES_MAX:,} of all jobs"),
    (
        "requirements",
        f"`history-job-expire-minutes` ({serve_options.HISTORY_EXPIRE_MIN}: 7 days)",
    ),
    ("requirements", f"`job-log-expire-minutes` ({serve_options.JOB_LOG_EXPIRE_MIN})"),
    ("requirements", f"at most {job_logs.LOG_LINES_KEPT:,} lines of a job"),
    ("requirements", f"and {epoch.JOB_LOG_LINES_MAX:,} in all"),
    (
        "how-to/end-of-a-job",
        f"`--history-job-expire-minutes` {serve_options.HISTORY_EXPIRE_MIN} |",
    ),
    (
        "how-to/end-of-a-job",
        f"`--job-log-expire-minutes` {serve_options.JOB_LOG_EXPIRE_MIN} |",
    ),
    ("how-to/end-of-a-job", f"logs?tail={jobs.LINES_AT_ONCE}`"),
    ("how-to/run-a-job", f"About the last {job_logs.LOG_LINES_KEPT:,} lines"),
    (ADR_26, f"batches of {job_logs.EXPIRED_AT_ONCE_MAX:,} lines"),
    (ADR_26, f"batches of {history.EXPIRED_AT_ONCE_MAX:,}."),
    (ADR_26, f"{cleanup.COUNTED_AT_ONCE:,} in each pass"),
]


@pytest.mark.parametrize(("name", "said"), NUMBERS, ids=[said for _, said in NUMBERS])
def test_a_number_in_the_docs_is_that_of_the_code(name: str, said: str) -> None:
    assert said in page(name)


def test_the_options_and_what_they_are_by_themselves_agree() -> None:
    kept = epoch.Retention()

    assert kept.history_expire_ms == serve_options.HISTORY_EXPIRE_MIN * serve_options.MINUTE_MS
    assert kept.job_log_expire_ms == serve_options.JOB_LOG_EXPIRE_MIN * serve_options.MINUTE_MS
    assert kept.state_cleanup_delay_ms == serve_options.STATE_CLEANUP_DELAY_MS
    assert kept.savepoint_expire_ms == serve_options.SAVEPOINT_EXPIRE_H * serve_options.HOUR_MS
    assert job_logs.LOG_LINES_KEPT == command_job_logs.TAIL_MAX


@pytest.mark.parametrize("kind", TaskKind)
def test_the_protocol_names_every_kind_of_task(kind: TaskKind) -> None:
    assert f"`{kind}`" in page(PROTOCOL).partition("## Assignments\n")[2].partition("\n## ")[0]


def test_the_front_page_promises_no_less_than_is_built() -> None:
    """What is still to come stands in one place, which says it by id."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "tables that optimize themselves among them" not in text
    assert "keeps tables optimized" in text


def test_the_docs_say_that_no_command_and_no_file_names_the_group_of_a_job() -> None:
    """When one does, this page has to say so."""
    options = {
        name
        for path, command in commands()
        if path == "headrace run"
        for parameter in command.params
        for name in parameter.opts
    }

    assert "--group" not in options
    assert "neither it nor a job file can name another one yet" in page(
        "how-to/run-on-several-machines"
    )


def test_every_page_can_be_reached_from_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}

    assert not {name for name in names if f" {name}\n" not in menu}
