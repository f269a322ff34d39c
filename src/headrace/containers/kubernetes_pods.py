"""What Kubernetes tells of the pods of a Deployment: why they do not run, and how they ended."""

from __future__ import annotations

from headrace.containers.kubernetes_api import Json
from headrace.containers.kubernetes_manifest import CONTAINER

_STATUSES = ("initContainerStatuses", "containerStatuses")  # in the order in which they begin


def says(pod: Json) -> str:
    status: Json = pod.get("status", {})
    reason = _reason(status)
    phase = f"pod {pod['metadata']['name']} is {status.get('phase', 'unknown')}"
    parts = [f"{phase}: {reason}" if reason else phase]
    unplaced = _condition(status, "PodScheduled", "False")
    if unplaced is not None:
        parts.append(f"no node takes it: {unplaced}")
    for each in (each for name in _STATUSES for each in status.get(name, [])):
        parts += _container_says(each)
    return "; ".join(parts)


def why_no_pod(deployment: Json) -> str:
    """Such as a quota that is used up: the cluster tries on, and there is no pod that could say."""
    failed = _condition(deployment.get("status", {}), "ReplicaFailure", "True")
    return f"it has no pod yet: {failed}" if failed else "it has no pod yet"


def waits_for_another_run(pod: Json) -> bool:
    return any(
        container["name"] == CONTAINER
        and container.get("restartCount", 0) > 0
        and bool(container.get("state", {}).get("waiting"))
        for container in pod.get("status", {}).get("containerStatuses", [])
    )


def _container_says(container: Json) -> list[str]:
    waiting: Json = container.get("state", {}).get("waiting") or {}
    ended: Json = container.get("lastState", {}).get("terminated") or {}
    said = [f"{container['name']} waits: {_reason(waiting)}"] if waiting else []
    if ended:
        said.append(
            f"{container['name']} ended with code {ended.get('exitCode')} "
            f"({ended.get('reason', 'no reason')}), started again "
            f"{container.get('restartCount', 0)} times"
        )
    return said


def _condition(status: Json, kind: str, value: str) -> str | None:
    """Why the condition has that value. None: it has another, or there is none."""
    conditions: list[Json] = status.get("conditions", [])
    for each in conditions:
        if (each["type"], each["status"]) == (kind, value):
            return _reason(each)
    return None


def _reason(told: Json) -> str:
    return " ".join(filter(None, (told.get("reason"), told.get("message"))))
