"""The Deployment of a launch: one pod, which Kubernetes starts again when it ends.

A pod template of the user is the ground; what is ours is laid over it. In lists whose items have
names (containers, variables, volumes) the items of the same name are merged, the others kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, cast

from headrace.containers.kubernetes_api import Json
from headrace.containers.launching import Launch
from headrace.containers.properties import (
    EXPORT,
    SPARK_CONF,
    ContainerSetting,
    number,
    with_prefix,
)
from headrace.containers.worker_command import local_master, with_memory, worker_arguments

CONTAINER = "headrace"
PREFIX = "headrace"
NAME_CHARS_MAX = 63  # of a label, and of the names that Kubernetes makes from it
TOKEN_KEY = "token"  # noqa: S105 - a key in a Secret
MEMORY_PER_THREAD_MB = 1024
MEMORY_MAX_MB = 10_000_000
CPU_FACTOR_MAX = 1000
HEAP_RATIO = 0.8  # the rest is for Python and what Java keeps outside of its heap
STOP_GRACE_S = 120  # the worker gives its tasks back first
_UNFIT = re.compile(r"[^a-z0-9-]+")


def deployment_name(launch: Launch) -> str:
    """The same for the same launch, and for no other: it makes a second start a conflict."""
    fit = _UNFIT.sub("-", launch.resource.lower()).strip("-")
    name = f"{PREFIX}-{fit}-{launch.number}"
    if fit == launch.resource and len(name) <= NAME_CHARS_MAX:
        return name
    told = hashlib.sha256(launch.resource.encode()).hexdigest()[:10]
    return f"{PREFIX}-{fit[:30].strip('-')}-{told}-{launch.number}"


def labels(launch: Launch) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "headrace-worker",
        "app.kubernetes.io/managed-by": "headrace",
        "headrace/deployment": deployment_name(launch),
    }


def selector(launch: Launch) -> str:
    return f"headrace/deployment={deployment_name(launch)}"


def deployment(
    setting: ContainerSetting, launch: Launch, properties: Mapping[str, str], template: Json
) -> Json:
    said = {"headrace/resource": launch.resource, "headrace/launch": str(launch.number)}
    pod: Json = {
        "metadata": {"labels": labels(launch), "annotations": said},
        "spec": {
            "containers": [_container(setting, launch, properties)],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": STOP_GRACE_S,
        },
    }
    if names := properties.get("imagePullSecrets"):
        secrets = [{"name": name.strip()} for name in names.split(",") if name.strip()]
        pod["spec"]["imagePullSecrets"] = secrets
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": deployment_name(launch),
            "labels": labels(launch),
            "annotations": said,
        },
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # never two pods of one launch on purpose
            "selector": {"matchLabels": {"headrace/deployment": deployment_name(launch)}},
            "template": merged(template, pod),
        },
    }


def _container(setting: ContainerSetting, launch: Launch, properties: Mapping[str, str]) -> Json:
    memory_mb = _memory_mb(setting, launch, properties)
    ratio = heap_ratio(setting, properties)
    factor = number(setting, properties, "cpu.factor", default=1.0, most=CPU_FACTOR_MAX)
    arguments = worker_arguments(
        launch,
        master=properties.get("master") or local_master(launch),
        conf=with_memory(with_prefix(properties, SPARK_CONF), int(memory_mb * ratio)),
        home=properties.get("home"),
        warehouse=properties.get("warehouse"),
    )
    takes = {"cpu": f"{round(launch.threads * factor * 1000)}m", "memory": f"{memory_mb}Mi"}
    return {
        "name": CONTAINER,
        "image": properties["image"],
        "imagePullPolicy": properties.get("pullPolicy", "IfNotPresent"),
        "command": ["headrace"],
        "args": list(arguments),
        "env": _environment(properties),
        "resources": {"requests": takes, "limits": takes},
    }


def heap_ratio(setting: ContainerSetting, properties: Mapping[str, str]) -> float:
    return number(setting, properties, "extra.jvm.heap.ratio", default=HEAP_RATIO, most=1)


def _memory_mb(setting: ContainerSetting, launch: Launch, properties: Mapping[str, str]) -> int:
    """As asked for, or so much for each thread."""
    if launch.memory_mb > 0:
        return launch.memory_mb
    per_thread = number(
        setting, properties, "memory", default=MEMORY_PER_THREAD_MB, most=MEMORY_MAX_MB
    )
    return int(per_thread * launch.threads)


def _environment(properties: Mapping[str, str]) -> list[Json]:
    exported: list[Json] = [
        {"name": name, "value": value} for name, value in with_prefix(properties, EXPORT).items()
    ]
    if secret := properties.get("token-secret"):
        source = {"secretKeyRef": {"name": secret, "key": TOKEN_KEY}}
        exported.append({"name": "HEADRACE_TOKEN", "valueFrom": source})
    return exported


def merged(below: Any, above: Any) -> Any:
    """`above` laid over `below`: objects by key, lists of named things by name."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        old: dict[Any, Any] = dict(cast("Mapping[Any, Any]", below))
        new: dict[Any, Any] = dict(cast("Mapping[Any, Any]", above))
        shared = {key: merged(old[key], new[key]) for key in old.keys() & new.keys()}
        return {**old, **new, **shared}
    old_named, new_named = _by_name(below), _by_name(above)
    if old_named is None or new_named is None:
        return above
    return list(merged(old_named, new_named).values())


def _by_name(items: Any) -> dict[str, Any] | None:
    if not isinstance(items, list):
        return None
    found = cast("list[Any]", items)
    if not all(isinstance(item, Mapping) and "name" in item for item in found):
        return None
    return {item["name"]: item for item in found}
