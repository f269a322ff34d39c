"""What a plugin is made with: its options, defaults filled in and secrets put back."""

from __future__ import annotations

from typing import Literal

from headrace.connectors.connector import Setting
from headrace.jobfile.resolve import resolved_options
from headrace.model.jobspec import PluginSpec
from headrace.protocol.payloads import PipelinePayload

Role = Literal["source", "transform", "sink"]


def settings_for(
    plugin: PluginSpec, role: Role, payload: PipelinePayload, *, warehouse: str
) -> Setting:
    options = resolved_options(plugin, role, payload.secrets)
    parallelism = options.get("parallelism") or payload.env.parallelism
    assert isinstance(parallelism, int)
    return Setting(
        job=payload.job,
        incarnation=payload.incarnation,
        pipeline=payload.pipeline.number,
        parallelism=parallelism,
        streaming=payload.env.job_mode == "STREAMING",
        warehouse=warehouse,
        checkpoint_interval_ms=payload.env.checkpoint_interval_ms,
        options=options,
    )
