"""Remove the guard of each requirement in a copy of the tree, and see that its tests fail.

A test that still passes without the guard proves nothing. A mutant counts as killed only when a
test *failed*: a copy that can't be imported, or that runs out of time, shows nothing either. The
same tests must first pass on an unchanged copy, so that a kill is the mutation's doing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from tools.mutation import MUTATIONS, BadMutation, Mutation, every_mutation, mutations
from tools.tree import ROOT, project_files

MUTANT_LIMIT_S = 600
STEP_LIMIT_S = 60
PYTHON = ROOT / ".venv" / "bin" / "python"
# What `make test` leaves to other targets may be what a guard is proved by.
EVERYTHING = ("--all-crash", "--both-stores", "--all-histories")


class Broken(Exception):
    """The harness itself can not do its work."""


@dataclass(frozen=True, slots=True)
class Run:
    verdict: str  # passed, failed, broken, out of time
    seconds: float
    tail: str


@contextmanager
def copied_tree() -> Generator[Path]:
    """A copy of the project, with the same virtual environment, that shadows the installed one."""
    with tempfile.TemporaryDirectory(prefix="headrace-mutant-") as folder:
        copy = Path(folder).resolve()
        for path in project_files():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, copy / path)
        (copy / ".venv").symlink_to(PYTHON.parent.parent)
        where = _step([str(PYTHON), "-c", "import headrace; print(headrace.__file__)"], copy)
        if not Path(where.strip()).is_relative_to(copy):
            raise Broken(f"the copy is not what gets imported, {where.strip()} is")
        yield copy


def _environment(copy: Path) -> dict[str, str]:
    # The ceiling keeps git from taking a repository around the copy for the copy's own.
    return {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        "GIT_CEILING_DIRECTORIES": str(copy.parent),
    }


def _step(command: list[str], copy: Path) -> str:
    done = subprocess.run(
        command,
        check=False,
        cwd=copy,
        env=_environment(copy),
        capture_output=True,
        text=True,
        timeout=STEP_LIMIT_S,
    )
    if done.returncode != 0:
        raise Broken(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def run_tests(copy: Path, mutation: Mutation) -> Run:
    """The tests that prove the requirement, stopped at the first that fails."""
    results = copy / "results.xml"
    command = [str(PYTHON), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += [
        f"--junit-xml={results}",
        *EVERYTHING,
        "--req",
        _id_of(mutation),
        *mutation.tests,
    ]
    began = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=copy,
        env=_environment(copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=MUTANT_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Run("out of time", time.monotonic() - began, _tail(output))
    outcome = verdict(process.returncode, results)
    return Run(outcome, time.monotonic() - began, _tail(output))


def _id_of(mutation: Mutation) -> str:
    if mutation.requirement is None:
        raise Broken(f"{mutation.name} names no requirement; the simulation runs it")
    return mutation.requirement


def verdict(exit_code: int, results: Path) -> str:
    if exit_code == 0:
        return "passed"
    if exit_code != 1 or not results.exists():
        return "broken"
    # Our own pytest wrote it a moment ago. With -x a collection error exits 1 as well.
    suites = ElementTree.parse(results).getroot().iter("testsuite")
    return "failed" if any(int(suite.get("failures", 0)) for suite in suites) else "broken"


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-15:])


def check_baseline(chosen: list[Mutation]) -> None:
    """Each set of tests passes before its guard is removed."""
    with copied_tree() as copy:
        for mutation in {(each.requirement, each.tests): each for each in chosen}.values():
            run = run_tests(copy, mutation)
            name = _id_of(mutation)
            print(f"{name:4} passes unchanged: {run.verdict} {run.seconds:.1f} s", flush=True)
            if run.verdict != "passed":
                raise Broken(f"the tests of {name} don't pass unchanged:\n{run.tail}")


def try_mutant(mutation: Mutation) -> bool:
    words = {"failed": "killed", "passed": "SURVIVED"}
    parts = [replace(mutation, tests=(test,)) for test in mutation.tests]
    killed = True
    with copied_tree() as copy:
        mutation.apply(copy)
        for part in parts if mutation.each else [mutation]:
            run = run_tests(copy, part)
            word = words.get(run.verdict, run.verdict.upper())
            of = f" {part.tests[0].partition('::')[2].partition('::')[0]}" if mutation.each else ""
            print(f"{mutation.name + of:60} {word:12} {run.seconds:6.1f} s", flush=True)
            if run.verdict != "failed":
                print(run.tail)
                killed = False
    return killed


def choose(wanted: list[str]) -> list[Mutation]:
    chosen = [each for each in mutations() if not wanted or each.requirement in wanted]
    if missing := set(wanted) - {each.requirement for each in chosen}:
        raise Broken(f"{MUTATIONS.name}/ has no mutation for {', '.join(sorted(missing))}")
    return chosen


def check() -> int:
    """Whether each one applies to this tree, which costs no test."""
    refused = {each.name: why for each in every_mutation() if (why := each.refusal())}
    for name, why in refused.items():
        print(f"{name}: {why}")
    print(f"mutations: {len(refused)} don't apply")
    return 1 if refused else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="requirements; all when none is named")
    parser.add_argument(
        "--trust-baseline", action="store_true", help="don't run the tests unchanged first"
    )
    parser.add_argument(
        "--check", action="store_true", help="only see that each one applies to this tree"
    )
    asked = parser.parse_args()
    try:
        if asked.check:
            return check()
        chosen = choose(asked.ids)
        if not asked.trust_baseline:
            check_baseline(chosen)
        survived = [each.name for each in chosen if not try_mutant(each)]
    except (Broken, BadMutation) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(chosen) - len(survived)} killed, {len(survived)} not, of {len(chosen)} mutants")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
