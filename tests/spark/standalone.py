"""A Spark standalone cluster of one master and one worker node, from the pyspark package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from tests.cli.machine import environment, wait_until

HOST = "127.0.0.1"
ANSWER_MAX_S = 60.0
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for one that lives for a minute
DAEMON_START_MAX_S = 300.0  # seconds when the machine is idle
_DAEMON = "org.apache.spark.deploy"
_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_WEB = re.compile(r"Bound MasterWebUI to \S*, and started at http://\S+:(\d+)")


@dataclass(frozen=True, slots=True)
class Cluster:
    master: str
    web: str

    def state(self) -> Mapping[str, Any]:
        with urllib.request.urlopen(f"{self.web}/json/", timeout=ANSWER_MAX_S) as answer:
            return json.loads(answer.read())


@contextmanager
def standalone(folder: Path) -> Generator[Cluster]:
    """It runs while the block does."""
    with ExitStack() as stack:
        master_log, node_log = folder / "master.log", folder / "node.log"
        ports = ("--port", "0", "--webui-port", "0")
        stack.enter_context(_daemon(master_log, "master.Master", "--host", HOST, *ports))
        wait_until(
            lambda: bool(_WEB.search(master_log.read_text())),
            "the master answers",
            limit_s=DAEMON_START_MAX_S,
        )
        at, web = _AT.search(master_log.read_text()), _WEB.search(master_log.read_text())
        assert at is not None
        assert web is not None
        cluster = Cluster(at[1], f"http://{HOST}:{web[1]}")
        size = ("--cores", "1", "--memory", "512m", "--work-dir", str(folder / "work"))
        node = ("worker.Worker", "--host", HOST, *ports, *size, cluster.master)
        stack.enter_context(_daemon(node_log, *node))
        wait_until(
            lambda: bool(cluster.state()["aliveworkers"]),
            "the node is part of it",
            limit_s=DAEMON_START_MAX_S,
        )
        yield cluster


@contextmanager
def _daemon(log: Path, name: str, *arguments: str) -> Generator[None]:
    home = Path(pyspark.__file__).parent
    told = environment(
        SPARK_LOCAL_IP=HOST,
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS=QUICK_JVM,
        SPARK_HOME=str(home),
    )
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"{_DAEMON}.{name}", *arguments],
            cwd=log.parent,
            env=told,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield
        finally:
            os.killpg(process.pid, 9)
