"""A release is made whole or not at all; the workflow and the hooks call what people call."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tools import release
from tools.release import Release, ReleaseError, check_demo, checked_version, with_version
from tools.tree import ROOT

MODULE = '"""A package."""\n\n__version__ = "0.1.0"\n'
PROJECT = """
[tool.towncrier]
name = "Headrace"
directory = "changes"
filename = "CHANGELOG.md"
start_string = "<!-- notes -->\\n"
title_format = "## {version} ({project_date})"
underlines = ["", "", ""]
type = [{ directory = "added", name = "Added", showcontent = true }]
"""


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=tree, check=True, capture_output=True, text=True, timeout=60
    ).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A committed tree that a release can be made of."""
    (tmp_path / "src" / "headrace").mkdir(parents=True)
    (tmp_path / "changes").mkdir()
    (tmp_path / release.VERSION_FILE).write_text(MODULE)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n<!-- notes -->\n")
    (tmp_path / "changes" / "1.added.md").write_text("It can be released.\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "Ann")
    git(tmp_path, "config", "user.email", "ann@example.org")
    git(tmp_path, "config", "commit.gpgsign", "false")
    git(tmp_path, "config", "tag.gpgsign", "false")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Building and installing are left out; the versions that were there to be built."""
    versions: list[str] = []

    def build(self: Release) -> Path:
        versions.append(release.current_version((self.root / release.VERSION_FILE).read_text()))
        return self.root / "dist" / "headrace.whl"

    def try_out(self: Release, wheel: Path, folder: Path) -> None:
        """It works."""

    monkeypatch.setattr(Release, "_build", build)
    monkeypatch.setattr(Release, "_try_out", try_out)
    return versions


def test_a_release_is_a_commit_with_version_and_changelog_and_a_tag(
    tree: Path, tried: list[str]
) -> None:
    Release(tree, "uv", "0.2.0").make()

    assert tried == ["0.2.0"]
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "tag", "--points-at", "HEAD") == "v0.2.0\n"
    assert git(tree, "log", "-1", "--format=%s") == "Release 0.2.0\n"
    assert '__version__ = "0.2.0"' in git(tree, "show", f"HEAD:{release.VERSION_FILE}")
    assert "It can be released." in git(tree, "show", "HEAD:CHANGELOG.md")
    assert not (tree / "changes" / "1.added.md").exists()


def test_without_a_version_nothing_is_written(tree: Path, tried: list[str]) -> None:
    (tree / "new.txt").write_text("a tree that is not clean can be tried, too")

    Release(tree, "uv", None).make()

    assert tried == ["0.1.0"]
    assert git(tree, "status", "--porcelain") == "?? new.txt\n"
    assert git(tree, "tag", "--list") == ""


def test_a_release_that_fails_leaves_the_tree_as_it_was(
    tree: Path, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Release, wheel: Path, folder: Path) -> None:
        raise ReleaseError("the demo failed")

    monkeypatch.setattr(Release, "_try_out", fail)
    with pytest.raises(ReleaseError, match="the demo failed"):
        Release(tree, "uv", "0.2.0").make()

    assert tried == ["0.2.0"]
    assert git(tree, "status", "--porcelain") == ""
    assert (tree / release.VERSION_FILE).read_text() == MODULE
    assert (tree / "changes" / "1.added.md").exists()
    assert git(tree, "tag", "--list") == ""


def test_a_tree_with_changes_is_not_released(tree: Path, tried: list[str]) -> None:
    (tree / "CHANGELOG.md").write_text("mine")

    with pytest.raises(ReleaseError, match=r"not clean; commit or stash first:\nM CHANGELOG.md"):
        Release(tree, "uv", "0.2.0").make()

    assert tried == []
    assert (tree / "CHANGELOG.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("two", "is no version"),
        ("0.2", "there is a tag v0.2 already"),
        ("0.0.9", "0.0.9 is older than 0.1.0"),
        ("v0.3.0", "write version 'v0.3.0' as '0.3.0'"),
    ],
)
def test_a_version_that_can_not_be_released_is_refused(version: str, problem: str) -> None:
    with pytest.raises(ReleaseError, match=problem):
        checked_version(version, current="0.1.0", tags=["v0.2"])


@pytest.mark.parametrize("version", ["0.1.0", "0.1.1", "0.2.0rc1", "1.0.0"])
def test_the_version_of_the_tree_or_a_later_one_can_be_released(version: str) -> None:
    assert checked_version(version, current="0.1.0", tags=["v0.0.9"]) == version


def test_the_version_stands_in_one_line_of_one_file() -> None:
    text = (ROOT / release.VERSION_FILE).read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert release.current_version(with_version(text, "9.8.7")) == "9.8.7"
    assert 'dynamic = ["version"]' in project
    assert f'path = "{release.VERSION_FILE.as_posix()}"' in project
    with pytest.raises(ReleaseError, match="has 2 lines"):
        with_version(MODULE + MODULE, "9.8.7")


def test_the_demo_must_end_well_and_with_all_its_rows() -> None:
    whole = {"status": "FINISHED", "pipelines": [{"rows_out": release.DEMO_ROWS}]}

    check_demo(json.dumps(whole))
    with pytest.raises(ReleaseError, match="ended FAILED with 1,000,000 rows"):
        check_demo(json.dumps({**whole, "status": "FAILED"}))
    with pytest.raises(ReleaseError, match="ended FINISHED with 7 rows"):
        check_demo(json.dumps({**whole, "pipelines": [{"rows_out": 7}]}))
    with pytest.raises(ReleaseError, match="can't be read: 'oops'"):
        check_demo("oops")


def test_the_workflow_calls_targets_that_there_are_with_every_python() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = re.findall(r"run: make (\w+)", workflow)

    assert {"check", "coverage", "test"} <= set(called)
    assert set(called) <= set(re.findall(r"^(\w+):.*## ", makefile, re.MULTILINE))
    assert 'python: ["3.11", "3.12", "3.13"]' in workflow


def test_hooks_are_local_and_part_of_what_make_check_runs() -> None:
    config = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    checks = makefile.partition("\ncheck: ")[2].partition("\n\n")[0].replace("$(BIN)", ".venv/bin")

    assert re.findall(r"repo: (.*)", config) == ["local"]
    assert set(re.findall(r"language: (.*)", config)) == {"system"}
    for entry in re.findall(r"entry: (.*)", config):
        assert f"\t{entry.removesuffix(' --force-exclude')}\n" in f"{checks}\n"
