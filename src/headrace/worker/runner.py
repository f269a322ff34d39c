"""The runners: every kind of task, run on this worker's warm session in a Spark session of its own.

`Runner` runs the tasks of jobs, `TableRunner` those of lake tables. `settings_for` makes the
setting that a plugin is made with: its options, with defaults filled in and secrets put back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, TypeVar

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.connectors.connector import Setting
from headrace.connectors.registry import make_sink, make_source
from headrace.jobfile.spec_checks import resolved_options
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, EpochAt
from headrace.model.jobs.spec import PluginSpec
from headrace.protocol.messages import ForgetPayload, Message, PipelinePayload
from headrace.protocol.tables import (
    CommitPayload,
    DiscardPayload,
    DiscoverPayload,
    EvaluatePayload,
    OfCatalog,
    PlanPayload,
    RewritePayload,
)
from headrace.spark.jvm import JAVA_ERRORS, translated_errors
from headrace.spark.progress import SparkRowCounter
from headrace.transforms.registry import make_transform
from headrace.worker.execution import Execution
from headrace.worker.pipeline import Pipeline, Plugins
from headrace.worker.sinks import check_forgettable, failure_of
from headrace.worker.tables.catalogs import TableWork, config_of, discover, explained
from headrace.worker.tables.evaluation import evaluate_tables, plan_table
from headrace.worker.tables.rewrite import commit_process, discard_process, rewrite_bins
from headrace.worker.warm_session import WarmSpark, task_session

log = logging.getLogger(__name__)

Role = Literal["source", "transform", "sink"]
P = TypeVar("P", bound=OfCatalog)


class Runner:
    """Runs the tasks of jobs on this worker."""

    def __init__(self, spark: WarmSpark, clock: Clock, *, warehouse: str) -> None:
        self._spark, self._clock, self._warehouse = spark, clock, warehouse

    def pipeline(self, execution: Execution) -> Mapping[str, Any] | None:
        with task_session(self._spark, execution.id) as session, translated_errors(session):
            self._pipeline(execution, session).run()
        return None

    def settle(self, execution: Execution) -> Mapping[str, Any] | None:
        """Commit the epochs that an ended execution left prepared; abort those it left planned."""
        with task_session(self._spark, execution.id) as session, translated_errors(session):
            return self._pipeline(execution, session, settles=True).settle()

    def forget(self, execution: Execution) -> Mapping[str, Any] | None:
        """Delete what an ended job left at its targets. An unavailable target delays no other."""
        payload = ForgetPayload.model_validate(execution.assignment.payload)
        failed: dict[str, Exception] = {}
        with task_session(self._spark, execution.id) as session:
            for pipeline in payload.pipelines:
                for plugin in pipeline.sinks:
                    execution.check()
                    execution.set_progress(
                        f"forgetting {plugin.name} of pipeline {pipeline.number}"
                    )
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
        execution.set_progress("done")
        return None

    def _pipeline(
        self, execution: Execution, session: SparkSession, *, settles: bool = False
    ) -> Pipeline:
        payload = PipelinePayload.model_validate(execution.assignment.payload)
        plugins = self._plugins(execution, payload, settles=settles)
        return Pipeline(execution, payload, plugins, session, self._clock)

    def _plugins(self, execution: Execution, payload: PipelinePayload, *, settles: bool) -> Plugins:
        """`settles`: nothing is read, and the secrets of the sources were deleted at the end of the
        job."""
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
            counting=SparkRowCounter(execution.id),
        )


class TableRunner:
    """Runs the tasks of lake tables on this worker."""

    def __init__(self, spark: WarmSpark, clock: Clock, *, warehouse: str) -> None:
        self._spark, self._clock, self._warehouse = spark, clock, warehouse

    def discover(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, DiscoverPayload, discover)

    def evaluate(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, EvaluatePayload, evaluate_tables)

    def plan(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, PlanPayload, plan_table)

    def rewrite(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, RewritePayload, rewrite_bins)

    def commit(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, CommitPayload, commit_process)

    def discard(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, DiscardPayload, discard_process)

    def _run(
        self, execution: Execution, kind: type[P], task: Callable[[TableWork, P], Message]
    ) -> Mapping[str, Any]:
        payload = kind.model_validate(execution.assignment.payload)
        catalog = config_of(payload, self._warehouse)
        with task_session(self._spark, execution.id) as session:
            try:
                done = task(TableWork(execution, session, self._clock, catalog), payload)
            except JAVA_ERRORS as error:
                execution.check()  # a cancelled job may raise anything
                step = execution.progress.step
                raise explained(session, catalog, error, f"failed while {step}") from error
        return done.model_dump(mode="json")


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
    """`pipeline`: the number of the pipeline it belongs to. `idle`: the plugin will not be used, so
    its secrets may be gone, and stay redacted. `planned_tables`: shared by all sinks of an
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
