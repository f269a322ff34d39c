"""The Deployment manifest of a launch, and the checks of the files that users write for it.

The Deployment has one pod, which Kubernetes starts again when it ends. The user's pod template is
the base; our values are laid over it. In lists whose items have names (containers, variables,
volumes) the items of the same name are merged, and the others kept.

A kubeconfig and a pod template are checked before they are used: the client assumes that a
kubeconfig is well-formed, and a part of a template that does not fit would be silently lost in the
merge.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from headrace.containers.container import (
    EXPORT,
    SPARK_CONF,
    ContainerSetting,
    Launch,
    local_master,
    positive_number,
    with_memory,
    with_prefix,
    worker_arguments,
)
from headrace.errors import BadSetting, ExtraMissing

Json = dict[str, Any]
FILE_BYTES_MAX = 1_000_000
KUBE_CONFIG_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
CONTAINER = "headrace"
PREFIX = "headrace"
NAME_CHARS_MAX = 63  # of a label, and of names that Kubernetes derives from it
TOKEN_KEY = "token"  # noqa: S105 - a key in a Secret
MEMORY_PER_THREAD_MB = 1024
MEMORY_MAX_MB = 10_000_000
CPU_FACTOR_MAX = 1000
HEAP_RATIO = 0.8  # the rest is for Python and for Java's memory outside of the heap
STOP_GRACE_S = 120  # for the worker to give its tasks back
_UNFIT = re.compile(r"[^a-z0-9-]+")


def deployment(
    setting: ContainerSetting, launch: Launch, properties: Mapping[str, str], template: Json
) -> Json:
    annotations = {"headrace/resource": launch.resource, "headrace/launch": str(launch.number)}
    pod: Json = {
        "metadata": {"labels": labels(launch), "annotations": annotations},
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
            "annotations": annotations,
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
    factor = positive_number(setting, properties, "cpu.factor", default=1.0, most=CPU_FACTOR_MAX)
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
    return positive_number(setting, properties, "extra.jvm.heap.ratio", default=HEAP_RATIO, most=1)


def _memory_mb(setting: ContainerSetting, launch: Launch, properties: Mapping[str, str]) -> int:
    """The memory of the launch, or the property `memory` for each of its threads."""
    if launch.memory_mb > 0:
        return launch.memory_mb
    per_thread = positive_number(
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


def deployment_name(launch: Launch) -> str:
    """A name that only this launch has, so that a second start is a conflict."""
    fit = _UNFIT.sub("-", launch.resource.lower()).strip("-")
    name = f"{PREFIX}-{fit}-{launch.number}"
    if fit == launch.resource and len(name) <= NAME_CHARS_MAX:
        return name
    digest = hashlib.sha256(launch.resource.encode()).hexdigest()[:10]
    return f"{PREFIX}-{fit[:30].strip('-')}-{digest}-{launch.number}"


def labels(launch: Launch) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "headrace-worker",
        "app.kubernetes.io/managed-by": "headrace",
        "headrace/deployment": deployment_name(launch),
    }


def selector(launch: Launch) -> str:
    return f"headrace/deployment={deployment_name(launch)}"


def merged(below: Any, above: Any) -> Any:
    """`above` laid over `below`: mappings are merged by key, lists of named items by name."""
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
    entries = cast("list[Any]", items)
    if not all(isinstance(item, Mapping) and "name" in item for item in entries):
        return None
    return {item["name"]: item for item in entries}


def pod_template(path: Path, *, place: str) -> Json:
    """The metadata and spec of a template. Raises BadSetting for what Kubernetes would refuse."""
    way_out = "mend the file, or leave podTemplate out"
    file = _UserFile("podTemplate", path, place=place, way_out=way_out)
    expected = "a mapping with metadata and spec"
    content = file.read(expected)
    # A whole PodTemplate or Pod, or only its content.
    at = "template" if "template" in content else ""
    template = file.mapping(content["template"], at) if at else content
    kept = {key: value for key, value in template.items() if key in {"metadata", "spec"}}
    if not kept:
        raise file.problem(at, f"has neither metadata nor spec; expected {expected}")
    _check_metadata(file, file.mapping(kept.get("metadata", {}), "metadata"))
    _check_spec(file, file.mapping(kept.get("spec", {}), "spec"))
    return kept


def _check_metadata(file: _UserFile, metadata: Json) -> None:
    for key in ("labels", "annotations"):
        if key in metadata:
            file.mapping(metadata[key], f"{key} of metadata")


def _check_spec(file: _UserFile, spec: Json) -> None:
    """Check the parts of the spec that our values are merged into."""
    file.named(spec.get("imagePullSecrets", []), "imagePullSecrets of spec")
    for container in file.named(spec.get("containers", []), "containers of spec"):
        file.named(container.get("env", []), f"env of container {container['name']!r}")


def check_kube_config(path: Path, *, place: str) -> None:
    """Raise BadSetting for a file that does not have the form of a kubeconfig."""
    way_out = "set kube-config-path to a kubeconfig that kubectl takes"
    file = _UserFile("kubeconfig", path, place=place, way_out=way_out)
    config = file.read(f"a mapping with {', '.join(KUBE_CONFIG_LISTS)} and current-context")
    for key, of in KUBE_CONFIG_LISTS.items():
        items = config.get(key)  # kubectl writes null when there are none
        for item in () if items is None else file.named(items, key):
            file.mapping(item.get(of), f"{of} {item['name']!r} of {key}")


class _UserFile:
    """A YAML file of the user, and the errors about it."""

    def __init__(self, what: str, path: Path, *, place: str, way_out: str) -> None:
        self._what, self._path = what, path
        self._place, self._way_out = place, way_out

    def read(self, expected: str) -> Json:
        yaml: Any = import_extra("yaml", place=self._place)  # a dependency of the client
        try:
            with self._path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
            if len(data) > FILE_BYTES_MAX:
                raise self.problem("", f"is too large; expected at most {FILE_BYTES_MAX} bytes")
            content: Any = yaml.safe_load(data)
        except OSError as error:
            raise self.problem("", f"can not be read: {error}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise self.problem("", f"can not be read as YAML: {_yaml_problem(error)}") from error
        if not isinstance(content, dict):
            raise self.problem("", f"is {_kind_of(content)}; expected {expected}")
        return cast("Json", content)

    def mapping(self, value: Any, at: str) -> Json:
        if not isinstance(value, dict):
            raise self.problem(at, f"is {_kind_of(value)}; expected a mapping")
        return cast("Json", value)

    def named(self, value: Any, at: str) -> list[Json]:
        """Check that a value is a list of mappings, each with a name."""
        expected = "expected a list of mappings, each with a name"
        if not isinstance(value, list):
            raise self.problem(at, f"is {_kind_of(value)}; {expected}")
        items = cast("list[Any]", value)
        for number, item in enumerate(items, 1):
            if not isinstance(item, dict) or "name" not in item:
                kind = "a mapping without a name" if isinstance(item, dict) else _kind_of(item)
                raise self.problem(at, f"has {kind} as item {number}; {expected}")
        return items

    def problem(self, at: str, text: str) -> BadSetting:
        """`at`: the part of the file that is wrong; empty for the whole."""
        subject = f"{self._what} {self._path}{': ' if at else ''}{at}"
        return BadSetting(f"{self._place}: {subject} {text}; {self._way_out}")


def _yaml_problem(error: Exception) -> str:
    """The problem with line and column, without the text of the line: it may hold a secret."""
    mark: Any = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return "text"
        case _:
            return "a single value"


def import_extra(module: str, *, place: str) -> ModuleType:
    """Import a module of the extra `kubernetes`, or raise ExtraMissing with how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissing(
            "kubernetes",
            f"{place}: a container of the kind kubernetes needs the Kubernetes client",
        ) from error
