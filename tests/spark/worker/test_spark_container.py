"""A container of the kind spark starts a real worker on a real cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from headrace.containers.child_process import session_members
from headrace.containers.container import ContainerSetting, Launch, LaunchState
from headrace.containers.detached import DetachedWorkers
from headrace.containers.local import spark_workers
from tests.cli.machine import is_gone, wait_until
from tests.spark.standalone import Cluster, standalone

SPARK_START_MAX_S = 600.0
SECRET = "nobody-may-see-this"


def executors_of(application: str) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if application in (one.info["cmdline"] or [])]


def active(cluster: Cluster) -> list[str]:
    return [application["id"] for application in cluster.state()["activeapps"]]


def on(cluster: Cluster, home: Path) -> DetachedWorkers:
    properties = {
        "master": cluster.master,
        "spark-conf.spark.driver.host": "127.0.0.1",
        "spark-conf.spark.executor.memory": "512m",
        "spark-conf.spark.executorEnv.LAKE_TOKEN": SECRET,
    }
    return spark_workers(ContainerSetting("cluster", properties, "containers.conf:3", home))


def application_of(container: DetachedWorkers, launch: Launch) -> str:
    """Known once the driver has registered with the cluster."""
    wait_until(
        lambda: "spark-application" in container.start(launch).properties,
        "the worker has its application",
        limit_s=SPARK_START_MAX_S,
    )
    return container.start(launch).properties["spark-application"]


def command_line(pid: int) -> str:
    """Of a process that may be ending: a launcher of Spark's is, about now."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:  # a zombie is one of these
        return ""


@pytest.mark.timeout(1800)
def test_a_worker_runs_on_a_standalone_cluster_and_its_application_is_found(
    tmp_path: Path,
) -> None:
    launch = Launch("r1", 1, "g1", 1, 512, ("http://127.0.0.1:9",))
    with standalone(tmp_path) as cluster:
        container = on(cluster, tmp_path)
        try:
            worker = int(container.start(launch).properties["pid"])
            application = application_of(container, launch)
            assert active(cluster) == [application]
            wait_until(lambda: bool(executors_of(application)), "it has an executor", limit_s=300)
            executor = executors_of(application)[0]

            # The kernel shows the command line of a new program before its environment.
            wait_until(lambda: executor.environ().get("LAKE_TOKEN") == SECRET, "it has its secret")
            family = [worker, executor.pid, *session_members(worker)]
            lines = [line for pid in family if (line := command_line(pid))]
            assert any("SparkSubmit" in line for line in lines)
            assert not [line for line in lines if SECRET in line]

            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: container.status(launch).code == -9, "its death is seen")
            assert container.status(launch).state is LaunchState.ENDED
            wait_until(lambda: not active(cluster), "the cluster has let it go", limit_s=300)
            assert all(is_gone(pid) for pid in session_members(worker))
        finally:
            container.stop(launch, grace_s=0)
