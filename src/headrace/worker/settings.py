"""What a plugin is made with: its options, defaults filled in and secrets put back."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from headrace.connectors.connector import Setting
from headrace.jobfile.resolve import resolved_options
from headrace.model.epoch import COMMIT_DEADLINE_S
from headrace.model.jobspec import PluginSpec
from headrace.protocol.payloads import ForgetPayload, PipelinePayload

Role = Literal["source", "transform", "sink"]


def settings_for(
    plugin: PluginSpec,
    role: Role,
    payload: PipelinePayload | ForgetPayload,
    *,
    pipeline: int,
    warehouse: str,
    idle: bool = False,
    planned_tables: dict[Hashable, Any] | None = None,
) -> Setting:
    """`pipeline`: the number of the one it belongs to. `idle`: it is not asked for anything, so
    that its secrets may be gone, and stay redacted. `planned_tables`: shared by all sinks of an
    execution."""
    options = resolved_options(plugin, role, None if idle else payload.secrets)
    parallelism = options.get("parallelism") or payload.env.parallelism
    assert isinstance(parallelism, int)
    return Setting(
        job=payload.job,
        incarnation=payload.incarnation,
        pipeline=pipeline,
        parallelism=parallelism,
        streaming=payload.env.job_mode == "STREAMING",
        warehouse=warehouse,
        checkpoint_interval_ms=payload.env.checkpoint_interval_ms,
        commit_deadline_s=_commit_deadline_s(payload),
        options=options,
        has_committed=isinstance(payload, PipelinePayload)
        and plugin.name in payload.restore.written,
        planned_tables={} if planned_tables is None else planned_tables,
    )


def _commit_deadline_s(payload: PipelinePayload | ForgetPayload) -> float:
    match payload:
        case PipelinePayload():
            return payload.commit_deadline_s
        case ForgetPayload():
            return COMMIT_DEADLINE_S  # it commits nothing
