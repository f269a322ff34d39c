"""Runs tasks on this worker's warm session: each in a session of its own."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.connectors.connector import Setting
from headrace.connectors.registry import make_sink, make_source
from headrace.formats.java_failures import in_our_words
from headrace.model.epoch import EpochAt
from headrace.model.jobspec import PluginSpec
from headrace.protocol.payloads import ForgetPayload, PipelinePayload
from headrace.transforms.registry import make_transform
from headrace.worker.execution import Execution
from headrace.worker.pipeline import Pipeline, Plugins
from headrace.worker.progress import SparkCounting
from headrace.worker.settings import Role, settings_for
from headrace.worker.sinks import check_forgettable, failure_of
from headrace.worker.spark import WarmSpark, task_session

log = logging.getLogger(__name__)


class Runner:
    """What every task of this worker is run with."""

    def __init__(self, spark: WarmSpark, clock: Clock, *, warehouse: str) -> None:
        self._spark, self._clock, self._warehouse = spark, clock, warehouse

    def pipeline(self, execution: Execution) -> Mapping[str, Any] | None:
        with task_session(self._spark, execution.id) as session, in_our_words(session):
            self._pipeline(execution, session).run()
        return None

    def settle(self, execution: Execution) -> Mapping[str, Any] | None:
        """Finish the epoch an ended execution left prepared, or abort the one it left planned."""
        with task_session(self._spark, execution.id) as session, in_our_words(session):
            return self._pipeline(execution, session, settles=True).settle()

    def forget(self, execution: Execution) -> Mapping[str, Any] | None:
        """Delete what an ended job left at its targets. One that is away holds up no other."""
        payload = ForgetPayload.model_validate(execution.assignment.payload)
        failed: dict[str, Exception] = {}
        with task_session(self._spark, execution.id) as session:
            for pipeline in payload.pipelines:
                for plugin in pipeline.sinks:
                    execution.check()
                    execution.says(f"forgetting {plugin.name} of pipeline {pipeline.number}")
                    try:
                        self._forget(execution, session, payload, pipeline.number, plugin)
                    except Exception as error:
                        facts = {"execution": execution.id, "sink": plugin.name}
                        log.exception("sink not cleaned", extra=facts)
                        failed[f"{plugin.name} of pipeline {pipeline.number}"] = error
        if failed:
            raise failure_of(f"not all that job {payload.job} left behind is deleted", failed)
        return None

    def _forget(
        self,
        execution: Execution,
        session: SparkSession,
        payload: ForgetPayload,
        pipeline: int,
        plugin: PluginSpec,
    ) -> None:
        setting = settings_for(
            plugin, "sink", payload, pipeline=pipeline, warehouse=self._warehouse
        )
        at = EpochAt(payload.incarnation, pipeline, payload.up_to, execution.id)
        sink = make_sink(plugin, setting)
        check_forgettable(sink, session, at, payload.completed)
        sink.forget(session, at, owners=payload.owners)

    def noop(self, execution: Execution) -> Mapping[str, Any] | None:
        execution.says("done")
        return None

    def _pipeline(
        self, execution: Execution, session: SparkSession, *, settles: bool = False
    ) -> Pipeline:
        payload = PipelinePayload.model_validate(execution.assignment.payload)
        plugins = self._plugins(execution, payload, settles=settles)
        return Pipeline(execution, payload, plugins, session, self._clock)

    def _plugins(self, execution: Execution, payload: PipelinePayload, *, settles: bool) -> Plugins:
        """`settles`: nothing is read, and the secrets of what would be read are gone with the end
        of the job."""
        spec = payload.pipeline
        planned_tables: dict[Hashable, Any] = {}

        def setting(plugin: PluginSpec, role: Role) -> Setting:
            return settings_for(
                plugin,
                role,
                payload,
                pipeline=spec.number,
                warehouse=self._warehouse,
                idle=settles and role != "sink",
                planned_tables=planned_tables,
            )

        return Plugins(
            sources=[make_source(plugin, setting(plugin, "source")) for plugin in spec.sources],
            transforms=[
                make_transform(plugin, setting(plugin, "transform")) for plugin in spec.transforms
            ],
            sinks=[make_sink(plugin, setting(plugin, "sink")) for plugin in spec.sinks],
            counting=SparkCounting(execution.id),
        )
