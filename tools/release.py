"""Make a release, or try one: build it, install it where nothing else is, and run the demo from it.

`make release` tries: it builds wheel and sdist from the tree as it is, has twine check them,
installs the wheel into an empty environment, first plain and then with Spark, and runs the demo.
`make release VERSION=0.2.0` writes the version and the changelog before that, and commits and tags
the result after it. Whatever fails on the way leaves the tree as it was. Nothing is pushed and
nothing is uploaded: the last lines say how.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from tools.tree import ROOT

VERSION_FILE = Path("src/headrace/__init__.py")
CHANGED = (str(VERSION_FILE), "CHANGELOG.md", "changes")  # what a release writes to
DEMO = Path("examples/demo.conf")
DEMO_ROWS = 1_000_000
STEP_MAX_S = 1800
OUTPUT_CHARS_SHOWN = 4000  # the end of what a failed step printed
MISSING_SPARK = "pip install 'headrace[worker]'"
_VERSION_LINE = re.compile(r'^__version__ = "([^"]*)"$', re.MULTILINE)


class ReleaseError(Exception):
    """The release can't be made; the message says why, and nothing is left behind."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def current_version(text: str) -> str:
    """The version that the package's own module states."""
    found = _VERSION_LINE.findall(text)
    if len(found) != 1:
        raise ReleaseError(f'{VERSION_FILE} has {len(found)} lines __version__ = "…", expected one')
    return found[0]


def with_version(text: str, version: str) -> str:
    """The module's text, with another version."""
    current_version(text)
    return _VERSION_LINE.sub(f'__version__ = "{version}"', text)


def checked_version(version: str, *, current: str, tags: Sequence[str]) -> str:
    """The version, as it may be released: in its normal form, and none that exists already."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise ReleaseError(f"{version!r} is no version; write one like 0.2.0 or 0.2.0rc1") from None
    if str(wanted) != version:
        raise ReleaseError(f"write version {version!r} as {str(wanted)!r}")
    if tag_of(version) in tags:
        raise ReleaseError(f"there is a tag {tag_of(version)} already; choose the next version")
    if wanted < Version(current):
        raise ReleaseError(f"{version} is older than {current}, which the tree is at")
    return version


def tag_of(version: str) -> str:
    return f"v{version}"


def check_demo(printed: str) -> None:
    """Raise when the demo, as it reported with --output json, is not what it must be."""
    try:
        job: dict[str, Any] = json.loads(printed)
        rows = sum(pipeline["rows_out"] for pipeline in job["pipelines"])
        status = job["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise ReleaseError(f"the demo's report can't be read: {printed[:200]!r}") from error
    if (status, rows) != ("FINISHED", DEMO_ROWS):
        raise ReleaseError(f"the demo ended {status} with {rows:,} rows, expected {DEMO_ROWS:,}")


def run(
    *command: str | Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    codes: Sequence[int] = (0,),
) -> Ran:
    """Run a step to its end. Raises when it ends with a code that is not among `codes`."""
    words = [str(word) for word in command]
    print(f"$ {' '.join(words)}", flush=True)
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=STEP_MAX_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode not in codes:
        said = (done.stdout + done.stderr).strip()[-OUTPUT_CHARS_SHOWN:]
        raise ReleaseError(f"{' '.join(words)} exited with code {done.returncode}:\n{said}")
    return Ran(done.returncode, done.stdout, done.stderr)


def user_environment() -> dict[str, str]:
    """Ours, without what would let a fresh environment see anything of this one."""
    hidden = ("HEADRACE_", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


@dataclass(frozen=True, slots=True)
class Release:
    """One release of the tree at `root`; without a version it is only tried."""

    root: Path
    uv: str
    version: str | None

    def make(self) -> None:
        with self._prepared():
            wheel = self._build()
            with tempfile.TemporaryDirectory(prefix="headrace-release-") as folder:
                self._try_out(wheel, Path(folder))
            if self.version is not None:
                self._commit_and_tag(self.version)

    @contextmanager
    def _prepared(self) -> Generator[None]:
        """Version and changelog are written in the block, and taken back when it fails."""
        if self.version is None:
            yield
            return
        if changes := self._git("status", "--porcelain").strip():
            raise ReleaseError(f"the tree is not clean; commit or stash first:\n{changes}")
        path = self.root / VERSION_FILE
        text = path.read_text(encoding="utf-8")
        tags = self._git("tag", "--list").split()
        version = checked_version(self.version, current=current_version(text), tags=tags)
        try:
            path.write_text(with_version(text, version), encoding="utf-8")
            self._tool("towncrier", "build", "--yes", "--version", version)
            yield
        except BaseException:
            # After the commit there is nothing to take back, and this changes nothing.
            self._git("restore", "--staged", "--worktree", "--", *CHANGED)
            raise

    def _build(self) -> Path:
        """Build sdist and wheel into dist/, the wheel out of the sdist, and check both."""
        dist = self.root / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        run(self.uv, "build", "--quiet", "--out-dir", dist, cwd=self.root)
        built = sorted(dist.glob("headrace-*"))
        self._tool("twine", "check", "--strict", *map(str, built))
        (wheel,) = dist.glob("headrace-*.whl")
        return wheel

    def _try_out(self, wheel: Path, folder: Path) -> None:
        """Install it as a user does, and run the demo from there."""
        env = user_environment()
        bin_folder = folder / "venv" / "bin"
        python, headrace = bin_folder / "python", bin_folder / "headrace"
        install = (self.uv, "pip", "install", "--quiet", "--python", python)
        demo = (headrace, "--output", "json", "run", self.root / DEMO, "--home", folder / "home")

        run(self.uv, "venv", "--quiet", "--python", sys.executable, folder / "venv", cwd=folder)
        run(*install, wheel, cwd=folder, env=env)
        self._check_installed(run(headrace, "--version", cwd=folder, env=env).out)
        refused = run(*demo, cwd=folder, env=env, codes=(2,))
        if MISSING_SPARK not in refused.err:
            raise ReleaseError(f"without Spark the demo does not say what to type: {refused.err}")
        run(*install, f"{wheel}[worker]", cwd=folder, env=env)
        check_demo(run(*demo, cwd=folder, env=env).out)

    def _check_installed(self, shown: str) -> None:
        built = current_version((self.root / VERSION_FILE).read_text(encoding="utf-8"))
        if shown != f"headrace {built}\n":
            raise ReleaseError(f"version {built} was built, and {shown.strip()!r} is installed")

    def _commit_and_tag(self, version: str) -> None:
        self._git("commit", "--all", "--quiet", "--message", f"Release {version}")
        self._git("tag", "--annotate", tag_of(version), "--message", f"Headrace {version}")

    def _git(self, *arguments: str) -> str:
        return run("git", *arguments, cwd=self.root).out

    def _tool(self, name: str, *arguments: str) -> None:
        """A tool of the environment that this runs in."""
        run(Path(sys.executable).parent / name, *arguments, cwd=self.root)


class _Given(argparse.Namespace):
    version: str | None
    uv: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.release", description=__doc__)
    parser.add_argument("--version", help="make it, and tag it; without it is only tried")
    parser.add_argument("--uv", default="uv", help="which uv builds and installs")
    given = parser.parse_args(arguments, _Given())
    if (uv := shutil.which(given.uv)) is None:
        parser.error(f"there is no {given.uv}; `make release` has one")
    release = Release(ROOT, str(Path(uv).absolute()), given.version or None)
    try:
        release.make()
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    if release.version is None:
        print("release: all is well; `make release VERSION=…` writes the changelog and tags it")
    else:
        print(f"release: {tag_of(release.version)} is made. What is left is yours to do:")
        print(f"  git push origin HEAD {tag_of(release.version)}")
        print("  .venv/bin/twine upload dist/*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
