"""Which transform a plugin's name stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.errors import Refused
from headrace.model.jobspec import PluginSpec
from headrace.transforms.sql import SqlTransform
from headrace.transforms.transform import Transform


class HasOptions(Protocol):
    @property
    def options(self) -> Mapping[str, Any]: ...


def make_transform(spec: PluginSpec, setting: HasOptions) -> Transform:
    if spec.plugin.lower() == "sql":
        return SqlTransform(spec.name, str(setting.options.get("query") or ""))
    raise Refused(f"this worker has no transform {spec.plugin!r}; known are Sql")
