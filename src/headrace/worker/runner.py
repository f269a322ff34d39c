"""The runners: every kind of task, run on this worker's warm session in a Spark session of its own.

`Runner` runs the tasks of jobs, `TableRunner` those of lake tables, as their registry has them.
`settings_for` makes the setting that a plugin is made with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pyspark.sql import SparkSession

from headrace.clock import Clock
from headrace.connectors.connector import Setting, Source
from headrace.connectors.registry import make_sink, make_source
from headrace.errors import UnknownTaskKind
from headrace.lake.table_format import AnyTableFormat
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, EpochAt
from headrace.model.jobs.spec import PipelineSpec, PluginSpec
from headrace.model.task import TaskKind
from headrace.plugins.catalog import catalog
from headrace.plugins.secrets import lacks_secrets
from headrace.plugins.syntax_tree import ROLES, Role
from headrace.protocol.messages import ForgetPayload, PipelinePayload
from headrace.spark.jvm_bridge import translated_errors
from headrace.spark.row_carrier import SparkRowCarrier
from headrace.spark.row_counts import SparkRowCounter
from headrace.transforms.registry import make_transform
from headrace.worker.execution import Execution, Run
from headrace.worker.jars import WorkerJars, jar_requests
from headrace.worker.pipeline import Pipeline, Plugins
from headrace.worker.sinks import check_forgettable, close_sink, failure_of
from headrace.worker.tables.catalogs import TableWork, explained
from headrace.worker.tables.registry import FORMATS, TABLE_RUNS, AnyTableRun, config_of, format_of
from headrace.worker.warm_session import WarmSpark, task_session

log = logging.getLogger(__name__)


class Runner:
    """Runs the tasks of jobs on this worker."""

    def __init__(
        self, spark: WarmSpark, clock: Clock, *, warehouse: str, jars: WorkerJars | None = None
    ) -> None:
        """`jars`: None when the JVM has all that its tasks need, and nothing is added."""
        self._spark, self._clock, self._warehouse = spark, clock, warehouse
        self._jars = jars

    def runs(self) -> Mapping[TaskKind, Run]:
        return {
            TaskKind.PIPELINE: self.pipeline,
            TaskKind.SETTLE: self.settle,
            TaskKind.FORGET: self.forget,
            TaskKind.NOOP: self.noop,
        }

    def pipeline(self, execution: Execution) -> Mapping[str, Any] | None:
        self._provide_jars(execution)
        with task_session(self._spark, execution.id) as session, translated_errors(session):
            self._pipeline(execution, session).run()
        return None

    def settle(self, execution: Execution) -> Mapping[str, Any] | None:
        """Commit the epochs that an ended execution left prepared; abort those it left planned."""
        self._provide_jars(execution, settles=True)
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
                        only = pipeline.model_copy(update={"sinks": (plugin,)})
                        self._provide(execution, payload, (only,), ("sink",), settles=True)
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
            plugin, payload, pipeline=pipeline, warehouse=self._warehouse, clock=self._clock
        )
        at = EpochAt(payload.incarnation, pipeline, payload.up_to, execution.id)
        sink = make_sink(plugin, setting, secrets=payload.secrets)
        try:
            check_forgettable(sink, session, at, payload.completed)
            sink.forget(session, at, owners=payload.owners)
        finally:
            close_sink(sink, execution.id)

    def _provide_jars(self, execution: Execution, *, settles: bool = False) -> None:
        """See that the JVM has the jars of the task's plug-ins, before anything is begun."""
        payload = PipelinePayload.model_validate(execution.assignment.payload)
        roles: Sequence[Role] = ("source", "sink") if settles else ROLES
        self._provide(execution, payload, (payload.pipeline,), roles, settles=settles)

    def _provide(
        self,
        execution: Execution,
        payload: PipelinePayload | ForgetPayload,
        pipelines: Sequence[PipelineSpec],
        roles: Sequence[Role],
        *,
        settles: bool,
    ) -> None:
        if self._jars is not None:
            env, secrets = payload.env, payload.secrets
            requests = jar_requests(pipelines, roles, env, secrets, settles=settles)
            self._jars.provide(requests, execution)

    def noop(self, execution: Execution) -> Mapping[str, Any] | None:
        execution.set_progress("done")
        return None

    def _pipeline(
        self, execution: Execution, session: SparkSession, *, settles: bool = False
    ) -> Pipeline:
        payload = PipelinePayload.model_validate(execution.assignment.payload)
        plugins = self.plugins_of(execution, payload, settles=settles)
        return Pipeline(execution, payload, plugins, session, self._clock)

    def plugins_of(
        self, execution: Execution, payload: PipelinePayload, *, settles: bool
    ) -> Plugins:
        """What the pipeline is made of. `settles`: nothing is read, and sources are only told of
        commits; one that can't be made is left out, as when its secrets went with the job."""
        spec, secrets = payload.pipeline, payload.secrets
        planned_tables: dict[Hashable, Any] = {}

        def setting(plugin: PluginSpec) -> Setting:
            return settings_for(
                plugin,
                payload,
                pipeline=spec.number,
                warehouse=self._warehouse,
                clock=self._clock,
                planned_tables=planned_tables,
            )

        def source(plugin: PluginSpec) -> Source | None:
            try:
                known = catalog().find("source", plugin.plugin)
                if settles and lacks_secrets(plugin, known, secrets):
                    return None
                return make_source(plugin, setting(plugin), secrets=secrets)
            except Exception as error:
                if not settles:
                    raise
                facts = {"execution": execution.id, "source": plugin.name, "reason": str(error)}
                log.warning("source not told of commits", extra=facts)
                return None

        return Plugins(
            sources=[made for plugin in spec.sources if (made := source(plugin)) is not None],
            transforms=[
                make_transform(plugin, setting(plugin), secrets=secrets)
                for plugin in (() if settles else spec.transforms)
            ],
            sinks=[make_sink(plugin, setting(plugin), secrets=secrets) for plugin in spec.sinks],
            counting=SparkRowCounter(execution.id),
            carrier=SparkRowCarrier(),
        )


class TableRunner:
    """Runs the tasks of lake tables on this worker."""

    def __init__(
        self,
        sessions: Callable[[str], AbstractContextManager[SparkSession]],
        clock: Clock,
        *,
        warehouse: str,
        formats: Sequence[AnyTableFormat] = FORMATS,
        tasks: Sequence[AnyTableRun] = TABLE_RUNS,
    ) -> None:
        """`sessions`: the Spark session of an execution, by its id."""
        self._sessions, self._clock = sessions, clock
        self._warehouse, self._formats = warehouse, formats
        self._tasks: Mapping[str, AnyTableRun] = {each.type.kind: each for each in tasks}

    def runs(self) -> Mapping[TaskKind, Run]:
        return {each.type.kind: self.run for each in self._tasks.values()}

    def run(self, execution: Execution) -> Mapping[str, Any]:
        """Run a task of any kind that the registry has; `UnknownTaskKind` for others."""
        kind = execution.assignment.kind
        task = self._tasks.get(kind)
        if task is None:
            raise UnknownTaskKind(kind)
        payload = task.type.payload.model_validate(execution.assignment.payload)
        table_format = format_of(payload.catalog, self._formats)
        catalog = config_of(payload, table_format, warehouse=self._warehouse)
        with self._sessions(execution.id) as session:
            work = TableWork(execution, session, self._clock, catalog, table_format)
            try:
                done = task.run(work, payload)
            except table_format.errors.types as error:
                execution.check()  # a cancelled job may raise anything
                what = f"failed while {execution.progress.step}"
                raise explained(work, error, what) from error
        return done.model_dump(mode="json")


def settings_for(
    plugin: PluginSpec,
    payload: PipelinePayload | ForgetPayload,
    *,
    pipeline: int,
    warehouse: str,
    clock: Clock,
    planned_tables: dict[Hashable, Any] | None = None,
) -> Setting:
    """`pipeline`: the number of the pipeline it belongs to. `planned_tables`: shared by all sinks
    of an execution."""
    parallelism = plugin.options.get("parallelism") or payload.env.parallelism
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
        has_committed=isinstance(payload, PipelinePayload)
        and plugin.name in payload.restore.written,
        planned_tables={} if planned_tables is None else planned_tables,
        clock=clock,
        log=logging.getLogger(f"headrace.connectors.{plugin.plugin}"),
    )


def _commit_deadline_s(payload: PipelinePayload | ForgetPayload) -> float:
    match payload:
        case PipelinePayload():
            return payload.commit_deadline_s
        case ForgetPayload():
            return COMMIT_DEADLINE_S  # it commits nothing
