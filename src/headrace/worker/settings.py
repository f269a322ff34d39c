"""What a plugin is made with: its options, defaults filled in and secrets put back."""

from __future__ import annotations

from typing import Literal

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
) -> Setting:
    """`pipeline`: the number of the one it belongs to."""
    options = resolved_options(plugin, role, payload.secrets)
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
    )


def _commit_deadline_s(payload: PipelinePayload | ForgetPayload) -> float:
    match payload:
        case PipelinePayload():
            return payload.commit_deadline_s
        case ForgetPayload():
            return COMMIT_DEADLINE_S  # it commits nothing
