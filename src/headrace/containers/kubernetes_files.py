"""What users write for the kind kubernetes: a kubeconfig, and a template of pods.

Both are looked at before they are used. The client takes a kubeconfig for well-formed, and what
does not fit in a template would be lost without a word when ours is laid over it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from headrace.errors import BadSetting

Json = dict[str, Any]
FILE_BYTES_MAX = 1_000_000
KUBE_CONFIG_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}


def check_kube_config(path: Path, *, place: str) -> None:
    """Raises BadSetting for what has not the form of one."""
    way_out = "set kube-config-path to a kubeconfig that kubectl takes"
    file = _UserFile("kubeconfig", path, place=place, way_out=way_out)
    found = file.read(f"a mapping with {', '.join(KUBE_CONFIG_LISTS)} and current-context")
    for key, of in KUBE_CONFIG_LISTS.items():
        items = found.get(key)  # null as kubectl writes it, when there are none
        for item in () if items is None else file.named(items, key):
            file.mapping(item.get(of), f"{of} {item['name']!r} of {key}")


def pod_template(path: Path, *, place: str) -> Json:
    """Its metadata and spec. Raises BadSetting for what Kubernetes would not take as such."""
    way_out = "mend the file, or leave podTemplate out"
    file = _UserFile("podTemplate", path, place=place, way_out=way_out)
    expected = "a mapping with metadata and spec"
    found = file.read(expected)
    # A whole PodTemplate or Pod, or only what stands in one.
    at = "template" if "template" in found else ""
    template = file.mapping(found["template"], at) if at else found
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
    """What ours is merged with."""
    file.named(spec.get("imagePullSecrets", []), "imagePullSecrets of spec")
    for container in file.named(spec.get("containers", []), "containers of spec"):
        file.named(container.get("env", []), f"env of container {container['name']!r}")


class _UserFile:
    """A file in YAML, and what is to be said about it."""

    def __init__(self, what: str, path: Path, *, place: str, way_out: str) -> None:
        self._what, self._path = what, path
        self._place, self._way_out = place, way_out

    def read(self, expected: str) -> Json:
        yaml: Any = imported("yaml", place=self._place)  # the client is made with it
        try:
            with self._path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX + 1)
            if len(text) > FILE_BYTES_MAX:
                raise self.problem("", f"is too large; expected at most {FILE_BYTES_MAX} bytes")
            found: Any = yaml.safe_load(text)
        except OSError as error:
            raise self.problem("", f"can not be read: {error}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise self.problem("", f"can not be read as YAML: {_where(error)}") from error
        if not isinstance(found, dict):
            raise self.problem("", f"is {_kind_of(found)}; expected {expected}")
        return cast("Json", found)

    def mapping(self, value: Any, at: str) -> Json:
        if not isinstance(value, dict):
            raise self.problem(at, f"is {_kind_of(value)}; expected a mapping")
        return cast("Json", value)

    def named(self, value: Any, at: str) -> list[Json]:
        """A list of mappings, each with its name."""
        expected = "expected a list of mappings, each with a name"
        if not isinstance(value, list):
            raise self.problem(at, f"is {_kind_of(value)}; {expected}")
        items = cast("list[Any]", value)
        for number, item in enumerate(items, 1):
            if not isinstance(item, dict) or "name" not in item:
                told = "a mapping without a name" if isinstance(item, dict) else _kind_of(item)
                raise self.problem(at, f"has {told} as item {number}; {expected}")
        return items

    def problem(self, at: str, told: str) -> BadSetting:
        """`at`: the part of it that is meant; empty for the whole."""
        subject = f"{self._what} {self._path}{': ' if at else ''}{at}"
        return BadSetting(f"{self._place}: {subject} {told}; {self._way_out}")


def _where(error: Exception) -> str:
    """Line and column, and not the line: it may hold a secret."""
    mark: Any = getattr(error, "problem_mark", None)
    told = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    return told if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {told}"


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


def imported(module: str, *, place: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise BadSetting(
            f"{place}: a container of the kind kubernetes needs the Kubernetes client, which is "
            "not installed; install headrace[kubernetes]"
        ) from error
