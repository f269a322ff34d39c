"""What goes wrong before anything runs is one line, an exit code, and no traceback."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path

import pytest

from tests.cli.machine import JOB_FILE, environment, headrace, one_line_of

pytestmark = pytest.mark.processes

LOOPBACK = ("--bind", "127.0.0.1:0")


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.conf"
    path.write_text(JOB_FILE)
    return path


def test_java_that_is_not_on_the_path_is_asked_for(job_file: Path, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    env = environment(PATH=str(empty))
    env.pop("JAVA_HOME", None)
    done = headrace("run", str(job_file), cwd=tmp_path, env=env)

    line = one_line_of(done)
    assert done.returncode == 2
    assert "Java 17 or 21" in line
    assert "JAVA_HOME is not set and there is no java on PATH" in line
    assert not (tmp_path / ".headrace").exists(), "nothing was started"


def test_a_java_home_without_java_is_named(job_file: Path, tmp_path: Path) -> None:
    done = headrace("run", str(job_file), cwd=tmp_path, env=environment(JAVA_HOME="/no/such/jdk"))

    assert done.returncode == 2
    assert "JAVA_HOME is /no/such/jdk, but /no/such/jdk/bin/java does not exist" in one_line_of(
        done
    )


def test_a_job_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = headrace("run", "nope.conf", cwd=tmp_path)

    assert done.returncode == 2
    assert "nope.conf: can't be read: no such file" in one_line_of(done)


def test_a_job_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.conf").mkdir()
    done = headrace("run", "job.conf", cwd=tmp_path)

    assert done.returncode == 2
    assert "job.conf: can't be read: is a directory" in one_line_of(done)


@pytest.mark.parametrize(
    ("was", "becomes", "place", "says"),
    [
        ("source {", "source }", "3:8", "'{'"),
        ("FakeSource", "FakeSorce", "3:10", "FakeSource"),
        ("row.num", "row.nim", "3:", "row.num"),
    ],
    ids=["malformed", "unknown connector", "unknown option"],
)
def test_what_is_wrong_in_a_job_file_is_said_with_its_place_and_the_nearest_name(
    job_file: Path, tmp_path: Path, was: str, becomes: str, place: str, says: str
) -> None:
    job_file.write_text(JOB_FILE.replace(was, becomes))
    done = headrace("run", "job.conf", "--strict", cwd=tmp_path)

    line = one_line_of(done)
    assert done.returncode == 2
    assert f"job.conf:{place}" in line
    assert says in line
    assert not (tmp_path / ".headrace").exists(), "nothing was started"


def test_an_interval_of_nothing_is_refused_with_its_place_before_anything_starts(
    job_file: Path, tmp_path: Path
) -> None:
    job_file.write_text(JOB_FILE.replace("env {", "env { checkpoint.interval = 0,"))
    for arguments in (("run", "job.conf"), ("run", "job.conf", "--check")):
        done = headrace(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert (
            "job.conf:2:29: option 'checkpoint.interval' of env must be at least 1, and is 0"
            in one_line_of(done)
        )
    assert not (tmp_path / ".headrace").exists(), "nothing was started"


def test_an_option_without_effect_is_told_beside_the_answer(job_file: Path, tmp_path: Path) -> None:
    job_file.write_text(JOB_FILE.replace("env {", "env { custom_parameters { a = b },"))
    done = headrace("run", "job.conf", "--check", cwd=tmp_path)

    assert done.returncode == 0
    assert done.stderr == (
        "note: job.conf:2:7: option 'custom_parameters' of env has no effect yet: "
        "nothing reads it\n"
    )


def test_all_that_is_wrong_is_told_a_line_each_and_what_is_unknown_is_a_warning(
    job_file: Path, tmp_path: Path
) -> None:
    wrong = JOB_FILE.replace("env {", "env { parallelism = x, jobname = y,")
    job_file.write_text(wrong.replace("FakeSource", "FakeSorce"))
    done = headrace("run", "job.conf", cwd=tmp_path)

    assert done.returncode == 2
    begins = (
        "warning: job.conf:2:24: unknown option 'jobname' of env is ignored; ",
        "warning: job.conf: unknown names that are ignored: 1; ",
        "headrace: job.conf:2:21: option 'parallelism' of env must be a whole number",
        "headrace: job.conf:3:10: there is no source 'FakeSorce'; did you mean 'FakeSource'?",
    )
    lines = done.stderr.splitlines()
    assert len(lines) == len(begins)
    for line, begin in zip(lines, begins, strict=True):
        assert line.startswith(begin)


def test_an_unknown_option_is_told_and_counted_by_a_check(job_file: Path, tmp_path: Path) -> None:
    job_file.write_text(JOB_FILE.replace("env {", "env { parallelisms = 2,"))
    done = headrace("run", "job.conf", "--check", cwd=tmp_path)

    assert done.returncode == 0
    assert done.stderr == (
        "warning: job.conf:2:7: unknown option 'parallelisms' of env is ignored; did you mean "
        "'parallelism'?\n"
        "warning: job.conf: unknown names that are ignored: 1; --strict refuses them\n"
    )
    assert done.stdout.endswith("  1 unknown name is ignored, told above\n")


def test_a_port_in_use_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        done = headrace("coordinator", "--store", "sqlite:///s.db", "--bind", bind, cwd=tmp_path)

    assert done.returncode == 2
    assert f"address {bind} is already in use" in one_line_of(done)
    assert "--bind" in done.stderr
    assert "--port" in done.stderr, "`headrace up` passes this line on"


@pytest.mark.req("L4")
def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not a database at all\n" * 100)
    before = notes.read_bytes()
    done = headrace("coordinator", "--store", "sqlite:///notes.txt", *LOOPBACK, cwd=tmp_path)

    assert done.returncode == 2
    assert "notes.txt can not be used: file is not a database" in one_line_of(done)
    assert notes.read_bytes() == before


@pytest.mark.req("L4")
def test_the_database_of_another_application_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE recipes (id INTEGER)")
    other.close()
    done = headrace("coordinator", "--store", "sqlite:///other.db", *LOOPBACK, cwd=tmp_path)

    assert done.returncode == 2
    assert "holds tables of another application (recipes)" in one_line_of(done)


def test_a_store_that_can_not_be_reached_is_worth_another_try(tmp_path: Path) -> None:
    url = "postgresql://me:hush@127.0.0.1:1/x"
    done = headrace("coordinator", "--store", url, *LOOPBACK, cwd=tmp_path)

    assert done.returncode == 75
    assert "127.0.0.1:1/x is not available" in one_line_of(done)
    assert "hush" not in done.stderr


def test_strangers_are_served_only_with_a_token(tmp_path: Path) -> None:
    done = headrace("coordinator", "--store", "sqlite:///s.db", "--bind", "0.0.0.0:0", cwd=tmp_path)
    line = one_line_of(done)
    assert done.returncode == 2
    assert "HEADRACE_TOKEN" in line
    assert "127.0.0.1" in line


@pytest.mark.parametrize(("content", "says"), [(None, "No such file"), ("\n", "is empty")])
def test_a_token_file_that_holds_no_token_is_named(
    tmp_path: Path, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    store = ("--store", "sqlite:///s.db", *LOOPBACK)
    done = headrace("coordinator", *store, "--token-file", "token", cwd=tmp_path)

    assert done.returncode == 2
    assert "token file token" in one_line_of(done)
    assert says in done.stderr


def test_a_bad_setting_of_the_environment_names_its_variable(tmp_path: Path) -> None:
    done = headrace("job", "list", cwd=tmp_path, env=environment(HEADRACE_LOG_LEVEL="loud"))

    assert done.returncode == 2
    assert "HEADRACE_LOG_LEVEL can not be used" in one_line_of(done)


def test_no_coordinator_at_the_address_is_worth_another_try(tmp_path: Path) -> None:
    done = headrace("workers", "--coordinator", "http://127.0.0.1:1", cwd=tmp_path)

    assert done.returncode == 75
    assert "no coordinator answers: http://127.0.0.1:1 (" in one_line_of(done)


@pytest.mark.parametrize("option", [("-i", "novalue"), ("--conf", "=x")])
def test_a_pair_without_a_name_or_value_is_refused(
    job_file: Path, tmp_path: Path, option: tuple[str, str]
) -> None:
    done = headrace("run", str(job_file), *option, cwd=tmp_path)

    assert done.returncode == 2
    assert f"{option[0]} takes NAME=VALUE" in one_line_of(done)


def test_a_pattern_of_jars_that_fits_none_is_refused(job_file: Path, tmp_path: Path) -> None:
    done = headrace("run", str(job_file), "--allow-jars", "toy.jar", cwd=tmp_path)

    assert done.returncode == 2
    assert "--allow-jars: 'toy.jar' must be group:artifact" in one_line_of(done)


def test_a_job_whose_jars_nobody_allowed_is_refused_before_anything_is_started(
    job_file: Path, tmp_path: Path
) -> None:
    job_file.write_text('env { jars = ["org.toy:codec:1"] }\n' + job_file.read_text())
    done = headrace("run", str(job_file), "--allow-jars", "org.toy:other", cwd=tmp_path)

    assert done.returncode == 2
    said = one_line_of(done)
    assert "asks for org.toy:codec:1 in env.jars" in said
    assert "allow it with --allow-jars org.toy:codec" in said
    assert not (tmp_path / ".headrace").exists(), "nothing was started"


def test_detaching_needs_a_coordinator_that_stays(job_file: Path, tmp_path: Path) -> None:
    done = headrace("run", str(job_file), "--detach", cwd=tmp_path)

    assert done.returncode == 2
    assert "headrace up" in one_line_of(done)
    assert not (tmp_path / ".headrace").exists(), "nothing was started"
