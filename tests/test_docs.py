"""What a user can set, type or meet is found in docs/."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import errors
from headrace.config import Settings
from headrace.jobfile.env import ENV
from headrace.jobfile.reader import read_job
from headrace.model.task import TaskKind
from tools.reference import commands, option_groups, pages
from tools.requirement import requirement_ids
from tools.tree import ROOT

DOCS = ROOT / "docs"
JOB_FILE = re.compile(r"^```(hocon|yaml|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)


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
    for syntax, text in examples:
        assert read_job(f"example.{syntax}", text=text).pipelines


@pytest.mark.parametrize("requirement", sorted(requirement_ids()))
def test_every_requirement_says_what_must_hold(requirement: str) -> None:
    assert re.search(rf"^### {requirement} \w", page("requirements"), re.MULTILINE)


@pytest.mark.parametrize("kind", TaskKind)
def test_the_protocol_names_every_kind_of_task(kind: TaskKind) -> None:
    assert (
        f"`{kind}`"
        in page("reference/protocol").partition("## Assignments\n")[2].partition("\n## ")[0]
    )


def test_the_front_page_promises_no_less_than_is_built() -> None:
    """What is still to come stands in one place, which says it by id."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "tables that optimize themselves among them" not in text
    assert "keeps tables optimized" in text


def test_the_docs_say_how_the_group_of_a_job_is_named() -> None:
    options = {
        name
        for path, command in commands()
        if path == "headrace run"
        for parameter in command.params
        for name in parameter.opts
    }

    said = page("how-to/run-on-several-machines")
    assert "--group" in options
    assert ENV.find("group") is not None
    assert "`headrace run --group NAME`" in said
    assert "`group = NAME` in the `env` of the job file" in said


def test_every_page_can_be_reached_from_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}

    assert not {name for name in names if f" {name}\n" not in menu}
