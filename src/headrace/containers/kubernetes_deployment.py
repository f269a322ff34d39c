"""Workers as Deployments of one pod, through the official client of Kubernetes.

A Deployment heals itself: it starts its pod again for as long as it exists. So it is never started
again by us (R6), and its name, made of resource and launch, makes a second start a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.containers.kubernetes_api import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    Json,
    KubernetesApi,
    OfficialClient,
    explained,
    failures,
    status_of,
)
from headrace.containers.kubernetes_files import pod_template
from headrace.containers.kubernetes_manifest import (
    CONTAINER,
    CPU_FACTOR_MAX,
    MEMORY_MAX_MB,
    deployment,
    deployment_name,
    heap_ratio,
    labels,
    selector,
)
from headrace.containers.kubernetes_pods import says, waits_for_another_run, why_no_pod
from headrace.containers.launching import Launch, Launched, LaunchState, LaunchStatus, Supports
from headrace.containers.properties import (
    EXPORT,
    SPARK_CONF,
    ContainerSetting,
    Known,
    number,
    of_launch,
)
from headrace.containers.worker_command import check_heap
from headrace.errors import Refused, Unavailable
from headrace.model.redaction import secret_places, sounds_secret

KNOWN = Known(
    "kubernetes",
    (
        *("image", "namespace", "pullPolicy", "imagePullSecrets"),
        *("cpu.factor", "memory", "extra.jvm.heap.ratio", "token-secret"),
        *("master", "home", "warehouse"),
    ),
    required=("image",),
    whole=("kube-config-path", "podTemplate"),
)
PULL_POLICIES = ("Always", "IfNotPresent", "Never")


class KubernetesDeployments:
    supports = Supports(restart=False)

    def __init__(self, setting: ContainerSetting, api: KubernetesApi | None = None) -> None:
        KNOWN.check(setting)
        _check(setting)
        self._setting = setting
        place = f"{setting.place}: container {setting.name!r}"
        template = setting.properties.get("podTemplate")
        self._template = {} if template is None else pod_template(Path(template), place=place)
        path = setting.properties.get("kube-config-path")
        self._api = api or OfficialClient(Path(path) if path else None, place=place)
        self._fails = failures()

    @property
    def name(self) -> str:
        return self._setting.name

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        met = KNOWN.for_group(self._setting, group, properties)
        _check(met)
        if memory_mb > MEMORY_MAX_MB:
            raise met.wrong(f"memory is {memory_mb} MB; expected at most {MEMORY_MAX_MB}")
        check_heap(met, memory_mb, share=heap_ratio(met, met.properties))

    def start(self, launch: Launch) -> Launched:
        properties = of_launch(self._setting, launch)
        _check_secrets(self._setting, properties)
        namespace = self._namespace(launch)
        body = deployment(self._setting, launch, properties, self._template)
        try:
            self._api.create_namespaced_deployment(namespace, body)
        except self._fails as error:
            if status_of(error) != CONFLICT:
                raise explained(error, self._what("could not start", launch)) from error
            self._check_ours(launch)
        return Launched({"deployment": deployment_name(launch), "namespace": namespace})

    def stop(self, launch: Launch, *, grace_s: float) -> None:  # noqa: ARG002
        """The cluster ends its pod, with the grace that stands in the Deployment and not this."""
        name, namespace = deployment_name(launch), self._namespace(launch)
        try:
            self._api.delete_namespaced_deployment(name, namespace)
        except self._fails as error:
            if status_of(error) != NOT_FOUND:
                raise explained(error, self._what("could not stop", launch)) from error

    def status(self, launch: Launch) -> LaunchStatus:
        try:
            name, namespace = deployment_name(launch), self._namespace(launch)
            found = self._api.read_namespaced_deployment(name, namespace)
            pods = self._pods(launch)
        except self._fails as error:
            if status_of(error) != NOT_FOUND:
                told = explained(error, self._what("could not ask for", launch))
                raise Unavailable(str(told)) from error
            return LaunchStatus(LaunchState.UNKNOWN, said=f"there is no {self._place(launch)}")
        said = "\n".join(says(pod) for pod in pods) or why_no_pod(found)
        return LaunchStatus(LaunchState.RUNNING, said=said)

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        """Of the newest pod; of its run before, when it waits to be started again."""
        namespace = self._namespace(launch)
        try:
            pods = self._pods(launch)
            if not pods:
                return []
            return self._api.read_namespaced_pod_log(
                pods[-1]["metadata"]["name"],
                namespace,
                container=CONTAINER,
                tail_lines=lines,
                previous=waits_for_another_run(pods[-1]),
            ).splitlines()
        except self._fails as error:
            if status_of(error) == BAD_REQUEST:  # its container has not begun, so it wrote nothing
                return []
            raise explained(error, self._what("could not read the log of", launch)) from error

    def _pods(self, launch: Launch) -> list[Json]:
        """Oldest first."""
        found = self._api.list_namespaced_pod(
            self._namespace(launch), label_selector=selector(launch)
        )
        return sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))

    def _check_ours(self, launch: Launch) -> None:
        """After a conflict: what stands there must be of this launch, and stay."""
        try:
            found = self._api.read_namespaced_deployment(
                deployment_name(launch), self._namespace(launch)
            )
        except self._fails as error:
            raise explained(error, self._what("could not start", launch)) from error
        told: Mapping[str, Any] = found["metadata"]
        ours = labels(launch).items() <= told.get("labels", {}).items()
        if not ours or told.get("annotations", {}).get("headrace/resource") != launch.resource:
            raise Refused(
                f"{self._what('could not start', launch)}: {self._place(launch)} exists and is "
                "not ours; delete or rename it"
            )
        if told.get("deletionTimestamp"):
            raise Unavailable(
                f"{self._what('could not start', launch)}: {self._place(launch)} is being deleted"
            )

    def _namespace(self, launch: Launch) -> str:
        return of_launch(self._setting, launch).get("namespace", "default")

    def _place(self, launch: Launch) -> str:
        return f"Deployment {deployment_name(launch)} in namespace {self._namespace(launch)}"

    def _what(self, verb: str, launch: Launch) -> str:
        return f"container {self.name!r} {verb} resource {launch.resource!r}"


def _check(setting: ContainerSetting) -> None:
    properties = setting.properties
    policy = properties.get("pullPolicy", PULL_POLICIES[1])
    if policy not in PULL_POLICIES:
        raise setting.wrong(
            f"property 'pullPolicy' is {policy!r}; expected one of {', '.join(PULL_POLICIES)}"
        )
    number(setting, properties, "cpu.factor", default=1, most=CPU_FACTOR_MAX)
    number(setting, properties, "memory", default=1, most=MEMORY_MAX_MB)
    number(setting, properties, "extra.jvm.heap.ratio", default=1, most=1)
    if setting.token and not properties.get("token-secret"):
        raise setting.wrong(
            "the coordinator asks for a token, and a pod takes it from a Secret; make one by "
            "`kubectl create secret generic headrace-token --from-file=token=FILE` and set "
            "token-secret to its name"
        )
    _check_secrets(setting, properties)


def _check_secrets(setting: ContainerSetting, properties: Mapping[str, str]) -> None:
    """All of it ends in the Deployment, as arguments of the worker or as its variables."""
    for name, value in properties.items():
        named = name.startswith((SPARK_CONF, EXPORT)) and sounds_secret(name)
        if named or secret_places(value):
            raise setting.wrong(
                f"property {name!r} holds a secret, and would stand in the Deployment for all to "
                "read; give it by a variable from a Secret, in podTemplate"
            )
