"""Workers as Deployments of one pod, through the official client of Kubernetes.

A Deployment heals itself: it starts its pod again for as long as it exists. So the coordinator
never restarts it (R6). Its name is made of resource and launch, so that a second start is a
conflict. The summaries say what Kubernetes reports of its pods: why they do not run, and how they
ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.containers.container import (
    EXPORT,
    SPARK_CONF,
    ContainerSetting,
    KnownProperties,
    Launch,
    Launched,
    LaunchState,
    LaunchStatus,
    Supports,
    check_heap,
    launch_properties,
    positive_number,
)
from headrace.containers.kubernetes.api import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    KubernetesApi,
    OfficialClient,
    api_errors,
    explained,
    status_of,
)
from headrace.containers.kubernetes.manifest import (
    CONTAINER,
    CPU_FACTOR_MAX,
    MEMORY_MAX_MB,
    Json,
    deployment,
    deployment_name,
    heap_ratio,
    labels,
    pod_template,
    selector,
)
from headrace.errors import Refused, Unavailable
from headrace.model.text import secret_places, sounds_secret

_STATUSES = ("initContainerStatuses", "containerStatuses")  # in the order of their starts
KNOWN = KnownProperties(
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
    """A `WorkerContainer` whose workers are Deployments of one pod."""

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
        self._api_errors = api_errors()

    @property
    def name(self) -> str:
        return self._setting.name

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        merged = KNOWN.for_group(self._setting, group, properties)
        _check(merged)
        if memory_mb > MEMORY_MAX_MB:
            raise merged.wrong(f"memory is {memory_mb} MB; expected at most {MEMORY_MAX_MB}")
        check_heap(merged, memory_mb, share=heap_ratio(merged, merged.properties))

    def start(self, launch: Launch) -> Launched:
        properties = launch_properties(self._setting, launch)
        _check_secrets(self._setting, properties)
        namespace = self._namespace(launch)
        body = deployment(self._setting, launch, properties, self._template)
        try:
            self._api.create_namespaced_deployment(namespace, body)
        except self._api_errors as error:
            if status_of(error) != CONFLICT:
                raise explained(error, self._what("could not start", launch)) from error
            self._check_ours(launch)
        return Launched({"deployment": deployment_name(launch), "namespace": namespace})

    def stop(self, launch: Launch, *, grace_s: float) -> None:  # noqa: ARG002
        """Delete the Deployment. The cluster ends its pod, with the grace period of the Deployment
        instead of `grace_s`."""
        name, namespace = deployment_name(launch), self._namespace(launch)
        try:
            self._api.delete_namespaced_deployment(name, namespace)
        except self._api_errors as error:
            if status_of(error) != NOT_FOUND:
                raise explained(error, self._what("could not stop", launch)) from error

    def status(self, launch: Launch) -> LaunchStatus:
        try:
            name, namespace = deployment_name(launch), self._namespace(launch)
            deployed = self._api.read_namespaced_deployment(name, namespace)
            pods = self._pods(launch)
        except self._api_errors as error:
            if status_of(error) != NOT_FOUND:
                failure = explained(error, self._what("could not ask for", launch))
                raise Unavailable(str(failure)) from error
            return LaunchStatus(LaunchState.UNKNOWN, said=f"there is no {self._place(launch)}")
        message = "\n".join(pod_summary(pod) for pod in pods) or why_no_pod(deployed)
        return LaunchStatus(LaunchState.RUNNING, said=message)

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        """The log of the newest pod; of its previous run when it waits to be started again."""
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
        except self._api_errors as error:
            if status_of(error) == BAD_REQUEST:  # its container has not started, so there is no log
                return []
            raise explained(error, self._what("could not read the log of", launch)) from error

    def _pods(self, launch: Launch) -> list[Json]:
        """The pods of the launch, the oldest first."""
        pods = self._api.list_namespaced_pod(
            self._namespace(launch), label_selector=selector(launch)
        )
        return sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))

    def _check_ours(self, launch: Launch) -> None:
        """After a conflict: the existing Deployment must be that of this launch, and stay."""
        try:
            deployed = self._api.read_namespaced_deployment(
                deployment_name(launch), self._namespace(launch)
            )
        except self._api_errors as error:
            raise explained(error, self._what("could not start", launch)) from error
        metadata: Mapping[str, Any] = deployed["metadata"]
        ours = labels(launch).items() <= metadata.get("labels", {}).items()
        if not ours or metadata.get("annotations", {}).get("headrace/resource") != launch.resource:
            raise Refused(
                f"{self._what('could not start', launch)}: {self._place(launch)} exists and is "
                "not ours; delete or rename it"
            )
        if metadata.get("deletionTimestamp"):
            raise Unavailable(
                f"{self._what('could not start', launch)}: {self._place(launch)} is being deleted"
            )

    def _namespace(self, launch: Launch) -> str:
        return launch_properties(self._setting, launch).get("namespace", "default")

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
    positive_number(setting, properties, "cpu.factor", default=1, most=CPU_FACTOR_MAX)
    positive_number(setting, properties, "memory", default=1, most=MEMORY_MAX_MB)
    positive_number(setting, properties, "extra.jvm.heap.ratio", default=1, most=1)
    if setting.token and not properties.get("token-secret"):
        raise setting.wrong(
            "the coordinator asks for a token, and a pod takes it from a Secret; make one by "
            "`kubectl create secret generic headrace-token --from-file=token=FILE` and set "
            "token-secret to its name"
        )
    _check_secrets(setting, properties)


def _check_secrets(setting: ContainerSetting, properties: Mapping[str, str]) -> None:
    """Refuse secrets: all properties end up in the Deployment, as arguments or variables."""
    for name, value in properties.items():
        named = name.startswith((SPARK_CONF, EXPORT)) and sounds_secret(name)
        if named or secret_places(value):
            raise setting.wrong(
                f"property {name!r} holds a secret, and would stand in the Deployment for all to "
                "read; give it by a variable from a Secret, in podTemplate"
            )


def pod_summary(pod: Json) -> str:
    """The phase of a pod, and why it or its containers do not run, in one line for people."""
    status: Json = pod.get("status", {})
    reason = _reason(status)
    phase = f"pod {pod['metadata']['name']} is {status.get('phase', 'unknown')}"
    parts = [f"{phase}: {reason}" if reason else phase]
    unplaced = _condition(status, "PodScheduled", "False")
    if unplaced is not None:
        parts.append(f"no node takes it: {unplaced}")
    for each in (each for name in _STATUSES for each in status.get(name, [])):
        parts += _container_summaries(each)
    return "; ".join(parts)


def why_no_pod(deployment: Json) -> str:
    """Why a Deployment has no pod, such as an exhausted quota: the cluster keeps trying."""
    failed = _condition(deployment.get("status", {}), "ReplicaFailure", "True")
    return f"it has no pod yet: {failed}" if failed else "it has no pod yet"


def waits_for_another_run(pod: Json) -> bool:
    """Whether the worker of a pod has ended, and waits for Kubernetes to start it again."""
    return any(
        container["name"] == CONTAINER
        and container.get("restartCount", 0) > 0
        and bool(container.get("state", {}).get("waiting"))
        for container in pod.get("status", {}).get("containerStatuses", [])
    )


def _container_summaries(container: Json) -> list[str]:
    waiting: Json = container.get("state", {}).get("waiting") or {}
    ended: Json = container.get("lastState", {}).get("terminated") or {}
    summaries = [f"{container['name']} waits: {_reason(waiting)}"] if waiting else []
    if ended:
        summaries.append(
            f"{container['name']} ended with code {ended.get('exitCode')} "
            f"({ended.get('reason', 'no reason')}), started again "
            f"{container.get('restartCount', 0)} times"
        )
    return summaries


def _condition(status: Json, kind: str, value: str) -> str | None:
    """Why the condition has that value; None when it has another, or there is no such one."""
    conditions: list[Json] = status.get("conditions", [])
    for each in conditions:
        if (each["type"], each["status"]) == (kind, value):
            return _reason(each)
    return None


def _reason(state: Json) -> str:
    return " ".join(filter(None, (state.get("reason"), state.get("message"))))
