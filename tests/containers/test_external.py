"""What the user starts is started by a command that is right and tells no secret."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config import COORDINATOR_ONLY, child_environment
from headrace.containers.container import LaunchState, Supports
from headrace.containers.external import External
from headrace.errors import Refused
from headrace.store.core.keyring import SecretKey
from tests.containers.launches import TOKEN, launch_of, setting


def test_it_can_be_asked_for_nothing_but_the_command(tmp_path: Path) -> None:
    container, launch = External(setting(tmp_path, "external")), launch_of()

    assert container.supports == Supports(
        start=False, stop=False, restart=False, status=False, logs=False
    )
    assert container.status(launch).state is LaunchState.UNKNOWN
    with pytest.raises(Refused, match="end its process where you started it"):
        container.stop(launch, grace_s=0)
    with pytest.raises(Refused, match="it is where you started it"):
        container.logs(launch, lines=1)


def test_the_command_is_one_that_headrace_understands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(7, **{"spark-conf.spark.executor.memory": "2 g", "master": "yarn"})
    line = shlex.split(External(setting(tmp_path, "external")).start(launch).properties["command"])
    told: dict[str, object] = {}
    monkeypatch.chdir(tmp_path)
    Path("headrace.token").write_text("shown")

    def serve_worker(**given: object) -> None:
        told.update(given, inherited=set(child_environment()) & set(COORDINATOR_ONLY))

    monkeypatch.setenv("HEADRACE_STORE", "sqlite:///x.db")
    monkeypatch.setenv("HEADRACE_ALLOW_JARS", "org.toy:*, a:b")
    monkeypatch.setenv("HEADRACE_SECRET_KEY", SecretKey.new().text)

    monkeypatch.setattr("headrace.worker.service.serve_worker", serve_worker)

    done = CliRunner().invoke(app, line[1:], catch_exceptions=False)

    assert line[0] == "headrace"
    assert done.exit_code == 0, done.output
    assert told["coordinators"] == ["http://a:7300", "http://b:7300"]
    assert (told["group"], told["slots"], told["token"]) == ("g1", 3, "shown")
    assert told["spark_master"] == "yarn"
    assert told["inherited"] == set(), "its JVM needs neither the store nor its key"
    assert told["conf"] == {"spark.driver.memory": "512m", "spark.executor.memory": "2 g"}
    assert told["allow_jars"] == ("org.toy:*", "a:b")
    assert str(told["launch"]) == "WorkerLaunch(resource='r1', number=7, folder=None)"


def test_the_command_tells_no_secret(tmp_path: Path) -> None:
    key = "spark-conf.spark.hadoop.fs.s3a.secret.key"
    container = External(setting(tmp_path, "external"))

    uri = {"spark-conf.spark.sql.catalog.c.uri": "jdbc:postgresql://u:hidden@db/x"}
    command = container.start(launch_of(1, **{key: "hidden"}, **uri)).properties["command"]

    assert TOKEN not in command
    assert "hidden" not in command
    assert "--token-file headrace.token" in command
    assert TOKEN not in repr(setting(tmp_path))


@pytest.mark.parametrize(
    "arguments",
    [["--launch", "1"], ["--resource-id", "r"], ["--launch-dir", "d"]],
    ids=lambda words: words[0],
)
def test_half_of_a_launch_is_refused(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["worker", "--coordinator", "http://a:1", *arguments])

    assert "belong together" in str(done.exception)
