"""Spark, psycopg and the Kubernetes client are extras: who lacks one is told what to type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.local.checks import examine
from headrace.config import Settings
from headrace.errors import ExtraMissing
from headrace.spark import installation
from tests.cli.machine import COMMAND_MAX_S, JOB_FILE, environment, one_line_of

SPARK = ("pyspark", "py4j", "pyarrow")
EVERY_EXTRA = (*SPARK, "psycopg", "kubernetes")
# What a machine with coordinators alone has to import; `inspection_run` starts a Spark itself.
COORDINATOR_ROOMS = (
    *("api", "cli", "client", "containers", "coordinator", "jobfile", "plugins", "store"),
)
NEEDS_SPARK = "headrace.cli.tables.inspection_run"

WITHOUT = """
import sys
for name in {absent!r}:
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
"""
COMMAND = """
from headrace.cli.main import main
sys.argv = ["headrace", *{arguments!r}]
main()
"""
IMPORTS = """
import importlib, pkgutil
for room in {rooms!r}:
    package = importlib.import_module(f"headrace.{{room}}")
    for module in pkgutil.walk_packages(package.__path__, f"{{package.__name__}}."):
        if module.name != {besides!r}:
            importlib.import_module(module.name)
print(sorted(name for name in sys.modules if name.startswith("headrace.")))
"""


def without(absent: tuple[str, ...], code: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a Python in which these packages are not installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent) + code],
        cwd=cwd,
        env=environment(HEADRACE_HOME=str(cwd / "home")),
        capture_output=True,
        text=True,
        timeout=COMMAND_MAX_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def refusal(absent: tuple[str, ...], *arguments: str, cwd: Path) -> str:
    done = without(absent, COMMAND.format(arguments=arguments), cwd=cwd)
    assert done.returncode == 2, done.stderr
    return one_line_of(done)


def way_out(extra: str) -> str:
    return f"which is not installed here; type: pip install 'headrace[{extra}]'"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.conf"
    path.write_text(JOB_FILE)
    return path


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "job.conf"),
        ("up", "--port", "0"),
        ("worker", "--coordinator", "http://127.0.0.1:1"),
        ("inspect",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_starts_a_jvm_says_how_to_install_spark(
    arguments: tuple[str, ...], job_file: Path
) -> None:
    said = refusal(SPARK, *arguments, cwd=job_file.parent)

    assert said.endswith(f"needs Spark, {way_out('worker')}")


@pytest.mark.processes
def test_a_job_file_is_read_where_there_is_no_spark(job_file: Path) -> None:
    code = COMMAND.format(arguments=("run", "job.conf", "--check"))

    done = without(EVERY_EXTRA, code, cwd=job_file.parent)

    assert (done.returncode, done.stderr) == (0, "")
    assert "FakeSource → Console" in done.stdout


@pytest.mark.processes
def test_a_job_for_coordinators_elsewhere_needs_no_spark_here(job_file: Path) -> None:
    arguments = ("run", "job.conf", "--coordinator", "http://127.0.0.1:1")

    done = without(EVERY_EXTRA, COMMAND.format(arguments=arguments), cwd=job_file.parent)

    assert done.returncode == 75, "nobody answers there"
    assert "127.0.0.1:1" in one_line_of(done)


@pytest.mark.processes
@pytest.mark.parametrize("command", [("coordinator",), ("store", "change-key")], ids=" ".join)
def test_a_postgresql_store_says_how_to_install_its_driver(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    store = ("--store", "postgresql://ann:hush@127.0.0.1:1/headrace")

    said = refusal(("psycopg",), *command, *store, cwd=tmp_path)

    assert said == f"headrace: a PostgreSQL store needs psycopg, {way_out('postgresql')}"


@pytest.mark.processes
def test_a_kubernetes_container_says_how_to_install_its_client(tmp_path: Path) -> None:
    containers = tmp_path / "containers.conf"
    containers.write_text("containers { k { type = kubernetes, properties { image = i } } }")
    store = ("--store", f"sqlite:///{tmp_path / 'store.db'}", "--bind", "127.0.0.1:0")

    said = refusal(
        ("kubernetes",), "coordinator", *store, "--containers", str(containers), cwd=tmp_path
    )

    assert "containers.conf:1" in said
    assert said.endswith(f"needs the Kubernetes client, {way_out('kubernetes')}")


@pytest.mark.processes
def test_all_that_a_coordinator_is_made_of_is_imported_without_any_extra(tmp_path: Path) -> None:
    done = without(
        EVERY_EXTRA, IMPORTS.format(rooms=COORDINATOR_ROOMS, besides=NEEDS_SPARK), cwd=tmp_path
    )

    assert (done.returncode, done.stderr) == (0, "")
    for module in ("api.server", "coordinator.service", "store.migrate", "jobfile.reader"):
        assert f"'headrace.{module}'" in done.stdout


def test_doctor_asks_for_neither_java_nor_jars_where_there_is_no_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    settings = Settings(home=tmp_path / "home", cache_dir=tmp_path / "cache", seams="")

    def found(*, fetch: bool) -> dict[str, str]:
        results = examine(settings, store_url=None, fetch=fetch, say=lambda _: None)
        return {result.subject: result.verdict for result in results}

    assert found(fetch=False)["spark"] == "warn"
    assert found(fetch=False).keys().isdisjoint({"java", "jars", "class-data archive"})
    assert found(fetch=True)["spark"] == "fail"


def test_the_folder_of_spark_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (installation.find_spark() / "jars").is_dir()

    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ExtraMissing) as missing:
        installation.find_spark()
    assert missing.value.extra == "worker"
