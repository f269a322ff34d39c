"""Our kinds of containers keep what every kind promises."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from headrace.containers import launch_claims
from headrace.containers.container import ContainerSetting, Launch
from headrace.containers.detached import MARK, DetachedWorkers
from headrace.containers.external import External
from headrace.containers.kubernetes.deployment import KubernetesDeployments
from headrace.containers.kubernetes.manifest import deployment_name
from headrace.containers.local import local_workers, spark_workers
from tests.cli.machine import environment, is_gone
from tests.containers.kubernetes.fake_kubernetes import FakeKubernetes, refusal
from tests.containers.launches import PATHS, ROOT, STAND_IN, TOKEN, launch_of
from tests.contracts.container import (
    AwayContract,
    ContainerHarness,
    EndContract,
    HealingContract,
    LifeContract,
    StartContract,
    WithdrawalContract,
)

# A coordinator that dies when it has spawned the process of a launch, and before it knows of it.
STARTER = """
import sys
from pathlib import Path
from headrace.seams import arm_from
from tests.containers.launches import launch_of
from tests.containers.test_contracts import DetachedHarness
arm_from("launch spawned, before its claim was seen=kill")
DetachedHarness(sys.argv[1], Path(sys.argv[2])).container().start(launch_of())
"""


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:  # it has ended meanwhile, or belongs to another user
        return None


class DetachedHarness(ContainerHarness):
    """Processes of this machine that are no Spark."""

    def __init__(self, kind: str, home: Path) -> None:
        self._kind, self._home = kind, home
        self._notes = home / "notes"
        self._notes.mkdir(exist_ok=True)

    def container(self) -> DetachedWorkers:
        properties = {"export.PYTHONPATH": PATHS, "export.STAND_IN_NOTES": str(self._notes)}
        if self._kind == "spark":
            properties["master"] = "spark://h:7077"
        made = ContainerSetting(self._kind, properties, "containers.conf:3", self._home, TOKEN)
        make = local_workers if self._kind == "local" else spark_workers
        return make(made, program=STAND_IN)

    def readable(self, launch: Launch) -> str:
        claim = launch_claims.read(self.container().folder(launch))
        assert claim is not None
        return " ".join(psutil.Process(claim.pid).cmdline())

    def running(self, launch: Launch) -> Sequence[object]:
        return [pid for pid in self._pids(launch) if not is_gone(pid)]

    def begun(self, launch: Launch) -> int:
        return len(self._pids(launch)) // 2

    def coming_up(self, launch: Launch) -> int:
        """By the mark that each of them has from its birth on."""
        folder, known = str(self.container().folder(launch)), self._pids(launch)
        return sum(
            _mark_of(each) == folder
            for each in psutil.process_iter()
            if each.pid not in known and not is_gone(each.pid)
        )

    def start_and_die(self, launch: Launch) -> None:
        command = [sys.executable, "-c", STARTER, self._kind, str(self._home)]
        done = subprocess.run(command, cwd=ROOT, env=environment(), timeout=120, check=False)
        assert done.returncode == -signal.SIGKILL

    def end_worker(self, launch: Launch) -> None:
        os.kill(self._pids(launch)[0], signal.SIGKILL)

    def close(self) -> None:
        for launch in (launch_of(), launch_of(2), launch_of(resource="r2")):
            self.container().stop(launch, grace_s=0)

    def _pids(self, launch: Launch) -> list[int]:
        """The worker, and the process that it started."""
        notes = self._notes / f"{launch.resource}-{launch.number}"
        return [int(pid) for pid in notes.read_text().split()] if notes.exists() else []


class KubernetesHarness(ContainerHarness):
    """A cluster is what its API says: each pod works as soon as it is there."""

    def __init__(self) -> None:
        self._api = FakeKubernetes()

    def container(self) -> KubernetesDeployments:
        properties = {"image": "registry.example/headrace:1", "token-secret": "headrace-token"}
        made = ContainerSetting("k8s", properties, "containers.conf:3", Path(), TOKEN)
        return KubernetesDeployments(made, self._api)

    def readable(self, launch: Launch) -> str:
        return json.dumps(self._api.deployments["default", deployment_name(launch)])

    def running(self, launch: Launch) -> Sequence[object]:
        return [name for _, name in self._api.pods if name.startswith(deployment_name(launch))]

    def begun(self, launch: Launch) -> int:
        for name in map(str, self.running(launch)):
            self._api.logs[name, False] = "starts\nworks\n"
        return len(self.running(launch))

    def start_and_die(self, launch: Launch) -> None:
        self.container().start(launch)  # the cluster has it, and nobody heard so

    def end_worker(self, launch: Launch) -> None:
        (pod,) = self._api.pods.values()
        (container,) = pod["status"]["containerStatuses"]
        container |= {"ready": False, "restartCount": 1, "state": {"waiting": {}}}
        container["lastState"] = {"terminated": {"exitCode": 1}}

    def go_away(self) -> None:
        self._api.down = refusal(503, "ServiceUnavailable", "etcd is away")


class ExternalHarness(ContainerHarness):
    def container(self) -> External:
        return External(ContainerSetting("external", {}, "containers.conf:3", Path(), TOKEN))

    def readable(self, launch: Launch) -> str:
        return self.container().start(launch).properties["command"]


class TestLocal(LifeContract, WithdrawalContract, EndContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[ContainerHarness]:
        made = DetachedHarness("local", tmp_path)
        yield made
        made.close()


class TestSpark(StartContract, WithdrawalContract, EndContract):
    """All that it does otherwise than `local` is the command line."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[ContainerHarness]:
        made = DetachedHarness("spark", tmp_path)
        yield made
        made.close()


class TestKubernetes(LifeContract, HealingContract, AwayContract):
    """Without `WithdrawalContract`: a delete that comes before the create finds nothing."""

    @pytest.fixture
    def harness(self) -> ContainerHarness:
        return KubernetesHarness()


class TestExternal(StartContract):
    """Nothing is started, so there is nothing to stop and nothing to know."""

    @pytest.fixture
    def harness(self) -> ContainerHarness:
        return ExternalHarness()
